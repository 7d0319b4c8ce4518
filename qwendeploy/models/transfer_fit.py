"""Fit of the step model: maximum a posteriori, all machines and effects together.

Residuals are of the logarithm of the rate, down-weighted beyond two standard deviations (a
pseudo-Huber loss), so that one odd rig does not move the physics. Every parameter and every effect
has a Gaussian prior in log space, which is ridge regression with a spread of its own for each; the
posterior covariance is the inverse Hessian. Rigs (one host with its links and power limits) are
fitted so that they do not bend the GPU effects, and are not kept: a new box is a new rig.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qwendeploy.models.step import EFFECTS, PRIORS, Array, Features, StepModel, noise
from qwendeploy.models.transfer import TransferFit

STEP = 1e-4
BEND = 2.0


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured rate; ``group`` names what may be held out, ``label`` where it came from."""

    features: Features
    rate: float
    label: str = ""


class Fitter:
    """Observations prepared once, fitted many times with some held out."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.observations = list(observations)
        points = [o.features for o in self.observations]
        names = dict(PRIORS)
        for point in points:
            for kind, name in point.effects().items():
                if kind == "rig":
                    names.setdefault(name, (1.0, point.rig_spread))
                elif name.endswith(":study"):  # its acceptance is measured cell by cell
                    names.setdefault(name, (1.0, EFFECTS[kind] / 2))
                elif not name.endswith(":synthetic"):
                    names.setdefault(name, (1.0, EFFECTS[kind]))
        self.names = tuple(names)
        self.prior = np.log([median for median, _ in names.values()])
        self.spread = np.asarray([spread for _, spread in names.values()])
        self.model = StepModel(points, self.names)
        self.target = np.log([o.rate for o in self.observations])
        self.noise = np.asarray([noise(p.concurrency) for p in points])

    def _cost(self, predicted: Array, theta: Array, keep: NDArray[np.bool_]) -> float:
        scaled = ((self.target - predicted) / self.noise)[keep] / BEND
        loss = BEND**2 * float(np.sum(np.sqrt(1 + scaled**2) - 1))
        return loss + 0.5 * float(np.sum(((theta - self.prior) / self.spread) ** 2))

    def jacobian(self, theta: Array) -> tuple[Array, Array]:
        """Return predicted log rates (N,) and their derivatives (N, P)."""
        stack = np.vstack([theta, theta + STEP * np.eye(len(theta))])
        rates = self.model.log_rate(stack)
        return rates[0], ((rates[1:] - rates[0]) / STEP).T

    def solve(
        self, held_out: NDArray[np.bool_] | None = None, start: Array | None = None
    ) -> tuple[Array, Array]:
        """Return (theta, covariance) of the posterior without the observations held out.

        ``start`` only saves iterations: the posterior has one mode near the priors.
        """
        keep = np.ones(len(self.target), bool) if held_out is None else ~held_out
        theta, damping = (self.prior if start is None else start).copy(), 1e-3
        precision = np.diag(1 / self.spread**2)
        predicted, slope = self.jacobian(theta)
        cost = self._cost(predicted, theta, keep)
        hessian = precision
        for _ in range(40):
            residual = self.target - predicted
            weight = keep / (self.noise**2 * np.sqrt(1 + (residual / self.noise / BEND) ** 2))
            hessian = slope.T @ (weight[:, None] * slope) + precision
            gradient = slope.T @ (weight * residual) - (theta - self.prior) / self.spread**2
            while True:
                damped = hessian + damping * np.diag(np.diag(hessian))
                trial = theta + np.linalg.solve(damped, gradient)
                trial_cost = self._cost(self.model.log_rate(trial[None])[0], trial, keep)
                if trial_cost <= cost or damping > 1e8:
                    break
                damping *= 4
            gained = cost - trial_cost
            if gained < 0:
                break
            theta, cost, damping = trial, trial_cost, max(damping / 4, 1e-10)
            predicted, slope = self.jacobian(theta)
            if gained < 1e-3:
                break
        return np.asarray(theta), np.asarray(np.linalg.inv(hessian), dtype=np.float64)

    def fit(
        self,
        scale: dict[str, float] | None = None,
        held_out: NDArray[np.bool_] | None = None,
        start: Array | None = None,
    ) -> TransferFit:
        """Return the fit without its rigs; ``scale`` widens the bands by tier of evidence."""
        theta, covariance = self.solve(held_out, start)
        kept = [i for i, name in enumerate(self.names) if not name.startswith("rig:")]
        names = tuple(self.names[i] for i in kept)
        shown = (
            self.observations
            if held_out is None
            else [o for o, out in zip(self.observations, held_out, strict=True) if not out]
        )
        return TransferFit(
            names=names,
            theta=theta[kept],
            covariance=covariance[np.ix_(kept, kept)],
            scale=scale or {},
            measured=_measured(shown),
        )


def _measured(observations: Sequence[Observation]) -> dict[str, int]:
    """Count the observations of every GPU and architecture, and of every GPU with its layout."""
    counts: dict[str, int] = {}
    for observation in observations:
        point = observation.features
        found = point.effects()
        for key in (found.get("gpu"), found["architecture"], f"{found.get('gpu')}:tp{point.tp}"):
            if key:
                counts[key] = counts.get(key, 0) + 1
    return counts

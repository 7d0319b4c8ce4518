"""Fit of the step model to measured rates, all machines and effects together.

Rigs (one host with its links and power limits) are fitted so that they do not bend the GPU effects,
and are not kept: a new box is a new rig.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qwendeploy.models.posterior import Problem
from qwendeploy.models.step import EFFECTS, PRIORS, Array, Features, StepModel, noise
from qwendeploy.models.transfer import TransferFit


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured rate, output tokens/s over all streams; ``label`` says where it came from."""

    features: Features
    rate: float
    label: str = ""


class Fitter:
    """Observations prepared once, fitted many times with some held out."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.observations = list(observations)
        points = [o.features for o in self.observations]
        priors = _priors(points)
        self.names = tuple(priors)
        self.problem = Problem(
            log_model=StepModel(points, self.names).log_rate,
            target=np.log([o.rate for o in self.observations]),
            noise=np.asarray([noise(p.concurrency) for p in points]),
            prior=np.log([median for median, _ in priors.values()]),
            spread=np.asarray([spread for _, spread in priors.values()]),
        )

    def fit(
        self,
        scale: Mapping[str, float] | None = None,
        held_out: NDArray[np.bool_] | None = None,
        start: Array | None = None,
    ) -> TransferFit:
        """Return the fit without its rigs; ``scale`` widens the bands by tier of evidence."""
        theta, covariance = self.problem.solve(held_out, start)
        kept = [i for i, name in enumerate(self.names) if not name.startswith("rig:")]
        out = np.zeros(len(self.observations), bool) if held_out is None else held_out
        return TransferFit(
            names=tuple(self.names[i] for i in kept),
            theta=theta[kept],
            covariance=covariance[np.ix_(kept, kept)],
            scale=dict(scale or {}),
            measured=_measured(
                o.features for o, is_out in zip(self.observations, out, strict=True) if not is_out
            ),
        )


def _priors(points: Sequence[Features]) -> dict[str, tuple[float, float]]:
    """Return name -> (median, spread) of every parameter and of every effect that occurs."""
    priors = dict(PRIORS)
    for point in points:
        for kind, name in point.effects().items():
            if kind == "rig":
                priors.setdefault(name, (1.0, point.rig_spread))
            elif name.endswith(":study"):  # its acceptance is measured cell by cell
                priors.setdefault(name, (1.0, EFFECTS[kind] / 2))
            elif not name.endswith(":synthetic"):
                priors.setdefault(name, (1.0, EFFECTS[kind]))
    return priors


def _measured(points: Iterable[Features]) -> dict[str, int]:
    """Count the observations of every GPU, every generation, and every GPU with its layout."""
    counts: dict[str, int] = {}
    for point in points:
        found = point.effects()
        for key in (found.get("gpu"), found["architecture"], f"{found.get('gpu')}:tp{point.tp}"):
            if key:
                counts[key] = counts.get(key, 0) + 1
    return counts

"""Maximum a posteriori of a log-linear-noise model: the solver behind the step and prefill fits.

Residuals are of logarithms, down-weighted beyond two standard deviations (a pseudo-Huber loss), so
that one odd machine does not move the physics. Every parameter has a Gaussian prior in log space,
which is ridge regression with a spread of its own for each; the posterior covariance is the inverse
Hessian at the maximum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
STEP = 1e-4
"""Step of the forward differences; parameters are logarithms of order one."""
BEND = 2.0
"""Standardised residual from which the loss grows linearly."""
ITERATIONS = 40


@dataclass(frozen=True)
class Problem:
    """``log_model`` maps stacked parameters (Q, P) to predicted logarithms (Q, N).

    ``groups`` as in ``derivatives``.
    """

    log_model: Callable[[Array], Array]
    target: Array
    noise: Array
    prior: Array
    spread: Array
    groups: Sequence[NDArray[np.intp]] | None = None

    def jacobian(self, theta: Array) -> tuple[Array, Array]:
        """Return predicted logarithms (N,) and their derivatives (N, P)."""
        return derivatives(self.log_model, theta, self.groups)

    def cost(self, predicted: Array, theta: Array, keep: NDArray[np.bool_]) -> float:
        """Return the negative log posterior up to a constant."""
        scaled = ((self.target - predicted) / self.noise)[keep] / BEND
        loss = BEND**2 * float(np.sum(np.sqrt(1 + scaled**2) - 1))
        return loss + 0.5 * float(np.sum(((theta - self.prior) / self.spread) ** 2))

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
        cost = self.cost(predicted, theta, keep)
        for _ in range(ITERATIONS):
            hessian, gradient = self._normal(theta, predicted, slope, keep, precision)
            while True:
                damped = hessian + damping * np.diag(np.diag(hessian))
                trial = theta + np.linalg.solve(damped, gradient)
                trial_cost = self.cost(self.log_model(trial[None])[0], trial, keep)
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
        hessian, _ = self._normal(theta, predicted, slope, keep, precision)
        return np.asarray(theta), np.asarray(np.linalg.inv(hessian), dtype=np.float64)

    def _normal(
        self,
        theta: Array,
        predicted: Array,
        slope: Array,
        keep: NDArray[np.bool_],
        precision: Array,
    ) -> tuple[Array, Array]:
        residual = self.target - predicted
        weight = keep / (self.noise**2 * np.sqrt(1 + (residual / self.noise / BEND) ** 2))
        hessian = slope.T @ (weight[:, None] * slope) + precision
        gradient = slope.T @ (weight * residual) - (theta - self.prior) / self.spread**2
        return np.asarray(hessian), np.asarray(gradient)


def derivatives(
    log_model: Callable[[Array], Array],
    theta: Array,
    groups: Sequence[NDArray[np.intp]] | None = None,
) -> tuple[Array, Array]:
    """Return a model's logarithms (N,) at ``theta`` and their derivatives (N, P).

    Each of ``groups`` names by row the one parameter of the group that the row depends on, P for
    none; every parameter of the model is in one group. One evaluation then moves a whole group.
    """
    count = len(theta)
    if groups is None:
        logs = log_model(np.vstack([theta, theta + STEP * np.eye(count)]))
        return logs[0], ((logs[1:] - logs[0]) / STEP).T
    moves = np.zeros((len(groups), count + 1))
    for move, rows in zip(moves, groups, strict=True):
        move[rows] = STEP
    logs = log_model(np.vstack([theta, theta + moves[:, :count]]))
    slope = np.zeros((logs.shape[1], count + 1))
    for changed, rows in zip(logs[1:], groups, strict=True):
        slope[np.arange(len(rows)), rows] = (changed - logs[0]) / STEP
    return logs[0], slope[:, :count]


def pack(covariance: Array) -> str:
    """Return the lower triangle as text, four digits each: compact to store and quick to load."""
    lower = covariance[np.tril_indices(len(covariance))]
    return " ".join(f"{value:.4g}" for value in lower)


def unpack(text: str, size: int) -> Array:
    """Return the matrix that ``pack`` wrote.

    Raises:
        ValueError: the text does not hold the lower triangle of a ``size`` x ``size`` matrix.
    """
    packed = np.asarray([float(x) for x in text.split()])
    if len(packed) != size * (size + 1) // 2:
        raise ValueError(f"{len(packed)} covariances do not belong to {size} parameters")
    matrix = np.zeros((size, size))
    matrix[np.tril_indices(size)] = packed
    return np.asarray(matrix + np.tril(matrix, -1).T)

"""A Gaussian process over related groups of points: the smooth rest of the speed model.

Squared-exponential kernel; points of different groups (sister series) share the fraction
``share`` of the covariance. One inversion serves all predictions, and leaving one point out is a
rank-one downdate of it rather than a new inversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qwendeploy.models.nnls import Array


@dataclass(frozen=True)
class Covariance:
    """Smooth part of ``amplitude`` over ``lengths``, and a rough part of its own at every point.

    Both in units of the values; the rough part is what repeats at a point but not beside it.
    ``share`` in 0..1 is the fraction of the covariance that groups have in common.
    """

    amplitude: float
    lengths: tuple[float, float]
    share: float
    roughness: float = 0.0

    @property
    def variance(self) -> float:
        """Variance at a point nothing is known about."""
        return self.amplitude**2 + self.roughness**2

    def between(self, left: Array, right: Array) -> Array:
        """Return the covariance of points (rows of coordinates) within one group."""
        distance = (left[:, None, :] - right[None, :, :]) / np.array(self.lengths)
        apart = np.sum(distance**2, axis=-1)
        result: Array = self.amplitude**2 * np.exp(-0.5 * apart)
        return result + np.where(apart == 0.0, self.roughness**2, 0.0)


@dataclass(frozen=True)
class SmoothField:
    """Points with noise, ready to predict in group 0; values are given at prediction."""

    kernel: Covariance
    coordinates: Array
    factor: Array
    """Per point the share of its covariance that reaches group 0: 1 inside it."""
    inverse: Array

    @classmethod
    def of(
        cls, kernel: Covariance, groups: Sequence[Array], deviations: Sequence[Array]
    ) -> SmoothField:
        """Return the field of ``groups`` of coordinates, the predicted group first."""
        coordinates = np.concatenate(list(groups))
        labels = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        covariance = kernel.between(coordinates, coordinates)
        covariance = np.where(labels[:, None] == labels[None, :], 1.0, kernel.share) * covariance
        covariance[np.diag_indices_from(covariance)] += np.concatenate(list(deviations)) ** 2
        inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        return cls(kernel, coordinates, np.where(labels == 0, 1.0, kernel.share), inverse)

    def without(self, index: int) -> SmoothField:
        """Return the field without one point."""
        keep = np.arange(len(self.factor)) != index
        column = self.inverse[keep, index]
        rest = self.inverse[np.ix_(keep, keep)]
        inverse = rest - np.outer(column, column) / self.inverse[index, index]
        return SmoothField(self.kernel, self.coordinates[keep], self.factor[keep], inverse)

    def predict(self, values: Array, at: Array) -> tuple[Array, Array]:
        """Return mean and variance at each row of ``at``, given ``values`` at the points."""
        near = self.kernel.between(at, self.coordinates) * self.factor
        weights = near @ self.inverse
        variance = self.kernel.variance - np.sum(weights * near, axis=1)
        return weights @ values, np.maximum(variance, 0.0)

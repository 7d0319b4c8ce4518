"""Decode speed on machines and options nobody measured.

``TransferFit`` holds the step model's parameters as fitted to every usable row (``step``,
``transfer_fit``) with their joint spread, and predicts aggregate rates: the more a prediction rests
on effects that no row has fixed, the wider its band. The figure is ``transferred`` if the GPU or a
sister of its generation has rows and ``estimated`` otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.posterior import derivatives, pack, unpack
from qwendeploy.models.step import Array, Features, Link, StepModel
from qwendeploy.models.step_priors import EFFECTS, noise

__all__ = ["Features", "Link", "StepModel", "TransferFit"]

Z = 1.645
"""Two-sided 90 % of a normal distribution."""
ACCEPT_SPREAD = 0.25
"""How far above its mean acceptance a draft's text may lie, log units: prose to code."""
BASIS = {
    "layout": "step physics fitted to rows of this GPU and layout",
    "gpu": "step physics fitted to rows of this GPU in another layout",
    "architecture": "step physics fitted to similar GPUs of this generation",
    "none": "step physics only; no row of this GPU or a similar one",
}
TIERS = ("layout", "gpu", "architecture", "none")
"""How near the evidence is: rows of this GPU in this layout, of this GPU, of its architecture."""


@dataclass(frozen=True)
class TransferFit:
    """Fitted parameters with their joint spread; predicts aggregate decode rates.

    ``scale`` is, by tier of evidence (and ``:home`` for cards in hosts of every sort), the factor
    that made leave-one-out bands cover what they claim; ``measured`` counts rows by ``gpu:``,
    ``architecture:`` and ``gpu:NAME:tpN``.
    """

    names: tuple[str, ...]
    theta: Array
    covariance: Array
    scale: Mapping[str, float]
    measured: Mapping[str, int]

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> TransferFit:
        """Return the fit that ``to_mapping`` wrote."""
        names = tuple(data["parameters"])
        return cls(
            names=names,
            theta=np.asarray([math.log(v) for v in data["parameters"].values()]),
            covariance=unpack(data["covariance"], len(names)),
            scale=data["scale"],
            measured=data["measured"],
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain numbers: parameters as medians, the covariance's lower triangle packed."""
        return {
            "parameters": {
                name: float(f"{math.exp(value):.6g}")
                for name, value in zip(self.names, self.theta, strict=True)
            },
            "covariance": pack(self.covariance),
            "scale": dict(self.scale),
            "measured": dict(sorted(self.measured.items())),
        }

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    def tier(self, point: Features) -> str:
        """Return the nearest evidence for this point, one of ``TIERS``."""
        found = point.effects()
        gpu = found.get("gpu")
        if gpu and f"{gpu}:tp{point.tp}" in self.measured:
            return "layout"
        if gpu and gpu in self.measured:
            return "gpu"
        return "architecture" if found["architecture"] in self.measured else "none"

    def predict(self, point: Features) -> Estimate:
        """Return aggregate output tokens/s with a band at the level of ``figures.LEVEL``."""
        return self.predict_many([point])[0]

    def predict_many(self, points: Sequence[Features]) -> list[Estimate]:
        """Return one estimate a point; the cost of many is little above that of one."""
        logs, deviations = self._spread_over_kernels(points)
        bounds = np.exp(self._bounds(points))
        results: list[Estimate] = []
        for point, log_rate, deviation, most in zip(points, logs, deviations, bounds, strict=True):
            tier = self.tier(point)
            reach = math.exp(Z * float(deviation) * self.scale_of(point, tier))
            value = math.exp(float(log_rate))
            found = point.effects()
            near = found.get("gpu", "") if tier in ("layout", "gpu") else found["architecture"]
            results.append(
                Estimate(
                    value,
                    value / reach,
                    max(value, min(value * reach, float(most))),
                    Kind.ESTIMATED if tier == "none" else Kind.TRANSFERRED,
                    n=self.measured.get(near, 0),
                    basis=BASIS[tier],
                )
            )
        return results

    def log_rates(self, points: Sequence[Features]) -> Array:
        """Return the logarithms of the rates alone: without their spread they cost little."""
        variants, at = _over_kernels(points)
        logs = StepModel(variants, self.names).log_rate(self.theta[None])[0]
        return np.asarray(np.bincount(at, logs) / np.bincount(at))

    def _bounds(self, points: Sequence[Features]) -> Array:
        """Return the logarithms of the rates that memory allows with drafts as good as they get."""
        model = StepModel(points, self.names)
        return np.asarray(model.log_bound(self.theta[None])[0] + ACCEPT_SPREAD * model.drafting)

    def scale_of(self, point: Features, tier: str) -> float:
        """Return the band factor of a tier; hosts put together at home have their own."""
        usual = self.scale.get(tier, 1.0)
        return self.scale.get(f"{tier}:home", usual) if point.home_built else usual

    def _spread_over_kernels(self, points: Sequence[Features]) -> tuple[Array, Array]:
        """Return log rates and deviations, a kernel that is not known counted as either."""
        variants, at = _over_kernels(points)
        logs, deviations = self.log_spread(variants)
        if len(variants) == len(points):
            return logs, deviations
        each = np.bincount(at)
        mean = np.bincount(at, logs) / each
        square = np.bincount(at, deviations**2 + (logs - mean[at]) ** 2) / each
        return mean, np.asarray(np.sqrt(square))

    def log_spread(self, points: Sequence[Features]) -> tuple[Array, Array]:
        """Return predicted log rates and their standard deviations, unscaled, a new rig each."""
        probes = [f"?{kind}" for kind in EFFECTS]
        model = StepModel(points, (*self.names, *probes))
        theta = np.append(self.theta, np.zeros(len(probes)))
        log_rate, slope = derivatives(model.log_rate, theta, list(model.groups().values()))
        known, unknown = slope[:, : len(self.names)], slope[:, len(self.names) :]
        variance = np.einsum("ni,ij,nj->n", known, self.covariance, known)
        spreads = np.asarray([[point.spread(kind) for kind in EFFECTS] for point in points])
        variance = variance + np.sum((unknown * spreads) ** 2, axis=1)
        repeat = np.asarray([noise(point.concurrency) for point in points])
        return log_rate, np.asarray(np.sqrt(variance + repeat**2))

    def step_terms(self, point: Features) -> dict[str, float]:
        """Return the parts of one step in ms, for ``explain``."""
        terms = StepModel([point], self.names).terms(self.theta[None])
        return {name: float(part[0, 0]) for name, part in terms.items()}


def _over_kernels(points: Sequence[Features]) -> tuple[list[Features], NDArray[np.intp]]:
    """Return the points for every kernel that may run them, each with the place of its point."""
    asked = [(i, variant) for i, point in enumerate(points) for variant in point.variants()]
    return [variant for _, variant in asked], np.asarray([i for i, _ in asked])

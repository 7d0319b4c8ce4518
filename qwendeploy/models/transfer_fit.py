"""Fit of the step model to measured rates, all machines and effects together.

Rigs (one host with its links and power limits) are fitted so that they do not bend the GPU effects,
and are not kept: a new box is a new rig.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qwendeploy.models.posterior import Problem
from qwendeploy.models.speculation import curve_for
from qwendeploy.models.step import Array, Features, StepModel
from qwendeploy.models.step_priors import LENGTH_NOISE, PRIORS, STUDY_ACCEPT, noise
from qwendeploy.models.transfer import TransferFit


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured rate, output tokens/s over all streams; ``label`` says where it came from.

    ``doubt`` is the deviation of its logarithm beyond repetition, for rates that are worked out.
    """

    features: Features
    rate: float
    label: str = ""
    doubt: float = 0.0


class Fitter:
    """Observations prepared once, fitted many times with some held out."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        self.observations = list(observations)
        points = [o.features for o in self.observations]
        priors = _priors(points)
        self.names = tuple(priors)
        self.lengths = [i for i, point in enumerate(points) if _tells_acceptance(point)]
        model = StepModel(points, self.names)
        rates = model.log_rate
        told = [points[i] for i in self.lengths]
        index = {name: i for i, name in enumerate(self.names)}
        effects = [list(point.acceptance_effects().values()) for point in told]
        columns = np.asarray([[index[name] for name in found] for found in effects], dtype=np.intp)

        def log_model(theta: Array) -> Array:
            if not told:
                return rates(theta)
            return np.concatenate([rates(theta), theta[:, columns].sum(axis=2)], axis=1)

        self.problem = Problem(
            log_model=log_model,
            target=np.concatenate(
                [
                    np.log([o.rate for o in self.observations]),
                    [math.log(point.accepted / point.usual_acceptance) for point in told],
                ]
            ),
            noise=np.asarray(
                [math.hypot(noise(o.features.concurrency), o.doubt) for o in self.observations]
                + [LENGTH_NOISE] * len(told)
            ),
            prior=np.log([median for median, _ in priors.values()]),
            spread=np.asarray([spread for _, spread in priors.values()]),
            groups=[
                np.concatenate([rows, _of_told(kind, columns, len(self.names))])
                for kind, rows in model.groups().items()
            ],
        )

    def fit(
        self,
        scale: Mapping[str, float] | None = None,
        held_out: NDArray[np.bool_] | None = None,
        start: Array | None = None,
    ) -> TransferFit:
        """Return the fit without its rigs; ``scale`` widens the bands by tier of evidence."""
        mask = None if held_out is None else np.concatenate([held_out, held_out[self.lengths]])
        theta, covariance = self.problem.solve(mask, start)
        kept = [i for i, name in enumerate(self.names) if not name.startswith("rig")]
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


def _of_told(kind: str, columns: NDArray[np.intp], none: int) -> NDArray[np.intp]:
    """Return the parameters of a group that act on the stated acceptance lengths."""
    place = {"accept": 0, "rig_accept": 1}.get(kind)
    return np.full(len(columns), none) if place is None or not len(columns) else columns[:, place]


def _tells_acceptance(point: Features) -> bool:
    """Whether the row says what its drafts were worth, and that was no setting and no fault."""
    usual = point.drafted > 0 and point.content not in ("study", "synthetic")
    return usual and point.acceptance_known and curve_for(point.spec_method) is not None


def _priors(points: Sequence[Features]) -> dict[str, tuple[float, float]]:
    """Return name -> (median, spread) of every parameter and of every effect that occurs."""
    priors = dict(PRIORS)
    for point in points:
        found = point.effects()
        if _tells_acceptance(point):
            found.update(point.acceptance_effects())
        for kind, name in found.items():
            spread = point.spread(kind)
            if kind == "accept" and point.content == "study":
                spread = STUDY_ACCEPT
            if not name.endswith(":synthetic"):
                priors.setdefault(name, (1.0, spread))
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

"""Constants of the in-series speed model: kernel, repetition noise, bands, drift."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qwendeploy.models.gp import Covariance


@dataclass(frozen=True)
class Hyper:
    """Constants of the fit and its bands; found by ``scripts/fit_speed.py``, kept as data.

    ``amplitude`` (log units), ``length_concurrency`` and ``length_context`` (octaves) are the
    kernel; ``roughness`` is what a cell has of its own and repeats (a kernel's tile, a batch
    size). ``sister_weight`` is the weight of all sisters' cells together against own cells in the
    costs, ``sister_share`` the covariance they share with the series in the process. ``noise`` is
    the deviation of one run by draft method and concurrency (log units), ``noise_prior`` the
    observations it is worth against a series' own repetitions. ``k`` turns deviations into bands.
    ``beyond_*`` is the deviation per octave outside the measured cells, without and with sisters.
    ``drift`` is the half-width that another session, host or image adds.
    """

    amplitude: float
    length_concurrency: float
    length_context: float
    sister_weight: float
    sister_share: float
    roughness: float
    noise: Mapping[str, Mapping[int, float]]
    noise_prior: float
    k: float
    beyond_concurrency: tuple[float, float]
    beyond_context: tuple[float, float]
    drift: Mapping[int, float]

    @property
    def kernel(self) -> Covariance:
        """The kernel of the process over (log2 c, log2(1 + x/16k))."""
        lengths = (self.length_concurrency, self.length_context)
        return Covariance(self.amplitude, lengths, self.sister_share, self.roughness)

    def run_noise(self, draft: str, concurrency: float) -> float:
        """Return the deviation of one run; an unknown draft counts as the noisiest known one."""
        table = self.noise.get(draft)
        if table is None:
            return max(self.run_noise(known, concurrency) for known in self.noise)
        return _interpolated(table, concurrency)

    def drift_band(self, concurrency: float) -> float:
        """Return the half-width (0.08 is ±8 %) that another session, host or image adds."""
        return _interpolated(self.drift, concurrency)


def _interpolated(table: Mapping[int, float], concurrency: float) -> float:
    levels = sorted(table)
    return float(
        np.interp(
            math.log2(concurrency),
            [math.log2(level) for level in levels],
            [table[level] for level in levels],
        )
    )

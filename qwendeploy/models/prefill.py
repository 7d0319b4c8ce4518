"""Cold prefill: how long a prompt that is in no cache takes on any GPU and layout.

    t(n) = fixed + chunks * max(launches, card) + all-reduce bytes / link
    card = (FLOPs(n) + attention(n^2)) / rate * gpu / chunks + weights / bandwidth

A chunk of ``max_num_batched_tokens`` is launched kernel by kernel and takes at least these
launches, which is what short prompts wait for on fast cards (H200: 185 ms for 1,030 tokens, 219 ms
for 3,335); the change is smooth. Matrix work is 2 * 25.6 B parameters a token at the kernel's rate;
attention is causal, half of ``n^2`` query-key pairs; with tensor parallelism every layer sends each
token's hidden state twice. Parameters have priors and effects as the decode step has and are fitted
to the prefill table; where the card, layout and quant were measured the remaining deviation is
interpolated between the measured lengths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.isotonic import rising
from qwendeploy.models.kernels import weights_read
from qwendeploy.models.posterior import Array, Problem, derivatives, pack, unpack
from qwendeploy.models.step import ATTENTION_FLOPS, MODEL, Features

DEFAULT_CHUNK = 8192
"""Batched tokens of a row that states none."""
OVERLAP = 4.0
"""Sharpness of the change from chunks bound by their launches to those bound by the card."""
Z = 1.645
PRIORS: dict[str, tuple[float, float]] = {
    "fixed_ms": (40.0, 0.4),
    "launch_ms": (95.0, 0.3),
    "chunk_ms": (5.0, 0.5),
    "attention_efficiency": (0.35, 0.4),
    "efficiency:bf16": (0.55, 0.2),
    "efficiency:fp8": (0.45, 0.2),
    "efficiency:fp8-cutlass": (0.4, 0.2),
    "efficiency:int8": (0.45, 0.2),
    "efficiency:fp4": (0.3, 0.25),
    "efficiency:marlin": (0.5, 0.2),
    "efficiency:gguf": (0.4, 0.3),
    "half_rate_gain": (1.3, 0.2),
    "link_gbps:nvlink": (150.0, 0.4),
    "link_gbps:pcie-p2p": (22.0, 0.3),
    "link_gbps:pcie": (8.0, 0.4),
    "link_gbps:unified": (100.0, 0.4),
    "link_gbps:network": (12.0, 0.4),
}
"""Name -> (prior median, spread of its logarithm): shares of the peak matrix rate that large
matrices reach, and links in one direction. ``launch_ms`` is a decode step's without its graph
(``step_priors``), and llama.cpp has none."""
EFFECTS: dict[str, float] = {
    "architecture": 0.12,
    "gpu": 0.12,
    "kernel": 0.10,
    "vendor": 0.5,
    "engine": 0.25,
    "rig": 0.10,
}
HOME_RIG = 0.2
"""Spread of a rig whose cards sit in hosts of every sort: one option on two RTX 3090 prefills 1,118
to 1,473 tokens/s at 90k by slots and links (community runs)."""
NOISE = 0.05
"""Deviation of one log prefill time (repeats agree within 1 %, boots and images within 5 %)."""
MEASURED_REACH = 0.08
"""Deviation of another host from an interpolated series, log units."""


@dataclass(frozen=True, slots=True)
class PrefillPoint:
    """A prompt of ``tokens`` on the machine and option of ``features`` (its context is unused)."""

    features: Features
    tokens: float
    batched_tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.tokens > 0:
            raise ValueError(f"a prompt of {self.tokens} tokens cannot be prefilled")

    @property
    def series(self) -> str:
        """Name of the measured series that this point belongs to."""
        f = self.features
        return f"{f.gpu} tp{f.tp} {f.link} {f.quant} {f.kernel.name} {f.engine}"

    def spread(self, kind: str) -> float:
        """Return the prior spread of an effect of this kind at this point, log units."""
        return HOME_RIG if kind == "rig" and self.features.home_built else EFFECTS[kind]

    def effects(self) -> dict[str, str]:
        """Return kind -> full name of every effect that applies."""
        f = self.features
        decode = f.effects()
        kept = ("architecture", "kernel", "gpu", "vendor", "rig")
        found: dict[str, str] = {kind: decode[kind] for kind in kept if kind in decode}
        found["engine"] = f"engine:{f.engine}"
        return found


class PrefillModel:
    """The prefill formula over a fixed list of points and parameters."""

    def __init__(self, points: Sequence[PrefillPoint], names: Sequence[str]) -> None:
        index = {name: i for i, name in enumerate(names)}
        zero = len(names)
        f = [p.features for p in points]
        kernels = [x.kernel for x in f]
        n = np.asarray([p.tokens for p in points])
        tp = np.asarray([float(x.tp) for x in f])
        chunk = np.asarray([float(p.batched_tokens or DEFAULT_CHUNK) for p in points])
        peak = np.asarray([k.tflops for k in kernels]) * 1e9 * tp
        bf16 = np.asarray([x.bf16_tflops for x in f]) * 1e9 * tp
        read = np.asarray([(x.weights_bytes or weights_read(x.quant)) for x in f])
        bandwidth = np.asarray([x.bandwidth_gbps for x in f]) * 1e6 * tp
        passes = np.asarray([1 + _draft_layers(x) / MODEL.layers for x in f])
        self.matrix = 2 * MODEL.linear_parameters * n / peak * passes
        self.attention = ATTENTION_FLOPS * n * n / 2 / bf16 * passes
        # Cards that talk through the host share its bridge: every rank's traffic adds up there.
        shared = np.where([x.link in ("pcie", "network") for x in f], tp / 2, 1.0)
        self.bytes = 2 * MODEL.layers * n * MODEL.hidden * 2 * 2 * (tp - 1) / tp * shared / 1e6
        self.chunks = np.ceil(n / chunk)
        self.reading = self.chunks * read / bandwidth
        self.launched = np.asarray([float(x.kernel.name != "gguf") for x in f])
        self.index = index

        def at(wanted: Sequence[str | None]) -> Any:
            return np.asarray([index.get(x, zero) if x else zero for x in wanted])

        effects = [p.effects() for p in points]
        self.effects = [at([e.get(kind) for e in effects]) for kind in EFFECTS]
        self.efficiency = at([f"efficiency:{k.name}" for k in kernels])
        self.link = at([f"link_gbps:{x.link}" for x in f])
        self.half_rate = at(["half_rate_gain" if half_rate(x) else None for x in f])

    def log_ms(self, theta: Array) -> Array:
        """Return the logarithm of milliseconds, (Q, N), for stacked parameters (Q, P)."""
        padded = np.concatenate([theta, np.zeros((len(theta), 1))], axis=1)
        exp = np.exp(padded)

        def scalar(name: str) -> Array:
            return np.asarray(exp[:, [self.index[name]]])

        work = self.matrix / exp[:, self.efficiency]
        work = (work + self.attention / scalar("attention_efficiency")) / exp[:, self.half_rate]
        effect = np.ones_like(work)
        for columns in self.effects:
            effect = effect * exp[:, columns]
        sent = self.bytes / exp[:, self.link]
        # a chunk is launched kernel by kernel while the card works: the slower of both counts
        card = (work * effect + self.reading) / self.chunks
        launch = scalar("launch_ms") * self.launched
        chunk = (card**OVERLAP + launch**OVERLAP) ** (1 / OVERLAP)
        overhead = scalar("fixed_ms") + self.chunks * scalar("chunk_ms")
        return np.asarray(np.log(self.chunks * chunk + sent + overhead))


def half_rate(features: Features) -> bool:
    """Say whether the card multiplies 16-bit matrices at half of its units' rate.

    GeForce cards do where sums are kept in 32 bits (NVIDIA architecture whitepapers), so memory and
    power hold them back less and they reach a larger share of the nominal rate.
    """
    return features.home_built and features.generation in ("ampere", "ada", "blackwell")


def _draft_layers(features: Features) -> float:
    if not features.drafted:
        return 0.0
    return float(MODEL.draft_layers("dflash" if features.spec_method == "dflash" else "mtp"))


@dataclass(frozen=True)
class PrefillFit:
    """Fitted prefill parameters; predicts milliseconds of one cold prompt alone on the engine."""

    names: tuple[str, ...]
    theta: Array
    covariance: Array
    series: Mapping[str, Sequence[Sequence[float]]]
    measured: Mapping[str, int]
    scale: float = 1.0

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> PrefillFit:
        """Return the fit that ``to_mapping`` wrote."""
        names = tuple(data["parameters"])
        return cls(
            names=names,
            theta=np.log(list(data["parameters"].values())),
            covariance=unpack(data["covariance"], len(names)),
            series={
                name: [tuple(map(float, pair.split(":"))) for pair in text.split()]
                for name, text in data["series"].items()
            },
            measured=data["measured"],
            scale=data["scale"],
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return plain numbers; ``series`` holds (log tokens, log deviation) a measured length."""
        return {
            "parameters": {
                name: float(f"{math.exp(value):.6g}")
                for name, value in zip(self.names, self.theta, strict=True)
            },
            "covariance": pack(self.covariance),
            "series": {
                name: " ".join(f"{x:.4f}:{y:.4f}" for x, y in points)
                for name, points in sorted(self.series.items())
            },
            "measured": dict(sorted(self.measured.items())),
            "scale": self.scale,
        }

    def log_spread(self, points: Sequence[PrefillPoint]) -> tuple[Array, Array]:
        """Return physics' log milliseconds and their deviation, no series consulted."""
        logs, slope = derivatives(PrefillModel(points, self.names).log_ms, self.theta)
        variance = np.einsum("ni,ij,nj->n", slope, self.covariance, slope)
        known = set(self.names)
        unknown = [
            sum(
                point.spread(kind) ** 2
                for kind, name in point.effects().items()
                if kind == "rig" or name not in known
            )
            for point in points
        ]
        return logs, np.asarray(np.sqrt(variance + np.asarray(unknown) + NOISE**2))

    def predict(self, point: PrefillPoint) -> Estimate:
        """Return the time to the first token of one cold prompt alone on the engine, in ms."""
        variants = [replace(point, features=kernel) for kernel in point.features.variants()]
        # where the kernel is not known but this card was measured, it is the measured one
        variants = [v for v in variants if v.series in self.series] or variants
        logs, deviations = self.log_spread(variants)
        log_ms = float(logs.mean())
        deviation = math.hypot(float(deviations.mean()), float(logs.std())) * self.scale
        known = self.series.get(variants[0].series)
        effects = point.effects()
        gpu = effects.get("gpu")
        if known:
            lengths = [math.exp(x) for x, _ in known]
            inside = 0.9 * min(lengths) <= point.tokens <= 1.1 * max(lengths)
            kind = Kind.INTERPOLATED if inside else Kind.EXTRAPOLATED
            log_ms = self._along_series(variants, log_ms, known)
            deviation = MEASURED_REACH if inside else 1.5 * MEASURED_REACH
            n, basis = len(known), "cold prefills of this card, layout and quant"
        elif gpu in self.measured or effects["architecture"] in self.measured:
            kind, basis = Kind.TRANSFERRED, "prefill physics fitted to this card or similar cards"
            n = self.measured.get(gpu or "", 0) or self.measured[effects["architecture"]]
        else:
            kind, n, basis = (
                Kind.ESTIMATED,
                0,
                "prefill physics; no row of this card or a similar one",
            )
        value, reach = math.exp(log_ms), math.exp(Z * deviation)
        return Estimate(value, value / reach, value * reach, kind, n=n, basis=basis)

    def _along_series(
        self, variants: Sequence[PrefillPoint], log_ms: float, known: Sequence[Sequence[float]]
    ) -> float:
        """Return the log time moved to a series, ``log_ms`` being the physics' for the variants.

        Lengths that took less time than shorter ones differ by noise and are averaged with them; in
        between the time rises as the physics' does, so that no prompt is faster than a shorter one.
        """
        places, shifts = (np.asarray(column) for column in zip(*known, strict=True))
        measured = [replace(v, tokens=math.exp(x)) for v in variants for x in places]
        logs = PrefillModel(measured, self.names).log_ms(self.theta[None, :])[0]
        physics = logs.reshape(len(variants), -1).mean(axis=0)
        moves = rising(physics + shifts) - physics
        return log_ms + float(np.interp(log_ms, physics, moves))


def fit_prefill(
    points: Sequence[PrefillPoint],
    milliseconds: Sequence[float],
    *,
    scale: float = 1.0,
    held_out: Any = None,
) -> PrefillFit:
    """Return the fit to measured cold prefills, repeats of one length averaged in its series."""
    priors = dict(PRIORS)
    for point in points:
        for kind, name in point.effects().items():
            priors.setdefault(name, (1.0, point.spread(kind)))
    names = tuple(priors)
    model = PrefillModel(points, names)
    problem = Problem(
        log_model=model.log_ms,
        target=np.log(milliseconds),
        noise=np.full(len(points), NOISE),
        prior=np.log([median for median, _ in priors.values()]),
        spread=np.asarray([spread for _, spread in priors.values()]),
    )
    theta, covariance = problem.solve(held_out)
    kept = [i for i, name in enumerate(names) if not name.startswith("rig:")]
    shown = [i for i in range(len(points)) if held_out is None or not held_out[i]]
    fit = PrefillFit(
        names=tuple(names[i] for i in kept),
        theta=theta[kept],
        covariance=covariance[np.ix_(kept, kept)],
        series={},
        measured=_counts([points[i] for i in shown]),
        scale=scale,
    )
    logs, _ = fit.log_spread([points[i] for i in shown])
    deviations = [
        math.log(milliseconds[i]) - float(log) for i, log in zip(shown, logs, strict=True)
    ]
    series = _series([points[i] for i in shown], deviations)
    return PrefillFit(fit.names, fit.theta, fit.covariance, series, fit.measured, scale)


def _counts(points: Sequence[PrefillPoint]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for point in points:
        effects = point.effects()
        for key in {effects.get("gpu"), effects["architecture"]} - {None}:
            counts[str(key)] = counts.get(str(key), 0) + 1
    return counts


def _series(
    points: Sequence[PrefillPoint], deviations: Sequence[float]
) -> dict[str, list[list[float]]]:
    """Return, by series of at least three lengths, the mean deviation at each length."""
    found: dict[str, dict[float, list[float]]] = {}
    for point, deviation in zip(points, deviations, strict=True):
        length = round(math.log(point.tokens), 1)  # 8,191 and 8,194 tokens are one length
        found.setdefault(point.series, {}).setdefault(length, []).append(deviation)
    return {
        name: [[length, float(np.mean(values))] for length, values in sorted(lengths.items())]
        for name, lengths in found.items()
        if len(lengths) >= 3
    }

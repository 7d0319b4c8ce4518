"""The physics of one engine step: what a decode step costs on any GPU, layout and option.

A step verifies ``1 + K`` tokens of each of ``c`` sequences (``K`` drafted tokens, 0 without
drafting) and yields ``acceptance length`` tokens a sequence, so

    rate = c * acceptance_length / T_step

    T_step = (matrix + attention + state) * gpu + launch/CPU + draft passes + all-reduce

- *matrix*: reading the weights once and multiplying ``c (1 + K)`` tokens overlap in part, hence a
  p-norm of bytes/(bandwidth*tp) * 1.15 and FLOP/(matrix rate*tp*efficiency).
- *attention*: KV bytes of every context (separate), or of one context plus a fraction of the
  others (shared through the prefix cache), against the FLOPs of the same pass.
- *state*: each sequence reads and writes its Gated DeltaNet state ``2 + K`` times.
- *draft passes*: launch-bound milliseconds a pass plus the bytes of drafter and output head.
- *all-reduce*: 128 a step (two a layer), a latency by kind of link and the bytes over the link.

The free numbers are few and have tight priors in log space (``PRIORS``); GPU, architecture,
matrix kernel, image and content each have a small effect around zero. They are fitted together
(``transfer_fit.fit``). A GPU that was never measured keeps its effect's prior spread, which is what
widens its band. Model dimensions: the published configuration of Qwen3.6-27B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qwendeploy.models.kernels import Kernel, generation, kernel_for, state_bytes, weights_read
from qwendeploy.models.speculation import MAX_SHARE, acceptance_length, curve_for

Array = NDArray[np.float64]
Contexts = Literal["shared", "separate"]
Link = Literal["nvlink", "pcie-p2p", "pcie", "unified", "network"]

LAYERS = 64
HIDDEN = 5120
FULL_LAYERS = 16
LINEAR_PARAMS = 25.62e9
"""Parameters multiplied for every token: 24.35 B in the text layers, 1.27 B in the output head."""
KV_BYTES_PER_TOKEN = 65536.0
"""Keys and values of one token in the 16 full-attention layers at 2 bytes: 16*2*4 heads*256*2."""
ATTENTION_FLOPS = 4 * 24 * 256 * FULL_LAYERS
"""FLOPs of one query token against one context token: 4 * 24 heads * 256 * 16 layers."""
HEAD_BYTES = 2.54e9
"""The output head in bf16, read once by every draft pass."""
MTP_BYTES = {"bf16": 0.85e9, "fp8": 0.43e9}
"""The MTP layer; checkpoints other than FP8 keep it in bf16."""
DFLASH_BYTES = 3.46e9
"""The five drafter layers in bf16 (1.73 B parameters), read once a step."""
KV_ELEMENT = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}

PRIORS: dict[str, tuple[float, float]] = {
    "weights": (1.15, 0.04),
    "host_ms": (2.4, 0.3),
    "sequence_ms": (0.02, 0.6),
    "mtp_pass_ms": (1.2, 0.4),
    "draft_step_ms": (4.0, 0.4),
    "dflash_pass_ms": (3.0, 0.4),
    "kv": (1.1, 0.08),
    "kv_fp8": (1.3, 0.25),
    "shared": (0.5, 0.4),
    "attention_efficiency": (0.5, 0.3),
    "state": (1.0, 0.3),
    "norm": (2.0, 0.15),
    "eager_ms": (95.0, 0.1),
    "reduce_ms:nvlink": (0.008, 0.3),
    "reduce_ms:pcie-p2p": (0.011, 0.3),
    "reduce_ms:pcie": (0.03, 0.3),
    "reduce_ms:unified": (0.03, 0.3),
    "reduce_ms:network": (0.11, 0.4),
    "link_gbps:nvlink": (200.0, 0.4),
    "link_gbps:pcie-p2p": (20.0, 0.4),
    "link_gbps:pcie": (10.0, 0.4),
    "link_gbps:unified": (100.0, 0.4),
    "link_gbps:network": (15.0, 0.4),
    "efficiency:bf16": (0.55, 0.25),
    "efficiency:fp8": (0.5, 0.25),
    "efficiency:fp8-cutlass": (0.45, 0.25),
    "efficiency:int8": (0.5, 0.25),
    "efficiency:fp4": (0.3, 0.25),
    "efficiency:marlin": (0.5, 0.25),
    "efficiency:gguf": (0.3, 0.3),
}
"""Name -> (prior median, spread of its logarithm). ``_ms`` are milliseconds, ``_gbps`` GB/s.

1.15 over pure bandwidth, two to three milliseconds of host time and about eight of drafting three
tokens are what the study's card and an H200 agree on. A step whose tokens exceed the captured
graphs costs 92 to 100 ms on an H200 (own measurement 2026, 128 streams with three draft tokens and
graphs up to 256) and 93 ms uncaptured on four RTX 5060 Ti. KV in 8 bits halves the bytes, but its
kernels convert; no pair of runs on one machine measures what is left, hence the wide ``kv_fp8``.
The rest is the order of magnitude of the mechanism.
"""
EFFECTS: dict[str, float] = {
    "architecture": 0.08,
    "gpu": 0.08,
    "kernel": 0.08,
    "host": 0.25,
    "draft": 0.4,
    "share": 0.3,
    "accept": 0.06,
    "vendor": 0.5,
    "rig": 0.06,
}
"""Kind of effect -> prior spread of its logarithm around zero (a rig: one host, link and power)."""
NOISE: tuple[tuple[int, float], ...] = ((2, 0.07), (8, 0.06), (1 << 30, 0.045))
"""Up to this concurrency, repetition and drift of the log rate on one host (study, 797 runs)."""
HOME_RIG, LOOSE_RIG = 0.12, 0.20
"""Spread of a rig with a consumer card (power caps, desktop hosts), and of several whose cards talk
through the host or a network: slots, lanes and boards differ (55 to 109 tok/s for one option on two
RTX 3090, community runs)."""


@dataclass(frozen=True, slots=True)
class Features:
    """One option on one machine at one operating point, in plain numbers.

    ``bandwidth_gbps`` and the matrix rates (dense, TFLOP/s) are of one GPU; ``weights_bytes`` is
    what a step reads over all ranks (``None``: by quant); ``context`` tokens are held by every
    sequence; ``acceptance_length`` overrides the table if it is known; ``capture_size`` is the
    largest captured step batch in tokens, ``None`` for "every batch is captured"; ``home_built``
    says that cards of this kind sit in hosts of every sort.
    """

    bandwidth_gbps: float
    bf16_tflops: float
    compute_capability: float | None
    quant: str
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    gpu: str | None = None
    vendor: str = "nvidia"
    architecture: str = "unknown"
    engine: str = "vllm"
    image_family: str = "upstream"
    tp: int = 1
    link: Link = "pcie"
    weights_bytes: float | None = None
    kv_cache_dtype: str = "bf16"
    state_bytes_factor: float = 1.0
    spec_method: str = "none"
    spec_tokens: int = 0
    acceptance_length: float | None = None
    content: str = "mixed"
    acceptance_known: bool = False
    concurrency: int = 1
    context: float = 0.0
    contexts: Contexts = "separate"
    capture_size: int | None = None
    deep_gemm: bool = True
    home_built: bool = False
    rig: str | None = None

    def __post_init__(self) -> None:
        for name in ("bandwidth_gbps", "bf16_tflops", "tp", "concurrency"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} {getattr(self, name)} is not positive")
        if self.context < 0 or self.spec_tokens < 0:
            raise ValueError("context and spec_tokens may not be negative")
        if self.drafted and self.acceptance_length is None and not curve_for(self.spec_method):
            raise ValueError(f"no acceptance of draft method {self.spec_method!r} is on record")

    @property
    def kernel(self) -> Kernel:
        """The matrix kernel that this quant runs on this GPU."""
        return kernel_for(
            self.quant,
            self.compute_capability,
            self.bf16_tflops,
            self.fp8_tflops,
            self.fp4_tflops,
            engine=self.engine,
            deep_gemm=self.deep_gemm,
        )

    @property
    def generation(self) -> str:
        """Cards of one generation are sisters: same tensor cores, same kind of memory."""
        return generation(self.compute_capability) or f"{self.vendor} {self.architecture}"

    @property
    def drafted(self) -> int:
        """Draft tokens verified a step."""
        return 0 if self.spec_method == "none" else self.spec_tokens

    @property
    def accepted(self) -> float:
        """Tokens a sequence gains a step, from the row itself or the acceptance table."""
        if self.acceptance_length is not None:
            return min(self.acceptance_length, 1.0 + self.drafted)
        length = acceptance_length(self.spec_method, self.drafted, self.content)
        assert length is not None
        return length.value

    @property
    def rig_spread(self) -> float:
        """Spread between hosts of this kind, as a deviation of the log rate."""
        if self.tp > 1 and self.link in ("pcie", "network"):
            return LOOSE_RIG
        return HOME_RIG if self.home_built else EFFECTS["rig"]

    def effects(self) -> dict[str, str]:
        """Return kind -> full name of every effect that applies to this point."""
        architecture = self.generation
        found = {
            "architecture": f"architecture:{architecture}",
            "kernel": f"kernel:{self.kernel.name}:{self.quant}:{architecture}",
            "host": f"host:{self.image_family}",
            "share": f"share:{architecture}",
        }
        if self.vendor != "nvidia":
            found["vendor"] = f"vendor:{self.vendor}"
        if self.gpu:
            found["gpu"] = f"gpu:{self.gpu}"
        if self.rig:
            found["rig"] = f"rig:{self.rig}"
        if self.drafted:
            found["draft"] = f"draft:{self.image_family}"
        if self.drafted and not self.acceptance_known:
            found["accept"] = f"accept:{self.spec_method}:{self.content}"
        return found


def noise(concurrency: int) -> float:
    """Return the standard deviation of a single log rate at this concurrency."""
    return next(spread for limit, spread in NOISE if concurrency <= limit)


class StepModel:
    """The step-time formula over a fixed list of points and a fixed list of parameters.

    ``log_rate(theta)`` takes a stack of parameter vectors (Q, P) of logarithms and returns (Q, N):
    one call evaluates a fit's Jacobian by differences or a single prediction with its spread.
    """

    def __init__(self, points: Sequence[Features], names: Sequence[str]) -> None:
        index = {name: i for i, name in enumerate(names)}
        zero = len(names)
        self._index, self._zero = index, zero
        kernels = [p.kernel for p in points]

        def column(values: Sequence[float]) -> Array:
            return np.asarray(values, dtype=np.float64)

        self.c = column([p.concurrency for p in points])
        self.k = column([p.drafted for p in points])
        self.tokens = self.c * (1 + self.k)
        self.context = column([p.context for p in points])
        self.tp = column([p.tp for p in points])
        self.bandwidth = column([p.bandwidth_gbps for p in points]) * 1e6  # bytes per ms
        self.separate = np.asarray([p.contexts == "separate" for p in points])
        self.mtp = np.asarray([p.drafted > 0 and p.spec_method != "dflash" for p in points])
        self.dflash = np.asarray([p.drafted > 0 and p.spec_method == "dflash" for p in points])
        self.accepted = np.log(column([p.accepted for p in points]))
        read = [
            (p.weights_bytes or weights_read(p.quant)) * k.byte_factor
            for p, k in zip(points, kernels, strict=True)
        ]
        self.weights_ms = column(read) / (self.bandwidth * self.tp)
        peak = column([k.tflops for k in kernels]) * 1e9  # FLOP per ms
        self.flops_ms = 2 * LINEAR_PARAMS * self.tokens / (peak * self.tp)
        element = column([KV_ELEMENT.get(p.kv_cache_dtype, 1.0) for p in points])
        self.fp8_kv = element < 2.0
        heads = np.minimum(self.tp, 4)  # eight ranks replicate the four KV heads
        self.kv_ms = KV_BYTES_PER_TOKEN * element / 2 * self.context / (heads * self.bandwidth)
        draft_layers = np.where(self.mtp, self.k, np.where(self.dflash, 5.0, 0.0)) / FULL_LAYERS
        self.kv_ms *= 1 + draft_layers
        bf16 = column([p.bf16_tflops for p in points]) * 1e9
        self.attention_ms = ATTENTION_FLOPS * self.tokens * self.context / (bf16 * self.tp)
        state = column([state_bytes(p.drafted) * p.state_bytes_factor for p in points])
        self.state_ms = self.c * (2 + self.k) * state / (self.bandwidth * self.tp)
        drafter = [
            DFLASH_BYTES if p.spec_method == "dflash" else MTP_BYTES.get(p.quant, 0.85e9)
            for p in points
        ]
        self.drafter_ms = (column(drafter) + HEAD_BYTES) / (self.bandwidth * self.tp)
        self.many = self.tp > 1
        nvlink = np.asarray([p.link == "nvlink" for p in points])
        hops = np.where(nvlink, 1.0, self.tp - 1)  # one shot over NVLink, a ring elsewhere
        self.reduces = np.where(self.many, 2.0 * LAYERS * hops, 0.0)
        share = 2 * (self.tp - 1) / self.tp
        self.reduce_gb = np.where(
            self.many, 2 * LAYERS * self.tokens * HIDDEN * 2 * share / 1e6, 0.0
        )
        self.eager = np.asarray(
            [
                p.capture_size is not None and t > p.capture_size
                for p, t in zip(points, self.tokens, strict=True)
            ]
        )
        self._columns(points, kernels)

    def _columns(self, points: Sequence[Features], kernels: Sequence[Kernel]) -> None:
        """Resolve the parameter index of every named effect; an unknown one is a fixed zero."""

        def at(names: Sequence[str | None]) -> NDArray[np.intp]:
            return np.asarray(
                [self._index.get(name, self._zero) if name else self._zero for name in names]
            )

        effects = [p.effects() for p in points]
        self.effect = {kind: at([found.get(kind) for found in effects]) for kind in EFFECTS}
        self.efficiency = at([f"efficiency:{k.name}" for k in kernels])
        self.reduce = at([f"reduce_ms:{p.link}" for p in points])
        self.link = at([f"link_gbps:{p.link}" for p in points])

    def terms(self, theta: Array) -> dict[str, Array]:
        """Return the parts of the step in ms, each (Q, N); their sum is the step time."""
        padded = np.concatenate([theta, np.zeros((len(theta), 1))], axis=1)
        exp = np.exp(padded)

        def scalar(name: str) -> Array:
            return np.asarray(exp[:, [self._index[name]]])

        def effect(kind: str) -> Array:
            return np.asarray(exp[:, self.effect[kind]])

        gpu = effect("gpu") * effect("architecture") * effect("vendor")
        norm = scalar("norm")
        reading = self.weights_ms * scalar("weights") * effect("kernel")
        multiplying = self.flops_ms / exp[:, self.efficiency]
        matrix = (reading**norm + multiplying**norm) ** (1 / norm)
        fraction = np.minimum(scalar("shared") * effect("share"), 1.0)
        contexts = np.where(self.separate, self.c, 1 + fraction * (self.c - 1))
        converting = np.where(self.fp8_kv, scalar("kv_fp8"), 1.0)
        kv = self.kv_ms * scalar("kv") * converting * contexts
        scores = self.attention_ms / scalar("attention_efficiency")
        attention = (kv**norm + scores**norm) ** (1 / norm)
        state = self.state_ms * scalar("state")
        draft = effect("draft")
        passes = np.where(self.mtp, self.k * (scalar("mtp_pass_ms") * draft + self.drafter_ms), 0.0)
        passes = passes + np.where(self.dflash, scalar("dflash_pass_ms") + self.drafter_ms, 0.0)
        drafting = np.where(self.mtp | self.dflash, scalar("draft_step_ms") * draft, 0.0)
        host = scalar("host_ms") * effect("host") + self.c * scalar("sequence_ms")
        reduce = self.reduces * exp[:, self.reduce] + self.reduce_gb / exp[:, self.link]
        parts = {
            "matrix": matrix * gpu,
            "attention": attention * gpu,
            "state": state * gpu,
            "draft": passes + drafting,
            "host": host,
            "reduce": reduce,
        }
        rig = effect("rig")
        parts = {name: part * rig for name, part in parts.items()}
        if self.eager.any():
            total = np.sum(np.stack(list(parts.values())), axis=0)
            floor = np.maximum(scalar("eager_ms") - total, 0.0)
            parts["eager"] = np.where(self.eager, floor, 0.0)
        return parts

    def log_rate(self, theta: Array) -> Array:
        """Return the logarithm of aggregate output tokens/s, (Q, N)."""
        step = sum(self.terms(theta).values())
        padded = np.concatenate([theta, np.zeros((len(theta), 1))], axis=1)
        gain = np.minimum(
            self.accepted + padded[:, self.effect["accept"]],
            np.log1p(self.k * MAX_SHARE),
        )
        return np.asarray(np.log(self.c * 1e3) + gain - np.log(step))

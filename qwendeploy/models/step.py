"""The physics of one engine step: what a decode step costs on any GPU, layout and option.

A step verifies ``1 + K`` tokens of each of ``c`` sequences (``K`` drafted tokens, 0 without
drafting) and yields ``acceptance length`` tokens a sequence, so

    rate = c * acceptance_length / T_step

    T_step = (matrix + attention + state + drafter) * gpu + launches + draft launches + all-reduce

- *matrix*: reading the weights once and multiplying ``c (1 + K)`` tokens overlap in part, hence a
  p-norm of bytes/(bandwidth*tp) * 1.15 (llama.cpp: 1.4) and FLOP/(matrix rate*tp*efficiency).
- *attention*: KV bytes of every context (separate), or of one context plus a fraction of the
  others (shared through the prefix cache), against the FLOPs of the same pass.
- *state*: each sequence reads and writes its Gated DeltaNet state ``2 + K`` times.
- *drafter*: the bytes of drafter and output head, once a draft pass.
- *launches*: milliseconds of the host, a step and a draft pass, that no card shortens.
- *all-reduce*: 128 a step (two a layer), a latency by kind of link and the bytes over the link.

The free numbers are few and have tight priors in log space (``step_priors``); GPU, architecture,
matrix kernel, image, content and rig each have a small effect around zero. They are fitted together
(``transfer_fit.fit``). What was never measured keeps its effect's prior spread, which widens the
band by as much as that part weighs in the step: a host's launches at one stream, hardly at 32.
Model dimensions: the published configuration of Qwen3.6-27B.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.models.kernels import (
    HEAD_BYTES,
    Kernel,
    draft_pass_bytes,
    generation,
    kernel_for,
    state_bytes,
    weights_read,
)
from qwendeploy.models.speculation import MAX_SHARE, acceptance_length, curve_for
from qwendeploy.models.step_priors import EFFECTS, HOME, LINK_SPREAD, RIG_ACCEPT

Array = NDArray[np.float64]
Contexts = Literal["shared", "separate"]
Link = Literal["nvlink", "pcie-p2p", "pcie", "unified", "network"]

MODEL = QWEN_27B
KV_BYTES_PER_TOKEN = 2.0 * 2 * MODEL.kv_values_per_token
"""Keys and values of one token in the full-attention layers at 2 bytes."""
ATTENTION_FLOPS = 4 * MODEL.query_heads * MODEL.head_dim * MODEL.attention_layers
"""FLOPs of one query token against one context token."""
DFLASH_BYTES = 2 * MODEL.block_drafter.parameters
"""The drafter's layers in bf16, read once a step."""
FORMAT = {name: "int4" for name in ("int4-autoround", "gptq-int4", "awq-int4")}
"""Quants whose layers have one format, groups of 4-bit integers: one kernel runs them."""
KV_ELEMENT = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}


@dataclass(frozen=True, slots=True)
class Features:
    """One option on one machine at one operating point, in plain numbers.

    ``bandwidth_gbps`` and the matrix rates (dense, TFLOP/s) are of one GPU; ``weights_bytes`` is
    what a step reads over all ranks (``None``: by quant); ``context`` tokens are held by every
    sequence; ``acceptance_length`` overrides the table if it is known; ``capture_size`` is the
    largest captured step batch in tokens, ``None`` for "every batch is captured"; ``deep_gemm``
    says whether block FP8 runs by DeepGEMM on Hopper, ``None`` if nobody knows; ``weight_only``
    that a 4-bit checkpoint multiplies in 16 bits on every card; ``home_built`` that cards of this
    kind sit in hosts of every sort; ``rig`` names the host and time of a measurement.
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
    concurrency: float = 1
    context: float = 0.0
    contexts: Contexts = "separate"
    capture_size: int | None = None
    deep_gemm: bool | None = True
    weight_only: bool = False
    home_built: bool = False
    rig: str | None = None

    def __post_init__(self) -> None:
        for name in ("bandwidth_gbps", "bf16_tflops", "tp", "concurrency"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} {getattr(self, name)} is not positive")
        if self.context < 0 or self.spec_tokens < 0:
            raise ValueError("context and spec_tokens may not be negative")
        if self.drafted and self.acceptance_length is None and not curve_for(self.spec_method):
            raise ValueError(f"no acceptance of draft method {self.spec_method!r} is measured")

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
            deep_gemm=self.deep_gemm is not False,
            weight_only=self.weight_only,
            read_bytes=self.weights_bytes,
        )

    def variants(self) -> tuple[Features, ...]:
        """Return the point once for every kernel that may run it: two where that is not known."""
        if self.deep_gemm is not None or self.quant != "fp8" or self.generation != "hopper":
            return (self,)
        return tuple(replace(self, deep_gemm=known) for known in (True, False))

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
        return self.usual_acceptance

    @property
    def usual_acceptance(self) -> float:
        """Tokens a sequence gains a step by the acceptance table."""
        length = acceptance_length(self.spec_method, self.drafted, self.content)
        assert length is not None
        return length.value

    def spread(self, kind: str) -> float:
        """Return the prior spread of an effect of this kind at this point, log units."""
        if self.home_built and kind in HOME:
            return HOME[kind]
        if kind == "rig_link":
            return LINK_SPREAD[self.link]
        if kind == "rig_accept":
            return RIG_ACCEPT.get(self.spec_method, EFFECTS[kind])
        return EFFECTS[kind]

    def effects(self) -> dict[str, str]:
        """Return kind -> full name of every effect that applies to this point."""
        architecture, kernel = self.generation, self.kernel.name
        family = f"gguf:{architecture}" if kernel == "gguf" else architecture
        found = {
            "architecture": f"architecture:{architecture}",
            "kernel": f"kernel:{kernel}:{FORMAT.get(self.quant, self.quant)}:{architecture}",
            "host": f"host:{self.image_family}",
            "share": f"share:{architecture}",
            "batch": f"batch:{family}",
            "rig": f"rig:{self.rig}",
            "rig_host": f"rig-host:{self.rig}",
        }
        if self.tp > 1:
            found["rig_link"] = f"rig-link:{self.rig}"
        if self.vendor != "nvidia":
            found["vendor"] = f"vendor:{self.vendor}"
        if self.gpu:
            found["gpu"] = f"gpu:{self.gpu}"
        if self.drafted:
            found["draft"] = f"draft:{self.image_family}"
        if self.drafted and not self.acceptance_known:
            found.update(self.acceptance_effects())
        return found

    def acceptance_effects(self) -> dict[str, str]:
        """Return the effects on what the drafts of this content are worth, known here or not."""
        found = {"accept": f"accept:{self.spec_method}:{self.content}"}
        if self.content not in ("study", "synthetic"):
            found["rig_accept"] = f"rig-accept:{self.rig}:{self.spec_method}:{self.content}"
        return found


class StepModel:
    """The step-time formula over a fixed list of points and a fixed list of parameters.

    An effect that is not among the names is zero, or the column ``?kind`` if that is among them:
    so a prediction learns how much each kind of unknown weighs in it.

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
        self.drafting = self.mtp | self.dflash
        self.accepted = np.log(column([p.accepted for p in points]))
        read = [
            (p.weights_bytes or weights_read(p.quant)) * k.byte_factor
            for p, k in zip(points, kernels, strict=True)
        ]
        self.weights_ms = column(read) / (self.bandwidth * self.tp)
        self.gguf = np.asarray([k.name == "gguf" for k in kernels])
        self.least_ms = self.weights_ms / column([k.byte_factor for k in kernels])
        peak = column([k.tflops for k in kernels]) * 1e9  # FLOP per ms
        self.flops_ms = 2 * MODEL.linear_parameters * self.tokens / (peak * self.tp)
        element = column([KV_ELEMENT.get(p.kv_cache_dtype, 1.0) for p in points])
        self.fp8_kv = element < 2.0
        heads = np.minimum(self.tp, MODEL.kv_heads)  # more ranks hold copies
        self.kv_ms = KV_BYTES_PER_TOKEN * element / 2 * self.context / (heads * self.bandwidth)
        block = np.where(self.dflash, float(MODEL.block_drafter.layers), 0.0)
        draft_layers = np.where(self.mtp, self.k, block)
        self.kv_ms *= 1 + draft_layers / MODEL.attention_layers
        self.least_ms += np.where(self.separate, self.c, 1.0) * self.kv_ms
        bf16 = column([p.bf16_tflops for p in points]) * 1e9
        self.attention_ms = ATTENTION_FLOPS * self.tokens * self.context / (bf16 * self.tp)
        state = column([state_bytes(p.drafted) * p.state_bytes_factor for p in points])
        self.state_ms = self.c * (2 + self.k) * state / (self.bandwidth * self.tp)
        drafter = [
            DFLASH_BYTES + HEAD_BYTES if p.spec_method == "dflash" else draft_pass_bytes(p.quant)
            for p in points
        ]
        self.drafter_ms = column(drafter) / (self.bandwidth * self.tp)
        self.many = self.tp > 1
        nvlink = np.asarray([p.link == "nvlink" for p in points])
        hops = np.where(nvlink, 1.0, self.tp - 1)  # one shot over NVLink, a ring elsewhere
        self.reduces = np.where(self.many, 2.0 * MODEL.layers * hops, 0.0)
        share = 2 * (self.tp - 1) / self.tp
        sent = 2 * MODEL.layers * self.tokens * MODEL.hidden * 2 * share / 1e6
        self.reduce_gb = np.where(self.many, sent, 0.0)
        self.eager = np.asarray(
            [
                p.capture_size is not None and t > p.capture_size
                for p, t in zip(points, self.tokens, strict=True)
            ]
        )
        self._columns(points, kernels)

    def _columns(self, points: Sequence[Features], kernels: Sequence[Kernel]) -> None:
        """Resolve the parameter index of every named effect; an unknown one is a fixed zero."""

        def at(names: Sequence[str | None], other: str | None = None) -> NDArray[np.intp]:
            unknown = self._index.get(other, self._zero) if other else self._zero
            return np.asarray(
                [self._index.get(name, unknown) if name else self._zero for name in names]
            )

        effects = [p.effects() for p in points]
        self.effect = {
            kind: at([found.get(kind) for found in effects], f"?{kind}") for kind in EFFECTS
        }
        self.efficiency = at([f"efficiency:{k.name}" for k in kernels])
        self.reduce = at([f"reduce_ms:{p.link}" for p in points])
        self.link = at([f"link_gbps:{p.link}" for p in points])

    def groups(self) -> dict[str, NDArray[np.intp]]:
        """Return name -> by point, the one parameter of a group that acts on it, P for none.

        Every parameter that acts at all is in one group: a scalar alone, effects by kind.
        """
        scalars = {
            name: np.full(len(self.c), i)
            for name, i in self._index.items()
            if ":" not in name and not name.startswith("?")
        }
        by_kernel_and_link = {
            "efficiency": self.efficiency,
            "reduce_ms": self.reduce,
            "link_gbps": self.link,
        }
        return {**scalars, **by_kernel_and_link, **self.effect}

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
        read = np.where(self.gguf, scalar("weights_gguf"), scalar("weights"))
        reading = self.weights_ms * read * effect("kernel")
        multiplying = self.flops_ms / exp[:, self.efficiency] * effect("batch")
        matrix = (reading**norm + multiplying**norm) ** (1 / norm)
        fraction = np.minimum(scalar("shared") * effect("share"), 1.0)
        contexts = np.where(self.separate, self.c, 1 + fraction * (self.c - 1))
        converting = np.where(self.fp8_kv, scalar("kv_fp8"), 1.0)
        kv = self.kv_ms * scalar("kv") * converting * contexts
        scores = self.attention_ms / scalar("attention_efficiency")
        attention = (kv**norm + scores**norm) ** (1 / norm)
        state = self.state_ms * scalar("state") * effect("batch")
        launches = self.k * self.mtp * scalar("mtp_pass_ms") + self.dflash * scalar(
            "dflash_pass_ms"
        )
        launches = launches + self.drafting * scalar("draft_step_ms")
        drafter = np.where(self.mtp, self.k, self.dflash) * self.drafter_ms
        host = scalar("host_ms") * effect("host") + self.c * scalar("sequence_ms")
        reduce = self.reduces * exp[:, self.reduce] + self.reduce_gb / exp[:, self.link]
        gpu = gpu * effect("rig")
        parts = {
            "matrix": matrix * gpu,
            "attention": attention * gpu,
            "state": state * gpu,
            "drafter": drafter * gpu,
            "draft": launches * effect("draft") * effect("rig_host"),
            "host": host * effect("rig_host"),
            "reduce": reduce * effect("rig_link"),
        }
        if self.eager.any():
            total = np.sum(np.stack(list(parts.values())), axis=0)
            floor = np.maximum(scalar("eager_ms") - total, 0.0)
            parts["eager"] = np.where(self.eager, floor, 0.0)
        return parts

    def log_rate(self, theta: Array) -> Array:
        """Return the logarithm of aggregate output tokens/s, (Q, N)."""
        step = np.maximum(sum(self.terms(theta).values()), self.least_ms)
        return np.asarray(np.log(self.c * 1e3) + self._gain(theta) - np.log(step))

    def log_bound(self, theta: Array) -> Array:
        """Return the logarithm of the rate that memory allows: weights and keys read once, (Q, N).

        Host, arithmetic and drafting only take from it.
        """
        return np.asarray(np.log(self.c * 1e3) + self._gain(theta) - np.log(self.least_ms))

    def _gain(self, theta: Array) -> Array:
        """Return the logarithm of the tokens a sequence gains a step, (Q, N)."""
        padded = np.concatenate([theta, np.zeros((len(theta), 1))], axis=1)
        told = padded[:, self.effect["accept"]] + padded[:, self.effect["rig_accept"]]
        return np.asarray(np.minimum(self.accepted + told, np.log1p(self.k * MAX_SHARE)))

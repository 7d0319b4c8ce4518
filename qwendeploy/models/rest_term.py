"""Memory beside the KV cache: weights as loaded, and the rest of the engine's budget.

The *rest* is what the budget holds beside weights and cache: activations of the engine's profile
run, CUDA graphs, libraries. It is no constant: its peak is the larger of the forward pass
(follows batched tokens) and of the sampler (follows seats), on top of a base that grows with the
card. Its coefficients
come from benchdata/memory_rest.csv, fitted by scripts/fit_memory.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.units import GIB

VISION_GIB = 0.86
"""Vision tower: 0.46 B parameters, bf16 in every checkpoint that has one (parameter count)."""
MTP_GIB_16BIT = 0.79
"""MTP layer: 0.425 B parameters in bf16."""
MTP_GIB_FP8 = 0.40
DFLASH_GIB = 3.22
"""DFlash drafter: 1.730 B parameters in bf16."""
REPLICATED_GIB = 0.54
"""Loaded on every rank whatever the TP size: FP8 loads 28.08 GiB at TP=1 and 14.31 at TP=2."""
DFLASH_REPLICATED_GIB = 0.24
"""The drafter's projection of five tapped layers (25600 × 5120, bf16) is not divided."""
LOAD_EXTRA_GIB = 0.15
"""Loaded beyond the files: BF16 50.22 logged for 50.10, FP8 28.08 for 27.89 (own H200 logs)."""
LOAD_BAND_GIB = 0.2
"""Half width: the largest miss of the computed against seven logged or published load sizes."""

TAP_BYTES = QWEN_27B.block_drafter.tapped_layers * QWEN_27B.hidden * 2
"""Bytes a batched token for the drafter's tapped hidden states (bf16, each rank)."""
ROW_GIB = QWEN_27B.vocabulary * 4 / GIB
"""One row of logits over the vocabulary in float32."""
MANY_SEATS = 256
"""Above this many seats the sampler's profile was seen to take three times the fitted memory."""


@dataclass(frozen=True)
class RestCoefficients:
    """Fitted terms in GiB; ``spread`` is the half width of the 90 % band on held-out pools."""

    base: float
    """Context, libraries and fixed workspaces of each rank."""
    per_memory: float
    """GiB for each GiB of the card: what the driver keeps, and workspaces that larger chips make
    larger. An idle H200 shows 0.43 % of its memory neither used nor free."""
    upstream: float
    """Extra of upstream images over the fork."""
    per_ktoken_sharded: float
    """Activations for 1,024 batched tokens that tensor parallelism divides."""
    per_ktoken_replicated: float
    per_seat_rows: float
    """Copies of one logits row that the sampler's profile keeps a seat."""
    graphs_per_token: float
    """CUDA graphs for one token of capture size at TP=1."""
    fp8_marlin: float
    """Extra where FP8 weights run through Marlin kernels (compute capability below 8.9)."""
    spread: float
    spread_per_seat: float
    """What each seat above ``MANY_SEATS`` adds to the upper end of the band, GiB."""
    n: int
    basis: str


@dataclass(frozen=True)
class RestInputs:
    """What the rest depends on."""

    tp: int
    memory_gib: float
    """Of one card, as nvidia-smi prints it."""
    max_num_batched_tokens: int
    max_num_seqs: int
    spec_method: str = "none"
    spec_tokens: int = 0
    capture_size: int | None = None
    """Largest captured step in tokens; ``None`` is the engine's default; 0 is eager."""
    quant: str = "fp8"
    fork: bool = False
    native_fp8: bool = True
    """The card multiplies FP8 itself: compute capability 8.9 and above."""


def default_capture_size(max_num_seqs: int, spec_tokens: int) -> int:
    """Return the capture size that the engine derives: twice the decode step, at most 512."""
    return min(2 * max_num_seqs * (1 + spec_tokens), 512)


def rest_gib(inputs: RestInputs, coefficients: RestCoefficients) -> Estimate:
    """Return the rest on each rank in GiB with its band."""
    value = rest_value(inputs, coefficients)
    surplus = max(0, inputs.max_num_seqs - MANY_SEATS)
    return Estimate(
        value=value,
        low=max(0.0, value - coefficients.spread),
        high=value + coefficients.spread + surplus * coefficients.spread_per_seat,
        kind=Kind.ESTIMATED,
        n=coefficients.n,
        basis=coefficients.basis,
    )


def rest_value(inputs: RestInputs, coefficients: RestCoefficients) -> float:
    """Return the central value in GiB: base, card, graphs, the larger of forward and sampler."""
    c = coefficients
    ktokens = inputs.max_num_batched_tokens / 1024
    forward = ktokens * (c.per_ktoken_sharded / inputs.tp + c.per_ktoken_replicated)
    sampler = inputs.max_num_seqs * c.per_seat_rows * ROW_GIB
    capture = inputs.capture_size
    if capture is None:
        capture = default_capture_size(inputs.max_num_seqs, inputs.spec_tokens)
    value = c.base + c.per_memory * inputs.memory_gib + max(forward, sampler)
    value += c.graphs_per_token * capture / inputs.tp
    if inputs.spec_method == "dflash":
        value += inputs.max_num_batched_tokens * TAP_BYTES / GIB
    if inputs.quant == "fp8" and not inputs.native_fp8:
        value += c.fp8_marlin
    return value if inputs.fork else value + c.upstream


def rest_from_pool(budget_gib: float, kv_gib: float, weights_gib: float) -> float:
    """Return the rest that a known pool leaves: budget less cache less weights, GiB."""
    return budget_gib - kv_gib - weights_gib


def loaded_weights(
    files_gib: float,
    *,
    tp: int,
    quant: str,
    text_only: bool,
    has_vision: bool = True,
    has_mtp: bool = True,
    spec_method: str = "none",
    kind: Kind = Kind.ESTIMATED,
) -> Estimate:
    """Return the weights loaded on each rank in GiB, from the size of the checkpoint's files.

    The vision tower is left out when the server is text-only, the MTP layer when it does not
    draft with it; DFlash adds its drafter.
    """
    whole = files_gib + LOAD_EXTRA_GIB
    replicated = REPLICATED_GIB
    if text_only and has_vision:
        whole -= VISION_GIB
    if has_mtp and spec_method != "mtp":
        whole -= MTP_GIB_FP8 if quant == "fp8" else MTP_GIB_16BIT
    if spec_method == "dflash":
        whole += DFLASH_GIB
        replicated += DFLASH_REPLICATED_GIB
    value = whole / tp + replicated * (tp - 1) / tp
    return Estimate(
        value=value,
        low=value - LOAD_BAND_GIB,
        high=value + LOAD_BAND_GIB,
        kind=kind,
        basis="checkpoint size without the parts that the server does not load",
    )

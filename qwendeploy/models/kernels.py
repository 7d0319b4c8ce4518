"""Facts about matrix kernels and sizes that decide speed more than the hardware does.

Which kernel a quantised checkpoint runs depends on the compute capability: 8-bit floating point
needs 8.9 (Ada) or newer, 4-bit floating point a Blackwell card (10.0 or 12.x); where the card lacks
the format vLLM keeps the weights packed and multiplies in 16 bits (Marlin), so only the bytes
shrink. On Hopper without DeepGEMM the block-FP8 kernel costs a small batch what BF16 costs (own
H200 measurement 2026, vLLM 0.20.1: FP8 without drafting no faster than BF16).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwendeploy.family.geometry import QWEN_27B

FP8_CAPABILITY = 8.9
FP4_CAPABILITY = 10.0
CUTLASS_BYTES = 1.9
"""Bytes that FP8 without DeepGEMM costs on Hopper at small batch, over what it reads."""
MARLIN_4BIT = frozenset({"int4-autoround", "gptq-int4", "awq-4bit", "awq-6bit", "mxfp4"})

READ_BYTES: dict[str, float] = {
    "bf16": 51.2e9,
    "fp8": 27.0e9,
    "int8-w8a8": 27.0e9,
    "gptq-int8": 27.5e9,
    "int4-autoround": 15.1e9,
    "gptq-int4": 15.1e9,
    "awq-int4": 15.1e9,
    "awq-4bit": 19.1e9,
    "awq-6bit": 25.4e9,
    "nvfp4": 19.0e9,
    "mxfp4": 15.0e9,
}
"""Bytes a step reads: the checkpoint less embedding, vision and MTP.

Parameter counts of the published configuration (24.35 B text, 1.27 B head) by quant; AWQ from the
size of the published files. NVFP4 differs by publisher (15 to 27 GB), the middle is used unless the
checkpoint's own size is given.
"""
GGUF_BITS: dict[str, float] = {
    "q8_0": 8.5,
    "q6_k": 6.56,
    "q5_k_xl": 5.9,
    "q5_k_m": 5.7,
    "q5_k_s": 5.5,
    "q4_k_xl": 5.0,
    "q4_k_l": 5.1,
    "q4_k_m": 4.85,
    "iq4_ks": 4.25,
    "q3_k_m": 3.9,
    "q8_k_xl": 10.1,
}
"""Mean bits a weight of llama.cpp's formats (its quantisation tables); of ``q8_k_xl``, which keeps
tensors in 16 bits, from the size of the published file."""
_BITS_STATED = re.compile(r"([\d.]+)bpw")
_BITS_NAMED = re.compile(r"(?:^|-)i?q(\d)")
HEAD_BYTES = 2 * QWEN_27B.head_parameters
"""The output head in bf16, read once by every step and every draft pass."""
GGUF_HEAD_BITS = 6.56
"""llama.cpp keeps the output head at 6 bits (Q6_K) in its formats of fewer bits."""
MTP_BYTES = {"fp8": 0.43e9}
"""The MTP layer; checkpoints other than FP8 keep it in bf16."""
VISION_BYTES = 2 * QWEN_27B.vision_parameters
"""Vision tower in bf16: on disk, but not read by a decode step, as the embedding (of the head's
size) is not."""


GENERATIONS: tuple[tuple[float, float, str], ...] = (
    (7.0, 7.3, "volta"),
    (7.5, 7.9, "turing"),
    (8.0, 8.05, "ampere-datacenter"),
    (8.6, 8.8, "ampere"),
    (8.9, 8.95, "ada"),
    (9.0, 9.9, "hopper"),
    (10.0, 11.0, "blackwell-datacenter"),
    (12.0, 12.05, "blackwell"),
    (12.1, 12.9, "blackwell-unified"),
)
"""Lowest and highest compute capability of each generation of sister cards."""


def generation(compute_capability: float | None) -> str | None:
    """Return the generation of an NVIDIA card, ``None`` for other vendors and unknown values."""
    if compute_capability is None:
        return None
    for low, high, name in GENERATIONS:
        if low <= compute_capability <= high:
            return name
    return f"sm{round(compute_capability * 10)}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A matrix kernel: its name, the rate that bounds it, and bytes it costs over those it reads.

    ``native`` is False where the card lacks the format and only the bytes shrink.
    """

    name: str
    tflops: float
    byte_factor: float = 1.0
    native: bool = True


def kernel_for(
    quant: str,
    compute_capability: float | None,
    bf16_tflops: float,
    fp8_tflops: float | None,
    fp4_tflops: float | None,
    *,
    engine: str = "vllm",
    deep_gemm: bool = True,
    weight_only: bool = False,
    read_bytes: float | None = None,
) -> Kernel:
    """Return the kernel that runs ``quant`` on a card with these matrix rates (dense TFLOP/s).

    ``weight_only`` checkpoints multiply in 16 bits on every card; ``read_bytes`` of an NVFP4 one
    say how much of it stayed in 16 bits.
    """
    capability = compute_capability or 0.0
    if engine.endswith("llama.cpp") or gguf_bits(quant) is not None:
        return Kernel("gguf", bf16_tflops, native=False)
    if quant == "bf16":
        return Kernel("bf16", bf16_tflops)
    if quant == "fp8" and fp8_tflops and capability >= FP8_CAPABILITY:
        hopper = 9.0 <= capability < 10.0
        if hopper and not deep_gemm:
            return Kernel("fp8-cutlass", fp8_tflops, CUTLASS_BYTES)
        return Kernel("fp8", fp8_tflops)
    if quant == "nvfp4" and fp4_tflops and capability >= FP4_CAPABILITY and not weight_only:
        wide = kept_wide(read_bytes)
        return Kernel("fp4", 1 / ((1 - wide) / fp4_tflops + wide / bf16_tflops))
    if quant == "int8-w8a8" and capability < FP4_CAPABILITY:
        return Kernel("int8", 2 * bf16_tflops)
    return Kernel("marlin", bf16_tflops, native=False)


def kept_wide(read_bytes: float | None) -> float:
    """Return the share of an NVFP4 checkpoint's layers that stayed in 16 bits, from what it reads.

    24.35 B parameters at 4.5 bits and the head in 16 bits read 16.2 GB; what is more is layers (the
    Gated DeltaNet projections, in most repositories) at 16 bits instead.
    """
    if read_bytes is None:
        read_bytes = READ_BYTES["nvfp4"]
    narrow, wide = QWEN_27B.layer_parameters * 4.5 / 8, QWEN_27B.layer_parameters * 2
    return min(max((read_bytes - HEAD_BYTES - narrow) / (wide - narrow), 0.0), 1.0)


def gguf_bits(quant: str) -> float | None:
    """Return the mean bits a weight of a llama.cpp format, ``None`` if the name is none of its.

    By the format's table, else as the name states them (``5.076bpw``), else the digit in the name
    and 0.6 for scales and the tensors kept larger.
    """
    name = quant.lower().removeprefix("gguf-").removeprefix("ud-").removeprefix("i1-")
    if name == "bf16":
        return 16.0 if quant != name else None
    if name in GGUF_BITS:
        return GGUF_BITS[name]
    if stated := _BITS_STATED.search(name):
        return float(stated[1])
    named = _BITS_NAMED.search(name)
    return int(named[1]) + 0.6 if named else None


def draft_pass_bytes(quant: str) -> float:
    """Return what one MTP pass reads over all ranks: its layer and the output head."""
    bits = gguf_bits(quant)
    if bits is None:
        return MTP_BYTES.get(quant, 2 * QWEN_27B.mtp_parameters) + HEAD_BYTES
    head = QWEN_27B.head_parameters * max(bits, GGUF_HEAD_BITS)
    return (QWEN_27B.mtp_parameters * bits + head) / 8


def weights_read(
    quant: str, checkpoint_bytes: float | None = None, *, vision: bool = True
) -> float:
    """Return the bytes that one decode step reads over all ranks.

    From the checkpoint's size on disk if it is given, else by quant; an unknown quant is read as
    16-bit, the slowest it can be.
    """
    if checkpoint_bytes is not None:
        drafter = 0.43e9 if quant == "fp8" else 0.85e9
        unread = HEAD_BYTES + (VISION_BYTES if vision else 0.0) + drafter
        return max(checkpoint_bytes - unread, 8e9)
    bits = gguf_bits(quant)
    if bits is not None:
        return QWEN_27B.linear_parameters * bits / 8
    return READ_BYTES.get(quant, READ_BYTES["bf16"])


def state_bytes(drafted: int, element: int = 4) -> float:
    """Return the Gated DeltaNet state of one sequence over all layers and ranks, in bytes.

    Per layer a convolution window of ``3 + K`` positions in 16 bits and the recurrent state in
    ``element`` bytes.
    """
    window = (QWEN_27B.conv_kernel - 1 + drafted) * QWEN_27B.conv_channels * 2
    return float(QWEN_27B.state_layers * (window + QWEN_27B.state_values * element))

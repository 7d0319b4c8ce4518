"""Memory of a llama.cpp server with a GGUF of Qwen3.6-27B, for cards that vLLM cannot serve.

llama.cpp allocates the whole cache at start: keys and values for every cell of the context, which
the slots share, and one GDN state a slot. What is beside it (CUDA context, compute buffers) is a
range, not a fit: it follows the physical batch and the version.
"""

from __future__ import annotations

from dataclasses import dataclass

from qwendeploy.errors import UserError
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.units import GIB, MIB

_CACHE_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""Bytes a value: ggml block formats hold 32 values with their scales."""
STATE_BYTES = (
    QWEN_27B.state_layers
    * 4
    * ((QWEN_27B.conv_kernel - 1) * QWEN_27B.conv_channels + QWEN_27B.state_values)
)
"""One sequence's recurrent and convolution state, float32."""
WORKSPACE_LOW_GIB = 0.4
"""CUDA context and kernels alone."""
WORKSPACE_HIGH_GIB = 1.5
"""With compute buffers of attention at long context."""


@dataclass(frozen=True)
class GgufMemory:
    """What a llama.cpp server needs on one card, GiB."""

    weights_gib: float
    cache_gib: float
    states_gib: float
    workspace: Estimate
    total: Estimate


def cache_bytes_per_token(cache_type_k: str = "f16", cache_type_v: str = "f16") -> float:
    """Return the KV bytes of one token over the full-attention layers.

    Raises:
        UserError: the cache type is not one of llama.cpp's.
    """
    return QWEN_27B.kv_values_per_token * (_type_bytes(cache_type_k) + _type_bytes(cache_type_v))


def gguf_memory(
    file_gib: float,
    *,
    context: int,
    slots: int = 1,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    physical_batch: int = 512,
) -> GgufMemory:
    """Return what a fully offloaded server needs; ``context`` is the total that the slots share.

    Raises:
        UserError: the cache type is not one of llama.cpp's.
    """
    cache = context * cache_bytes_per_token(cache_type_k, cache_type_v) / GIB
    states = slots * STATE_BYTES / GIB
    logits = physical_batch * QWEN_27B.vocabulary * 4 / GIB
    low, high = WORKSPACE_LOW_GIB + logits / 2, WORKSPACE_HIGH_GIB + logits
    middle = (low + high) / 2
    basis = "cache by arithmetic; buffers as a range"
    workspace = Estimate(middle, low, high, Kind.ESTIMATED, basis=basis)
    fixed = file_gib + cache + states
    total = Estimate(fixed + middle, fixed + low, fixed + high, Kind.ESTIMATED, basis=basis)
    return GgufMemory(file_gib, cache, states, workspace, total)


def largest_context(
    file_gib: float,
    *,
    memory_mib: float,
    slots: int = 1,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    reserve_gib: float = 0.3,
    ceiling: int = QWEN_27B.native_context,
) -> int:
    """Return the longest total context that fits with room for the upper end of the buffers.

    ``reserve_gib`` stays free. 0 when not even the weights fit.
    """
    fixed = gguf_memory(
        file_gib, context=0, slots=slots, cache_type_k=cache_type_k, cache_type_v=cache_type_v
    )
    left = memory_mib * MIB / GIB - reserve_gib - fixed.total.high
    if left <= 0:
        return 0
    tokens = int(left * GIB / cache_bytes_per_token(cache_type_k, cache_type_v))
    return min(ceiling, tokens // 256 * 256)


def _type_bytes(name: str) -> float:
    try:
        return _CACHE_BYTES[name.lower()]
    except KeyError:
        raise UserError(
            f"{name!r} is no cache type of llama.cpp", hint=f"known: {', '.join(_CACHE_BYTES)}"
        ) from None

"""Memory of a llama.cpp server with a GGUF of Qwen3.6-27B, for cards that vLLM cannot serve.

llama.cpp allocates the whole cache at start: keys and values for every cell of the context, which
the slots share, and one GDN state a slot. What is beside it (CUDA context, compute buffers) is a
range, not a fit: it follows the physical batch and the version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from qwendeploy.documents import KvDtype, Machine
from qwendeploy.errors import UserError
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.figures import Kind
from qwendeploy.models.estimate import Estimate
from qwendeploy.units import GIB

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


PHYSICAL_BATCH = 512
"""The server's own default of ``--ubatch-size`` (llama.cpp server documentation)."""
PROJECTOR_GIB = 0.86
"""The image projector in 16 bits, whole on one card: 27.781 B parameters of the checkpoint less the
27.32 B of its text and MTP layers (checkpoints.csv)."""
DRAFT_BUFFERS_GIB = 1.0
"""Compute buffers of a draft context of its own (1,042 MiB on an RTX 4090, llama.cpp pull request
27489); builds that share them need none."""
RESERVE_GIB = 0.3
"""Left free on every card."""
DISPLAY_GIB = 0.7
"""Left besides on a card that drives a display."""
WINDOWS_GIB = 2.0
"""Left besides under WSL2: the Windows desktop holds 1 to 2 GiB of the card that nothing inside
sees (https://github.com/syv-ai/qwen38-27b-rtx3090/issues/21)."""
CONTEXT_STEP = 256
"""llama.cpp pads a slot's context to this many tokens."""
CACHE_TYPES: dict[KvDtype, str] = {"bf16": "f16", "fp8": "q8_0"}
"""llama.cpp's cache types that keep as many bits as ours."""


def reserve_gib(machine: Machine, display: bool) -> float:
    """Return what a server leaves free on one card, GiB."""
    windows = machine.os == "wsl2" and not machine.unified_memory
    return RESERVE_GIB + (WINDOWS_GIB if windows else DISPLAY_GIB if display else 0.0)


@dataclass(frozen=True)
class GgufMemory:
    """What a llama.cpp server needs on one card, GiB."""

    weights_gib: float
    cache_gib: float
    states_gib: float
    workspace: Estimate

    @property
    def total(self) -> Estimate:
        """All of it."""
        fixed = self.weights_gib + self.cache_gib + self.states_gib
        work = self.workspace
        return Estimate(
            fixed + work.value, fixed + work.low, fixed + work.high, work.kind, basis=work.basis
        )

    def room_text(self, budget_gib: float) -> str:
        """Return the parts beside what may be used of the card."""
        return (
            f"weights {self.weights_gib:.1f}, cache {self.cache_gib:.1f}, states "
            f"{self.states_gib:.1f} and buffers {self.workspace.low:.1f} to "
            f"{self.workspace.high:.1f} GiB against {budget_gib:.1f} GiB per GPU"
        )


def cache_bytes_per_token(cache_type_k: str = "f16", cache_type_v: str = "f16") -> float:
    """Return the KV bytes of one token over the full-attention layers.

    Raises:
        UserError: the cache type is not one of llama.cpp's.
    """
    return QWEN_27B.kv_values_per_token * (_type_bytes(cache_type_k) + _type_bytes(cache_type_v))


@dataclass(frozen=True)
class LlamaServer:
    """What decides the memory of a llama-server with its layers on cards; of all cards together."""

    file_gib: float
    cards: int
    context: int
    """Tokens that the slots share."""
    slots: int
    """Sequences with a state of their own."""
    cache_types: tuple[str, str] = ("f16", "f16")
    """Of keys and of values."""
    physical_batch: int = PHYSICAL_BATCH
    projector: Literal["off", "found", "on"] = "off"
    """Whether an image projector is loaded: ``found`` where it lies beside the weights."""
    drafts: bool = False
    """It drafts with the model's own head, in a context of its own."""

    def card(self) -> GgufMemory:
        """Return what each card holds: the projector whole, of all else its share.

        Raises:
            UserError: a cache type is not one of llama.cpp's.
        """
        cards = self.cards
        cache = -(-self.context // cards) * cache_bytes_per_token(*self.cache_types) / GIB
        logits = self.physical_batch * QWEN_27B.vocabulary * 4 / GIB
        low, high = WORKSPACE_LOW_GIB + logits / 2, WORKSPACE_HIGH_GIB + logits
        if self.drafts:
            own = cache * QWEN_27B.mtp_layers / QWEN_27B.attention_layers
            low, high = low + own, high + own + DRAFT_BUFFERS_GIB
        if self.projector == "found":
            high += PROJECTOR_GIB
        basis = "cache by arithmetic; buffers as a range"
        return GgufMemory(
            self.file_gib / cards + (PROJECTOR_GIB if self.projector == "on" else 0.0),
            cache,
            -(-self.slots // cards) * STATE_BYTES / GIB,
            Estimate((low + high) / 2, low, high, Kind.ESTIMATED, basis=basis),
        )

    def longest(self, budget_gib: float, *, sure: bool) -> int:
        """Return the longest total context that fits what may be used of each card, in tokens.

        ``sure`` leaves room for the upper end of the buffers. 0 when not even the weights fit.

        Raises:
            UserError: a cache type is not one of llama.cpp's.
        """
        empty = replace(self, context=0).card().total
        left = budget_gib - (empty.high if sure else empty.value)
        if left <= 0:
            return 0
        tokens = int(left * GIB / cache_bytes_per_token(*self.cache_types))
        return min(QWEN_27B.native_context, tokens // CONTEXT_STEP * CONTEXT_STEP) * self.cards


def _type_bytes(name: str) -> float:
    try:
        return _CACHE_BYTES[name.lower()]
    except KeyError:
        raise UserError(
            f"{name!r} is no cache type of llama.cpp", hint=f"known: {', '.join(_CACHE_BYTES)}"
        ) from None

"""How vLLM lays out the KV cache of Qwen3.5/3.6-27B: tokens a block, bytes a block, groups.

The model is a hybrid: 16 full-attention layers hold keys and values for every token, 48 Gated
DeltaNet (GDN) layers hold a state of fixed size for every running request. The engine gives both
the same page size and cuts all layers into groups that draw from one pool of blocks, so that
memory is counted in blocks, not in tokens. Read in vLLM 0.19.0 to 0.33.0 and checked against the
pools that servers logged (benchdata/memory_budget.csv).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from qwendeploy.errors import UserError
from qwendeploy.family.geometry import QWEN_27B, Geometry
from qwendeploy.figures import Kind

T = TypeVar("T")

ACTIVATION_BYTES = 2
"""The convolution state is kept in the model's 16-bit type."""
BLOCK_ALIGNMENT = 16
"""Attention blocks are a multiple of this many tokens."""

_KV_BYTES = {
    "auto": 2,
    "bf16": 2,
    "bfloat16": 2,
    "fp16": 2,
    "float16": 2,
    "half": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
    "int8_per_token_head": 1,
    "fp8_per_token_head": 1,
}
_SCALE_BYTES = {"int8_per_token_head": 4, "fp8_per_token_head": 4}
"""A float32 scale beside each head's key and value of a token (vLLM's Triton backend). With it the
block of three drafts is 1,584 tokens, as noonghunna/club-3090 logged on vLLM 0.23."""
_STATE_BYTES = {"auto": 4, "float32": 4, "float16": 2, "bfloat16": 2}


class Drafter(StrEnum):
    """What a draft method adds to the cache: nothing, one like layer, or five of another shape."""

    NOTHING = "nothing"
    LIKE_LAYER = "like-layer"
    FIVE_LAYERS = "five-layers"


_DRAFTERS = {
    "none": Drafter.NOTHING,
    "ngram": Drafter.NOTHING,
    "mtp": Drafter.LIKE_LAYER,
    "dflash": Drafter.FIVE_LAYERS,
}


@dataclass(frozen=True)
class KvLayout:
    """The cache's geometry for one option; every count is per rank and per request.

    ``kind`` and ``basis`` say how well the arithmetic is known for the engine version.
    """

    block_tokens: int
    page_bytes: int
    group_size: int
    attention_groups: int
    state_groups: int
    states_reserved: int
    states_held: int
    spec_tokens: int
    sliding_window_tokens: int = 0
    """Tokens that a sliding group of the drafter may hold at once; 0 without such a group."""
    kind: Kind = Kind.MEASURED
    basis: str = "the engine's own arithmetic"

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one pool block on each rank: one page for every layer of a group."""
        return self.page_bytes * self.group_size

    @property
    def state_blocks_reserved(self) -> int:
        """Blocks that a request's GDN states need however short it is."""
        return self.state_groups * self.states_reserved

    @property
    def state_blocks_held(self) -> int:
        """State blocks that a running request holds between two block edges."""
        return self.state_groups * self.states_held

    def attention_blocks(self, tokens: int) -> int:
        """Return the blocks that ``tokens`` tokens take in all attention groups."""
        length = max(tokens, 1)
        blocks = self.attention_groups * _ceil_div(length, self.block_tokens)
        if self.sliding_window_tokens:
            seen = min(length, self.sliding_window_tokens)
            edge = 1 if length > self.sliding_window_tokens else 0
            blocks += _ceil_div(seen, self.block_tokens) + edge
        return blocks


def kv_layout(
    *,
    tp: int,
    spec_method: str = "none",
    spec_tokens: int = 0,
    kv_cache_dtype: str = "bf16",
    prefix_cache: bool,
    state_dtype: str = "float32",
    sliding_drafter: bool = False,
    max_num_batched_tokens: int = 8192,
    engine_version: str | None = None,
    fork: bool = False,
    model: Geometry = QWEN_27B,
) -> KvLayout:
    """Return the layout of an option.

    ``sliding_drafter``: the engine gives DFlash's sliding layers a spec of their own (fork v3,
    upstream from 0.25); such a group holds the window and one scheduler step of
    ``max_num_batched_tokens``.

    Raises:
        UserError: the tensor-parallel size does not divide the model's heads, or the arithmetic
            of the draft method or cache type is not known.
    """
    if tp not in model.tensor_parallel_sizes:
        heads = f"{model.query_heads}, {model.state_key_heads} and {model.state_value_heads}"
        *most, last = model.tensor_parallel_sizes
        raise UserError(
            f"tensor-parallel size {tp} does not divide the model's {heads} heads",
            hint=f"{', '.join(map(str, most))} and {last} do",
        )
    drafter = _lookup(_DRAFTERS, spec_method, "draft method")
    kv_bytes = _lookup(_KV_BYTES, kv_cache_dtype, "KV cache type")
    state_bytes = _lookup(_STATE_BYTES, state_dtype, "state cache type")
    drafted = spec_tokens if spec_method != "none" else 0
    head_bytes = model.head_dim * kv_bytes + _SCALE_BYTES.get(kv_cache_dtype, 0)
    token_bytes = 2 * max(1, model.kv_heads // tp) * head_bytes
    state = (model.conv_kernel - 1 + drafted) * (model.conv_channels // tp) * ACTIVATION_BYTES
    state += model.state_values // tp * state_bytes
    block = BLOCK_ALIGNMENT * _ceil_div(state, BLOCK_ALIGNMENT * token_bytes)
    group_size, attention_groups, window = _groups(
        model, drafter, max_num_batched_tokens if sliding_drafter else None
    )
    kind, basis = layout_evidence(engine_version, fork=fork, drafter=drafter)
    return KvLayout(
        block_tokens=block,
        page_bytes=block * token_bytes,
        group_size=group_size,
        attention_groups=attention_groups,
        state_groups=_ceil_div(model.state_layers, group_size),
        states_reserved=(2 if prefix_cache else 1) + drafted,
        states_held=1 + drafted,
        spec_tokens=drafted,
        sliding_window_tokens=window,
        kind=kind,
        basis=basis,
    )


def _groups(model: Geometry, drafter: Drafter, step: int | None) -> tuple[int, int, int]:
    """Return group size, attention groups and window tokens.

    Layers are bucketed by identical cache spec; the smallest bucket sets the group size. ``step``:
    batched tokens where sliding layers have a group of their own, else ``None``. The sliding
    group's count reproduces the 1,407 blocks of the fork's v3 at 262,144 tokens.
    """
    if drafter is Drafter.FIVE_LAYERS:
        block = model.block_drafter
        if step is not None:
            full = model.attention_layers + block.layers - block.sliding_layers
            return block.layers, _ceil_div(full, block.layers), block.window - 1 + step
        return block.layers, _ceil_div(model.attention_layers, block.layers) + 1, 0
    extra = model.mtp_layers if drafter is Drafter.LIKE_LAYER else 0
    return model.attention_layers + extra, 1, 0


def layout_evidence(
    engine_version: str | None, *, fork: bool, drafter: Drafter = Drafter.NOTHING
) -> tuple[Kind, str]:
    """Return how well the layout is known for an engine version, and in words.

    0.20 to 0.24 and the fork are read and checked against logs. From 0.25 sliding DFlash layers
    are allocated differently and from 0.31 some backends pack layers, so ``cache_config_info``
    of the running server is better evidence there.
    """
    if fork:
        return Kind.MEASURED, "block arithmetic checked on the fork's logged pools"
    version = _minor(engine_version)
    if version is None:
        return Kind.EXTRAPOLATED, "block arithmetic of vLLM 0.20 to 0.24; engine version not known"
    if (0, 20) <= version <= (0, 24):
        return Kind.MEASURED, "block arithmetic of vLLM 0.20 to 0.24, checked on logged pools"
    if version < (0, 20):
        return Kind.EXTRAPOLATED, "block arithmetic of vLLM 0.20; older versions print other units"
    if drafter is Drafter.FIVE_LAYERS:
        return (
            Kind.ESTIMATED,
            "sliding DFlash layers are allocated differently from vLLM 0.25: read "
            "cache_config_info of the running server",
        )
    return (
        Kind.EXTRAPOLATED,
        "block arithmetic of vLLM 0.20 to 0.24; newer versions may pack layers: prefer "
        "cache_config_info of the running server",
    )


def _minor(version: str | None) -> tuple[int, int] | None:
    parts = (version or "").lstrip("v").split(".")
    if len(parts) < 2 or not parts[0].isdigit() or not parts[1].isdigit():
        return None
    return int(parts[0]), int(parts[1])


def _lookup(table: Mapping[str, T], name: str, what: str) -> T:
    try:
        return table[name]
    except KeyError:
        raise UserError(
            f"no memory arithmetic is known for the {what} {name!r}",
            hint=f"known: {', '.join(table)}",
        ) from None


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)

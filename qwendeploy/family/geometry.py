"""The shape of a model of the family: layers, heads, states, vocabulary, drafters.

Qwen3.5-27B, 3.6-27B and 3.8-27B share one architecture (their published config.json): a hybrid in
which every fourth layer attends to all tokens and the others are Gated DeltaNet (GDN) layers that
hold a state of fixed size for every running request.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd


@dataclass(frozen=True)
class BlockDrafter:
    """A drafter with weights and attention layers of its own that drafts a block at once."""

    layers: int
    sliding_layers: int
    """Of these the ones that see a window of the context."""
    window: int
    """Tokens of that window."""
    tapped_layers: int
    """Layers of the model whose hidden states it reads."""
    parameters: float
    longest_block: int
    """Most tokens that it drafts at once: its block less the token of the model itself."""


@dataclass(frozen=True)
class Geometry:
    """Counts and sizes of one model; parameters are numbers of weights, whatever their format."""

    attention_layers: int
    """Full-attention layers: keys and values for every token."""
    state_layers: int
    """GDN layers."""
    query_heads: int
    kv_heads: int
    head_dim: int
    state_key_heads: int
    state_value_heads: int
    state_head_dim: int
    """Key and value dimension of a GDN head."""
    conv_kernel: int
    """Positions of a GDN layer's convolution."""
    hidden: int
    vocabulary: int
    native_context: int
    """max_position_embeddings: longer contexts need YaRN."""
    layer_parameters: float
    head_parameters: float
    """Output head; the token embedding is as large and apart from it."""
    mtp_parameters: float
    vision_parameters: float
    mtp_layers: int
    """Attention layers of the model's own draft head."""
    block_drafter: BlockDrafter

    @property
    def layers(self) -> int:
        """Layers of both kinds."""
        return self.attention_layers + self.state_layers

    @property
    def conv_channels(self) -> int:
        """Channels of a GDN layer's convolution: queries, keys and values."""
        return (2 * self.state_key_heads + self.state_value_heads) * self.state_head_dim

    @property
    def state_values(self) -> int:
        """Values of one GDN layer's recurrent state of one request."""
        return self.state_value_heads * self.state_head_dim**2

    @property
    def linear_parameters(self) -> float:
        """Parameters multiplied for every token: the layers and the output head."""
        return self.layer_parameters + self.head_parameters

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding, which are looked up and not multiplied."""
        return self.vocabulary * self.hidden

    @property
    def kv_values_per_token(self) -> int:
        """Keys (or values) of one token over all full-attention layers."""
        return self.attention_layers * self.kv_heads * self.head_dim

    @cached_property
    def tensor_parallel_sizes(self) -> tuple[int, ...]:
        """Sizes that divide query heads and both kinds of GDN heads.

        Beyond the number of KV heads every rank holds a copy of one.
        """
        common = gcd(self.query_heads, self.state_key_heads, self.state_value_heads)
        return tuple(size for size in range(1, common + 1) if common % size == 0)

    def largest_tensor_parallel(self, cards: int) -> int:
        """Return the largest size that ``cards`` cards hold, at least 1."""
        return max(size for size in self.tensor_parallel_sizes if size <= max(1, cards))

    def draft_layers(self, method: str) -> int:
        """Return the attention layers that a draft method adds; 0 without a draft model."""
        return {"mtp": self.mtp_layers, "dflash": self.block_drafter.layers}.get(method, 0)


QWEN_27B = Geometry(
    attention_layers=16,
    state_layers=48,
    query_heads=24,
    kv_heads=4,
    head_dim=256,
    state_key_heads=16,
    state_value_heads=48,
    state_head_dim=128,
    conv_kernel=4,
    hidden=5120,
    vocabulary=248320,
    native_context=262144,
    layer_parameters=24.35e9,
    head_parameters=1.27e9,
    mtp_parameters=0.425e9,
    vision_parameters=0.46e9,
    mtp_layers=1,
    block_drafter=BlockDrafter(
        layers=5,
        sliding_layers=4,
        window=2048,
        tapped_layers=5,
        parameters=1.73e9,
        longest_block=15,
    ),
)
"""Qwen3.5, 3.6 and 3.8 of 27 B (config.json of Qwen/Qwen3.6-27B; parameters counted in its
checkpoint's index), with the drafter z-lab/Qwen3.6-27B-DFlash (its config.json)."""

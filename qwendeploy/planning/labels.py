"""Short names of options for traces and text."""

from __future__ import annotations

from qwendeploy.documents import Option, Quality
from qwendeploy.image_names import image_name

CLASS_WEIGHTS = {
    Quality.REFERENCE: "BF16 weights",
    Quality.NEAR: "8-bit weights",
    Quality.RELAXED: "measured 4- to 6-bit weights",
    Quality.ANY: "any weights",
}
"""The lightest weights that a quality class admits (DESIGN §6)."""


def draft_label(option: Option) -> str:
    """Return ``mtp3``, ``dflash8`` or ``no draft``."""
    if option.spec_method == "none":
        return "no draft"
    return f"{option.spec_method}{option.spec_tokens}"


def layout_label(option: Option) -> str:
    """Return ``tp2`` or ``2 x tp1``."""
    return f"tp{option.tp}" if option.replicas == 1 else f"{option.replicas} x tp{option.tp}"


def quality_label(quality: Quality) -> str:
    """Return ``quality class near (8-bit weights)``."""
    return f"quality class {quality} ({CLASS_WEIGHTS[quality]})"


def shortfall(missed_by: str) -> str:
    """Return by how much an option missed: ``short by 3 GiB``, or ``3 cards instead of 2``."""
    return missed_by if " instead of " in missed_by else f"short by {missed_by}"


def option_label(option: Option) -> str:
    """Return one line that tells an option from its neighbours."""
    parts = [
        option.quant,
        draft_label(option),
        layout_label(option),
        f"{option.kv_cache_dtype} KV",
        "prefix cache on" if option.prefix_cache else "prefix cache off",
        image_name(option.image or option.engine).short,
    ]
    return " · ".join(parts)

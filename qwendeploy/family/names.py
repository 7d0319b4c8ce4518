"""Names of the models of this shape, as repositories and people spell them."""

from __future__ import annotations

import re

MODEL = "qwen3.6-27b"
"""The model that plans are of where nothing says otherwise."""
SERVED_NAME = MODEL
"""The name that clients ask a planned server for."""
_MARKS = {
    MODEL: r"qw(?:en|opus).?3[._]?6.?27b",
    "qwen3.8-27b": r"qwen.?3[._]?8.?27b",
    "qwen3.5-27b": r"qwen.?3[._]?5.?27b",
}
MODELS = tuple(_MARKS)
"""The models of this shape, by their plain names."""


def model_of(name: str) -> str | None:
    """Return the model that a repository's or a person's name for it names, ``None`` for others."""
    for model, mark in _MARKS.items():
        if re.search(mark, name, re.IGNORECASE):
            return model
    return None

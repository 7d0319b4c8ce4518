"""How wide text may be: as ``COLUMNS`` says, as the terminal is, else a hundred columns."""

from __future__ import annotations

import os
import sys

USUAL = 100
"""Columns of text that goes into a file or a pipe, and most that a wider terminal gets unasked."""
LEAST = 40
"""Below it labels and figures leave no room for words."""


def text_width() -> int:
    """Return the columns that a line may have.

    ``COLUMNS`` in the environment is taken at its word; a shell does not export it by itself.
    """
    stated = os.environ.get("COLUMNS", "")
    if stated.isascii() and stated.isdigit() and int(stated) > 0:
        return max(LEAST, int(stated))
    try:
        terminal = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):  # no terminal, or no file behind the stream
        return USUAL
    return max(LEAST, min(terminal, USUAL)) if terminal > 0 else USUAL

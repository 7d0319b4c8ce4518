"""Where the user's own tables are kept."""

from __future__ import annotations

import os
from pathlib import Path

DECODE, POOLS = "decode_own.csv", "pools_own.csv"
RECORDS = "imports.json"


def own_directory() -> Path:
    """Return the directory of one's own tables; ``QWENDEPLOY_DATA`` overrides the usual place."""
    override = os.environ.get("QWENDEPLOY_DATA")
    if override:
        return Path(override)
    import platformdirs

    return Path(platformdirs.user_data_dir("qwendeploy", appauthor=False))


def has_own_tables() -> bool:
    """Say whether anything of one's own is kept."""
    directory = own_directory()
    return any((directory / name).exists() for name in (DECODE, POOLS))

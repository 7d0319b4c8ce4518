"""Judged points as a DataFrame: what the summaries group and average."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd


def frame_of(items: Iterable[Any], *names: str) -> pd.DataFrame:
    """Return one row an item, in order, with the attributes of these names as columns."""
    found = list(items)
    return pd.DataFrame({name: [getattr(item, name) for item in found] for name in names})

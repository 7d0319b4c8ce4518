"""The fitted transfer coefficients as stored: ``benchdata/transfer_fit.yaml``.

The file is written by ``scripts/fit_transfer.py`` in the JSON subset of YAML, which loads in a
millisecond; ``recommend`` reads it at every start.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from qwendeploy.errors import DataError
from qwendeploy.resources import data_dir

KEYS = ("parameters", "covariance", "scale", "measured", "prefill", "warm", "provenance")


@cache
def transfer_coefficients() -> dict[str, Any]:
    """Return the file's mapping.

    Raises:
        DataError: the file is missing, is not the JSON subset of YAML, or lacks a key.
    """
    path = data_dir("benchdata") / "transfer_fit.yaml"
    hint = "reinstall qwendeploy, or write it anew with scripts/fit_transfer.py"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"cannot be read: {problem}", file=str(path), hint=hint) from problem
    except json.JSONDecodeError as problem:
        raise DataError(problem.msg, file=str(path), line=problem.lineno, hint=hint) from problem
    for key in KEYS:
        if not isinstance(data, dict) or key not in data:
            raise DataError("missing key", file=str(path), key=key, hint=hint)
    return dict(data)

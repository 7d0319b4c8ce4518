"""Where rules, templates and tables lie: in the installed package, else beside it in a checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from qwendeploy.errors import DataError


@cache
def data_dir(name: str) -> Path:
    """Return the directory ``rules``, ``templates`` or ``benchdata``.

    Raises:
        DataError: neither the installed package nor a checkout holds it.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "_data" / name, package.parent / name):
        if candidate.is_dir():
            return candidate
    raise DataError(
        f"the directory {name!r} is missing from the installation",
        file=str(package),
        hint="reinstall qwendeploy",
    )

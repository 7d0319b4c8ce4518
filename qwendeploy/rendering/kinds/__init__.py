"""The artefact kinds, one module each: a further kind is a further module and its template."""

from __future__ import annotations

import importlib
import pkgutil

from qwendeploy.rendering.kind import ArtefactKind


def _discovered() -> dict[str, ArtefactKind]:
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    kinds: list[ArtefactKind] = [module.KIND for module in modules]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)}


KINDS = _discovered()
"""Every kind by name, in alphabetical order."""

"""The layers of the house: a module imports only from its own package and from layers below."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "qwendeploy"
BASE = {"errors", "figures", "units", "documents", "resources"}
ALLOWED = {
    "models": BASE,
    "hardware": BASE,
    "tables": BASE,
    "planning": BASE | {"models", "hardware", "tables"},
}
ALLOWED["auditing"] = ALLOWED["planning"] | {"planning"}
ALLOWED["rendering"] = ALLOWED["planning"] | {"planning"}
ALLOWED["diagnosis"] = ALLOWED["planning"] | {"planning"}
ALLOWED["running"] = ALLOWED["diagnosis"] | {"diagnosis", "auditing", "rendering"}
ALLOWED["verification"] = ALLOWED["running"]
ALLOWED["reporting"] = ALLOWED["verification"] | {"verification", "running"}
ALLOWED["api"] = ALLOWED["reporting"] | {"reporting"}
ALLOWED["cli"] = BASE | {"api", "reporting"}


def imported_layers(path: Path) -> set[str]:
    """Return the qwendeploy layers that a module imports anywhere, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "qwendeploy":
                names = [f"qwendeploy.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "qwendeploy" and len(parts) > 1 and not parts[1].startswith("_"):
                found.add(parts[1])
    return found


MODULES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE or path.stem in ALLOWED
]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_from_below(path: Path) -> None:
    relative = path.relative_to(PACKAGE)
    layer = relative.parts[0].removesuffix(".py")
    allowed = ALLOWED.get(layer, BASE) | {layer}
    assert imported_layers(path) <= allowed


def test_the_check_sees_the_package() -> None:
    assert len(MODULES) > 15

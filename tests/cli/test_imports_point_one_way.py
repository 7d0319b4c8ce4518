"""The layers of the house: a module imports only from its own package and from layers below.

No modules import one another in a circle, also not inside a layer, in a function or for types.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "qwendeploy"
BASE = {"errors", "figures", "units", "documents", "resources", "versions", "image_names"}
FACTS = BASE | {"family", "models", "hardware", "tables"}
KNOWN = FACTS | {"engines", "rulebook"}
PLANS = KNOWN | {"evidence", "planning"}
ALLOWED = {
    "family": BASE,
    "models": BASE | {"family"},
    "hardware": BASE,
    "tables": BASE | {"family"},
    "engines": FACTS,
    "rulebook": FACTS,
    "evidence": KNOWN,
    "planning": KNOWN | {"evidence"},
    "auditing": PLANS,
    "rendering": PLANS,
    "diagnosis": PLANS,
    "evaluation": PLANS,
    "running": PLANS | {"auditing", "rendering", "diagnosis"},
    "verification": PLANS | {"auditing", "rendering", "diagnosis"},
    "reporting": PLANS
    | {"auditing", "rendering", "diagnosis", "evaluation", "running", "verification"},
    "cli": BASE | {"api", "reporting"},
}
"""The rooms of the house, lowest first, with the rooms that each may import."""

ALLOWED["api"] = ALLOWED["reporting"] | {"reporting"}
MOST_MODULES = 25
"""Modules in one folder: more are no longer found by reading their names."""


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package; a package's is that of its directory."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported_modules(source: str) -> set[str]:
    """Return the modules of the package that a text imports anywhere: in functions, for types."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, "imports name the whole module"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & FILES.keys()
            if not inside <= FILES.keys():
                found.add(node.module)
    return found & FILES.keys()


IMPORTS = {
    name: imported_modules(path.read_text(encoding="utf-8")) - {name}
    for name, path in FILES.items()
}


def imported_layers(path: Path) -> set[str]:
    """Return the qwendeploy layers that a module imports anywhere."""
    return {
        parts[1]
        for name in IMPORTS[module_name(path)]
        if len(parts := name.split(".")) > 1 and not parts[1].startswith("_")
    }


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in a loop, the first again as last; else none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as problem:
        return list(problem.args[1])
    return []


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


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for path in PACKAGE.rglob("*.py")}),
    ids=lambda folder: str(folder.relative_to(PACKAGE)),
)
def test_folder_is_small_enough_to_read(folder: Path) -> None:
    assert len([path for path in folder.glob("*.py") if path.stem != "__init__"]) <= MOST_MODULES


def test_no_modules_import_one_another() -> None:
    assert circle_in(IMPORTS) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        pytest.param("from qwendeploy.units import GIB", {"qwendeploy.units"}, id="name"),
        pytest.param("from qwendeploy import api", {"qwendeploy.api"}, id="module"),
        pytest.param("import qwendeploy.figures as f", {"qwendeploy.figures"}, id="import"),
        pytest.param("def f():\n    import qwendeploy.units", {"qwendeploy.units"}, id="function"),
        pytest.param(
            "if TYPE_CHECKING:\n    from qwendeploy.models import speed, memory",
            {"qwendeploy.models.speed", "qwendeploy.models.memory"},
            id="types",
        ),
        pytest.param("from numpy import log", set(), id="foreign"),
    ],
)
def test_the_check_sees_every_import(source: str, found: set[str]) -> None:
    assert imported_modules(source) == found


def test_the_check_sees_a_circle() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) in (["b", "c", "b"], ["c", "b", "c"])
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []

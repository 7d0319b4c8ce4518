"""Files are written, pages read and metrics parsed in one place each."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "qwendeploy"
TREES = {
    str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}
CLIENT = "verification/wire/client.py"
WRITES = {"write_text", "write_bytes", "link", "fdopen", "mkstemp", "NamedTemporaryFile"}


def importers(module: str) -> set[str]:
    """Return the files that import a module or what is in it, types aside or not."""
    found = set()
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            if any(f"{one}.".startswith(f"{module}.") for one in names):
                found.add(name)
    return found


@pytest.mark.parametrize(
    ("module", "files"),
    [
        pytest.param("httpx", {CLIENT, "running/http.py"}, id="pages"),
        pytest.param("aiohttp", {CLIENT}, id="timed-streams"),
        pytest.param("urllib.request", {"verification/wire/target.py"}, id="proxies-alone"),
        pytest.param("http.client", set(), id="by-hand"),
        pytest.param("requests", set(), id="another-library"),
        pytest.param("prometheus_client", {"engines/metrics.py"}, id="metrics"),
    ],
)
def test_a_library_is_used_where_its_job_is_done(module: str, files: set[str]) -> None:
    assert importers(module) == files


def test_files_are_written_by_one_module() -> None:
    writers = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in WRITES
    }
    assert writers == {"documents/disk.py"}

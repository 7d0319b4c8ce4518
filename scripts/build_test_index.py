"""Writes ``tests/INDEX.md``: for every module of the package, the tests that protect it.

A module's tests are those that import it. Where none does, they are the tests of the modules
nearest above it that import it, since those run its code; a verb's module has the tests that run
the verb. With ``--check`` nothing is written and a stale index is an error.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, TESTS = ROOT / "qwendeploy", ROOT / "tests"
INDEX = TESTS / "INDEX.md"
HEAD = """# Which tests protect which module

Written by `scripts/update`. A module without tests of its own is protected by those of the modules
that use it (marked *through*). Run one with `scripts/test tests/ROOM/FILE`.
"""


def dotted(path: Path) -> str:
    """Return a module's name; a package's is that of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(path: Path) -> set[str]:
    """Return the modules of the package, and the helpers beside the tests, that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inside & MODULES.keys()
            if not inside <= MODULES.keys():
                found.add(node.module)
    return found


def tests_by_module() -> dict[str, set[str]]:
    """Return the tests that import each module themselves or by a helper, or run its verb."""
    helpers = {path.stem: path for path in TESTS.glob("*.py")}
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        name = str(path.relative_to(TESTS))
        source = path.read_text(encoding="utf-8")
        reached = imported(path)
        verbs = re.findall(r'(?:\brun|\.run|\bcall)\(\s*"([a-z]+)"(?:, "([a-z]+)")?', source)
        reached |= {f"qwendeploy.cli.{verb}" for verb, _ in verbs}
        reached |= {f"qwendeploy.cli.{verb}_{second}" for verb, second in verbs if second}
        for helper in reached & helpers.keys():
            reached = reached | imported(helpers[helper])
        for module in reached & MODULES.keys():
            found[module].add(name)
    return found


def nearest(module: str, users: dict[str, set[str]], direct: dict[str, set[str]]) -> set[str]:
    """Return the tests of the nearest modules above that have any."""
    level, seen = {module}, {module}
    while level:
        level = {user for name in level for user in users[name]} - seen
        seen |= level
        if tests := set().union(*(direct.get(name, set()) for name in level)):
            return tests
    return set()


def index() -> str:
    """Return the page."""
    direct = tests_by_module()
    users: dict[str, set[str]] = defaultdict(set)
    for name, path in MODULES.items():
        for used in imported(path) & MODULES.keys():
            users[used].add(name)
    lines = [HEAD]
    room = ""
    for name, path in MODULES.items():
        if path.stem.startswith("__") and not path.read_text(encoding="utf-8").strip():
            continue
        parts = name.split(".")
        here = ".".join(parts[1:-1]) or "qwendeploy"
        if here != room:
            room = here
            lines.append(f"\n## {room.replace('.', '/')}\n")
        own = direct.get(name)
        tests = sorted(own or nearest(name, users, direct))
        shown = ", ".join(f"`{test}`" for test in tests[:4])
        rest = f" and {len(tests) - 4} more" if len(tests) > 4 else ""
        lines.append(f"- `{parts[-1]}`: {'' if own else '*through* '}{shown or 'none'}{rest}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the index, or say that it is stale."""
    text = index()
    if "--check" in sys.argv[1:]:
        if INDEX.read_text(encoding="utf-8") == text:
            return 0
        print(f"{INDEX.name} is stale: run scripts/update", file=sys.stderr)
        return 1
    INDEX.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

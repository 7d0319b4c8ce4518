"""Write ``benchdata/engine_flags.csv`` from the sources of several engine releases.

    python scripts/read_engine_flags.py SOURCES > benchdata/engine_flags.csv

SOURCES holds one folder a release, named by its version, with the ``vllm`` package of that
release's wheel inside (``pip download --no-deps``, unpacked; nothing is imported or run). Flags
come from the parser calls of ``vllm/engine/arg_utils.py`` and the frontend's ``cli_args.py``, their
types and choices from the configuration classes, the keys of ``--speculative-config`` from its
class, and variables from ``vllm/envs.py``. A row spans the releases in which one form was read;
what lies between two releases read is not known, so both ends name the neighbour that differs.
"""

from __future__ import annotations

import ast
import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

COLUMNS = (
    "kind",
    "name",
    "aliases",
    "negatives",
    "type",
    "default",
    "allowed",
    "since",
    "absent_to",
    "until",
    "absent_from",
    "source",
)
PARSERS = {
    "--tool-call-parser": "vllm/tool_parsers/__init__.py",
    "--reasoning-parser": "vllm/reasoning/__init__.py",
}
"""Flags whose values are the names a module registers; a plugin flag may add names."""
SIZES = {
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "kv_cache_memory_bytes",
    "safetensors_prefetch_block_size",
    "max_num_queued_tokens",
}
"""Fields that take 8k or 10G (``human_readable_int`` in the engine)."""


@dataclass(frozen=True)
class Form:
    """How one release takes a flag, key or variable."""

    aliases: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    type: str = "text"
    default: str = ""
    allowed: tuple[str, ...] = ()


@dataclass
class Release:
    """One release's classes and type names, by name."""

    root: Path
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    aliases: dict[str, ast.expr] = field(default_factory=dict)

    def load(self) -> None:
        """Collect every class and every type alias of the configuration modules."""
        for path in sorted(self.root.rglob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, node)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    self.aliases.setdefault(node.targets[0].id, node.value)

    def fields(self, name: str) -> dict[str, tuple[ast.expr, ast.expr | None]]:
        """Return annotation and default of every field of a class, bases first."""
        node = self.classes.get(name)
        if node is None:
            return {}
        found: dict[str, tuple[ast.expr, ast.expr | None]] = {}
        for base in node.bases:
            if isinstance(base, ast.Name):
                found.update(self.fields(base.id))
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                found[item.target.id] = (item.annotation, item.value)
        return found

    def names_in(self, annotation: ast.expr, depth: int = 6) -> tuple[set[str], set[str]]:
        """Return the type names and the literal values that an annotation reaches."""
        names: set[str] = set()
        values: set[str] = set()
        pending: list[tuple[ast.expr, int]] = [(annotation, depth)]
        while pending:
            node, left = pending.pop()
            if isinstance(node, ast.Subscript):
                head = ast.unparse(node.value).rpartition(".")[2]
                if head == "Literal":
                    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                    for item in items:
                        pending.append((item, left))
                        names.add("Literal")
                    continue
                names.add(head)
                inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                if head not in ("list", "dict", "set", "tuple", "Callable"):
                    pending.extend((item, left) for item in inner)
            elif isinstance(node, ast.BinOp):
                pending += [(node.left, left), (node.right, left)]
            elif isinstance(node, ast.Name | ast.Attribute):
                name = ast.unparse(node).rpartition(".")[2]
                if name in self.aliases and left and _is_type(self.aliases[name]):
                    pending.append((self.aliases[name], left - 1))
                else:
                    names.add(name)
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, str) and "Literal" in names:
                    values.add(node.value)
                elif node.value is not None:
                    values.add(str(node.value))
        return names, values

    def form(self, owner: str, name: str) -> Form:
        """Return type, default and choices of a configuration field."""
        annotation, default = self.fields(owner).get(name, (ast.Name("str"), None))
        names, values = self.names_in(annotation)
        kind = "text"
        if "bool" in names:
            kind = "switch"
        elif names & {"list", "set", "tuple"}:
            kind = "list"
        elif "dict" in names or any(other.endswith("Config") for other in names):
            kind = "json"
        elif name == "max_model_len":
            kind = "size_or_auto"
        elif name in SIZES:
            kind = "size"
        elif "int" in names:
            kind = "int"
        elif "float" in names:
            kind = "float"
        elif "Literal" in names and "str" not in names:
            kind = "choice"
        allowed = tuple(sorted(values)) if kind == "choice" else ()
        return Form(type=kind, default=_default(default), allowed=allowed)


def _is_type(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript | ast.BinOp) or (
        isinstance(node, ast.Name) and node.id[:1].isupper()
    )


def _default(node: ast.expr | None) -> str:
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Field":
        named = {word.arg: word.value for word in node.keywords}
        node = named.get("default", node.args[0] if node.args else None)
    if isinstance(node, ast.Constant) and node.value not in (None, ...):
        return str(node.value)
    return ""


def negatives(name: str, pairs: bool) -> tuple[str, ...]:
    """Return the spellings that switch a flag off; from 0.33.0 enable and disable are pairs."""
    found = [f"--no-{name[2:]}"]
    if pairs and name.startswith("--enable-"):
        found.append(f"--disable-{name[9:]}")
    if pairs and name.startswith("--disable-"):
        found.append(f"--enable-{name[10:]}")
    return tuple(found)


def engine_flags(release: Release, pairs: bool) -> Iterator[tuple[str, Form]]:
    """Yield every flag that ``add_argument`` registers, with the form of its field."""
    tree = ast.parse((release.root / "vllm/engine/arg_utils.py").read_text(encoding="utf-8"))
    paths = [*release.root.rglob("cli_args.py")]
    trees = [tree, *(ast.parse(path.read_text(encoding="utf-8")) for path in sorted(paths))]
    owners: dict[str, str] = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "get_kwargs"
        ):
            owners[node.targets[0].id] = ast.unparse(node.value.args[0])
    for node in (item for one in trees for item in ast.walk(one)):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("add_argument"):
            continue
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        texts = [str(name) for name in names if str(name).startswith("-")]
        if texts:
            yield _registered(release, node, texts, owners, pairs)


def _registered(
    release: Release, node: ast.Call, names: list[str], owners: dict[str, str], pairs: bool
) -> tuple[str, Form]:
    form = Form()
    overridden = False
    words = {word.arg: word.value for word in node.keywords}
    spread = words.get(None)
    if isinstance(spread, ast.Dict) and None in spread.keys:
        overridden = ast.unparse(spread).endswith("'default': None}")
        spread = spread.values[spread.keys.index(None)]
    if isinstance(spread, ast.Subscript) and isinstance(spread.slice, ast.Constant):
        owner = owners.get(ast.unparse(spread.value), "")
        form = release.form(owner, str(spread.slice.value))
        if overridden:
            form = Form(type=form.type, allowed=form.allowed)
    action = ast.unparse(words["action"]) if "action" in words else ""
    if "store_true" in action:
        form = Form(type="flag")
    elif "BooleanOptional" in action or "EnableDisable" in action:
        form = Form(type="switch", default=_default(words.get("default")))
    elif "type" in words:
        kind = ast.unparse(words["type"]).rpartition(".")[2]
        form = Form(type={"int": "int", "float": "float"}.get(kind, form.type))
    if "choices" in words and isinstance(words["choices"], ast.List):
        allowed = tuple(sorted(str(ast.literal_eval(item)) for item in words["choices"].elts))
        form = Form(type="choice", default=_default(words.get("default")), allowed=allowed)
    long = [name for name in names if name.startswith("--")] or names
    off = negatives(long[0], pairs) if form.type == "switch" else ()
    aliases = tuple(name for name in names if name != long[0])
    return long[0], Form(aliases, off, form.type, form.default, form.allowed)


def frontend_flags(release: Release, pairs: bool) -> Iterator[tuple[str, Form]]:
    """Yield the server's own flags: every field of ``FrontendArgs``."""
    for name in release.fields("FrontendArgs"):
        form = release.form("FrontendArgs", name)
        flag = f"--{name.replace('_', '-')}"
        off = negatives(flag, pairs) if form.type == "switch" else ()
        yield flag, Form((), off, form.type, form.default, form.allowed)


def parser_names(release: Release, module: str) -> tuple[str, ...]:
    """Return the names in the module's ``_..._TO_REGISTER`` mapping."""
    tree = ast.parse((release.root / module).read_text(encoding="utf-8"))
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]).endswith("_TO_REGISTER")
            and isinstance(node.value, ast.Dict)
        ):
            return tuple(sorted(str(ast.literal_eval(key)) for key in node.value.keys if key))
    return ()


def spec_keys(release: Release) -> Iterator[tuple[str, Form]]:
    """Yield the keys of ``--speculative-config``; fields that the engine fills in are left out."""
    for name, (annotation, _default_value) in release.fields("SpeculativeConfig").items():
        text = ast.unparse(annotation)
        if "SkipValidation" in text or "InitVar" in text or "ClassVar" in text:
            continue
        if name in ("draft_parallel_config", "draft_model_config") or name.startswith("target_"):
            continue
        yield name, release.form("SpeculativeConfig", name)


def variables(release: Release) -> Iterator[tuple[str, Form]]:
    """Yield the names that ``environment_variables`` knows."""
    tree = ast.parse((release.root / "vllm/envs.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if (
            isinstance(node, ast.AnnAssign)
            and ast.unparse(node.target) == "environment_variables"
            and isinstance(node.value, ast.Dict)
        ):
            for key in node.value.keys:
                if isinstance(key, ast.Constant):
                    yield str(key.value), Form(type="text")


def read(sources: Path) -> dict[tuple[str, str], dict[Version, Form]]:
    """Return the form of everything by kind, name and release."""
    table: dict[tuple[str, str], dict[Version, Form]] = {}
    for folder in sources.iterdir():
        version = Version(folder.name)
        release = Release(folder)
        release.load()
        pairs = "EnableDisableAction" in release.classes
        for kind, found in (
            ("flag", engine_flags(release, pairs)),
            ("flag", frontend_flags(release, pairs)),
            ("spec_key", spec_keys(release)),
            ("env", variables(release)),
        ):
            for name, form in found:
                if kind == "flag" and name in PARSERS:
                    names = parser_names(release, PARSERS[name])
                    form = Form(form.aliases, (), "choice", "", names)
                table.setdefault((kind, name), {})[version] = form
    return table


def rows(table: dict[tuple[str, str], dict[Version, Form]]) -> Iterator[dict[str, str]]:
    """Yield one row for every run of releases that take a name in the same form."""
    releases = sorted({version for forms in table.values() for version in forms})
    for (kind, name), forms in sorted(table.items()):
        start = 0
        while start < len(releases):
            form = forms.get(releases[start])
            end = start
            while end + 1 < len(releases) and forms.get(releases[end + 1]) == form:
                end += 1
            if form is not None:
                yield {
                    "kind": kind,
                    "name": name,
                    "aliases": " ".join(form.aliases),
                    "negatives": " ".join(form.negatives),
                    "type": form.type,
                    "default": form.default,
                    "allowed": "|".join(form.allowed),
                    "since": str(releases[start]),
                    "absent_to": str(releases[start - 1]) if start else "",
                    "until": str(releases[end]),
                    "absent_from": str(releases[end + 1]) if end + 1 < len(releases) else "",
                    "source": "sources of the vLLM wheels",
                }
            start = end + 1


def main() -> None:
    """Write the table to standard output."""
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(read(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()

"""The recipes of CONTRIBUTING.md and docs/contributing.md, done word for word in a copy.

A block of text is written to the file named above it, every line of a ``bash`` block is run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("qwendeploy", "rules", "templates", "benchdata", "docs", "scripts", "tests")
BLOCK = re.compile(r"(?:^([^\n]*):\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITE = re.compile(r"Write `([^`]+)`")
APPEND = re.compile(r"Append to `([^`]+)`")
ABOVE = re.compile(r"In `([^`]+)` put this above `([^`]+)`")

SHOWN = {
    "A rule": "More seats than any measured series had",
    "A measurement": "Example Card 48GB",
    "An engine release": "0.34.0",
    "A finding of the audit": "A served name with a blank",
    "A new artefact kind": "nomad.json",
}
"""What every verb that a recipe ends with prints of the new."""
SHOWING = tuple(
    f"qwendeploy {verb} "
    for verb in ("explain", "data show", 'recommend --gpu "Ex', "predict", "generate", "audit")
)


@dataclass(frozen=True)
class Recipe:
    """One recipe: its blocks of text, each with the line above it, and its commands."""

    title: str
    texts: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]

    def apply(self, place: Path) -> None:
        """Write the texts to where the lines above them say."""
        for told, text in self.texts:
            if match := WRITE.fullmatch(told):
                assert not (place / match[1]).exists()
                (place / match[1]).write_text(text, encoding="utf-8")
            elif match := APPEND.fullmatch(told):
                with (place / match[1]).open("a", encoding="utf-8") as stream:
                    stream.write(text)
            else:
                match = ABOVE.fullmatch(told)
                assert match, f"{told!r} does not say where the text goes"
                before = (place / match[1]).read_text(encoding="utf-8")
                assert before.count(f"{match[2]}\n") == 1
                after = before.replace(f"{match[2]}\n", f"{text}{match[2]}\n")
                (place / match[1]).write_text(after, encoding="utf-8")


def recipe_of(page: str) -> Recipe:
    """Return the recipe of one section."""
    title = re.findall(r"^#+ (.*)$", page, re.MULTILINE)[0]
    blocks = BLOCK.findall(page)
    texts = tuple((told, text) for told, language, text in blocks if language != "bash")
    lines = (text.splitlines() for _, language, text in blocks if language == "bash")
    return Recipe(title, texts, tuple(line for part in lines for line in part))


def recipes() -> list[Recipe]:
    """Return every recipe that is written out."""
    sections = re.split(r"^(?=## )", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    pages = [*sections, (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")]
    found = [recipe_of(page) for page in pages if page.strip()]
    return [recipe for recipe in found if recipe.texts]


RECIPES = recipes()


def copied(place: Path) -> Path:
    """Return a copy of the checkout without its history and virtual environment."""
    for name in COPIED:
        shutil.copytree(ROOT / name, place / name)
    for name in ("README.md", "CONTRIBUTING.md", "pyproject.toml"):
        shutil.copy(ROOT / name, place)
    return place


def ran(line: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line of a recipe in the copy, with this Python and the copy's package."""
    words = shlex.split(line)
    programs = {
        "qwendeploy": [sys.executable, "-m", "qwendeploy"],
        "pytest": [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        "scripts/update": ["scripts/update"],
    }
    return subprocess.run(
        [*programs[words[0]], *words[1:]],
        cwd=place,
        env={**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def test_there_are_five_recipes() -> None:
    assert [recipe.title.split(",")[0] for recipe in RECIPES] == list(SHOWN)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title.split(",")[0])
def test_recipe_works_as_it_is_written(recipe: Recipe, tmp_path: Path) -> None:
    place = copied(tmp_path)
    recipe.apply(place)

    for line in recipe.commands:
        done = ran(line, place)
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        if line.startswith(SHOWING):
            assert SHOWN[recipe.title.split(",")[0]] in done.stdout, line
        if line.startswith("pytest"):
            assert re.search(r"^\.", done.stdout, re.MULTILINE), f"{line} ran no test"


def test_what_is_out_of_date_names_the_command_that_renews_it(tmp_path: Path) -> None:
    place = copied(tmp_path)
    for recipe in RECIPES:
        if recipe.title.startswith(("A rule", "A new artefact kind")):
            recipe.apply(place)

    told = ran(
        "pytest -rf -k 'up_to_date or nomad or without_a_case or records_say or every_kind'"
        " tests/rulebook/test_explain_answers_every_name.py"
        " tests/rendering/test_docs_list_every_artefact_kind.py"
        " tests/rendering/test_artefacts_equal_their_goldens.py",
        place,
    ).stdout

    failed = re.findall(r"^FAILED (\S+)", told, re.MULTILINE)
    assert len(failed) == 10, told[-3000:]
    assert len(re.findall(r"^E .*run scripts/update (rules|artefacts)", told, re.MULTILINE)) >= 10

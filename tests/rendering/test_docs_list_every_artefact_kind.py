"""The docs' page and the README's sentence say of every artefact kind what its record says."""

from __future__ import annotations

import runpy
from pathlib import Path

from qwendeploy.rendering import KINDS

ROOT = Path(__file__).parents[2]
DOCS = runpy.run_path(str(ROOT / "scripts" / "build_artefact_docs.py"))


def test_page_is_what_the_records_say() -> None:
    stale = "docs/artefacts.md is not current: run scripts/update artefacts"
    assert DOCS["PAGE"].read_text(encoding="utf-8") == DOCS["page"](), stale


def test_readme_names_every_kind() -> None:
    shown = (ROOT / "README.md").read_text(encoding="utf-8")

    stale = "README.md is not current: run scripts/update artefacts"
    assert shown == DOCS["readme"](), stale
    assert all(f"(`{kind}`)" in shown for kind in KINDS)

"""The docs' page and the README's sentence say of every artefact kind what its record says."""

from __future__ import annotations

import re
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


def test_texts_send_nobody_to_a_kind_that_is_not_there() -> None:
    places = [*(ROOT / "qwendeploy").rglob("*.py"), *(ROOT / "rules").rglob("*.yaml")]
    texts = [path.read_text(encoding="utf-8") for path in (*places, ROOT / "README.md")]

    named = {
        kind for text in texts for kind in re.findall(r"generate (?:\S+ )?-f ([a-z]\S*\w)", text)
    }

    assert len(named) > 3
    assert named <= set(KINDS)

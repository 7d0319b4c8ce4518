"""The docs' page and the README's sentence say of every artefact kind what its record says."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import build_artefact_docs  # noqa: E402

from qwendeploy.rendering import KINDS  # noqa: E402


def test_page_is_what_the_records_say() -> None:
    stale = "docs/artefacts.md is not current: run scripts/update goldens"
    assert build_artefact_docs.PAGE.read_text(encoding="utf-8") == build_artefact_docs.page(), stale


def test_readme_names_every_kind() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.split("<!-- artefacts: begin -->")[1].split("<!-- artefacts: end -->")[0]

    stale = "README.md is not current: run scripts/update readme"
    assert shown.strip() == build_artefact_docs.line().strip(), stale
    assert all(f"(`{kind}`)" in shown for kind in KINDS)

"""Every label of a plan, every figure and every kind has its line in ``docs/glossary.md``."""

import re
from pathlib import Path
from typing import Any

import pytest

from qwendeploy.documents import Predictions, Quality
from qwendeploy.figures import Kind

ROOT = Path(__file__).resolve().parents[2]
DEFINED = set(
    re.findall(
        r"^\| `?([\w -]+?)`?(?: `.*`)? \|", (ROOT / "docs" / "glossary.md").read_text(), re.M
    )
)


@pytest.mark.parametrize(
    "line",
    [
        "--gpu 4090 --gpus 3 --ctx 128k --c 4",
        "--gpu RTX-PRO-6000 --gpus 2 --ctx 256k --c 32",
    ],
)
def test_labels_of_a_plan_are_defined(run: Any, line: str) -> None:
    text = run("recommend", *line.split()).out
    body = text[text.index("Run  ") :].splitlines()
    labels = {row[:14].strip() for row in body if row[:2].strip() and row[:14].strip()}
    labels |= {row[2:14].strip() for row in body if re.match(r"  \w", row)}

    assert {"Run", "Expect", "Why", "Capacity", "Warnings", "decode", "KV cache"} <= labels
    assert labels <= DEFINED


def test_figures_kinds_and_classes_are_defined() -> None:
    figures = set(Predictions.model_fields) - {"reasons"}
    kinds = {kind.value for kind in Kind}
    classes = {quality.value for quality in Quality}

    assert figures | kinds | classes <= DEFINED

"""Every true fact of the issue lists is a rule, a signature or a topic; the rest says why not."""

from __future__ import annotations

import csv
from pathlib import Path

from qwendeploy.reporting.explanation import known_names

FACTS = Path(__file__).parents[1] / "data" / "rules" / "facts_of_the_field.csv"


def test_every_fact_is_covered_or_left_out_with_its_reason() -> None:
    with FACTS.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    names = set(known_names())
    for row in rows:
        covered = row["covered_by"].split()
        assert set(covered) <= names, row["fact"]
        assert bool(covered) != bool(row["left_out_because"]), row["fact"]
        assert row["source"]
    assert rows
    assert sum(1 for row in rows if row["covered_by"]) > 0.9 * len(rows)

#!/usr/bin/env python3
"""Fit the transfer coefficients to the decode tables and write benchdata/transfer_fit.yaml.

Deterministic: the same tables give the same file. ``--check`` writes nothing and exits 1 if the
stored file differs from what the tables give.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path

from qwendeploy.evaluation.latency import latency_accuracy, prefill_scale
from qwendeploy.evaluation.transfer import fitted_rows, tier_scales, transfer_accuracy
from qwendeploy.evidence.prefill_rows import all_prefills, warm_cells
from qwendeploy.evidence.transfer_rows import set_aside
from qwendeploy.models.latency import fit_warm
from qwendeploy.models.prefill import fit_prefill
from qwendeploy.models.transfer_fit import Fitter
from qwendeploy.tables.decode import decode_rows

TARGET = Path(__file__).resolve().parent.parent / "benchdata" / "transfer_fit.yaml"


def coefficients() -> dict[str, object]:
    """Return the file's mapping: parameters, covariance, band factors and where they come from."""
    items = fitted_rows()
    fit = Fitter([item.observation for item in items]).fit(scale=tier_scales())
    origins = Counter(item.row.origin for item in items)
    aside = Counter(reason for row in decode_rows() if row.usable and (reason := set_aside(row)))
    pairs = all_prefills()
    prefill = fit_prefill([p for p, _ in pairs], [t for _, t in pairs], scale=prefill_scale())
    warm = fit_warm(warm_cells(decode_rows()))
    return {
        **fit.to_mapping(),
        "prefill": prefill.to_mapping(),
        "warm": {
            name: value if isinstance(value, int) else float(f"{value:.5g}")
            for name, value in dataclasses.asdict(warm).items()
        },
        "provenance": {
            "method": "maximum a posteriori of the step model, scripts/fit_transfer.py",
            "rows": dict(sorted(origins.items())),
            "sources": sorted({item.row.source.split(" ")[0] for item in items}),
            "set_aside": dict(sorted(aside.items())),
            "held_out": {
                f"{line.way}, {line.rows}": {
                    "n": line.n,
                    "median": round(line.median, 3),
                    "p90": round(line.p90, 3),
                    "coverage": round(line.coverage, 3),
                    "half_width": round(line.half_width, 3),
                }
                for line in transfer_accuracy()
            },
            "held_out_latency": {
                f"{line.quantity}, {line.way}": {
                    "n": line.n,
                    "median": round(line.median, 3),
                    "p90": round(line.p90, 3),
                    "coverage": round(line.coverage, 3),
                    "half_width": round(line.half_width, 3),
                }
                for line in latency_accuracy()
            },
        },
    }


def main() -> int:
    """Write the file, or compare it under ``--check``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    text = json.dumps(coefficients(), indent=1, ensure_ascii=False) + "\n"
    if arguments.check:
        same = TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text
        print("up to date" if same else f"{TARGET.name} differs from the tables")
        return 0 if same else 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"wrote {TARGET.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

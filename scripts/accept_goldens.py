"""Writes the golden artefacts anew from the present templates; look at the difference with git.

scripts/update artefacts runs it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "rendering")]

from test_artefacts_equal_their_goldens import CASES, GOLDENS, rendered  # noqa: E402


def main() -> None:
    """Replace every golden directory by what is rendered now."""
    # all are rendered before the first one goes
    new = {case: rendered(*case) for case in CASES}
    shutil.rmtree(GOLDENS, ignore_errors=True)
    for (option, kind), files in new.items():
        place = GOLDENS / option / kind
        place.mkdir(parents=True)
        for name, (text, _) in files.items():
            (place / name).write_text(text, encoding="utf-8", newline="")
    print(f"{len(CASES)} artefact sets written to {GOLDENS}")


if __name__ == "__main__":
    main()

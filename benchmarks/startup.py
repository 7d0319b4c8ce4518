"""Start-up times as ratios to ``python -c "import pandas"`` in one run.

    python benchmarks/startup.py [--runs N]

Each command runs ``N`` times in turn with the reference, after one warm-up; the median of the
pairwise ratios is what counts, because machines differ and drift.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

REFERENCE = ["-c", "import pandas"]
SHOWCASE = ["--gpu", "RTX PRO 6000 Blackwell Workstation", "--gpus", "2", "--ctx", "256k"]
COMMANDS = {
    "qwendeploy --help": ["-m", "qwendeploy", "--help"],
    "qwendeploy recommend": ["-m", "qwendeploy", "recommend", *SHOWCASE, "--c", "32"],
    "qwendeploy recommend, 8 GPUs": [
        "-m",
        "qwendeploy",
        "recommend",
        "--gpu",
        "H100 SXM",
        "--gpus",
        "8",
        "--c",
        "64",
        "--ctx",
        "64k",
    ],
}


def seconds(arguments: list[str]) -> float:
    """Return the wall time of one Python process.

    Raises:
        subprocess.CalledProcessError: it failed; a time of a failure says nothing.
    """
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Print the medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    for arguments in (REFERENCE, *COMMANDS.values()):
        seconds(arguments)
    print(f"{'command':<32} {'median s':>9} {'pandas s':>9} {'ratio':>6}")
    for name, arguments in COMMANDS.items():
        pairs = [(seconds(arguments), seconds(REFERENCE)) for _ in range(runs)]
        own = statistics.median(mine for mine, _ in pairs)
        other = statistics.median(theirs for _, theirs in pairs)
        ratio = statistics.median(mine / theirs for mine, theirs in pairs)
        print(f"{name:<32} {own:>9.3f} {other:>9.3f} {ratio:>6.2f}")


if __name__ == "__main__":
    main()

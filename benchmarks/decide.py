"""How long deciding takes once everything is imported: all layouts, quants and drafts.

    python benchmarks/decide.py [--runs N] [--limit SECONDS]

Each case runs in its own process, set up as the command's own and with tables and rules loaded
before the clock starts; the first decision counts (series are fitted in it), in processor seconds,
because machines are shared. The median of ``N`` processes is printed. Exit code 1 if a case of
eight GPUs exceeds the limit.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

CASES = {
    "2 x RTX PRO 6000": ("RTX PRO 6000 Blackwell Workstation", 2, 32, 262144),
    "8 x RTX PRO 6000": ("RTX PRO 6000 Blackwell Workstation", 8, 64, 65536),
    "8 x H100 SXM": ("H100 SXM", 8, 64, 65536),
    "8 x H200, 256k": ("H200", 8, 128, 262144),
    "8 x RTX 3090": ("RTX 3090", 8, 16, 65536),
    "8 x RTX 5060 Ti": ("RTX 5060 Ti 16GB", 8, 8, 32768),
}
LIMIT_S = 0.3
"""Computing after start-up that eight GPUs may take."""
PROGRAM = """
import sys, time
from qwendeploy.cli import tune_process
tune_process()
from datetime import UTC, datetime
from qwendeploy.documents import Workload
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.planning import recommend as planning
from qwendeploy.evidence.knowledge import load_knowledge
from qwendeploy.planning.latencies import prefill_ms
from qwendeploy.documents.request import Request
from qwendeploy.rulebook.book import load_rules
from qwendeploy.evidence.transfer_rows import transfer_fit
from qwendeploy.tables.gpus import gpus

gpu, count, concurrency, context = sys.argv[1], *map(int, sys.argv[2:])
machine = stated_machine(gpu, count, catalogue=gpus())
workload = Workload(concurrency=concurrency, max_context=context, contexts="shared")
load_knowledge(), load_rules(), transfer_fit()
start = time.process_time()
plan = planning.recommend(machine, workload, Request(), now=datetime.now(UTC))
print(time.process_time() - start, len(plan.trace))
"""


def decide(case: tuple[str, int, int, int]) -> tuple[float, int]:
    """Return processor seconds of one decision and the options in its trace.

    Raises:
        subprocess.CalledProcessError: there was no plan.
    """
    arguments = [sys.executable, "-c", PROGRAM, *map(str, case)]
    shown = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    seconds, options = shown.split()
    return float(seconds), int(options)


def main() -> int:
    """Print the medians; return whether a case of eight GPUs exceeds the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=LIMIT_S)
    settings = parser.parse_args()
    slow = False
    print(f"{'machine':<20} {'seconds':>8} {'trace':>6}")
    for name, case in CASES.items():
        runs = [decide(case) for _ in range(settings.runs)]
        seconds = statistics.median(time for time, _ in runs)
        slow |= case[1] == 8 and seconds > settings.limit
        print(f"{name:<20} {seconds:>8.3f} {runs[0][1]:>6}")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())

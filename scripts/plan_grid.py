"""Plans a grid of scenarios and shows, in plain words, where the advice differs from the reference.

Run as ``scripts/plan-diff``. A scenario is the settings of one ``qwendeploy recommend``; the
reference ``tests/data/plan_grid.csv`` holds one row per scenario: the chosen option, a digest of
its flags and variables, the runner-up and the main figures with their bands. Figures are compared
within one part in a thousand, so that another processor's rounding is no change of advice.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import median

REFERENCE = Path(__file__).parent.parent / "tests" / "data" / "plan_grid.csv"
SAME = 1e-3
"""Relative difference of a figure below which nothing moved."""

MACHINES = (
    *("RTX PRO 6000|1", "RTX PRO 6000|2", "RTX PRO 6000|4", "RTX PRO 6000|8"),
    *("RTX PRO 6000 Blackwell Max-Q|2", "RTX PRO 5000 Blackwell 48GB|2"),
    *("RTX PRO 4500 Blackwell|1", "RTX PRO 4000 Blackwell|2"),
    *("RTX 5090|1", "RTX 5090|2", "RTX 5090|4", "RTX 5080|2", "RTX 5060 Ti 16GB|2"),
    *("RTX 4090|1", "RTX 4090|2", "RTX 4090|4", "RTX 4080|2", "RTX 6000 Ada|1"),
    *("RTX 3090|1", "RTX 3090|2", "RTX 3090|4", "RTX 3090|3", "RTX A6000|2", "RTX A5000|2"),
    *("RTX 2080 Ti|2", "RTX 3060 12GB|2", "RTX 3080 12GB|2", "RTX 5090 Laptop|1"),
    *("L4|4", "L40S|1", "L40S|2", "A10|2", "A100 80GB|1", "A100 40GB|2", "T4|2", "V100 32GB|2"),
    *("H100|1", "H100|2", "H100|8", "H200|1", "H200|2", "H20|1", "B200|1", "GH200|1"),
    *("GB10|1", "Jetson Thor|1", "Instinct MI300X|1", "Radeon AI PRO R9700|2"),
)
LOADS = (
    "",
    "--ctx 8k --c 1",
    "--ctx 16k --c 64",
    "--ctx 32k --c 4",
    "--ctx 32k --c 32",
    "--ctx 64k --c 1",
    "--ctx 64k --c 8",
    "--ctx 128k --c 1",
    "--ctx 128k --c 4",
    "--ctx 128k --c 16 --content code",
    "--ctx 256k --c 1",
    "--ctx 256k --c 2 --typical-ctx 200k",
    "--ctx 256k --c 32",
    "--ctx 128k --c 8 --prefix-hit 0.9",
    "--ctx 32k --c 8 --isl 8k --osl 1k",
    "--ctx 64k --c 2 --quality relaxed",
    "--ctx 64k --c 2 --quality any",
    "--ctx 128k --c 8 --quality relaxed --content prose",
    "--ctx 32k --c 1 --quality reference",
    "--ctx 128k --c 8 --objective capacity",
    "--ctx 32k --c 16 --objective latency --tpot 30",
    "--ctx 64k --c 8 --vision",
)
PINS = (
    "--upstream-only",
    "--spec none",
    "--spec mtp --spec-tokens 3",
    "--spec mtp --spec-tokens 5",
    "--spec dflash --spec-tokens 8",
    "--kv-cache-dtype fp8",
    "--tp 1",
    "--tp 2",
    "--engine llama.cpp",
    "--engine vllm",
    "--image vllm/vllm-openai:v0.22.0",
    "--image vllm/vllm-openai:v0.27.1",
    "--prefix-cache on",
    "--quant fp8",
    "--quant int4-autoround",
    "--checkpoint Qwen/Qwen3.6-27B",
    "--util 0.8",
    "--max-num-seqs 4",
    "--max-num-batched-tokens 8k",
)
PINNED_MACHINES = (
    *("RTX PRO 6000|1", "RTX PRO 6000|2", "RTX 5090|1", "RTX 5090|2", "RTX 3090|2", "RTX 4090|2"),
    *("H100|1", "H200|1", "A100 80GB|1", "GB10|1", "L40S|2", "B200|1"),
)
PINNED_LOADS = ("--ctx 32k --c 1", "--ctx 128k --c 8", "--ctx 256k --c 32")
FURTHER = (
    "--gpu 'RTX 3090' --gpus 2 --nvlink --ctx 64k --c 4",
    "--gpu 'RTX 3090' --gpus 2 --no-nvlink --ctx 64k --c 4",
    "--gpu 'RTX PRO 6000' --gpus 2 --driver 570.86 --ctx 64k --c 4",
    "--gpu 'RTX PRO 6000' --gpus 2 --driver 595.45 --ctx 64k --c 4",
    "--gpu 'H100' --gpus 4 --driver 550.54 --ctx 64k --c 16",
    "--gpu 'RTX PRO 6000' --gpus 4 --devices 0,2 --ctx 64k --c 4",
    "--gpus 2 --ctx 256k --c 32",
)
FIGURES = (
    "aggregate_decode_tps",
    "output_tps_end_to_end",
    "ttft_cold_ms",
    "kv_pool_blocks",
    "max_full_length_requests",
    "max_typical_context_tokens",
)
COLUMNS = ("scenario", "option", "settings", "runner_up", *FIGURES)


def scenarios() -> tuple[str, ...]:
    """Return the settings of every scenario; no two are alike."""
    every = [f"{_machine(name)} {load}".strip() for name, load in product(MACHINES, LOADS)]
    every += [
        f"{_machine(name)} {load} {pin}"
        for name, load, pin in product(PINNED_MACHINES, PINNED_LOADS, PINS)
    ]
    every += FURTHER
    assert len(set(every)) == len(every)
    return tuple(every)


def _machine(text: str) -> str:
    name, count = text.split("|")
    return f"--gpu {shlex.quote(name)} --gpus {count}"


def planned(scenario: str) -> tuple[dict[str, str], str]:
    """Return the row of a scenario, and a digest of all that the plan says."""
    import click

    from qwendeploy import api
    from qwendeploy.cli import recommend as verb
    from qwendeploy.cli._common import machine_of, request_of, workload_of
    from qwendeploy.errors import QwendeployError

    parser = click.Command("recommend", params=verb.command.params)
    settings = parser.make_context("recommend", shlex.split(scenario)).params
    for other in ("output", "force", "as_json"):
        settings.pop(other)
    try:
        plan = api.recommend(machine_of(settings), workload_of(settings), request_of(settings))
    except QwendeployError as refusal:
        row = {"scenario": scenario, "option": type(refusal).__name__}
        return row, _digest(str(refusal))
    emitted = [f"{setting.name}={setting.value}" for setting in (*plan.flags, *plan.env)]
    row = {
        "scenario": scenario,
        "option": _label(plan.option),
        "settings": _digest("\n".join(emitted)),
        "runner_up": _label(plan.alternatives[0].option) if plan.alternatives else "",
    }
    for name in FIGURES:
        figure = getattr(plan.predictions, name)
        if figure is not None:
            row[name] = f"{figure.value:.5g} {figure.low:.5g} {figure.high:.5g} {figure.kind.value}"
    text = plan.model_dump_json(by_alias=True, exclude={"created", "tool", "seal"})
    return row, _digest(text)


def _label(option: object) -> str:
    from qwendeploy.documents import Option

    assert isinstance(option, Option)
    draft = f"{option.spec_method}{option.spec_tokens or ''}"
    layout = f"{option.replicas}xtp{option.tp}"
    cache = "cached" if option.prefix_cache else "uncached"
    seats = f"{option.max_num_seqs} seqs at {option.gpu_memory_utilization or 0:g}"
    parts = (option.image or option.engine, option.checkpoint, draft, layout)
    return " ".join((*parts, option.kv_cache_dtype, cache, seats))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def grid(jobs: int) -> tuple[list[dict[str, str]], str]:
    """Return the rows of all scenarios, and one digest over all that the plans say.

    One's own measurements stay out: the grid is about the shipped tables alone.
    """
    every = scenarios()
    with tempfile.TemporaryDirectory() as empty:
        os.environ["QWENDEPLOY_DATA"] = empty
        with ProcessPoolExecutor(jobs) as pool:
            done = list(pool.map(planned, every, chunksize=len(LOADS)))
    texts = [f"{row['scenario']} {text}" for row, text in done]
    return [row for row, _ in done], _digest("\n".join(texts))


def written(rows: Sequence[dict[str, str]]) -> str:
    """Return the reference file's text."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def differences(
    before: Sequence[dict[str, str]], after: Sequence[dict[str, str]], most: int = 40
) -> list[str]:
    """Return what moved, as lines: counts first, then the scenarios; empty where nothing did."""
    old = {row["scenario"]: row for row in before}
    new = {row["scenario"]: row for row in after}
    lines: list[str] = []
    for word, names in (("new", new.keys() - old.keys()), ("gone", old.keys() - new.keys())):
        if names:
            lines.append(f"{len(names)} scenarios are {word}: {', '.join(sorted(names)[:5])}")
    both = [name for name in new if name in old]
    for column in ("option", "settings", "runner_up"):
        moved = [name for name in both if old[name].get(column, "") != new[name].get(column, "")]
        if moved:
            lines.append(f"{len(moved)} of {len(both)} scenarios have another {column}:")
            lines += list(_listed(moved, old, new, column, most))
    for column in FIGURES:
        shifts = {name: _shift(old[name].get(column), new[name].get(column)) for name in both}
        moved = [name for name in both if shifts[name] is not None]
        if moved:
            sizes = [shift for name in moved if isinstance(shift := shifts[name], float)]
            middle = f", median {median(sizes):+.1%}" if sizes else ""
            lines.append(f"{len(moved)} of {len(both)} scenarios have another {column}{middle}:")
            lines += list(_listed(moved, old, new, column, most // 4))
    return lines


def _listed(
    names: Sequence[str],
    old: dict[str, dict[str, str]],
    new: dict[str, dict[str, str]],
    column: str,
    most: int,
) -> Iterator[str]:
    for name in names[:most]:
        yield f"  recommend {name}"
        yield f"    - {old[name].get(column) or 'nothing'}"
        yield f"    + {new[name].get(column) or 'nothing'}"
        if column == "option":
            rate = FIGURES[0]
            yield f"      {rate} {old[name].get(rate) or '-'} -> {new[name].get(rate) or '-'}"
    if len(names) > most:
        yield f"  and {len(names) - most} more (--most N shows more)"


def _shift(old: str | None, new: str | None) -> float | str | None:
    """Return the relative move of a figure, a word where there is no number, None if it stayed."""
    if not old or not new:
        return None if (old or "") == (new or "") else "appeared or vanished"
    (*then, kind), (*now, other) = old.split(), new.split()
    pairs = [(float(a), float(b)) for a, b in zip(then, now, strict=True)]
    if kind == other and all(abs(b - a) <= SAME * max(abs(a), abs(b)) for a, b in pairs):
        return None
    first, second = pairs[0]
    return second / first - 1 if first else "from zero"


def main() -> int:
    """Compare the present advice with the reference, or accept it."""
    parser = argparse.ArgumentParser(prog="scripts/plan-diff", description=__doc__)
    parser.add_argument("--accept", action="store_true", help="write the reference anew")
    parser.add_argument("--digest", action="store_true", help="print a digest of all plans' texts")
    parser.add_argument("--most", type=int, default=40, help="scenarios shown per column")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    settings = parser.parse_args()
    rows, texts = grid(settings.jobs)
    if settings.digest:
        print(f"texts {texts}")
    if settings.accept:
        REFERENCE.write_text(written(rows), encoding="utf-8")
        print(f"{len(rows)} scenarios written to {REFERENCE.name}")
        return 0
    before = list(csv.DictReader(io.StringIO(REFERENCE.read_text(encoding="utf-8"))))
    moved = differences(before, rows, settings.most)
    if not moved:
        print(f"{len(rows)} scenarios: the advice is that of the reference")
        return 0
    print("\n".join(moved))
    print("Where this is on purpose: scripts/update --accept-plans, and say why in the commit.")
    return 1


if __name__ == "__main__":
    sys.exit(main())

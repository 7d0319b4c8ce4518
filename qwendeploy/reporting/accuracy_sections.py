"""What goes into the tables of ``data accuracy``: one function a table, with its goals.

Each imports what it judges when it is asked for, so that one table costs only itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from qwendeploy.reporting.accuracy import AccuracyReport, AccuracyTable, Cell, Column, Goal


def _columns(*specs: str) -> tuple[Column, ...]:
    """Return columns from ``key:heading`` texts; a trailing ``%`` marks fractions."""
    found = []
    for spec in specs:
        key, _, heading = spec.partition(":")
        found.append(Column(key, heading.removesuffix("%").strip(), heading.endswith("%")))
    return tuple(found)


ERRORS = _columns(
    "name:held out",
    "n:n",
    "median:median%",
    "p90:p90%",
    "max:max%",
    "coverage:cover%",
    "half_width:half width%",
    "winkler:Winkler%",
    "floor_median:floor median%",
    "floor_p90:floor p90%",
)
SIDES = _columns(
    "inner_n:inner n",
    "inner_median:inner median%",
    "inner_p90:inner p90%",
    "edge_n:edge n",
    "edge_median:edge median%",
    "edge_p90:edge p90%",
)


def _rows(items: Iterable[Any], columns: Sequence[Column]) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(getattr(item, column.key) for column in columns) for item in items)


def _speed_sessions() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.speed import speed_accuracy

    table = AccuracyTable(
        "speed_sessions",
        "Decode rate, leave one session out",
        "each cell is predicted from another session of the same option, with a band for drift: "
        "the error to expect on a machine like the study's",
        ERRORS,
        _rows(speed_accuracy().sessions, ERRORS),
    )
    return table, []


def _speed_cells() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.speed import speed_accuracy

    accuracy = speed_accuracy()
    columns = (*ERRORS, *SIDES)
    pooled = accuracy.pooled
    table = AccuracyTable(
        "speed_cells",
        "Decode rate, leave one cell out (series with at least 20 cells)",
        "kernel and band are chosen without the cell's error, k comes from the other series; inner "
        "cells stay interpolated when left out; floor: the error of a perfect model at this noise",
        columns,
        _rows((pooled, *accuracy.series, accuracy.series_unseen), columns),
    )
    goals = [
        Goal("speed: pooled median", 0.02, pooled.median),
        Goal("speed: pooled p90", 0.06, pooled.p90),
        Goal("speed: worst series, median", 0.035, max(s.median for s in accuracy.series)),
        Goal("speed: worst series, p90", 0.09, max(s.p90 for s in accuracy.series)),
        Goal("speed: pooled coverage at least", 0.85, pooled.coverage, at_least=True),
        Goal("speed: pooled coverage at most", 0.95, pooled.coverage),
        Goal("speed: median half-width", 0.07, pooled.half_width),
    ]
    return table, goals


def _speed_small() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.speed import speed_accuracy

    accuracy = speed_accuracy()
    columns = (*ERRORS, *SIDES)
    table = AccuracyTable(
        "speed_small",
        "Decode rate, leave one cell out (series with 6 to 19 cells)",
        f"the band comes from the other errors of the series and a prior; {accuracy.not_judged} "
        "smaller series are not evaluated",
        columns,
        _rows((accuracy.small_pooled, *accuracy.small), columns),
    )
    return table, []


def _memory_summary() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.judged import frame_of
    from qwendeploy.evaluation.memory import memory_accuracy

    columns = _columns(
        "use:pools", "n:n", "median:median%", "max:max%", "covered:cover%", "half_width:half width%"
    )
    pools = frame_of(memory_accuracy(), "use", "error", "covered", "half_width")
    pools["error"] = pools["error"].abs()
    summary = pools.groupby("use", sort=False).agg(
        n=("error", "size"),
        median=("error", "median"),
        max=("error", "max"),
        covered=("covered", "mean"),
        half_width=("half_width", "median"),
    )
    table = AccuracyTable(
        "memory",
        "KV tokens before start",
        "the rest term is fitted on the rows 'fit' and tested on 'held-out'; 'outside' is another "
        "model or engine",
        columns,
        tuple(summary.reset_index().itertuples(index=False, name=None)),
    )
    worst = pools["error"][pools["use"] == "held-out"].max()
    return table, [Goal("memory: worst held-out pool", 0.05, float(worst))]


def _memory_pools() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.memory import memory_accuracy

    columns = _columns(
        "id:pool",
        "use:used for",
        "gpu:gpu",
        "tp:tp",
        "blocks:blocks",
        "predicted:predicted",
        "error:error%",
        "covered:in band",
    )
    table = AccuracyTable(
        "memory_pools",
        "KV pool before start, all starts",
        "blocks are read from the engine's log; held-out starts come first",
        columns,
        _rows(memory_accuracy(), columns),
    )
    return table, []


def _transfer() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.transfer import transfer_accuracy

    columns = _columns(
        "way:left out",
        "rows:rows",
        "n:n",
        "groups:groups",
        "median:median%",
        "median_of_groups:median of groups%",
        "p90:p90%",
        "worst:max%",
        "coverage:cover%",
        "half_width:half width%",
        "winkler:Winkler%",
    )
    lines = transfer_accuracy()
    elsewhere = "transfer: other machines, held-out"
    table = AccuracyTable(
        "transfer",
        "Decode rate between machines and options, leave one group out",
        "one joint fit without the rows of a GPU kind, of a layout, draft or quant on it, of one "
        "rig, or of one community row in four; inputs are what a user can state; bands are "
        "calibrated on the other groups",
        columns,
        _rows(lines, columns),
    )
    whole = {line.way: line for line in lines if line.rows == "complete"}
    others = {line.way: line for line in lines if line.rows == "complete, not the study's card"}
    goals = [
        Goal("transfer: held-out machine, median", 0.20, whole["machine"].median),
        Goal("transfer: held-out machine, coverage", 0.88, whole["machine"].coverage, True),
        Goal("transfer: held-out layout, median", 0.12, whole["layout"].median),
        Goal("transfer: held-out layout, half-width", 0.20, whole["layout"].half_width),
        Goal("transfer: held-out layout, coverage at least", 0.85, whole["layout"].coverage, True),
        Goal("transfer: held-out layout, coverage at most", 0.95, whole["layout"].coverage),
        Goal("transfer: one community row in four, median", 0.12, whole["row"].median),
        Goal("transfer: one community row in four, half-width", 0.35, whole["row"].half_width),
        Goal("transfer: one community row in four, coverage", 0.85, whole["row"].coverage, True),
        Goal("transfer: held-out rig, median", 0.12, whole["rig"].median),
        Goal("transfer: held-out rig, half-width", 0.35, whole["rig"].half_width),
        Goal(f"{elsewhere} quant, coverage", 0.85, others["quant"].coverage, True),
        Goal(f"{elsewhere} draft, coverage", 0.85, others["draft"].coverage, True),
    ]
    return table, goals


def _latency() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.latency import latency_accuracy

    columns = _columns(
        "quantity:quantity",
        "way:left out",
        "n:n",
        "groups:groups",
        "median:median%",
        "p90:p90%",
        "coverage:cover%",
        "half_width:half width%",
    )
    table = AccuracyTable(
        "latency",
        "Cold prefill and closed loops, leave one group out",
        "prefill time of a cold prompt, and output rate of whole requests",
        columns,
        _rows(latency_accuracy(), columns),
    )
    return table, []


def _regret() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.regret import regret

    columns = _columns(
        "name:options",
        "n:points",
        "mean:mean%",
        "worst:worst%",
        "right:no regret%",
        "constant_n:with constant",
        "mean_there:mean there%",
        "constant_mean:constant mean%",
        "constant_worst:constant worst%",
    )
    within, across = regret()
    table = AccuracyTable(
        "regret",
        "Regret: loss of the advised option against the best measured option",
        "each option is predicted with its own cell held out; separate contexts must fit; a loss "
        "within the noise of the two cells counts as 0; the constant is FP8+MTP3 at TP=2",
        columns,
        _rows((within, across), columns),
    )
    goals = [
        Goal("regret: within a session, mean", 0.01, within.mean),
        Goal("regret: within a session, worst", 0.05, within.worst),
        Goal("regret: no worse than the constant", within.constant_mean, within.mean_there),
        Goal("regret: across images, mean", 0.03, across.mean),
        Goal("regret: across images, worst", 0.08, across.worst),
    ]
    return table, goals


def _flips() -> tuple[AccuracyTable, list[Goal]]:
    from qwendeploy.evaluation.decision_flips import judge_all
    from qwendeploy.evidence.knowledge import load_knowledge
    from qwendeploy.planning.recommend import recommend

    # One's own runs stay out: the published share is of the shipped tables.
    results = judge_all(partial(recommend, knowledge=load_knowledge()))
    columns = _columns("id:situation", "constant:constant", "right:right", "answer:advice",
                       "missed:missed")  # fmt: skip
    counted = [result for result in results if result.constant != "right"]
    share = sum(result.right for result in counted) / len(counted)
    table = AccuracyTable(
        "flips",
        "Scenarios where the constant answer is wrong or impossible",
        f"{sum(result.right for result in counted)} of {len(counted)} right; the rows 'right' are "
        "controls and not counted (evidence: benchdata/decision_flips.yaml)",
        columns,
        _rows(results, columns),
    )
    return table, [Goal("decision flips: right", 0.90, share, at_least=True)]


SECTIONS: Mapping[str, Callable[[], tuple[AccuracyTable, list[Goal]]]] = {
    "speed_sessions": _speed_sessions,
    "speed_cells": _speed_cells,
    "speed_small": _speed_small,
    "memory": _memory_summary,
    "memory_pools": _memory_pools,
    "transfer": _transfer,
    "latency": _latency,
    "regret": _regret,
    "flips": _flips,
}
"""Tables in the order they are printed: what a stranger's box sees comes first."""


def accuracy_report(names: Sequence[str] = ()) -> AccuracyReport:
    """Return the tables of these names, all of them by default, with their goals."""
    tables: list[AccuracyTable] = []
    goals: list[Goal] = []
    for name, build in SECTIONS.items():
        if not names or name in names:
            table, asked = build()
            tables.append(table)
            goals += asked
    return AccuracyReport(tuple(tables), tuple(goals))

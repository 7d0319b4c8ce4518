"""The quality table: class, divergence and noise floor of every checkpoint, and what ties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from qwendeploy.models.quality import Divergence, Score, scores_tie, tied
from qwendeploy.reporting.explain_parts import Fact
from qwendeploy.tables.quality import (
    ClassRow,
    KlRow,
    ScoreRow,
    class_rows,
    find_kl,
    kl_rows,
    score_rows,
)

RESTART = "restart"
"""Marks the row of one model against itself after a restart."""
PERCENT = "%"


def quality_facts() -> list[Fact]:
    """Return the class table, what nobody classified, the noise of a restart, and the ties."""
    facts = [Fact(label=_label(row), value=_class_text(row)) for row in class_rows()]
    classified = {row.kl_row for row in class_rows()}
    for row in kl_rows():
        if RESTART in row.variant:
            facts.append(Fact(label="one FP8 model restarted", value=_divergence(row)))
        elif row.row_id not in classified and row.floor_bits is None:
            label = f"{row.checkpoint} {row.quant}"
            facts.append(Fact(label=label, value=f"any; {_divergence(row)}"))
    facts += _divergence_ties()
    facts += _score_ties(score_rows())
    return facts


def _label(row: ClassRow) -> str:
    kv = f", {row.kv_cache_dtype} KV" if row.kv_cache_dtype else ""
    return f"{row.checkpoint} {row.quant}{kv}"


def _class_text(row: ClassRow) -> str:
    divergence = find_kl(row)
    measured = _divergence(divergence) if divergence is not None else "divergence not measured"
    return f"{row.quality_class}; {measured}"


def _divergence(row: KlRow) -> str:
    """Return ``KL 0.230, JS 0.0140 bits, 8.6 × BF16's own noise (protocol, positions)``."""
    text = f"KL {row.kl_ref_bits:.3g}"
    if row.js_bits is not None:
        text += f", JS {row.js_bits:.3g}"
    text += " bits"
    multiple = row.noise_multiple
    if multiple is not None:
        text += f", {multiple:.1f} × the BF16 noise of {row.floor_bits:.3g}"
    else:
        text += ", noise not measured"
    positions = f", {row.n_positions} positions" if row.n_positions else ""
    return f"{text} ({row.protocol}{positions})"


def _divergence_ties() -> list[Fact]:
    """Return which checkpoints of one protocol differ by more than a restart moves one."""
    facts = []
    for protocol in dict.fromkeys(row.protocol for row in kl_rows()):
        rows = [row for row in kl_rows() if row.protocol == protocol]
        restart = next((row.kl_ref_bits for row in rows if RESTART in row.variant), None)
        if restart is None:
            continue
        plain = [row for row in rows if RESTART not in row.variant]
        apart = [
            f"{one.variant} from {other.variant}"
            for one, other in combinations(plain, 2)
            if not tied(_of(one, restart), _of(other, restart))
        ]
        pairs = ", ".join(apart) if apart else "none"
        facts.append(
            Fact(
                label="divergence ties",
                value=f"all pairs of {protocol} within restart noise tie; distinguishable: {pairs}",
            )
        )
    return facts


def _of(row: KlRow, restart: float) -> Divergence:
    return Divergence(row.kl_ref_bits, row.floor_bits, restart)


# --- task scores ---


def _score_ties(rows: Iterable[ScoreRow]) -> Iterator[Fact]:
    """Yield per benchmark the scores of its options, their spread, and distinguishable pairs."""
    benchmarks: dict[tuple[str, str], dict[str, list[ScoreRow]]] = {}
    for row in rows:
        if row.status != "excluded" and row.unit == PERCENT and row.n and row.checkpoint:
            runs = benchmarks.setdefault((row.benchmark, row.metric), {})
            runs.setdefault(_option(row), []).append(row)
    for (benchmark, metric), options in benchmarks.items():
        if len(options) < 2:
            continue
        spread = max(
            max(run.value for run in runs) - min(run.value for run in runs)
            for runs in options.values()
        )
        means = {name: _mean(runs) for name, runs in options.items()}
        apart = [
            f"{one} from {other}"
            for one, other in combinations(sorted(means), 2)
            if not scores_tie(means[one], means[other], spread / 100)
        ]
        shown = ", ".join(f"{name} {_range(runs)}" for name, runs in sorted(options.items()))
        result = f"distinguishable: {', '.join(apart)}" if apart else "all tie"
        yield Fact(
            label=f"{benchmark} {metric}",
            value=f"{shown}; identical runs differ by up to {spread:.1f} points: {result}",
        )


def _option(row: ScoreRow) -> str:
    draft = row.spec_method or "draft not stated"
    return f"{row.quant}+{draft}{row.spec_tokens or ''}"


def _mean(runs: list[ScoreRow]) -> Score:
    share = sum(run.value for run in runs) / len(runs) / 100
    return Score(share, sum(run.n or 0 for run in runs))


def _range(runs: list[ScoreRow]) -> str:
    values = sorted(run.value for run in runs)
    if len(values) == 1:
        return f"{values[0]:.1f} %"
    return f"{values[0]:.1f}–{values[-1]:.1f} % ({len(values)} runs)"

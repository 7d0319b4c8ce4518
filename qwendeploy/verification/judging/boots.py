"""Several boots of one server, pooled: the interval over boots replaces the boot-to-boot allowance.

One boot says no more than ±5 % about the next (DESIGN §7). From three boots on the spread between
them is measured instead, and the pooled run's figures are t intervals over the boots' means.
"""

from __future__ import annotations

from collections.abc import Sequence

from qwendeploy.documents import Fill, Gate, RunDocument
from qwendeploy.errors import UserError
from qwendeploy.verification.judging.comparing import identity
from qwendeploy.verification.judging.quantities import pooled


def pool_runs(runs: Sequence[RunDocument]) -> RunDocument:
    """Return one document that pools runs of different boots.

    Raises:
        UserError: no run, runs of unlike things, or two of one boot.
    """
    if not runs:
        raise UserError("no runs to pool")
    first = runs[0]
    for run in runs[1:]:
        for key, value in identity(first).items():
            if identity(run)[key] != value:
                raise UserError(
                    f"cannot pool different runs: {key} {value!r} and {identity(run)[key]!r}",
                    where=run.run_id,
                )
    boots = [run.server.boot_id if run.server else None for run in runs]
    known = [boot for boot in boots if boot is not None]
    if len(set(known)) < len(known):
        raise UserError("two runs are from the same boot, so they are not independent")
    names = dict.fromkeys(name for run in runs for name in run.figures)
    figures = {name: pooled([run.figures.get(name) for run in runs], name) for name in names}
    steps = tuple(step for run in runs for step in run.steps)
    return runs[-1].model_copy(
        update={
            "figures": figures,
            "steps": steps,
            "fill": _worst_fill(runs),
            "gates": _worst_gates(runs),
            "warnings": tuple(text for run in runs for text in run.warnings),
            "status": next((r.status for r in runs if r.status != "complete"), "complete"),
        }
    )


def _worst_fill(runs: Sequence[RunDocument]) -> Fill:
    tested = [run.fill for run in runs if run.fill.tested]
    order = ("refuted", "inconclusive", "confirmed")
    return min(tested, key=lambda fill: order.index(fill.outcome)) if tested else runs[-1].fill


def _worst_gates(runs: Sequence[RunDocument]) -> tuple[Gate, ...]:
    order = ("failed", "not_run", "passed")
    worst: dict[str, Gate] = {}
    for run in runs:
        for gate in run.gates:
            known = worst.get(gate.id)
            if known is None or order.index(gate.outcome) < order.index(known.outcome):
                worst[gate.id] = gate
    return tuple(worst.values())

"""Our own ``run.json``: the decode steps of a complete run, each a steady rate.

Windows of one run share a start of the server, so a step counts as one repetition; ``std_tps`` is
the spread between its windows.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from qwendeploy.errors import DataError
from qwendeploy.figures import Figure
from qwendeploy.tables.importers.points import Point

if TYPE_CHECKING:
    from qwendeploy.documents.run import RunDocument

NAME = "qwendeploy-run"
TITLE = "run.json of qwendeploy verify"


def matches(documents: Sequence[Any]) -> bool:
    """Return whether this is a run or a verification report of this program."""
    first = documents[0]
    return isinstance(first, dict) and first.get("schema") in (
        "qwendeploy/run",
        "qwendeploy/verify",
    )


def read(documents: Sequence[Any], file: str) -> Iterator[Point]:
    """Return one point per complete decode step.

    Raises:
        DataError: the document is not valid, not complete, or its client was the limit.
    """
    run = _run_of(documents[0], file)
    for step in run.steps:
        rate = step.figures.get("aggregate_decode_tps")
        if step.shape != "decode" or step.status != "complete" or rate is None:
            continue
        if step.requests.failed:
            raise DataError(
                f"{step.requests.failed} requests failed: the rate is not a cell",
                file=file,
                key=f"steps.{step.name}",
            )
        rates = [window.aggregate_tps for window in step.windows if window.clean]
        yield Point(
            name=step.name,
            concurrency=step.concurrency,
            context=step.context,
            output_tokens=None,
            aggregate_tps=rate.value,
            rate_basis="steady",
            completed=step.requests.succeeded + step.requests.cancelled,
            std_tps=statistics.stdev(rates) if len(rates) > 1 else None,
            per_user_tps=_value(step.figures.get("per_user_decode_tps")),
            ttft_ms=_value(run.figures.get("ttft_warm_ms")),
            tpot_ms=_value(step.figures.get("tpot_ms")),
            acceptance_length=_value(step.figures.get("acceptance_length")),
            kv_usage=_value(step.figures.get("kv_usage")),
            contexts_shared=step.contexts == "shared",
            model=run.server.model if run.server else None,
            engine_version=run.server.version if run.server else None,
            date=run.created[:10],
            note=f"run {run.run_id}, {len(step.windows)} windows",
            fault=None if step.steady is not False else "the rate was not steady",
        )


def _run_of(document: Any, file: str) -> RunDocument:
    """Return the run that a document is or reports on. Raises as ``read``."""
    from pydantic import ValidationError

    from qwendeploy.documents.run import RunDocument, VerifyReport

    try:
        if document["schema"] == "qwendeploy/verify":
            run = VerifyReport.model_validate(document).run
        else:
            run = RunDocument.model_validate(document)
    except ValidationError as problem:
        first = problem.errors()[0]
        raise DataError(
            first["msg"], file=file, key=".".join(str(part) for part in first["loc"])
        ) from None
    if run.status != "complete":
        raise DataError(f"the run is {run.status}", file=file, key="status")
    if run.client is not None and run.client.limited:
        raise DataError("the client was the limit of this run", file=file, key="client.limited")
    return run


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value


def facts(documents: Sequence[Any]) -> dict[str, Any]:
    """Return the identities of a run and the pool that its server told, ``None`` where untold.

    The documents are those that ``read`` accepted.
    """
    run = documents[0].get("run", documents[0])
    server = run.get("server") or {}
    return {
        **{name: run.get(name) for name in ("machine_id", "plan_id", "run_id")},
        "boot_id": server.get("boot_id"),
        "pool_blocks": server.get("kv_pool_blocks"),
    }

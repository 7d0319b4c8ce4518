"""Why an option won: in each respect, against the option that differs in that respect alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from qwendeploy.documents import Objective, Option, Quality, TraceEntry
from qwendeploy.image_names import image_name
from qwendeploy.planning.labels import draft_label, layout_label
from qwendeploy.planning.near_miss import TWIN, nearness
from qwendeploy.planning.ranking import Scored, preference, tie
from qwendeploy.planning.survey import Survey

MOST_REASONS = 3

NOT_NEEDED = "kv-dtype-not-needed"
"""The one rejection of what could run as well: true, but never what decided."""

STARVED = 0.5
"""Share of the plan's running requests below which a rival's rate is for want of memory: that is
said instead of the rate, which tells nothing of what it would do with the same requests."""

RESPECTS = ("weights", "draft", "layout", "kv")


def reasons(result: Survey, best: Scored) -> tuple[str, ...]:
    """Return what the option gains in each respect, most decisive first."""
    found = [
        reason for respect in RESPECTS if (reason := _in_respect(result, best, respect)) is not None
    ]
    found.sort(key=lambda item: -item[0])
    texts = [text for _, text in found]
    if not texts:
        texts.append("It is the only option that passes the rules and fits in memory.")
    return (*_own_runs_line(result, best.candidate.option), *texts[:MOST_REASONS])


def _words(option: Option) -> dict[str, str]:
    """Return what the option is in each respect."""
    return {
        "weights": option.quant,
        "draft": draft_label(option),
        "layout": layout_label(option),
        "kv": f"{option.kv_cache_dtype} KV",
    }


def _own_runs_line(result: Survey, option: Option) -> tuple[str, ...]:
    """Return which own runs of this machine stand above the tables, if there are any."""
    own = result.scene.knowledge.own
    if own is None:
        return ()
    labels = [*own.labels, *(start.label for start in own.starts if start.label not in own.labels)]
    if not labels:
        return ()
    about = "this option" if own.measured_here(option) else "other options"
    return (
        f"Your runs on this machine ({about}) override the tables: {', '.join(labels)}. "
        "qwendeploy data forget ID removes one.",
    )


def _in_respect(result: Survey, best: Scored, respect: str) -> tuple[float, str] | None:
    """Return (gain, text) of one respect.

    The rival differs in that respect alone, in the same image if there is one; where none could
    run, what put it out is the reason; only then the best of those that differ in more.
    """
    mine = _words(best.candidate.option)
    rivals = [
        item for item in result.ranked if _words(item.candidate.option)[respect] != mine[respect]
    ]
    alone = [item for item in rivals if _differing(item.candidate.option, mine) == [respect]]
    image = best.candidate.option.image
    same = [item for item in alone if item.candidate.option.image == image]
    if same or alone:
        return _against(result, best, same or alone, mine[respect])
    runs = {_words(item.candidate.option)[respect] for item in rivals}
    refused = _refused(result, best.candidate.option, respect, runs)
    if refused is not None:
        return refused
    return _against(result, best, rivals, mine[respect]) if rivals else None


def _differing(option: Option, mine: dict[str, str]) -> list[str]:
    words = _words(option)
    return [respect for respect in RESPECTS if words[respect] != mine[respect]]


def _against(
    result: Survey, best: Scored, rivals: Sequence[Scored], label: str
) -> tuple[float, str] | None:
    """Return (gain, text) against the best of these rivals."""
    objective = result.scene.workload.objective
    rival = max(rivals, key=lambda item: item.score(objective))
    mine, other = best.score(objective), rival.score(objective)
    if mine <= 0 or other <= 0:
        return None
    name = _name(rival.candidate.option, best.candidate.option)
    figure = rival.figure(objective)
    kind = f" ({figure.kind})" if figure else ""
    gain = mine / other - 1
    if rival.running < STARVED * best.running and gain > 0:
        most = f"{rival.running} of {rival.concurrency} requests at once"
        return gain, f"{label}: {name} runs only {most}, this option {best.running}."
    if tie(rival, best, objective) or (tie(best, rival, objective) and gain < 0):
        return 0.0, f"{label} ties with {name}{kind} and {preference(best, rival, objective)}."
    what, where = "", " at the low end of the band"
    if objective is Objective.CAPACITY:
        what, where = " context for all requests", ""
    elif best.end_to_end:
        what = " end to end"
    return gain, f"{label}: {gain:+.0%}{what} vs {name}{where}{kind}."


def _name(rival: Option, option: Option) -> str:
    """Return in what the rival differs, its image where it is another one."""
    mine, words = _words(option), _words(rival)
    text = " + ".join(words[respect] for respect in _differing(rival, mine))
    if rival.image != option.image and rival.image:
        text += f" in {image_name(rival.image).short}"
    return text


def _refused(
    result: Survey, option: Option, respect: str, runs: Collection[str]
) -> tuple[float, str] | None:
    """Return what put out the options that differ in this respect alone.

    Those in the same image come first, of them hard reasons, better weights, what came nearest.
    What is out here but ``runs`` where more is different is said to be out with the rest the same.
    """
    mine = _words(option)
    image = image_name(option.image or option.engine).short
    own = _class_rank(result, option.quant)

    def order(item: tuple[str, TraceEntry, str]) -> tuple[object, ...]:
        word, entry, of_image = item
        coarser = respect == "weights" and _class_rank(result, word) >= own
        return of_image != image, entry.rule == NOT_NEEDED, coarser, nearness(entry)

    found = sorted(_alike(result.trace, mine, respect), key=order)
    if not found:
        return None
    other, entry, _ = found[0]
    gain = -1.0 if entry.rule == NOT_NEEDED else 1.0
    alike = " with all other settings equal" if other in runs else ""
    return gain, f"{mine[respect]}: {other} is rejected{alike}: {entry.reason.rstrip('.')}."


def _class_rank(result: Survey, quant: str) -> int:
    """Return the rank of the best class that any checkpoint of a quant has; any if none has one."""
    known = [
        Quality(row.quality_class).rank
        for row in result.scene.knowledge.classes
        if row.quant == quant and row.quality_class != "unknown"
    ]
    return min(known, default=Quality.ANY.rank)


def _alike(
    trace: Sequence[TraceEntry], mine: dict[str, str], respect: str
) -> Iterator[tuple[str, TraceEntry, str]]:
    """Yield (word, entry, image) of each refused option that differs in this respect alone."""
    for entry in trace:
        parts = entry.option.split(" · ")
        if entry.effect != "rejected" or entry.rule == TWIN or len(parts) != len(RESPECTS) + 2:
            continue
        if entry.rule == NOT_NEEDED and respect != "kv":
            continue
        words = dict(zip(RESPECTS, parts, strict=False))
        if [name for name in RESPECTS if words[name] != mine[name]] == [respect]:
            yield words[respect], entry, parts[-1]

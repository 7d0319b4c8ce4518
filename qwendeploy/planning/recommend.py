"""``recommend``: from machine and workload to a plan with its trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from qwendeploy import __version__
from qwendeploy.documents import (
    Alternative,
    Machine,
    Objective,
    OperatingPoint,
    Option,
    Plan,
    Quality,
    Setting,
    Tool,
    TraceEntry,
    Workload,
)
from qwendeploy.documents.identity import plan_id
from qwendeploy.documents.request import Request
from qwendeploy.errors import NoPlan
from qwendeploy.evidence.box import describe
from qwendeploy.evidence.knowledge import Knowledge
from qwendeploy.evidence.knowledge_here import knowledge_for
from qwendeploy.evidence.memory_view import Load
from qwendeploy.family.names import SERVED_NAME
from qwendeploy.hardware.choose import choice_text
from qwendeploy.planning.engine_choice import best_survey as best_survey
from qwendeploy.planning.engine_settings import check_engine, check_layout
from qwendeploy.planning.labels import option_label, shortfall
from qwendeploy.planning.latencies import request_lengths
from qwendeploy.planning.narration import narrative
from qwendeploy.planning.narration.headlines import best_upstream
from qwendeploy.planning.narration.turning_points import turning_points
from qwendeploy.planning.near_miss import nearest_miss, without_twins
from qwendeploy.planning.predictions import cell, predict
from qwendeploy.planning.ranking import Scored, preference, tie, tie_words
from qwendeploy.planning.rates import Rates
from qwendeploy.planning.scene import TYPICAL_SHARE, Scene, stated_context
from qwendeploy.planning.settings import Chosen
from qwendeploy.planning.stated_weights import with_stated_weights
from qwendeploy.planning.survey import Survey
from qwendeploy.rulebook.book import RuleBook, load_rules

RUNNER_UPS = 4


def recommend(
    machine: Machine,
    workload: Workload,
    request: Request | None = None,
    *,
    knowledge: Knowledge | None = None,
    rules: RuleBook | None = None,
    now: datetime | None = None,
) -> Plan:
    """Return the plan for a machine and a workload.

    Raises:
        NoPlan: no option is feasible; carries the trace.
        UserError: the settings contradict each other or name something unknown.
    """
    request = request or Request()
    scene = make_scene(machine, workload, request, knowledge, rules)
    result, lowered = best_survey(scene)
    if not result.ranked:
        raise _no_plan(result, _looser_class(scene))
    return compose(result, lowered, now or datetime.now(UTC))


def make_scene(
    machine: Machine,
    workload: Workload,
    request: Request,
    knowledge: Knowledge | None = None,
    rules: RuleBook | None = None,
) -> Scene:
    """Return the situation that options are judged in.

    Raises:
        NoPlan: the machine cannot serve.
    """
    box = describe(machine)
    known = with_stated_weights(knowledge or knowledge_for(box), request.pins)
    check_engine(request.pins, workload, known)
    check_layout(request.pins, box.count)
    return Scene(
        box=box,
        workload=workload,
        request=request,
        knowledge=known,
        rules=rules or load_rules(),
        typical_context=stated_context(workload) or max(1, workload.max_context // TYPICAL_SHARE),
    )


def _looser_class(scene: Scene) -> Quality | None:
    """Return the strictest class that would leave an option where the stated one leaves none."""
    workload = scene.workload
    if not workload.quality_explicit:
        return None
    for looser in list(Quality)[workload.quality.rank + 1 :]:
        asked = workload.model_copy(update={"quality": looser})
        if best_survey(replace(scene, workload=asked))[0].ranked:
            return looser
    return None


def compose(result: Survey, lowered: Quality | None, now: datetime) -> Plan:
    """Return the plan of the best option of a survey."""
    scene, best = result.scene, result.ranked[0]
    candidate, workload = best.candidate, scene.workload
    option = candidate.option
    rates = Rates(scene)
    load = result.load
    predictions = predict(candidate, load, rates)
    point = _operating_point(load, workload, option)
    points = [
        Load(1, load.context, load.contexts),
        Load(workload.concurrency, workload.max_context, load.contexts),
    ]
    story = narrative.narrate(result, best, predictions, lowered, rates)
    turning = turning_points(result, best, rates)
    serving = scene.box.serving(option)
    chosen = choice_text(scene.box.machine, serving)
    return Plan(
        created=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        tool=Tool(version=__version__),
        inputs=scene.request.inputs,
        plan_id=plan_id(option, candidate.flags, candidate.env, point),
        machine=scene.box.machine,
        workload=workload,
        operating_point=point,
        option=option,
        flags=_settings(candidate.flags),
        env=_settings(candidate.env),
        predictions=predictions,
        cells=tuple(cell(candidate, other, rates) for other in points if other != load),
        gpu_indices=serving,
        listen=scene.request.listen,
        port=scene.request.port,
        served_model_name=SERVED_NAME,
        download_gib=narrative.download(option, scene),
        boot_first_s=narrative.boot(option, scene, "first"),
        boot_warm_s=narrative.boot(option, scene, "warm"),
        gated_repositories=narrative.gated(option, scene),
        headlines=story.headlines,
        reasons=(*story.reasons, *turning.reasons, *([f"GPUs {chosen}"] if chosen else [])),
        capacity=story.capacity,
        assumptions=story.assumptions,
        alternatives=alternatives(result, best, rates),
        trace=(*_ranked_trace(result), *turning.trace, *result.trace),
        warnings=story.warnings,
    )


def _operating_point(load: Load, workload: Workload, option: Option) -> OperatingPoint:
    isl, osl = request_lengths(load.context, workload.isl, workload.osl, option.max_model_len)
    return OperatingPoint(
        concurrency=load.concurrency,
        context=load.context,
        isl=isl,
        osl=osl,
        content=workload.content,
        contexts=load.contexts,
        prefix_cache=option.prefix_cache,
        context_assumed=stated_context(workload) is None,
        prefix_hit=(workload.prefix_hit or 0.0) if option.prefix_cache else 0.0,
    )


def _settings(chosen: Iterable[Chosen]) -> tuple[Setting, ...]:
    return tuple(
        Setting(name=item.name, value=item.value, rule=item.rule, reason=item.reason)
        for item in chosen
    )


def alternatives(result: Survey, best: Scored, rates: Rates) -> tuple[Alternative, ...]:
    """Return the runner-ups: the best of each other kind of option, in order.

    A kind is image family, weights, draft method and layout; upstream comes first where the
    chosen image is a third party's.
    """
    objective = result.scene.workload.objective
    seen = {_kind(best.candidate.option)}
    found: list[Scored] = []
    for item in result.ranked:
        kind = _kind(item.candidate.option)
        if kind not in seen:
            seen.add(kind)
            found.append(item)
    if best.candidate.option.fork:
        upstream = [item for item in (best_upstream(result),) if item is not None]
        first = [_kind(item.candidate.option) for item in upstream]
        found = upstream + [item for item in found if _kind(item.candidate.option) not in first]
    offers = [(item, _why_not(item, best, objective)) for item in found]
    if result.beside is not None:
        offers.insert(0, (result.beside, _other_engine(result.beside, best)))
    return tuple(
        Alternative(
            option=item.candidate.option,
            predictions=predict(item.candidate, result.load, rates),
            why_not=why_not,
        )
        for item, why_not in offers[:RUNNER_UPS]
    )


def _other_engine(item: Scored, best: Scored) -> str:
    """Return why the other engine's best option is not the plan."""
    text = f"quality class {item.quality}, the plan has {best.quality}"
    if item.share < 1:
        text += f"; runs {item.running} of {item.concurrency} requests at once"
    return f"{text}; --quality {item.quality} selects it"


def _kind(option: Option) -> tuple[object, ...]:
    return (
        option.fork,
        option.quant,
        option.spec_method,
        option.tp,
        option.replicas,
        option.kv_cache_dtype,
    )


def _why_not(item: Scored, best: Scored, objective: Objective) -> str:
    mine, top = item.score(objective), best.score(objective)
    what = {
        Objective.THROUGHPUT: "output tokens/s",
        Objective.LATENCY: "tokens/s per request",
        Objective.CAPACITY: "tokens of typical context",
    }[objective]
    if best.end_to_end:
        what += " end to end"
    if top <= 0:
        return "no figure to rank by"
    gap = (top - mine) / top
    if tie(item, best, objective):
        within = tie_words(item, best, objective)
        return f"ties on {what} ({within}); the chosen option {preference(best, item, objective)}"
    return f"{gap:.0%} fewer {what} at the low end of the band"


def _ranked_trace(result: Survey) -> list[TraceEntry]:
    objective = result.scene.workload.objective
    best = result.ranked[0]
    entries = []
    for place, item in enumerate(result.ranked):
        entries.append(
            TraceEntry(
                option=option_label(item.candidate.option),
                rule="ranking",
                effect="chosen" if place == 0 else "ranked",
                reason=f"rank {place + 1}, low end {item.score(objective):,.1f}"
                + ("" if place == 0 else f": {_why_not(item, best, objective)}"),
            )
        )
    entries.extend(
        TraceEntry(
            option=option_label(best.candidate.option),
            rule=fired.rule.id,
            effect="warned" if any(e.kind == "warn" for e in fired.effects) else "changed",
            reason=fired.reason,
        )
        for fired in best.candidate.fired
    )
    return entries


def _no_plan(result: Survey, looser: Quality | None) -> NoPlan:
    """Return the refusal: what came nearest, and what would bring an option back."""
    if not result.trace:
        return _nothing_matches(result.scene)
    trace = without_twins(result.trace)
    counts = Counter(entry.rule for entry in trace if entry.rule != "quality-class")
    entry = nearest_miss(trace)
    if entry is None:
        rule = counts.most_common(1)[0][0] if counts else "quality-class"
        entry = next(item for item in trace if item.rule == rule)
    return NoPlan(
        f"no option is feasible; the nearest: {entry.reason}"
        + (f" ({shortfall(entry.missed_by)})" if entry.missed_by else ""),
        where=f"{entry.option} [{entry.rule}]",
        hint=_way_back(entry, looser),
        trace=result.trace,
    )


def _nothing_matches(scene: Scene) -> NoPlan:
    """Return the refusal of settings that leave not one option to judge."""
    names = {"spec_method": "spec", "gpu_memory_utilization": "util"}
    stated = [
        f"--{names.get(name, name).replace('_', '-')} {value}"
        for name, value in vars(scene.pins).items()
        if value is not None and value is not False
    ]
    listed = f"{', '.join(stated[:-1])} and {stated[-1]}" if len(stated) > 1 else "".join(stated)
    return NoPlan(
        f"no known option runs on {scene.box.count} x {scene.box.name} with {listed}",
        where="settings",
        hint="remove one of them",
    )


def _way_back(entry: TraceEntry, looser: Quality | None) -> str | None:
    ways = [f"--quality {looser}"] if looser is not None else []
    if entry.would_return and entry.would_return not in ways:
        ways.append(entry.would_return)
    return f"feasible with {', or '.join(ways)}" if ways else None

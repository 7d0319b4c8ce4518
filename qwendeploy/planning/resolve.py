"""From an admitted option to the server's settings and its memory.

The order is fixed: batched tokens, seats, graph capture, rest of the budget, blocks. If the pool
has too few blocks for the seats it is asked again with fewer. Rules speak in between; two rules
that disagree on one flag reject the option and are both named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from qwendeploy.documents import Option
from qwendeploy.errors import UserError
from qwendeploy.evidence.memory_view import Pool
from qwendeploy.evidence.pool_estimate import PoolQuestion, estimate_pool
from qwendeploy.models import memory as kv
from qwendeploy.models.rest_term import default_capture_size
from qwendeploy.planning.candidate import Candidate, Rejection, refusal_of
from qwendeploy.planning.facts import Facts, option_facts, resolved_facts
from qwendeploy.planning.scene import Scene
from qwendeploy.planning.settings import base_flags, merge_settings
from qwendeploy.rulebook.book import Fired, conflicts, setting_facts
from qwendeploy.rulebook.fields import Pass
from qwendeploy.units import GIB

DEFAULT_UTILIZATION = 0.90
"""Where no rule knows the card: below the engine's own default of 0.92 (vLLM 0.20.0 and later)."""


SHORT_STEP = "memory-step"
"""Names the rejection of a step that is shorter than one block of a prefix cache."""

MOST_UTILIZATION = 0.95
"""Share above which stating more of the card is no way back: others hold the rest of it."""


@dataclass
class _Draft:
    """Working state while an option is resolved."""

    option: Option
    fired: dict[str, Fired] = field(default_factory=dict)

    def add(self, fired: Iterable[Fired]) -> None:
        self.fired.update({result.rule.id: result for result in fired})


def resolve(
    option: Option, scene: Scene, *, most_seats: int | None = None
) -> Candidate | Rejection:
    """Return the option ready to run, or the first reason why it cannot.

    Prefix caching that nobody stated is left off where a step is too short for it. ``most_seats``
    bounds the seats of each replica besides memory and the requests in flight.
    """
    result = _resolved(option, scene, most_seats)
    if (
        isinstance(result, Rejection)
        and result.rule == SHORT_STEP
        and option.spec_method != "mtp"  # of which the options hold both anyway
        and not scene.states("prefix_cache")
    ):
        return _resolved(option.model_copy(update={"prefix_cache": False}), scene, most_seats)
    return result


def _resolved(option: Option, scene: Scene, most_seats: int | None) -> Candidate | Rejection:
    facts: Facts = {**scene.facts, **option_facts(option)}
    admitted = scene.rules.fire(Pass.ADMIT, facts)
    refusal = (
        _without_vision(option, scene)
        or refusal_of(admitted)
        or _not_preferred(admitted, option, scene)
    )
    if refusal is not None:
        return refusal
    draft = _Draft(_stated_limits(option, scene))
    draft.add(admitted)
    try:
        memory = _resolve_limits(draft, scene, facts, most_seats)
    except UserError as problem:
        return Rejection("memory-model", str(problem))
    if isinstance(memory, Rejection):
        return memory
    return _check(draft, memory, scene, facts)


def _without_vision(option: Option, scene: Scene) -> Rejection | None:
    """Return why weights without a vision tower are out where images are wanted."""
    row = scene.knowledge.checkpoint(option.checkpoint, option.quant)
    if not scene.workload.vision or row.vision is not False:
        return None
    return Rejection(
        "checkpoint-without-vision",
        f"{row.name} has no vision tower, which --vision needs",
        would_return="text only, without --vision",
    )


def _not_preferred(fired: Iterable[Fired], option: Option, scene: Scene) -> Rejection | None:
    """Return why an option gives way to its preferred twin, where the user left that open."""
    for result in fired:
        for effect in result.effects:
            if effect.kind != "prefer" or not (effect.field or "").startswith("option."):
                continue
            name = str(effect.field).partition(".")[2]
            if scene.states(name) or getattr(option, name) == effect.value:
                continue
            return Rejection(
                result.rule.id,
                result.reason,
                would_return=result.would_return or f"stating {name.replace('_', ' ')}",
            )
    return None


def _stated_limits(option: Option, scene: Scene) -> Option:
    pins = scene.pins
    return option.model_copy(
        update={
            "max_model_len": pins.max_model_len or scene.workload.max_context,
            "gpu_memory_utilization": pins.gpu_memory_utilization,
            "max_num_batched_tokens": pins.max_num_batched_tokens,
            "capture_size": pins.capture_size,
        }
    )


def _resolve_limits(
    draft: _Draft, scene: Scene, facts: Facts, most_seats: int | None
) -> Pool | Rejection:
    """Return the memory with the most seats that it can ever fill, no more than the requests.

    Every seat takes memory from the pool for the sampler and the graphs, so that seats for
    requests that only wait would leave less for those that run.
    """
    _fire_resolve(draft, scene, facts)
    draft.option = _with_preferences(draft, scene)
    before = dict(draft.fired)

    def at(seats: int) -> Pool | Rejection:
        draft.fired = dict(before)
        draft.option = draft.option.model_copy(update={"max_num_seqs": seats})
        fired = _fire_resolve(draft, scene, facts)
        refusal = refusal_of(draft.fired.values())
        if refusal is not None:
            return refusal
        draft.option = _with_graphs(draft.option, fired, scene)
        draft.option = _with_limits(draft, scene)
        return size_memory(draft.option, scene)

    def fills(memory: Pool | Rejection) -> bool:
        seats = draft.option.max_num_seqs or 1
        return isinstance(memory, Pool) and seats <= memory.short_requests and memory.holds_one

    if scene.pins.max_num_seqs is not None:
        return at(scene.pins.max_num_seqs)
    share = -(-scene.workload.concurrency // draft.option.replicas)
    share = min(share, most_seats or share)
    memory = at(share)
    if share == 1 or fills(memory):
        return memory
    one = at(1)
    if not fills(one) or isinstance(one, Rejection):
        return one
    most = min(share - 1, one.short_requests)
    return at(last_of(1, most, lambda seats: fills(at(seats))))


def last_of(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the last number up to ``high`` for which ``holds``; it does for ``low`` and below."""
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _fire_resolve(draft: _Draft, scene: Scene, facts: Facts) -> tuple[Fired, ...]:
    current = {**facts, **resolved_facts(draft.option)}
    fired = scene.rules.fire(Pass.RESOLVE, current)
    draft.add(fired)
    return fired


def _with_graphs(option: Option, fired: Iterable[Fired], scene: Scene) -> Option:
    """Return the option with the capture size that rules ask for its present seats, if any."""
    if scene.pins.capture_size is not None:
        return option
    asked = [
        int(effect.value)
        for result in fired
        for effect in result.effects
        if effect.kind == "prefer" and effect.field == "resolved.capture_size"
        if isinstance(effect.value, int | float)
    ]
    return option.model_copy(update={"capture_size": max(asked, default=None)})


def _with_preferences(draft: _Draft, scene: Scene) -> Option:
    """Return the option with the preferred limits where the user stated none."""
    preferred: dict[str, object] = {}
    for result in draft.fired.values():
        for effect in result.effects:
            if effect.kind == "prefer" and effect.field and effect.field.startswith("resolved."):
                preferred.setdefault(effect.field.partition(".")[2], effect.value)
    update: dict[str, object] = {}
    defaults: tuple[tuple[str, float | None], ...] = (
        ("max_num_batched_tokens", None),
        ("gpu_memory_utilization", DEFAULT_UTILIZATION),
        ("capture_size", None),
    )
    for name, default in defaults:
        if getattr(scene.pins, name) is None:
            value = preferred.get(name, default)
            if value is None and name == "max_num_batched_tokens":
                value = scene.step_for(draft.option)
            update[name] = int(value) if isinstance(value, float) and value > 1 else value
    return draft.option.model_copy(update=update)


def _with_limits(draft: _Draft, scene: Scene) -> Option:
    """Return the option inside every limit that a rule sets on what the user left open."""
    update: dict[str, int | float] = {}
    for result in draft.fired.values():
        for effect in result.effects:
            if effect.kind != "limit" or not effect.field:
                continue
            group, _, name = effect.field.partition(".")
            if group != "resolved" or name not in Option.model_fields:
                continue
            value = update.get(name, getattr(draft.option, name))
            if value is None or getattr(scene.pins, name, None) is not None:
                continue
            bound = float(value)
            if effect.max is not None:
                bound = min(bound, float(effect.max))
            if effect.min is not None:
                bound = max(bound, float(effect.min))
            update[name] = int(bound) if isinstance(value, int) else bound
    return draft.option.model_copy(update=update) if update else draft.option


def size_memory(option: Option, scene: Scene, **changes: Any) -> Pool:
    """Return the pool of one replica of an option whose limits are known.

    ``changes`` replace parts of the question, for asking what another card would hold.

    Raises:
        UserError: the block arithmetic of this option or the size of its checkpoint is not known.
    """
    assert option.max_model_len and option.max_num_batched_tokens and option.max_num_seqs
    assert option.gpu_memory_utilization is not None
    checkpoint = scene.knowledge.checkpoint(option.checkpoint, option.quant)
    question = PoolQuestion(
        memory_mib=scene.box.vram_mib,
        compute_capability=scene.box.compute_capability,
        gpu_memory_utilization=option.gpu_memory_utilization,
        tp=option.tp,
        checkpoint=option.checkpoint,
        quant=option.quant,
        files_gib=scene.knowledge.files_gib(checkpoint),
        max_num_batched_tokens=option.max_num_batched_tokens,
        max_num_seqs=option.max_num_seqs,
        prefix_cache=option.prefix_cache,
        text_only=not scene.workload.vision,
        has_vision=checkpoint.vision is not False,
        has_mtp=checkpoint.mtp is not False,
        spec_method=option.spec_method,
        spec_tokens=option.spec_tokens,
        kv_cache_dtype=option.kv_cache_dtype,
        sliding_drafter=scene.knowledge.sliding_drafter(option),
        capture_size=option.capture_size,
        engine_version=option.engine_version,
        fork=option.fork,
        max_model_len=option.max_model_len,
    )
    return estimate_pool(replace(question, **changes), known=scene.knowledge.known_starts)


def _check(draft: _Draft, memory: Pool, scene: Scene, facts: Facts) -> Candidate | Rejection:
    option = draft.option
    check = memory.start_check(option.max_num_seqs or 1, option.max_num_batched_tokens)
    if not check.starts:
        return _no_room(check, memory, option, scene)
    base = base_flags(option, scene)
    flags, env = merge_settings(base, draft.fired.values())
    current = {
        **facts,
        **option_facts(option),
        **resolved_facts(option),
        "resolved.capture_size": capture_size(option),
        **setting_facts(
            [(flag.name, flag.value) for flag in flags],
            {variable.name: variable.value or "" for variable in env},
        ),
        **memory.facts(starts=check.starts),
        **scene.exposure,
    }
    checked = scene.rules.fire(Pass.CHECK, current)
    draft.add(checked)
    refusal = refusal_of(draft.fired.values())
    if refusal is not None:
        return refusal
    clash = conflicts(draft.fired.values())
    if clash:
        return Rejection(f"{clash[0].first}, {clash[0].second}", f"rules disagree: {clash[0]}")
    if any(effect.kind in ("flag", "env") for result in checked for effect in result.effects):
        flags, env = merge_settings(base, draft.fired.values())
    return Candidate(option, memory, flags, env, tuple(draft.fired.values()))


def capture_size(option: Option) -> int:
    """Return the largest captured step in tokens: as set, else what the engine derives."""
    if option.capture_size is not None:
        return option.capture_size
    return default_capture_size(option.max_num_seqs or 1, option.spec_tokens)


def _no_room(check: kv.StartCheck, memory: Pool, option: Option, scene: Scene) -> Rejection:
    """Return the rejection of an option that the engine would refuse to start."""
    budget = memory.budget_gib
    if check.binds is kv.Limit.NO_ROOM:
        needed = memory.weights.value + memory.rest.value
        back = "more GPUs per replica, a smaller checkpoint or a larger card"
        share = needed * GIB / scene.box.memory_bytes
        if scene.pins.gpu_memory_utilization is not None and share < MOST_UTILIZATION:
            back = f"--util {math.ceil(100 * share) / 100 + 0.01:.2f} or more"
        return Rejection(
            "memory-weights",
            f"weights ({memory.weights.value:.1f} GiB per GPU) and working memory "
            f"({memory.rest.value:.1f} GiB) leave no KV cache within {budget:.1f} GiB",
            missed_by=f"{needed - budget:.1f} GiB per GPU",
            would_return=back,
        )
    if check.binds is kv.Limit.LENGTH:
        return Rejection(
            "memory-length",
            f"one request of {option.max_model_len:,} tokens needs {check.needed} blocks, "
            f"the pool has {check.blocks}",
            missed_by=f"{check.needed - check.blocks} blocks",
            would_return=f"--ctx {check.largest_length} or less",
        )
    if check.binds is kv.Limit.SEATS:
        return Rejection(
            "memory-seats",
            f"max-num-seqs {option.max_num_seqs} exceeds the pool's {check.blocks} blocks",
            missed_by=f"{check.needed - check.blocks} blocks",
            would_return=f"--max-num-seqs {memory.short_requests} or less",
        )
    return Rejection(
        SHORT_STEP,
        f"max-num-batched-tokens {option.max_num_batched_tokens} is below the block size of "
        f"{memory.layout.block_tokens} tokens, which prefix caching needs",
        missed_by=f"{memory.layout.block_tokens - (option.max_num_batched_tokens or 0)} tokens",
        would_return=f"--max-num-batched-tokens {memory.layout.block_tokens} or more, or "
        "--prefix-cache off",
    )

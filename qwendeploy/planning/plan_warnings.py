"""What the user should know before starting: warnings that stand in the plan."""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.documents import PlanWarning, Predictions
from qwendeploy.evidence.memory_view import Pool, Slots
from qwendeploy.evidence.prefill_speed import STALL_LIMIT_MS
from qwendeploy.planning.candidate import Candidate
from qwendeploy.planning.gguf import SMALL_SLOT, budget_gib
from qwendeploy.planning.ranking import Scored
from qwendeploy.planning.scene import Scene

SMALL_POOL = "kv-too-small-for-max-model-len"
SYSTEM = "machine.os"
OTHER_SYSTEMS = ("wsl2", "windows", "container")
"""Systems whose rules are shown even where they only set a value: elsewhere it would be another."""


def plan_warnings(
    best: Scored, predictions: Predictions, gated: tuple[str, ...], scene: Scene
) -> tuple[PlanWarning, ...]:
    """Return every warning of the chosen option; ``gated`` are repositories that want a token.

    Whatever ``audit`` warns of in an artefact of the plan is here under the same name.
    """
    return (
        *_stall(best, predictions),
        *_tight_pool(best),
        *_small_slots(best),
        *_tight_card(best, scene),
        *_token(best, gated),
        *rule_warnings(best.candidate),
    )


def _stall(best: Scored, predictions: Predictions) -> Iterator[PlanWarning]:
    pause = predictions.stall_ms
    if pause is None or pause.value <= STALL_LIMIT_MS:
        return
    step = best.candidate.option.max_num_batched_tokens
    yield PlanWarning(
        rule="prefill-stall",
        text=f"while a prompt is prefilled in steps of {step} tokens, decoding requests "
        f"pause up to {pause.value / 1000:.1f} s; a smaller --max-num-batched-tokens "
        "shortens the pause",
    )


def _tight_pool(best: Scored) -> Iterator[PlanWarning]:
    """Warn where one full-length request may not fit."""
    memory = best.candidate.memory
    if not isinstance(memory, Pool) or not memory.may_refuse:
        return
    yield PlanWarning(rule=SMALL_POOL, text=unsure_text(best.candidate))


def unsure_text(candidate: Candidate) -> str:
    """Return why an engine may refuse to start with the pool that there will be."""
    memory = candidate.memory
    assert isinstance(memory, Pool)
    blocks = memory.blocks
    return (
        f"one request of {memory.max_model_len:,} tokens needs {memory.per_request} blocks and the "
        f"pool has about {blocks.value:.0f} ({blocks.low:.0f} to {blocks.high:.0f}): the engine "
        "may refuse to start and print the length that fits"
    )


def _small_slots(best: Scored) -> Iterator[PlanWarning]:
    memory = best.candidate.memory
    if isinstance(memory, Slots) and memory.slots > 1 and memory.max_model_len < SMALL_SLOT:
        yield PlanWarning(
            rule="slots-share-context",
            text=f"each of the {memory.slots} slots has {memory.max_model_len:,} tokens, which a "
            "single answer with reasoning can fill; set a longer --ctx",
        )


def _tight_card(best: Scored, scene: Scene) -> Iterator[PlanWarning]:
    """Warn where a llama-server fits by the middle of the estimate and not by its far end."""
    memory, budget = best.candidate.memory, budget_gib(scene)
    if not isinstance(memory, Slots) or not memory.may_refuse:
        return
    yield PlanWarning(
        rule="gguf-does-not-fit",
        text=memory.parts.room_text(budget) + ". If the server does not start, lower --ctx or --c",
    )


def _token(best: Scored, gated: tuple[str, ...]) -> Iterator[PlanWarning]:
    drafts = best.candidate.option.spec_method == "dflash"
    if gated:
        yield PlanWarning(
            rule="dflash-gated-drafter" if drafts else "gated-repository",
            text=f"{', '.join(gated)} is gated: accept the conditions on its page and set "
            "HF_TOKEN, otherwise the download fails with 401",
        )


def rule_warnings(candidate: Candidate) -> Iterator[PlanWarning]:
    """Yield what the rules warn of, and what another system than Linux changes of the plan."""
    for fired in candidate.fired:
        finding = fired.rule.finding
        shown = finding is None or finding.severity != "info"
        warns = shown and any(effect.kind == "warn" for effect in fired.effects)
        if warns or fired.rule.when.get(SYSTEM) in OTHER_SYSTEMS:
            yield PlanWarning(rule=fired.rule.id, text=fired.reason)

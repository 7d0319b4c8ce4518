"""Audit of one launch: flags, memory and rules give findings, findings give the outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qwendeploy.auditing.judging.argument_findings import (
    flag_findings,
    json_findings,
    range_findings,
    size_findings,
    spec_findings,
    text_findings,
    variable_findings,
)
from qwendeploy.auditing.judging.findings import SEVERITY_ORDER, Finding, Outcome, worst_outcome
from qwendeploy.auditing.judging.gguf import gguf_findings
from qwendeploy.auditing.judging.llama_findings import llama_findings
from qwendeploy.auditing.judging.memory_findings import memory_findings
from qwendeploy.auditing.judging.system_findings import (
    cluster_findings,
    container_findings,
    model_findings,
)
from qwendeploy.auditing.judging.unit_findings import unit_findings
from qwendeploy.auditing.judging.value_findings import value_findings
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.text import Place
from qwendeploy.auditing.understanding.context import Context
from qwendeploy.auditing.understanding.facts import Facts, launch_facts
from qwendeploy.auditing.understanding.memory import PoolView, view_pool
from qwendeploy.auditing.understanding.understand import Understood, understand
from qwendeploy.rulebook.book import RuleBook, RuleFinding, load_rules

_OPTION_FLAGS = {
    "option.tp": "--tensor-parallel-size",
    "option.spec_method": "--speculative-config",
    "option.spec_tokens": "--speculative-config",
    "option.prefix_cache": "--enable-prefix-caching",
    "option.kv_cache_dtype": "--kv-cache-dtype",
    "option.quant": "--quantization",
    "resolved.max_model_len": "--max-model-len",
    "resolved.max_num_seqs": "--max-num-seqs",
    "resolved.max_num_batched_tokens": "--max-num-batched-tokens",
    "resolved.gpu_memory_utilization": "--gpu-memory-utilization",
    "resolved.capture_size": "--max-cudagraph-capture-size",
    "resolved.attention_backend": "--attention-backend",
    "exposure.listen": "--host",
    "exposure.api_key": "--api-key",
    "computed.idle_gpus": "--tensor-parallel-size",
    "computed.capture_needed": "--max-cudagraph-capture-size",
}


_IMAGE_FACTS = {"option.image", "option.engine_version", "option.fork", "machine.driver"}

BANDED = {
    "weights-do-not-fit",
    "weights-leave-no-cache",
    "kv-too-small-for-max-model-len",
    "max-num-seqs-above-blocks",
    "block-above-batched-tokens",
    "short-context-limit",
}
"""Rules on the pool's central value: here the band decides, so that a set-up that may well work is
warned of and not refused (``memory_findings`` reports under the same names)."""


@dataclass(frozen=True)
class Judged:
    """One launch with everything found in it."""

    understood: Understood
    view: PoolView | None
    facts: Facts
    findings: tuple[Finding, ...]
    outcome: Outcome


def judge_launch(launch: ForeignLaunch, context: Context, rules: RuleBook | None = None) -> Judged:
    """Return the launch judged. Raises DataError when the rules cannot be loaded."""
    understood = understand(launch, context)
    view = view_pool(understood)
    facts = launch_facts(understood, view)
    book = rules if rules is not None else load_rules()
    from_rules = [
        _of_rule(found, understood)
        for found in book.judge(facts, flags_known=not launch.open_ended)
        if found.id not in BANDED
    ]
    found = [
        *text_findings(understood),
        *flag_findings(understood),
        *range_findings(understood),
        *spec_findings(understood),
        *json_findings(understood),
        *size_findings(understood),
        *value_findings(understood),
        *model_findings(understood),
        *from_rules,
        *memory_findings(understood, view),
        *container_findings(understood),
        *cluster_findings(understood),
        *unit_findings(understood),
        *llama_findings(understood),
        *gguf_findings(understood),
        *variable_findings(understood),
    ]
    findings = _without_repeats(found)
    return Judged(understood, view, facts, findings, worst_outcome(findings))


def _without_repeats(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings worst first; of one fault about one thing only the worst is kept."""
    best: dict[tuple[str, str], Finding] = {}
    for finding in found:
        key = (finding.id, (finding.about.split() or [""])[0])
        before = best.get(key)
        if before is None or _rank(finding) < _rank(before):
            best[key] = finding
    return tuple(sorted(best.values(), key=lambda found: (_rank(found), found.place.line)))


def _rank(finding: Finding) -> int:
    return SEVERITY_ORDER.index(finding.severity)


def _of_rule(found: RuleFinding, understood: Understood) -> Finding:
    outcome = found.outcome
    fix = found.fix
    if understood.llama is not None:
        fix = fix.replace("VLLM_API_KEY", "LLAMA_API_KEY")
    return Finding(
        found.id,
        found.severity,
        found.about,
        _place(found, understood),
        found.text,
        fix,
        outcome,  # type: ignore[arg-type]
        found.fired.rule.id,
    )


def _place(found: RuleFinding, understood: Understood) -> Place:
    """Return where the finding stands: the first flag or variable of the rule that is written."""
    launch = understood.launch
    names = sorted(
        found.fired.rule.when,
        key=lambda name: not name.startswith(("resolved.flag", "resolved.env")),
    )
    for name in names:
        if name.startswith("resolved.env."):
            word = launch.env.get(name.removeprefix("resolved.env."))
            if word is not None:
                return word.place
        flag = _OPTION_FLAGS.get(name)
        if name.startswith("resolved.flag."):
            flag = "--" + name.removeprefix("resolved.flag.").partition(".")[0]
        if flag is not None:
            setting = understood.arguments.last(flag)
            if setting is not None:
                return setting.place
            if flag == "--speculative-config" and understood.spec.place is not None:
                return understood.spec.place
        image = launch.container.image if launch.container is not None else None
        if image is not None and name in _IMAGE_FACTS:
            return image.place
        if name in ("option.checkpoint", "option.model") and understood.arguments.model:
            return understood.arguments.model.place
    return launch.place

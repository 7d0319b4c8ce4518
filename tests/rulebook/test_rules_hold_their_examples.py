"""Every rule file: its examples, its flags in the releases it speaks of, no two rules at odds."""

from __future__ import annotations

import itertools
import re

import pytest
from packaging.specifiers import SpecifierSet

from qwendeploy.engines.vllm.flags import ReleaseStatus, flag_status, releases, value_problem
from qwendeploy.rulebook.book import Rule, conflicts, load_rules, rule_fires
from qwendeploy.rulebook.fields import FactValue, Pass

BOOK = load_rules()
SUPPORTED = [version for version in releases() if version.release >= (0, 20)]
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.id}-{number}")
    for rule in BOOK.rules
    for number, example in enumerate(rule.examples)
]


def test_there_are_rules() -> None:
    assert BOOK.rules


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example_fires_as_stated(rule: Rule, example) -> None:  # type: ignore[no-untyped-def]
    assert rule_fires(rule, example.facts) is example.fires


EMITTED = [
    pytest.param(rule, effect, id=f"{rule.id}-{effect.name}")
    for rule in BOOK.rules
    for effect in rule.effects
    if effect.kind == "flag"
]


@pytest.mark.parametrize(("rule", "effect"), EMITTED)
def test_emitted_flag_is_known_to_every_release_the_rule_speaks_of(rule: Rule, effect) -> None:  # type: ignore[no-untyped-def]
    if rule.applies.fork is True:
        head, _, key = effect.name.partition(".")
        assert flag_status(head, None, True).status is ReleaseStatus.KNOWN
        if key:
            assert flag_status(key, None, True, "spec_key").status is ReleaseStatus.KNOWN
        return
    spoken = [v for v in SUPPORTED if SpecifierSet(rule.applies.versions).contains(v)]
    assert spoken
    for version in spoken:
        status = flag_status(effect.name, str(version))
        assert status.status is ReleaseStatus.KNOWN, f"{version}: {status.message}"
        assert status.row is not None
        if "." not in effect.name and "{" not in str(effect.value):
            value = None if effect.value is None else str(effect.value)
            assert value_problem(status.row, value) is None


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in BOOK.rules])
def test_rule_says_where_it_comes_from(rule: Rule) -> None:
    text = rule.model_dump_json()
    assert not re.search(r"\.\./|/work/|shared/|find_string", text)
    for source in rule.sources:
        assert len(source) > 5
        assert source.count("(") == source.count(")"), "a comma cut the source in two"
    if rule.severity == "reject":
        assert rule.would_return
    if rule.certainty == "observed" and rule.severity == "reject":
        assert rule.finding is not None


CARDS = {
    "RTX PRO 6000 Blackwell Workstation": ("12.0", 97887, "yes", False),
    "RTX 5090": ("12.0", 32607, "no", False),
    "RTX 3090": ("8.6", 24576, "no", False),
    "RTX 2080 Ti": ("7.5", 11264, "no", False),
    "RTX 4090": ("8.9", 24564, "unknown", False),
    "L4": ("8.9", 23034, "unknown", False),
    "L40S": ("8.9", 46068, "unknown", False),
    "A100 80GB SXM": ("8.0", 81920, "yes", False),
    "H100 80GB SXM": ("9.0", 81559, "yes", False),
    "H200": ("9.0", 143771, "yes", False),
    "B200": ("10.0", 183359, "yes", False),
    "GB10": ("12.1", 124000, "unknown", True),
}
IMAGES = [
    ("vllm/vllm-openai:v0.20.1", "0.20.1", False),
    ("vllm/vllm-openai:v0.24.0-cu129", "0.24.0", False),
    ("vllm/vllm-openai:v0.28.0", "0.28.0", False),
    ("vllm/vllm-openai:v0.33.0", "0.33.0", False),
    ("repne/vllm:v13", "0.1.dev17130+g155fef0e5.d20260526", True),
    ("repne/vllm:v17", "0.1.dev17236+g50272be4a.d20260602", True),
]
OPTIONS = list(
    itertools.product(
        ["bf16", "fp8", "nvfp4", "int4-autoround"],
        [("none", 0), ("mtp", 3), ("dflash", 8)],
        ["bf16", "fp8"],
        [1, 2, 4],
        ["linux", "wsl2"],
    )
)


@pytest.mark.parametrize("card", CARDS)
def test_no_two_rules_disagree_over_the_scenario_grid(card: str) -> None:
    capability, vram, p2p, unified = CARDS[card]
    seen = 0
    for (image, version, fork), (quant, draft, kv, tp, os) in itertools.product(IMAGES, OPTIONS):
        facts: dict[str, FactValue] = {
            "machine.gpu": card,
            "machine.gpu_count": tp,
            "machine.vram_mib": vram,
            "machine.compute_capability": capability,
            "machine.driver": "595.71.05",
            "machine.interconnect": "none" if tp == 1 else ("unified" if unified else "pcie"),
            "machine.p2p": p2p,
            "machine.display": False,
            "machine.unlike_cards": False,
            "machine.os": os,
            "machine.unified_memory": unified,
            "machine.vendor": "nvidia",
            "workload.concurrency": 256,
            "workload.max_context": 524288,
            "workload.vision": False,
            "workload.tools": True,
            "workload.thinking": True,
            "option.engine": "vllm",
            "option.image": image,
            "option.engine_version": version,
            "option.fork": fork,
            "option.checkpoint": f"someone/Qwen3.6-27B-{quant}",
            "option.quant": quant,
            "option.kv_cache_dtype": kv,
            "option.spec_method": draft[0],
            "option.spec_tokens": draft[1],
            "option.tp": tp,
            "option.replicas": 1,
            "option.prefix_cache": False,
            "resolved.max_num_seqs": 256,
            "resolved.max_model_len": 524288,
        }
        fired = [
            result for pass_ in (Pass.ADMIT, Pass.RESOLVE) for result in BOOK.fire(pass_, facts)
        ]
        if any(result.rejects for result in fired):
            continue
        seen += 1
        assert [str(conflict) for conflict in conflicts(fired)] == []
    assert seen > 20 or card == "RTX 2080 Ti"

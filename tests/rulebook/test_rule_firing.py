"""How conditions hold, effects are filled in, stale facts weaken, and disagreement is named."""

from __future__ import annotations

from typing import Any

import pytest

from qwendeploy.rulebook.book import (
    Rule,
    RuleBook,
    conflicts,
    load_rules,
    rule_fires,
    setting_facts,
)
from qwendeploy.rulebook.fields import FactValue, lookup


def rule(identity: str = "a-rule", **parts: Any) -> Rule:
    """Return a rule with defaults; examples are only there because the schema wants them."""
    body: dict[str, Any] = {
        "id": identity,
        "title": "t",
        "pass": "check",
        "severity": "warn",
        "when": {"option.tp": 2},
        "effects": ["warn"],
        "because": "tp {option.tp}",
        "sources": ["somewhere"],
        "certainty": "observed",
        "about": "--tensor-parallel-size",
        "fix": "none",
        "examples": [{"facts": {}, "fires": True}, {"facts": {}, "fires": False}],
    }
    return Rule.model_validate(body | parts)


@pytest.mark.parametrize(
    ("condition", "facts", "holds"),
    [
        ({"option.tp": 2}, {"option.tp": 2}, True),
        ({"option.tp": 2}, {}, False),
        ({"option.tp": {"ne": 2}}, {}, False),
        ({"option.tp": {"not_in": [2]}}, {}, False),
        ({"option.tp": [1, 2]}, {"option.tp": 2}, True),
        ({"option.tp": {"ge": 2, "lt": 4}}, {"option.tp": 4}, False),
        ({"machine.driver": {"lt": "580"}}, {"machine.driver": "575.64.03"}, True),
        ({"machine.driver": {"lt": "580"}}, {"machine.driver": "610.43.02"}, False),
        ({"machine.driver": {"lt": "580"}}, {"machine.driver": "ROCm 7.2.3"}, False),
        (
            {"machine.compute_capability": {"lt": "8.9"}},
            {"machine.compute_capability": "12.0"},
            False,
        ),
        ({"option.prefix_cache": True}, {"option.prefix_cache": True}, True),
        ({"option.image": {"matches": "nightly$"}}, {"option.image": "a:NIGHTLY"}, True),
        (
            {"resolved.max_num_seqs": {"gt": "{memory.pool_blocks}"}},
            {"resolved.max_num_seqs": 1024, "memory.pool_blocks": 556},
            True,
        ),
        (
            {"resolved.max_num_seqs": {"gt": "{memory.pool_blocks}"}},
            {"resolved.max_num_seqs": 9},
            False,
        ),
        ({"resolved.flag.tool-call-parser": "absent"}, {}, True),
        ({"resolved.env.VLLM_USE_V1": {"ne": "absent"}}, {}, False),
        ({"computed.idle_gpus": {"gt": 0}}, {"machine.gpu_count": 4, "option.tp": 2}, False),
        (
            {"computed.idle_gpus": {"gt": 0}},
            {"machine.gpu_count": 4, "option.tp": 2, "option.replicas": 1},
            True,
        ),
    ],
)
def test_condition(condition: dict[str, Any], facts: dict[str, FactValue], holds: bool) -> None:
    assert rule_fires(rule(when=condition), facts) is holds


def test_flags_are_unknown_where_the_command_is_not_complete() -> None:
    book = RuleBook((rule(when={"resolved.flag.tool-call-parser": "absent"}),))
    assert book.fire("check", {}) != ()
    assert book.fire("check", {}, flags_known=False) == ()


def test_a_fact_outside_the_list_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError, match=r"machine\.colour"):
        RuleBook(()).fire("admit", {"machine.colour": "green"})


@pytest.mark.parametrize(
    ("version", "fork", "outcome"),
    [
        ("0.20.1", False, "fires"),
        ("0.20.1rc1", False, "fires"),
        ("0.25.0", False, "stale"),
        ("0.28.0", False, "silent"),
        ("0.1.dev17236+g50272be4a", True, "fires"),
        (None, False, "silent"),
    ],
)
def test_versions_bound_a_rule_and_age_makes_it_a_doubt(
    version: str | None, fork: bool, outcome: str
) -> None:
    applies = {"versions": ">=0.20.0,<0.26.0", "checked_to": "0.24.0"}
    book = RuleBook((rule(applies=applies, severity="reject", effects=["reject"]),))
    facts: dict[str, FactValue] = {"option.tp": 2, "option.fork": fork}
    if version is not None:
        facts["option.engine_version"] = version
    fired = book.fire("check", facts)
    if outcome == "silent":
        assert fired == ()
        return
    assert fired[0].stale is (outcome == "stale")
    assert fired[0].rejects is (outcome == "fires")
    assert ("not checked since" in fired[0].reason) is (outcome == "stale")


def test_effects_carry_values_and_text_carries_facts() -> None:
    flag = {"flag": {"name": "--x", "value": "{resolved.max_num_seqs}/{option.tp}"}}
    fired = RuleBook((rule(severity="require", effects=[flag]),)).fire(
        "check", {"option.tp": 2, "resolved.max_num_seqs": 32}
    )
    assert [effect.value for effect in fired[0].effects] == ["32/2"]
    assert fired[0].reason == "tp 2"


def test_an_effect_whose_value_is_unknown_does_not_happen() -> None:
    flag = {"flag": {"name": "--x", "value": "{resolved.max_num_seqs}"}}
    assert (
        RuleBook((rule(severity="require", effects=[flag]),)).fire("check", {"option.tp": 2}) == ()
    )


def test_json_values_keep_their_braces() -> None:
    value = '{"method":"mtp","num_speculative_tokens":{option.tp}}'
    flag = {"flag": {"name": "--speculative-config", "value": value}}
    (fired,) = RuleBook((rule(severity="require", effects=[flag]),)).fire("check", {"option.tp": 2})
    assert fired.effects[0].value == '{"method":"mtp","num_speculative_tokens":2}'


def test_special_case_overrides_the_general_one() -> None:
    book = RuleBook((rule("general"), rule("special", overrides=["general"])))
    assert [fired.rule.id for fired in book.fire("check", {"option.tp": 2})] == ["special"]


def flagged(identity: str, **effect: Any) -> Rule:
    return rule(identity, severity="require", effects=[effect])


@pytest.mark.parametrize(
    ("first", "second", "clash"),
    [
        ({"flag": {"name": "--a", "value": 1}}, {"flag": {"name": "--a", "value": 2}}, "--a"),
        ({"flag": {"name": "--a", "value": 1}}, {"flag": {"name": "--a", "value": 1}}, None),
        ({"flag": {"name": "--b"}}, {"flag": {"name": "--no-b"}}, "--b"),
        ({"env": {"name": "E", "value": "0"}}, {"env": {"name": "E", "value": "1"}}, "E"),
        (
            {"limit": {"field": "resolved.max_num_seqs", "max": 8}},
            {"limit": {"field": "resolved.max_num_seqs", "max": 4}},
            None,
        ),
        (
            {"limit": {"field": "resolved.max_num_seqs", "max": 8}},
            {"limit": {"field": "resolved.max_num_seqs", "min": 9}},
            "resolved.max_num_seqs",
        ),
    ],
)
def test_disagreement_names_both_rules(
    first: dict[str, Any], second: dict[str, Any], clash: str | None
) -> None:
    book = RuleBook((flagged("one", **first), flagged("two", **second)))
    found = conflicts(book.fire("check", {"option.tp": 2}))
    assert [conflict.what for conflict in found] == ([clash] if clash else [])
    for conflict in found:
        assert {conflict.first, conflict.second} == {"one", "two"}
        assert "one" in str(conflict) and "two" in str(conflict)


def test_settings_become_facts_with_dotted_keys() -> None:
    facts = setting_facts(
        [
            ("--speculative-config", '{"method":"mtp","use_local_argmax_reduction":true}'),
            ("--no-enable-prefix-caching", None),
            ("--language-model-only", None),
            ("--hf-overrides", "{broken"),
        ],
        {"NCCL_P2P_DISABLE": "1"},
    )
    assert facts["resolved.flag.speculative-config.method"] == "mtp"
    assert facts["resolved.flag.speculative-config.use_local_argmax_reduction"] == "true"
    assert facts["resolved.flag.enable-prefix-caching"] == "false"
    assert facts["resolved.flag.language-model-only"] == "true"
    assert facts["resolved.flag.hf-overrides"] == "{broken"
    assert facts["resolved.env.NCCL_P2P_DISABLE"] == "1"


def test_one_fault_is_reported_once_at_its_worst() -> None:
    info = {"id": "fault", "severity": "info"}
    error = {"id": "fault", "severity": "error", "outcome": "fails_at_start"}
    book = RuleBook((rule("one", finding=info), rule("two", finding=error)))
    assert [(f.id, f.severity) for f in book.judge({"option.tp": 2})] == [("fault", "error")]


@pytest.mark.parametrize(
    ("given", "violated"), [("true", False), ("absent", True), ("false", True)]
)
def test_a_required_flag_is_a_finding_only_where_it_is_missing(given: str, violated: bool) -> None:
    needs = rule(
        severity="require",
        effects=[{"flag": {"name": "--x"}}],
        finding={"severity": "warning"},
    )
    facts: dict[str, FactValue] = {"option.tp": 2}
    if given != "absent":
        facts["resolved.flag.x"] = given
    assert bool(RuleBook((needs,)).judge(facts)) is violated


@pytest.mark.parametrize(
    ("image", "version", "cuda"),
    [
        ("vllm/vllm-openai:v0.19.1", "0.19.1", "12.9"),
        ("vllm/vllm-openai:v0.19.1-cu130-ubuntu2404", "0.19.1", "13.0"),
        ("docker.io/vllm/vllm-openai:v0.22.0", "0.22.0", "13.0"),
        ("vllm/vllm-openai:v0.24.0-x86_64-cu129", "0.24.0", "12.9"),
        ("repne/vllm:v17", "0.1.dev17236", None),
        ("vllm/vllm-openai:latest", None, "13.0"),
        ("vllm/vllm-openai:latest-cu129", None, "12.9"),
        ("vllm/vllm-openai@sha256:bbac761a6be4", None, None),
    ],
)
def test_cuda_of_an_image_is_read_from_its_tag(
    image: str, version: str | None, cuda: str | None
) -> None:
    facts: dict[str, FactValue] = {"option.image": image}
    if version is not None:
        facts["option.engine_version"] = version
    assert lookup(facts, "computed.image_cuda") == cuda


@pytest.mark.parametrize("image", ["vllm/vllm-openai:v0.24.0", "repne/vllm:v17"])
def test_a_narrowed_book_answers_as_the_whole_one(image: str) -> None:
    book = load_rules()
    fork = image.startswith("repne")
    known: dict[str, FactValue] = {
        "option.engine": "vllm",
        "option.image": image,
        "option.fork": fork,
        "option.engine_version": "0.1.dev17236" if fork else "0.24.0",
        "option.spec_method": "mtp",
        "option.quant": "fp8",
    }
    narrow = book.narrowed(known)
    for tp, capability in ((1, "12.0"), (2, "8.6"), (8, "7.0")):
        facts = {
            **known,
            "option.tp": tp,
            "option.replicas": 1,
            "option.prefix_cache": True,
            "machine.gpu_count": 4,
            "machine.compute_capability": capability,
            "machine.driver": "575.64.03",
            "machine.gpu": "RTX 5090",
            "machine.interconnect": "pcie",
            "machine.p2p": "no",
            "resolved.max_num_seqs": 256,
            "resolved.max_model_len": 262144,
            "option.spec_tokens": 3,
        }
        for pass_ in ("admit", "resolve", "check"):
            assert narrow.fire(pass_, facts) == book.fire(pass_, facts)

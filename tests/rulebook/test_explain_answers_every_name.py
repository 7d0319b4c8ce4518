"""``explain``: every rule, signature, flag, figure and planning reason; plans; generated pages."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from qwendeploy import api
from qwendeploy.cli.explain import command
from qwendeploy.diagnosis import load_signatures
from qwendeploy.documents import PREDICTION_NAMES
from qwendeploy.documents.files import read_plan
from qwendeploy.errors import UserError
from qwendeploy.figures import Kind
from qwendeploy.reporting.explain_topics import topics
from qwendeploy.reporting.explanation import explain, known_names
from qwendeploy.rulebook.book import load_rules

ROOT = Path(__file__).parents[2]


def run(*args: str) -> str:
    result = CliRunner().invoke(command, args, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_every_known_name_is_answered() -> None:
    for name in known_names():
        assert explain(name), name


def test_every_figure_of_a_plan_is_explained() -> None:
    for name in PREDICTION_NAMES:
        (entry,) = explain(name)
        assert entry.kind == "figure"
        assert entry.facts[0].label == "unit"


def test_every_kind_of_evidence_is_in_the_explanation_of_kinds() -> None:
    text = " ".join(explain("kind")[0].text)
    assert all(kind.value in text for kind in Kind)


def test_cross_references_lead_somewhere() -> None:
    names = set(known_names())
    for entry in (item for name in known_names() for item in explain(name)):
        assert set(entry.see_also) <= names, (entry.topic, set(entry.see_also) - names)


@pytest.mark.parametrize(
    ("name", "kinds", "contains"),
    [
        ("prefix-caching-with-mtp", {"rule"}, "53912"),
        ("kv-cache-too-small", {"signature"}, "--max-model-len"),
        ("argmax-reduction-with-mtp", {"rule", "signature"}, "get_top_tokens"),
        ("--max-num-seqs", {"flag"}, "1024"),
        ("max-num-seqs", {"flag"}, "1024"),
        ("max_num_seqs", {"flag"}, "1024"),
        ("-tp", {"flag"}, "--tensor-parallel-size"),
        ("--no-enable-prefix-caching", {"flag"}, "off from 0.19.0 to 0.27.1"),
        ("--spec-method", {"flag"}, "not yet in 0.21.0"),
        ("--max-num-partial-prefills", {"flag"}, "removed in 0.27.1"),
        ("--disable-log-requests", {"flag"}, "rejected up to 0.32.0"),
        ("--num-scheduler-steps", {"flag"}, "removed"),
        ("draft_sample_method", {"speculative key"}, "greedy, gumbel"),
        ("--speculative-config.method", {"speculative key", "flag"}, "dflash"),
        ("VLLM_SERVER_DEV_MODE", {"variable"}, "0.19.1 to 0.33.0"),
        ("VLLM_ATTENTION_BACKEND", {"variable"}, "removed early in 2026"),
        ("NCCL_P2P_DISABLE", {"variable"}, "1 turns it off"),
        ("quality", {"word"}, "12.8 times"),
        ("quality-class", {"word"}, "exit code is 1"),
        ("operating point", {"word"}, "eighth"),
        ("unpinned-image", {"rule"}, "abandoned-nightly-tag"),
    ],
)
def test_page(name: str, kinds: set[str], contains: str) -> None:
    found = explain(name)
    assert kinds == {entry.kind for entry in found}
    flat = " ".join(run(name).split())
    assert contains in flat
    assert "source" in flat


def test_templates_are_shown_as_names() -> None:
    text = run("capture-covers-seats")
    assert "<capture_needed>" in text
    assert "{" not in text


def test_quality_shows_the_evidence_of_every_class() -> None:
    values = {fact.label: fact.value for fact in explain("quality")[0].facts}
    assert values["Lorbus/Qwen3.6-27B-int4-AutoRound int4-autoround"].startswith("relaxed")
    assert any("the BF16 noise" in value for value in values.values())


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("prefix-caching-with-mpt", "prefix-caching-with-mtp"),
        ("aggregate_decode_tp", "aggregate_decode_tps"),
        ("--max-num-sequences", "--max-num-seqs"),
        ("zzzzqqqq", "lists the topics"),
    ],
)
def test_an_unknown_name_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UserError, match=near):
        explain(name)


def test_without_a_name_the_topics_are_listed() -> None:
    listed = json.loads(run("--json"))["topics"]
    assert set(listed["rules"]) == {rule.id for rule in load_rules().rules}
    assert set(listed["signatures"]) == {signature.id for signature in load_signatures()}
    assert "next: qwendeploy explain NAME" in run()


def test_json_holds_the_whole_explanation() -> None:
    (entry,) = json.loads(run("driver-too-old-for-image", "--json"))["explanations"][:1]
    assert entry["kind"] == "rule"
    assert {fact["label"] for fact in entry["facts"]} >= {"applies", "when", "does", "fix"}
    assert entry["sources"]


def test_topics_are_whole() -> None:
    for name, topic in topics().items():
        assert all(paragraph.rstrip().endswith(".") for paragraph in topic.text), name


def test_a_missing_plan_is_refused_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        api.explain(None, plan_file=tmp_path / "none.yaml")


def test_generated_pages_and_compiled_rules_are_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build_rule_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    told = result.stdout[:2000] + result.stderr[-2000:]
    assert result.returncode == 0, f"{told}\nrun scripts/update rules"


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from plan_samples import sample_plan

    from qwendeploy.documents.files import dump_document

    path = tmp_path_factory.mktemp("plan") / "plan.yaml"
    path.write_text(dump_document(sample_plan()), encoding="utf-8")
    return path


def test_a_plan_explains_its_flags(plan_file: Path) -> None:
    text = run("--plan", str(plan_file))
    assert "rule" in text


def test_a_plan_explains_each_of_its_figures(plan_file: Path) -> None:
    predictions = read_plan(plan_file).predictions
    for name in PREDICTION_NAMES:
        entry = api.explain(name, plan_file=plan_file)[0]
        figure = getattr(predictions, name)
        assert (entry.topic, entry.kind) == (name, "figure")
        if figure is None:
            assert entry.text[0] == predictions.reasons.get(name, entry.text[0])
            continue
        facts = {fact.label: fact.value for fact in entry.facts}
        assert figure.unit in facts["value"] and facts["kind"] == figure.kind.value
        assert facts["n"] == str(figure.n)
        assert facts["band"].startswith("none" if figure.low == figure.high else "[")
        assert entry.sources == ((figure.source,) if figure.source else ())


def test_a_figure_of_a_plan_is_found_however_it_is_spelled(plan_file: Path) -> None:
    assert "blocks" in run("--plan", str(plan_file), "KV-pool-blocks")


def test_a_plan_says_nothing_about_what_it_does_not_hold(plan_file: Path) -> None:
    with pytest.raises(UserError, match="contains nothing about"):
        api.explain("zzzz", plan_file=plan_file)


def _literal_ids(path: Path, calls: set[str]) -> set[str]:
    """Return the ids that a module gives to findings, causes or rejections, as written there."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in calls:
            continue
        named = [word.value for word in node.keywords if word.arg in ("id", "rule")]
        for value in named or node.args[:1]:
            parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
            found |= {str(part.value) for part in parts if isinstance(part, ast.Constant)}
    return found


@pytest.mark.parametrize(
    ("module", "calls", "least"),
    [
        ("auditing/**/argument_findings.py", {"Finding"}, 8),
        ("auditing/**/memory_findings.py", {"Finding", "_seats"}, 6),
        ("auditing/**/system_findings.py", {"Finding"}, 6),
        ("auditing/**/together.py", {"Finding"}, 2),
        ("auditing/**/gguf.py", {"Finding"}, 2),
        ("verification/**/causes*.py", {"Cause"}, 15),
        ("planning/resolve.py", {"Rejection"}, 4),
        ("planning/survey.py", {"TraceEntry", "Rejection"}, 1),
    ],
)
def test_ids_that_other_verbs_print_are_explained(module: str, calls: set[str], least: int) -> None:
    modules = (ROOT / "qwendeploy").glob(module)
    ids = {found for path in modules for found in _literal_ids(path, calls)}
    assert len(ids) >= least
    unexplained = {name for name in ids if name not in known_names()}
    assert unexplained == set()

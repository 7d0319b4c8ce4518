"""Each engine answers for its flags, words and metrics; no other room asks which one it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from qwendeploy.documents import Option
from qwendeploy.engines.interface import Engine
from qwendeploy.engines.llama_cpp.engine import LLAMA_CPP
from qwendeploy.engines.llama_cpp.flags import find_llama_flag
from qwendeploy.engines.registry import COUNTERS, ENGINES, GAUGES
from qwendeploy.engines.vllm.engine import VLLM, speculation, spelled
from qwendeploy.engines.vllm.flags import ReleaseStatus, flag_status, releases

OPTION = Option(
    engine="vllm",
    engine_version="0.26.0",
    image="vllm/vllm-openai:v0.26.0",
    checkpoint="Qwen/Qwen3.6-27B-FP8",
    quant="fp8",
    kv_cache_dtype="fp8",
    spec_method="mtp",
    spec_tokens=3,
    tp=2,
    replicas=1,
    gpu_memory_utilization=0.85,
    max_model_len=262144,
    max_num_seqs=32,
    max_num_batched_tokens=8192,
    prefix_cache=False,
)


def test_every_engine_of_a_plan_is_entered() -> None:
    assert set(ENGINES) == set(get_args(Option.model_fields["engine"].annotation))
    assert {engine.owner for engine in ENGINES.values()} == {"vllm", "llamacpp"}


@pytest.mark.parametrize(
    ("engine", "model", "is_path", "words"),
    [
        (VLLM, "Qwen/Qwen3.6-27B", False, ("Qwen/Qwen3.6-27B",)),
        (VLLM, "/models/qwen", True, ("/models/qwen",)),
        (VLLM, "-odd", False, ("--model=-odd",)),
        (LLAMA_CPP, "me/GGUF:Q8_0", False, ("--hf-repo", "me/GGUF:Q8_0")),
        (LLAMA_CPP, "/models/q8.gguf", True, ("--model", "/models/q8.gguf")),
    ],
    ids=["hub", "folder", "dash", "llama-hub", "llama-file"],
)  # fmt: skip
def test_the_weights_are_named_as_the_engine_takes_them(
    engine: Engine, model: str, is_path: bool, words: tuple[str, ...]
) -> None:
    assert engine.model_words(model, is_path=is_path) == words


def test_only_one_engine_serves_replicas_by_itself() -> None:
    assert VLLM.replica_words(2) == ("--data-parallel-size", "2")
    assert VLLM.replica_words(1) == LLAMA_CPP.replica_words(2) == ()


def test_flags_named_here_are_flags_of_the_engines() -> None:
    for name in (LLAMA_CPP.served_name, LLAMA_CPP.path_flag, LLAMA_CPP.repository_flag):
        assert name is not None and find_llama_flag(name) is not None
    names = {VLLM.served_name, VLLM.replicas_flag, *VLLM.stated(OPTION), *VLLM.needed(OPTION)}
    newest = str(releases()[-1])
    for name in names:
        assert name is not None and flag_status(name, newest).status is ReleaseStatus.KNOWN


def test_an_option_is_spelled_in_flags_that_agree_with_it() -> None:
    flags = {flag.name: flag.value for flag in spelled(OPTION, None)}
    assert set(VLLM.needed(OPTION)) <= set(flags)
    for name, number in VLLM.stated(OPTION).items():
        assert name == VLLM.replicas_flag or float(flags[name] or "nan") == number
    draft = speculation(flags["--speculative-config"])
    assert draft == {"method": "mtp", "num_speculative_tokens": 3}
    assert "--no-enable-prefix-caching" in flags and "--enable-prefix-caching" not in flags
    assert all(VLLM.refusal(OPTION, name, value) is None for name, value in flags.items())


@pytest.mark.parametrize(
    ("name", "value", "at"),
    [
        ("--max-num-sequences", "8", "name"),
        ("--max-num-seqs", "many", "value"),
        ("--speculative-config", '{"method":"mtp","tokens":3}', "value"),
    ],
)
def test_a_release_refuses_at_name_or_value(name: str, value: str, at: str) -> None:
    refusal = VLLM.refusal(OPTION, name, value)
    assert refusal is not None and refusal.at == at and "vLLM 0.26.0" in refusal.text
    unread = OPTION.model_copy(update={"engine_version": "0.50.0"})
    assert VLLM.refusal(unread, name, value) is None
    assert LLAMA_CPP.refusal(OPTION, name, value) is None


def test_requests_get_time_to_end_where_the_release_can() -> None:
    assert VLLM.ending(OPTION, 50) == (("--shutdown-timeout", "50"),)
    assert VLLM.ending(OPTION.model_copy(update={"engine_version": "0.50.0"}), 50) == ()
    assert LLAMA_CPP.ending(OPTION, 50) == ()


def test_every_metric_is_one_engines_and_one_quantitys() -> None:
    names = [name for found in (COUNTERS, GAUGES) for texts in found.values() for name in texts]
    assert len(names) == len(set(names))
    assert {name.partition(":")[0] for name in names} == {"vllm", "llamacpp", "sglang"}
    assert {"running", "waiting", "kv_usage"} == set(GAUGES)
    assert COUNTERS["generation_tokens"][0] == "vllm:generation_tokens_total"


def test_metric_names_stand_in_the_engines_folders_alone() -> None:
    package = Path(__file__).parents[2] / "qwendeploy"
    named = re.compile(r'"(?:vllm|llamacpp|sglang):\w+')
    holders = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
    }
    assert holders == {"engines"}

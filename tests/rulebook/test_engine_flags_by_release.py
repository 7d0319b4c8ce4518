"""Which release takes which flag, key and variable, and what it does with a value."""

from __future__ import annotations

from typing import Any

import pytest

from qwendeploy.engines.vllm.flags import (
    FlagRow,
    ReleaseStatus,
    engine_size,
    flag_rows,
    flag_status,
    fork_rows,
    read_release,
    releases,
    spec_config_problems,
    value_problem,
)

KNOWN, UNKNOWN, REMOVED, NOT_YET = (
    ReleaseStatus.KNOWN,
    ReleaseStatus.UNKNOWN,
    ReleaseStatus.REMOVED,
    ReleaseStatus.NOT_YET,
)


@pytest.mark.parametrize(
    ("flag", "version", "status", "told"),
    [
        ("--max-num-seqs", "0.19.1", KNOWN, ""),
        ("--max_num_seqs", "0.33.0", KNOWN, ""),
        ("-tp", "0.20.1", KNOWN, ""),
        ("-sc", "0.20.1", KNOWN, ""),
        ("-O3", "0.24.0", KNOWN, ""),
        ("--language-model-only", "0.19.1", KNOWN, ""),
        ("--speculative-config.num_speculative_tokens", "0.20.1", KNOWN, ""),
        ("--spec-method", "0.20.1", NOT_YET, "0.22.0"),
        ("--spec-tokens", "0.21.0", NOT_YET, "--speculative-config"),
        ("--spec-method", "0.22.0", KNOWN, ""),
        ("--watermark", "0.23.0", NOT_YET, "0.24.0"),
        ("--max-num-partial-prefills", "0.26.0", KNOWN, ""),
        ("--max-num-partial-prefills", "0.27.1", REMOVED, "0.26.0"),
        ("--max-long-partial-prefills", "0.27.1", REMOVED, "0.26.0"),
        ("--calculate-kv-scales", "0.28.0", REMOVED, "0.27.1"),
        ("--disable-log-requests", "0.19.1", REMOVED, "--no-enable-log-requests"),
        ("--disable-log-requests", "0.32.0", REMOVED, "--no-enable-log-requests"),
        ("--disable-log-requests", "0.33.0", KNOWN, ""),
        ("--num-scheduler-steps", "0.24.0", REMOVED, "before 0.19"),
        ("--guided-decoding-backend", "0.24.0", REMOVED, "--structured-outputs-config"),
        ("--max-num-sequences", "0.24.0", UNKNOWN, "--max-num-seqs"),
        ("--tensor-paralel-size", "0.24.0", UNKNOWN, "--tensor-parallel-size"),
        ("--frobnicate", "0.24.0", UNKNOWN, "in no release"),
        ("--enable-chunked", "0.24.0", KNOWN, ""),
        ("--max-num", "0.24.0", UNKNOWN, ""),
    ],
)
def test_flag(flag: str, version: str, status: ReleaseStatus, told: str) -> None:
    answer = flag_status(flag, version)
    assert answer.status is status, answer.message
    assert told in answer.message
    assert answer.checked


@pytest.mark.parametrize(
    ("flag", "version", "negative"),
    [
        ("--enable-prefix-caching", "0.24.0", False),
        ("--no-enable-prefix-caching", "0.24.0", True),
        ("--disable-prefix-caching", "0.33.0", True),
        ("--no-enable-pref", "0.24.0", True),
    ],
)
def test_a_spelling_that_switches_off(flag: str, version: str, negative: bool) -> None:
    answer = flag_status(flag, version)
    assert answer.row is not None
    assert answer.row.name == "--enable-prefix-caching"
    assert answer.negative is negative


@pytest.mark.parametrize(
    ("version", "release", "read"),
    [
        ("0.20.1", "0.20.1", True),
        ("0.20.2", "0.20.1", True),
        ("0.25.0", "0.25.1", True),
        ("0.21.1rc1.dev323+g1fc2cee50", "0.21.0", True),
        ("0.17.0", "0.19.1", False),
        ("0.40.0", "0.33.0", False),
        (None, "0.33.0", False),
        ("latest", "0.33.0", False),
    ],
)
def test_release_that_answers(version: str | None, release: str, read: bool) -> None:
    found, checked = read_release(version)
    assert (str(found), checked) == (release, read)


def test_a_release_that_was_not_read_is_a_doubt() -> None:
    answer = flag_status("--frobnicate", "0.40.0")
    assert not answer.checked
    assert "was not read" in answer.message


@pytest.mark.parametrize(
    ("key", "version", "status"),
    [
        ("use_local_argmax_reduction", "0.19.1", KNOWN),
        ("attention_backend", "0.19.1", NOT_YET),
        ("attention_backend", "0.20.1", NOT_YET),
        ("attention_backend", "0.32.0", KNOWN),
        ("draft_sample_method", "0.20.1", NOT_YET),
        ("draft_sample_method", "0.32.0", KNOWN),
        ("kv_cache_dtype", "0.20.1", NOT_YET),
        ("kv_cache_dtype", "0.32.0", KNOWN),
        ("speculative_token_tree", "0.21.0", REMOVED),
        ("num_spec_tokens", "0.23.0", UNKNOWN),
    ],
)
def test_speculative_key(key: str, version: str, status: ReleaseStatus) -> None:
    assert flag_status(key, version, False, "spec_key").status is status


@pytest.mark.parametrize(
    ("config", "version", "fork", "bad"),
    [
        ({"method": "mtp", "num_speculative_tokens": 3}, "0.20.1", False, []),
        ({"method": "qwen3_5_mtp", "num_speculative_tokens": "3"}, "0.19.1", False, []),
        ({"method": "mtp", "num_spec_tokens": 3}, "0.23.0", False, ["num_spec_tokens"]),
        ({"method": "dflash", "num_speculative_tokens": 8}, "0.19.1", False, ["method"]),
        (
            {"method": "mtp", "num_speculative_tokens": "three"},
            "0.20.1",
            False,
            ["num_speculative_tokens"],
        ),
        (
            {"method": "mtp", "draft_sample_method": "gumbel"},
            "0.20.1",
            False,
            ["draft_sample_method"],
        ),
        ({"method": "mtp", "draft_sample_method": "gumbel"}, "0.21.0", False, []),
        (
            {"method": "mtp", "draft_sample_method": "gumbel"},
            "0.22.0",
            False,
            ["draft_sample_method"],
        ),
        ({"method": "mtp", "rejection_sample_method": "strict"}, "0.20.1", False, []),
        (
            {"method": "mtp", "rejection_sample_method": "strict"},
            "0.32.0",
            False,
            ["rejection_sample_method"],
        ),
        ({"method": "dflash", "draft_sample_method": "gumbel"}, "0.1.dev17236", True, []),
        ({"method": "dflash", "attention_backend": "flashinfer"}, None, True, []),
    ],
)
def test_speculative_configuration(
    config: dict[str, Any], version: str | None, fork: bool, bad: list[str]
) -> None:
    assert [key for key, _ in spec_config_problems(config, version, fork)] == bad


def test_a_misspelt_key_names_the_right_one() -> None:
    ((_, problem),) = spec_config_problems({"num_spec_tokens": 3}, "0.23.0")
    assert "num_speculative_tokens" in getattr(problem, "message", "")


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("VLLM_ATTENTION_BACKEND", "0.26.0", UNKNOWN),
        ("VLLM_NVFP4_GEMM_BACKEND", "0.23.0", KNOWN),
        ("VLLM_NVFP4_GEMM_BACKEND", "0.24.0", REMOVED),
        ("VLLM_ALLREDUCE_USE_SYMM_MEM", "0.20.1", KNOWN),
        ("VLLM_SERVER_DEV_MODE", "0.33.0", KNOWN),
        ("VLLM_USE_DEEP_GEMM", "0.20.1", KNOWN),
        ("VLLM_TEST_FORCE_FP8_MARLIN", "0.20.1", KNOWN),
    ],
)
def test_variable(name: str, version: str, status: ReleaseStatus) -> None:
    assert flag_status(name, version, False, "env").status is status


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256k", 256_000),
        ("256K", 262_144),
        ("8192", 8192),
        ("25.6k", 25_600),
        ("1.5K", None),
        ("auto", -1),
        ("-1", -1),
        ("9X", None),
        ("", None),
        ("8 192", None),
    ],
)
def test_size_as_the_engine_reads_it(text: str, size: int | None) -> None:
    assert engine_size(text) == size


def row(flag: str, version: str = "0.24.0") -> FlagRow:
    found = flag_status(flag, version).row
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("--max-model-len", "256K", None),
        ("--max-model-len", "auto", None),
        ("--max-model-len", "256kb", "takes a size"),
        ("--max-num-batched-tokens", "8k", None),
        ("--max-num-batched-tokens", "auto", "takes a size"),
        ("--max-num-seqs", "32", None),
        ("--max-num-seqs", "1_024", None),
        ("--max-model-len", "131_072", None),
        ("--max-model-len", "131__072", "size"),
        ("--max-num-seqs", "32.5", "whole number"),
        ("--gpu-memory-utilization", "0.9", None),
        ("--gpu-memory-utilization", "90%", "takes a number"),
        ("--kv-cache-dtype", "fp8", None),
        ("--kv-cache-dtype", "fp16", "does not take"),
        ("--dtype", "bf16", "does not take"),
        ("--enforce-eager", None, None),
        ("--enforce-eager", "true", "takes no value"),
        ("--disable-log-stats", "1", "takes no value"),
        ("--port", None, "needs a value"),
        ("--tool-call-parser", "qwen3_xml", None),
        ("--tool-call-parser", "qwen3_coder", None),
        ("--tool-call-parser", "qwen3-xml", "nearest: qwen3_xml"),
        ("--reasoning-parser", "qwen3", None),
        ("--reasoning-parser", "qwen", "does not take"),
        ("--speculative-config", '{"method":"mtp"}', None),
        ("--speculative-config", '{"method":"mtp"', "not valid JSON"),
        ("--max-num-seqs", "$SEATS", None),
        ("--max-num-seqs", "${SEATS:-32}", None),
    ],
)
def test_value(flag: str, value: str | None, problem: str | None) -> None:
    answer = value_problem(row(flag), value)
    assert (answer is None) if problem is None else (answer is not None and problem in answer)


def test_defaults_follow_the_release() -> None:
    assert row("--gpu-memory-utilization", "0.19.1").default == "0.9"
    assert row("--gpu-memory-utilization", "0.20.1").default == "0.92"
    assert row("--enable-prefix-caching").default is None


def test_rows_of_one_name_do_not_overlap_and_name_their_neighbours() -> None:
    order = {str(version): index for index, version in enumerate(releases())}
    seen: dict[tuple[str, str], int] = {}
    for item in flag_rows():
        key = (item.kind, item.name)
        start, end = order[item.since], order[item.until]
        assert seen.get(key, -1) < start <= end
        seen[key] = end
        assert (item.absent_to is None) == (start == 0)
        assert (item.absent_from is None) == (end == len(order) - 1)


@pytest.mark.parametrize("flag", ["--language-model-only", "--attention-backend", "--max-num-seqs"])
def test_fork_is_answered_from_its_base_and_never_as_read(flag: str) -> None:
    answer = flag_status(flag, "0.1.dev17236+g50272be4a", True)
    assert answer.status is KNOWN
    assert not answer.checked
    assert {item.name for item in fork_rows()} >= {"draft_sample_method"}


def test_an_unknown_flag_of_a_fork_is_a_doubt() -> None:
    answer = flag_status("--frobnicate", None, True)
    assert answer.status is UNKNOWN
    assert not answer.checked

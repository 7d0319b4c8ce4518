"""What ``--fix`` prints is audited again: what is still found was said to be left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from qwendeploy.auditing.correcting.correct import correct
from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.judging.judge import judge_launch
from qwendeploy.auditing.reading.launch import Container, ForeignLaunch, VisibleGpus
from qwendeploy.auditing.reading.read import read_launch_text, read_launches
from qwendeploy.auditing.reading.text import Word
from qwendeploy.auditing.request import AuditRequest
from qwendeploy.auditing.run import CorrectedCommand, audit_fix
from qwendeploy.auditing.understanding.context import described
from qwendeploy.errors import UserError

FOLDER = Path(__file__).parents[1] / "data" / "audit_own"
SAFE = YAML(typ="safe", pure=True)


def _cases() -> list[dict[str, Any]]:
    cases = [case for path in sorted(FOLDER.glob("*.yaml")) for case in SAFE.load(path)]
    return [case for case in cases if case["findings"]]


def _told(findings: tuple[Finding, ...]) -> set[str]:
    return {found.id for found in findings if found.severity != "info"}


def _keys(text: str, launch: ForeignLaunch) -> ForeignLaunch:
    """Return a launch with the keys of a compose service or of a pod pasted into it."""
    keys = SAFE.load(text)
    words = keys.get("args") or keys.get("command") or []
    given = keys.get("environment") or keys.get("env") or {}
    env = given if isinstance(given, dict) else {item["name"]: item["value"] for item in given}
    box = launch.container
    if box is not None and ("ipc" in keys or "volumeMounts" in keys):
        box = replace(box, shared_memory=True)
    if box is not None and ("deploy" in keys or "resources" in keys):
        box = replace(box, gpus=VisibleGpus(True, None, (), launch.place))
    if box is not None and "volumes" in keys and "volumeMounts" not in keys:
        more = tuple(Word(str(volume), launch.place) for volume in keys["volumes"])
        box = replace(box, volumes=(*box.volumes, *more))
    return replace(
        launch,
        arguments=tuple(Word(str(word), launch.place) for word in words),
        env={name: Word(str(value), launch.place) for name, value in env.items()},
        container=box,
        lost=(),
        repeated=None,
    )


def _pasted(text: str, launch: ForeignLaunch) -> ForeignLaunch:
    """Return what a corrected text starts, in the file that it came from."""
    if text.startswith(("command:", "args:", "entrypoint:")):
        return _keys(text, launch)
    name = "Dockerfile" if text.startswith("FROM") else "run.sh"
    read = read_launch_text(text, "x.service" if text.startswith("[") else name)[0]
    boxes: tuple[Container | None, Container | None] = (launch.container, read.container)
    before, after = boxes
    if before is None or after is None:
        return read
    if text.startswith("[Container]"):
        assert after.gpus is not None
        gpus = after.gpus if after.gpus.passed else before.gpus
        shared = after.shared_memory or before.shared_memory
        return replace(read, container=replace(before, gpus=gpus, shared_memory=shared))
    return replace(read, container=before) if text.startswith("FROM") else read


@pytest.mark.parametrize("case", _cases(), ids=lambda case: str(case["id"]))
def test_what_is_found_again_was_said_to_be_left(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case["files"].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    context = described(case["machine"])
    whole = case.get("directory", False)
    for launch in read_launches(tmp_path if whole else tmp_path / next(iter(case["files"]))):
        judged = judge_launch(launch, context)
        if not _told(judged.findings):
            continue
        corrected = correct(judged)
        try:
            again = judge_launch(_pasted(corrected.text, launch), context)
        except UserError as problem:
            pytest.fail(f"{problem}\n{corrected.text}")
        said = {found.id for found in corrected.left}
        assert _told(again.findings) <= said, corrected.text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("llama-server -m q.gguf -ngl 99 -fa -c 32k -np 1", "-fa on"),
        ("llama-server -m q.gguf -ngl 99 -fa -c 32k -np 1", "-c 32768"),
        ("./bin/llama-server --model=q.gguf --ctx-size=4096", "./bin/llama-server"),
        ("llama-server --model=q.gguf --ctx-size=4096", "--ctx-size 4096"),
        ("llama-server -m q.gguf --draft-max 3 $MORE", "--spec-draft-n-max 3"),
        ("llama-server -m q.gguf --draft-max 3 $MORE", "$MORE"),
        ("llama-server -m q.gguf --max-model-len 65536", "--ctx-size 65536"),
        ("llama-server -m q.gguf -fa off -ctk q8_0 -ctv q8_0", "-fa on"),
    ],
)
def test_a_llama_server_is_corrected_as_its_parser_reads_it(text: str, line: str) -> None:
    launch = read_launch_text(text, "run.sh")[0]
    corrected = correct(judge_launch(launch, described({"gpu": "RTX 3090", "vram_mib": 24576})))
    lines = [part.strip(" \\") for part in corrected.text.splitlines()]
    assert line in lines


MACHINE = {"gpu": "RTX PRO 6000", "gpus": 2}
SHELL_POD = """
apiVersion: v1
kind: Pod
metadata: {name: q}
spec:
  containers:
  - name: a
    image: vllm/vllm-openai:v0.26.0
    command: ["/bin/sh", "-c"]
    args: ["vllm serve Qwen/Qwen3.6-27B-FP8 --max-model-len 65536 --max-num-batched-token 4096"]
    resources: {limits: {nvidia.com/gpu: 1}}
"""
QUADLET = """
[Container]
Image=docker.io/vllm/vllm-openai:v0.26.0
AddDevice=nvidia.com/gpu=all
PublishPort=127.0.0.1:8000:8000
Exec=Qwen/Qwen3.6-27B-FP8 --max-model-len 65536 --max-num-seqs 16
"""
TWO = """
services:
  a:
    image: vllm/vllm-openai:v0.26.0
    profiles: [one]
    gpus: all
    command: Qwen/Qwen3.6-27B-FP8 --max-model-len 65536 --max-num-seqs 8
  b:
    image: vllm/vllm-openai:v0.26.0
    profiles: [two]
    entrypoint: [sh, -c]
    gpus: all
    command: ["vllm serve Qwen/Qwen3.6-27B-FP8 --max-model-len 65536 --max-num-sequences 8"]
"""


def _fixed(text: str, name: str, tmp_path: Path) -> CorrectedCommand:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return audit_fix(AuditRequest(source=tmp_path / name, machine=MACHINE))


def test_a_shell_in_a_pod_gives_way_to_the_program_it_ran(tmp_path: Path) -> None:
    keys = SAFE.load(_fixed(SHELL_POD, "pod.yaml", tmp_path).text)

    assert keys["command"] == ["vllm", "serve"]
    assert keys["args"][0] == "Qwen/Qwen3.6-27B-FP8"
    assert "--max-num-batched-tokens" in keys["args"]


def test_a_quadlet_finds_home_by_systemds_own_name(tmp_path: Path) -> None:
    text = _fixed(QUADLET, "q.container", tmp_path).text

    assert "Volume=%h/.cache/huggingface:/root/.cache/huggingface" in text.splitlines()
    assert "the others stay" in text


def test_every_launch_of_a_file_is_corrected_under_its_name(tmp_path: Path) -> None:
    corrected = _fixed(TWO, "compose.yaml", tmp_path)
    first, second = corrected.text.split("# b ")

    assert first.startswith("# a (")
    assert "entrypoint" not in SAFE.load(first)
    keys = SAFE.load("# b " + second)
    assert keys["entrypoint"] == ["vllm", "serve"]
    assert keys["command"][keys["command"].index("--max-num-seqs") + 1] == "8"
    assert {note.partition(":")[0] for note in corrected.notes} == {"a", "b"}


CARD_3090 = {"gpu": "NVIDIA GeForce RTX 3090", "count": 1, "vram_mib": 24576}
LLAMA = "llama-server -m Qwen3.6-27B-Q4_K_M.gguf --host 127.0.0.1 -ngl 99 -c 32768 -np 1 -fa on"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("-ctk q4_9 -ctv q4_0", "-ctk q4_0"),
        ("-ctk q8_1 -ctv q8_0", "-ctk q8_0"),
        ("--spec-tokens 3", "--spec-draft-n-max 3"),
        ("--num-speculative-tokens 3", "--spec-draft-n-max 3"),
        ("--spec-type draft-mpt --spec-draft-n-max 2", "--spec-type draft-mtp"),
        ("--spec-type draft-mtp,ngram-mop", "--spec-type draft-mtp,ngram-mod"),
        ("--max-num-batched-tokens 512", "--batch-size 512"),
    ],
)
def test_a_llama_server_gets_the_nearest_value_it_takes(
    given: str, written: str, tmp_path: Path
) -> None:
    corrected = _fixed(f"{LLAMA} {given}", "run.sh", tmp_path)
    assert written in corrected.text
    again = judge_launch(read_launch_text(corrected.text, "run.sh")[0], described(CARD_3090))
    assert not any(found.severity == "error" for found in again.findings)


@pytest.mark.parametrize(
    "given", ["--spec-type 3", "--kv-cache-dtype fp8", "-ctk int8", "--spec-type draft-mtp,3"]
)
def test_a_value_that_no_option_takes_is_left_to_the_author(given: str, tmp_path: Path) -> None:
    corrected = _fixed(f"{LLAMA} {given}", "run.sh", tmp_path)
    assert given in corrected.text
    assert corrected.errors_left


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{LLAMA} -ctk q8_1 -ctv q8_0".replace("Q4_K_M", "Q8_0"), "gguf-does-not-fit"),
        (f"{LLAMA} --spec-tokens 3".replace("32768", "262144"), "gguf-does-not-fit"),
        (
            "vllm serve Qwen/Qwen3.6-27B-FP8 --host 127.0.0.1 --kv-cache-dtype fp9",
            "weights-do-not-fit",
        ),
    ],
)
def test_memory_is_judged_beside_flags_that_stop_the_start(text: str, name: str) -> None:
    context = described({**CARD_3090, "vllm_version": "0.24.0"})
    found = judge_launch(read_launch_text(text, "run.sh")[0], context).findings
    errors = {item.id for item in found if item.severity == "error"}
    assert name in errors and errors & {"bad-flag-value", "unknown-flag"}

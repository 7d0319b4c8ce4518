"""Functions of scripts and presets of a router are followed, whatever they hold, within bounds."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from qwendeploy.auditing.judging.judge import judge_launch
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.read import read_launch_bytes, read_launch_text, read_launches
from qwendeploy.auditing.understanding.context import described
from qwendeploy.errors import UserError

SLOWEST_S = 10.0
"""A text of the largest size takes a second or two on a laptop; a bomb would take hours."""


def texts(launch: ForeignLaunch) -> list[str]:
    return [word.text for word in launch.arguments]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ('run() { vllm serve "$1" --port $2; }\nrun m 8001\n', ["m", "--port", "8001"]),
        (
            'function run {\n  local m=$1; shift\n  vllm serve "$m" "$@"\n}\nrun m -tp 2',
            ["m", "-tp", "2"],
        ),
        ('run() { vllm serve ${1:-m} --port "${2:-8000}"; }\nrun', ["m", "--port", "8000"]),
        ('a() { b "$1"; }\nb() { vllm serve "$1"; }\na m\n', ["m"]),
        ('unused() { vllm serve "$1"; }\n', ["$1"]),
        (
            "run() {\n  # a brace } in a comment\n  vllm serve m --x '}'\n}\nrun\n",
            ["m", "--x", "}"],
        ),
        ("A='--port 1'\nA+=' -tp 2'\nvllm serve m $A\n", ["m", "--port", "1", "-tp", "2"]),
        ("F=(-tp 2)\nF+=(--port 1)\nvllm serve m ${F[@]}\n", ["m", "-tp", "2", "--port", "1"]),
        ("vllm serve m --port 1 &> log\n", ["m", "--port", "1"]),
        ("vllm serve m --port 1 > log 2>&1\n", ["m", "--port", "1"]),
        ("vllm serve m --port 1 2>log\n", ["m", "--port", "1"]),
        ('$M = "m"\n& "C:\\x y\\llama-server.exe" -m $M `\n -c 1\n', ["-m", "m", "-c", "1"]),
    ],
)
def test_what_a_function_is_given_reaches_the_server(script: str, arguments: list[str]) -> None:
    (launch,) = read_launch_text(script, "run.sh")
    assert texts(launch) == arguments


def test_calls_keep_the_line_of_the_body_and_every_call_is_one_launch() -> None:
    script = "x=1\nrun() {\n  vllm serve m --port $1\n}\nrun 1 &\nrun 2 &\n"
    launches = read_launch_text(script, "run.sh")
    assert [launch.arguments[2].text for launch in launches] == ["1", "2"]
    assert {launch.arguments[0].place.line for launch in launches} == {3}
    assert all(launch.stays for launch in launches)


def test_of_a_condition_one_branch_is_taken() -> None:
    script = "case $1 in\n a) vllm serve a & ;;\n b) vllm serve b & ;;\nesac\nvllm serve c\n"
    one, two, three = read_launch_text(script, "run.sh")
    assert one.branch and two.branch and one.branch != two.branch
    assert not three.branch and not three.stays


PRESETS = """
[*]
c = 131072
jinja = true
; a comment
[one]
model = /m/Qwen3.6-27B-Q8_0.gguf
no-mmap = true
[two]
LLAMA_ARG_MODEL = /m/Qwen3.6-27B-Q4_K_M.gguf
mmap = false
"""


def test_each_section_of_a_preset_file_is_a_server(tmp_path: Path) -> None:
    (tmp_path / "p.ini").write_text(PRESETS)
    (tmp_path / "run.sh").write_text("llama-server --models-preset p.ini --port 8080\n")
    one, two = read_launches(tmp_path / "run.sh")
    assert (one.name, two.name) == ("one", "two")
    assert texts(one)[:5] == ["-c", "131072", "--jinja", "--model", "/m/Qwen3.6-27B-Q8_0.gguf"]
    assert texts(one)[5:] == ["--no-mmap", "--port", "8080"]
    assert texts(two)[3:6] == ["--model", "/m/Qwen3.6-27B-Q4_K_M.gguf", "--no-mmap"]


@pytest.mark.parametrize("name", ["../p.ini", "/etc/passwd", "missing.ini", "$FILE"])
def test_preset_files_elsewhere_are_named_and_not_opened(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "p.ini").write_text("[secret]\nmodel = x\n")
    (folder / "run.sh").write_text(f"llama-server --models-preset {name} --port 8080\n")
    (launch,) = read_launches(folder / "run.sh")
    assert launch.unread == (f"configuration file {name}",)


def test_drop_ins_beside_a_unit_count_and_links_out_of_the_folder_do_not(tmp_path: Path) -> None:
    folder = tmp_path / "units"
    (folder / "q.service.d").mkdir(parents=True)
    (folder / "q.service").write_text(
        "[Service]\nEnvironment=P=1\nExecStart=vllm serve m --port $P\n"
    )
    (folder / "q.service.d" / "a.conf").write_text("[Service]\nEnvironment=P=2\n")
    (tmp_path / "b.conf").write_text("[Service]\nEnvironment=P=3\n")
    (folder / "q.service.d" / "b.conf").symlink_to(tmp_path / "b.conf")
    (launch,) = read_launches(folder / "q.service")
    assert texts(launch) == ["m", "--port", "2"]


BOMBS = {
    "calls-of-calls": "".join(f"f{n}() {{ " + f"f{n + 1}; " * 50 + "}\n" for n in range(5))
    + "f0\n",
    "itself": "f() { f; f; f; vllm serve m; }\nf\n",
    "long-body": "f() { # " + "x" * 15_000 + "\n f; f\n}\n" + "f\n" * 500,
    "open-braces": "f() {\n" * 4_000 + "f\n",
    "growing": "f() { A=$A$A$A$A; vllm serve $A; }\nA=aaaaaaaa\n" + "f\n" * 200,
    "conditions": "if a; then\n" * 20_000,
    "case-arms": "case a in\n" + "x) y ;;\n" * 15_000,
    "parameters": "vllm serve ${1:-" * 5_000,
    "heredocs": "FROM a/vllm\n" + "COPY <<A <<B <<C /x\n" * 5_000,
    "stages": "".join(f"FROM s{n} AS s{n + 1}\n" for n in range(8_000)),
    "drop-in": "[Service]\n" + "ExecStart=\n" * 20_000 + "ExecStart=vllm serve m\n",
    "spans": "[Service]\nTimeoutStartSec=" + "1h " * 60_000 + "\nExecStart=vllm serve m\n",
    "sections": "[Container]\nImage=a/vllm\nPodmanArgs=" + "-e A=1 " * 19_000 + "\nExec=m\n",
    "options": "llama-server " + "-fa " * 19_000,
    "values": "llama-server -c " + "9" * 60_000 + "k",
    "arrays": "A=(" + "x " * 3_000 + ")\n" + "A+=(${A[@]})\n" * 30 + "vllm serve ${A[@]}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_bounded_time(name: str) -> None:
    text = BOMBS[name][: 256 * 1024]
    kind = {"heredocs": "Dockerfile", "stages": "Dockerfile"}.get(name, "run.sh")
    kind = "q.service" if text.startswith("[") else kind
    begun = time.perf_counter()
    with contextlib.suppress(UserError):
        read_launch_text(text, kind)
    assert time.perf_counter() - begun < SLOWEST_S


@pytest.mark.parametrize(
    "text",
    [
        "llama-server -m 'q; touch HERE' -c $(touch HERE) `touch HERE`\n",
        "[Service]\nExecStart=/bin/sh -c 'touch HERE; vllm serve m'\n",
        'FROM a/vllm\nRUN touch HERE\nCMD ["m", "$(touch HERE)"]\n',
        "f() { touch HERE; vllm serve m; }\nf\n",
    ],
)
def test_nothing_that_is_read_is_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(UserError):
        read_launch_bytes(text.encode(), "-")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("llama-server -m q.gguf --nobody-knows 1\n", {"unknown-flag"}),
        ("/src/ik_llama.cpp/build/bin/llama-server -m q.gguf --nobody-knows 1\n", set()),
        ("llama-server -m q.gguf -khad --nobody-knows 1\n", set()),
        ("python3 -m llama_cpp.server --model q.gguf --n_ctx 4096\n", set()),
        ("docker run --gpus all somebody/llama.cpp:x -m /q.gguf --nobody-knows 1\n", set()),
        ("docker run --gpus all ghcr.io/ggml-org/llama.cpp:full-cuda --server -m /q.gguf\n", set()),
        ("llama-server -m q.gguf --mlock\n", set()),
        (
            "docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda -m /q.gguf --mlock\n",
            {"removed-flag"},
        ),
        (
            "docker run --gpus all ghcr.io/ggml-org/llama.cpp:server-cuda-b9246 -m /q.gguf --mlock",
            set(),
        ),
    ],
)
def test_options_of_forks_and_of_known_builds_are_not_called_unknown(
    text: str, told: set[str]
) -> None:
    judged = judge_launch(read_launch_text(text, "run.sh")[0], described({"gpu": "RTX 3090"}))
    found = {item.id for item in judged.findings if item.severity != "info"}
    assert found & {"unknown-flag", "removed-flag", "stray-argument"} == told

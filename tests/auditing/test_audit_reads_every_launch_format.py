"""Launches come out of every format with their arguments, variables, container and places."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwendeploy.auditing.audit import audit_launches
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.read import read_launch_bytes, read_launch_text, read_launches
from qwendeploy.auditing.reading.shell import commands
from qwendeploy.auditing.understanding.context import Context
from qwendeploy.errors import UserError
from qwendeploy.reporting.audit_text import audit_text


def only(text: str, file: str = "run.sh") -> ForeignLaunch:
    (launch,) = read_launch_text(text, file)
    return launch


def texts(launch: ForeignLaunch) -> list[str]:
    return [word.text for word in launch.arguments]


SPEC = '{"method":"mtp","num_speculative_tokens":3}'
ESCAPED = SPEC.replace('"', '\\"')


@pytest.mark.parametrize(
    ("text", "file"),
    [
        pytest.param(
            f"vllm serve Qwen/Qwen3.6-27B-FP8 -tp 2 -sc '{SPEC}'\n", "run.sh", id="vllm-serve"
        ),
        pytest.param(
            "exec env A=1 /opt/venv/bin/vllm serve Qwen/Qwen3.6-27B-FP8 \\\n"
            f"  -tp 2 \\\n  -sc '{SPEC}'",
            "run.sh",
            id="wrapped",
        ),
        pytest.param(
            "python3 -m vllm.entrypoints.openai.api_server Qwen/Qwen3.6-27B-FP8 -tp 2 "
            f"-sc '{SPEC}'",
            "run.sh",
            id="python-module",
        ),
        pytest.param(
            f"nohup bash -c \"vllm serve Qwen/Qwen3.6-27B-FP8 -tp 2 -sc '{ESCAPED}'\" &",
            "run.sh",
            id="bash-c",
        ),
        pytest.param(
            "sudo docker run --gpus all vllm/vllm-openai:v0.24.0 Qwen/Qwen3.6-27B-FP8 "
            f"-tp 2 -sc '{SPEC}'",
            "run.sh",
            id="docker-run",
        ),
        pytest.param(
            "docker run --rm -it --entrypoint vllm --gpus=all img:v0.24.0 serve "
            f"Qwen/Qwen3.6-27B-FP8 -tp 2 -sc '{SPEC}'",
            "run.sh",
            id="entrypoint",
        ),
        pytest.param(
            f"MODEL=Qwen/Qwen3.6-27B-FP8\nARGS=(-tp 2\n  -sc '{SPEC}')\n"
            'docker run --gpus all vllm/vllm-openai:v0.24.0 "$MODEL" "${ARGS[@]}"\n',
            "run.sh",
            id="variables-and-arrays",
        ),
        pytest.param(
            "services:\n  llm:\n    image: vllm/vllm-openai:v0.24.0\n"
            f"    command: Qwen/Qwen3.6-27B-FP8 -tp 2 -sc '{SPEC}'\n",
            "compose.yaml",
            id="compose-text",
        ),
        pytest.param(
            "x-args: &args [Qwen/Qwen3.6-27B-FP8, -tp, '2', -sc, '" + SPEC + "']\n"
            "services:\n  ui: {image: ghcr.io/open-webui/open-webui}\n"
            "  llm:\n    image: vllm/vllm-openai:v0.24.0\n    command: *args\n",
            "docker-compose.yml",
            id="compose-anchor",
        ),
        pytest.param(
            "[Service]\nEnvironment=MODEL=Qwen/Qwen3.6-27B-FP8\n"
            f"ExecStart=/usr/bin/vllm serve ${{MODEL}} -tp 2 \\\n  -sc '{SPEC}'\n",
            "vllm.service",
            id="systemd",
        ),
        pytest.param(
            "[Container]\nImage=docker.io/vllm/vllm-openai:v0.24.0\nAddDevice=nvidia.com/gpu=all\n"
            f"Exec=Qwen/Qwen3.6-27B-FP8 -tp 2 -sc '{SPEC}'\nShmSize=16g\n",
            "vllm.container",
            id="quadlet",
        ),
        pytest.param(
            "apiVersion: apps/v1\nkind: Deployment\n"
            "spec:\n  template:\n    spec:\n      containers:\n"
            "      - name: v\n        image: vllm/vllm-openai:v0.24.0\n"
            "        command: [vllm, serve]\n"
            "        args: [$(MODEL), -tp, '2', -sc, '" + SPEC + "']\n"
            "        env: [{name: MODEL, value: Qwen/Qwen3.6-27B-FP8}]\n",
            "deployment.yaml",
            id="kubernetes",
        ),
        pytest.param(
            '{"Job": {"TaskGroups": [{"Tasks": [{"Driver": "docker", "Env": {"A": "1"}, "Config": '
            '{"image": "vllm/vllm-openai:v0.24.0", "args": ["Qwen/Qwen3.6-27B-FP8", "-tp", "2", '
            f'"-sc", "{ESCAPED}"]}}}}]}}]}}}}',
            "job.json",
            id="nomad-json",
        ),
        pytest.param(
            "containerDefinitions:\n- image: vllm/vllm-openai:v0.24.0\n"
            "  entryPoint: [vllm, serve]\n  environment: [{name: A, value: '1'}]\n"
            "  command: [Qwen/Qwen3.6-27B-FP8, -tp, '2', -sc, '" + SPEC + "']\n",
            "task.yaml",
            id="ecs-task",
        ),
        pytest.param(
            "FROM vllm/vllm-openai:v0.24.0\n"
            'CMD ["Qwen/Qwen3.6-27B-FP8", "-tp", "2", "-sc", "' + ESCAPED + '"]\n',
            "Dockerfile",
            id="dockerfile",
        ),
        pytest.param(
            '[{"Name": "/q", "Config": {"Image": "vllm/vllm-openai:v0.24.0", "Env": ["A=1"],'
            ' "Entrypoint": ["vllm", "serve"], "Cmd": ["Qwen/Qwen3.6-27B-FP8", "-tp", "2", "-sc", "'
            + ESCAPED
            + '"]}, "HostConfig": {"IpcMode": "host", "DeviceRequests": [{"Count": -1}]}}]',
            "q",
            id="docker-inspect",
        ),
        pytest.param(
            "docker run --gpus all `\n vllm/vllm-openai:v0.24.0 "
            f"Qwen/Qwen3.6-27B-FP8 -tp 2 -sc '{SPEC}'",
            "run.ps1",
            id="powershell-continuation",
        ),
    ],
)
def test_the_arguments_come_out(text: str, file: str) -> None:
    launch = only(text, file)
    assert launch.engine == "vllm"
    assert texts(launch) == ["Qwen/Qwen3.6-27B-FP8", "-tp", "2", "-sc", SPEC]


def test_llama_server_is_read() -> None:
    launch = only("CUDA_VISIBLE_DEVICES=0 ./llama-server -m q.gguf -c 65536 -ngl 99 > log 2>&1 &")
    assert launch.engine == "llama.cpp"
    assert texts(launch) == ["-m", "q.gguf", "-c", "65536", "-ngl", "99"]
    assert launch.env["CUDA_VISIBLE_DEVICES"].text == "0"


def test_every_word_keeps_its_line() -> None:
    launch = only(
        "# comment's quote\n\ndocker run \\\n  --gpus all \\\n  img/vllm:v0.24.0 M \\\n  -tp 2\n"
    )
    assert [(word.text, word.place.line) for word in launch.arguments] == [
        ("M", 5),
        ("-tp", 6),
        ("2", 6),
    ]


def test_unknown_variables_stay_symbolic_and_substitutions_are_not_run() -> None:
    launch = only('vllm serve "$MODEL" --port ${PORT:-8001} --x $(rm -rf / ) --y `id`')
    assert texts(launch) == ["$MODEL", "--port", "8001", "--x", "$(...)", "--y", "$(...)"]


def test_single_quotes_keep_a_dollar_sign() -> None:
    assert texts(only("A=1\nvllm serve m --x '$A' \"$A\" \\$A")) == ["m", "--x", "$A", "1", "$A"]


def test_the_container_is_read() -> None:
    launch = only(
        "docker run -dit --gpus '\"device=0,1\"' --ipc=host -p 127.0.0.1:8001:8000 -p 9000:9000 "
        "--env=A=b -e C -eD=e -v /m:/models:ro --network=host --restart always --name q "
        "vllm/vllm-openai:v0.24.0 m"
    )
    box = launch.container
    assert box is not None and box.gpus is not None and box.image is not None
    assert (box.gpus.count, box.gpus.devices) == (2, ("0", "1"))
    assert [(port.address, port.host, port.container) for port in box.ports] == [
        ("127.0.0.1", "8001", "8000"),
        ("", "9000", "9000"),
    ]
    assert {name: word.text for name, word in launch.env.items()} == {
        "A": "b",
        "C": "$C",
        "D": "e",
    }
    assert box.shared_memory and box.network is not None and box.network.text == "host"
    assert (launch.name, box.image.text) == ("q", "vllm/vllm-openai:v0.24.0")


@pytest.mark.parametrize(
    ("options", "passed"),
    [
        ("--gpus all", True),
        ("--runtime=nvidia", True),
        ("--device nvidia.com/gpu=all", True),
        ("--device /dev/kfd --device /dev/dri", True),
        ("", False),
        ("--gpus 0", False),
    ],
)
def test_whether_the_cards_are_handed_in(options: str, passed: bool) -> None:
    box = only(f"docker run {options} vllm/vllm-openai:v0.24.0 m").container
    assert box is not None and box.gpus is not None and box.gpus.passed is passed


@pytest.mark.parametrize(
    ("service", "count"),
    [
        ("gpus: all", None),
        ("runtime: nvidia", None),
        ("deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: 2}]}}}", 2),
        ("deploy: {resources: {reservations: {devices: [{device_ids: ['0']}]}}}", 1),
        ("devices: ['nvidia.com/gpu=all']", None),
    ],
)
def test_compose_hands_in_cards(service: str, count: int | None) -> None:
    text = f"services:\n  l:\n    image: vllm/vllm-openai:v0.24.0\n    command: m\n    {service}\n"
    box = only(text, "compose.yml").container
    assert box is not None and box.gpus is not None
    assert (box.gpus.passed, box.gpus.count) == (True, count)


def test_compose_reads_env_files_beside_it_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TAG=v0.24.0\n")
    (tmp_path / "llm.env").write_text("# c\nexport VLLM_API_KEY='k'\n")
    outside = tmp_path.parent / "secret.env"
    outside.write_text("SECRET=1\n")
    file = tmp_path / "compose.yaml"
    file.write_text(
        "services:\n  l:\n    image: vllm/vllm-openai:${TAG}\n"
        "    command: [m, --port, '${P:-8000}']\n"
        "    env_file: [llm.env, ../secret.env, /etc/passwd]\n    environment: {A: $$B, C: null}\n"
    )
    (launch,) = read_launches(file)
    assert launch.container is not None and launch.container.image is not None
    assert launch.container.image.text == "vllm/vllm-openai:v0.24.0"
    assert {name: word.text for name, word in launch.env.items()} == {
        "VLLM_API_KEY": "k",
        "A": "$B",
        "C": "$C",
    }
    assert launch.unread == ("environment file ../secret.env", "environment file /etc/passwd")


def test_a_directory_gives_every_launch_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("vllm serve one\n")
    (tmp_path / "b.service").write_text("[Service]\nExecStart=vllm serve two\n")
    (tmp_path / "notes.md").write_text("vllm serve three\n")
    found = [launch.arguments[0].text for launch in read_launches(tmp_path)]
    assert found == ["one", "two"]


@pytest.mark.parametrize(
    ("text", "file", "line", "said"),
    [
        ("vllm serve 'm\n--x\n", "run.sh", "run.sh:1", "missing closing quote"),
        ("docker run --gpus all\n", "run.sh", "run.sh:1", "no image"),
        ("docker run --name\n", "run.sh", "run.sh:1", "has no value"),
        ("echo hello\n", "run.sh", "run.sh", "no server command"),
        ("", "run.sh", "run.sh", "no server command"),
        ("services: {a: [}\n", "c.yml", "c.yml:1", "not valid YAML"),
        ("services:\n  a: !!python/object/apply:os.system [id]\n", "c.yml", "c.yml:2", "tag"),
        ("services:\n  a: !x {image: y}\n", "c.yml", "c.yml:2", "tag"),
        ("a: " + "[" * 3000, "c.yml", "c.yml", ""),
        ("services:\n\ta: 1\n", "c.yml", "c.yml:2", "not valid YAML"),
        ('FROM x\nCMD ["a", 1\n', "Dockerfile", "Dockerfile:2", "not a JSON array"),
        ('[{"HostConfig": {}}]', "q", "q", "docker inspect"),
        ("vllm serve " + "x" * 70_000, "run.sh", "run.sh:1", "characters"),
        ("A=1\n" + "A=$A$A\n" * 40 + "vllm serve $A", "run.sh", "run.sh", ""),
    ],
)
def test_bad_text_is_one_message_with_its_place(text: str, file: str, line: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        read_launch_text(text, file)
    assert str(caught.value).startswith(line)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("trtllm-serve Qwen/Qwen3.6-27B-FP8 --tp_size 2\n", "TensorRT-LLM"),
        ("ollama run qwen3.6:27b\n", "Ollama"),
        ("models:\n  q:\n    cmd: |\n      llama-server --port 1 -m q.gguf\n", "llama-swap"),
    ],
)
def test_launches_of_other_servers_are_named_as_unread(text: str, named: str) -> None:
    with pytest.raises(UserError) as caught:
        read_launch_text(text, "q.yaml" if text.startswith("models") else "q.sh")
    assert named in (caught.value.hint or "")


def test_flags_of_sglang_are_said_to_be_unread() -> None:
    text = "python3 -m sglang.launch_server --model-path Qwen/Qwen3.6-27B-FP8 --tp-size 2\n"
    audit = audit_launches(read_launch_text(text, "s.sh"), Context(), compare=False)
    assert "SGLang" in audit.launches[0].unread[0]
    assert "only image, ports and GPUs were checked" in audit_text(audit)
    assert "starts and runs" not in audit_text(audit)


def test_what_powershell_writes_is_read() -> None:
    raw = "vllm serve Qwen/Qwen3.6-27B-FP8 --port 8100\r\n".encode("utf-16")
    assert read_launch_bytes(raw, "s.sh")[0].arguments[0].text == "Qwen/Qwen3.6-27B-FP8"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("vllm serve Q/Q --max-model-len " + "9" * 5000 + " -tp " + "9" * 5000, "n.sh"),
        ("vllm serve Q/Q -tp 99999999999\nvllm serve Q/Q -tp 99999999999", "n.sh"),
        ("docker run --gpus '\u00b2' vllm/vllm-openai:v0.24.0 Q/Q -tp \u00b2", "n.sh"),
        ('[{"Config":{"Cmd":5,"Env":7,"Image":[]},"HostConfig":null}]', "i.json"),
        (
            '[{"Config":{"Image":"vllm/vllm-openai:v0.24.0","Cmd":"Q/Q"},"HostConfig":[1]}]',
            "i.json",
        ),
    ],
)
def test_numbers_and_types_that_nobody_means_are_borne(text: str, name: str) -> None:
    with contextlib.suppress(UserError):
        audit_launches(read_launch_text(text, name), Context(), compare=False)


def test_an_alias_bomb_stays_small() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [
        f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 30)
    ]
    text = "\n".join([*rows, "services:", "  l: {image: vllm/vllm-openai:v1, command: *a29}"])
    launch = only(text, "compose.yml")
    assert launch.arguments == ()


@pytest.mark.parametrize(
    ("raw", "said"),
    [(b"vllm\x00serve", "binary"), (b"\xff\xfe\xfa", "not UTF-8"), (b"x" * 300_000, "KiB")],
)
def test_bytes_that_are_no_text(tmp_path: Path, raw: bytes, said: str) -> None:
    file = tmp_path / "run.sh"
    file.write_bytes(raw)
    with pytest.raises(UserError, match=said):
        read_launches(file)


WORDS = st.lists(
    st.text(
        st.characters(
            codec="utf-8", exclude_characters="\x00$`\r", exclude_categories=["Cs", "Co"]
        ),
        min_size=1,
        max_size=20,
    ),
    min_size=1,
    max_size=8,
)


@given(WORDS)
def test_quoted_words_are_read_back(words: list[str]) -> None:
    text = "program " + " ".join(shlex.quote(word) for word in words)
    (command,) = commands(text, "f")
    assert [word.text for word in command.words[1:]] == words


@given(st.text(max_size=300))
def test_any_text_ends_in_launches_or_one_message(text: str) -> None:
    for name in ("x.sh", "x.yml", "x.service", "Dockerfile"):
        try:
            read_launch_text(text, name)
        except UserError:
            continue

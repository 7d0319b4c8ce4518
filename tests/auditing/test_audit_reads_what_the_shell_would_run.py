"""Shell text as it would run: aliases, here-documents, defaults, parameters, config files."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwendeploy.auditing.audit import audit_launches
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.read import read_launch_text, read_launches
from qwendeploy.auditing.reading.shell import commands
from qwendeploy.auditing.understanding.context import Context, described
from qwendeploy.errors import UserError

H100 = described(
    {
        "gpu": "NVIDIA H100 80GB HBM3",
        "count": 1,
        "vram_mib": 81559,
        "driver": "580.95.05",
        "interconnect": "none",
        "os": "linux",
        "vllm_version": "0.24.0",
    }
)
MODEL = "Qwen/Qwen3.6-27B-FP8"


def _only(text: str) -> ForeignLaunch:
    (launch,) = read_launch_text(text, "launch.sh")
    return launch


def _told(launches: list[ForeignLaunch], context: Context = H100) -> dict[str, str]:
    audit = audit_launches(launches, context, compare=False)
    return {found.id: found.severity for found in audit.findings}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f'alias v="vllm serve"\nv {MODEL} --bogus 1\n', id="alias"),
        pytest.param(f"ssh box bash -s <<EOF\nvllm serve {MODEL} --bogus 1\nEOF\n", id="fed"),
        pytest.param(f"tmux new -d -s q 'vllm serve {MODEL} --bogus 1'\n", id="tmux"),
        pytest.param(
            f"docker run --gpus all --entrypoint bash vllm/vllm-openai:v0.24.0 "
            f"-c 'vllm serve \"$@\"' -- {MODEL} --bogus 1\n",
            id="parameters",
        ),
        pytest.param(f"vllm serve ${{M:-${{N:-{MODEL}}}}} --bogus 1\n", id="nested-default"),
    ],
)
def test_the_launch_inside_is_found(text: str) -> None:
    launch = _only(text)
    assert [word.text for word in launch.arguments] == [MODEL, "--bogus", "1"]
    assert _told([launch])["unknown-flag"] == "error"


def test_a_written_here_document_is_data() -> None:
    launch = _only(f"cat > x.sh <<'EOF'\nvllm serve A/B --bogus\nEOF\nvllm serve {MODEL}\n")
    assert [word.text for word in launch.arguments] == [MODEL]


def test_a_substitution_in_a_default_stays_one_word() -> None:
    (command,) = commands("vllm serve ${M:=$(cat a b)} `c d` x", "s")
    assert [word.text for word in command.words] == ["vllm", "serve", "$(...)", "$(...)", "x"]


def test_aliases_of_each_other_end() -> None:
    assert [c.words[0].text for c in commands('alias a="b"\nalias b="a"\na\n', "s")] == ["b"]


@pytest.mark.parametrize("value", ["nan", "inf", "-0.5"])
def test_what_python_takes_for_a_number_is_refused(value: str) -> None:
    told = _told([_only(f"vllm serve {MODEL} --gpu-memory-utilization {value}")])
    assert told["bad-flag-value"] == "error"


def test_a_blank_argument_is_a_finding_and_no_crash() -> None:
    assert _told([_only(f"vllm serve {MODEL} '   '")])["stray-argument"] == "error"


def test_a_configuration_file_beside_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        f"model: {MODEL}\nhost: 127.0.0.1\ntrust-remote-code: false\nmax-model-length: 4096\n"
        "speculative-config: {method: mtp, num_speculative_tokens: 3}\n",
        encoding="utf-8",
    )
    (tmp_path / "s.sh").write_text("vllm serve --config c.yaml\n", encoding="utf-8")
    launches = read_launches(tmp_path / "s.sh")
    told = _told(launches)
    assert told["unknown-flag"] == "error"
    assert "open-port-without-key" not in told and "model-missing" not in told
    assert not launches[0].unread


@pytest.mark.parametrize("name", ["missing.yaml", "/etc/vllm.yaml", "$CONFIG", "../c.yaml"])
def test_an_unread_configuration_file_leaves_the_rest_open(tmp_path: Path, name: str) -> None:
    (tmp_path / "s.sh").write_text(f"vllm serve --config {name}\n", encoding="utf-8")
    launches = read_launches(tmp_path / "s.sh")
    assert launches[0].unread == (f"configuration file {name}",)
    assert set(_told(launches).values()) <= {"info"}


def test_an_unread_environment_file_may_hold_the_key() -> None:
    text = f"""services:
  v:
    image: vllm/vllm-openai:v0.24.0
    gpus: all
    env_file: /etc/secret.env
    ports: ["8000:8000"]
    volumes: ["/hf:/root/.cache/huggingface"]
    command: [{MODEL}, --max-num-seqs, "64"]
"""
    assert _told(read_launch_text(text, "compose.yaml"))["open-port-without-key"] == "info"


def test_a_hundred_servers_are_not_one_launch() -> None:
    with pytest.raises(UserError, match="servers in one file"):
        read_launch_text("\n".join(f"vllm serve {MODEL}" for _ in range(101)), "s.sh")


@pytest.mark.parametrize(
    ("variable", "seen"),
    [
        pytest.param("CUDA_VISIBLE_DEVICES=0", 1, id="one"),
        pytest.param("CUDA_VISIBLE_DEVICES=1,7,0", 1, id="stops-at-the-unknown-one"),
        pytest.param("CUDA_VISIBLE_DEVICES=-1", 0, id="none"),
        pytest.param("CUDA_VISIBLE_DEVICES=GPU-1a,GPU-2b", 2, id="by-name"),
        pytest.param("NVIDIA_VISIBLE_DEVICES=0", 2, id="not-read-outside-containers"),
    ],
)
def test_cards_are_counted_as_cuda_sees_them(variable: str, seen: int) -> None:
    from qwendeploy.auditing.understanding.understand import understand

    two = described({"gpu": "NVIDIA L40S", "count": 2, "vram_mib": 46068})
    assert understand(_only(f"{variable} vllm serve {MODEL}"), two).gpu_count == seen

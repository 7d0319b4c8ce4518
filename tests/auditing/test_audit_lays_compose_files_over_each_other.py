"""``extends``, ``include`` and the override file: one service out of several texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.read import read_launches

BASE = """
services:
  vllm:
    image: vllm/vllm-openai:v0.24.0
    ipc: host
    environment: {HF_HOME: /hf, VLLM_LOGGING_LEVEL: INFO}
    ports: ["127.0.0.1:8000:8000"]
    volumes: ["/srv/hf:/hf", "/srv/old:/models"]
    command: ["Qwen/Qwen3.6-27B-FP8", "--max-model-len", "65536"]
"""


def launches(folder: Path, files: dict[str, str]) -> list[ForeignLaunch]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return read_launches(folder / next(iter(files)))


UPPER = """
services:
  qwen:
    extends: {file: parts/base.yml, service: vllm}
    environment: ["VLLM_LOGGING_LEVEL=DEBUG", "EXTRA=1"]
    volumes: ["/srv/new:/models"]
    ports: ["127.0.0.1:8001:8001"]
    gpus: all
"""


def test_a_service_of_another_file_is_extended(tmp_path: Path) -> None:
    (launch,) = launches(tmp_path, {"my.yml": UPPER, "parts/base.yml": BASE})
    assert [word.text for word in launch.arguments][:1] == ["Qwen/Qwen3.6-27B-FP8"]
    told = {name: word.text for name, word in launch.env.items()}
    assert told == {"HF_HOME": "/hf", "VLLM_LOGGING_LEVEL": "DEBUG", "EXTRA": "1"}
    assert launch.container is not None
    assert [port.host for port in launch.container.ports] == ["8000", "8001"]
    assert launch.container.volumes[0].text == "/srv/new:/models"
    assert launch.container.shared_memory is True
    assert launch.arguments[0].place.file == "parts/base.yml"
    assert launch.container.image is not None
    assert launch.container.image.place.line == 4
    assert launch.unread == ()


def test_what_an_unread_file_may_hold_is_not_said_to_be_missing(tmp_path: Path) -> None:
    text = UPPER.replace("    gpus: all\n", "    image: vllm/vllm-openai:v0.24.0\n")
    (launch,) = launches(tmp_path, {"my.yml": text})
    assert launch.unread == (
        "the extended file parts/base.yml",
        "configuration file parts/base.yml",
    )
    assert launch.open_ended
    assert launch.container is not None
    assert launch.container.gpus is None
    assert launch.container.shared_memory is None
    assert launch.container.opaque


@pytest.mark.parametrize("base", ["compose.yaml", "compose.yml", "docker-compose.yml"])
@pytest.mark.parametrize("ending", ["yml", "yaml"])
def test_the_override_file_is_laid_over_its_base(base: str, ending: str, tmp_path: Path) -> None:
    override = f"{base.partition('.')[0]}.override.{ending}"
    upper = 'services: {vllm: {command: ["Qwen/Qwen3.6-27B"], gpus: all}}\n'
    (launch,) = launches(tmp_path, {base: BASE, override: upper})
    assert [word.text for word in launch.arguments] == ["Qwen/Qwen3.6-27B"]
    assert launch.container is not None and launch.container.gpus is not None
    assert launch.container.gpus.passed
    (in_folder,) = read_launches(tmp_path)
    assert in_folder.arguments == launch.arguments


def test_another_name_has_no_override(tmp_path: Path) -> None:
    upper = 'services: {vllm: {command: ["Qwen/Qwen3.6-27B"]}}\n'
    (launch,) = launches(tmp_path, {"prod.yml": BASE, "prod.override.yml": upper})
    assert launch.arguments[0].text == "Qwen/Qwen3.6-27B-FP8"


def test_merge_tags_replace_and_remove(tmp_path: Path) -> None:
    upper = """
services:
  vllm:
    ports: !override ["127.0.0.1:9000:8000"]
    environment: !reset null
"""
    (launch,) = launches(tmp_path, {"compose.yml": BASE, "compose.override.yml": upper})
    assert launch.container is not None
    assert [port.host for port in launch.container.ports] == ["9000"]
    assert launch.env == {}


def test_included_files_are_read(tmp_path: Path) -> None:
    found = launches(
        tmp_path,
        {"compose.yml": "include: [parts/base.yml, {path: gone.yml}]\n", "parts/base.yml": BASE},
    )
    assert [launch.name for launch in found] == ["vllm"]


def test_files_outside_the_folder_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "secret.yml").write_text(BASE, encoding="utf-8")
    inner = tmp_path / "project"
    inner.mkdir()
    text = UPPER.replace("parts/base.yml", "../secret.yml")
    text = text.replace("    gpus: all\n", "    image: vllm/vllm-openai:v0.24.0\n")
    (launch,) = launches(inner, {"my.yml": text})
    assert "the extended file ../secret.yml" in launch.unread


def _bomb(name: str) -> str:
    lines = ["x0: &x0 {a: 1, b: 2}"]
    lines += [f"x{n}: &x{n} {{a: *x{n - 1}, b: *x{n - 1}}}" for n in range(1, 30)]
    service = f'{name}: {{labels: *x29, deploy: *x29, image: "vllm/vllm-openai:v0.24.0"}}'
    return "\n".join([*lines, "services:", f"  {service}"])


def test_aliases_that_repeat_each_other_in_both_files_stay_small(tmp_path: Path) -> None:
    found = launches(tmp_path, {"compose.yml": _bomb("q"), "compose.override.yml": _bomb("q")})
    assert [launch.name for launch in found] == ["q"]


def test_a_file_that_every_service_extends_is_read_once(tmp_path: Path) -> None:
    filler = "\n".join(f"  s{n}: {{image: 'a/b:{n}'}}" for n in range(600))
    services = "\n".join(
        f"  q{n}: {{extends: {{file: base.yml, service: vllm}}}}" for n in range(90)
    )
    found = launches(tmp_path, {"my.yml": f"services:\n{services}", "base.yml": BASE + filler})
    assert len(found) == 90


def test_a_circle_of_extensions_ends(tmp_path: Path) -> None:
    text = """
services:
  a: {extends: {file: b.yml, service: b}, image: "vllm/vllm-openai:v0.24.0", command: [m/m]}
"""
    back = "services: {b: {extends: {file: a.yml, service: a}}}\n"
    (launch,) = launches(tmp_path, {"a.yml": text, "b.yml": back})
    assert [word.text for word in launch.arguments] == ["m/m"]

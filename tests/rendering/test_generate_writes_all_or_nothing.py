"""``qwendeploy generate``: whole sets, no silent overwriting, secrets with mode 0600."""

from __future__ import annotations

import io
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plan_samples import sample_plan, setting

from qwendeploy.cli import main
from qwendeploy.documents.files import dump_document
from qwendeploy.documents.identity import plan_id

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        code = stop.value.code
        assert isinstance(code, int)
        return code, out, err

    return run


def stored(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(dump_document(sample_plan(**changes)), encoding="utf-8")
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_set_is_complete(tmp_path: Path, command: Run) -> None:
    plan = stored(tmp_path)

    code, out, err = command("generate", plan, "-f", "compose", "-o", tmp_path / "out")

    assert (code, err) == (0, "")
    modes = {path.name: mode(path) for path in (tmp_path / "out").iterdir()}
    assert modes == {
        "compose.yaml": 0o644,
        "plan.yaml": 0o644,
        "verify.sh": 0o755,
        "secrets.env": 0o600,
    }
    assert (tmp_path / "out" / "plan.yaml").read_text() == plan.read_text()
    assert "next: docker compose" in out


def test_without_output_the_artefact_is_printed_and_nothing_written(
    tmp_path: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = stored(tmp_path)

    code, out, _ = command("generate", plan, "-f", "systemd")

    assert code == 0
    assert "ExecStart=/usr/bin/docker run" in out
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]


def test_generating_beside_the_plan_leaves_it_as_it_is(tmp_path: Path, command: Run) -> None:
    plan = stored(tmp_path)
    plan.write_text("# mine\n" + plan.read_text())

    code, out, _ = command("generate", plan, "-o", tmp_path)

    assert code == 0
    assert plan.read_text().startswith("# mine\n")
    assert f"unchanged  {plan}" in out


def test_repeating_changes_nothing(tmp_path: Path, command: Run) -> None:
    plan = stored(tmp_path)
    command("generate", plan, "-o", tmp_path / "out")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}

    code, out, _ = command("generate", plan, "-o", tmp_path / "out", "--json")

    assert code == 0
    assert json.loads(out)["written"] == []
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert after == before


def test_differing_file_is_shown_and_kept_until_forced(tmp_path: Path, command: Run) -> None:
    plan = stored(tmp_path)
    place = tmp_path / "out"
    command("generate", plan, "-o", place)
    original = (place / "run.sh").read_text()
    (place / "run.sh").write_text(original.replace("--detach", "--interactive"))
    (place / "verify.sh").unlink()

    code, out, err = command("generate", plan, "-o", place)

    assert (code, out) == (2, "")
    assert "-  --interactive" in err and "+  --detach" in err
    assert "--force" in err
    assert "--interactive" in (place / "run.sh").read_text()
    assert not (place / "verify.sh").exists()

    code, _, _ = command("generate", plan, "-o", place, "--force")

    assert code == 0
    assert (place / "run.sh").read_text() == original
    assert (place / "verify.sh").exists()


def test_key_is_made_when_others_reach_the_port_and_kept(tmp_path: Path, command: Run) -> None:
    plan = stored(tmp_path, listen="0.0.0.0")
    place = tmp_path / "out"

    _, out, _ = command("generate", plan, "-o", place)

    text = (place / "secrets.env").read_text()
    key = next(line for line in text.splitlines() if line.startswith("VLLM_API_KEY="))
    assert len(key) > 50
    assert key.partition("=")[2] not in out
    for path in place.iterdir():
        assert path.name == "secrets.env" or key.partition("=")[2] not in path.read_text()

    command("generate", plan, "-o", place, "--force")

    assert (place / "secrets.env").read_text() == text


def test_secrets_of_the_user_stay_and_get_their_mode(tmp_path: Path, command: Run) -> None:
    plan = stored(tmp_path, gated_repositories=("z-lab/Qwen3.6-27B-DFlash",))
    place = tmp_path / "out"
    place.mkdir()
    (place / "secrets.env").write_text("# my own\nVLLM_API_KEY=mine\n")
    (place / "secrets.env").chmod(0o644)

    _, out, _ = command("generate", plan, "-o", place)

    assert (place / "secrets.env").read_text() == "# my own\nVLLM_API_KEY=mine\n"
    assert mode(place / "secrets.env") == 0o600
    assert "HF_TOKEN" in out


def test_quotes_around_a_secret_are_noticed(tmp_path: Path, command: Run) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / "secrets.env").write_text("VLLM_API_KEY='mine'\nHF_TOKEN=hf_x\n")

    _, out, _ = command("generate", stored(tmp_path), "-o", place)

    assert "VLLM_API_KEY in" in out and "leave them out" in out
    assert "HF_TOKEN in" not in out and "mine" not in out


def test_kubernetes_always_gets_a_key(tmp_path: Path, command: Run) -> None:
    command("generate", stored(tmp_path), "-f", "kubernetes", "-o", tmp_path / "out")

    assert "\nVLLM_API_KEY=" in (tmp_path / "out" / "secrets.env").read_text()


def test_edited_plan_is_noticed(tmp_path: Path, command: Run) -> None:
    plan = sample_plan()
    whole = plan.model_copy(
        update={"plan_id": plan_id(plan.option, plan.flags, plan.env, plan.operating_point)}
    )
    (tmp_path / "whole.yaml").write_text(dump_document(whole))
    edited = whole.model_copy(update={"env": (setting("NCCL_DEBUG", "INFO"),)})
    (tmp_path / "edited.yaml").write_text(dump_document(edited))

    _, silent, _ = command("generate", tmp_path / "whole.yaml", "-o", tmp_path / "a")
    _, told, _ = command("generate", tmp_path / "edited.yaml", "-o", tmp_path / "b")

    assert "edited by hand" not in silent
    assert "edited by hand" in told


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(None, "no such file", id="missing"),
        pytest.param(b"", "holds no mapping", id="empty"),
        pytest.param(b"\xff\xfe", "not UTF-8", id="binary"),
        pytest.param(b"a: [1", "plan.yaml:1: is not valid YAML", id="broken"),
        pytest.param(b"a: 1\na: 2\n", "duplicate key", id="twice"),
        pytest.param(b"a: &x [1]\nb: [*x, *x]\n", "aliases are not read", id="alias"),
        pytest.param(b"a: &x [*x]\n", "aliases are not read", id="endless"),
        pytest.param(b"a: 1\n", "has no schema", id="no-schema"),
        pytest.param(b"schema: qwendeploy/machine\n", "'qwendeploy/machine'", id="other-kind"),
        pytest.param(
            b"schema: qwendeploy/plan\nschema_version: '9.0'\n", "newer qwendeploy", id="newer"
        ),
        pytest.param(
            b"schema: qwendeploy/plan\nschema_version: new\n", "not a version", id="version-text"
        ),
        pytest.param(b"schema: qwendeploy/plan\n", "created: Field required", id="incomplete"),
    ],
)
def test_unreadable_plan_is_one_message(
    tmp_path: Path, command: Run, content: bytes | None, complaint: str
) -> None:
    plan = tmp_path / "plan.yaml"
    if content is not None:
        plan.write_bytes(content)

    code, out, err = command("generate", plan, "-o", tmp_path / "out")

    assert (code, out) == (2, "")
    assert complaint in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_bad_value_is_named_with_its_line(tmp_path: Path, command: Run) -> None:
    plan = stored(tmp_path)
    text = plan.read_text().replace("tp: 2", "tp: none")
    plan.write_text(text)
    line = next(n for n, row in enumerate(text.splitlines(), 1) if row.strip() == "tp: none")

    code, _, err = command("generate", plan, "-o", tmp_path / "out")

    assert code == 2
    assert f"plan.yaml:{line}: option.tp" in err


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("port: 8000", "port: 99999", "port: 99999 is not a port"),
        ("  image: 'vllm", "  image: null #", "option.image: the plan has no image"),
        ("  replicas: 1", "  replicas: 2", "gpu_indices: [0, 1] does not name the 4"),
    ],
)
def test_impossible_value_is_named_by_the_file_that_holds_it(
    tmp_path: Path, command: Run, before: str, after: str, complaint: str
) -> None:
    text = stored(tmp_path).read_text()
    assert text.count(before) == 1
    mine = tmp_path / "two cards.yaml"
    mine.write_text(text.replace(before, after))
    key = complaint.partition(":")[0].split(".")[-1]
    line = next(
        n for n, row in enumerate(mine.read_text().splitlines(), 1) if row.strip().startswith(key)
    )

    code, _, err = command("generate", mine, "-o", tmp_path / "out")

    assert code == 2
    assert err.startswith(f"error: {mine}:{line}: {complaint}")
    assert command("up", mine, "--no-checks")[2].startswith(f"error: {mine}:{line}: {complaint}")


def test_plan_can_be_piped(tmp_path: Path, command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = stored(tmp_path).read_text()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    code, _, _ = command("generate", "-", "-o", tmp_path / "out")

    assert code == 0
    assert (tmp_path / "out" / "plan.yaml").read_text() == text

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"tp: 2")))

    assert command("generate", "-")[2].startswith("error: standard input: schema: has no schema")


def test_plan_of_a_pipe_with_a_name_is_written_whole(tmp_path: Path, command: Run) -> None:
    text = stored(tmp_path).read_text()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(text,))
    writer.start()

    command("generate", pipe, "-o", tmp_path / "out")

    writer.join()
    assert (tmp_path / "out" / "plan.yaml").read_text() == text


@pytest.mark.parametrize("kind", ["file", "file-above", "directory-in-the-way"])
def test_unwritable_target_is_one_message(tmp_path: Path, command: Run, kind: str) -> None:
    plan = stored(tmp_path)
    target = tmp_path / "out"
    if kind == "directory-in-the-way":
        (target / "run.sh").mkdir(parents=True)
    else:
        target.write_text("x")
        target = target / "below" if kind == "file-above" else target

    code, _, err = command("generate", plan, "-o", target)

    assert code == 2
    assert err.startswith("error: ")
    assert not list(tmp_path.glob("out/.*"))


def test_failure_in_the_middle_leaves_no_file(
    tmp_path: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stored(tmp_path)
    calls = 0

    def full(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    code, _, err = command("generate", plan, "-o", tmp_path / "out")

    assert code == 2
    assert "No space left" in err
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("kind", ["directory", "binary"])
def test_secrets_that_cannot_be_read_stop_before_anything_is_written(
    tmp_path: Path, command: Run, kind: str
) -> None:
    place = tmp_path / "out"
    place.mkdir()
    if kind == "directory":
        (place / "secrets.env").mkdir()
    else:
        (place / "secrets.env").write_bytes(b"\xff\xfe")

    code, out, err = command("generate", stored(tmp_path), "-o", place)

    assert (code, out) == (2, "")
    assert f"{place / 'secrets.env'}: cannot be used" in err
    assert [path.name for path in place.iterdir()] == ["secrets.env"]


def test_json_of_nothing_written_is_refused(tmp_path: Path, command: Run) -> None:
    code, out, err = command("generate", stored(tmp_path), "--json")

    assert (code, out) == (2, "")
    assert "-o DIRECTORY" in err

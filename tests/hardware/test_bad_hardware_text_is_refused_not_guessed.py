"""Broken, foreign and hostile input: a message and exit 2, bounded work, never an invented GPU."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from hardware_inventories import SLUGS, expected, texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwendeploy.documents import Machine
from qwendeploy.errors import UserError
from qwendeploy.hardware import machine_from_files
from qwendeploy.hardware.merge import machine_of
from qwendeploy.hardware.texts.clean import MAX_BYTES, clean
from qwendeploy.hardware.texts.sniff import read_bytes
from qwendeploy.tables.gpus import gpus

XML = (Path(__file__).parents[1] / "data/hardware/h200-x2-nv18/nvidia-smi.xml").read_bytes()

REFUSED = [
    pytest.param(b"", "recognizable", id="empty"),
    pytest.param(b"\n\n   \n", "recognizable", id="blank"),
    pytest.param(b"\x7fELF\x02\x01\x00\x00" * 500, "binary", id="program"),
    pytest.param(bytes(range(256)) * 64, "binary", id="all bytes"),
    pytest.param(b"x" * (MAX_BYTES + 1), "larger", id="too large"),
    pytest.param("привет, мир; 你好；hallo".encode(), "recognizable", id="other text"),
    pytest.param("Grüße".encode("latin-1"), "recognizable", id="latin-1"),
    pytest.param(b"<html><body>GPU 0: none</body></html>", "recognizable", id="html"),
    pytest.param(b"name,price\nNVIDIA,12\nAMD,3\n", "recognizable", id="foreign csv"),
    pytest.param(b"{}", "recognizable", id="json"),
    pytest.param(
        b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log></nvidia_smi_log>',
        "entities",
        id="entity",
    ),
    pytest.param(b"<nvidia_smi_log>" + b"<a>" * 5000, "nested", id="deep xml"),
]


def refused(data: bytes) -> str:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.txt"
        path.write_bytes(data)
        with pytest.raises(UserError) as problem:
            machine_from_files([path], catalogue=gpus())
        return str(problem.value)


@pytest.mark.parametrize(("data", "word"), REFUSED)
def test_what_is_no_output_of_the_tool_is_refused(data: bytes, word: str) -> None:
    assert word in refused(data)


def test_entities_are_not_expanded() -> None:
    laughs = b"".join(b'<!ENTITY l%d "%s">' % (i, b"&l%d;" % (i - 1) * 10) for i in range(1, 12))
    bomb = b'<!DOCTYPE r [<!ENTITY l0 "lol">' + laughs + b"]>" + XML[XML.index(b"<nvidia_smi") :]
    started = time.monotonic()
    assert "entities" in refused(bomb)
    assert time.monotonic() - started < 2


def test_external_dtd_of_the_tool_is_not_followed() -> None:
    assert b"<!DOCTYPE" in XML
    assert len(read_bytes(XML, "saved.xml").gpus) == 2


@pytest.mark.parametrize("share", [0.02, 0.2, 0.4, 0.6, 0.8, 0.99])
def test_log_cut_in_the_middle_gives_the_gpus_before_the_cut(share: float) -> None:
    reading = read_bytes(XML[: int(len(XML) * share)], "saved.xml")
    assert len(reading.gpus) <= 2
    names = {gpu.name for gpu in reading.gpus}
    assert names <= {"NVIDIA H200", None}
    if share >= 0.6:
        assert len(reading.gpus) == 2


NOISE = [
    pytest.param("|" * 200_000, id="bars"),
    pytest.param("| 0 N ERR! ERR! ERR!" * 20_000, id="faults"),
    pytest.param("GPU0 " * 300_000, id="one long line"),
    pytest.param("GPU0 GPU1\n" * 100_000, id="headers"),
    pytest.param("GPU 0: " + "a" * 3_000_000, id="endless name"),
    pytest.param("1, " * 1_000_000, id="endless row"),
    pytest.param(" " * 4_000_000, id="blanks"),
    pytest.param("(UUID: " * 300_000, id="open brackets"),
    pytest.param('"' * 300_000 + "\n" + '"a,' * 100_000, id="quotes"),
    pytest.param("Failed to initialize NVML: " * 100_000, id="failures"),
    pytest.param("Unable to determine the device handle for GPU " * 60_000, id="handles"),
    pytest.param("\x1b[" * 1_000_000, id="escapes"),
    pytest.param("NVIDIA-SMI " * 300_000 + "Driver Version: " * 100_000, id="half headers"),
    pytest.param("==NVSMI LOG==\n" + "a : b\n" * 200_000, id="plain log"),
    pytest.param("name, index\n" + "x, y\n" * 200_000, id="rows of nothing"),
    pytest.param("&nbsp;" * 500_000 + "<br>" * 500_000, id="HTML of nothing"),
    pytest.param('{"a":"' + "\\n|" * 500_000 + '"}', id="JSON of bars"),
    pytest.param("[" * 200_000, id="deep JSON"),
    pytest.param("[0] " * 500_000, id="half gpustat"),
    pytest.param("Device 0 [" * 500_000, id="half nvtop"),
    pytest.param(("+" + "-" * 70 + "\n" + "-" * 20 + "+\n| a\n") * 30_000, id="broken rules"),
    pytest.param("GPU0 GPU1 GPU2\nNIC0 NIC1\n" * 50_000, id="broken headers"),
    pytest.param("NVRM: The NVIDIA GPU 0000:b3:00.0\n" * 100_000, id="half kernel log"),
]


@pytest.mark.parametrize("text", NOISE)
def test_megabytes_of_noise_take_bounded_time_and_give_no_gpu(text: str) -> None:
    started = time.monotonic()
    reading = read_bytes(text.encode()[:MAX_BYTES], "noise")
    assert time.monotonic() - started < 10
    found = machine_of([reading], gpus())
    assert all(gpu.name is None for gpu in found.gpus)
    assert len(found.gpus) <= 2


def mutated(data: bytes, seed: int) -> bytes:
    """Return the data with lines lost, doubled, swapped and cut, and bytes changed.

    No more than six lines are doubled: a row that stands there twice is a card that is shown.
    """
    rng = random.Random(seed)
    lines = data.split(b"\n")
    doubled = 0
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(lines))
        kind = rng.randrange(6)
        if kind == 0:
            del lines[at : at + rng.randint(1, 5)]
        elif kind == 1 and doubled < 2:
            lines[at:at] = lines[at : at + 3]
            doubled += 1
        elif kind == 2:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
        elif kind == 3 and lines[at]:
            place = rng.randrange(len(lines[at]))
            lines[at] = lines[at][:place] + bytes([rng.randrange(1, 256)]) + lines[at][place + 1 :]
        elif kind == 4:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines.insert(at, bytes(rng.randrange(32, 127) for _ in range(rng.randrange(120))))
        lines = lines or [b""]
    return b"\n".join(lines)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SLUGS), st.integers(0, 2**32))
def test_mutated_output_never_breaks_or_invents(slug: str, seed: int) -> None:
    readings = []
    raw = ""
    for name, data in texts(slug).items():
        changed = mutated(data, seed)
        raw += clean(changed.decode("utf-8", errors="replace")) + "\n"
        try:
            readings.append(read_bytes(changed, name))
        except UserError:
            continue
    found = machine_of(readings, gpus())
    assert Machine.model_validate_json(found.model_dump_json()) == found
    shown = len(expected(slug)["gpus"])
    assert len(found.gpus) <= max(shown, 1) + 6
    for gpu in found.gpus:
        assert gpu.memory_mib != 0
        words = (gpu.name or "").rstrip(".").split()
        assert all(word in raw for word in words)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=2000) | st.binary(max_size=2000).map(lambda b: b.decode("latin-1")))
def test_any_text_is_read_without_an_exception_and_without_a_gpu(text: str) -> None:
    try:
        reading = read_bytes(text.encode("utf-8", errors="replace"), "any")
    except UserError:
        return
    found = machine_of([reading], gpus())
    assert not [gpu for gpu in found.gpus if gpu.name]


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x01\x02binary", b"nothing here", b"<!ENTITY x><nvidia_smi_log>"]
)
def test_the_verb_exits_two_with_a_message(data: bytes, tmp_path: Path) -> None:
    from qwendeploy.cli.detect import command

    path = tmp_path / "saved.txt"
    path.write_bytes(data)
    result = CliRunner().invoke(command, ["--from", str(path)])
    assert isinstance(result.exception, UserError)
    assert result.exception.exit_code == 2
    assert result.exception.hint


@pytest.mark.parametrize("name", ["missing.txt", "missing/", ""])
def test_missing_path_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        machine_from_files([tmp_path / name], catalogue=gpus())


def test_pipe_is_read_and_an_empty_one_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    started = time.monotonic()
    with pytest.raises(UserError, match="recognizable"):
        machine_from_files([pipe], catalogue=gpus())
    assert time.monotonic() - started < 5

    def say(handle: int) -> None:
        time.sleep(0.2)
        os.write(handle, b"GPU 0: NVIDIA L4 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n")
        os.close(handle)

    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = threading.Thread(target=say, args=(os.open(pipe, os.O_WRONLY),))
    writer.start()
    try:
        assert machine_from_files([pipe], catalogue=gpus()).count == 1
    finally:
        writer.join()
        os.close(reader)


def test_links_in_a_circle_are_a_message(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UserError, match="cannot be read"):
        machine_from_files([tmp_path / "a"], catalogue=gpus())

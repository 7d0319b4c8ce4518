"""A terminal sees stage, bar and live rate; a pipe sees nothing of it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from known import known_server


def test_a_terminal_sees_the_rate_while_it_is_measured(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    with known_server(tmp_path, "--tokens", "2") as known:
        process = subprocess.Popen(
            [sys.executable, "-m", "qwendeploy", "verify", "--url", known.url, "--quick",
             "--window", "0.6", "--windows", "3", "--settle", "3", "--repeats", "1", "--c", "2",
             "--ctx", "600"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=follower,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
        )  # fmt: skip
        os.close(follower)
        shown = bytearray()
        try:
            while piece := os.read(leader, 65536):
                shown += piece
        except OSError:
            pass  # the other end is closed: the program has ended
        finally:
            os.close(leader)
        out = process.stdout.read().decode() if process.stdout else ""
        code = process.wait()
        if process.stdout:
            process.stdout.close()
    text = shown.decode("utf-8", "replace")
    assert code == 0
    for word in ("settling", "window 2 of 3", "tok/s"):
        assert word in text, word
    assert "━" in text
    assert out.startswith("MEASURED")
    assert "━" not in out

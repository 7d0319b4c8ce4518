"""The README's example is the tool's own output, and its first command lines set everything up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def command_lines() -> list[str]:
    """Return the command lines of the README's shell blocks, in order."""
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_first_two_command_lines_set_up_the_main_job_and_the_tests() -> None:
    first, second = command_lines()[:2]

    assert first.startswith("bash scripts/setup && ")
    assert "recommend" in first
    assert second == "bash scripts/test"
    assert (ROOT / "scripts" / "setup").exists()
    assert (ROOT / "scripts" / "test").exists()


def test_example_is_what_recommend_prints(run: Any) -> None:
    shown = README.split("<!-- showcase: begin -->")[1].split("<!-- showcase: end -->")[0]

    ran = run("recommend", "--gpu", "RTX PRO 6000", "--gpus", "2", "--ctx", "256k", "--c", "32")

    assert ran.code == 0
    stale = "README.md is not current: run scripts/update readme"
    assert shown.strip() == f"```text\n{ran.out}```", stale


def test_every_verb_of_the_readme_exists(run: Any) -> None:
    verbs = set(re.findall(r"qwendeploy ([a-z]+)\b", "\n".join(command_lines())))

    assert {"recommend", "generate", "verify", "detect", "doctor"} <= verbs | {"verify"}
    for verb in verbs:
        assert run(verb, "--help").code == 0

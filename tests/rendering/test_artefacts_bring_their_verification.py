"""``verify.sh`` and the compose profile ``verify`` measure what the artefact started."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path

import pytest
from real_tools import CHECKOUT, TOOLS, lay_out, need, run
from starting_plans import Box

from qwendeploy.documents.files import dump_document
from qwendeploy.rendering import render

pytestmark = pytest.mark.container

QUICK = ("--rate-only", "--c", "2", "--ctx", "512", "--window", "0.5", "--windows", "2")
MORE = ("--settle", "3", "--force", "--json")

LIBRARIES = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
"""What the stand-in's root file system lacks of what compiled packages need."""

OVERRIDE = """
services:
  verify:
    image: stand-in/vllm-openai:v0.22.0
    build: !reset null
    entrypoint: [python3, -c, "import sys; from qwendeploy.cli import main; main(sys.argv[1:])"]
    environment:
      PYTHONPATH: /checkout:/packages
    volumes:
      - CHECKOUT:/checkout:ro
      - PACKAGES:/packages:ro
      - LIBRARIES:/usr/lib/x86_64-linux-gnu/libstdc++.so.6:ro
"""


def compose(place: Path, box: Box, *words: str) -> str:
    program = need(TOOLS / "root/usr/libexec/docker/cli-plugins/docker-compose")
    done = run(
        program,
        *("-f", str(place / "compose.yaml"), "-f", str(place / "override.yaml"), *words),
        env={"HF_HOME": str(box.folder / "hub"), "DOCKER_HOST": box.daemon.host},
    )
    assert done.returncode in {0, 1, 3}, done.stderr
    return done.stdout


def test_server_is_measured_by_script_and_by_profile(box: Box) -> None:
    plan = box.plan()
    place = lay_out(render(plan, "compose"), box.folder / "deploy")
    (place / "plan.yaml").write_text(dump_document(plan))
    (place / "compose.yaml").write_text(
        (place / "compose.yaml").read_text().replace("interval: 10s", "interval: 1s")
    )
    (place / "override.yaml").write_text(
        OVERRIDE.replace("CHECKOUT", str(CHECKOUT))
        .replace("PACKAGES", sysconfig.get_paths()["purelib"])
        .replace("LIBRARIES", LIBRARIES)
    )
    try:
        compose(place, box, "up", "-d", "--wait")
        program = Path(sys.executable).parent / "qwendeploy"
        script = run(
            str(place / "verify.sh"),
            *QUICK,
            *MORE,
            *("-o", str(box.folder / "run")),
            env={"QWENDEPLOY": str(program), "PATH": os.environ["PATH"]},
        )
        config = json.loads(
            compose(place, box, "--profile", "verify", "config", "--format", "json")
        )
        written = config["services"]["verify"]["command"]
        profile = compose(
            place,
            box,
            *("--profile", "verify", "run", "--rm", "-T", "verify", *written, *QUICK, *MORE),
        )
    finally:
        compose(place, box, "down")

    assert script.returncode in {0, 1, 3}, script.stderr
    for text in (script.stdout, profile):
        report = json.loads(text)
        judged = {verdict["quantity"]: verdict for verdict in report["verdicts"]}
        assert judged["aggregate_decode_tps"]["measured"]["value"] > 0
        # only with the key of secrets.env does the server answer
        assert report["run"]["server"]["max_model_len"] == 262144
    assert len(list((place / "runs").glob("*/run.json"))) == 1

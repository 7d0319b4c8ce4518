"""Each artefact is read without complaint by the program that it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plan_samples import LLAMA_OPTION, OPTIONS, sample_plan
from real_tools import (
    compose_config,
    lay_out,
    need,
    nginx,
    quadlet_service,
    run,
    verify_unit,
)

from qwendeploy.documents import Plan
from qwendeploy.rendering import render

PLANS = {
    **{name: sample_plan(**changes) for name, changes in OPTIONS.items()},
    "llama": sample_plan(**LLAMA_OPTION),
    "odd-folder": sample_plan(checkpoint="/srv/it's 100% of $models/`x`/é"),
}
EXPOSURE = 25
"""Ceiling of systemd's exposure level, in tenths; the unit's level is 1.8."""


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]


def script_kinds(plan: Plan) -> tuple[str, ...]:
    return ("docker", "llama-server" if plan.option.engine == "llama.cpp" else "vllm")


def test_scripts_pass_shellcheck_and_shfmt(plan: Plan, tmp_path: Path) -> None:
    for kind in script_kinds(plan):
        place = lay_out(render(plan, kind), tmp_path / kind)
        scripts = [str(path) for path in place.glob("*.sh")]
        assert len(scripts) == 2

        checked = run(need("shellcheck"), "-s", "bash", "-S", "style", "-o", "all", *scripts)
        formatted = run(need("shfmt"), "-d", "-i", "2", "-ci", *scripts)

        assert checked.stdout == ""
        assert formatted.stdout == ""


def test_compose_file_is_accepted(plan: Plan, tmp_path: Path) -> None:
    config = compose_config(lay_out(render(plan, "compose"), tmp_path))

    engines = [name for name in config["services"] if name.startswith("engine")]
    assert len(engines) == plan.option.replicas
    assert config["services"]["verify"]["profiles"] == ["verify"]


def test_unit_is_accepted_and_confined(plan: Plan, tmp_path: Path) -> None:
    unit = lay_out(render(plan, "systemd"), tmp_path) / "qwendeploy.service"

    verify_unit(unit)
    security = run(
        need("systemd-analyze"),
        "security",
        "--offline=true",
        f"--threshold={EXPOSURE}",
        "--no-pager",
        str(unit),
    )
    assert security.returncode == 0, security.stdout[-300:]


def test_quadlet_is_accepted_and_its_unit_too(plan: Plan, tmp_path: Path) -> None:
    place = lay_out(render(plan, "quadlet"), tmp_path / "quadlet")

    service = quadlet_service(place)

    assert service.count("--device nvidia.com/gpu=") == plan.option.gpus_used
    for option in (
        "--ulimit",
        "--health-cmd",
        "--health-on-failure kill",
        "--sdnotify=healthy",
        "no-new-privileges",
    ):
        assert option in service
    # podman itself is not installed here: any program of that path's kind stands in
    unit = tmp_path / "qwendeploy.service"
    unit.write_text(service.replace("/usr/bin/podman", "/bin/true"), encoding="utf-8")
    verify_unit(unit)


def test_manifests_are_accepted(plan: Plan, tmp_path: Path) -> None:
    place = lay_out(render(plan, "kubernetes"), tmp_path)

    done = run(need("kubernetes-validate"), "--strict", str(place / "kubernetes.yaml"))

    assert done.returncode == 0, done.stderr + done.stdout
    assert len(re.findall("passed for resource", done.stdout + done.stderr)) == 3


def test_router_configuration_is_accepted(tmp_path: Path) -> None:
    files = render(PLANS["replicas-2xtp1"], "compose")
    # the names of the services exist only inside the compose network: none is asked for at start
    text = files["nginx.conf"][0].replace("/tmp/", f"{tmp_path}/")
    (tmp_path / "nginx.conf").write_text(text)

    done = run(*nginx(), "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"))

    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr

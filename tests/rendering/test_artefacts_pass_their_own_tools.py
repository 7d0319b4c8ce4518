"""Each artefact is read without complaint by the program that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_samples import LLAMA_OPTION, OPTIONS, sample_plan
from real_tools import (
    accept,
    compose_config,
    lay_out,
    nginx,
    quadlet_service,
    run,
    verify_unit,
)

from qwendeploy.documents import Plan
from qwendeploy.errors import UserError
from qwendeploy.rendering import KINDS, render

PLANS = {
    **{name: sample_plan(**changes) for name, changes in OPTIONS.items()},
    "llama": sample_plan(**LLAMA_OPTION),
    "odd-folder": sample_plan(checkpoint="/srv/it's 100% of $models/`x`/é"),
}


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return PLANS[request.param]


@pytest.mark.parametrize("kind", KINDS)
def test_artefact_is_accepted_without_a_word(plan: Plan, kind: str, tmp_path: Path) -> None:
    made = KINDS[kind]
    if plan.option.engine not in made.engines:
        with pytest.raises(UserError, match="whose flags are not those of"):
            render(plan, kind)
        return
    place = lay_out(render(plan, kind), tmp_path)
    assert made.checks

    for words in made.check_lines("qwendeploy"):
        accept(words, place)


def test_compose_file_starts_a_server_per_replica(plan: Plan, tmp_path: Path) -> None:
    config = compose_config(lay_out(render(plan, "compose"), tmp_path))

    engines = [name for name in config["services"] if name.startswith("engine")]
    assert len(engines) == plan.option.replicas
    assert config["services"]["verify"]["profiles"] == ["verify"]


def test_unit_of_the_quadlet_is_accepted_too(plan: Plan, tmp_path: Path) -> None:
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


def test_router_configuration_is_accepted(tmp_path: Path) -> None:
    files = render(PLANS["replicas-2xtp1"], "compose")
    # the names of the services exist only inside the compose network: none is asked for at start
    text = files["nginx.conf"][0].replace("/tmp/", f"{tmp_path}/")
    (tmp_path / "nginx.conf").write_text(text)

    done = run(*nginx(), "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"))

    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr

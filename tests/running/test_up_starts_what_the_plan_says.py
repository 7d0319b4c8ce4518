"""``up`` on a real Docker daemon: started, watched, read back, found again, ended."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from plan_samples import figure, uuid
from starting_plans import Box

from qwendeploy.errors import EnvironmentProblem, ExitCode, UserError
from qwendeploy.figures import Kind, exact
from qwendeploy.running import starting
from qwendeploy.tables.own_pools import boot_of, own_pools

pytestmark = pytest.mark.container

UP = ("--network", "qwendeploy-tests", "--no-checks", "--name", "test")


def test_plan_is_served_and_every_point_agrees(box: Box) -> None:
    plan = box.plan(script={"phase_s": 0.3})

    report = starting.up(plan, box.settings(), box.tell)

    assert report.did == "started"
    assert report.exit_code == ExitCode.DONE
    assert [check.what for check in report.checks if not check.agrees] == []
    compared = {check.what for check in report.checks}
    assert compared >= {
        "image",
        "arguments",
        "environment",
        "GPUs",
        "address",
        "max_model_len",
        "prefix caching",
        "drafting",
        "attention backend",
        "KV pool",
        "engine version",
        "tensor parallel",
    }
    assert {check.witness for check in report.checks} == {"docker", "server", "log"}


def test_boot_is_told_phase_by_phase_with_the_expected_time(box: Box) -> None:
    starting.up(box.plan(script={"phase_s": 0.7}), box.settings(), box.tell)

    phases = [text.split(":")[0] for text in box.told]
    assert phases == [
        "starting the engine",
        "loading weights",
        "compiling and profiling",
        "laying out the KV pool",
        "capturing CUDA graphs",
    ] or phases == [*phases[:5], "serving"]
    assert box.told[1].endswith("s of about 8 s (first boot)")


def test_warm_boot_is_recognised(box: Box) -> None:
    starting.up(box.plan(script={"phase_s": 0.4, "warm": True}), box.settings(), box.tell)

    assert any(text.endswith("of about 4 s (warm boot)") for text in box.told)


def test_container_is_what_was_asked(box: Box) -> None:
    starting.up(box.plan(), box.settings(), box.tell)

    attributes = box.attributes()
    host = attributes["HostConfig"]
    assert host["DeviceRequests"][0]["DeviceIDs"] == [uuid(0), uuid(1)]
    assert f"NVIDIA_VISIBLE_DEVICES={uuid(0)},{uuid(1)}" not in attributes["Config"]["Env"]
    assert host["ReadonlyRootfs"] is True
    assert host["IpcMode"] == "host"
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["LogConfig"]["Config"] == {"max-size": "50m", "max-file": "4"}
    assert host["RestartPolicy"] == {"Name": "unless-stopped", "MaximumRetryCount": 0}
    bindings = host["PortBindings"]["8000/tcp"]
    assert [binding["HostIp"] for binding in bindings] == ["127.0.0.1"]
    assert sorted(attributes["HostConfig"]["Tmpfs"]) == sorted(["/tmp", "/home/engine"])
    assert {mount["Destination"] for mount in attributes["Mounts"]} >= {
        "/home/engine/.cache/vllm",
        "/home/engine/.cache/flashinfer",
        "/home/engine/.triton",
        "/home/engine/.cache/huggingface",
    }


def test_up_again_changes_nothing(box: Box) -> None:
    plan = box.plan()
    first = starting.up(plan, box.settings(), box.tell)

    second = starting.up(plan, box.settings(), box.tell)

    assert second.did == "was running"
    assert second.container_id == first.container_id
    assert second.exit_code == ExitCode.DONE


def test_command_line_from_up_to_down(box: Box, run: Callable[..., Any]) -> None:
    plan = box.store(box.plan())

    up = run("up", plan, *UP)
    status = run("status", "--json")
    logs = run("logs", "--name", "test", "--tail", "3")
    down = run("down", "--name", "test")
    again = run("down", "--name", "test")
    nothing = run("status")
    no_logs = run("logs", "--name", "test")

    assert (up.code, up.err) == (0, "")
    assert "test: started, serving at http://127.0.0.1:" in up.out
    assert up.out.rstrip().splitlines()[-1].startswith("next: qwendeploy verify")
    (said,) = json.loads(status.out)
    assert (status.code, said["serving"], said["restarts"]) == (0, True, 0)
    assert said["running_requests"] == 0
    assert "Application startup complete" in logs.out
    assert len(logs.out.splitlines()) == 3
    assert down.out.splitlines()[0] == "removed test"
    assert "qwendeploy-vllm" in down.out
    assert (again.code, again.out.splitlines()[0]) == (0, "nothing named test found")
    assert nothing.code == 4
    assert no_logs.code == 4
    assert box.names() == []


def test_report_as_json_is_the_document_alone(box: Box, run: Callable[..., Any]) -> None:
    said = run("up", box.store(box.plan()), *UP, "--json")

    content = json.loads(said.out)
    assert (said.code, said.err) == (0, "")
    assert content["agrees"] is True
    assert content["plan_id"] == "a1b2c3d4e5f60718"


WRONG = [
    pytest.param({"max_model_len": 131072}, "max_model_len", "131072", id="length"),
    pytest.param({"prefix_cache": True}, "prefix caching", "on", id="caching"),
    pytest.param({"spec_tokens": 0}, "drafting", "none", id="no-draft"),
    pytest.param({"spec_tokens": 1}, "drafting", "mtp, 1 tokens", id="short-draft"),
    pytest.param({"version": "0.20.1"}, "engine version", "0.20.1", id="version"),
    pytest.param({"backend": "TRITON_ATTN"}, "attention backend", "TRITON_ATTN", id="backend"),
    pytest.param({"tp": "1"}, "tensor parallel", "1", id="layout"),
    pytest.param({"served_model_name": "other"}, "served model", "other", id="name"),
    pytest.param({"blocks": 1200}, "KV pool", "1,200 blocks", id="pool"),
]


@pytest.mark.parametrize(("applied", "what", "found"), WRONG)
def test_difference_is_named_with_a_cause_and_refutes(
    box: Box, run: Callable[..., Any], applied: dict[str, Any], what: str, found: str
) -> None:
    plan = box.store(box.plan(script={"applied": applied, "phase_s": 0.05}))

    said = run("up", plan, *UP)

    assert said.code == 1
    line = next(text for text in said.out.splitlines() if text.startswith(f"  {what} ("))
    block = said.out[said.out.index(line) :].splitlines()
    assert block[1] == f"    applied {found}"
    assert block[2].startswith("    likely: ")
    # what differs still serves: it is for the user to decide
    assert box.names() == ["test"]


def test_container_changed_by_hand_is_noticed(box: Box) -> None:
    plan = box.plan()
    starting.up(plan, box.settings(), box.tell)
    other = plan.model_copy(update={"env": (*plan.env,)})
    forged = box.plan(port=plan.port).model_copy(update={"flags": plan.flags[:-1]})

    # the label says one launch, the container runs another
    report = starting.up(other, box.settings(), box.tell)
    assert report.exit_code == ExitCode.DONE
    with pytest.raises(UserError, match="--attention-backend: FLASH_ATTN -> not set"):
        starting.up(forged, box.settings(), box.tell)


def test_pool_is_kept_as_evidence_beside_its_prediction(box: Box) -> None:
    predictions = box.plan().predictions.model_copy(
        update={"kv_pool_blocks": figure(2400, "blocks", 0.05)}
    )
    plan = box.plan(predictions=predictions)

    report = starting.up(plan, box.settings(), box.tell)
    starting.up(plan, box.settings(), box.tell)

    (row,) = own_pools()
    assert (row.num_blocks, row.blocks_basis, row.kv_tokens) == (2416, "counter", 1_309_955)
    assert (row.origin, row.kind, row.tp, row.spec_tokens) == ("own", "logged", 2, 3)
    assert re.fullmatch(r"\d{10}\.\d\d", boot_of(row) or "")
    assert row.note == "predicted before start: 2400 [2280, 2520] blocks (measured)"
    assert any("stored as evidence (measured-here)" in note for note in report.notes)


def test_pool_in_tokens_is_compared_where_no_blocks_are_predicted(box: Box) -> None:
    predictions = box.plan().predictions.model_copy(
        update={
            "kv_pool_blocks": None,
            "kv_pool_tokens": exact(1, "tokens", kind=Kind.ESTIMATED, source="test"),
        }
    )

    report = starting.up(box.plan(predictions=predictions), box.settings(), box.tell)

    pool = next(check for check in report.checks if check.what == "KV pool")
    assert (pool.agrees, pool.applied, pool.witness) == (False, "1,309,955 tokens", "log")


def test_key_reaches_the_server_and_no_process_list(box: Box) -> None:
    secrets = box.folder / "secrets.env"
    secrets.write_text("VLLM_API_KEY=the-key-of-this-test\nOTHER=not-for-the-container\n")
    secrets.chmod(0o600)

    report = starting.up(box.plan(), box.settings(secrets_file=secrets), box.tell)

    attributes = box.attributes()
    assert "VLLM_API_KEY=the-key-of-this-test" in attributes["Config"]["Env"]
    assert "not-for-the-container" not in json.dumps(attributes)
    assert "the-key-of-this-test" not in json.dumps(attributes["Args"])
    assert "the-key-of-this-test" not in json.dumps(attributes["Config"]["Labels"])
    # the read back itself needs the key
    assert any(check.what == "max_model_len" for check in report.checks)


@pytest.mark.parametrize(
    ("content", "mode", "complaint"),
    [
        pytest.param(None, 0o600, "VLLM_API_KEY is required", id="none"),
        pytest.param("VLLM_API_KEY=\n", 0o600, "VLLM_API_KEY is required", id="empty"),
        pytest.param("VLLM_API_KEY=x\n", 0o644, "other users can read", id="open"),
    ],
)
def test_public_address_needs_a_key_kept_private(
    box: Box, content: str | None, mode: int, complaint: str
) -> None:
    secrets = None
    if content is not None:
        secrets = box.folder / "secrets.env"
        secrets.write_text(content)
        secrets.chmod(mode)

    with pytest.raises(UserError, match=complaint):
        starting.up(box.plan(listen="0.0.0.0"), box.settings(secrets_file=secrets), box.tell)

    assert box.names() == []


def test_second_up_for_the_name_is_refused_while_one_runs(box: Box) -> None:
    from qwendeploy.running.alone import alone

    with alone(box.daemon.host, "test"), pytest.raises(EnvironmentProblem, match="is running"):
        starting.up(box.plan(), box.settings(), box.tell)

    assert os.environ["DOCKER_HOST"] == box.daemon.host
    assert box.names() == []

"""MIG slices and WSL2: each tool is told the devices by the name that it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan_samples import LLAMA_OPTION, machine, sample_plan, uuid
from real_tools import compose_config, lay_out, need, quadlet_service, run

from qwendeploy.documents import Machine, MigDevice, Plan
from qwendeploy.errors import DataError
from qwendeploy.rendering import launch_of, render
from qwendeploy.running.container_spec import create_arguments

SLICE = "MIG-12345678-1111-2222-3333-444444444444"
OLD_SLICE = f"MIG-{uuid(0)}/3/0"


def sliced(*profiles: str | None, names: tuple[str | None, ...] = (SLICE,)) -> Machine:
    """Return one GPU in MIG mode; the first slice is the largest."""
    sizes = [40448 - 8000 * number for number in range(len(profiles))]
    if len(set(profiles)) == 1:
        sizes = [40448] * len(profiles)
    devices = tuple(
        MigDevice(
            gpu=0,
            gi=number + 1,
            ci=0,
            profile=profile,
            memory_mib=size,
            uuid=names[number] if number < len(names) else None,
        )
        for number, (profile, size) in enumerate(zip(profiles, sizes, strict=True))
    )
    whole = machine(1)
    card = whole.gpus[0].model_copy(update={"mig": True})
    return whole.model_copy(update={"gpus": (card,), "mig_devices": devices})


def plan_on(where: Machine, **changes: Any) -> Plan:
    return sample_plan(**{"tp": 1, "machine": where, "gpu_indices": (0,), **changes})


def text_of(plan: Plan, kind: str) -> str:
    return "\n".join(text for text, _ in render(plan, kind).values())


@pytest.mark.parametrize("name", [SLICE, OLD_SLICE], ids=["uuid", "before-470"])
def test_container_is_given_the_slice_alone(name: str, tmp_path: Path) -> None:
    plan = plan_on(sliced("3g.40gb", "2g.20gb", names=(name,)))

    assert launch_of(plan).gpus == (name,)
    config = compose_config(lay_out(render(plan, "compose"), tmp_path))
    devices = config["services"]["engine"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["device_ids"] == [name]
    assert f"AddDevice=nvidia.com/gpu={name}\n" in text_of(plan, "quadlet")


def test_slice_without_name_beside_unlike_ones_is_refused() -> None:
    with pytest.raises(DataError, match="unlike size") as problem:
        launch_of(plan_on(sliced("3g.40gb", "2g.20gb", names=())))
    assert problem.value.key == "machine.mig_devices"
    # any of equal ones will do: the GPU's first
    assert launch_of(plan_on(sliced("2g.20gb", "2g.20gb", names=()))).gpus == (uuid(0),)


@pytest.mark.parametrize(
    ("profiles", "resource"),
    [
        (("3g.40gb", "2g.20gb"), "nvidia.com/mig-3g.40gb"),
        (("1g.10gb+me", "1g.10gb"), "nvidia.com/mig-1g.10gb.me"),
        ((None,), "nvidia.com/gpu"),
    ],
)
def test_kubernetes_asks_for_the_slice_by_its_profile(
    profiles: tuple[str | None, ...], resource: str, tmp_path: Path
) -> None:
    place = lay_out(render(plan_on(sliced(*profiles)), "kubernetes"), tmp_path)
    manifest = (place / "kubernetes.yaml").read_text()

    assert manifest.count(f"              {resource}: 1\n") == 2
    assert "              cpu: 3\n" in manifest
    done = run(need("kubernetes-validate"), "--strict", str(place / "kubernetes.yaml"))
    assert done.returncode == 0, done.stderr + done.stdout


def test_kubernetes_has_no_compute_instances() -> None:
    with pytest.raises(DataError, match=r"1c\.3g\.40gb is a compute instance"):
        render(plan_on(sliced("1c.3g.40gb", "2g.20gb")), "kubernetes")


def test_vllm_outside_a_container_takes_no_slice_by_name() -> None:
    with pytest.raises(DataError, match="one of several MIG slices"):
        render(plan_on(sliced("3g.40gb", "2g.20gb")), "vllm")

    alone = render(plan_on(sliced("7g.80gb")), "vllm")["serve.sh"][0]

    assert "export CUDA_VISIBLE_DEVICES=0\n" in alone


def test_llama_server_takes_the_slice_by_name() -> None:
    plan = plan_on(sliced("3g.40gb", "2g.20gb"), **LLAMA_OPTION)

    script = render(plan, "llama-server")["llama-server.sh"][0]

    assert f"export CUDA_VISIBLE_DEVICES={SLICE}\n" in script


def windows(count: int) -> Machine:
    return machine(count).model_copy(update={"os": "wsl2", "platform": "wsl2"})


@pytest.mark.parametrize(("present", "told"), [(1, False), (2, True)])
def test_wsl2_gives_all_gpus_and_cuda_is_told_which_serve(
    present: int, told: bool, tmp_path: Path
) -> None:
    plan = plan_on(windows(present), gpu_indices=(present - 1,))

    script = text_of(plan, "docker")
    unit = quadlet_service(lay_out(render(plan, "quadlet"), tmp_path / "quadlet"))
    config = compose_config(lay_out(render(plan, "compose"), tmp_path / "compose"))
    created = create_arguments(launch_of(plan), secrets={}, network=None, hub=tmp_path)

    engine = config["services"]["engine"]
    assert "  --gpus all\n" in script
    assert "--device nvidia.com/gpu=all" in unit
    assert engine["deploy"]["resources"]["reservations"]["devices"][0]["count"] == -1
    assert created["device_requests"][0]["Count"] == -1
    visible = engine["environment"].get("CUDA_VISIBLE_DEVICES")
    assert visible == (str(present - 1) if told else None)
    assert created["environment"].get("CUDA_VISIBLE_DEVICES") == visible
    assert (f"--env CUDA_VISIBLE_DEVICES={present - 1}" in script) == told
    assert ("CUDA_VISIBLE_DEVICES=" in unit) == told


def test_replicas_under_wsl2_have_cards_of_their_own(tmp_path: Path) -> None:
    plan = sample_plan(tp=1, replicas=2, machine=windows(2))

    services = compose_config(lay_out(render(plan, "compose"), tmp_path))["services"]

    visible = [services[f"engine-{n}"]["environment"]["CUDA_VISIBLE_DEVICES"] for n in (1, 2)]
    assert visible == ["0", "1"]

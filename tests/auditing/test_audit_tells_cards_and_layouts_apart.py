"""Which cards a launch sees, what replicas take twice, and layouts that the engine refuses."""

from __future__ import annotations

import json

import pytest

from qwendeploy.auditing.audit import audit_launches
from qwendeploy.auditing.reading.checkpoint_names import host_path
from qwendeploy.auditing.reading.inspect_container import read_inspection
from qwendeploy.auditing.reading.read import read_launch_text
from qwendeploy.auditing.reading.text import Place, Word
from qwendeploy.auditing.understanding.context import described
from qwendeploy.auditing.understanding.visible_gpus import card_names
from qwendeploy.documents.audit import AuditDocument

H100S = {
    "gpu": "NVIDIA H100 80GB HBM3",
    "count": 16,
    "vram_mib": 81559,
    "driver": "580.95.05",
    "interconnect": "nvlink",
    "os": "linux",
    "vllm_version": "0.24.0",
}
TAIL = (
    "Qwen/Qwen3.6-27B-FP8 --max-model-len 65536 --max-num-seqs 32 --no-enable-prefix-caching "
    "--reasoning-parser qwen3"
)
BARE = f"vllm serve {TAIL} --host 127.0.0.1"


def audited(text: str, file: str = "run.sh") -> AuditDocument:
    return audit_launches(read_launch_text(text, file), described(H100S), compare=False)


def told(text: str, file: str = "run.sh") -> dict[str, str]:
    found = audited(text, file).findings
    return {item.id: item.severity for item in found if item.severity != "info"}


@pytest.mark.parametrize(
    ("options", "cards"),
    [
        pytest.param("--gpus all", None, id="all"),
        pytest.param("""--gpus '"device=10,2"'""", ("2", "10"), id="numbers-sort-as-numbers"),
        pytest.param("--gpus 2", ("0", "1"), id="a-count-is-the-first-ones"),
        pytest.param("--gpus device=3 -e CUDA_VISIBLE_DEVICES=0", ("3",), id="cuda-within-handed"),
        pytest.param(
            """--gpus '"device=4,5,6"' -e CUDA_VISIBLE_DEVICES=2,0""", ("6", "4"), id="in-its-order"
        ),
        pytest.param(
            "--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=1,3", ("1", "3"), id="runtime-variable"
        ),
        pytest.param(
            "--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all", None, id="runtime-variable-all"
        ),
        pytest.param("--device /dev/nvidia3 --device /dev/nvidia7", ("3", "7"), id="device-nodes"),
        pytest.param(
            "--gpus all -e CUDA_VISIBLE_DEVICES=GPU-1a,GPU-2b", ("GPU-1a", "GPU-2b"), id="uuid"
        ),
    ],
)
def test_the_cards_of_a_container(options: str, cards: tuple[str, ...] | None) -> None:
    (launch,) = read_launch_text(f"docker run {options} vllm/vllm-openai:v0.24.0 m/m", "run.sh")
    assert card_names(launch) == cards


def test_outside_a_container_only_cudas_variable_counts() -> None:
    (launch,) = read_launch_text(f"NVIDIA_VISIBLE_DEVICES=0 {BARE}", "run.sh")
    assert card_names(launch) is None
    (launch,) = read_launch_text(f"CUDA_VISIBLE_DEVICES=11,3 {BARE}", "run.sh")
    assert card_names(launch) == ("11", "3")


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        pytest.param("-pp 2", "CUDA_VISIBLE_DEVICES=1", True, id="stage-of-a-pipeline"),
        pytest.param("-pp 2", "CUDA_VISIBLE_DEVICES=2", False, id="behind-the-pipeline"),
        pytest.param("-tp 2 -dp 2", "CUDA_VISIBLE_DEVICES=3", True, id="replica"),
        pytest.param(
            "-dp 4 -dpl 2 --data-parallel-address 10.0.0.1",
            "CUDA_VISIBLE_DEVICES=3",
            False,
            id="replicas-on-another-host",
        ),
        pytest.param("", "NVIDIA_VISIBLE_DEVICES=1", True, id="a-variable-that-means-nothing"),
    ],
)
def test_servers_that_share_a_card(first: str, second: str, shared: bool) -> None:
    found = told(f"{BARE} {first} &\n{second} {BARE} --port 8001 &\n")
    assert ("card-shared-beyond-memory" in found) is shared


COMPOSE = """
services:
  q:
    image: vllm/vllm-openai:v0.24.0
    ipc: host
    gpus: all
    ports: ["{ports}"]
    volumes: ["/srv/hf:/root/.cache/huggingface"]
    command: {command}
    {replicas}
"""


@pytest.mark.parametrize(
    ("replicas", "ports", "share", "expected"),
    [
        pytest.param(
            "deploy: {replicas: 2}", "127.0.0.1:8000:8000", 0.45, {"port-taken"}, id="one-port"
        ),
        pytest.param("scale: 2", "127.0.0.1:8000-8001:8000", 0.45, set(), id="a-range-of-ports"),
        pytest.param(
            "scale: 2",
            "127.0.0.1:8000-8001:8000",
            0.9,
            {"card-shared-beyond-memory"},
            id="one-card",
        ),
        pytest.param("deploy: {replicas: 1}", "127.0.0.1:8000:8000", 0.9, set(), id="one-replica"),
    ],
)
def test_replicas_take_ports_and_cards_twice(
    replicas: str, ports: str, share: float, expected: set[str]
) -> None:
    command = f"{TAIL} --gpu-memory-utilization {share}"
    found = told(COMPOSE.format(replicas=replicas, ports=ports, command=command), "compose.yml")
    assert found.keys() & {"port-taken", "card-shared-beyond-memory"} == expected


SERVICE = """
  {name}:
    image: vllm/vllm-openai:v0.24.0
    ipc: host
    {gpus}
    {profiles}
    ports: ["127.0.0.1:8000:8000"]
    volumes: ["/srv/hf:/root/.cache/huggingface"]
    command: {tail}
"""


@pytest.mark.parametrize(
    ("profiles", "gpus", "expected"),
    [
        pytest.param(("a", "b"), "gpus: all", set(), id="alternatives"),
        pytest.param(("a, b", "b"), "gpus: all", {"port", "card"}, id="one-in-common"),
        pytest.param(("", "b"), "gpus: all", {"port", "card"}, id="one-always-started"),
        pytest.param(("", ""), "gpus: all", {"port", "card"}, id="no-profiles"),
        pytest.param(("", ""), "", {"port"}, id="one-without-a-gpu"),
    ],
)
def test_services_meet_where_one_profile_starts_them(
    profiles: tuple[str, str], gpus: str, expected: set[str]
) -> None:
    text = "services:" + "".join(
        SERVICE.format(
            name=f"q{number}",
            gpus="gpus: all" if number else gpus,
            profiles=f"profiles: [{named}]" if named else "",
            tail=TAIL,
        )
        for number, named in enumerate(profiles)
    )
    met = told(text, "compose.yml").keys() & {"port-taken", "card-shared-beyond-memory"}
    assert {name.partition("-")[0] for name in met} == expected


def test_servers_on_the_hosts_network_take_its_port() -> None:
    run = f"docker run -d --network host --ipc=host {{}} vllm/vllm-openai:v0.24.0 {TAIL}"
    assert "port-taken" in told("\n".join(run.format(f"--gpus device={n}") for n in (0, 1)))


def test_a_node_without_a_port_exposes_none() -> None:
    node = "--headless -dp 4 -dpl 2 --data-parallel-address 10.0.0.1"
    assert "open-port-without-key" not in told(f"vllm serve {TAIL} {node}")
    assert "open-port-without-key" in told(f"vllm serve {TAIL}")


@pytest.mark.parametrize(
    ("key", "open_port"),
    [('""', True), ("''", True), ("$KEY", False), ("abc", False)],
)
def test_an_empty_key_is_none(key: str, open_port: bool) -> None:
    found = told(f"vllm serve {TAIL} --api-key {key}")
    assert ("open-port-without-key" in found) is open_port


def test_an_activated_environment_hides_no_key() -> None:
    found = told(f"source ~/envs/vllm/bin/activate\nvllm serve {TAIL}")
    assert "open-port-without-key" in found
    assert "open-port-without-key" not in told(f"source secrets.sh\nvllm serve {TAIL}")


@pytest.mark.parametrize(
    ("flags", "about"),
    [
        ("--enable-eplb -tp 2", "--enable-eplb"),
        ("-dp 2 --data-parallel-size-local 4", "--data-parallel-size-local"),
        ("--data-parallel-rank 0", "--data-parallel-rank"),
        ("--data-parallel-external-lb", "--data-parallel-external-lb"),
        ("-tp 2 -dcp 4", "--decode-context-parallel-size"),
    ],
)
def test_layouts_that_the_engine_refuses(flags: str, about: str) -> None:
    audit = audited(f"{BARE} {flags}")
    refused = [item.about for item in audit.findings if item.id == "bad-flag-value"]
    assert refused == [about]
    assert audit.outcome == "fails_at_start"


@pytest.mark.parametrize(
    "flags",
    ["-dp 2 -dpl 2", "-dp 2 --data-parallel-rank 1", "-tp 2 -dcp 2", "--no-enable-eplb"],
)
def test_layouts_that_it_takes(flags: str) -> None:
    assert not [item for item in audited(f"{BARE} {flags}").findings if item.severity == "error"]


EAGER = "enforce-eager-slow"
SEATS = "max-num-seqs-above-blocks"


@pytest.mark.parametrize(
    ("flags", "slow", "refused"),
    [
        ("-O0", True, False),
        ("-O 0", True, False),
        ("--optimization-level 0", True, False),
        ("--enforce-eager", True, False),
        ("""-cc '{"cudagraph_mode":"none"}'""", True, False),
        ("-cc.cudagraph_mode=NONE", True, False),
        ("--compilation-config.cudagraph_mode PIECEWISE", False, False),
        ("""-O0 -cc '{"cudagraph_mode":"FULL_DECODE_ONLY"}'""", False, True),
        ("-O3", False, True),
        ("", False, True),
    ],
)
def test_modes_of_graphs(flags: str, slow: bool, refused: bool) -> None:
    """Without full decode graphs 1,024 seats are not held against some 800 blocks."""
    found = told(BARE.replace("--max-num-seqs 32", "") + f" {flags}")
    assert (EAGER in found, SEATS in found) == (slow, refused)


@pytest.mark.parametrize(
    ("mib", "enough"), [(64, False), (128, False), (200, False), (256, True), (16384, True)]
)
def test_a_running_containers_memory_is_measured_as_a_commands(mib: int, enough: bool) -> None:
    described_container = {
        "Config": {"Image": "vllm/vllm-openai:v0.24.0", "Cmd": ["m/m", "-tp", "2"]},
        "HostConfig": {"ShmSize": mib * 2**20},
    }
    (launch,) = read_inspection(json.dumps([described_container]), "inspect.json")
    assert launch.container is not None
    assert launch.container.shared_memory is enough
    (run,) = read_launch_text(f"docker run --shm-size {mib}m vllm/vllm-openai m/m -tp 2", "run.sh")
    assert run.container is not None
    assert run.container.shared_memory is enough


@pytest.mark.parametrize("target", ["/model", "/model/"])
@pytest.mark.parametrize("path", ["/model", "/model/config.json"])
def test_a_volume_ends_in_a_slash_or_not(target: str, path: str) -> None:
    volume = Word(f"/data/Qwen3.6-27B-FP8/:{target}", Place("run.sh", 1))
    assert host_path(path, [volume]) == f"/data/Qwen3.6-27B-FP8{path.removeprefix('/model')}"


SHELL_INSIDE = {
    "docker": "docker run -e TP=4 -e MODEL=a/b --gpus all vllm/vllm-openai:v0.24.0 bash -c "
    "'vllm serve $MODEL -tp ${TP:-1}'",
    "pod": """
apiVersion: v1
kind: Pod
spec:
  containers:
  - image: vllm/vllm-openai:v0.24.0
    env: [{name: TP, value: "4"}, {name: MODEL, value: a/b}]
    command: [sh, -c, "exec vllm serve $MODEL -tp ${TP}"]
""",
    "compose": """
services:
  q:
    image: vllm/vllm-openai:v0.24.0
    environment: {TP: 4, MODEL: a/b}
    entrypoint: [sh, -c]
    command: ["exec vllm serve $$MODEL -tp $$TP"]
""",
}


@pytest.mark.parametrize("kind", SHELL_INSIDE)
def test_a_shell_inside_sees_the_containers_variables(kind: str) -> None:
    (launch,) = read_launch_text(SHELL_INSIDE[kind], "run.sh" if kind == "docker" else "a.yml")
    assert [word.text for word in launch.arguments] == ["a/b", "-tp", "4"]

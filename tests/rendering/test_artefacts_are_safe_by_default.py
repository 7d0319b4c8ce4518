"""What no artefact may do, and what every one does, whatever its kind."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from plan_samples import (
    DIGEST,
    LLAMA_OPTION,
    OPTIONS,
    VLLM_FLAGS,
    figure,
    sample_plan,
    setting,
    speculation,
    uuid,
)

from qwendeploy.documents import Plan
from qwendeploy.errors import DataError, UserError
from qwendeploy.rendering import KINDS, launch_of, render
from qwendeploy.rendering.container import STOP_S
from qwendeploy.rendering.engine_settings import SECONDS_TO_END
from qwendeploy.rendering.page import header

OF_VLLM = [kind.name for kind in KINDS.values() if "vllm" in kind.engines]
CONTAINERS = ("docker", "compose", "systemd", "quadlet")


def main_text(plan: Plan, kind: str) -> str:
    files = render(plan, kind, tool_version="9.9.9")
    return "\n".join(
        text for name, (text, _) in files.items() if name not in {"plan.yaml", "verify.sh"}
    )


@pytest.mark.parametrize("kind", CONTAINERS)
def test_port_is_published_on_loopback_only(kind: str) -> None:
    text = main_text(sample_plan(), kind)

    assert re.findall(r"[\d.:\[\]]+:8000:8000", text) == ["127.0.0.1:8000:8000"]


@pytest.mark.parametrize(
    ("listen", "published", "url"),
    [
        pytest.param("0.0.0.0", "0.0.0.0:8000:8000", "http://127.0.0.1:8000", id="all"),
        pytest.param("192.0.2.7", "192.0.2.7:8000:8000", "http://192.0.2.7:8000", id="one"),
        pytest.param("::", "[::]:8000:8000", "http://[::1]:8000", id="all-ipv6"),
        pytest.param("localhost", "127.0.0.1:8000:8000", "http://127.0.0.1:8000", id="name"),
    ],
)
def test_address_is_the_plans(listen: str, published: str, url: str) -> None:
    files = render(sample_plan(listen=listen), "docker")

    assert f"--publish {published}" in files["run.sh"][0].replace("'", "")
    assert f"--base-url {url}" in files["verify.sh"][0].replace("'", "")


def test_venv_server_binds_to_the_plans_address_itself() -> None:
    assert "--host 127.0.0.1" in main_text(sample_plan(), "vllm")
    assert "--host 192.0.2.7" in main_text(sample_plan(listen="192.0.2.7"), "vllm")


@pytest.mark.parametrize("kind", CONTAINERS)
def test_containers_are_confined(kind: str) -> None:
    text = main_text(sample_plan(), kind).lower()

    assert "no-new-privileges" in text or "nonewprivileges=true" in text
    assert re.search(r"--read-only|read_only: true|readonly=true", text)
    assert re.search(r"/tmp:exec", text)
    assert "memlock" in text
    assert re.search(r"max-size", text)
    assert "privileged" not in text.replace("no-new-privileges", "")


def test_manifest_is_confined() -> None:
    text = main_text(sample_plan(), "kubernetes")

    for line in (
        "allowPrivilegeEscalation: false",
        "readOnlyRootFilesystem: true",
        "automountServiceAccountToken: false",
        "type: ClusterIP",
        "secretKeyRef:",
    ):
        assert line in text


def test_root_stays_writable_for_an_image_nobody_can_read() -> None:
    assert "--read-only" not in main_text(sample_plan(fork=True), "docker")
    assert "--read-only" not in render(sample_plan(), "docker", writable=True)["run.sh"][0]


@pytest.mark.parametrize(
    ("kind", "restart"),
    [
        ("docker", "--restart on-failure:3"),
        ("compose", "restart: on-failure:3"),
        ("systemd", "StartLimitBurst=3"),
        ("quadlet", "StartLimitBurst=3"),
    ],
)
def test_a_configuration_error_does_not_loop(kind: str, restart: str) -> None:
    text = main_text(sample_plan(), kind)

    assert restart in text
    # what comes back for ever is switched on by hand, by a line of the header
    settings = [line for line in text.splitlines() if not line.startswith("#")]
    assert not any("unless-stopped" in line or "always" in line for line in settings)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_caches_lie_in_named_places(kind: str) -> None:
    text = main_text(sample_plan(), kind)

    for volume, target in (
        ("qwendeploy-vllm", "/.cache/vllm"),
        ("qwendeploy-flashinfer", "/.cache/flashinfer"),
        ("qwendeploy-triton", "/.triton"),
    ):
        assert re.search(rf"{volume}\b[\s\S]{{0,60}}{re.escape(target)}", text)
    assert "/home/engine/.cache/huggingface" in text


@pytest.mark.parametrize("kind", OF_VLLM)
def test_header_names_tool_plan_and_three_reasons(kind: str) -> None:
    plan = sample_plan(headlines=("Read this first.",))
    top = main_text(plan, kind).split("\n\n")[0]

    assert "qwendeploy 9.9.9 from plan a1b2c3d4e5f60718" in top
    assert top.index("Read this first.") < top.index("1. FP8 weights")
    assert "2. three drafted" in top
    assert "3. tensor parallel" in top
    assert "a fourth reason" not in top


@pytest.mark.parametrize("kind", CONTAINERS)
def test_start_period_comes_from_the_boot_time(kind: str) -> None:
    plan = sample_plan(boot_first_s=figure(295, "s", 0.1), download_gib=None)

    assert re.search(
        r"(health-start-period |start_period: |StartPeriod=)360s", main_text(plan, kind)
    )


def test_start_period_without_evidence_says_so() -> None:
    launch = launch_of(sample_plan(boot_first_s=None, download_gib=None))

    assert launch.start_period_s == 900
    assert "no boot time is known" in launch.start_period_basis


def test_download_of_the_weights_belongs_to_the_start_period() -> None:
    short = launch_of(sample_plan(download_gib=None)).start_period_s
    long = launch_of(sample_plan(download_gib=figure(52, "GiB", 0))).start_period_s

    # 52 GiB at the assumed 25 MB/s
    assert 2200 < long - short < 2300


@pytest.mark.parametrize("kind", ("docker", "compose", "systemd", "quadlet"))
def test_gpus_are_named(kind: str) -> None:
    by_uuid = main_text(sample_plan(), kind)
    by_index = main_text(sample_plan(uuids=False), kind)

    assert uuid(0) in by_uuid and uuid(1) in by_uuid
    assert "GPU-" not in by_index
    assert re.search(r"device=0,1|gpu=0\nAddDevice=nvidia.com/gpu=1|- \"0\"\n +- \"1\"", by_index)


def test_venv_server_sees_only_its_gpus() -> None:
    text = main_text(sample_plan(gpu_indices=(1,), tp=1, machine=sample_plan().machine), "vllm")

    assert "export CUDA_VISIBLE_DEVICES=1\n" in text
    assert "export CUDA_DEVICE_ORDER=PCI_BUS_ID\n" in text


@pytest.mark.parametrize(("tp", "shared"), [(1, False), (2, True)])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_memory_is_shared_between_workers_only(kind: str, tp: int, shared: bool) -> None:
    found = re.search(r"--ipc[ =]host|ipc: host", main_text(sample_plan(tp=tp), kind))

    assert bool(found) is shared


@pytest.mark.parametrize("kind", OF_VLLM)
def test_checkpoint_on_disk_is_mounted_and_needs_no_hub(kind: str) -> None:
    text = main_text(sample_plan(**OPTIONS["local-checkpoint"]), kind)

    assert re.search(r"HF_HUB_OFFLINE\W+(value: )?\W*1", text)
    if KINDS[kind].container:
        assert re.search(r"(source|path)\W{1,4}/srv/models/Qwen3.6-27B-FP8", text)


def drafting(draft: str, **changes: Any) -> Plan:
    config = json.dumps({"method": "dflash", "model": draft})
    flags = (*VLLM_FLAGS(2)[:-1], setting("--speculative-config", config))
    return sample_plan(flags=flags, **changes)


def test_draft_checkpoint_on_disk_is_mounted_too() -> None:
    launch = launch_of(drafting("/srv/draft", checkpoint="/srv/model"))

    assert launch.local_paths == ("/srv/model", "/srv/draft")
    assert ("HF_HUB_OFFLINE", "1") in launch.env


@pytest.mark.parametrize(
    ("checkpoint", "mounted"),
    [
        ("/hub/models--Qwen--Qwen3.6-27B-FP8/snapshots/0a1b", "/hub/models--Qwen--Qwen3.6-27B-FP8"),
        ("/srv/q4-00001-of-00003.gguf", "/srv"),
        ("/srv/q4.gguf", "/srv/q4.gguf"),
        ("/srv/snapshots/0a1b", "/srv/snapshots/0a1b"),
    ],
)
def test_what_a_checkpoint_links_to_is_mounted_with_it(checkpoint: str, mounted: str) -> None:
    launch = launch_of(sample_plan(checkpoint=checkpoint))

    assert (launch.model, launch.local_paths) == (checkpoint, (mounted,))


def test_file_on_a_node_is_mounted_as_a_file() -> None:
    text = main_text(sample_plan(**LLAMA_OPTION), "kubernetes")

    assert re.search(r"Q4_K_M.gguf\n +type: File\n", text)
    assert "type: Directory" in main_text(sample_plan(checkpoint="/srv/model"), "kubernetes")


@pytest.mark.parametrize("name", ["MIG-00000000-1111-2222-3333-444444444444", uuid(0)])
def test_slices_that_a_reboot_takes_away_are_told(name: str) -> None:
    launch = replace(launch_of(sample_plan(tp=1)), gpus=(name,))

    told = any("nvidia-mig-manager" in line for line in header(sample_plan(tp=1), launch))

    assert told is name.startswith("MIG-")


@pytest.mark.parametrize(
    "names", [("/srv/model", "z-lab/Qwen3.6-27B-DFlash"), ("Qwen/Qwen3.6-27B", "/srv/draft")]
)
def test_hub_stays_open_while_one_checkpoint_lies_there(names: tuple[str, str]) -> None:
    launch = launch_of(drafting(names[1], checkpoint=names[0]))

    assert "HF_HUB_OFFLINE" not in dict(launch.env)
    assert "weights" in launch.start_period_basis


@pytest.mark.parametrize(
    ("changes", "drains"),
    [
        ({}, True),
        ({"fork": True}, False),
        ({"engine": "llama.cpp", "tp": 1}, False),
        ({"extra_flags": (setting("--shutdown-timeout", "5"),)}, False),
    ],
)
def test_requests_that_run_may_end_before_the_container_is_killed(
    changes: dict[str, Any], drains: bool
) -> None:
    launch = launch_of(sample_plan(**changes))

    assert (("--shutdown-timeout", str(SECONDS_TO_END)) in launch.flags) is drains
    assert SECONDS_TO_END < STOP_S


@pytest.mark.parametrize("kind", CONTAINERS)
def test_image_is_pinned_by_digest_or_says_why_not(kind: str) -> None:
    pinned = main_text(sample_plan(image=f"vllm/vllm-openai:v0.22.0@{DIGEST}"), kind)
    tagged = main_text(sample_plan(), kind)

    assert f"vllm/vllm-openai:v0.22.0@{DIGEST}" in pinned
    assert "no digest is known" not in pinned
    assert "no digest is known" in tagged


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        pytest.param({"port": 0}, "port", id="port-zero"),
        pytest.param({"port": 70000}, "port", id="port-high"),
        pytest.param({"listen": "example.org"}, "listen", id="host-name"),
        pytest.param({"listen": "-x"}, "listen", id="listen-dash"),
        pytest.param({"listen": "fe80::1%eth0"}, "listen", id="listen-interface"),
        pytest.param({"gpu_indices": (0,)}, "gpu_indices", id="too-few-gpus"),
        pytest.param({"gpu_indices": (0, 0)}, "gpu_indices", id="gpu-twice"),
        pytest.param({"gpu_indices": (0, 7)}, "gpu_indices", id="gpu-absent"),
        pytest.param({"gpu_indices": (0, -1)}, "gpu_indices", id="gpu-negative"),
        pytest.param({"image": "bad image"}, "option.image", id="image-blank"),
        pytest.param({"image": "--privileged"}, "option.image", id="image-dash"),
        pytest.param({"image": "repne/vllm:latest@d0a200f77546"}, "digest", id="short-digest"),
        pytest.param({"checkpoint": "./here"}, "absolute", id="relative-path"),
        pytest.param({"checkpoint": "~/here"}, "absolute", id="home-path"),
        pytest.param({"checkpoint": "/a:b"}, "colon", id="colon-path"),
        pytest.param({"checkpoint": ""}, "option.checkpoint", id="no-checkpoint"),
        pytest.param({"checkpoint": "a\x00b"}, "NUL", id="nul"),
        pytest.param({"served_model_name": "\ud800"}, "surrogate", id="surrogate"),
        pytest.param({"extra_flags": (setting("--port=1; x"),)}, "flags.10", id="bad-flag"),
        pytest.param(
            {"extra_flags": (setting("--max-model-len", "4096"),)}, "twice", id="flag-twice"
        ),
        pytest.param(
            {"extra_flags": (setting("--enable-prefix-caching"),)}, "twice", id="flag-opposite"
        ),
        pytest.param(
            {"extra_flags": (setting("--api-key", "sk-1"),)}, "secrets.env", id="key-in-flags"
        ),
        pytest.param(
            {"extra_flags": (setting("--trust-remote-code"),)}, "remote", id="remote-code"
        ),
        pytest.param({"env": (setting("HF_TOKEN", "hf_x"),)}, "secrets.env", id="token-in-env"),
        pytest.param({"env": (setting("VLLM_API_KEY", "x"),)}, "secrets.env", id="key-in-env"),
        pytest.param({"env": (setting("A B", "x"),)}, "env.0", id="variable-name"),
        pytest.param({"env": (setting("A", "1"), setting("A", "2"))}, "twice", id="variable-twice"),
        pytest.param(
            {"flags": (setting("--tensor-parallel-size", "4"),)}, "contradicts", id="other-tp"
        ),
        pytest.param(
            {"flags": (setting("--max-model-len", "many"),)}, "contradicts", id="not-a-number"
        ),
        pytest.param(
            {"extra_flags": (setting("--kv-cache-dtype", "fp8"),)}, "flags.10", id="other-kv-dtype"
        ),
        pytest.param(
            {"flags": (setting("--enable-prefix-caching"),)}, "caching off", id="other-caching"
        ),
        pytest.param({"flags": (speculation(5),)}, "says mtp, 3 tokens", id="other-draft"),
        pytest.param(
            {"extra_flags": (setting("--served-model-name", "x"),)}, "flags.10", id="other-name"
        ),
        pytest.param({"served_model_name": " "}, "served_model_name", id="no-name"),
        pytest.param(
            {"extra_flags": (setting("--max-num-sequences", "9"),)}, "--max-num-seqs", id="no-flag"
        ),
        pytest.param(
            {"extra_flags": (setting("--enforce-eager", "yes"),)}, "is a switch", id="switch-value"
        ),
        pytest.param(
            {"extra_flags": (setting("--block-size", "wide"),)}, "flags.10.value", id="bad-type"
        ),
        pytest.param({"flags": ()}, "no --tensor-parallel-size", id="flags-gone"),
        pytest.param({"boot_first_s": figure(-5, "s", -0.1)}, "boot_first_s", id="boot-negative"),
        pytest.param({"boot_first_s": figure(1e300, "s")}, "boot_first_s", id="boot-endless"),
        pytest.param({"download_gib": figure(1e300, "GiB")}, "download_gib", id="download-huge"),
        pytest.param({"download_gib": figure(5, "s")}, "download_gib", id="download-unit"),
        pytest.param({"image": "y" * 300}, "option.image", id="image-long"),
    ],
)
@pytest.mark.parametrize("kind", ["docker", "kubernetes"])
def test_impossible_values_are_refused_by_key(
    kind: str, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint):
        render(sample_plan(**changes), kind)


@pytest.mark.parametrize("name", ["", "-x", "A", "a b", "x" * 41, "$(id)"])
def test_name_is_refused_unless_plain(name: str) -> None:
    with pytest.raises(DataError, match="name"):
        render(sample_plan(), "docker", name=name)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"image": None}, "docker"),
        ({}, "llama-server"),
        ({}, "helm"),
    ],
)
def test_kind_that_does_not_fit_the_plan_is_refused(changes: dict[str, Any], kind: str) -> None:
    with pytest.raises(UserError):
        render(sample_plan(**changes), kind)


def test_pods_are_measured_through_a_forwarded_port() -> None:
    files = render(sample_plan(listen="192.0.2.7", port=8123), "kubernetes")

    assert "kubectl port-forward service/qwendeploy 8123:8123" in files["kubernetes.yaml"][0]
    assert "--base-url http://127.0.0.1:8123 " in files["verify.sh"][0]


def test_replicas_are_one_process_where_only_one_container_runs() -> None:
    plan = sample_plan(tp=1, replicas=2)

    assert "--data-parallel-size 2" in main_text(plan, "docker")
    assert "--data-parallel-size 2" in main_text(plan, "systemd")
    assert "2 replicas run in one process" in main_text(plan, "docker")
    assert "data-parallel" not in main_text(plan, "compose")
    assert "data-parallel" not in main_text(plan, "kubernetes")
    assert "replicas: 2" in main_text(plan, "kubernetes")


def test_replicas_behind_a_router_have_their_own_gpus_and_metrics() -> None:
    files = render(sample_plan(tp=2, replicas=2), "compose")
    text = files["compose.yaml"][0]

    first, second = text.split("  engine-2:\n    image")
    assert uuid(0) in first and uuid(1) in first and uuid(2) not in first
    assert uuid(2) in second and uuid(3) in second and uuid(0) not in second
    # the router alone is reached from outside, so no further port can be in use
    assert text.count("127.0.0.1:") == 1 + text.count("http://127.0.0.1:")
    assert "location = /replicas/2/metrics" in files["nginx.conf"][0]
    assert "least_conn;" in files["nginx.conf"][0]
    assert "proxy_buffering off;" in files["nginx.conf"][0]


def test_engine_replicates_in_compose_when_asked() -> None:
    files = render(sample_plan(tp=1, replicas=2), "compose", replicas_by="engine")

    assert "nginx.conf" not in files
    assert "data-parallel-size" in files["compose.yaml"][0]
    with pytest.raises(UserError, match="router"):
        render(sample_plan(tp=1, replicas=2), "docker", replicas_by="router")


def test_data_parallel_flag_of_the_plan_is_not_repeated() -> None:
    plan = sample_plan(tp=1, replicas=2, extra_flags=(setting("--data-parallel-size", "2"),))

    assert main_text(plan, "docker").count("  --data-parallel-size 2\n") == 1

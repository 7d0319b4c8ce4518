"""Generated artefacts started by their own tools on a real Docker daemon."""

from __future__ import annotations

import contextlib
import json
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_daemon import NETWORK, free_port
from real_tools import TOOLS, lay_out, need, nginx, run
from starting_plans import Box

from qwendeploy.engines.metrics import parse_metrics
from qwendeploy.rendering import launch_of, render
from qwendeploy.rendering.kinds.compose import ROUTER_IMAGE
from qwendeploy.running import http, watching

pytestmark = pytest.mark.container


@pytest.fixture
def docker_shim(box: Box) -> str:
    """A docker that adds the network: the tests' daemon has no default bridge."""
    folder = box.folder / "bin"
    folder.mkdir()
    shim = folder / "docker"
    real = need("/usr/bin/docker")
    shim.write_text(f'#!/bin/sh\nverb=$1\nshift\nexec {real} "$verb" --network {NETWORK} "$@"\n')
    shim.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def await_health(url: str, path: str = "/health") -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if http.get(f"{url}{path}").status == 200:
            return
        time.sleep(0.2)
    raise AssertionError(f"{url} does not serve")


def test_script_starts_exactly_the_plan(box: Box, docker_shim: str) -> None:
    plan = box.plan()
    launch = launch_of(plan)
    place = lay_out(render(plan, "docker"), box.folder / "deploy")

    done = run(
        "bash", str(place / "run.sh"), env={"PATH": docker_shim, "HF_HOME": str(box.folder / "hub")}
    )

    assert done.returncode == 0, done.stderr
    await_health(launch.base_url)
    attributes = box.attributes("qwendeploy")
    assert attributes["Args"][1:] == list(launch.arguments("0.0.0.0", 8000))
    assert attributes["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == list(launch.gpus)
    assert attributes["HostConfig"]["ReadonlyRootfs"] is True
    assert attributes["HostConfig"]["RestartPolicy"]["MaximumRetryCount"] == 3
    assert "VLLM_API_KEY=a-key-for-tests" in attributes["Config"]["Env"]
    # the health check of the artefact itself, not ours
    health = json.dumps(attributes["Config"]["Healthcheck"]["Test"])
    assert "/health" in health
    with contextlib.closing(box.daemon.client()) as client:
        code, output = client.containers.get("qwendeploy").exec_run(
            ["/bin/sh", "-c", attributes["Config"]["Healthcheck"]["Test"][1]]
        )
    assert code == 0, output


def compose(box: Box, place: Path, *words: str) -> str:
    program = need(TOOLS / "root/usr/libexec/docker/cli-plugins/docker-compose")
    done = run(
        program,
        "-f",
        str(place / "compose.yaml"),
        *words,
        env={"HF_HOME": str(box.folder / "hub"), "DOCKER_HOST": box.daemon.host},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def started(box: Box, place: Path) -> Iterator[None]:
    # the health check's interval is made for boots of minutes
    path = place / "compose.yaml"
    path.write_text(path.read_text().replace("interval: 10s", "interval: 1s"))
    try:
        compose(box, place, "up", "-d", "--wait")
        yield
    finally:
        compose(box, place, "down")


def test_compose_waits_until_the_plan_serves(box: Box) -> None:
    plan = box.plan()
    launch = launch_of(plan)
    place = lay_out(render(plan, "compose"), box.folder / "deploy")

    with started(box, place):
        assert http.get(f"{launch.base_url}/health").status == 200
        assert http.get(f"{launch.base_url}/v1/models").status == 401
        models = http.get(f"{launch.base_url}/v1/models", api_key="a-key-for-tests").json
        attributes = box.attributes("qwendeploy")
        # the header's line for reboots: it holds when the same file is brought up again
        ids = compose(box, place, "ps", "-q").split()
        host = {"DOCKER_HOST": box.daemon.host}
        done = run(need("docker"), "update", "--restart", "unless-stopped", *ids, env=host)
        compose(box, place, "up", "-d", "--wait")
        after = box.attributes("qwendeploy")

    assert done.returncode == 0, done.stderr
    assert after["Id"] == attributes["Id"]
    assert after["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert models["data"][0]["max_model_len"] == 262144
    assert attributes["State"]["Health"]["Status"] == "healthy"
    assert attributes["Args"][1:] == list(launch.arguments("0.0.0.0", 8000))
    assert attributes["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == list(launch.gpus)


@pytest.fixture
def router_image(box: Box) -> None:
    """An nginx under the router's name, made of Debian's package and its libraries."""
    nginx()
    with contextlib.closing(box.daemon.client()) as client:
        archive = box.folder / "nginx.tar"
        with tarfile.open(TOOLS / "mini.tar") as base, tarfile.open(archive, "w") as tar:
            names = {"etc/passwd", "etc/group"}
            # its libraries first: they are newer than the stand-in's
            for path in sorted((TOOLS / "nginx").rglob("*")):
                name = str(path.relative_to(TOOLS / "nginx"))
                if name not in names:
                    names.add(name)
                    tar.add(path, name, recursive=False)
            for member in base:
                name = member.name.removeprefix("./")
                if name not in names:
                    names.add(name)
                    tar.addfile(member, base.extractfile(member) if member.isreg() else None)
            for name, text in (
                ("etc/passwd", "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"),
                ("etc/group", "root:x:0:\nnobody:x:65534:\nnogroup:x:65534:\n"),
            ):
                file = box.folder / Path(name).name
                file.write_text(text)
                tar.add(file, name)
        repository, _, tag = ROUTER_IMAGE.rpartition(":")
        client.api.import_image(
            src=str(archive),
            repository=repository,
            tag=tag,
            changes=['CMD ["/usr/sbin/nginx", "-g", "daemon off;"]'],
        )


@pytest.mark.usefixtures("router_image")
def test_router_spreads_requests_and_streams(box: Box) -> None:
    port = free_port()
    plan = box.plan(tp=1, replicas=2, port=port)
    launch = launch_of(plan)
    place = lay_out(render(plan, "compose"), box.folder / "deploy")
    body = {
        "model": "qwen3.6-27b",
        "prompt": "one two three",
        "max_tokens": 10,
        "stream": True,
    }

    with started(box, place):
        try:
            await_health(launch.base_url)
        except AssertionError as problem:
            with contextlib.closing(box.daemon.client()) as client:
                problem.add_note(client.containers.get("qwendeploy").logs().decode())
            raise
        arrivals = [_stream(launch.base_url, body) for _ in range(6)]
        served = [
            parse_metrics(http.get(f"{launch.base_url}/replicas/{number + 1}/metrics").text).get(
                "generation_tokens"
            )
            for number in range(2)
        ]
        both = parse_metrics(http.get(f"{launch.base_url}/metrics").text)
        second = http.get(f"{launch.base_url}/replicas/2/metrics").text
        states = watching.status(None)

    # each replica answered some of the requests
    assert all(tokens and tokens > 0 for tokens in served)
    # through the router the counters of both are seen, each under a name of its own
    assert both.get("generation_tokens") == sum(tokens or 0 for tokens in served)
    assert both.engines == 2
    assert 'vllm:num_requests_running{engine="2.0"' in second
    assert [(one.serving, one.base_url) for one in states] == [(True, None)] * 2
    # the server sends a token every 20 ms: a buffering router would deliver them at once
    assert all(last - first > 0.1 for first, last in arrivals)


def _stream(url: str, body: dict[str, object]) -> tuple[float, float]:
    """Return when the first and the last event of an answer came."""
    import urllib.request

    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": "Bearer a-key-for-tests"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        times = [time.monotonic() for line in answer if line.startswith(b"data: {")]
    assert len(times) >= 10
    return times[0], times[-1]


@pytest.mark.usefixtures("router_image")
def test_router_finds_a_replica_that_comes_back_elsewhere(box: Box) -> None:
    plan = box.plan(tp=1, replicas=2)
    url = launch_of(plan).base_url
    place = lay_out(render(plan, "compose"), box.folder / "deploy")

    with started(box, place), contextlib.closing(box.daemon.client()) as client:
        await_health(url)
        engines = [client.containers.get(f"qwendeploy-engine-{number}-1") for number in (1, 2)]
        router = client.containers.get("qwendeploy")
        before = [address_of(engine) for engine in engines]
        # as after a reboot: the router starts first, when no replica has a name yet
        for container in (*engines, router):
            container.stop(timeout=2)
        router.start()
        # each comes back under the address that the other had
        for engine in reversed(engines):
            engine.start()
        assert [address_of(engine) for engine in engines] != before
        await_health(url)
        # one alone, which must be asked at its new address
        engines[0].stop(timeout=2)
        await_health(f"{url}/replicas/2/metrics", path="")
        answers = [http.get(f"{url}/health").status for _ in range(6)]
        router.reload()

    assert answers == [200] * 6
    assert router.status == "running"


def address_of(container: Any) -> str:
    container.reload()
    networks = container.attrs["NetworkSettings"]["Networks"]
    return str(next(iter(networks.values()))["IPAddress"])

"""A Docker daemon of our own on a private socket, with an image made without a registry."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from real_tools import SBIN, TOOLS, need

HERE = Path(__file__).parent
IMAGE = "stand-in/vllm-openai:v0.22.0"
OTHER_IMAGE = "stand-in/vllm-openai:v0.23.0"
NETWORK = "qwendeploy-tests"

RUNTIME = """#!PYTHON
# drops the limits that a machine without CAP_SYS_RESOURCE cannot raise, then runs runc
import json, os, sys
words = sys.argv[1:]


def value_of(*names):
    for at, word in enumerate(words):
        if word in names:
            return words[at + 1]
        for name in names:
            if word.startswith(name + "="):
                return word.split("=", 1)[1]


def lower(path, inside):
    config = json.load(open(path))
    process = config["process"] if inside else config
    limits = process.get("rlimits") or []
    process["rlimits"] = [
        one for one in limits if one["type"] not in ("RLIMIT_MEMLOCK", "RLIMIT_NOFILE")
    ]
    json.dump(config, open(path, "w"))


if "create" in words or "run" in words:
    lower(os.path.join(value_of("--bundle", "-b") or ".", "config.json"), True)
elif "exec" in words and value_of("--process", "-p"):
    lower(value_of("--process", "-p"), False)
os.execv(RUNC, ["runc"] + words)
"""


@dataclass
class Daemon:
    """One dockerd; ``gpus`` registers Docker's GPU driver by a hook that does nothing."""

    gpus: bool = True
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="qd")))
    process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def start(self) -> None:
        """Start and wait until it answers."""
        dockerd = need("dockerd")
        hooks = self.folder / "hooks"
        hooks.mkdir(parents=True, exist_ok=True)
        runtime = hooks / "runc-nolimit"
        runtime.write_text(
            RUNTIME.replace("PYTHON", sys.executable).replace("RUNC,", repr(need("runc")) + ",")
        )
        runtime.chmod(0o755)
        hook = hooks / "nvidia-container-runtime-hook"
        if self.gpus:
            hook.write_text("#!/bin/sh\ncat >/dev/null 2>&1\nexit 0\n")
            hook.chmod(0o755)
        log = (self.folder / "dockerd.log").open("ab")
        self.process = subprocess.Popen(
            [
                dockerd,
                "--host",
                self.host,
                "--data-root",
                str(self.folder / "data"),
                "--exec-root",
                str(self.folder / "exec"),
                "--pidfile",
                str(self.folder / "docker.pid"),
                "--add-runtime",
                f"nolimit={runtime}",
                "--default-runtime",
                "nolimit",
                "--iptables=false",
                "--ip6tables=false",
                "--ip-forward=false",
                "--ip-masq=false",
                "--bridge=none",
            ],
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": f"{hooks}:{os.environ.get('PATH', '')}{SBIN}"},
            start_new_session=True,
        )
        log.close()
        self._await()

    def _await(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            # a plain socket first: Docker's client leaks one that cannot be connected
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
                probe.connect(f"{self.folder}/docker.sock")
                with contextlib.closing(self.client()) as client:
                    client.ping()
                return
            time.sleep(0.2)
        raise AssertionError((self.folder / "dockerd.log").read_text()[-2000:])

    def client(self) -> Any:
        import docker

        return docker.DockerClient(base_url=self.host, version="1.41", timeout=60)

    def kill(self) -> None:
        """End the daemon and its containerd at once, as a crash would; containers go on."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._kill_containerd()
        (self.folder / "docker.pid").unlink(missing_ok=True)

    def restart(self) -> None:
        """Shut down in order, as for a reboot, and start again."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)
        self.start()

    def _kill_containerd(self) -> None:
        pidfile = self.folder / "exec" / "containerd" / "containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(pidfile.read_text()), signal.SIGKILL)
            pidfile.unlink()

    def stop(self) -> None:
        """Remove containers and networks, end the daemon, remove what it left."""
        with contextlib.suppress(Exception), contextlib.closing(self.client()) as client:
            for container in client.containers.list(all=True):
                container.remove(force=True)
            for network in client.networks.list(names=[NETWORK]):
                network.remove()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._kill_containerd()
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted(mounts, reverse=True):
            if mount.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def load_image(self) -> None:
        """Import the stand-in engine as two tags that differ by a file."""
        root = need_file(TOOLS / "mini.tar")
        with contextlib.closing(self.client()) as client:
            client.networks.create(NETWORK, driver="bridge")
            for tag in (IMAGE, OTHER_IMAGE):
                archive = self.folder / "image.tar"
                shutil.copyfile(root, archive)
                with tarfile.open(archive, "a") as tar:
                    for name in ("boot_engine.py", "known_server.py"):
                        tar.add(HERE / name, f"srv/{name}")
                    note = self.folder / "tag"
                    note.write_text(tag)
                    tar.add(note, "srv/tag")
                repository, _, version = tag.rpartition(":")
                client.api.import_image(
                    src=str(archive),
                    repository=repository,
                    tag=version,
                    changes=[
                        'ENTRYPOINT ["python3", "/srv/boot_engine.py"]',
                        "ENV PATH=/usr/bin PYTHONUNBUFFERED=1",
                    ],
                )
                archive.unlink()


def need_file(path: Path) -> Path:
    """Return the file, or end the test as ``need`` does."""
    if not path.exists():
        need(path)
    return path


def free_port() -> int:
    """Return a port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_daemon(*, gpus: bool = True, image: bool = True) -> Iterator[Daemon]:
    """A daemon for a test or a session, cleaned up whatever happens."""
    daemon = Daemon(gpus=gpus)
    try:
        daemon.start()
        if image:
            daemon.load_image()
        yield daemon
    finally:
        daemon.stop()

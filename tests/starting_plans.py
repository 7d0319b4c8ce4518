"""What the container tests share: a plan for the stand-in engine, stored, and its command lines."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from plan_samples import VLLM_FLAGS, figure, sample_plan, setting
from real_daemon import IMAGE, NETWORK, Daemon, free_port

from qwendeploy.documents import Plan
from qwendeploy.documents.files import dump_document
from qwendeploy.running.settings import UpSettings


@dataclass
class Box:
    """One daemon, one folder, and what is told while starting."""

    daemon: Daemon
    folder: Path
    told: list[str]

    def plan(self, *, script: dict[str, Any] | None = None, **changes: Any) -> Plan:
        """Return a plan whose engine follows ``script`` (tests/boot_engine.py)."""
        changes.setdefault("image", IMAGE)
        changes.setdefault("port", free_port())
        changes.setdefault("boot_first_s", figure(8, "s"))
        changes.setdefault("boot_warm_s", figure(4, "s"))
        flags = (*VLLM_FLAGS(changes.get("tp", 2)), setting("--attention-backend", "FLASH_ATTN"))
        changes.setdefault("flags", flags)
        env = (setting("ENGINE_SCRIPT", json.dumps(script or {})),)
        return sample_plan(env=env, download_gib=None, **changes)

    def store(self, plan: Plan, name: str = "plan.yaml") -> Path:
        path = self.folder / name
        path.write_text(dump_document(plan), encoding="utf-8")
        return path

    def settings(self, **changes: Any) -> UpSettings:
        return UpSettings(**{"network": NETWORK, "checks": False, "name": "test", **changes})

    def tell(self, text: str, _share: float | None) -> None:
        if not self.told or self.told[-1].split(":")[0] != text.split(":")[0]:
            self.told.append(text)

    def names(self) -> list[str]:
        """Return the names of all containers that are there."""
        with contextlib.closing(self.daemon.client()) as client:
            return sorted(
                container.name
                for container in client.containers.list(all=True, ignore_removed=True)
            )

    def attributes(self, name: str = "test") -> dict[str, Any]:
        with contextlib.closing(self.daemon.client()) as client:
            attributes: dict[str, Any] = client.containers.get(name).attrs
            return attributes

    def clear(self) -> None:
        with contextlib.closing(self.daemon.client()) as client:
            for container in client.containers.list(all=True, ignore_removed=True):
                container.remove(force=True)


@contextlib.contextmanager
def box_of(daemon: Daemon, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """Point this process at the daemon; remove its containers afterwards."""
    monkeypatch.setenv("DOCKER_HOST", daemon.host)
    monkeypatch.setenv("HF_HOME", str(folder / "hub"))
    monkeypatch.setenv("QWENDEPLOY_DATA", str(folder / "own"))
    box = Box(daemon, folder, [])
    try:
        yield box
    finally:
        box.clear()

"""Applied = asked: the running container and server compared with the plan, point by point.

Three witnesses: Docker's own description of the container, the server's pages, and the engine's
log. What none of them tells is not compared and not claimed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qwendeploy.documents import Plan
from qwendeploy.engines.metrics import parse_metrics
from qwendeploy.engines.vllm.boot_log import BootLog
from qwendeploy.figures import Figure
from qwendeploy.rendering.launch import CONTAINER_PORT, Launch
from qwendeploy.running import http
from qwendeploy.running.images import Image


@dataclass(frozen=True)
class Check:
    """One setting: planned and applied value, and the likely cause of a difference."""

    what: str
    asked: str
    applied: str
    agrees: bool
    witness: str
    """``docker``, ``server`` or ``log``."""
    cause: str = ""


CAUSES = {
    "image": "the tag points to another image now; pin the digest",
    "arguments": "the container was changed after creation; run `qwendeploy down`, then up",
    "environment": "the container was changed after creation; run `qwendeploy down`, then up",
    "GPUs": "a Docker hook or the default runtime changes devices; check daemon.json",
    "address": "the network publishes no ports (bridge off, or --network of another driver)",
    "read-only root": "the container was changed after creation",
    "served model": "the image's entry point sets its own --served-model-name",
    "checkpoint": "the image's entry point sets its own model, or the directory has another one",
    "max_model_len": "the engine lowered it to the limit of the checkpoint or the cache,"
    " or the entry point overrides the flag",
    "prefix caching": "the image's entry point or its default overrides the flag",
    "KV dtype": "the attention backend does not support the dtype, or the entry point overrides it",
    "memory fraction": "the image's entry point overrides the flag",
    "engine version": "the tag points to another build than the plan's",
    "tensor parallel": "the image's entry point overrides the flag",
    "replicas": "the image's entry point overrides the flag",
    "drafting": "the engine disabled drafting: the checkpoint has no draft weights, or the entry"
    " point overrides the flag",
    "attention backend": "the backend does not support this model, dtype or GPU, so the engine"
    " fell back to another",
    "KV pool": "other programs use GPU memory, or the engine needs more memory beside weights and"
    " cache than predicted; the pool size is stored as evidence",
}
"""Likely cause of a difference, by setting."""


@dataclass(frozen=True)
class ServerPages:
    """What the server reports about itself after the start."""

    models: Any
    cache_config: dict[str, str]
    blocks: int | None
    boot_id: str | None = None
    """Start time of the server's process, as a run document has it."""


def server_pages(launch: Launch, *, api_key: str | None) -> ServerPages:
    """Return the pages that tell what is applied; missing ones are empty."""
    models = http.get(f"{launch.base_url}/v1/models", api_key=api_key).json
    metrics = http.get(f"{launch.base_url}/metrics", api_key=api_key)
    told = parse_metrics(metrics.text if metrics.status == 200 else "")
    return ServerPages(
        models=models if isinstance(models, dict) else {},
        cache_config=told.cache_config,
        blocks=told.blocks(),
        boot_id=told.boot_id,
    )


def compare(
    plan: Plan,
    launch: Launch,
    image: Image,
    attributes: dict[str, Any],
    log: BootLog,
    pages: ServerPages,
) -> tuple[Check, ...]:
    """Return every point that a witness tells, agreeing or not."""
    found = [
        *_container(launch, image, attributes),
        *_server(plan, launch, pages),
        *_engine(plan, launch, log),
        *_pool(plan, log, pages),
    ]
    return tuple(found)


def _check(what: str, asked: object, applied: object, witness: str) -> Check:
    agrees = str(asked) == str(applied)
    return Check(
        what, str(asked), str(applied), agrees, witness, "" if agrees else CAUSES.get(what, "")
    )


def _container(launch: Launch, image: Image, attributes: dict[str, Any]) -> Iterator[Check]:
    config, host = attributes["Config"], attributes["HostConfig"]
    yield _check("image", image.id, attributes["Image"], "docker")
    asked = list(launch.arguments("0.0.0.0", CONTAINER_PORT))
    yield _check("arguments", json.dumps(asked), json.dumps(config["Cmd"] or []), "docker")
    present = set(config["Env"] or [])
    missing = [name for name, value in launch.env if f"{name}={value}" not in present]
    yield _check("environment", "as asked", f"not {missing}" if missing else "as asked", "docker")
    asked_devices = "all" if launch.sees_all else ",".join(launch.gpus)
    yield _check("GPUs", asked_devices, _devices(host), "docker")
    ports = (attributes["NetworkSettings"]["Ports"] or {}).get(f"{CONTAINER_PORT}/tcp") or []
    published = [f"{port['HostIp']}:{port['HostPort']}" for port in ports]
    wanted = f"{launch.listen}:{launch.port}"
    yield _check("address", wanted, ", ".join(published) or "nothing published", "docker")
    yield _check("read-only root", launch.read_only, bool(host.get("ReadonlyRootfs")), "docker")


def _devices(host: dict[str, Any]) -> str:
    requests = host.get("DeviceRequests") or []
    if any(request.get("Count") == -1 for request in requests):
        return "all"
    return ",".join(device for request in requests for device in request.get("DeviceIDs") or [])


def _server(plan: Plan, launch: Launch, pages: ServerPages) -> Iterator[Check]:
    cards = [card for card in pages.models.get("data", []) if isinstance(card, dict)]
    if cards:
        names = [str(card.get("id")) for card in cards]
        asked = dict(launch.flags).get("--served-model-name") or dict(launch.flags).get("--alias")
        if asked is not None:
            applied = asked if asked in names else ", ".join(names)
            yield _check("served model", asked, applied, "server")
        root = cards[0].get("root")
        if root is not None and launch.engine == "vllm":
            yield _check("checkpoint", launch.model, root, "server")
        length = cards[0].get("max_model_len")
        if length is not None and plan.option.max_model_len is not None:
            yield _check("max_model_len", plan.option.max_model_len, length, "server")
    config = pages.cache_config
    if config.get("enable_prefix_caching") in {"True", "False"}:
        applied = "on" if config["enable_prefix_caching"] == "True" else "off"
        asked_caching = "on" if plan.option.prefix_cache else "off"
        yield _check("prefix caching", asked_caching, applied, "server")
    if dtype := config.get("cache_dtype"):
        applied = "fp8" if dtype.startswith("fp8") else "bf16"
        yield _check("KV dtype", plan.option.kv_cache_dtype, applied, "server")
    fraction, share = plan.option.gpu_memory_utilization, config.get("gpu_memory_utilization")
    if fraction is not None and share is not None and _is_number(share):
        yield _check("memory fraction", f"{fraction:g}", f"{float(share):g}", "server")


def _engine(plan: Plan, launch: Launch, log: BootLog) -> Iterator[Check]:
    option = plan.option
    if log.engine_version is not None and option.engine_version and not option.fork:
        applied = log.engine_version.partition("+")[0]
        yield _check("engine version", option.engine_version, applied, "log")
    if "tensor_parallel_size" in log.config:
        yield _check("tensor parallel", option.tp, log.config["tensor_parallel_size"], "log")
    if "data_parallel_size" in log.config:
        yield _check("replicas", launch.replicas, log.config["data_parallel_size"], "log")
    if log.spec_method is not None:
        asked = _draft(option.spec_method, option.spec_tokens)
        yield _check("drafting", asked, _draft(log.spec_method, log.spec_tokens or 0), "log")
    backend = dict(launch.flags).get("--attention-backend")
    if backend is not None and log.attention_backend is not None:
        yield _check("attention backend", backend.upper(), log.attention_backend, "log")


def _draft(method: str, tokens: int) -> str:
    """Return the draft in words; MTP of this model family goes under several names."""
    if method == "none":
        return "none"
    name = "mtp" if method.endswith("mtp") else method
    return f"{name}, {tokens} tokens"


def _pool(plan: Plan, log: BootLog, pages: ServerPages) -> Iterator[Check]:
    """Compare the pool in blocks where the server counts them, else in the tokens it logged."""
    predictions = plan.predictions
    if predictions.kv_pool_blocks is not None and pages.blocks is not None:
        yield _within("blocks", predictions.kv_pool_blocks, pages.blocks, "server")
    elif predictions.kv_pool_tokens is not None and log.kv_tokens is not None:
        yield _within("tokens", predictions.kv_pool_tokens, log.kv_tokens, "log")


def _within(unit: str, predicted: Figure, applied: int, witness: str) -> Check:
    agrees = predicted.low <= applied <= predicted.high
    return Check(
        "KV pool",
        f"{predicted.value:,.0f} {unit} [{predicted.low:,.0f}, {predicted.high:,.0f}]"
        f" ({predicted.kind})",
        f"{applied:,} {unit}",
        agrees,
        witness,
        "" if agrees else CAUSES["KV pool"],
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

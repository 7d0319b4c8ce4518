"""Findings about what a launch meets: the card's memory, the container's ports and volumes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from qwendeploy.auditing.findings import Finding, told_flag
from qwendeploy.auditing.memory import PoolView, held_when_short
from qwendeploy.auditing.understand import Understood
from qwendeploy.tables.boot import boot_rows


def memory_findings(understood: Understood, view: PoolView | None) -> Iterator[Finding]:
    """Yield what the pool says: what stops the start, what caps the number that runs."""
    if view is None:
        return
    weights, budget = view.answer.weights.value, view.answer.budget_gib
    rest = view.answer.rest.value
    if view.lacks_length and not view.answer.blocks.basis.startswith("bytes"):
        yield _no_length(understood, view, weights, budget, rest)
        return
    if view.may_lack_length:
        yield Finding(
            "kv-too-small-for-max-model-len",
            "warning",
            f"--max-model-len {view.max_model_len}",
            understood.place_of("max_model_len"),
            f"one request needs {view.needed} blocks; about {view.blocks} "
            f"({view.answer.blocks.low:.0f} to {view.answer.blocks.high:.0f}) are there",
            f"--max-model-len {view.largest_length} is safe",
        )
    if view.lacks_seats:
        yield Finding(
            "max-num-seqs-above-blocks",
            "error",
            told_flag(understood, "max_num_seqs", "--max-num-seqs"),
            understood.place_of("max_num_seqs"),
            f"{view.max_num_seqs} seats against about {view.blocks} blocks: graph capture of full "
            "decode steps refuses more seats than state blocks; more memory rarely cures it",
            f"--max-num-seqs {_round_down(view.short_requests)}",
            "fails_at_start",
        )
    elif view.max_num_seqs and view.short_requests < view.max_num_seqs:
        yield Finding(
            "short-context-limit",
            "info",
            told_flag(understood, "max_num_seqs", "--max-num-seqs"),
            understood.place_of("max_num_seqs"),
            f"a request holds at least {held_when_short(view)} blocks, so about "
            f"{view.short_requests} of {view.max_num_seqs} run at once; the rest waits",
            f"--max-num-seqs {_round_down(view.short_requests)}",
        )
    if view.lacks_step:
        yield Finding(
            "block-above-batched-tokens",
            "error",
            told_flag(understood, "max_num_batched_tokens", "--max-num-batched-tokens"),
            understood.place_of("max_num_batched_tokens"),
            f"with prefix caching a step must hold one block of "
            f"{view.answer.layout.block_tokens} tokens",
            f"--max-num-batched-tokens {-(-view.answer.layout.block_tokens // 1024) * 1024}",
            "fails_at_start",
        )


def _no_length(
    understood: Understood, view: PoolView, weights: float, budget: float, rest: float
) -> Finding:
    length = view.largest_length
    spent = (
        f"weights {weights:.1f} GiB and working memory {rest:.1f} GiB of {budget:.1f} GiB a card"
    )
    if weights >= budget or length < view.answer.layout.block_tokens * 2:
        fits = weights < budget
        return Finding(
            "weights-leave-no-cache" if fits else "weights-do-not-fit",
            "error",
            f"{understood.checkpoint.name if understood.checkpoint else 'checkpoint'} in memory",
            understood.arguments.model.place
            if understood.arguments.model
            else (understood.launch.place),
            f"{spent}: no room for the {view.needed} blocks of one request"
            if fits
            else f"{weights:.1f} GiB of weights a card against a budget of {budget:.1f} GiB",
            "a smaller checkpoint (int4, FP8), more cards under one tensor-parallel size",
            "fails_at_start",
        )
    return Finding(
        "kv-too-small-for-max-model-len",
        "error",
        f"--max-model-len {view.max_model_len}",
        understood.place_of("max_model_len"),
        f"one request reserves {view.needed} blocks, about {view.blocks} are there ({spent})",
        f"--max-model-len {length}",
        "fails_at_start",
    )


def _round_down(count: int) -> int:
    step = 8 if count >= 16 else 1
    return max(1, count // step * step)


def container_findings(understood: Understood) -> Iterator[Finding]:
    """Yield faults of the container itself: ports that lead nowhere, weights fetched anew."""
    launch = understood.launch
    container = launch.container
    if launch.variables_open and not understood.api_key and understood.network in ("all", "host"):
        yield Finding(
            "open-port-without-key",
            "info",
            f"port on {understood.listen} without a key",
            launch.place,
            f"the port answers on {understood.listen}; whether a key is asked for would stand in "
            f"{', '.join(launch.unread)}, not read",
            "VLLM_API_KEY there, or publish the port on 127.0.0.1",
        )
    if container is None:
        return
    loopback = _loopback_only(understood)
    if loopback is not None:
        yield loopback
    if launch.runtime == "kubernetes":
        return
    port = understood.number("port")
    inside = [entry.container for entry in container.ports]
    on_host = container.network is not None and container.network.text == "host"
    plain = [text for text in inside if text.isdigit()]
    told = port is not None and inside and plain == inside and not on_host
    if told and port is not None and str(int(port)) not in inside and launch.engine == "vllm":
        yield Finding(
            "port-leads-nowhere",
            "error",
            f"published port {', '.join(inside)}",
            container.ports[0].place,
            f"the server listens on {int(port)} inside the container",
            f"publish {container.ports[0].host or int(port)}:{int(port)}",
            "degraded",
        )
    finding = _weights_lost(understood)
    if finding is not None:
        yield finding


_SHARED_NETWORKS = ("host", "container:", "service:", "ns:")
"""Networks in which the container's loopback is somebody else's too."""


def _loopback_only(understood: Understood) -> Finding | None:
    """Return the finding that the server answers inside its container alone."""
    launch = understood.launch
    setting = understood.arguments.last("--host")
    network = launch.container.network if launch.container is not None else None
    shared = network is not None and network.text.startswith(_SHARED_NETWORKS)
    if launch.engine != "vllm" or setting is None or shared:
        return None
    address = setting.value or ""
    if address not in ("localhost", "::1") and not address.startswith("127."):
        return None
    return Finding(
        "port-leads-nowhere",
        "error",
        f"--host {address}",
        setting.place,
        f"{address} is the container's own loopback: neither a published port nor a Service nor "
        "another container reaches the server",
        "--host 0.0.0.0, and 127.0.0.1 in front of the published port",
        "degraded",
    )


_COMPILED = "/root/.cache/vllm"
"""Compiled graphs; where no volume keeps them every container compiles anew."""


def cluster_findings(understood: Understood) -> Iterator[Finding]:
    """Yield what a cluster does to the server: a probe that kills it, a variable that stops it."""
    launch = understood.launch
    watched = launch.supervision
    if watched is None or launch.engine != "vllm":
        return
    if watched.link is not None:
        yield Finding(
            "service-named-vllm",
            "error",
            "Service vllm sets VLLM_PORT",
            watched.link,
            "the cluster hands pods VLLM_PORT=tcp://… after a Service of this name, and the engine "
            "stops: VLLM_PORT appears to be a URI",
            "another name for the Service, or enableServiceLinks: false in the pod",
            "fails_at_start",
        )
    compiled = any(
        f"{_COMPILED}/".startswith(_target(volume.text).rstrip("/") + "/")
        for volume in (launch.container.volumes if launch.container is not None else ())
    )
    starts = [
        row.seconds
        for row in boot_rows()
        if row.loader != "dummy" and (compiled or row.start != "warm")
    ]
    if watched.patience_s is None or watched.probe is None or not starts:
        return
    if watched.patience_s < median(starts):
        sure = watched.patience_s < min(starts)
        yield Finding(
            "probe-kills-start",
            "error" if sure else "warning",
            "startupProbe, livenessProbe",
            watched.probe,
            f"the container is killed after {watched.patience_s} s without an answer; "
            f"{len(starts)} measured starts took {min(starts):.0f} to {max(starts):.0f} s",
            "startupProbe with failureThreshold 90 and periodSeconds 10",
            "fails_at_start" if sure else None,
        )


def _weights_lost(understood: Understood) -> Finding | None:
    """Return the finding that a hub checkpoint is fetched again at every start."""
    container = understood.launch.container
    checkpoint = understood.checkpoint
    if container is None or checkpoint is None or container.gpus is None:
        return None
    name = understood.arguments.model.text if understood.arguments.model else ""
    if name.startswith(("/", ".", "$", "~")) or "/" not in name:
        return None
    env = understood.launch.env
    home = env["HF_HOME"].text if "HF_HOME" in env else "/root/.cache/huggingface"
    wanted = [
        env[key].text
        for key in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")
        if key in env
    ] or [home]
    download = understood.arguments.value("--download-dir")
    targets = [_target(volume.text) for volume in container.volumes]
    for path in [*wanted, download] if download else wanted:
        covered = any(
            target and (path == target or f"{path}/".startswith(target.rstrip("/") + "/"))
            for target in targets
        )
        deeper = any(target.startswith(f"{path.rstrip('/')}/") for target in targets if target)
        if covered or deeper or "$" in path:
            return None
    return Finding(
        "weights-not-cached",
        "warning",
        "volumes",
        container.image.place if container.image else understood.launch.place,
        f"no volume holds {wanted[0]}, so {name} is fetched again for every new container",
        f"-v $HOME/.cache/huggingface:{home}",
        "wasteful",
    )


def _target(volume: str) -> str:
    if "target=" in volume or "dst=" in volume or "destination=" in volume:
        fields = dict(part.partition("=")[::2] for part in volume.split(","))
        return fields.get("target") or fields.get("dst") or fields.get("destination") or ""
    parts = volume.split(":")
    return parts[1] if len(parts) > 1 else parts[0]

"""Findings about what a launch meets: the card's memory, the container's ports and volumes."""

from __future__ import annotations

from collections.abc import Iterator

from qwendeploy.auditing.findings import Finding, told_flag
from qwendeploy.auditing.memory import PoolView, held_when_short
from qwendeploy.auditing.understand import Understood


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
    if container is None or launch.runtime == "kubernetes":
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

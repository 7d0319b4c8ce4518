"""Findings about what a launch meets: the container's ports, volumes and device, the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.reading.checkpoint_names import is_path
from qwendeploy.auditing.reading.text import Word
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.tables.boot import boot_rows


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
    for word in container.refused:
        yield Finding(
            "device-request-refused",
            "error",
            "device request",
            word.place,
            f"the container is refused: {word.text}",
            "a device request with capabilities and either a count or device ids",
            "fails_at_start",
        )
    if (
        container.platform is not None
        and understood.context.machine is not None
        and _foreign_platform(container.platform.text, understood.context.machine.platform)
    ):
        yield Finding(
            "image-architecture",
            "error",
            f"platform {container.platform.text}",
            container.platform.place,
            f"the host is {understood.context.machine.platform}: the image's programs cannot be "
            "executed, or crawl under emulation without the GPU",
            "drop the platform, the tag has images for both",
            "fails_at_start",
        )
    loopback = _loopback_only(understood)
    if loopback is not None:
        yield loopback
    if launch.runtime == "kubernetes":
        return
    port = understood.number("port")
    inside = [entry.container for entry in container.ports]
    on_host = container.on_host_network
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


_IN_IMAGE = ("/vllm-workspace", "/usr", "/opt", "/etc/ssl")


def _paths_not_mounted(understood: Understood) -> Iterator[Finding]:
    """Yield paths of model and chat template that no volume puts into an upstream container."""
    container = understood.launch.container
    if container is None or container.gpus is None or container.opaque:
        return
    if not _upstream(understood):
        return
    targets = [target.rstrip("/") for target in container.targets]
    model = understood.arguments.model
    template = understood.arguments.last("--chat-template")
    paths = [("model", model)] if model is not None else []
    if template is not None and template.value is not None:
        paths.append(("--chat-template", Word(template.value, template.place)))
    for what, path in paths:
        text = path.text
        if not text.startswith("/") or "$" in text or text.startswith(_IN_IMAGE):
            continue
        if not any(_holds(target, text) for target in targets):
            yield Finding(
                "path-not-mounted",
                "error",
                f"{what} {text}",
                path.place,
                f"no volume puts {text} into the container"
                + (f"; mounted are {', '.join(targets[:4])}" if targets else ""),
                f"-v HOST_FOLDER:{text.rsplit('/', 1)[0] or '/'}",
                "fails_at_start",
            )


def _holds(target: str, path: str) -> bool:
    """Say whether a volume at ``target`` holds a path: it is the path or a folder above it."""
    return f"{path}/".startswith(target.rstrip("/") + "/")


def _foreign_platform(asked: str, host: str) -> bool:
    arm = ("arm64", "aarch64")
    wants_arm = any(name in asked for name in arm)
    wants_x86 = "amd64" in asked or "x86_64" in asked
    is_arm = host.endswith(("aarch64", "arm64"))
    return (wants_x86 and is_arm) or (wants_arm and host.endswith("x86_64"))


def model_findings(understood: Understood) -> Iterator[Finding]:
    """Yield a model that is not named, or that a container looks for where it is not."""
    launch, model = understood.launch, understood.arguments.model
    if launch.engine != "vllm" or launch.open_ended or understood.fork:
        return
    if model is None:
        if not launch.lost:
            yield Finding(
                "model-missing",
                "error",
                "model",
                launch.place,
                "no model is named: the engine serves its default, Qwen/Qwen3-0.6B",
                "the repository or folder as the first argument",
                "degraded",
            )
        return
    container, name = launch.container, model.text
    yield from _paths_not_mounted(understood)
    if container is None or container.workdir is not None or "/" in name or "$" in name:
        return
    targets = [target.rstrip("/") for target in container.targets]
    if name.startswith(".") or any(
        target.endswith((f"/{name}", "workspace")) for target in targets
    ):
        return
    yield Finding(
        "model-not-found",
        "error",
        name,
        model.place,
        f"{name} is neither a repository with its owner nor a folder that a volume puts into the "
        "container's working directory: the hub answers 404",
        f"Qwen/{name}"
        if name.lower().startswith("qwen3")
        else "owner/repository, or a mounted path",
        "fails_at_start",
    )


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
    targets = launch.container.targets if launch.container is not None else ()
    compiled = any(_holds(target, _COMPILED) for target in targets)
    starts = [
        row.seconds
        for row in boot_rows()
        if row.loader != "dummy" and (compiled or row.start != "warm")
    ]
    if watched.patience_s is None or watched.probe is None or not starts:
        return
    if watched.patience_s < median(starts):
        sure = watched.patience_s < min(starts)
        after = (
            "the container is killed" if watched.restarts else "services that wait for it give up"
        )
        yield Finding(
            "probe-kills-start",
            "error" if sure and watched.restarts else "warning",
            "startupProbe, livenessProbe" if watched.restarts else "healthcheck",
            watched.probe,
            f"{after} after {watched.patience_s} s without an answer; {len(starts)} measured "
            f"starts took {min(starts):.0f} to {max(starts):.0f} s",
            "startupProbe with failureThreshold 90 and periodSeconds 10"
            if watched.restarts
            else "start_period: 900s",
            "fails_at_start" if sure and watched.restarts else None,
        )


def _hub_home(env: Mapping[str, Word]) -> str:
    """Return the hub's folder: ``HF_HOME``, else below the cache or home of the variables."""
    if "HF_HOME" in env:
        return env["HF_HOME"].text
    if "XDG_CACHE_HOME" in env:
        return f"{env['XDG_CACHE_HOME'].text.rstrip('/')}/huggingface"
    home = env["HOME"].text.rstrip("/") if "HOME" in env else "/root"
    return f"{home}/.cache/huggingface"


def _upstream(understood: Understood) -> bool:
    return understood.image_row is not None or (understood.image or "").startswith(
        "vllm/vllm-openai"
    )


def _weights_lost(understood: Understood) -> Finding | None:
    """Return the finding that a hub checkpoint is fetched again at every start."""
    container = understood.launch.container
    checkpoint = understood.checkpoint
    if container is None or checkpoint is None or container.gpus is None:
        return None
    name = understood.arguments.model.text if understood.arguments.model else ""
    if is_path(name) or "/" not in name:
        return None
    env = understood.launch.env
    home = _hub_home(env)
    wanted = [
        env[key].text
        for key in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE")
        if key in env
    ] or [home]
    download = understood.arguments.value("--download-dir")
    targets = container.targets
    for path in [*wanted, download] if download else wanted:
        covered = any(_holds(target, path) for target in targets if target)
        deeper = any(target.startswith(f"{path.rstrip('/')}/") for target in targets if target)
        if covered or deeper or "$" in path:
            return None
    if not _upstream(understood) and any(target.endswith("/huggingface") for target in targets):
        # Another image may run as another user, whose home is not known.
        return None
    place = container.image.place if container.image else understood.launch.place
    offline = env.get("HF_HUB_OFFLINE")
    if offline is not None and offline.text.lower() in ("1", "true", "yes", "on"):
        return Finding(
            "weights-not-cached",
            "error",
            "volumes",
            place,
            f"no volume holds {wanted[0]} and HF_HUB_OFFLINE forbids fetching {name}",
            f"-v $HOME/.cache/huggingface:{home}",
            "fails_at_start",
        )
    return Finding(
        "weights-not-cached",
        "warning",
        "volumes",
        place,
        f"no volume holds {wanted[0]}, so {name} is fetched again for every new container",
        f"-v $HOME/.cache/huggingface:{home}",
        "wasteful",
    )

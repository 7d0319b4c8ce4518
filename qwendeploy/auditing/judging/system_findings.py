"""Findings about the environment: container ports, volumes, devices and the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.reading.checkpoint_names import is_path
from qwendeploy.auditing.reading.text import Word
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.tables.boot import boot_rows


def container_findings(understood: Understood) -> Iterator[Finding]:
    """Yield mistakes in the container settings: unreachable ports, missing cache volumes."""
    launch = understood.launch
    container = launch.container
    if launch.variables_open and not understood.api_key and understood.network in ("all", "host"):
        yield Finding(
            "open-port-without-key",
            "info",
            f"port on {understood.listen} without an API key",
            launch.place,
            f"the server listens on {understood.listen}; an API key may be set in "
            f"{', '.join(launch.unread)}, which was not read",
            "set VLLM_API_KEY there, or publish the port on 127.0.0.1",
        )
    if container is None:
        return
    for word in container.refused:
        yield Finding(
            "device-request-refused",
            "error",
            "device request",
            word.place,
            f"Docker rejects the container: {word.text}",
            "request devices with capabilities and either count or device_ids",
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
            f"the host is {understood.context.machine.platform}: the image cannot run here, or "
            "only in slow emulation without the GPU",
            "remove the platform setting, the tag has images for both architectures",
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
            f"the server listens on port {int(port)} inside the container",
            f"publish {container.ports[0].host or int(port)}:{int(port)}",
            "degraded",
        )
    finding = _weights_lost(understood)
    if finding is not None:
        yield finding


_IN_IMAGE = ("/vllm-workspace", "/usr", "/opt", "/etc/ssl")


def _paths_not_mounted(understood: Understood) -> Iterator[Finding]:
    """Yield model and chat template paths that are not mounted in an upstream container."""
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
                f"{text} is not mounted in the container"
                + (f"; mounts: {', '.join(targets[:4])}" if targets else ""),
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
    """Yield a missing model, or one that the container cannot find."""
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
                "no model is given: vLLM serves its default, Qwen/Qwen3-0.6B",
                "pass the repository or directory as the first argument",
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
        f"{name} is neither OWNER/REPOSITORY nor a directory mounted in the container's working "
        "directory: the Hugging Face Hub returns 404",
        f"Qwen/{name}"
        if name.lower().startswith("qwen3")
        else "use owner/repository, or a mounted path",
        "fails_at_start",
    )


_SHARED_NETWORKS = ("host", "container:", "service:", "ns:")
"""Networks in which the container shares its loopback interface with others."""


def _loopback_only(understood: Understood) -> Finding | None:
    """Return the finding that the server is reachable only from inside its container."""
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
        f"{address} is the container's loopback interface: published ports, Services and other "
        "containers cannot reach the server",
        "--host 0.0.0.0, and publish the port on 127.0.0.1",
        "degraded",
    )


_COMPILED = "/root/.cache/vllm"
"""Cache of compiled graphs; without a volume for it, every new container compiles again."""


def cluster_findings(understood: Understood) -> Iterator[Finding]:
    """Yield probes that kill the server while it starts, and a variable that stops it."""
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
            "for a Service of this name Kubernetes sets VLLM_PORT=tcp://… in the pods, and vLLM "
            "exits with 'VLLM_PORT appears to be a URI'",
            "rename the Service, or set enableServiceLinks: false in the pod",
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
        after = "the container is killed" if watched.restarts else "dependent services fail"
        yield Finding(
            "probe-kills-start",
            "error" if sure and watched.restarts else "warning",
            "startupProbe, livenessProbe" if watched.restarts else "healthcheck",
            watched.probe,
            f"{after} after {watched.patience_s} s without a healthy response; {len(starts)} "
            f"measured starts took {min(starts):.0f} to {max(starts):.0f} s",
            "add a startupProbe with failureThreshold 90 and periodSeconds 10"
            if watched.restarts
            else "start_period: 900s",
            "fails_at_start" if sure and watched.restarts else None,
        )


def _hub_home(env: Mapping[str, Word]) -> str:
    """Return the hub's cache directory: ``HF_HOME``, else below the cache or home directory."""
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
    """Return the finding that a hub checkpoint is downloaded again for every container."""
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
            f"{wanted[0]} is not on a volume and HF_HUB_OFFLINE blocks the download of {name}",
            f"-v $HOME/.cache/huggingface:{home}",
            "fails_at_start",
        )
    return Finding(
        "weights-not-cached",
        "warning",
        "volumes",
        place,
        f"{wanted[0]} is not on a volume, so every new container downloads {name} again",
        f"-v $HOME/.cache/huggingface:{home}",
        "wasteful",
    )

"""Who can reach a server, and whether it requires an API key."""

from __future__ import annotations

from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.understanding.llama_settings import LlamaSettings
from qwendeploy.auditing.understanding.settings import Arguments


def has_key(launch: ForeignLaunch, arguments: Arguments, llama: LlamaSettings | None) -> bool:
    """Say whether the server asks for a key."""
    if llama is not None:
        return any(llama.last(flag) is not None for flag in ("--api-key", "--api-key-file"))
    given = arguments.last("--api-key")
    if given is not None and given.value != "":
        return True
    word = launch.env.get("VLLM_API_KEY")
    return word is not None and bool(word.text)


def exposure(
    launch: ForeignLaunch, arguments: Arguments, llama: LlamaSettings | None
) -> tuple[str, str]:
    """Return the address that reaches the server and who can."""
    # vLLM listens on every interface unless told; llama-server and SGLang on the loopback.
    default = "0.0.0.0" if launch.engine in ("vllm", "other") else "127.0.0.1"
    if launch.open_ended and arguments.last("--host") is None:
        default = "$HOST"
    host = arguments.value("--host") or default
    if llama is not None:
        stated = llama.last("--host")
        host = (stated.value if stated is not None else None) or default
    if arguments.last("--uds") is not None or host.endswith(".sock"):
        return "unix socket", "loopback"
    if arguments.last("--headless") is not None:
        return "none (headless)", "loopback"
    container = launch.container
    if container is None or container.on_host_network:
        return host, _reach(host)
    if launch.runtime == "kubernetes":
        return "cluster", "all" if container.published_by_cluster else "unknown"
    reached = [_reach(port.address or "0.0.0.0") for port in container.ports]
    if "all" in reached:
        return "0.0.0.0", "all"
    if "host" in reached:
        address = next(port.address for port in container.ports if _reach(port.address) == "host")
        return address, "host"
    return "127.0.0.1", "loopback" if reached else "unknown"


def _reach(address: str) -> str:
    if address in ("127.0.0.1", "localhost", "::1") or address.startswith("127."):
        return "loopback"
    if address in ("0.0.0.0", "::", "*", ""):
        return "all"
    return "unknown" if "$" in address else "host"

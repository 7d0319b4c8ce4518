"""The measured server's address, key, TLS and proxy; secrets are never printed."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from qwendeploy.documents import Plan
from qwendeploy.errors import EnvironmentProblem, UserError

KEY_VARIABLES = ("QWENDEPLOY_API_KEY", "VLLM_API_KEY", "LLAMA_API_KEY")
"""Variables read for the server's key; ``OPENAI_API_KEY`` is somebody else's and stays unread."""

PAGES = ("/chat/completions", "/completions", "/models", "/metrics", "/health", "/docs")
"""Pages that people copy with the address."""
LABEL = re.compile(r"(?!-)[\w-]{1,63}(?<!-)\Z")
"""Part of a host's name between dots; letters of any script, and the underscore of containers."""


@dataclass(frozen=True)
class Target:
    """A server to measure."""

    base_url: str
    """Scheme, host, port and path before ``/v1``; no credentials."""
    api_key: str | None = field(default=None, repr=False)
    model: str | None = None
    ca_file: Path | None = None
    insecure: bool = False
    proxy: str | None = field(default=None, repr=False)

    def url(self, path: str) -> str:
        """Return the address of a page."""
        return self.base_url + path


def is_loopback(host: str) -> bool:
    """Whether a host name means this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_base_url(text: str) -> str:
    """Return a base address without trailing slash, ``/v1`` and the pages below it.

    Raises:
        UserError: no http(s) address, or one that carries a password.
    """
    text = text.strip()
    value = text if "://" in text else f"http://{text}"
    if "@" in value:  # read no further: a password may hold anything
        raise UserError(
            "the address contains credentials, which would appear in reports and process lists",
            where="--base-url",
            hint="remove them and pass the key with --api-key-file or QWENDEPLOY_API_KEY",
        )
    if re.search(r"[\x00-\x20\x7f]", value):  # urlsplit takes some of them out unseen
        raise _no_address(" ".join(text.split()), "it contains spaces")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as problem:
        raise _no_address(text, str(problem)) from None
    if parts.scheme not in ("http", "https"):
        raise _no_address(text, f"{parts.scheme} is not http or https")
    if not parts.hostname:
        raise _no_address(text, "it has no host")
    if port == 0:
        raise _no_address(text, "port 0 is not valid")
    if not _is_host(parts.hostname):
        raise _no_address(text, f"{parts.hostname!r} is not a host name")
    if parts.query or parts.fragment:
        raise UserError("the address has a query", where="--base-url", hint="remove ?...")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port is None else f"{host}:{port}"
    path = re.sub("/+", "/", parts.path).rstrip("/")
    for page in PAGES:
        path = path.removesuffix(page)
    path = path.removesuffix("/v1").rstrip("/")
    return urlunsplit((parts.scheme, netloc, path, "", ""))


def _no_address(text: str, why: str) -> UserError:
    return UserError(
        f"{redact(text)!r} is not an http address: {why}",
        where="--base-url",
        hint="for example http://127.0.0.1:8000",
    )


def _is_host(name: str) -> bool:
    """Whether a name can be a host's: an address, or labels of which the last is no number."""
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        labels = name.removesuffix(".").split(".")
        return all(map(LABEL.match, labels)) and not labels[-1].isdigit()
    return True


def resolve_target(
    base_url: str,
    *,
    model: str | None = None,
    api_key_file: Path | None = None,
    api_key_env: str | None = None,
    ca_file: Path | None = None,
    insecure: bool = False,
    use_proxy: bool | None = None,
) -> Target:
    """Return the target with its key read and its proxy decided.

    Proxies of the environment are used only for other hosts than this machine, and never if
    ``use_proxy`` is false.

    Raises:
        UserError: bad address, a key or certificate file that cannot be read, or a key that no
            header can carry.
        EnvironmentProblem: the environment's proxy is not one that is spoken to over HTTP.
    """
    address = parse_base_url(base_url)
    host = urlsplit(address).hostname or ""
    if ca_file is not None and not ca_file.is_file():
        raise UserError("no such certificate file", where=str(ca_file))
    key = _read_key(api_key_file, api_key_env)
    if key is not None and not key.isprintable():
        raise UserError(
            "the key holds a line end or another character that no header can carry",
            where="API key",
            hint="store the key alone, on one line",
        )
    proxy: str | None = None
    if use_proxy or (use_proxy is None and not is_loopback(host)):
        proxy = _environment_proxy(address, host)
    return Target(
        base_url=address,
        api_key=key,
        model=model,
        ca_file=ca_file,
        insecure=insecure,
        proxy=proxy,
    )


def _environment_proxy(address: str, host: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    if proxy_bypass(host):
        return None
    scheme = urlsplit(address).scheme
    proxy = getproxies().get(scheme)
    if proxy is None:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts = urlsplit(proxy)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise EnvironmentProblem(
            "the proxy is not an http address",
            where=f"{scheme}_proxy",
            hint="--no-proxy goes without it",
        )
    return proxy


def _read_key(file: Path | None, variable: str | None) -> str | None:
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as problem:
            raise UserError(
                f"cannot read the key file: {type(problem).__name__}", where=str(file)
            ) from None
        match = re.fullmatch(r"(?:[A-Z_]+=)?[\"']?([^\s\"']+)[\"']?", text)
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name.strip() in KEY_VARIABLES and value.strip():
                return value.strip().strip("\"'")
        if match is None:
            raise UserError(
                "no API key in the key file", where=str(file), hint="write the key in one line"
            )
        return match[1]
    if variable is not None:
        key = os.environ.get(variable)
        if not key:
            raise UserError(f"the variable {variable} is not set", where="--api-key-env")
        return key
    found = [os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)]
    return found[0] if found else None


def redact(text: str) -> str:
    """Return the text without user names, passwords and bearer tokens."""
    text = re.sub(r"//[^/@\s]*@", "//***@", text)
    return re.sub(r"(?i)\b(bearer\s+|sk-|hf_)[A-Za-z0-9._\-]{4,}", r"\1***", text)


def address_of(plan: Plan | None, base_url: str | None) -> str:
    """Return the address to measure: the stated one, else where the plan listens.

    Raises:
        UserError: neither is there.
    """
    if base_url is not None:
        return base_url
    if plan is None:
        raise UserError(
            "no plan and no address to measure",
            where="--base-url",
            hint="qwendeploy verify plan.yaml, or --base-url http://127.0.0.1:8000",
        )
    host = "127.0.0.1" if plan.listen in ("0.0.0.0", "::", "") else plan.listen
    return f"http://[{host}]:{plan.port}" if ":" in host else f"http://{host}:{plan.port}"

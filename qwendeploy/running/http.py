"""Pages of a server that is starting or has just started, read with httpx."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from functools import cache
from typing import Any

TIMEOUT_S = 5.0
LARGEST = 4_000_000
"""Bytes read of one page."""


@dataclass(frozen=True)
class FetchedPage:
    """What came back: the status, 0 if nothing did, and the text."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        """The page as JSON, ``None`` if it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None


def get(url: str, *, api_key: str | None = None, timeout_s: float = TIMEOUT_S) -> FetchedPage:
    """Return the page at ``url``, its first ``LARGEST`` bytes; redirects are followed.

    No proxy is asked, since the server is on this host.
    """
    import httpx

    headers = {b"Authorization": f"Bearer {api_key}".encode()} if api_key else {}
    client = httpx.Client(
        headers=headers, verify=_tls(), timeout=timeout_s, trust_env=False, follow_redirects=True
    )
    text = b""
    try:
        with client, client.stream("GET", url) as answer:
            for piece in answer.iter_bytes():
                text += piece
                if len(text) >= LARGEST:
                    break
            return FetchedPage(answer.status_code, text[:LARGEST].decode("utf-8", "replace"))
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        return FetchedPage(0, str(problem))


@cache
def _tls() -> ssl.SSLContext:
    """Return the certificates of this host, read once: that takes longer than a page."""
    return ssl.create_default_context()

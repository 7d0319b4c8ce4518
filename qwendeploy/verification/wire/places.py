"""Where the pages beside the API are when the address has a path.

``http://host/proxy/qwen/v1`` may be one server as a whole below a path, or a proxy that forwards
``/v1`` alone from there and leaves the other pages at the host's root. What stands at the root may
also be another server's, so it is believed only if it names the model that is measured.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from qwendeploy.engines.metrics import parse_metrics
from qwendeploy.verification.wire.client import Client, Page


async def find_pages(client: Client) -> None:
    """Let the client read pages at the root of its host that are not below its own path."""
    parts = urlsplit(client.target.base_url)
    if not parts.path:
        return
    root = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    if not await _serves(client, root):
        return
    if not _counts(client, await _page(client, "/metrics")):
        client.places["/metrics"] = root
    version = await _page(client, "/version")
    if version is None or not isinstance(version.json(), dict):
        client.places |= {"/version": root, "/tokenize": root}


async def _serves(client: Client, root: str) -> bool:
    """Whether the pages at a root are of the server that is measured."""
    models = await _page(client, "/v1/models", root)
    body = models.json() if models else None
    data = body.get("data") if isinstance(body, dict) else None
    names = {str(card.get("id")) for card in data or () if isinstance(card, dict)}
    return bool(names & set(client.serves)) or _counts(
        client, await _page(client, "/metrics", root), named=True
    )


def _counts(client: Client, page: Page | None, *, named: bool = False) -> bool:
    """Whether a page has an engine's metrics; if ``named`` those of the model that is measured."""
    if page is None:
        return False
    metrics = parse_metrics(page.text, client.serves)
    return bool(metrics.values) and (not named or bool(metrics.models & set(client.serves)))


async def _page(client: Client, path: str, base: str | None = None) -> Page | None:
    try:
        page = await client.page(path, base=base)
    except (OSError, TimeoutError):
        return None
    return page if page.status == 200 else None

"""Whose counters ``/metrics`` shows when several replicas answer behind one address.

A router passes a scrape to one replica, today this one, a second later another. Counters of one
among several say nothing of all; they are read from every replica where those can be reached, else
not at all.
"""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit, urlunsplit

from qwendeploy.documents import ServerFacts
from qwendeploy.engines.metrics import Metrics, parse_metrics, together
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.target import is_loopback

LAST_PORT = 65_535
LOOKS = 3
"""Further scrapes that show whether another process answers."""


async def scrape(client: Client) -> Metrics | None:
    """Return the metrics of all that serve, ``None`` if not offered or not readable now.

    The client remembers them, and whether another process than before has told them.
    """
    if client.metrics_of_another:
        return None
    pages = [await _one(client, base) for base in client.metrics_at or (None,)]
    found = [page for page in pages if page is not None]
    if len(found) < len(pages):
        return None
    metrics = found[0] if len(found) == 1 else together(found)
    if client.last_metrics is not None and metrics.restarted_since(client.last_metrics):
        client.restarted = True
    client.last_metrics = metrics
    return metrics


async def _one(client: Client, base: str | None) -> Metrics | None:
    try:
        page = await client.page("/metrics", timeout=10, base=base, key=base is None)
        return parse_metrics(page.text, client.serves) if page.status == 200 else None
    except (OSError, TimeoutError, ValueError):
        return None


async def replicas_seen(client: Client, metrics: Metrics | None, planned: int) -> tuple[int, int]:
    """Return how many replicas serve and of how many the metrics are, as far as can be told.

    Generated deployments publish each replica's port beside the router's, on this machine alone;
    where those answer, the client reads them from now on.
    """
    if metrics is None or not metrics.values:
        return planned, 0
    if planned > metrics.engines and await _beside(client, planned):
        return planned, planned
    starts = {metrics.started}
    for _ in range(LOOKS):
        again = await scrape(client)
        if again is not None:
            starts.add(again.started)
    return max(planned, metrics.engines, len(starts)), 1 if len(starts) > 1 else metrics.engines


COUNTED_WITHIN_S = 2.0
"""A server counts the tokens of an answer so long after its end at the latest."""


async def counts_for_others(client: Client, before: Metrics | None) -> bool:
    """Whether the metrics page counted none of what was generated since ``before``.

    Such a page is of another server on the way, or behind the same name; it is not read again.
    """
    if before is None or before.get("generation_tokens") is None:
        return False
    end = time.monotonic() + COUNTED_WITHIN_S
    while time.monotonic() < end:
        after = await scrape(client)
        if after is None or after.since(before, "generation_tokens") != 0:
            return False
        await asyncio.sleep(0.2)
    client.metrics_of_another, client.last_metrics = True, None
    return True


def of_one_replica(facts: ServerFacts) -> tuple[str, ...]:
    """Return the line that says why the server's counters are left out, if they are."""
    if facts.metrics or not facts.replicas_told:
        return ()
    return (
        f"metrics of only one of {facts.replicas} replicas: running and waiting requests, KV"
        " usage and accepted drafts are not read",
    )


async def _beside(client: Client, count: int) -> bool:
    """Read the replicas on the ports after the server's, if that many engines answer there."""
    parts = urlsplit(client.target.base_url)
    if not is_loopback(parts.hostname or "") or parts.port is None or parts.path:
        return False
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    ports = range(parts.port + 1, min(parts.port + count, LAST_PORT) + 1)
    bases = tuple(urlunsplit(("http", f"{host}:{port}", "", "", "")) for port in ports)
    pages = [await _one(client, base) for base in bases]
    running = [page for page in pages if page is not None and page.get("running") is not None]
    if len(running) < count or len({page.started for page in running}) < count:
        return False
    client.metrics_at = bases
    return True

"""Waiting until a server says that it is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from qwendeploy.errors import EnvironmentProblem
from qwendeploy.verification.wire.client import Client


async def wait_for_health(
    client: Client, timeout: float, told: Callable[[str], None] | None = None
) -> float:
    """Return the seconds waited until the server says that it is ready.

    A refused connection means loading: the port opens when start-up is complete.

    Raises:
        EnvironmentProblem: it is not ready within ``timeout``, with the last thing it said.
    """
    begin = time.monotonic()
    last = "no response"
    while True:
        later = 1.0
        try:
            page = await client.page("/health", timeout=10)
            if page.status == 404:
                page = await client.page("/v1/models", timeout=10)
            if page.status == 200 or page.status in (401, 403, 404, 405):
                return time.monotonic() - begin  # what it answers says that it is up
            if page.location:
                raise EnvironmentProblem(
                    f"the server redirects to {page.location}",
                    where=client.target.base_url,
                    hint="pass that address, without its last part, as --base-url",
                )
            last = f"/health returns {page.status}"
            later = page.retry_after or later
        except TimeoutError:
            last = "/health does not respond within 10 s"
        except OSError as problem:
            last = str(problem)
            if last.startswith("TLS") or "certificate" in last.lower():
                raise EnvironmentProblem(
                    f"TLS fails: {last}",
                    where=client.target.base_url,
                    hint="pass the certificate with --cacert, or use --insecure",
                ) from None
        waited = time.monotonic() - begin
        if waited >= timeout:
            raise EnvironmentProblem(
                f"the server is not ready after {waited:.0f} s: {last}",
                where=client.target.base_url,
                hint="check that it is running; --wait SECONDS waits longer",
            )
        if told is not None:
            told(f"waiting for the server ({waited:.0f} s): {last}")
        await asyncio.sleep(min(max(later, 1.0), timeout - waited))

"""Reading pages of a server that is starting or has just started."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 5.0
LARGEST = 4_000_000
"""Bytes read of one page."""


@dataclass(frozen=True)
class Page:
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


def get(url: str, *, api_key: str | None = None, timeout_s: float = TIMEOUT_S) -> Page:
    """Return the page at ``url``; no proxy is asked, since the server is on this host."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=timeout_s) as answer:
            return Page(answer.status, answer.read(LARGEST).decode("utf-8", "replace"))
    except urllib.error.HTTPError as problem:
        return Page(problem.code, problem.read(LARGEST).decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException) as problem:
        return Page(0, str(problem))


_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)", re.M)
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


def cache_config(metrics: str) -> dict[str, str]:
    """Return the labels of ``vllm:cache_config_info``, empty where it is missing."""
    for match in _SAMPLE.finditer(metrics):
        if match["name"] == "vllm:cache_config_info":
            return dict(_LABEL.findall(match["labels"] or ""))
    return {}


def gauge(metrics: str, *names: str, mean: bool = False) -> float | None:
    """Return the sum of a gauge over its labels, or their mean; ``None`` where it is missing.

    Of several names the first that is there counts.
    """
    for name in names:
        try:
            values = samples(metrics, name)
        except ValueError:
            return None
        if values:
            return sum(values) / (len(values) if mean else 1)
    return None


def samples(metrics: str, name: str) -> tuple[float, ...]:
    """Return every value of one name; raises ValueError if one is no number."""
    found = (match["value"] for match in _SAMPLE.finditer(metrics) if match["name"] == name)
    return tuple(float(value) for value in found)

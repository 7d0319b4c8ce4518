"""The engines by name; a new one is entered here."""

from __future__ import annotations

from collections.abc import Mapping

from qwendeploy.engines.interface import Engine
from qwendeploy.engines.llama_cpp.engine import LLAMA_CPP
from qwendeploy.engines.sglang.metrics import METRICS as SGLANG_METRICS
from qwendeploy.engines.vllm.engine import VLLM

ENGINES: Mapping[str, Engine] = {engine.name: engine for engine in (VLLM, LLAMA_CPP)}
"""Engines that plans are made for."""

_METRICS = (VLLM.metrics, LLAMA_CPP.metrics, SGLANG_METRICS)


def _together(pages: list[Mapping[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for page in pages:
        for name, theirs in page.items():
            found[name] = (*found.get(name, ()), *theirs)
    return found


COUNTERS = _together([metrics.counters for metrics in _METRICS])
"""Counters of ``/metrics`` by our quantity, over all engines that can be measured."""
GAUGES = _together([metrics.gauges for metrics in _METRICS])
"""Gauges likewise."""

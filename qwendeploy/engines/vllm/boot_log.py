"""What a vLLM log tells while the server starts: the phase, and what was really applied.

Lines are those of 0.19 to 0.33 (own H200 boot logs on 0.20.1; the fork's are alike). A line may
carry the prefix of a process (``(EngineCore pid=7)``, ``(Worker_TP0 pid=9)``); of several workers
the first counts.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Phase = Literal["starting", "weights", "compiling", "memory", "graphs", "serving"]

PHASES: dict[Phase, str] = {
    "starting": "starting the engine",
    "weights": "loading weights",
    "compiling": "compiling and profiling",
    "memory": "laying out the KV pool",
    "graphs": "capturing CUDA graphs",
    "serving": "serving",
}
"""Phases in their order, with what is going on."""

KEPT_LINES = 4000
"""Lines kept for the search of signatures."""

_BEGINS: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    ("weights", re.compile(r"Starting to load model |Loading (?:safetensors|model weights)")),
    ("compiling", re.compile(r"Model loading took |torch\.compile|Dynamo bytecode transform")),
    ("memory", re.compile(r"Available KV cache memory|GPU KV cache size")),
    ("graphs", re.compile(r"Maximum concurrency for |Capturing CUDA graph")),
    ("serving", re.compile(r"Application startup complete")),
)
_ARGUMENTS = re.compile(r"non-default args: (\{.*\})\s*$")
_ENGINE = re.compile(r"Initializing a V1 LLM engine \(v([^)]+)\) with config: (.*)")
_CONFIG = re.compile(
    r"\b(max_seq_len|tensor_parallel_size|data_parallel_size|quantization|kv_cache_dtype"
    r"|enforce_eager|enable_prefix_caching|dtype)=([^,\s]+)"
)
_SPECULATIVE = re.compile(
    r"speculative_config=(?:(None)|SpeculativeConfig\(method='([^']+)'.{0,400}?"
    r"num_spec_tokens=(\d+))"
)
_BACKEND = re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z0-9_]+) attention backend")
_LOADED = re.compile(r"Model loading took ([\d.]+) ?GiB(?: memory)? and ([\d.]+) ?s")
_SHARDS = re.compile(r"Loading safetensors checkpoint shards:\s+(\d+)% Completed")
_KV_MEMORY = re.compile(r"Available KV cache memory: ([\d.]+) GiB")
_KV_TOKENS = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_BLOCK = re.compile(r"Setting attention block size to (\d+) tokens")
_GRAPHS = re.compile(r"Graph capturing finished in (\d+) secs?, took ([\d.]+) GiB")
_COMPILED = re.compile(r"torch\.compile took ([\d.]+) s in total")
_CACHED = re.compile(r"Directly load (?:AOT compilation|the compiled graph)")
_FRESH = re.compile(r"Compiling a graph for |Cache the graph of compile range")


@dataclass
class BootLog:
    """State of one start, fed line by line."""

    phase: Phase = "starting"
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    engine_version: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    """The engine's own account of the arguments that differ from its defaults."""
    config: dict[str, str] = field(default_factory=dict)
    """Resolved settings, as the engine prints them."""
    spec_method: str | None = None
    """``none`` when the engine says that nothing is drafted; ``None`` when it says nothing."""
    spec_tokens: int | None = None
    attention_backend: str | None = None
    weights_gib: float | None = None
    weights_s: float | None = None
    shards_percent: int | None = None
    kv_gib: float | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    block_tokens: int | None = None
    graphs_gib: float | None = None
    compile_s: float | None = None
    warm: bool | None = None
    """Whether compiled graphs were found in the cache; ``None`` until one is asked for."""

    def read(self, line: str) -> bool:
        """Take in one line; return whether the phase changed."""
        self.lines.append(line)
        before = self.phase
        order = list(PHASES)
        for phase, pattern in _BEGINS:
            if order.index(phase) > order.index(self.phase) and pattern.search(line):
                self.phase = phase
        self._facts(line)
        return self.phase != before

    def read_all(self, lines: Iterable[str]) -> BootLog:
        """Take in ``lines``; return this log."""
        for line in lines:
            self.read(line)
        return self

    def _facts(self, line: str) -> None:
        if match := _ARGUMENTS.search(line):
            self.arguments = self.arguments or _literal(match[1])
        if match := _ENGINE.search(line):
            self._engine(match[1], match[2])
        if match := _LOADED.search(line):
            self.weights_gib = self.weights_gib or float(match[1])
            self.weights_s = self.weights_s or float(match[2])
        if match := _SHARDS.search(line):
            self.shards_percent = int(match[1])
        if match := _BLOCK.search(line):
            self.block_tokens = int(match[1])
        if match := _BACKEND.search(line):
            self.attention_backend = self.attention_backend or match[1]
        if match := _COMPILED.search(line):
            self.compile_s = (self.compile_s or 0.0) + float(match[1])
        if _CACHED.search(line):
            self.warm = self.warm if self.warm is not None else True
        elif _FRESH.search(line):
            self.warm = False
        self._pool(line)

    def _pool(self, line: str) -> None:
        if match := _KV_MEMORY.search(line):
            self.kv_gib = self.kv_gib or float(match[1])
        if match := _KV_TOKENS.search(line):
            self.kv_tokens = self.kv_tokens or int(match[1].replace(",", ""))
        if match := _CONCURRENCY.search(line):
            self.max_concurrency = self.max_concurrency or float(match[2])
        if match := _GRAPHS.search(line):
            self.graphs_gib = self.graphs_gib or float(match[2])

    def _engine(self, version: str, text: str) -> None:
        if self.engine_version is not None:
            return
        self.engine_version = version
        if match := _SPECULATIVE.search(text):
            self.spec_method = "none" if match[1] else match[2]
            self.spec_tokens = 0 if match[1] else int(match[3])
            # the drafter's own settings must not stand for the target's
            text = text[: match.start()] + text[match.end() :]
        for name, value in _CONFIG.findall(text):
            self.config.setdefault(name, value.strip("'"))


def _literal(text: str) -> dict[str, Any]:
    """Return the dictionary that the engine printed, empty if it holds more than literals."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

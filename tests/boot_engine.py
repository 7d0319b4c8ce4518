"""Plays ``vllm serve`` in a container: its log of a start, then the server of known timing.

Standard library only. The lines are those of vLLM 0.20.1 (own H200 boot logs), with the numbers of
the arguments it was given. ``ENGINE_SCRIPT`` (JSON) says what goes otherwise:

    phase_s    seconds that each phase takes
    end_in     phase in which it ends, with ``lines`` on its log and ``code``
    hang_in    phase in which it stays for ever
    applied    settings that differ from what was asked: max_model_len, prefix_cache,
               spec_tokens, version, backend, tp, served_model_name, blocks
    warm       compiled graphs are found in the cache
    end_s      seconds that its requests take to end when it is told to
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

PHASES = ("starting", "weights", "compiling", "memory", "graphs")
INIT = "(EngineCore pid=71) INFO 11-30 09:03:51 "
API = "(APIServer pid=1) INFO 11-30 09:03:30 "


def parse(words: list[str]) -> tuple[str, dict[str, str | None]]:
    """Return the model and the flags of a ``vllm serve`` command line."""
    model = ""
    flags: dict[str, str | None] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            model = model or word
        elif "=" in word:
            name, _, value = word.partition("=")
            flags[name] = value
        else:
            flags[word] = rest.pop(0) if rest and not rest[0].startswith("--") else None
    return flags.pop("--model", None) or model, flags


class Engine:
    """One start."""

    def __init__(self, words: list[str], script: dict[str, Any]) -> None:
        self.model, self.flags = parse(words)
        self.script = script
        self.applied: dict[str, Any] = script.get("applied", {})
        draft = json.loads(self.flags.get("--speculative-config") or "{}")
        self.spec_method = draft.get("method")
        self.spec_tokens = self.applied.get("spec_tokens", draft.get("num_speculative_tokens", 0))

    def say(self, text: str) -> None:
        print(text, flush=True)

    def phase(self, name: str, *lines: str) -> None:
        """Print the phase's lines, last for its time, or end or hang in it."""
        for line in lines:
            self.say(line)
        if self.script.get("end_in") == name:
            for line in self.script.get("lines", ()):
                print(line, file=sys.stderr, flush=True)
            sys.exit(self.script.get("code", 1))
        while self.script.get("hang_in") == name:
            time.sleep(60)
        time.sleep(self.script.get("phase_s", 0.1))

    def boot(self) -> None:
        """Print the log of a start."""
        length = self.applied.get("max_model_len", self.flags.get("--max-model-len"))
        backend = self.applied.get("backend") or self.flags.get("--attention-backend")
        caching = "--enable-prefix-caching" in self.flags
        arguments = {
            "host": self.flags.get("--host"),
            "model": self.model,
            "max_model_len": int(length or 0),
            "enable_prefix_caching": self.applied.get("prefix_cache", caching),
        }
        self.phase("starting", f"{API}[utils.py:233] non-default args: {arguments}")
        spec = "None"
        if self.spec_tokens:
            spec = (
                f"SpeculativeConfig(method='{self.spec_method}', model='{self.model}',"
                f" num_spec_tokens={self.spec_tokens})"
            )
        tp = self.applied.get("tp", self.flags.get("--tensor-parallel-size", "1"))
        self.phase(
            "weights",
            f"{INIT}[core.py:109] Initializing a V1 LLM engine"
            f" (v{self.applied.get('version', '0.22.0')}) with config: model='{self.model}',"
            f" speculative_config={spec}, tokenizer='{self.model}', dtype=torch.bfloat16,"
            f" max_seq_len={length}, tensor_parallel_size={tp}, data_parallel_size=1,"
            f" quantization=fp8, enforce_eager=False, kv_cache_dtype=auto",
            f"{INIT}[gpu_model_runner.py:4777] Starting to load model {self.model}...",
            f"{INIT}[cuda.py:368] Using {backend or 'FLASH_ATTN'} attention backend out of"
            " potential backends: ['FLASH_ATTN', 'TRITON_ATTN', 'FLEX_ATTENTION'].",
        )
        graph = "Compiling a graph for compile range (1, 32768) takes 64.49 s"
        if self.script.get("warm"):
            graph = (
                "Directly load the compiled graph(s) for compile range (1, 32768) from the cache"
            )
        self.phase(
            "compiling",
            f"{INIT}[gpu_model_runner.py:4879] Model loading took 28.08 GiB memory"
            " and 1.77 seconds",
            f"{INIT}[backends.py:391] {graph}",
            f"{INIT}[monitor.py:53] torch.compile took 10.72 s in total",
        )
        self.phase(
            "memory",
            f"{INIT}[gpu_worker.py:440] Available KV cache memory: 88.96 GiB",
            f"{INIT}[kv_cache_utils.py:1708] GPU KV cache size: 1,309,955 tokens",
        )
        self.phase(
            "graphs",
            f"{INIT}[kv_cache_utils.py:1709] Maximum concurrency for {int(length or 0):,} tokens"
            " per request: 5.00x",
        )
        self.say(
            f"{INIT}[gpu_model_runner.py:6133] Graph capturing finished in 10 secs, took 0.72 GiB"
        )
        self.say("(APIServer pid=1) INFO:     Application startup complete.")

    def serve(self) -> int:
        """Run the server of known timing until it ends or this process is told to."""
        server = str(Path(__file__).with_name("known_server.py"))
        names = {
            "--served-model-name": self.applied.get("served_model_name"),
            "--max-model-len": self.applied.get("max_model_len"),
        }
        words = ["--root", self.model, "--version", self.applied.get("version", "0.22.0")]
        words += ["--blocks", str(self.applied.get("blocks", 2416))]
        for name in (
            "--host",
            "--port",
            "--served-model-name",
            "--max-model-len",
            "--max-num-seqs",
            "--gpu-memory-utilization",
        ):
            value = names.get(name) or self.flags.get(name)
            if value is not None:
                words += [name, str(value)]
        if self.applied.get("prefix_cache", "--enable-prefix-caching" in self.flags):
            words.append("--prefix-cache")
        if self.spec_tokens:
            words += ["--spec-tokens", str(self.spec_tokens)]
        if key := os.environ.get("VLLM_API_KEY"):
            words += ["--api-key", key]
        child = subprocess.Popen([sys.executable, server, *words])

        def end(_number: int, _frame: FrameType | None) -> None:
            threading.Timer(self.script.get("end_s", 0), child.terminate).start()

        signal.signal(signal.SIGTERM, end)
        return child.wait()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    engine = Engine(sys.argv[1:], json.loads(os.environ.get("ENGINE_SCRIPT", "{}")))
    engine.boot()
    sys.exit(engine.serve())


if __name__ == "__main__":
    main()

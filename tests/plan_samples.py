"""Plans for tests of artefacts and running, made by hand so that no planner is needed."""

from __future__ import annotations

import json
from typing import Any

from qwendeploy.documents import (
    Content,
    Gpu,
    Machine,
    OperatingPoint,
    Option,
    Plan,
    Predictions,
    Setting,
    Tool,
    Workload,
)
from qwendeploy.figures import Figure, Kind, exact

DIGEST = "sha256:" + "0123456789abcdef" * 4
CARD = "RTX PRO 6000 Blackwell Workstation"


def figure(value: float, unit: str, spread: float = 0.1) -> Figure:
    return Figure(
        value=value,
        unit=unit,
        low=value * (1 - spread),
        high=value * (1 + spread),
        kind=Kind.MEASURED,
        source="made up for tests",
        n=3,
    )


def setting(name: str, value: str | None = None) -> Setting:
    return Setting(name=name, value=value, rule=f"rule-of-{name.strip('-')}", reason="for tests")


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-1111-2222-3333-444444444444"


def machine(count: int, *, uuids: bool = True) -> Machine:
    return Machine(
        gpus=tuple(
            Gpu(
                index=index,
                name=f"NVIDIA {CARD} Edition",
                model=CARD,
                uuid=uuid(index) if uuids else None,
                memory_mib=97887,
                compute_capability="12.0",
            )
            for index in range(count)
        ),
        count=count,
        driver="610.43.02",
        usable=True,
        usable_gpu_indices=tuple(range(count)),
    )


def speculation(tokens: int) -> Setting:
    return setting(
        "--speculative-config",
        json.dumps({"method": "mtp", "num_speculative_tokens": tokens}, separators=(",", ":")),
    )


def sample_plan(
    *,
    tp: int = 2,
    replicas: int = 1,
    engine: str = "vllm",
    image: str | None = "vllm/vllm-openai:v0.22.0",
    checkpoint: str = "Qwen/Qwen3.6-27B-FP8",
    fork: bool = False,
    extra_flags: tuple[Setting, ...] = (),
    flags: tuple[Setting, ...] | None = None,
    env: tuple[Setting, ...] | None = None,
    uuids: bool = True,
    **changes: Any,
) -> Plan:
    """Return a complete plan; the defaults are FP8 with three drafted tokens on two cards."""
    count = tp * replicas
    option = Option(
        engine=engine,
        image=image,
        engine_version="0.22.0" if engine == "vllm" else None,
        fork=fork,
        checkpoint=checkpoint,
        quant="fp8",
        spec_method="mtp",
        spec_tokens=3,
        tp=tp,
        replicas=replicas,
        gpu_memory_utilization=0.85,
        max_model_len=262144,
        max_num_seqs=32,
        max_num_batched_tokens=16384,
    )
    if flags is None:
        flags = VLLM_FLAGS(tp) if engine == "vllm" else LLAMA_FLAGS
    if env is None:
        env = (setting("VLLM_SKIP_P2P_CHECK", "0"), setting("NCCL_P2P_LEVEL", "SYS"))
    content: dict[str, Any] = {
        "created": "2026-11-30T12:00:00Z",
        "tool": Tool(version="0.0.0"),
        "plan_id": "a1b2c3d4e5f60718",
        "machine": machine(count, uuids=uuids),
        "workload": Workload(concurrency=32, max_context=262144),
        "operating_point": OperatingPoint(
            concurrency=32,
            context=32768,
            isl=32768,
            osl=1024,
            content=Content.MIXED,
            contexts="separate",
            prefix_cache=False,
        ),
        "option": option,
        "flags": (*flags, *extra_flags),
        "env": env,
        "predictions": Predictions(
            aggregate_decode_tps=figure(1370, "tok/s"),
            kv_pool_blocks=exact(2416, "blocks", kind=Kind.MEASURED, source="made up for tests"),
            reasons={"ttft_cold_ms": "not measured"},
        ),
        "gpu_indices": tuple(range(count)),
        "download_gib": figure(28.5, "GiB", 0),
        "boot_first_s": figure(295, "s"),
        "boot_warm_s": figure(120, "s"),
        "reasons": (
            "FP8 weights keep the near class and leave 45 GiB a card for the cache",
            "three drafted tokens are the fastest measured at 32 streams",
            "tensor parallel over both cards holds the 256k context",
            "a fourth reason that is not among the decisive ones",
        ),
    }
    content.update(changes)
    return Plan(**content)


def VLLM_FLAGS(tp: int) -> tuple[Setting, ...]:
    return (
        setting("--tensor-parallel-size", str(tp)),
        setting("--gpu-memory-utilization", "0.85"),
        setting("--max-model-len", "262144"),
        setting("--max-num-seqs", "32"),
        setting("--max-num-batched-tokens", "16384"),
        setting("--no-enable-prefix-caching"),
        setting("--reasoning-parser", "qwen3"),
        setting("--enable-auto-tool-choice"),
        setting("--tool-call-parser", "qwen3_coder"),
        speculation(3),
    )


LLAMA_FLAGS = (
    setting("--ctx-size", "131072"),
    setting("--n-gpu-layers", "999"),
    setting("--parallel", "4"),
    setting("--flash-attn", "on"),
)

OPTIONS: dict[str, dict[str, Any]] = {
    "fp8-mtp3-tp2": {},
    "int4-tp1-index": {"tp": 1, "uuids": False, "checkpoint": "Lorbus/Qwen3.6-27B-int4-AutoRound"},
    "local-checkpoint": {
        "checkpoint": "/srv/models/Qwen3.6-27B-FP8",
        "image": f"vllm/vllm-openai:v0.22.0@{DIGEST}",
        "download_gib": None,
    },
    "fork-public": {
        "image": "repne/vllm:v17",
        "fork": True,
        "listen": "0.0.0.0",
        "port": 8123,
        "gated_repositories": ("z-lab/Qwen3.6-27B-DFlash",),
        "headlines": ("The image is a third-party fork without public source.",),
    },
    "replicas-2xtp1": {"tp": 1, "replicas": 2, "boot_first_s": None},
}
"""Golden options by name: overrides of ``sample_plan``."""

LLAMA_OPTION: dict[str, Any] = {
    "engine": "llama.cpp",
    "tp": 1,
    "image": "ghcr.io/ggml-org/llama.cpp:server-cuda",
    "checkpoint": "/srv/models/Qwen3.6-27B-Q4_K_M.gguf",
    "env": (),
    "download_gib": None,
}

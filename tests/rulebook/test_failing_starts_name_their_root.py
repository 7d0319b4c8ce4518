"""A start that fails in any phase is told by its root, however deep the log nests it."""

from __future__ import annotations

import pytest

from qwendeploy.diagnosis import causes, first_error

CORE = "(EngineCore pid=71) ERROR 11-30 09:03:51 [core.py:1100] "
WORKER = "(Worker_TP1 pid=93) ERROR 11-30 09:03:51 [multiproc_executor.py:870] "
API = "(APIServer pid=1) "
FAILED = "Engine core initialization failed. See root cause above. Failed core proc(s): {}"
BACKGROUND = (
    "Exception: WorkerProc initialization failed due to an exception in a background process."
    " See stack trace for root cause."
)


def of_core(*lines: str) -> list[str]:
    """Return a log in which the engine's process fails and the API's follows."""
    return [
        CORE + "EngineCore failed to start.",
        CORE + "Traceback (most recent call last):",
        CORE + '  File "/usr/local/lib/vllm/v1/engine/core.py", line 1074, in run_engine_core',
        *(CORE + line for line in lines),
        API + "Traceback (most recent call last):",
        API + f"RuntimeError: {FAILED}",
    ]


def of_worker(*lines: str) -> list[str]:
    """Return a log in which a worker fails, then the engine, then the API."""
    head = [WORKER + "WorkerProc failed to start.", WORKER + "Traceback (most recent call last):"]
    return [*head, *(WORKER + line for line in lines), *of_core(BACKGROUND)]


KV = (
    "ValueError: To serve at least one request with the model's max seq len (262144), 26.66 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (25.91 GiB). Based on the"
    " available memory, the estimated maximum model length is 253952."
)
NAMED = [
    # weights
    (
        of_core(
            "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"
        ),
        "damaged-weights",
        "download it again",
    ),
    (
        [API + "  Value error, Invalid repository ID or local directory specified: '/srv/x'."],
        "repository-not-found",
        "check the name",
    ),
    (
        of_core("PermissionError: [Errno 13] Permission denied: '/home/engine/.cache/huggingface'"),
        "cache-not-writable",
        "chown",
    ),
    # compile
    (
        of_core(
            "torch._inductor.exc.InductorError: OSError: [Errno 30] Read-only file system:"
            " '/root/.cache/flashinfer'"
        ),
        "read-only-root",
        "/root/.cache/flashinfer",
    ),
    (
        of_core(
            "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error",
            "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        ),
        "no-kernel-image",
        "0.24.0",
    ),
    # capture
    (
        of_worker(
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"
        ),
        "cuda-out-of-memory",
        "--gpu-memory-utilization",
    ),
    (
        of_worker("torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
        "illegal-memory-access",
        "--no-enable-prefix-caching",
    ),
    # cache
    (of_core(KV), "kv-cache-too-small", "--max-model-len 253952"),
    (
        of_core(
            "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free"
            " memory 21.4 GiB."
        ),
        "memory-changed-while-profiling",
        "one after another",
    ),
    # ranks
    (
        of_worker(
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled system"
            " error (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9",
            "Error while creating shared memory segment /dev/shm/nccl-7jXk (size 33030528), error:"
            " No space left on device (28)",
        ),
        "shared-memory-too-small",
        "--ipc=host",
    ),
    (
        ["RuntimeError: cudaGetDeviceCount(). Error 802: system not yet initialized"],
        "fabric-manager-missing",
        "nvidia-fabricmanager",
    ),
    # arguments, as 0.20 and 0.26 say it, and in colour
    (
        ["vllm serve: error: unrecognized arguments: --max-model-length 4096"],
        "unknown-flag",
        "explain",
    ),
    (
        [
            "usage: vllm [-h] [-v] {chat,complete,serve,launch,bench,collect-env,run-batch} ...",
            "vllm: error: unrecognized arguments: \x1b[32m--max-model-length\x1b[0m 4096",
        ],
        "unknown-flag",
        "explain",
    ),
    (
        ["vllm serve: error: ambiguous option: --max-num could match --max-num-seqs, --max-num-x"],
        "bad-flag-value",
        "explain",
    ),
    (
        ['KeyError: "Invalid tool call parser: qwen3_xmls (chose from { hermes,qwen3_xml })"'],
        "bad-flag-value",
        "explain",
    ),
    # llama.cpp
    (
        ["ggml_cuda: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory"],
        "cuda-out-of-memory",
        "lower",
    ),
    (
        ["gguf_init_from_file: failed to open GGUF file '/srv/x.gguf' (No such file or directory)"],
        "repository-not-found",
        "check the name",
    ),
]


@pytest.mark.parametrize(("lines", "name", "change"), NAMED)
def test_root_is_named_alone_with_the_change(lines: list[str], name: str, change: str) -> None:
    found = causes(lines)

    assert [cause.id for cause in found] == [name]
    assert change in found[0].fix


@pytest.mark.parametrize("wrapped", [of_core, of_worker])
def test_first_error_is_the_root_where_no_signature_knows_it(wrapped: object) -> None:
    assert callable(wrapped)
    root = "KeyError: 'layers.0.linear_attn.in_proj_qkvz.weight_scale_inv'"
    noise = [
        "(APIServer pid=1) WARNING 11-30 09:03:30 [a.py:1] ImportError: no module flash_attn_3",
        "INFO 11-30 09:03:30 [a.py:1] RuntimeError: not one",
    ]
    lines = [*noise, *wrapped(root, "The above exception was the cause", "ValueError: later")]

    assert [cause.id for cause in causes(lines)] == ["engine-core-not-started"]
    assert first_error(lines) == root


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([], None),
        (["INFO: application startup complete"], None),
        (["  | ValueError: in a group"], "ValueError: in a group"),
        (["OSError: hf_abcdefghijklmnop refused"], "OSError: [removed] refused"),
        (["an Error: inside a sentence"], None),
        (["MemoryError"], "MemoryError"),
    ],
)
def test_first_error_is_how_python_writes_one(lines: list[str], error: str | None) -> None:
    assert first_error(lines) == error

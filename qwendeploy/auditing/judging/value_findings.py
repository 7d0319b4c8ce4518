"""Flag values that the parser accepts but the engine's configuration rejects."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator

from packaging.version import Version

from qwendeploy.auditing.judging.findings import Finding
from qwendeploy.auditing.reading.checkpoint_names import is_path, refused_quantization
from qwendeploy.auditing.reading.text import Place, whole_number
from qwendeploy.auditing.understanding.settings import SPEC, ReadSetting
from qwendeploy.auditing.understanding.understand import Understood
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.versions import parse_version

BACKENDS = frozenset(
    """
    FLASH_ATTN FLASH_ATTN_DIFFKV TRITON_ATTN ROCM_ATTN ROCM_AITER_MLA ROCM_AITER_TRITON_MLA
    ROCM_AITER_FA ROCM_AITER_MLA_SPARSE XPU_MLA_SPARSE TORCH_SDPA FLASHINFER FLASHINFER_MLA
    FLASHINFER_MLA_SPARSE TRITON_MLA TRITON_MLA_SPARSE CUTLASS_MLA FLASHMLA FLASHMLA_SPARSE
    FLASH_ATTN_MLA NO_ATTENTION FLEX_ATTENTION TREE_ATTN ROCM_AITER_UNIFIED_ATTN CPU_ATTN
    TURBOQUANT CUSTOM IPEX
    """.split()  # noqa: SIM905
)
"""Attention backends of vLLM 0.19 and later (its registry); newer releases add some."""
GONE_BACKENDS = frozenset(
    """
    XFORMERS XFORMERS_VLLM_V1 FLASH_ATTN_VLLM_V1 TRITON_ATTN_VLLM_V1 FLASHINFER_VLLM_V1
    ROCM_FLASH DUAL_CHUNK_FLASH_ATTN DIFFERENTIAL_FLASH_ATTN BLOCKSPARSE_FLASH_ATTN
    """.split()  # noqa: SIM905
)
"""Backends of releases before 0.19 that none since has."""
QUANTIZATIONS = frozenset(
    """
    aqlm awq awq_marlin auto-round auto_round bitblas bitsandbytes compressed-tensors deepspeedfp
    experts_int8 fbgemm_fp8 fp8 gguf gptq gptq_marlin hqq inc modelopt modelopt_fp4
    modelopt_mixed modelopt_mxfp8 moe_wna16 mxfp4 mxfp8 petit_nvfp4 ptpc_fp8 quark torchao
    """.split()  # noqa: SIM905
)
"""Quantisation methods that releases from 0.19 know (vLLM source); plugins may add some."""
_NO_METHODS = frozenset({"fp4", "int4", "bnb", "4bit", "8bit", "w4a16", "w8a8", "q4", "q8"})
"""Names of formats that no release takes for a method."""
_NEEDS_MODEL = frozenset({"eagle", "eagle3", "medusa", "draft_model", "dflash", "dspark"})
_LIKE = 0.8
_NAMES_READ = Version("0.24.0")
"""The newest release whose names are those above."""
DRAFT_TP = "draft_tensor_parallel_size"


def value_findings(understood: Understood) -> Iterator[Finding]:
    """Yield what the engine's configuration refuses though its parser takes it."""
    if understood.launch.engine != "vllm" or understood.fork:
        return
    yield from _backend(understood)
    yield from _quantization(understood)
    yield from _devices(understood)
    yield from _drafting(understood)
    yield from _parallel(understood)
    yield from _yarn(understood)


def _refused(
    about: str, place: Place, text: str, fix: str, name: str = "bad-flag-value"
) -> Finding:
    return Finding(name, "error", about, place, text, fix, "fails_at_start")


def _stated(understood: Understood, flag: str) -> tuple[ReadSetting, str] | None:
    setting = understood.arguments.last(flag)
    if setting is None or setting.value is None or setting.symbolic:
        return None
    return setting, setting.value


def _near(understood: Understood, name: str, known: frozenset[str]) -> str | None:
    """Return the name that was meant; not on releases that may know more names than these."""
    release = parse_version(understood.engine_version or "")
    if release is None or release > _NAMES_READ:
        return None
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=_LIKE)
    return close[0] if close else None


def _backend(understood: Understood) -> Iterator[Finding]:
    stated = _stated(understood, "--attention-backend")
    if stated is None:
        return
    setting, value = stated
    name = value.upper()
    if name in BACKENDS or name.lower() == "auto":
        return
    near = _near(understood, name, BACKENDS)
    if name in GONE_BACKENDS or near is not None:
        yield _refused(
            f"--attention-backend {value}",
            setting.place,
            f"this release has no attention backend {value}; vLLM exits with 'unknown attention "
            "backend'",
            f"--attention-backend {near}" if near else "remove it, vLLM selects one",
        )


def _quantization(understood: Understood) -> Iterator[Finding]:
    stated, model = _stated(understood, "--quantization"), understood.arguments.model
    if stated is None:
        return
    setting, value = stated
    about = f"--quantization {value}"
    if value.lower() not in QUANTIZATIONS:
        near = _near(understood, value.lower(), QUANTIZATIONS)
        if near is not None or value.lower() in _NO_METHODS:
            yield _refused(
                about,
                setting.place,
                f"{value} is not a quantization method; vLLM rejects the configuration",
                f"--quantization {near}" if near else "remove it, vLLM reads the checkpoint's",
            )
        return
    if model is None or is_path(model.text):
        return
    reason = refused_quantization(model.text, value)
    if reason is not None:
        yield _refused(
            about,
            setting.place,
            f"{reason}; vLLM exits because the methods do not match",
            "remove --quantization, vLLM reads the method from the checkpoint",
            "quantization-mismatch",
        )


def _devices(understood: Understood) -> Iterator[Finding]:
    """Yield a device type where ids belong: ``--device`` abbreviates ``--device-ids``."""
    stated = _stated(understood, "--device-ids")
    if stated is not None and stated[1].lower() in ("auto", "cuda", "gpu", "cpu", "rocm"):
        yield _refused(
            f"{stated[0].spelt} {stated[1]}",
            stated[0].place,
            f"--device was removed; vLLM reads it as --device-ids, and {stated[1]} is not a "
            "device id",
            f"remove {stated[0].spelt}, vLLM finds the GPUs",
        )


def _drafting(understood: Understood) -> Iterator[Finding]:
    spec = understood.spec
    places = {key.key: key.place for key in spec.keys}
    place = spec.place or understood.launch.place

    def refuse(key: str, text: str, fix: str) -> Finding:
        return _refused(
            f"{key} in {SPEC}", places.get(key, place), text, fix, "bad-speculative-value"
        )

    values = spec.values
    tokens = values.get("num_speculative_tokens")
    if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens < 1:
        yield refuse(
            "num_speculative_tokens",
            f"{tokens} is not greater than 0; vLLM rejects the configuration",
            "num_speculative_tokens 3, or remove --speculative-config",
        )
    method = values.get("method")
    if method in _NEEDS_MODEL and not values.get("model") and not spec.symbolic:
        yield refuse(
            "model",
            f"{method} needs a separate draft model and none is given; vLLM rejects the "
            "configuration",
            "set model to the draft model, or use method mtp",
        )
    if "tensor_parallel_size" in values:
        yield refuse(
            "tensor_parallel_size",
            "the speculative configuration does not accept this key",
            f"write {DRAFT_TP}",
        )
    ranks, tp = values.get(DRAFT_TP), understood.number("tp")
    if isinstance(ranks, int) and tp is not None and ranks not in (1, int(tp)):
        yield refuse(
            DRAFT_TP,
            f"{ranks} is neither 1 nor --tensor-parallel-size {int(tp)}; vLLM rejects the "
            "configuration",
            f"{DRAFT_TP} 1 or {int(tp)}",
        )


def _parallel(understood: Understood) -> Iterator[Finding]:
    """Yield layouts that the engine's ParallelConfig refuses (vLLM source, its validator)."""
    arguments = understood.arguments

    def size(flag: str, default: int | None = None) -> int | None:
        value = arguments.value(flag)
        return default if value is None else whole_number(value)

    def refuse(flag: str, text: str, fix: str) -> Finding:
        setting = arguments.last(flag)
        place = setting.place if setting is not None else understood.launch.place
        return _refused(flag, place, f"{text}; vLLM rejects the configuration", fix)

    ranks, here = size("--data-parallel-size", 1), size("--data-parallel-size-local")
    if arguments.switched_on("--enable-eplb") and not arguments.switched_on(_EXPERTS):
        yield refuse(
            "--enable-eplb",
            f"expert load balancing needs {_EXPERTS}",
            "remove it: this model is dense",
        )
    if ranks is not None and here is not None and here > ranks:
        yield refuse(
            "--data-parallel-size-local",
            f"{here} local ranks exceed --data-parallel-size {ranks}",
            f"--data-parallel-size {here}",
        )
    for flag in ("--data-parallel-rank", "--data-parallel-external-lb"):
        if ranks == 1 and arguments.value(flag) not in (None, "false"):
            yield refuse(
                flag,
                "an external load balancer needs --data-parallel-size above 1",
                f"remove it, or set --data-parallel-size to the number of replicas behind {flag}",
            )
    tp, context_ranks = size("--tensor-parallel-size", 1), size("--decode-context-parallel-size")
    if tp and context_ranks and tp % context_ranks:
        yield refuse(
            "--decode-context-parallel-size",
            f"{context_ranks} does not divide --tensor-parallel-size {tp}",
            "remove it",
        )


_EXPERTS = "--enable-expert-parallel"
_ALLOW_LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def _yarn(understood: Understood) -> Iterator[Finding]:
    """Yield a length beyond what the YaRN factor covers."""
    stated, length = _stated(understood, "--hf-overrides"), understood.number("max_model_len")
    if stated is None or length is None:
        return
    try:
        scaling = json.loads(stated[1])["text_config"]["rope_parameters"]
        covered = float(scaling["factor"]) * int(
            scaling.get("original_max_position_embeddings", QWEN_27B.native_context)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    if scaling.get("rope_type") != "yarn" or length <= covered:
        return
    allowed = understood.launch.env.get(_ALLOW_LONG)
    yield Finding(
        "yarn-factor-too-small",
        "warning" if allowed is not None else "error",
        f"--hf-overrides factor {scaling['factor']:g}",
        stated[0].place,
        f"the factor covers {covered:,.0f} tokens, --max-model-len is {length:,.0f}: "
        + (
            "positions beyond that are not scaled, so output there is unusable"
            if allowed is not None
            else "vLLM rejects it"
        ),
        f"factor {-(-int(length) // QWEN_27B.native_context)}, or --max-model-len {covered:.0f}",
        "degraded" if allowed is not None else "fails_at_start",
    )

"""Settings that several verbs share: the machine, the workload, output."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from qwendeploy import api
from qwendeploy.api import Pins, Request
from qwendeploy.documents import Document, Machine, Objective, Quality, Workload
from qwendeploy.documents.disk import write_file
from qwendeploy.documents.files import dump_document
from qwendeploy.documents.option import MOST_REQUESTS
from qwendeploy.errors import UserError
from qwendeploy.units import parse_tokens

F = TypeVar("F", bound=Callable[..., Any])


class Tokens(click.ParamType[int]):
    """A number of tokens: 262144, 256k, 0.25M."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_tokens(value, setting=param.opts[0] if param else "length")
        except UserError as problem:
            self.fail(f"{problem.what} ({problem.hint})", param, ctx)


class TokenList(click.ParamType[tuple[int, ...]]):
    """Numbers of tokens separated by commas."""

    name = "tokens,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        one = Tokens()
        return tuple(one.convert(part.strip(), param, ctx) for part in str(value).split(","))


class CountList(click.ParamType[tuple[int, ...]]):
    """Positive whole numbers separated by commas."""

    name = "n,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers, for instance 1,8,32", param, ctx)
        if any(count < 1 for count in counts):
            self.fail(f"{value!r} contains a number below 1", param, ctx)
        if any(count > MOST_REQUESTS for count in counts):
            self.fail(f"{value!r} contains a number above {MOST_REQUESTS}", param, ctx)
        return counts


class FiniteRange(click.FloatRange):
    """A number within limits; ``nan`` and ``inf``, which every limit lets pass, are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


LEAST_ROOM = 1024
"""Tokens that are proposed for a prompt or an answer where there is no room for one."""
TOKENS = Tokens()
TOKEN_LIST = TokenList()
COUNT_LIST = CountList()


def _apply(decorators: list[Callable[[F], F]]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


machine_settings = _apply(
    [
        click.option(
            "--gpu",
            metavar="NAME",
            help="GPU model: 'RTX PRO 6000', '4090 48GB x2', 'Foo 9000 cc 12.0'.",
        ),
        click.option("--gpus", type=click.IntRange(1, 64), help="Number of GPUs."),
        click.option(
            "--vram",
            type=FiniteRange(min=0, min_open=True),
            metavar="GIB",
            help="Memory per GPU, if the name does not state it.",
        ),
        click.option("--driver", metavar="VERSION", help="NVIDIA driver, for instance 580.65."),
        click.option("--nvlink/--no-nvlink", default=None, help="Whether the GPUs have NVLink."),
        click.option(
            "--os",
            "system",
            type=click.Choice(["linux", "wsl2"]),
            help="System of the machine that --gpu names; default: linux.",
        ),
        click.option("--devices", metavar="I,J,...", help="GPU indices to serve on."),
        click.option(
            "--machine",
            "machine_file",
            type=click.Path(path_type=Path),
            help="Machine file written by 'detect -o', or a folder of saved nvidia-smi output.",
        ),
    ]
)

workload_settings = _apply(
    [
        click.option(
            "--ctx", type=TOKENS, default=None, help="Maximum context per request; default: 32k."
        ),
        click.option(
            "--c",
            "--concurrency",
            "concurrency",
            type=click.IntRange(1, MOST_REQUESTS),
            default=None,
            help="Concurrent requests; default: 1.",
        ),
        click.option("--typical-ctx", type=TOKENS, help="Typical context per request."),
        click.option("--isl", type=TOKENS, help="Input tokens per request."),
        click.option("--osl", type=TOKENS, help="Output tokens per request."),
        click.option(
            "--prefix-hit",
            type=FiniteRange(0, 1, max_open=True),
            metavar="SHARE",
            help="Fraction of each prompt found in the prefix cache, from 0 to below 1.",
        ),
        click.option(
            "--content",
            type=click.Choice(["prose", "code", "agent", "mixed"]),
            default="mixed",
            show_default=True,
            help="Generated content; code has a higher draft acceptance than prose.",
        ),
        click.option("--separate-contexts", is_flag=True, help="Requests do not share a context."),
        click.option("--vision", is_flag=True, help="Keep image input (uses memory)."),
        click.option(
            "--quality",
            type=click.Choice(["reference", "near", "relaxed", "any"]),
            help="Lowest acceptable quality class of the weights; default: near (8-bit weights).",
        ),
        click.option(
            "--tpot",
            "tpot_ms",
            type=FiniteRange(0, min_open=True),
            metavar="MS",
            help="Maximum time per output token, ms.",
        ),
        click.option(
            "--ttft",
            "ttft_ms",
            type=FiniteRange(0, min_open=True),
            metavar="MS",
            help="Maximum time to first token of a cold request, ms.",
        ),
        click.option(
            "--objective",
            type=click.Choice(["throughput", "latency", "capacity"]),
            help="Ranking objective; default: throughput, or latency at concurrency 1.",
        ),
        click.option(
            "--prefix-cache",
            type=click.Choice(["on", "off", "auto"]),
            default="auto",
            show_default=True,
            help="Prefix caching; auto lets the plan decide.",
        ),
    ]
)

option_settings = _apply(
    [
        click.option(
            "--engine", type=click.Choice(["vllm", "llama.cpp"]), help="Inference engine."
        ),
        click.option("--image", help="Container image."),
        click.option("--upstream-only", is_flag=True, help="Exclude third-party images."),
        click.option("--checkpoint", help="Repository or local folder of the weights."),
        click.option("--quant", help="Weight format, for instance fp8."),
        click.option(
            "--kv-cache-dtype", type=click.Choice(["bf16", "fp8"]), help="KV cache data type."
        ),
        click.option(
            "--spec",
            "spec_method",
            type=click.Choice(["none", "mtp", "dflash"]),
            help="Speculative decoding method.",
        ),
        click.option("--spec-tokens", type=click.IntRange(1, 16), help="Draft tokens per step."),
        click.option("--tp", type=click.IntRange(1, 64), help="Tensor-parallel size."),
        click.option(
            "--replicas", type=click.IntRange(1, 64), help="Number of independent servers."
        ),
        click.option(
            "--util",
            "gpu_memory_utilization",
            type=FiniteRange(0.05, 1.0),
            help="Fraction of GPU memory the engine may use (gpu-memory-utilization).",
        ),
        click.option(
            "--max-num-seqs", type=click.IntRange(1, 4096), help="Maximum concurrent sequences."
        ),
        click.option(
            "--max-num-batched-tokens", type=TOKENS, help="Maximum tokens per scheduler step."
        ),
        click.option(
            "--capture-size", type=TOKENS, help="Maximum CUDA graph capture size, in tokens."
        ),
    ]
)


def pick(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the named settings that were stated."""
    return {name: settings[name] for name in names if settings.get(name) is not None}


OPTION_PINS = (
    "engine",
    "image",
    "upstream_only",
    "checkpoint",
    "quant",
    "kv_cache_dtype",
    "spec_method",
    "spec_tokens",
    "tp",
    "replicas",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "capture_size",
)
_WORKLOAD = ("isl", "osl", "prefix_hit", "content", "vision", "tpot_ms", "ttft_ms", "prefix_cache")
_MACHINE = ("gpu", "gpus", "vram", "driver", "nvlink", "system", "devices", "machine_file")


def request_of(settings: dict[str, Any]) -> Request:
    """Return what the user fixed, with the settings as typed.

    Raises:
        UserError: settings contradict each other.
    """
    pins = pick(settings, *OPTION_PINS)
    if pins.get("spec_tokens") and pins.get("spec_method", "none") == "none":
        raise UserError(
            "--spec-tokens needs a draft method",
            where="--spec-tokens",
            hint="add --spec mtp, or remove --spec-tokens",
        )
    image = pins.get("image") or ""
    if pins.get("upstream_only") and image and not image.startswith("vllm/vllm-openai"):
        raise UserError(f"--upstream-only contradicts --image {image}", hint="remove one of them")
    stated = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in settings.items()
        if value not in (None, False)
    }
    return Request(
        pins=Pins(**pins),
        listen=_address(settings.get("listen") or "127.0.0.1"),
        port=settings.get("port") or 8000,
        inputs=stated,
    )


def _address(text: str) -> str:
    """Return the address to listen on.

    Raises:
        UserError: it is none: a server binds to an address, not to a name.
    """
    if text != "localhost":
        try:
            # a zone names an interface, which container tools do not publish on
            ipaddress.ip_address(text.replace("%", "zone"))
        except ValueError:
            raise UserError(
                f"{text!r} is not an IP address",
                where="--listen",
                hint="use 127.0.0.1 for this machine only, 0.0.0.0 for all interfaces",
            ) from None
    return text


def workload_of(settings: dict[str, Any]) -> Workload:
    """Return the workload; one request of 32k where nothing is stated.

    Raises:
        UserError: lengths contradict each other.
    """
    concurrency = settings.get("concurrency") or 1
    ctx = settings.get("ctx")
    typical = settings.get("typical_ctx")
    if ctx is None:
        ctx = max(typical or 0, 32768)
    if typical is not None and typical > ctx:
        raise UserError(
            f"the typical context {typical:,} exceeds the maximum context {ctx:,}",
            where="--typical-ctx",
            hint="raise --ctx",
        )
    _check_prompts(settings, typical)
    needed = (settings.get("isl") or 0) + (settings.get("osl") or 0)
    if needed > ctx:
        raise UserError(
            f"--isl and --osl need {needed:,} tokens, --ctx allows {ctx:,}",
            where="--ctx",
            hint=f"--ctx {needed}",
        )
    missing = [name for name in ("isl", "osl") if not settings.get(name)]
    if missing and needed and needed >= ctx:
        missing_part = "output" if settings.get("isl") else "a prompt"
        raise UserError(
            f"{ctx:,} tokens leave no room for {missing_part}",
            where="--ctx",
            hint=f"--ctx {needed + LEAST_ROOM}",
        )
    objective = settings.get("objective") or ("throughput" if concurrency > 1 else "latency")
    return Workload(
        concurrency=concurrency,
        max_context=ctx,
        typical_context=typical,
        contexts="separate" if settings.get("separate_contexts") else "shared",
        quality=Quality(settings.get("quality") or "near"),
        quality_explicit=settings.get("quality") is not None,
        objective=Objective(objective),
        **pick(settings, *_WORKLOAD),
    )


def _check_prompts(settings: dict[str, Any], typical: int | None) -> None:
    """Refuse prompts that the context or the cache that is stated beside them rules out."""
    isl = settings.get("isl")
    if typical is not None and isl is not None and typical < isl:
        raise UserError(
            f"the typical context {typical:,} is below the prompt length {isl:,}",
            where="--typical-ctx",
            hint=f"--typical-ctx {isl + (settings.get('osl') or 0) // 2}, or remove it",
        )
    if settings.get("prefix_hit") and settings.get("prefix_cache") == "off":
        raise UserError(
            "--prefix-hit needs prefix caching",
            where="--prefix-hit",
            hint="use --prefix-cache on, or remove --prefix-hit",
        )


def machine_of(settings: dict[str, Any]) -> Machine:
    """Return the machine that the settings name, read, or find here.

    Raises:
        UserError: a setting is invalid, contradicts another, or a file cannot be read.
        EnvironmentProblem: this machine's GPUs cannot be read or used.
    """
    return api.resolve_machine(**{name: settings.get(name) for name in _MACHINE})


def write_document(document: Document, path: Path, *, force: bool) -> None:
    """Write a document whole or not at all; one that differs in its time alone is left as it is.

    Raises:
        UserError: the file exists with other content and not ``force``, or cannot be written.
    """
    text = dump_document(document)
    if force or not (path.is_file() and _timeless(text) == _timeless(_text_at(path))):
        write_file(path, text.encode(), force=force)


def _timeless(text: str) -> str:
    return re.sub(r"^created: .*$", "", text, count=1, flags=re.MULTILINE)


def _text_at(path: Path) -> str:
    """Return what is stored, nothing where it cannot be read as text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""

"""A launch as an option of the design: what is stated, what the engine's version would fill in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from qwendeploy.auditing.reading.checkpoint_names import NamedCheckpoint, host_path, name_checkpoint
from qwendeploy.auditing.reading.launch import ForeignLaunch
from qwendeploy.auditing.reading.text import Place, Word, whole_number
from qwendeploy.auditing.understanding.context import Context, card_sizes
from qwendeploy.auditing.understanding.exposure import exposure, has_key
from qwendeploy.auditing.understanding.graphs import capture_sizes, graph_mode
from qwendeploy.auditing.understanding.llama_settings import LlamaSettings, read_llama
from qwendeploy.auditing.understanding.settings import (
    Arguments,
    ReadSetting,
    SpecConfig,
    read_arguments,
    read_spec_config,
)
from qwendeploy.auditing.understanding.visible_gpus import gpus_of, used_cards
from qwendeploy.engines.llama_cpp.engine import LLAMA_CPP
from qwendeploy.engines.vllm.engine import VLLM
from qwendeploy.engines.vllm.flags import engine_size
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.image_names import image_name
from qwendeploy.tables.images import ImageRow, find_image
from qwendeploy.tables.releases import find_release, newest_release, when_changed

Value = str | int | float | bool

_METHODS = {
    "mtp": "mtp",
    "qwen3_5_mtp": "mtp",
    "qwen3_next_mtp": "mtp",
    "deepseek_mtp": "mtp",
    "dflash": "dflash",
    "ngram": "ngram",
    "ngram_gpu": "ngram",
    "eagle3": "eagle3",
    "draft_model": "draft_model",
}
BIG_CARD_MIB = 70 * 1024
"""From here on (A100 excepted) the API server defaults to the seats and steps of large cards (vLLM
0.19.1 to 0.33.0 source)."""
_MEANT_TOKENS = re.compile(r"num.*(?:spec|draft).*tok|(?:spec|draft)\w*_tokens$")


@dataclass(frozen=True)
class Effective:
    """A value in effect; ``stated`` says whether the launch gives it, ``why`` where it is from."""

    name: str
    value: Value
    stated: bool
    place: Place | None = None
    why: str = ""


@dataclass(frozen=True)
class Understood:
    """A launch with everything that can be said of it without running it."""

    launch: ForeignLaunch
    context: Context
    image: str | None
    image_row: ImageRow | None
    engine_version: str | None
    fork: bool
    arguments: Arguments
    spec: SpecConfig
    checkpoint: NamedCheckpoint | None
    values: Mapping[str, Effective]
    gpu_count: int | None
    """Cards that the server sees."""
    spec_method: str
    spec_tokens: int | None
    listen: str
    network: str
    api_key: bool
    llama: LlamaSettings | None = None
    """The options of a llama-server."""

    def value(self, name: str) -> Value | None:
        """Return the value in effect, ``None`` if it is not known."""
        known = self.values.get(name)
        return known.value if known is not None else None

    def number(self, name: str) -> float | None:
        """Return a numeric value in effect."""
        value = self.value(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def place_of(self, name: str) -> Place:
        """Return where a value stands, else the launch's own place."""
        known = self.values.get(name)
        return known.place if known is not None and known.place else self.launch.place


def understand(launch: ForeignLaunch, context: Context) -> Understood:
    """Return the launch understood; nothing in it is executed or looked up on a network."""
    image = _image(launch)
    row = find_image(image) if image else None
    version, fork = _engine(image, row, context)
    if image is None:
        version = launch.installed or version
    arguments = read_arguments(launch.arguments, version, fork=fork)
    spec = read_spec_config(arguments)
    llama = None
    if launch.engine == "llama.cpp":
        llama = read_llama(launch.arguments, launch.env, launch.program, image)
    volumes = launch.container.volumes if launch.container else ()
    checkpoint = None
    if arguments.model is not None:
        checkpoint = name_checkpoint(
            arguments.model.text, volumes, arguments.value("--quantization")
        )
    method, tokens = _speculation(spec)
    gpus = gpus_of(launch, context, arguments)
    if launch.engine == "vllm":
        context = used_cards(launch, context, arguments)
    values = _Values(launch, context, arguments, version, image, fork, method, tokens, llama).all()
    listen, network = exposure(launch, arguments, llama)
    return Understood(
        launch=launch,
        context=context,
        image=image,
        image_row=row,
        engine_version=version,
        fork=fork,
        arguments=arguments,
        spec=spec,
        checkpoint=checkpoint,
        values=values,
        gpu_count=gpus,
        spec_method=method,
        spec_tokens=tokens,
        listen=listen,
        network=network,
        api_key=has_key(launch, arguments, llama),
        llama=llama,
    )


def _image(launch: ForeignLaunch) -> str | None:
    if launch.container is None or launch.container.image is None:
        return None
    return launch.container.image.text.removeprefix("docker.io/")


def _engine(image: str | None, row: ImageRow | None, context: Context) -> tuple[str | None, bool]:
    if image is None:
        return context.engine_version, False
    name = image_name(image)
    if row is not None:
        return row.engine_version or name.version, row.fork is not None
    return name.version or context.engine_version, name.publisher is not None


def _speculation(spec: SpecConfig) -> tuple[str, int | None]:
    if not spec:
        return "none", 0
    values = spec.values
    method = values.get("method")
    if method is None:
        model = str(values.get("model") or "").lower()
        method = "dflash" if "dflash" in model else ("draft_model" if model else "mtp")
    tokens = values.get("num_speculative_tokens")
    if tokens is None:
        # A misspelt key still says what was meant; that it is misspelt is a finding of its own.
        tokens = next((value for key, value in values.items() if _MEANT_TOKENS.search(key)), None)
    number = whole_number(str(tokens)) if isinstance(tokens, int | str) else None
    return _METHODS.get(str(method), "other"), number


class _Values:
    """Values in effect, by name, with the defaults of the engine's version."""

    def __init__(
        self,
        launch: ForeignLaunch,
        context: Context,
        arguments: Arguments,
        version: str | None,
        image: str | None,
        fork: bool,
        method: str,
        tokens: int | None,
        llama: LlamaSettings | None,
    ) -> None:
        self.launch = launch
        self.context = context
        self.arguments = arguments
        self.release = find_release(version, fork=fork, image=image)
        self.method = method
        self.tokens = tokens
        self.llama = llama
        self.found: dict[str, Effective] = {}

    def all(self) -> dict[str, Effective]:
        """Return every value that is known; of other engines only what the port needs."""
        if self.llama is not None:
            port = self.llama.last("--port")
            number = self.llama.whole("--port", LLAMA_CPP.default_port)
            if number is not None:
                place = port.place if port is not None else None
                self.found["port"] = Effective("port", number, port is not None, place)
            images = self.llama.images
            stated = self.llama.last("--mmproj-auto" if images == "off" else "--mmproj")
            place = stated.place if stated is not None else None
            why = "" if stated else "image input is on if the weights include a projector"
            self.found["text_only"] = Effective(
                "text_only", images == "off", stated is not None, place, why
            )
            return self.found
        if self.launch.engine != "vllm":
            self._whole("port", "--port", 30000)
            return self.found
        self._whole("tp", "--tensor-parallel-size", 1)
        self._whole("pp", "--pipeline-parallel-size", 1)
        self._whole("dp", "--data-parallel-size", 1)
        self._size(
            "max_model_len",
            "--max-model-len",
            QWEN_27B.native_context,
            "the model's native length",
        )
        seats, step = self._by_card()
        self._whole("max_num_seqs", "--max-num-seqs", seats, "default for this GPU memory size")
        self._size(
            "max_num_batched_tokens",
            "--max-num-batched-tokens",
            step,
            "default for this GPU memory size",
        )
        self._utilization()
        self._prefix_cache()
        self._text("kv_cache_dtype", "--kv-cache-dtype", "auto")
        self._text("attention_backend", "--attention-backend", None)
        self._text("state_dtype", "--mamba-ssm-cache-dtype", "auto")
        self._whole("port", "--port", VLLM.default_port)
        self._capture()
        self._text_only()
        self._size("kv_cache_bytes", "--kv-cache-memory-bytes", None)
        return self.found

    def _set(
        self, name: str, value: Value | None, setting: ReadSetting | None, why: str = ""
    ) -> None:
        if value is None or (setting is None and self.launch.open_ended):
            return
        place = setting.place if setting is not None else None
        self.found[name] = Effective(name, value, setting is not None, place, why)

    def _whole(self, name: str, flag: str, default: int | None, why: str = "") -> None:
        setting = self.arguments.last(flag)
        if setting is None:
            self._set(name, default, None, why or f"default of {flag}")
        elif setting.value is not None:
            self._set(name, whole_number(setting.value), setting)

    def _size(self, name: str, flag: str, default: int | None, why: str = "") -> None:
        setting = self.arguments.last(flag)
        if setting is None:
            self._set(name, default, None, why or f"default of {flag}")
        elif setting.value is not None:
            self._set(name, engine_size(setting.value), setting)

    def _text(self, name: str, flag: str, default: str | None) -> None:
        setting = self.arguments.last(flag)
        if setting is None:
            self._set(name, default, None, f"default of {flag}")
        elif setting.value is not None and not setting.symbolic:
            self._set(name, setting.value, setting)

    def _by_card(self) -> tuple[int | None, int | None]:
        machine = self.context.machine
        if machine is None or not machine.gpus:
            return None, None
        sizes = card_sizes(machine)
        names = " ".join(gpu.name or "" for gpu in machine.gpus).lower()
        if not min(sizes):
            return None, None
        big = min(sizes) >= BIG_CARD_MIB and "a100" not in names
        row = self.release or newest_release()
        return (row.seats_large, row.step_large) if big else (row.seats, row.step)

    def _utilization(self) -> None:
        setting = self.arguments.last("--gpu-memory-utilization")
        if setting is None:
            default = (self.release or newest_release()).utilization
            self._set("gpu_memory_utilization", default, None, when_changed("utilization"))
            return
        try:
            share = float(setting.value or "")
        except ValueError:
            return
        # Not a number and infinite are words that Python takes for floats.
        self._set("gpu_memory_utilization", share if isfinite(share) else None, setting)

    def _prefix_cache(self) -> None:
        setting = self.arguments.last("--enable-prefix-caching")
        if setting is not None:
            on = setting.value is None or setting.value.lower() not in ("false", "0")
            self._set("prefix_cache", on, setting)
        elif self.release is not None:
            why = f"default for hybrid models: {when_changed('prefix_cache')}"
            self._set("prefix_cache", self.release.prefix_cache, None, why)

    def _capture(self) -> None:
        if self.arguments.switched_on("--enforce-eager"):
            self._set("capture_size", 0, self.arguments.last("--enforce-eager"))
            return
        stated = graph_mode(self.arguments)
        if stated is not None:
            self._set("graph_mode", stated[0], stated[1])
            if stated[0] == "NONE":
                self._set("capture_size", 0, stated[1])
                return
        names = ("--max-cudagraph-capture-size", "--cudagraph-capture-sizes")
        for setting in reversed(self.arguments.settings):
            dotted = setting.name.startswith("--compilation-config")
            if setting.name in names or dotted:
                numbers = capture_sizes(setting)
                if numbers:
                    self._set("capture_size", max(numbers), setting)
                    return

    def _text_only(self) -> None:
        setting = self.arguments.last("--language-model-only")
        if setting is not None:
            on = setting.value is None or setting.value.lower() != "false"
            self._set("text_only", on, setting)
            return
        limits = self.arguments.last("--limit-mm-per-prompt")
        if limits is not None and limits.value is not None:
            counts = [int(number) for number in re.findall(r"[:=]\s*(\d+)", limits.value)]
            self._set("text_only", bool(counts) and not any(counts), limits)
            return
        self._set("text_only", False, None, "image input is on by default")


def draft_path(understood: Understood) -> Word | None:
    """Return the drafter's path on the host, ``None`` if it is a repository or none is named."""
    value = understood.spec.values.get("model")
    if not isinstance(value, str) or not value.startswith("/"):
        return None
    volumes = understood.launch.container.volumes if understood.launch.container else ()
    place = understood.spec.place or understood.launch.place
    return Word(host_path(value, volumes), place)

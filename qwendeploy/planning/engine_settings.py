"""Settings that engine or machine do not have: refused, so that none is taken in silence."""

from __future__ import annotations

from qwendeploy.documents import Workload
from qwendeploy.documents.request import Pins
from qwendeploy.engines.llama_cpp.engine import LLAMA_CPP
from qwendeploy.errors import UserError
from qwendeploy.evidence.knowledge import Knowledge
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.image_names import image_name


def check_engine(pins: Pins, workload: Workload, knowledge: Knowledge) -> None:
    """Refuse what the stated engine does not have.

    Raises:
        UserError: a setting or weights of vLLM stand beside llama.cpp, or the reverse.
    """
    gguf = pins.quant is not None and pins.quant.startswith("gguf")
    if pins.engine != LLAMA_CPP.name:
        if gguf and (wrong := _vllm_only(pins, workload)):
            raise UserError(
                f"{pins.quant} weights run in llama.cpp, which has no such setting",
                where=wrong,
                hint=f"remove {wrong}, or use other weights",
            )
        return
    if pins.quant is not None and not gguf:
        raise UserError(
            f"llama.cpp runs GGUF files, not {pins.quant} weights",
            where="--quant",
            hint="remove it, or write --quant gguf-q8_0",
        )
    row = knowledge.image(pins.image or "")
    # of an image in no table only the name tells
    held = row.engine if row is not None else image_name(pins.image or "").engine
    if held not in (LLAMA_CPP.name, "other"):
        raise UserError(
            f"{pins.image} contains {held}, not llama.cpp",
            where="--image",
            hint="remove --engine or --image",
        )
    if wrong := _vllm_only(pins, workload):
        raise UserError(
            "llama.cpp has no such setting", where=wrong, hint=f"remove {wrong} or --engine"
        )


def _vllm_only(pins: Pins, workload: Workload) -> str | None:
    """Return the first stated setting that llama.cpp lacks."""
    stated = {
        "--engine vllm": pins.engine == "vllm",
        "--spec": pins.spec_method not in (None, "none"),
        "--util": pins.gpu_memory_utilization is not None,
        "--capture-size": pins.capture_size is not None,
        "--prefix-cache on": workload.prefix_cache == "on",
    }
    lacks = LLAMA_CPP.lacks
    return next((name for name, is_stated in stated.items() if is_stated and name in lacks), None)


def check_layout(pins: Pins, cards: int) -> None:
    """Refuse a layout of more cards than there are.

    Raises:
        UserError: the stated sizes multiply to more.
    """
    tp, replicas = pins.tp or 1, pins.replicas or 1
    if tp * replicas <= cards:
        return
    where = "--tp" if pins.tp is not None else "--replicas"
    fits = [f"--gpus {tp * replicas}"]
    if tp <= cards and pins.replicas is not None:
        fits.insert(0, f"--replicas {cards // tp}")
    elif pins.tp is not None:
        fits.insert(0, f"--tp {QWEN_27B.largest_tensor_parallel(cards // replicas)}")
    raise UserError(
        f"the layout needs {tp * replicas} GPUs, the machine has {cards}",
        where=where,
        hint=" or ".join(fits),
    )

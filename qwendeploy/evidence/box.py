"""What planning needs to know of a machine: the weakest of the GPUs it will serve on.

Tensor parallelism runs at the pace and memory of the slowest card, so unlike cards count as the
weakest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from qwendeploy.documents import Gpu, Machine, Option, Tri
from qwendeploy.errors import NoPlan
from qwendeploy.figures import Kind
from qwendeploy.hardware.interconnect import Interconnect
from qwendeploy.hardware.memory import serving_memory_mib
from qwendeploy.hardware.placing import Groups, joined, place_groups
from qwendeploy.tables.gpus import GpuModel, find_gpu, gpus
from qwendeploy.units import MIB

BUILT_ARCHITECTURES = {
    "6": "pascal",
    "7.0": "volta",
    "7.5": "turing",
    "8.0": "ampere",
    "8.6": "ampere",
    "8.7": "ampere",
    "8.9": "ada",
    "9": "hopper",
    "10": "blackwell",
    "11": "blackwell",
    "12": "blackwell",
}
"""Architecture by compute capability, longest prefix first (NVIDIA CUDA GPU table)."""


@dataclass(frozen=True)
class Box:
    """The serving GPUs of one machine, reduced to their weakest member."""

    machine: Machine
    model: GpuModel | None
    """Catalogue entry of the weakest card; ``None`` for a card nobody listed."""
    name: str
    indices: tuple[int, ...]
    vram_mib: int
    compute_capability: str
    unlike: bool
    display: bool
    figure_floor: Kind
    """Weakest evidence that figures may claim on this card: estimated when it is unknown."""
    _groups: dict[tuple[int, int], Groups] = field(default_factory=dict, compare=False, repr=False)
    _joined: dict[tuple[int, int], tuple[Interconnect, Tri]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def count(self) -> int:
        """GPUs to serve on."""
        return len(self.indices)

    def groups(self, tp: int, replicas: int) -> Groups:
        """Return which GPUs serve in each replica: those that stand and link best for the layout.

        Cards of one kind are taken where there are enough of them.
        """
        if (tp, replicas) not in self._groups:
            found = place_groups(self.machine, self.indices, tp, replicas, gpus())
            self._groups[tp, replicas] = found
        return self._groups[tp, replicas]

    def joined(self, tp: int, replicas: int) -> tuple[Interconnect, Tri]:
        """Return how the GPUs of a replica are joined and whether they reach each other.

        For one GPU a replica these are the words of the machine, which say what others would have.
        """
        machine = self.machine
        if tp == 1 or tp * replicas > self.count or not machine.links.pairs:
            return machine.interconnect, machine.p2p
        if (tp, replicas) not in self._joined:
            self._joined[tp, replicas] = joined(machine, self.groups(tp, replicas), gpus())
        return self._joined[tp, replicas]

    def serving(self, option: Option) -> tuple[int, ...]:
        """Return which GPUs a plan of the option takes, those of a replica beside each other."""
        return tuple(chain.from_iterable(self.groups(option.tp, option.replicas)))

    @property
    def memory_bytes(self) -> int:
        """Memory of the weakest card in bytes, as the driver prints it."""
        return self.vram_mib * MIB

    @property
    def cc(self) -> tuple[int, int]:
        """Compute capability as numbers, so that 12.0 sorts after 8.9."""
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor or 0)

    @property
    def architecture(self) -> str:
        """Name of the architecture in lower case."""
        if self.model is not None and self.model.architecture:
            return self.model.architecture.lower()
        for prefix in (self.compute_capability, self.compute_capability.split(".")[0]):
            if prefix in BUILT_ARCHITECTURES:
                return BUILT_ARCHITECTURES[prefix]
        return "unknown"

    @property
    def bandwidth_gbps(self) -> float | None:
        """Memory bandwidth of the weakest card in GB/s."""
        return self.model.bandwidth_gbps if self.model else None


def serving_gpus(machine: Machine) -> list[Gpu]:
    """Return the GPUs to serve on: the chosen ones, else every usable one."""
    wanted = machine.chosen_gpu_indices or machine.usable_gpu_indices
    return [gpu for gpu in machine.gpus if gpu.index in wanted]


def describe(machine: Machine) -> Box:
    """Return the box of a machine.

    Raises:
        NoPlan: no GPU can serve, or its memory is not known; the message names the cause.
    """
    gpus = serving_gpus(machine)
    if not gpus or machine.usable is False:
        cause = machine.usable_reason or "no usable GPU"
        raise NoPlan(f"this machine cannot serve: {cause}", where="machine")
    models = [
        find_gpu(gpu.model or gpu.name or "", memory_mib=None if gpu.mig else gpu.memory_mib)
        or find_gpu(gpu.model or gpu.name or "")
        for gpu in gpus
    ]
    memories = [_memory_mib(gpu, model, machine) for gpu, model in zip(gpus, models, strict=True)]
    bare = next((g for g, m in zip(gpus, memories, strict=True) if g.mig and m is None), None)
    if bare is not None:
        raise NoPlan(
            f"GPU {bare.index} is in MIG mode and shows no slice",
            where="machine",
            hint=f"add nvidia-smi -L, create a slice, or sudo nvidia-smi -i {bare.index} -mig 0",
        )
    if any(memory is None for memory in memories):
        raise NoPlan(
            "the GPU memory is not shown",
            where="machine",
            hint="set it with --vram, for instance --vram 24",
        )
    known = [memory for memory in memories if memory is not None]
    order = sorted(range(len(gpus)), key=lambda at: (_pace(models[at]), known[at]))
    weakest = order[0]
    capability = _capability(gpus, models)
    model = models[weakest]
    sliced = model is not None and gpus[weakest].mig
    if model is not None and sliced:
        model = _slice_of(model, known[weakest])
    return Box(
        machine=machine,
        model=model,
        name=model.name if model else (gpus[weakest].name or "unknown GPU"),
        indices=tuple(gpu.index if gpu.index is not None else at for at, gpu in enumerate(gpus)),
        vram_mib=min(known),
        compute_capability=capability,
        unlike=len({(gpu.model or gpu.name, m) for gpu, m in zip(gpus, known, strict=True)}) > 1,
        display=any(bool(gpu.display) for gpu in gpus),
        figure_floor=Kind.MEASURED if model and not sliced else Kind.ESTIMATED,
    )


def _slice_of(model: GpuModel, memory_mib: int) -> GpuModel:
    """Return the card that a MIG slice is: its share of memory, bandwidth and arithmetic.

    The engines split memory and its bandwidth in eighths and the processors in sevenths (NVIDIA
    MIG user guide), so the memory share stands for all three.
    """
    share = min(1.0, memory_mib / model.memory_mib) if model.memory_mib else 1.0

    def part(whole: float | None) -> float | None:
        return whole * share if whole is not None else None

    return replace(
        model,
        name=f"{model.name} MIG slice of {memory_mib / 1024:.0f} GiB",
        memory_mib=memory_mib,
        bandwidth_gbps=part(model.bandwidth_gbps),
        bf16_tflops=part(model.bf16_tflops),
        fp16_tflops=part(model.fp16_tflops),
        fp8_tflops=part(model.fp8_tflops),
        fp4_tflops=part(model.fp4_tflops),
    )


def _memory_mib(gpu: Gpu, model: GpuModel | None, machine: Machine) -> int | None:
    known = serving_memory_mib(machine, gpu, model)
    return known[0] if known else None


def _pace(model: GpuModel | None) -> float:
    return model.bandwidth_gbps if model and model.bandwidth_gbps else 0.0


def _capability(gpus: Sequence[Gpu], models: Sequence[GpuModel | None]) -> str:
    shown = [
        gpu.compute_capability or (model.compute_capability if model else None)
        for gpu, model in zip(gpus, models, strict=True)
    ]
    known = [text for text in shown if text]
    if not known:
        raise NoPlan(
            "the compute capability of the GPUs is unknown",
            where="machine",
            hint="name the card with --gpu",
        )
    return min(known, key=lambda text: tuple(int(part) for part in text.split(".")))

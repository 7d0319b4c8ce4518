"""One planning situation: machine, workload, what the user fixed, what is known, the rules."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from qwendeploy.documents import Objective, Option, Workload
from qwendeploy.documents.request import Pins, Request
from qwendeploy.evidence.box import Box
from qwendeploy.evidence.knowledge import Knowledge
from qwendeploy.planning.facts import Facts, machine_facts, shared_facts, workload_facts
from qwendeploy.rulebook.book import RuleBook

LOOPBACK = ("127.0.0.1", "localhost", "::1")
TYPICAL_SHARE = 8
"""The typical context is an eighth of the longest one unless stated (DESIGN: operating point)."""
DEFAULT_ISL, DEFAULT_OSL = 1024, 512
"""Prompt and answer of a request where neither they nor a context is stated."""


def stated_context(workload: Workload) -> int | None:
    """Return the typical context that the workload states, itself or by the length of its prompts.

    A request whose prompt is stated has on average half of its answer behind it.
    """
    if workload.typical_context is not None or workload.isl is None:
        return workload.typical_context
    answer = workload.osl or DEFAULT_OSL
    return min(workload.max_context, workload.isl + answer // 2)


def longest_request(workload: Workload) -> int:
    """Return the length up to which requests grow: as stated by prompt and answer, else any."""
    if workload.isl is None or workload.osl is None:
        return workload.max_context
    return min(workload.max_context, workload.isl + workload.osl)


def ranks_end_to_end(workload: Workload) -> bool:
    """Say whether throughput is that of the closed loop, prompts computed between the answers.

    Who states both prompt and answer asks for that load; decoding alone is ranked where either
    would have to be assumed.
    """
    stated = workload.isl is not None and workload.osl is not None
    return stated and workload.objective is Objective.THROUGHPUT


@dataclass(frozen=True)
class Scene:
    """Everything that every option is judged against."""

    box: Box
    workload: Workload
    request: Request
    knowledge: Knowledge
    rules: RuleBook
    typical_context: int
    any_release: bool = False
    """The newest release is considered beside those seen on the card, because with those nothing
    is feasible."""
    _steps: dict[tuple[object, ...], int] = field(default_factory=dict, compare=False, repr=False)
    """Steps found so far; shared by the scenes that are made from this one."""

    @property
    def pins(self) -> Pins:
        """What the user fixed."""
        return self.request.pins

    @cached_property
    def facts(self) -> Facts:
        """Facts of machine and workload."""
        return {**machine_facts(self.box), **workload_facts(self.workload, self.typical_context)}

    @cached_property
    def exposure(self) -> Facts:
        """Facts of where the server will listen; a key is demanded wherever others reach it."""
        local = self.request.listen in LOOPBACK
        everywhere = self.request.listen in ("0.0.0.0", "::")
        return {
            "exposure.listen": self.request.listen,
            "exposure.api_key": not local,
            "exposure.network": "loopback" if local else "all" if everywhere else "host",
        }

    def joined_as(self, option: Option) -> Scene:
        """Return the scene whose machine is joined as the GPUs of the option's replicas are."""
        machine = self.box.machine
        interconnect, p2p = self.box.joined(option.tp, option.replicas)
        if (interconnect, p2p) == (machine.interconnect, machine.p2p):
            return self
        words = {"interconnect": interconnect, "p2p": p2p}
        return replace(self, box=replace(self.box, machine=machine.model_copy(update=words)))

    def for_options(self, facts: Facts) -> Scene:
        """Return the scene with the rules narrowed to options that share these facts."""
        return replace(self, rules=self.rules.narrowed(facts))

    def step_for(self, option: Option) -> int:
        """Return the scheduler step in tokens that the option's prefill speed allows."""
        kind = (
            *(option.quant, option.engine, option.spec_method, option.spec_tokens),
            *(option.tp, self.box.joined(option.tp, option.replicas)),
        )
        if kind not in self._steps:
            from qwendeploy.evidence.prefill_speed import step_for

            self._steps[kind] = step_for(option, self.box)
        return self._steps[kind]

    def states(self, name: str) -> bool:
        """Say whether the user stated this part of the option."""
        if name == "prefix_cache":
            return self.workload.prefix_cache != "auto"
        return getattr(self.request.pins, name, None) is not None


@dataclass(frozen=True)
class SceneCache:
    """Scenes whose rules are narrowed to the options that are judged in them, made once a kind."""

    scene: Scene
    _wholes: dict[tuple[str, str], Scene] = field(default_factory=dict)
    _kinds: dict[tuple[object, ...], Scene] = field(default_factory=dict)

    def scene_for(self, option: Option) -> Scene:
        """Return the scene of the options of one image, checkpoint, draft and kind of links."""
        words = self.scene.box.joined(option.tp, option.replicas)
        if words not in self._wholes:
            linked = self.scene.joined_as(option)
            self._wholes[words] = linked.for_options({**linked.facts, **linked.exposure})
        kind = (option.image, option.checkpoint, option.quant, option.spec_method, words)
        if kind not in self._kinds:
            self._kinds[kind] = self._wholes[words].for_options(shared_facts(option))
        return self._kinds[kind]

"""What every engine tells of itself, so that other rooms need not ask which one it is.

An engine is one folder with an ``Engine`` in ``engine.py``, entered in ``engines.registry``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from qwendeploy.documents import Option

Flags = tuple[tuple[str, str | None], ...]
"""Flags with dashes and their values, in order."""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Names on an engine's ``/metrics`` page by our quantity, newest first.

    Counters only grow. A quantity that is missing is not told by the engine.
    """

    counters: Mapping[str, tuple[str, ...]]
    gauges: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Spelled:
    """A flag that spells out a part of an option, with the reason for people."""

    name: str
    value: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a release refuses a flag: at its name or at its value, in words."""

    at: Literal["name", "value"]
    text: str


@dataclass(frozen=True, slots=True)
class Engine:
    """An inference engine.

    ``served_name`` is the flag of the name that clients ask for; ``path_flag`` and
    ``repository_flag`` name the weights (``None``: the first argument does), ``replicas_flag`` the
    replicas of one server. ``api_key_variable`` is the variable from which the key asked of clients
    is read, ``owner`` what the model list says in ``owned_by``, ``lacks`` the settings of the
    command line that it has no counterpart of.
    """

    name: Literal["vllm", "llama.cpp"]
    served_name: str
    path_flag: str | None
    repository_flag: str | None
    replicas_flag: str | None
    api_key_variable: str
    default_port: int
    owner: str
    metrics: MetricNames
    lacks: frozenset[str] = frozenset()
    stated: Callable[[Option], Mapping[str, float]] = lambda _option: {}
    """The numbers that an option says of flags, by flag."""
    needed: Callable[[Option], tuple[str, ...]] = lambda _option: ()
    """The flags without which the engine would run another option."""
    refusal: Callable[[Option, str, str | None], Refusal | None] = lambda *_: None
    """Why the option's release refuses a flag with a value; of a release not read, nothing."""
    ending: Callable[[Option, int], Flags] = lambda _option, _seconds: ()
    """The flags that give running requests so many seconds when the server is told to stop."""

    def model_words(self, model: str, *, is_path: bool) -> tuple[str, ...]:
        """Return the arguments that name the weights: a repository, or a path on disk."""
        flag = self.path_flag if is_path else self.repository_flag
        if flag is not None:
            return flag, model
        # a first argument with a leading dash would be read as a flag
        return (f"--model={model}",) if model.startswith("-") else (model,)

    def replica_words(self, replicas: int) -> tuple[str, ...]:
        """Return the arguments that make one server of several replicas, none if it cannot."""
        if replicas == 1 or self.replicas_flag is None:
            return ()
        return self.replicas_flag, str(replicas)

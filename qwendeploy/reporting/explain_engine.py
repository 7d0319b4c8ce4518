"""Flags, speculative keys and variables as explanations: releases, forms, rules about them."""

from __future__ import annotations

from packaging.version import Version

from qwendeploy.engines.vllm.flags import (
    GONE,
    FlagRow,
    ForkRow,
    flag_rows,
    fork_rows,
    normalise,
)
from qwendeploy.reporting.explain_parts import Explanation, Fact
from qwendeploy.reporting.explain_rules import readable
from qwendeploy.reporting.explain_topics import topics
from qwendeploy.rulebook.book import load_rules
from qwendeploy.rulebook.rule import Rule

_KINDS = {"flag": "flag", "spec_key": "speculative key", "env": "variable"}


_RESOLVED = {"max-cudagraph-capture-size": "resolved.capture_size"}
"""Flags whose resolved field has another name."""


def engine_names(wanted: str) -> list[Explanation]:
    """Return the flag, speculative key or variable of this spelling."""
    spellings = {wanted, normalise(wanted), f"--{wanted.lstrip('-').replace('_', '-')}"}
    key = wanted.rpartition(".")[2] if "speculative-config." in wanted else wanted
    found = []
    for kind in _KINDS:
        names = {key} if kind != "flag" else spellings
        here = [row for row in flag_rows() if row.kind == kind]
        canonical = {row.name for row in here if names & set(row.spellings)}
        rows = [row for row in here if row.name in canonical]
        forks = [row for row in fork_rows() if row.kind == kind and row.name in names]
        if rows or forks:
            found.append(_engine_name(kind, rows, forks))
    gone = [_gone(name) for name in sorted(spellings) if name in GONE]
    return [*gone, *found] or _by_rules(wanted)


def _engine_name(kind: str, rows: list[FlagRow], forks: list[ForkRow]) -> Explanation:
    name = rows[0].name if rows else forks[0].name
    note = topics().get(name)
    facts = []
    other = tuple(dict.fromkeys(text for row in rows for text in row.spellings[1:]))
    if other:
        facts.append(Fact(label="aliases", value=", ".join(other)))
    facts += [Fact(label=_releases(row), value=_form(row)) for row in rows]
    facts += [Fact(label="fork", value=row.note) for row in forks]
    setting, reading = _rules_about(kind, name)
    facts += [Fact(label=f"set by {rule.id}", value=readable(rule.because)) for rule in setting]
    sources = dict.fromkeys(note.sources if note else ())
    sources |= dict.fromkeys(row.source for row in rows)
    sources |= dict.fromkeys(row.source for row in forks)
    see = (*(note.see if note else ()), *(rule.id for rule in reading))
    return Explanation(
        topic=name,
        kind=_KINDS[kind],
        title=_presence(name, rows, forks),
        text=note.text if note else (),
        facts=tuple(facts),
        sources=tuple(sources),
        see_also=tuple(dict.fromkeys(see)),
    )


def _gone(name: str) -> Explanation:
    until, instead = GONE[name]
    note = topics().get(name)
    return Explanation(
        topic=name,
        kind="flag",
        title=f"{name}: removed; last in {until}",
        text=note.text if note else (),
        facts=(Fact(label="instead", value=instead),) if instead else (),
        sources=note.sources if note else ("vLLM 0.19.1 to 0.33.0 source (absent)",),
        see_also=("removed-flag",),
    )


def _by_rules(wanted: str) -> list[Explanation]:
    """Return a variable of NCCL or PyTorch, or a removed one, by the rules that speak of it."""
    setting, reading = _rules_about("env", wanted)
    if not setting and not reading:
        return []
    owner = "a variable that no examined release lists"
    if not wanted.startswith("VLLM_"):
        owner = "a variable of a library that the engine uses"
    return [
        Explanation(
            topic=wanted,
            kind="variable",
            title=f"{wanted}: {owner}",
            text=tuple(dict.fromkeys(readable(rule.because) for rule in (*setting, *reading))),
            facts=tuple(
                Fact(label="set by", value=f"{rule.id}: {effect.name}={effect.value}")
                for rule in setting
                for effect in rule.effects
                if effect.name == wanted
            ),
            sources=tuple(
                dict.fromkeys(source for rule in (*setting, *reading) for source in rule.sources)
            ),
            see_also=tuple(rule.id for rule in (*setting, *reading)),
        )
    ]


def _releases(row: FlagRow) -> str:
    return row.since if row.since == row.until else f"{row.since} to {row.until}"


def _form(row: FlagRow) -> str:
    parts = [{"size_or_auto": "size or auto", "flag": "switch"}.get(row.type, row.type)]
    if row.default is not None:
        parts.append(f"default {row.default}")
    if row.choices:
        parts.append(f"one of {', '.join(row.choices)}")
    return "; ".join(parts)


def _presence(name: str, rows: list[FlagRow], forks: list[ForkRow]) -> str:
    if not rows:
        return f"{name}: in the fork only"
    first = min(rows, key=lambda row: Version(row.since))
    last = max(rows, key=lambda row: Version(row.until))
    text = f"{name}: in the examined releases from {first.since} to {last.until}"
    if first.absent_to:
        text += f", not yet in {first.absent_to}"
    if last.absent_from:
        text += f", removed in {last.absent_from}"
    return text + (", and in the fork" if forks else "")


def _rules_about(kind: str, name: str) -> tuple[list[Rule], list[Rule]]:
    """Return the rules that set a name and those whose condition reads it."""
    bare = name.lstrip("-")
    spelled = {
        "flag": {name, f"--no-{bare}"},
        "spec_key": {f"--speculative-config.{name}"},
        "env": {name},
    }[kind]
    field = {
        "flag": f"resolved.flag.{bare}",
        "spec_key": f"resolved.flag.speculative-config.{name}",
        "env": f"resolved.env.{name}",
    }[kind]
    resolved = _RESOLVED.get(bare, f"resolved.{bare.replace('-', '_')}")
    setting, reading = [], []
    for rule in load_rules().rules:
        touched = {effect.name for effect in rule.effects} & spelled
        preferred = {effect.field for effect in rule.effects} & {resolved}
        if touched or (kind == "flag" and preferred):
            setting.append(rule)
        elif field in rule.when or (kind == "flag" and resolved in rule.when):
            reading.append(rule)
    return setting, reading

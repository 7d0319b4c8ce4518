"""What a plan rests on that no table has: an image known by its tag, weights by what is stated."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from qwendeploy.documents import Option, PlanWarning
from qwendeploy.evidence.knowledge import Knowledge
from qwendeploy.planning.stated_weights import STATED, is_folder
from qwendeploy.versions import parse_version

ALIKE = 0.75
"""Similarity from which an unknown name may be a known one misspelt (difflib's ratio)."""


def unlisted_image(option: Option, knowledge: Knowledge) -> str:
    """Return what stands behind an image that no table has; nothing for one it has."""
    image = option.image
    if image is None or knowledge.image(image) is not None:
        return ""
    alike = nearest(image, (row.name for row in knowledge.images if row.engine == option.engine))
    known = f" Closest known image: {alike}." if alike else ""
    if option.engine != "vllm":
        return f"{image} is not in the tables: the plan assumes {option.engine}.{known}"
    if option.fork:
        return (
            f"{image} is not in the tables: judging by its tag, the plan assumes a third-party "
            f"build of vLLM {option.engine_version}; none of it is measured.{known}"
        )
    version = parse_version(option.engine_version)
    newest = max(
        known_version
        for row in knowledge.images
        if row.engine == "vllm" and not row.fork
        if (known_version := parse_version(row.engine_version))
    )
    if version is not None and version > newest:
        return (
            f"{image} is newer than the newest known release (vLLM {newest}): flags, rules, memory "
            f"and speed are those of earlier releases, not checked since.{known}"
        )
    return (
        f"{image} is not in the tables: judging by its tag, the plan assumes vLLM {version}.{known}"
    )


def avoided_image(option: Option, knowledge: Knowledge) -> str:
    """Return why a stated image is on the list to avoid; nothing for one that is not."""
    row = knowledge.image(option.image or "")
    if row is None or row.verdict != "avoid":
        return ""
    text = f"{row.name} should not be used: {row.reason}."
    name, _, digest = row.name.partition("@")
    if digest and not digest.startswith("sha256:"):
        text += f" No registry serves {name} by a short digest: generate cannot use this plan."
    return text


def unlisted_checkpoint(option: Option, knowledge: Knowledge) -> str:
    """Return what weights that no table has are taken for; nothing for those it has."""
    row = knowledge.checkpoint(option.checkpoint, option.quant)
    if not row.source.startswith(STATED):
        return ""
    listed = (
        item.name
        for item in knowledge.checkpoints
        if item.role == "target" and not item.source.startswith(STATED)
    )
    alike = None if is_folder(row.name) else nearest(row.name, listed)
    known = f" (closest known: {alike})" if alike else ""
    return (
        f"{row.name}, which is not in the tables{known}, contains {row.quant} weights of this model"
    )


def unlisted_warnings(option: Option, knowledge: Knowledge) -> Iterator[PlanWarning]:
    """Yield both as warnings."""
    if image := unlisted_image(option, knowledge):
        yield PlanWarning(rule="unlisted-image", text=image)
    if weights := unlisted_checkpoint(option, knowledge):
        yield PlanWarning(rule="unlisted-checkpoint", text=f"the plan assumes that {weights}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that another one is nearly, ``None`` if none is."""
    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=ALIKE)
    return found[0] if found else None

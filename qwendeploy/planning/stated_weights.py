"""The weights that the user states: a known checkpoint, or one of a known format elsewhere.

A folder or a repository that no table has is planned like the known checkpoint of the same format:
its size and its draft layers are taken from there, its quality class is unknown.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import replace

from qwendeploy.documents.request import Pins
from qwendeploy.errors import UserError
from qwendeploy.evidence.knowledge import Knowledge
from qwendeploy.family.names import MODEL, model_of
from qwendeploy.tables.checkpoints import CheckpointRow

_REPOSITORY = re.compile(r"\w[\w.\-]*/\w[\w.\-]*\Z", re.ASCII)
STATED = "stated by the user"
"""How the source of a row begins that stands for what the user states."""
_SEE = "see 'qwendeploy data show checkpoints'"


def is_folder(checkpoint: str) -> bool:
    """Say whether a checkpoint is named by an absolute path."""
    return checkpoint.startswith("/")


def with_stated_weights(knowledge: Knowledge, pins: Pins) -> Knowledge:
    """Return the knowledge with the checkpoint that the user states, if no table has it.

    Raises:
        UserError: no checkpoint has the stated format, the stated checkpoint has another one, or
            it is unknown and nothing says what it holds.
    """
    targets = [row for row in knowledge.checkpoints if row.role == "target"]
    if pins.quant is not None:
        _check_format(pins.quant, targets)
    if pins.checkpoint is None:
        return knowledge
    named = [row for row in targets if row.name == pins.checkpoint]
    if named and pins.quant not in (None, *(row.quant for row in named)):
        raise UserError(
            f"{pins.checkpoint} contains {_list(row.quant for row in named)}, not {pins.quant}",
            where="--quant",
            hint="remove --quant, or name another checkpoint",
        )
    if named:
        return knowledge
    row = _like_a_known_one(pins.checkpoint, pins.quant, targets)
    return replace(knowledge, checkpoints=(*knowledge.checkpoints, row))


def _check_format(quant: str, targets: list[CheckpointRow]) -> None:
    formats = list(dict.fromkeys(row.quant for row in targets))
    if quant in formats:
        return
    near = difflib.get_close_matches(quant.lower(), formats, n=1, cutoff=0.4)
    raise UserError(
        f"no known checkpoint has weights {quant!r}",
        where="--quant",
        hint=f"did you mean {near[0]}? {_SEE}" if near else f"known: {', '.join(formats)}",
    )


def _like_a_known_one(name: str, quant: str | None, targets: list[CheckpointRow]) -> CheckpointRow:
    if not is_folder(name) and not _REPOSITORY.match(name):
        raise UserError(
            f"{name!r} is neither a repository nor a folder",
            where="--checkpoint",
            hint="write owner/name or /path/to/folder",
        )
    if not is_folder(name) and model_of(name) is None:
        raise UserError(
            f"{name} is not named as a {MODEL} checkpoint", where="--checkpoint", hint=_SEE
        )
    if quant is None or quant.startswith("gguf"):
        raise UserError(
            f"checkpoint {name!r} is unknown",
            where="--checkpoint",
            hint="state its weight format with --quant, for instance --quant fp8"
            if quant is None
            else f"name a GGUF by its repository; {_SEE}",
        )
    like = next((row for row in targets if row.quant == quant and row.gib_on_disk), None)
    if like is None:
        raise UserError(
            f"the size of {quant} weights is not known", where="--checkpoint", hint=_SEE
        )
    return replace(
        like,
        name=name,
        kind="computed",
        gated=None,
        source=f"{STATED}; planned like {like.name}",
        note=None,
    )


def _list(words: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(words))

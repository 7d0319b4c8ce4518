"""What every document shares: a head, refusal of unknown keys, immutability."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = "1.0"
"""Version of every document written here. History: 1.0 first (2026-11-30)."""


class Model(BaseModel):
    """Base of every document part: unknown keys are errors, instances do not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Tool(Model):
    """The program that wrote a document."""

    name: str = "qwendeploy"
    version: str


class Document(Model):
    """Head of every stored document."""

    schema_id: str = Field(alias="schema")
    schema_version: str = SCHEMA_VERSION
    created: str
    """UTC, RFC 3339."""
    tool: Tool
    inputs: dict[str, Any] = Field(default_factory=dict)
    """Settings as resolved, secrets removed."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        allow_inf_nan=False,
        defer_build=True,
    )

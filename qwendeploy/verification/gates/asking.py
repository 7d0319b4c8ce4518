"""Sending a gate's question to the server and recording the conversation."""

from __future__ import annotations

from typing import Any

from qwendeploy.documents import Gate, Plan
from qwendeploy.verification.wire.backing_off import REFUSALS
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.records import Record
from qwendeploy.verification.wire.server import Surface

KEPT = 1500
"""Characters of a message that a transcript keeps at each end."""

Message = dict[str, Any]


class Asker:
    """Puts questions, remembers the transcript of the gate in progress."""

    def __init__(self, client: Client, surface: Surface, plan: Plan | None, seed: str) -> None:
        self.client, self.surface, self.plan, self.seed = client, surface, plan, seed
        self.name = ""
        self.transcript: list[dict[str, Any]] = []
        self._quiet_field: bool | None = None
        """Whether the server takes the field that switches thinking off; not known at first."""

    def begin(self, name: str) -> None:
        """Start the transcript of a gate."""
        self.name, self.transcript = name, []

    @property
    def max_model_len(self) -> int | None:
        """Length that the server serves."""
        return self.surface.facts.max_model_len

    async def ask(
        self,
        messages: list[Message] | str,
        *,
        tokens: int = 1024,
        thinking: bool = False,
        exact_length: bool = False,
        **extra: Any,
    ) -> Record:
        """Return the answer with its text; thinking is switched off where the server allows."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        limit = tokens
        if not thinking and self._quiet_field is False:
            limit = max(tokens, 4096)  # room to think first
        if self.max_model_len is not None:
            limit = max(min(tokens, 16), min(limit, self.max_model_len - self._length(messages)))
        body = self.surface.body(messages, limit, until_limit=exact_length)
        body.update(extra)
        quiet = not thinking and self._quiet_field is not False
        if quiet:
            body["chat_template_kwargs"] = {"enable_thinking": False}
        record = await self.client.ask(body, keep=True)
        if quiet and record.status in (400, 422) and self._quiet_field is None:
            self._quiet_field = False
            return await self.ask(
                messages, tokens=tokens, thinking=thinking, exact_length=exact_length, **extra
            )
        if quiet and record.failure is None:
            self._quiet_field = True
        self._note(messages, record)
        return record

    def _length(self, messages: list[Message]) -> int:
        """Return a safe estimate of the prompt's tokens."""
        prompts = self.surface.prompts
        characters = sum(len(str(message.get("content") or "")) for message in messages)
        tokens = int(prompts.estimate(characters) + prompts.overhead * len(messages))
        return tokens + prompts.margin(tokens)

    def _note(self, messages: list[Message], record: Record) -> None:
        self.transcript.append(
            {
                "asked": [
                    {"role": m["role"], "content": shorten(str(m.get("content") or ""))}
                    for m in messages[-3:]
                ],
                "answer": shorten(record.text),
                "reasoning": shorten(record.reasoning),
                "tool_calls": record.tool_calls,
                "finish_reason": record.finish_reason,
                "tokens": record.tokens,
                "failure": f"{record.failure}: {record.message}" if record.failure else None,
            }
        )

    def passed(self, reason: str = "") -> Gate:
        """Return the gate as passed."""
        return self._gate("passed", reason)

    def failed(self, reason: str) -> Gate:
        """Return the gate as failed."""
        return self._gate("failed", reason)

    def not_run(self, reason: str) -> Gate:
        """Return the gate as not run, with the reason."""
        return self._gate("not_run", reason)

    def _gate(self, outcome: Any, reason: str) -> Gate:
        return Gate(id=self.name, outcome=outcome, reason=reason, transcript=tuple(self.transcript))

    def broken(self, record: Record) -> Gate | None:
        """Return a failed gate if the request itself failed, one not run if it was put off."""
        if record.failure is None:
            return None
        if record.status in REFUSALS:
            return self.not_run(f"the server is not accepting requests: {record.message}")
        return self.failed(f"the request failed: {record.failure}: {record.message}")


def shorten(text: str) -> str:
    """Return a text with its middle left out if it is long."""
    if len(text) <= 2 * KEPT:
        return text
    return f"{text[:KEPT]} [... {len(text) - 2 * KEPT} characters ...] {text[-KEPT:]}"

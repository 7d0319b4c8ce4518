"""One verification from first contact to run document, saved as it goes.

The document on disk is whole after every stage and every few seconds in between; an interrupt or a
server that dies leaves what was measured, marked as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from qwendeploy import __version__
from qwendeploy.documents import (
    Fill,
    Gate,
    Plan,
    RunDocument,
    RunStatus,
    Step,
    TimelinePoint,
    Tool,
)
from qwendeploy.errors import UserError
from qwendeploy.figures import Kind
from qwendeploy.verification.client import Client
from qwendeploy.verification.collecting import collect_figures, reached_figures, request_arrays
from qwendeploy.verification.decode import Decode, DecodeSettings
from qwendeploy.verification.expected import held_by, machine_id, pool_figures
from qwendeploy.verification.fill import FillRun, FillSettings
from qwendeploy.verification.latency import LatencySettings, measure_latency
from qwendeploy.verification.prompts import PromptMaker
from qwendeploy.verification.server import Surface, survey, wait_for_health
from qwendeploy.verification.settings import EFFORT, Settings, operating_point, run_name
from qwendeploy.verification.shapes import run_shapes
from qwendeploy.verification.statistics import Interval, t_interval, widened
from qwendeploy.verification.target import Target, is_loopback
from qwendeploy.verification.telemetry import Gpus
from qwendeploy.verification.verdict import predictions_at
from qwendeploy.verification.watch import Lateness
from qwendeploy.verification.writer import write_run

Told = Callable[[str, float | None], None]
SAVE_EVERY_S = 5.0
SERVER_GONE = "the server no longer answers"


class Session:
    """One run against one server."""

    def __init__(
        self,
        target: Target,
        settings: Settings,
        *,
        plan: Plan | None = None,
        directory: Path | None = None,
        told: Told = lambda _text, _share: None,
        inputs: dict[str, Any] | None = None,
        run_id: str | None = None,
    ) -> None:
        if target.model is None and plan is not None:
            target = replace(target, model=plan.served_model_name)
        self.target, self.settings, self.plan = target, settings, plan
        self.directory, self.told = directory, told
        self.inputs = inputs or {}
        self.point = operating_point(plan, settings)
        self.effort = EFFORT[settings.level]
        now = datetime.now(UTC)
        self.created = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.run_id = run_id or run_name()
        self.began = time.perf_counter()
        self.status: RunStatus = "incomplete"
        self.stage = "started"
        self.steps: list[Step] = []
        self.timeline: list[TimelinePoint] = []
        self.warnings: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.fill = Fill(reason="not tested")
        self.gates: tuple[Gate, ...] = ()
        self.gone = False
        self.surface: Surface | None = None
        self.decode: Decode | None = None
        self.lateness = Lateness()
        self.loop_name = "asyncio"
        self._frozen_client: Any = None

    async def run(self) -> RunDocument:
        """Measure everything that the settings ask for and return the document.

        A cancelled run is saved as interrupted before the cancellation goes on.
        """
        self.loop_name = type(asyncio.get_running_loop()).__module__.split(".")[0]
        local = is_loopback(urlsplit(self.target.base_url).hostname or "")
        gpus = Gpus(local=local, indices=self.plan.gpu_indices if self.plan else ())
        saving = asyncio.create_task(self._save_regularly())
        lag = asyncio.create_task(self.lateness.run())
        try:
            async with Client(self.target, self.settings.limits) as client:
                await self._stages(client, gpus)
            self.status = "failed" if self.gone or self._nothing_measured() else "complete"
        except asyncio.CancelledError:
            self.status = "interrupted"
            raise
        except BaseException:
            self.status = "failed"
            raise
        finally:
            for task in (saving, lag):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            gpus.close()
            self._absorb()
            if self.surface is not None or self.status == "complete":
                self.save()
        return self.document()

    async def _stages(self, client: Client, gpus: Gpus) -> None:
        self.enter("waiting for the server")
        await wait_for_health(client, self.settings.wait_s, lambda text: self.told(text, None))
        self.enter("asking what the server offers")
        self.surface = await survey(client, PromptMaker(content=self.point.content))
        self._check_room()
        self.enter("first token")
        self.steps.append(await self._latency(client))
        self.enter("decode")
        await self._decode(client, gpus)
        self._freeze_client()
        if not await self._alive(client):
            return
        if self._wanted(self.settings.fill, self.effort.fill):
            self.enter("fill")
            await self._fill(client, gpus)
        if self._wanted(self.settings.gates, self.effort.gates):
            self.enter("gates")
            await self._run_gates(client)
        await run_shapes(self, client, gpus)
        self.enter("done")

    async def _alive(self, client: Client) -> bool:
        """Return whether the server still answers, and note if not."""
        try:
            page = await client.page("/health", timeout=10)
            answers = page.status < 500
            told = f"/health answers {page.status}"
        except (OSError, TimeoutError) as problem:
            answers, told = False, str(problem) or "no answer"
        if not answers:
            self.gone = True
            self.warnings.append(f"{SERVER_GONE} ({told}), after: {self.stage}")
            if not self.fill.tested:
                self.fill = Fill(reason="the server no longer answers")
        return answers

    @staticmethod
    def _wanted(asked: bool | None, usual: bool) -> bool:
        return usual if asked is None else asked

    def enter(self, stage: str) -> None:
        self.stage = stage
        self.told(stage, None)
        if self.surface is not None:
            self.save()

    def _check_room(self) -> None:
        """Refuse an operating point that the server cannot hold."""
        assert self.surface is not None
        length = self.surface.facts.max_model_len
        if length is not None and self.point.context > length:
            raise UserError(
                f"a context of {self.point.context} tokens is longer than the server's {length}",
                where=self.target.base_url,
                hint="--ctx, or start the server with the plan's --max-model-len",
            )

    async def _latency(self, client: Client) -> Step:
        assert self.surface is not None
        caching = self.surface.facts.cache_config.get("enable_prefix_caching")
        off = caching == "False" or (
            caching is None and self.plan is not None and not self.plan.option.prefix_cache
        )
        settings = LatencySettings(
            context=self.point.context,
            prompt=self.prompt_length(),
            repeats=self.settings.repeats or self.effort.repeats,
            warm=not off,
            together=self.point.concurrency,
            cached=self.cached_share() or 1.0,
            seed=f"{self.run_id}-latency",
        )
        return await measure_latency(client, self.surface, settings, self.told)

    def prompt_length(self) -> int:
        """Return the prompt tokens of one request: the plan's, where its point is measured."""
        own, context = self.plan.operating_point if self.plan else None, self.point.context
        return min(own.isl, context) if own and own.context == context else context

    def cached_share(self) -> float:
        """Return the share of a prompt that the plan expects in the prefix cache."""
        own = self.plan.operating_point if self.plan else None
        if own is None or not own.prefix_cache:
            return 0.0
        return own.prefix_hit or (1.0 if self.point.contexts == "shared" else 0.0)

    def user_rate(self) -> float:
        """Return tokens per second of one stream, as far as it is known before the windows."""
        if self.plan and self.plan.predictions.per_user_decode_tps:
            return self.plan.predictions.per_user_decode_tps.value
        alone = self.surface.user_tps if self.surface else None
        return alone or 30.0

    async def _decode(self, client: Client, gpus: Gpus) -> None:
        settings = self.settings
        self.lateness.reset()
        await self.measure_decode(
            client,
            gpus,
            DecodeSettings(
                concurrency=self.point.concurrency,
                context=self.point.context,
                contexts=self.point.contexts,
                window_s=settings.window_s or self.effort.window_s,
                windows=settings.windows or self.effort.windows,
                settle_s=settings.settle_s,
                patience_s=settings.patience_s,
                expected_user_tps=self.user_rate(),
                seed=f"{self.run_id}-decode",
            ),
            self._decided,
        )

    async def measure_decode(
        self,
        client: Client,
        gpus: Gpus,
        wanted: DecodeSettings,
        decided: Callable[[list[float]], bool],
    ) -> None:
        """Measure one decode load; the document has it even if this is cut short."""
        assert self.surface is not None
        self.decode = Decode(
            client, self.surface, wanted, gpus=gpus, told=self.told, decided=decided
        )
        await self.decode.run()
        self._absorb()

    def _decided(self, rates: list[float]) -> bool:
        """Whether more windows would change nothing: the interval is narrow, or the verdict sure.

        One boot says no more than its spread, so an interval far narrower than that is enough.
        """
        interval = t_interval(rates)
        if interval.half < 0.005:
            return True
        predicted = None
        if self.plan is not None:
            here, _ = predictions_at(self.plan, self.point.as_dict())
            predicted = here.aggregate_decode_tps
        if predicted is None or interval.half > 0.02:
            return False
        wide: Interval = widened(interval)
        inside = predicted.low <= wide.low and wide.high <= predicted.high
        return inside or wide.high < predicted.low or wide.low > predicted.high

    def _absorb(self) -> None:
        """Move what the current load measured into the document's parts."""
        if self.decode is None:
            return
        decode, self.decode = self.decode, None
        self.steps.append(self._placed(decode))
        self.timeline.extend(decode.watch.timeline(self.began))
        if self.settings.keep_requests:
            self.requests.extend(request_arrays(decode, self.began))

    def _placed(self, decode: Decode) -> Step:
        offset = decode.begin - self.began
        step = decode.step()
        windows = tuple(
            window.model_copy(update={"start_s": window.start_s + offset})
            for window in step.windows
        )
        return step.model_copy(update={"start_s": offset, "windows": windows})

    async def _fill(self, client: Client, gpus: Gpus) -> None:
        assert self.surface is not None
        plan, facts = self.plan, self.surface.facts
        typical = plan.predictions.max_typical_context_tokens if plan else None
        if plan is None or typical is None or typical.value < 64:
            reason = plan.predictions.reasons.get("max_typical_context_tokens") if plan else None
            self.fill = Fill(reason=reason or "no plan says which context is to be filled")
            return
        context = int(typical.value)
        if facts.max_model_len is not None:
            context = min(context, facts.max_model_len)
        option = plan.option
        self.fill = Fill(reason="begun, not finished")
        run = FillRun(
            client,
            self.surface,
            FillSettings(
                concurrency=plan.operating_point.concurrency,
                context=context,
                full_length=facts.max_model_len or option.max_model_len,
                step_tokens=option.max_num_batched_tokens or 8192,
                tokens_per_step=1.0 + option.spec_tokens,
                user_tps=self.user_rate(),
                hold_s=self.settings.hold_s,
                patience_s=max(self.settings.patience_s, 60.0)
                if self.settings.patience_s >= 30
                else self.settings.patience_s,
                kind=typical.kind if typical.kind is not Kind.MEASURED_HERE else Kind.MEASURED,
                seed=f"{self.run_id}-fill",
            ),
            gpus=gpus,
            told=self.told,
            blocks_held=lambda contexts: held_by(option, contexts),
        )
        try:
            self.fill, steps = await run.run()
            self.steps.extend(steps)
        finally:
            self.timeline.extend(run.watch.timeline(self.began))

    async def _run_gates(self, client: Client) -> None:
        assert self.surface is not None
        from qwendeploy.verification.gates import run_gates

        self.gates = await run_gates(client, self.surface, self.plan, self.run_id, self.told)
        if any(gate.outcome != "passed" for gate in self.gates):
            await self._alive(client)

    def _nothing_measured(self) -> bool:
        return not any(step.status == "complete" for step in self.steps)

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            if self.surface is not None and self.directory is not None:
                document = self.document()
                await asyncio.to_thread(write_run, self.directory, document)

    def save(self) -> None:
        """Write the document as it is now, if it has a place."""
        if self.directory is not None:
            write_run(self.directory, self.document())

    def _freeze_client(self) -> None:
        """Keep the client's own figures of the timed part; what follows is not timed."""
        self._frozen_client = self.lateness.facts(
            self.loop_name, proxy=self.target.proxy is not None
        )

    def document(self) -> RunDocument:
        """Return the run as far as it got."""
        steps = list(self.steps)
        timeline = list(self.timeline)
        if self.decode is not None:
            steps.append(self._placed(self.decode).model_copy(update={"status": "incomplete"}))
            timeline.extend(self.decode.watch.timeline(self.began))
        facts = self.surface.facts if self.surface else None
        figures, reasons = collect_figures(steps, self.point)
        if facts is not None:
            figures.update(pool_figures(self.plan, facts))
            if facts.kv_pool_blocks is None:
                figures.setdefault("kv_pool_blocks", None)
                reasons["kv_pool_blocks"] = "not offered by the server"
        figures.update(reached_figures(steps, self.fill, self.plan))
        client = self._frozen_client or self.lateness.facts(
            self.loop_name, proxy=self.target.proxy is not None
        )
        return RunDocument(
            created=self.created,
            tool=Tool(version=__version__),
            inputs=self.inputs,
            run_id=self.run_id,
            status=self.status,
            stage=self.stage,
            level=self.settings.level,
            plan_id=self.plan.plan_id if self.plan else None,
            machine_id=machine_id(self.plan) if self.plan else None,
            operating_point=self.point.as_dict(),
            server=facts,
            client=client,
            figures=figures,
            reasons=reasons,
            steps=tuple(steps),
            fill=self.fill,
            gates=self.gates,
            timeline=tuple(timeline),
            warnings=tuple(self.warnings),
            requests=tuple(self.requests),
        )

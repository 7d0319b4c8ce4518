"""One verification from first contact to run document, saved as it goes.

The document on disk is whole after every stage and, but for the arrays of requests, every few
seconds in between; an interrupt or a server that dies leaves what was measured, marked as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
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
from qwendeploy.errors import EnvironmentProblem
from qwendeploy.verification.collecting import collect_figures, reached_figures, request_arrays
from qwendeploy.verification.expected import machine_id, pool_figures
from qwendeploy.verification.loads.decode import Decode
from qwendeploy.verification.loads.decode_figures import decode_step
from qwendeploy.verification.loads.decode_load import DecodeLoad, DecodeSettings
from qwendeploy.verification.loads.telemetry import Gpus
from qwendeploy.verification.loads.watch import Lateness
from qwendeploy.verification.settings import EFFORT, Settings, operating_point, run_name
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.server import Surface
from qwendeploy.verification.wire.target import Target, is_loopback
from qwendeploy.verification.writer import write_run

OnProgress = Callable[[str, float | None], None]
SAVE_EVERY_S = 5.0


class Session:
    """One run against one server."""

    def __init__(
        self,
        target: Target,
        settings: Settings,
        *,
        plan: Plan | None = None,
        directory: Path | None = None,
        told: OnProgress = lambda _text, _share: None,
        inputs: dict[str, Any] | None = None,
        run_id: str | None = None,
    ) -> None:
        if target.model is None and plan is not None:
            target = replace(target, model=plan.served_model_name)
        self.target, self.settings, self.plan = target, settings, plan
        # what lost is most of a plan's length, and the run is written every few seconds
        without = {"alternatives": (), "trace": ()}
        self._measured_plan = plan.model_copy(update=without) if plan else None
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
        self.gpu_names: tuple[str, ...] = ()
        self.surface: Surface | None = None
        self.load: DecodeLoad | None = None
        self.client: Client | None = None
        self.lateness = Lateness()
        self.loop_name = "asyncio"
        self._frozen_client: Any = None
        self._writing: asyncio.Task[Path] | None = None
        self._saved = False

    async def run(self, stages: Callable[[Session, Client, Gpus], Awaitable[None]]) -> RunDocument:
        """Run the stages against the server and return the document.

        A cancelled run is saved as interrupted before the cancellation goes on.
        """
        self.loop_name = type(asyncio.get_running_loop()).__module__.split(".")[0]
        local = is_loopback(urlsplit(self.target.base_url).hostname or "")
        gpus = Gpus(local=local, indices=self.plan.gpu_indices if self.plan else ())
        self.gpu_names = gpus.names
        saving = asyncio.create_task(self._save_regularly())
        lag = asyncio.create_task(self.lateness.run())
        try:
            async with Client(self.target, self.settings.limits) as client:
                self.client = client
                await stages(self, client, gpus)
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
            if self._writing is not None:
                await asyncio.wait({self._writing})  # an older state must not come last
            gpus.close()
            self._absorb()
            if self.surface is not None or self.status == "complete":
                try:
                    self.save()
                except EnvironmentProblem as problem:
                    self.warnings.append(f"cannot write the run to disk: {problem}")
        return self.document()

    def enter(self, stage: str) -> None:
        """Name what is done now; what was measured until here is on disk, if that takes it.

        Raises:
            EnvironmentProblem: not even the first document can be written.
        """
        self.stage = stage
        self.told(stage, None)
        if self.surface is not None:
            with contextlib.suppress(*([EnvironmentProblem] if self._saved else [])):
                self.save()

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

    async def measure_decode(
        self,
        client: Client,
        gpus: Gpus,
        wanted: DecodeSettings,
        decided: Callable[[list[float]], bool],
    ) -> None:
        """Measure one decode load; the document has it even if this is cut short."""
        assert self.surface is not None
        decode = Decode(client, self.surface, wanted, gpus=gpus, told=self.told, decided=decided)
        self.load = decode.load
        self.lateness.reset()
        await decode.run()
        self._absorb()

    def _absorb(self) -> None:
        """Move what the current load measured into the document's parts."""
        if self.load is None:
            return
        load, self.load = self.load, None
        self.steps.append(self._placed(load))
        self.timeline.extend(load.watch.timeline(self.began))
        if self.settings.keep_requests:
            self.requests.extend(request_arrays(load.streams.records, self.began))

    def _placed(self, load: DecodeLoad) -> Step:
        offset = load.begin - self.began
        limit = self.lateness.facts(self.loop_name, proxy=False).limited_reason
        step = decode_step(load)
        windows = tuple(
            window.model_copy(update={"start_s": window.start_s + offset})
            for window in step.windows
        )
        return step.model_copy(
            update={"start_s": offset, "windows": windows, "client_limit": limit}
        )

    def _nothing_measured(self) -> bool:
        return not any(step.status == "complete" for step in self.steps)

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            if self.surface is not None and self.directory is not None:
                # arrays of requests take seconds to write, in which no chunk would be read
                document = self.document().model_copy(update={"requests": ()})
                writing = asyncio.to_thread(write_run, self.directory, document)
                self._writing = asyncio.create_task(writing)
                with contextlib.suppress(EnvironmentProblem):  # tried again, and told, at the end
                    await asyncio.shield(self._writing)

    def save(self) -> None:
        """Write the document as it is now, if it has a place."""
        if self.directory is not None:
            write_run(self.directory, self.document())
            self._saved = True

    def freeze_client(self) -> None:
        """Keep the client's own figures of the timed part; what follows is not timed."""
        self._frozen_client = self.lateness.facts(
            self.loop_name, proxy=self.target.proxy is not None
        )

    def _waits(self) -> tuple[str, ...]:
        """Return the line that says how often the server asked to come back later."""
        backing_off = self.client.backing_off if self.client else None
        return (str(backing_off),) if backing_off and backing_off.asked else ()

    def document(self) -> RunDocument:
        """Return the run as far as it got."""
        steps = list(self.steps)
        timeline = list(self.timeline)
        if self.load is not None:
            steps.append(self._placed(self.load).model_copy(update={"status": "incomplete"}))
            timeline.extend(self.load.watch.timeline(self.began))
        facts = self.surface.facts if self.surface else None
        figures, reasons = collect_figures(steps, self.point)
        if facts is not None:
            figures.update(pool_figures(self.plan, facts))
            if facts.kv_pool_blocks is None:
                figures.setdefault("kv_pool_blocks", None)
                reasons["kv_pool_blocks"] = "not reported by the server"
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
            plan=self._measured_plan,
            gpus=self.gpu_names,
            operating_point=self.point.as_dict(),
            server=facts,
            client=client,
            figures=figures,
            reasons=reasons,
            steps=tuple(steps),
            fill=self.fill,
            gates=self.gates,
            timeline=tuple(timeline),
            warnings=(*self.warnings, *self._waits()),
            requests=tuple(self.requests),
        )

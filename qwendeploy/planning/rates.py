"""The decode rate of an option: from its own series, a sister image's series, or the physics fit.

Evidence is tried best first: a series of this image on this card and layout; the same option in
another image of the same family (``transferred``); the joint fit over all machines. The user's
host is never the host of the table, so every series is widened by the drift between sessions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from qwendeploy.documents import Content, Option
from qwendeploy.evidence.anchors import (
    SeriesRates,
    StepTimes,
    drafts_beside,
    moved_beside,
    same_board,
    step_times,
)
from qwendeploy.evidence.series_choice import best_series
from qwendeploy.evidence.speed_fit import default_hyper, fit_with, series_fit
from qwendeploy.evidence.transfer_rows import (
    card_features,
    image_family,
    link_in,
    transfer_fit,
    weight_features,
)
from qwendeploy.family.geometry import QWEN_27B
from qwendeploy.figures import Kind, weakest
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.separate import (
    KvRead,
    beyond_capture,
    fp8_shared_rate,
    replicas_rate,
    separate_rate,
)
from qwendeploy.models.speculation import acceptance_length
from qwendeploy.models.speed import SeriesFit
from qwendeploy.models.step import KV_BYTES_PER_TOKEN, Features
from qwendeploy.planning.resolve import capture_size
from qwendeploy.planning.scene import Scene
from qwendeploy.tables.gpus import find_gpu
from qwendeploy.tables.series import Series

if TYPE_CHECKING:
    from qwendeploy.evidence.own_runs import OwnPoint

FAR = 1.5
"""Octaves outside a series' cells from which its rate rests on the joint fit more than on them."""


@dataclass(frozen=True)
class RatePoint:
    """Where a rate is asked for: requests of one replica, tokens of context, how they share it."""

    concurrency: float
    context: int
    contexts: str


@dataclass(frozen=True)
class Rates:
    """Decode rates in one planning situation."""

    scene: Scene

    def aggregate(
        self, option: Option, concurrency: int, context: int, contexts: str
    ) -> Estimate | None:
        """Return output tokens/s over all ``concurrency`` running requests; ``None`` if unknown."""
        return self.aggregate_many([(option, concurrency, context, contexts)])[0]

    def aggregate_many(
        self, wanted: Sequence[tuple[Option, int, int, str]]
    ) -> list[Estimate | None]:
        """Return the rates of many questions; those without a series are answered together."""
        questions = [
            (option, RatePoint(max(1.0, concurrency / option.replicas), context, contexts))
            for option, concurrency, context, contexts in wanted
        ]
        bases = self._bases(questions)
        # a replica without a request adds nothing
        busy = [min(option.replicas, max(1, concurrency)) for option, concurrency, *_ in wanted]
        return [
            self._answered(base, option, point, servers)
            for base, (option, point), servers in zip(bases, questions, busy, strict=True)
        ]

    def _bases(self, questions: Sequence[tuple[Option, RatePoint]]) -> list[Estimate | None]:
        """Return what the tables say of one server; own runs are not in it."""
        results: list[Estimate | None] = [None] * len(questions)
        open_questions: list[tuple[int, Features]] = []
        for at, (option, point) in enumerate(questions):
            found = self._from_series(option, point)
            if found is not None:
                results[at] = self._captured(found, option, point)
                continue
            features = self._features(option, point)
            if features is not None:
                open_questions.append((at, features))
        if open_questions:
            answers = transfer_fit().predict_many([features for _, features in open_questions])
            beside = self._beside([questions[at] for at, _ in open_questions])
            for (at, _), answer, near in zip(open_questions, answers, beside, strict=True):
                option, point = questions[at]
                answer = moved_beside(answer, option, near)
                results[at] = _parallel_gguf(answer) if _is_parallel_gguf(option, point) else answer
        return results

    def _beside(
        self, questions: Sequence[tuple[Option, RatePoint]]
    ) -> list[list[tuple[Option, float]]]:
        """Return by question the draft lengths with a series, each with its level over physics."""
        found: list[list[tuple[Option, float]]] = [[] for _ in questions]
        asked: list[tuple[int, Option, float, Features]] = []
        for at, (option, point) in enumerate(questions):
            for other in drafts_beside(self.series, option):
                rate, features = self._from_series(other, point), self._features(other, point)
                if rate is not None and features is not None:
                    captured = self._captured(rate, other, point)
                    asked.append((at, other, math.log(captured.value), features))
        if asked:
            physics = transfer_fit().log_rates([features for *_, features in asked])
            for (at, other, level, _), expected in zip(asked, physics, strict=True):
                found[at].append((other, level - float(expected)))
        return found

    def _answered(
        self, base: Estimate | None, option: Option, point: RatePoint, busy: int
    ) -> Estimate | None:
        """Return the rate of the ``busy`` replicas, this machine's own runs heard first."""
        own = self.scene.knowledge.own
        if own is None:
            return None if base is None else self._layout(base, busy)
        from qwendeploy.evidence.own_runs import OwnPlace

        content = self.scene.workload.content.value
        place = OwnPlace(point.concurrency, point.context, point.contexts, content)
        exact = own.exact(option, place)
        if exact is not None:
            one, servers = exact
            if servers == busy:
                return one.scaled(servers)
            return replicas_rate([one] * busy)
        if base is None:
            return None
        drift = default_hyper().drift_band(place.concurrency)
        moved = own.moved(base, option, place, self._seen, drift)
        return self._layout(moved, busy)

    @cached_property
    def _seen(self) -> tuple[tuple[OwnPoint, Estimate], ...]:
        """Own measurements, each beside what the tables say of its option and place."""
        own = self.scene.knowledge.own
        points = own.all_points if own is not None else ()
        questions = [
            (
                item.option,
                RatePoint(item.place.concurrency, item.place.context, item.place.contexts),
            )
            for item in points
        ]
        return tuple(
            (item, predicted.scaled(self._content_factor(item.option, item.place.content)))
            for item, predicted in zip(points, self._bases(questions), strict=True)
            if predicted is not None
        )

    def _content_factor(self, option: Option, content: str) -> float:
        """Return what another content than the workload's does to the rate of an option."""
        unit = self._content_of(content)
        asked = acceptance_length(option.spec_method, option.spec_tokens, self._content)
        there = acceptance_length(option.spec_method, option.spec_tokens, unit)
        return there.value / asked.value if asked is not None and there is not None else 1.0

    def over_content(self, option: Option, rate: Estimate) -> Estimate | str:
        """Return a rate's range from prose to code, or why there is none.

        The rate stays the middle: its own band is of mixed text, on which it was judged.
        """
        if self.scene.workload.content is not Content.MIXED:
            return f"the content is stated: {self.scene.workload.content.value}"
        if option.spec_method == "none":
            return "without drafting the content does not change the speed"
        method, tokens = option.spec_method, option.spec_tokens
        here = acceptance_length(method, tokens, self._content)
        prose = acceptance_length(method, tokens, "prose")
        code = acceptance_length(method, tokens, "code")
        if here is None or prose is None or code is None:
            return f"the acceptance of {method} drafts by content is not measured"
        return replace(
            rate,
            low=rate.low * min(1.0, prose.value / here.value),
            high=rate.high * max(1.0, code.value / here.value),
            kind=weakest(rate.kind, Kind.TRANSFERRED),
            basis=f"{rate.basis}; acceptance from prose to code",
        )

    def tier(self, option: Option, concurrency: int, context: int) -> int:
        """Return how near the evidence for a rate is.

        -1 runs of this very machine, 0 this image's series, 1 a sister's, 2 the joint fit.
        """
        own = self.scene.knowledge.own
        if own is not None and own.measured_here(option):
            return -1
        match = best_series(self.series, option)
        if match is None:
            return 2
        share = max(1.0, concurrency / option.replicas)
        if self._fit(match[0]).octaves_outside(share, context) > FAR:
            return 2
        return 0 if match[1] else 1

    # --- from a series ---

    @property
    def series(self) -> tuple[Series, ...]:
        """The series of this machine's card."""
        return self.scene.knowledge.series_on(self.scene.box.name)

    def _from_series(self, option: Option, point: RatePoint) -> Estimate | None:
        match = best_series(self.series, option)
        if match is None:
            return None
        series, same_image = match
        physics = self._step_times(series, option)
        rate = self._series_rate(series, physics, point.concurrency, point.context)
        if not same_image:
            rate = replace(rate, kind=weakest(rate.kind, Kind.TRANSFERRED))
        accepted = acceptance_length(option.spec_method, option.spec_tokens, "study")
        if accepted is None:
            return None
        if option.kv_cache_dtype == "fp8":
            rate = fp8_shared_rate(rate)
        bandwidth = self.scene.box.bandwidth_gbps
        if point.contexts == "separate" and series.contexts != "separate" and bandwidth:
            layers = QWEN_27B.draft_layers(option.spec_method)
            passes = option.spec_tokens if option.spec_method == "mtp" else 1
            fp8 = option.kv_cache_dtype == "fp8"
            rate = separate_rate(
                rate,
                self._series_rate(series, physics, point.concurrency, 0),
                concurrency=point.concurrency,
                context=point.context,
                acceptance_length=accepted.value,
                read=KvRead(
                    bytes_per_token=KV_BYTES_PER_TOKEN * (0.5 if fp8 else 1.0),
                    bandwidth_gbps=bandwidth,
                    tp=min(option.tp, QWEN_27B.kv_heads),
                    draft_reads=layers * passes / QWEN_27B.attention_layers,
                    fp8=fp8,
                ),
            )
        return self._for_content(rate, option)

    def _series_rate(
        self, series: Series, physics: StepTimes | None, concurrency: float, context: int
    ) -> Estimate:
        return self._of_series.at(series.key, self._fit(series), physics, concurrency, context)

    @cached_property
    def _of_series(self) -> SeriesRates:
        return SeriesRates()

    def _fit(self, series: Series) -> SeriesFit:
        universe = self.scene.knowledge.series
        if self.scene.knowledge.complete:
            return series_fit(series)
        return fit_with(series, default_hyper(), universe)

    def _step_times(self, series: Series, option: Option) -> StepTimes | None:
        """Return the joint physics of a series' option; ``None`` for an unknown card."""
        # the server that the cells were measured on, which may be a sister of the option's
        there = {"engine_version": series.key.engine_version, "fork": series.fork is not None}
        measured = option.model_copy(update={"kv_cache_dtype": "bf16", "replicas": 1, **there})
        features = self._features(measured, RatePoint(1.0, 0, series.contexts or "shared"))
        return None if features is None else step_times(features)

    def _for_content(self, rate: Estimate, option: Option) -> Estimate:
        """Return the rate for the stated content; the study's own prompt is the unit."""
        content = self.scene.workload.content
        if content is Content.MIXED or option.spec_method == "none":
            return rate
        here = acceptance_length(option.spec_method, option.spec_tokens, content.value)
        study = acceptance_length(option.spec_method, option.spec_tokens, "study")
        assert here is not None and study is not None
        scaled = rate.scaled(here.value / study.value)
        return replace(
            scaled,
            kind=weakest(rate.kind, Kind.TRANSFERRED),
            basis=f"{rate.basis}; acceptance of {content.value}",
        )

    # --- from the joint fit ---

    def features(
        self, option: Option, concurrency: int, context: int, contexts: str
    ) -> Features | None:
        """Return the plain numbers of an option for the physics; ``None`` for an unknown card."""
        share = max(1.0, concurrency / option.replicas)
        return self._features(option, RatePoint(share, context, contexts))

    def _features(self, option: Option, point: RatePoint) -> Features | None:
        card = self.scene.box.model
        facts = card_features(card) if card is not None else None
        if card is None or facts is None:
            return None
        try:
            return Features(
                **facts,  # type: ignore[arg-type]
                quant=option.quant,
                engine=option.engine,
                image_family=image_family(
                    option.engine, "repne" if option.fork else None, option.engine_version
                ),
                tp=option.tp,
                link=link_in(self.scene.box, card, option),
                kv_cache_dtype=option.kv_cache_dtype,
                spec_method=option.spec_method,
                spec_tokens=option.spec_tokens,
                content=self._content,
                concurrency=max(1.0, point.concurrency),
                context=float(point.context),
                contexts=point.contexts,  # type: ignore[arg-type]
                capture_size=capture_size(option),
                deep_gemm=None,
                **weight_features(option.checkpoint, option.quant),  # type: ignore[arg-type]
            )
        except ValueError:
            return None

    @cached_property
    def _content(self) -> str:
        """Content class that rates are of."""
        return self._content_of(self.scene.workload.content.value)

    def _content_of(self, content: str) -> str:
        """Return a class of the acceptance curves: the study's own where its series set the scale.

        The study's prompt is a mixture too.
        """
        if content != Content.MIXED.value or not self.of_study:
            return content
        return "study"

    @cached_property
    def of_study(self) -> bool:
        """Whether the study measured this card or a version of it for other power and cooling."""
        if any(series.key.origin == "study" for series in self.series):
            return True
        card = self.scene.box.model
        names = {s.key.gpu for s in self.scene.knowledge.series if s.key.origin == "study"}
        measured = (find_gpu(name) for name in names)
        return card is not None and any(other and same_board(card, other) for other in measured)

    # --- both ---

    def _captured(self, rate: Estimate, option: Option, point: RatePoint) -> Estimate:
        """Return the rate with steps above the captured size as slow as they are."""
        accepted = acceptance_length(option.spec_method, option.spec_tokens, "study")
        assert accepted is not None
        return beyond_capture(
            rate,
            concurrency=point.concurrency,
            spec_tokens=option.spec_tokens,
            capture_size=capture_size(option),
            acceptance_length=accepted.value,
        )

    def _layout(self, rate: Estimate, busy: int) -> Estimate:
        floor = self.scene.box.figure_floor
        together = replicas_rate([rate] * busy)
        return replace(together, kind=weakest(together.kind, floor))


def _is_parallel_gguf(option: Option, point: RatePoint) -> bool:
    return option.engine == "llama.cpp" and point.concurrency > 1


def _parallel_gguf(rate: Estimate) -> Estimate:
    """Return a rate of several slots of llama.cpp: every run of it on record is of one request."""
    return replace(
        rate,
        kind=weakest(rate.kind, Kind.ESTIMATED),
        basis=f"{rate.basis}; no llama.cpp run with several requests is measured",
    )

"""How long prompts take on an option, and the scheduler step that does not freeze its streams.

A step of ``--max-num-batched-tokens`` prompt tokens is one pause for every decoding stream, so the
step follows the prefill speed where no rule knows a better one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from qwendeploy.documents import Option
from qwendeploy.evidence.box import Box
from qwendeploy.evidence.prefill_rows import prefill_fit
from qwendeploy.evidence.transfer_rows import card_features, link_in, weight_features
from qwendeploy.figures import weakest
from qwendeploy.models.estimate import Estimate
from qwendeploy.models.latency import stall_ms
from qwendeploy.models.prefill import PrefillPoint
from qwendeploy.models.step import Features

LARGEST_STEP = 8192
"""Where no rule and no measured series says otherwise: the upstream server default for H100-class
and larger cards is 8192 (vLLM 0.20.1 to 0.33.0 argument defaults)."""
SMALLEST_STEP = 2048
"""The engine's own default on smaller cards, and what the GB10 recipe settled on
(kelnei/vllm-qwen36 docker-compose.spark.yml)."""
STALL_LIMIT_MS = 4200.0
"""Longest pause that a kept set-up is known to have: 32,768 tokens in a step on two RTX PRO 6000
take 4.1 s (prefill of the study's FP8 series)."""


def prefill_features(option: Option, box: Box) -> Features | None:
    """Return the plain numbers of an option's prefill, ``None`` for a card that nobody listed."""
    card = box.model
    facts = card_features(card) if card is not None else None
    if card is None or facts is None:
        return None
    try:
        return Features(
            **facts,  # type: ignore[arg-type]
            quant=option.quant,
            engine=option.engine,
            tp=option.tp,
            link=link_in(box, card, option),
            spec_method=option.spec_method,
            spec_tokens=option.spec_tokens,
            deep_gemm=None,
            **weight_features(option.checkpoint, option.quant),  # type: ignore[arg-type]
        )
    except ValueError:
        return None


@cache
def _cold_ms(point: PrefillPoint) -> Estimate:
    """Return the time of a prompt of which nothing is cached, ms; computed once."""
    return prefill_fit().predict(point)


def prefill_ms(option: Option, box: Box, tokens: int, cached: int = 0) -> Estimate | None:
    """Return the time of a prompt whose first ``cached`` tokens are in the cache.

    The rest attends to all of it, so its time is the difference of two prefills.
    """
    features = prefill_features(option, box)
    if features is None:
        return None

    def whole(length: int) -> Estimate:
        return _cold_ms(PrefillPoint(features, length, option.max_num_batched_tokens))

    full = whole(tokens)
    full = replace(full, kind=weakest(full.kind, box.figure_floor))
    if cached < 1:
        return full
    left = max(1, tokens - cached)
    # A prompt's fixed cost is paid once more with every request, however little is left of it.
    rest = max(full.value - whole(cached).value, 0.0) if left < tokens else full.value
    value = max(rest, whole(left).value)
    return replace(
        full,
        value=value,
        low=value * full.low / full.value,
        high=value * full.high / full.value,
        basis=f"{full.basis}; {cached:,} of {tokens:,} tokens from the prefix cache",
    )


def stall(option: Option, box: Box, prompt: int, step: int) -> Estimate | None:
    """Return the longest pause of decoding streams, ms, while such a prompt is prefilled."""
    features = prefill_features(option, box)
    if features is None:
        return None

    def whole(length: int) -> Estimate:
        return _cold_ms(PrefillPoint(features, length, step))

    return stall_ms(whole, prompt, step)


def step_for(option: Option, box: Box) -> int:
    """Return the largest usual step whose pause stays under ``STALL_LIMIT_MS``.

    Half the step is half the pause, so the step is halved down to ``SMALLEST_STEP``.
    """
    step = LARGEST_STEP
    while step > SMALLEST_STEP:
        pause = stall(option, box, step, step)
        if pause is None or pause.value <= STALL_LIMIT_MS:
            break
        step //= 2
    return step

"""Times a user feels, and throughput with the prompts counted.

*Cold* TTFT is ``prefill``'s time of the part of the prompt that is in no cache, plus the wait for
prompts ahead. *Warm* TTFT (prefix hit) follows the study's decode cells, whose streams arrive
together and find their prompt cached: tokenising and looking up cost a constant and a share of the
prompt length each, one request after the other, so

    warm(c, x) = base + (c + 1) / 2 * (request + token * x)

with ``x`` cached tokens. TPOT of ``c`` running streams is ``c / aggregate``.

*Closed loop*: ``c`` users always have one request in flight, each prefills ``p`` seconds and then
generates ``osl`` tokens. Prefill and decode take turns on the engine; whenever no prompt is being
prefilled all ``c`` streams decode, so a request costs the engine

    1 / lam = p + osl / decode(c)

and a new prompt waits behind ``rho / (2 (1 - rho))`` others, ``rho = lam * p`` being the share of
time spent on prefill (never more than half of the users). What decoding streams gain between the
chunks of a prompt is left out: one step a chunk, and runs of published length are nearer without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qwendeploy.figures import Kind, weakest
from qwendeploy.models.estimate import Estimate

Z = 1.645
LOOP_ERROR = (0.10, 0.20)
"""Deviation of the closed-loop formula itself, log units: one user, and several (their prompts
arrive in waves; community runs with every machine held out)."""


@dataclass(frozen=True, slots=True)
class WarmFit:
    """Coefficients of warm TTFT in ms, and the deviation of its logarithm over the fitted cells."""

    base_ms: float
    request_ms: float
    token_ms: float
    deviation: float
    cells: int

    def milliseconds(self, concurrency: float, cached: float) -> float:
        """Return the mean warm TTFT of ``concurrency`` requests that arrive together."""
        each = self.request_ms + self.token_ms * cached
        return self.base_ms + (concurrency + 1) / 2 * each


def fit_warm(cells: Sequence[tuple[float, float, float]]) -> WarmFit:
    """Return the fit to (concurrency, cached tokens, TTFT ms) cells, least absolute log error.

    Raises:
        ValueError: fewer than four cells, or one without a positive time.
    """
    if len(cells) < 4 or min(time for _, _, time in cells) <= 0:
        raise ValueError("a warm fit needs at least four cells with positive times")
    c, x, target = (np.asarray(column, dtype=np.float64) for column in zip(*cells, strict=True))
    log_target = np.log(target)
    turns = (c + 1) / 2
    theta = np.log([50.0, 10.0, 0.006])

    def model(values: np.ndarray) -> np.ndarray:
        base, request, token = np.exp(values)
        return np.asarray(np.log(base + turns * (request + token * x)))

    for _ in range(60):
        predicted = model(theta)
        slope = np.stack(
            [(model(theta + 1e-4 * unit) - predicted) / 1e-4 for unit in np.eye(3)], axis=1
        )
        residual = log_target - predicted
        weight = 1 / np.maximum(np.abs(residual), 0.05)
        normal = slope.T @ (weight[:, None] * slope) + 1e-3 * np.eye(3)
        step = np.linalg.solve(normal, slope.T @ (weight * residual))
        theta = theta + np.clip(step, -0.5, 0.5)
        if float(np.abs(step).max()) < 1e-5:
            break
    residual = np.abs(log_target - model(theta))
    base, request, token = (float(value) for value in np.exp(theta))
    deviation = float(np.quantile(residual, 0.9)) / Z
    return WarmFit(base, request, token, deviation, len(cells))


def warm_ttft_ms(
    fit: WarmFit, concurrency: float, cached: float, *, same_card: bool, tail_ms: float = 0.0
) -> Estimate:
    """Return warm TTFT; ``tail_ms`` prefills what follows the cached prefix.

    Another card than the fitted one keeps the value (host work dominates) with twice the reach.
    """
    value = fit.milliseconds(concurrency, cached) + tail_ms
    reach = math.exp(Z * fit.deviation * (1.0 if same_card else 2.0))
    kind = Kind.INTERPOLATED if same_card else Kind.TRANSFERRED
    return Estimate(
        value, value / reach, value * reach, kind, n=fit.cells, basis="TTFT of warm decode cells"
    )


def cold_ttft_ms(prefill: Estimate, arriving_together: int = 1) -> Estimate:
    """Return the mean TTFT of cold prompts; those that arrive together are prefilled in turn."""
    if arriving_together < 1:
        raise ValueError("at least one request arrives")
    if arriving_together == 1:
        return prefill
    turns = (arriving_together + 1) / 2
    return Estimate(
        prefill.value * turns,
        prefill.low,
        prefill.high * arriving_together,
        prefill.kind,
        n=prefill.n,
        basis=f"{prefill.basis}; {arriving_together} prompts one after another",
    )


def tpot_ms(aggregate: Estimate, running: float) -> Estimate:
    """Return the time per output token of one of ``running`` streams."""
    per_token = 1000.0 * running
    return Estimate(
        per_token / aggregate.value,
        per_token / aggregate.high,
        per_token / aggregate.low,
        aggregate.kind,
        n=aggregate.n,
        basis=aggregate.basis,
        level=aggregate.level,
    )


def stall_ms(prefill_ms: Callable[[int], Estimate], prompt: int, batched_tokens: int) -> Estimate:
    """Return the longest gap that decoding streams see while a prompt of this length prefills.

    A chunk of ``max_num_batched_tokens`` is one step; the last chunk of a long prompt attends to
    all before it, so its time is the difference of two prefills.
    """
    if prompt <= batched_tokens:
        return prefill_ms(prompt)
    whole, before = prefill_ms(prompt), prefill_ms(prompt - batched_tokens)
    value = max(whole.value - before.value, prefill_ms(batched_tokens).value)
    return Estimate(
        value,
        value * whole.low / whole.value,
        value * whole.high / whole.value,
        whole.kind,
        n=whole.n,
        basis=f"one chunk of {batched_tokens} tokens; {whole.basis}",
    )


@dataclass(frozen=True, slots=True)
class ClosedLoopModel:
    """Steady state of ``c`` users in a closed loop; ``prefill_share`` of engine time, 0 to 1."""

    output_tps: Estimate
    requests_per_s: float
    ttft_ms: float
    tpot_ms: float
    decoding: float
    prefill_share: float


def closed_loop(
    decode: Estimate, prefill: Estimate, *, concurrency: float, output_tokens: int
) -> ClosedLoopModel:
    """Return throughput and latencies with prefill and decode on one engine.

    ``decode`` is the aggregate rate of ``concurrency`` decoding streams in tokens/s, ``prefill``
    the time in ms of the uncached part of one prompt. The concurrency is a mean: that of several
    engines need not be whole. Users wait for the prompt or decode, so ``concurrency`` times
    ``output_tokens`` over TTFT and all TPOT of a request is the throughput, and TPOT is never
    below ``concurrency / decode``.

    Raises:
        ValueError: concurrency or output length is below one.
    """
    if concurrency < 1 or output_tokens < 1:
        raise ValueError("concurrency and output tokens must be positive: one or more")
    seconds, generating = prefill.value / 1000, output_tokens / decode.value
    rate = 1 / (seconds + generating)
    share = rate * seconds
    own = LOOP_ERROR[0] if concurrency == 1 else LOOP_ERROR[1]
    reach = math.exp(
        math.hypot(
            share * math.log(prefill.high / prefill.low) / 2,
            (1 - share) * math.log(decode.high / decode.low) / 2,
            Z * own,
        )
    )
    output = rate * output_tokens
    ahead = share / (2 * (1 - share))
    waiting = seconds * (1 + min(ahead, (concurrency - 1) / 2))
    return ClosedLoopModel(
        output_tps=Estimate(
            output,
            output / reach,
            output * reach,
            weakest(decode.kind, prefill.kind, Kind.INTERPOLATED),
            n=min(decode.n, prefill.n),
            basis=f"closed loop of {decode.basis} and {prefill.basis}",
        ),
        requests_per_s=rate,
        ttft_ms=waiting * 1000,
        tpot_ms=1000 * (concurrency / rate - waiting) / output_tokens,
        decoding=max(concurrency - rate * waiting, 0.0),
        prefill_share=share,
    )

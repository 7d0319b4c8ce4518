"""Times a user feels, and throughput with the prompts counted.

*Cold* TTFT is ``prefill``'s time of the part of the prompt that is in no cache, plus the wait for
prompts ahead. *Warm* TTFT (prefix hit) follows the study's decode cells, whose streams arrive
together and find their prompt cached: tokenising and looking up cost a constant and a share of the
prompt length each, one request after the other, so

    warm(c, x) = base + (c + 1) / 2 * (request + token * x)

with ``x`` cached tokens. TPOT of ``c`` running streams is ``c / aggregate``.

*Closed loop*: ``c`` users always have one request in flight, each prefills ``p`` seconds and then
generates ``osl`` tokens. Prefill and decode share the engine; while a chunk is prefilled the
decoding streams advance one step. With arrivals ``lam`` a second the engine prefills a share
``rho = lam * p`` of the time, a new prompt waits behind ``rho / (2 (1 - rho))`` others (never more
than half of the users), the rest decode, and ``lam`` is the rate at which their tokens add up:

    lam * osl = decode(n) * (1 - rho * (1 - step/chunk)),   n = c - lam * ttft
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qwendeploy.figures import Kind, weakest
from qwendeploy.models.estimate import Estimate

Z = 1.645
LOOP_ERROR = (0.08, 0.22)
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
        basis=f"{prefill.basis}; {arriving_together} prompts in turn",
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
class ClosedLoop:
    """Steady state of ``c`` users in a closed loop; ``prefill_share`` of engine time, 0 to 1."""

    output_tps: Estimate
    requests_per_s: float
    ttft_ms: float
    tpot_ms: float
    decoding: float
    prefill_share: float


def closed_loop(
    decode_tps: Callable[[float], Estimate],
    prefill: Estimate,
    *,
    concurrency: int,
    output_tokens: int,
    chunks: float = 1.0,
    acceptance_length: float = 1.0,
) -> ClosedLoop:
    """Return throughput and latencies with prefill and decode on one engine.

    ``decode_tps`` gives the aggregate rate of any number of decoding streams; ``prefill`` is the
    time in ms of the uncached part of one prompt, taken in ``chunks`` steps.

    Raises:
        ValueError: concurrency, output length or chunks are not positive.
    """
    if concurrency < 1 or output_tokens < 1 or not chunks > 0:
        raise ValueError("concurrency, output tokens and chunks must be positive")
    middle = decode_tps(float(concurrency))

    def solve(prefill_ms: float, factor: float) -> tuple[float, float, float]:
        return _steady(
            lambda n: decode_tps(n).value * factor,
            prefill_ms / 1000,
            concurrency,
            output_tokens,
            acceptance_length * chunks,
        )

    rate, waiting, share = solve(prefill.value, 1.0)
    output = rate * output_tokens
    slower, _, _ = solve(prefill.value, middle.low / middle.value)
    later, _, _ = solve(prefill.high, 1.0)
    own = LOOP_ERROR[0] if concurrency == 1 else LOOP_ERROR[1]
    reach = math.exp(math.hypot(math.log(rate / slower), math.log(rate / later), Z * own))
    decoding = max(concurrency - rate * waiting, 0.0)
    return ClosedLoop(
        output_tps=Estimate(
            output,
            output / reach,
            output * reach,
            weakest(middle.kind, prefill.kind, Kind.INTERPOLATED),
            n=min(middle.n, prefill.n),
            basis=f"closed loop of {middle.basis} and {prefill.basis}",
        ),
        requests_per_s=rate,
        ttft_ms=waiting * 1000,
        tpot_ms=1000 * (concurrency / rate - waiting) / output_tokens,
        decoding=decoding,
        prefill_share=share,
    )


def _steady(
    decode: Callable[[float], float],
    prefill_s: float,
    concurrency: int,
    output_tokens: int,
    tokens_while_prefilling: float,
) -> tuple[float, float, float]:
    """Return (requests/s, TTFT s, prefill share) by bisection on the request rate.

    ``tokens_while_prefilling`` is what one decoding stream gains while one prompt prefills.
    """
    low, high = 0.0, min(1 / prefill_s, decode(float(concurrency)) / output_tokens)
    for _ in range(60):
        rate = (low + high) / 2
        share = min(rate * prefill_s, 1 - 1e-9)
        waiting = _ttft(prefill_s, share, concurrency)
        streams = max(concurrency - rate * waiting, 0.0)
        if streams <= 0:
            high = rate
            continue
        # A stream's own rate alone is the most it can keep while prompts are chunked in.
        speed = decode(max(streams, 1.0)) * min(streams, 1.0)
        beside = rate * streams * tokens_while_prefilling
        produced = speed * (1 - share) + min(beside, speed * share)
        low, high = (rate, high) if produced > rate * output_tokens else (low, rate)
    rate = (low + high) / 2
    share = min(rate * prefill_s, 1.0)
    return rate, _ttft(prefill_s, share, concurrency), share


def _ttft(prefill_s: float, share: float, concurrency: int) -> float:
    """Return prefill plus the wait behind other prompts, at most half of the users ahead."""
    ahead = share / (2 * (1 - share)) if share < 1 else math.inf
    return prefill_s * (1 + min(ahead, (concurrency - 1) / 2))

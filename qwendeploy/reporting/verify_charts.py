"""Charts of the verification page as inline SVG: no script, no font, nothing fetched.

Drawn 360 units wide, so that text is readable on a 400 px screen; colours are CSS classes of the
page, chosen to be told apart by colour-blind readers, and every mark also differs in shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from qwendeploy.documents import Distribution, TimelinePoint, Verdict
from qwendeploy.figures import Figure
from qwendeploy.units import format_count, format_tokens

Scale = Callable[[float], float]

WIDTH = 360
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 26


def svg(height: float, body: Sequence[str], label: str) -> str:
    """Return a whole picture with a text for those who do not see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(body)}</svg>"
    )


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round numbers that cover low to high."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    size = 10 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw)
    first = math.ceil(low / step) * step
    return [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]


def band_chart(verdicts: Sequence[Verdict], name_of: Callable[[str], str]) -> str | None:
    """Return predicted bands and measured intervals side by side, as ratios to the prediction."""
    rows = [
        (verdict, verdict.predicted, verdict.measured)
        for verdict in verdicts
        if verdict.predicted and verdict.measured and verdict.predicted.value
    ]
    if not rows:
        return None
    ratios = [
        value / predicted.value
        for _, predicted, measured in rows
        for value in (predicted.low, predicted.high, measured.low, measured.high)
    ]
    low, high = max(0.0, min([0.9, *ratios])), min(3.0, max([1.1, *ratios]))
    pad = (high - low) * 0.05
    low, high = max(0.0, low - pad), high + pad

    def x(ratio: float) -> float:
        return 8 + (min(max(ratio, low), high) - low) / (high - low) * (WIDTH - 16)

    body: list[str] = []
    height = 18 + 34 * len(rows) + 18
    for tick in ticks(low, high):
        body.append(
            f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="14" y2="{height - 18}"/>'
        )
        body.append(f'<text class="tick" x="{x(tick):.1f}" y="{height - 5}">{tick:.0%}</text>')
    for number, (verdict, predicted, measured) in enumerate(rows):
        y = 18 + 34 * number
        left, right = x(predicted.low / predicted.value), x(predicted.high / predicted.value)
        name = escape(name_of(verdict.quantity))
        body.append(f'<text class="label" x="8" y="{y + 9}">{name}</text>')
        body.append(
            f'<rect class="band" x="{left:.1f}" y="{y + 14}" '
            f'width="{max(1.5, right - left):.1f}" height="12"/>'
        )
        body.append(_whisker(x, measured, predicted.value, y + 20, verdict.outcome))
        if measured.value > high * predicted.value:
            beyond = f"{measured.value / predicted.value:,.0%} ▸"
            body.append(f'<text class="value" x="{WIDTH - 16}" y="{y + 24}">{beyond}</text>')
    return svg(height, body, "measured intervals against predicted bands, prediction = 100 %")


def _whisker(x: Scale, figure: Figure, scale: float, y: float, outcome: str) -> str:
    low, high, at = (x(v / scale) for v in (figure.low, figure.high, figure.value))
    return (
        f'<line class="{outcome}" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>'
        f'<circle class="{outcome}" cx="{at:.1f}" cy="{y}" r="4"/>'
    )


@dataclass(frozen=True)
class RatePoint:
    """Predicted and measured rate at one concurrency and context."""

    concurrency: int
    context: int
    predicted: Figure | None
    measured: Figure | None

    def place(self, by: str) -> int:
        """Return where the point lies on the axis ``by``."""
        return self.concurrency if by == "concurrency" else self.context


def rate_chart(points: Sequence[RatePoint], by: str) -> str | None:
    """Return rates over concurrency or context, bands and intervals; x is logarithmic."""
    shown = [p for p in points if p.predicted or p.measured]
    if not shown:
        return None
    places = sorted({point.place(by) for point in shown})
    figures = [f for p in shown for f in (p.predicted, p.measured) if f is not None]
    top = max(f.high for f in figures) * 1.08
    height = 190

    def x(place: float) -> float:
        low, high = math.log2(places[0] + 1), math.log2(places[-1] + 1)
        share = (math.log2(place + 1) - low) / (high - low) if high > low else 0.5
        return LEFT + 16 + share * (WIDTH - LEFT - RIGHT - 32)

    def y(rate: float) -> float:
        return TOP + (1 - rate / top) * (height - TOP - BOTTOM)

    body = _frame(top, y, height, "tok/s")
    for place in places:
        text = format_tokens(place) if by == "context" else str(place)
        body.append(f'<text class="tick" x="{x(place):.1f}" y="{height - 10}">{text}</text>')
    for point in shown:
        at = x(point.place(by))
        if point.predicted:
            p = point.predicted
            body.append(
                f'<rect class="band" x="{at - 7:.1f}" y="{y(p.high):.1f}" width="14" '
                f'height="{max(1.5, y(p.low) - y(p.high)):.1f}"/>'
            )
        if point.measured:
            m = point.measured
            body.append(
                f'<line class="measured" x1="{at:.1f}" x2="{at:.1f}" y1="{y(m.low):.1f}" '
                f'y2="{y(m.high):.1f}"/>'
            )
            body.append(f'<circle class="measured" cx="{at:.1f}" cy="{y(m.value):.1f}" r="4"/>')
    return svg(height, body, f"decode rate over {by}: predicted bands and measured intervals")


def _frame(top: float, y: Scale, height: float, unit: str) -> list[str]:
    body = []
    for tick in ticks(0, top):
        at = y(tick)
        body.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
        body.append(
            f'<text class="value" x="{LEFT - 5}" y="{at + 4:.1f}">'
            f"{f'{tick:.3g}' if top < 10 else format_count(tick) if tick else '0'}</text>"
        )
    body.append(f'<text class="unit" x="2" y="{height - 10}">{escape(unit)}</text>')
    return body


def distribution_chart(spreads: Sequence[Distribution]) -> str | None:
    """Return one bar from least to most per latency, p50 and p95 marked; x is logarithmic."""
    shown = [spread for spread in spreads if spread.high > 0]
    if not shown:
        return None
    low = min(max(spread.low, spread.high / 1e4) for spread in shown) * 0.8
    high = max(spread.high for spread in shown) * 1.25
    height = 34 * len(shown) + 24

    def x(value: float) -> float:
        value = min(max(value, low), high)
        return 8 + math.log(value / low) / math.log(high / low) * (WIDTH - 16)

    body: list[str] = []
    power = math.floor(math.log10(low))
    for tick in (m * 10.0**p for p in range(power, power + 8) for m in (1, 3)):
        if low <= tick <= high:
            body.append(
                f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="2" '
                f'y2="{height - 20}"/>'
            )
            body.append(f'<text class="tick" x="{x(tick):.1f}" y="{height - 6}">{tick:g}</text>')
    for number, spread in enumerate(shown):
        y = 4 + 34 * number
        p50, p95 = spread.percentiles["p50"], spread.percentiles["p95"]
        label = f"{spread.name}: p50 {format_count(p50)} {spread.unit}, n={spread.n}"
        body.append(f'<text class="label" x="8" y="{y + 9}">{escape(label)}</text>')
        body.append(
            f'<line class="range" x1="{x(spread.low):.1f}" x2="{x(spread.high):.1f}" '
            f'y1="{y + 20}" y2="{y + 20}"/>'
        )
        body.append(f'<circle class="measured" cx="{x(p50):.1f}" cy="{y + 20}" r="4"/>')
        body.append(
            f'<rect class="mark" x="{x(p95) - 1.5:.1f}" y="{y + 14}" width="3" height="12"/>'
        )
    return svg(height, body, "latencies in ms: range, median (dot) and p95 (bar)")


SERIES = (
    ("streams", "requests decoding (client)", ""),
    ("running", "running (server)", ""),
    ("waiting", "waiting (server)", ""),
    ("kv_usage", "KV cache usage", ""),
    ("acceptance_length", "acceptance length, tokens per step", ""),
)


def timeline_charts(points: Sequence[TimelinePoint]) -> list[tuple[str, str]]:
    """Return (caption, picture) per quantity that the server offered over time."""
    found = []
    for name, caption, unit in SERIES:
        values = [(p.t_s, float(v)) for p in points if (v := getattr(p, name)) is not None]
        if len(values) >= 2:
            found.append((caption, _line(values, caption, unit)))
    for name, caption, unit in (
        ("power_w", "GPU power", "W"),
        ("temperature_c", "GPU temperature", "°C"),
        ("sm_clock_mhz", "GPU clock", "MHz"),
    ):
        values = [
            (p.t_s, max(numbers))
            for p in points
            if (numbers := [float(v) for c in p.gpu if isinstance(v := c.get(name), int | float)])
        ]
        if len(values) >= 2:
            found.append((caption, _line(values, caption, unit)))
    return found


def _line(values: Sequence[tuple[float, float]], caption: str, unit: str) -> str:
    height = 110
    begin, end = values[0][0], max(values[-1][0], values[0][0] + 1e-6)
    top = max(max(value for _, value in values) * 1.1, 1e-9)

    def x(t: float) -> float:
        return LEFT + (t - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (1 - value / top) * (height - TOP - BOTTOM)

    body = _frame(top, y, height, unit)
    path = " ".join(f"{x(t):.1f},{y(value):.1f}" for t, value in values)
    body.append(f'<polyline class="series" points="{path}"/>')
    for t in ticks(begin, end, 4):
        body.append(f'<text class="tick" x="{x(t):.1f}" y="{height - 10}">{t:.0f} s</text>')
    return svg(height, body, f"{caption} over time")

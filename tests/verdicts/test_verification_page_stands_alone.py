"""The HTML report: nothing fetched or executed, right at 1280 and 400 px, hostile text inert."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from measuring import small_plan
from plan_samples import figure

from qwendeploy import __version__
from qwendeploy.documents import (
    Cause,
    Cell,
    ClientFacts,
    Fill,
    FillCheck,
    Gate,
    Plan,
    RunDocument,
    ServerFacts,
    Step,
    TimelinePoint,
    Tool,
    VerifyReport,
    Window,
)
from qwendeploy.reporting.verify_html import verify_html
from qwendeploy.reporting.verify_text import verify_text
from qwendeploy.verification.statistics import distribution
from qwendeploy.verification.verifying import report_on

HOSTILE = "<script>alert('x')</script><img src=http://evil.example/x>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def plan() -> Plan:
    base = small_plan()
    cell = Cell(concurrency=1, context=600, figures=base.predictions)
    far = Cell(concurrency=3, context=8000, figures=base.predictions)
    return base.model_copy(update={"cells": (cell, far)})


@cache
def sample_report() -> VerifyReport:
    """Return a report with every part filled, made by hand."""
    spread = distribution("ttft_cold", "ms", [30.0 + i for i in range(40)])
    assert spread is not None
    windows = tuple(
        Window(start_s=10.0 * i, duration_s=10, tokens=3000, aggregate_tps=300 + i, tpot_ms=10,
               running_low=3)
        for i in range(4)
    )  # fmt: skip
    step = Step(
        name="decode c=3 context=600",
        shape="decode",
        concurrency=3,
        context=600,
        contexts="separate",
        status="complete",
        steady=True,
        cv=0.01,
        windows=windows,
        figures={"aggregate_decode_tps": figure(301, "tok/s", 0.01)},
        distributions=(spread,),
    )
    points = tuple(
        TimelinePoint(t_s=i, streams=3, tokens=i * 300, running=3, waiting=i % 2, kv_usage=0.4,
                      acceptance_length=2.5, gpu=({"power_w": 300.0 + i},))
        for i in range(20)
    )  # fmt: skip
    checks = (
        FillCheck(id="running", outcome="refuted", text="2 of 3 contexts of 2400 tokens ran"),
        FillCheck(id="blocks", outcome="confirmed", text="30 blocks held"),
    )
    run = RunDocument(
        created="2026-11-30T12:00:00Z",
        tool=Tool(version=__version__),
        run_id="20261130T120000-abcdef",
        status="complete",
        operating_point={"concurrency": 3, "context": 600, "contexts": "separate",
                         "content": "mixed"},
        server=ServerFacts(base_url="http://127.0.0.1:8000", model=HOSTILE, version="0.22.0",
                           not_offered=("/tokenize",), cache_config={"block_size": "800"}),
        client=ClientFacts(loop="uvloop", cpu_share=0.1, lag_p99_ms=1.2),
        figures={"aggregate_decode_tps": figure(301, "tok/s", 0.01),
                 "ttft_cold_ms": figure(70, "ms", 0.02), "kv_usage": None},
        reasons={"kv_usage": "not reported by the server"},
        steps=(step,),
        fill=Fill(tested=True, outcome="refuted", concurrency=3, context=2400, checks=checks),
        gates=(
            Gate(id="arithmetic", outcome="failed", reason="3901 is not in the answer",
                 transcript=({"asked": [{"role": "user", "content": HOSTILE}], "answer": HOSTILE,
                              "reasoning": "", "tool_calls": [], "finish_reason": "stop",
                              "tokens": 3, "failure": None},)),
            Gate(id="needle", outcome="not_run", reason="too short"),
            Gate(id="unicode", outcome="passed"),
        ),
        timeline=points,
    )  # fmt: skip
    report = report_on(run, plan())
    cause = Cause(id="throttled", text="held back", evidence=HOSTILE, fix="cooling")
    return report.model_copy(update={"causes": (cause,)})


def page() -> str:
    return verify_html(sample_report(), plan())


def test_nothing_is_fetched_or_executed() -> None:
    text = page()
    tags: set[str] = set()
    addresses: list[str | None] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.add(tag)
            addresses.extend(value for name, value in attrs if name in ("src", "href", "srcset"))
            assert not [name for name, _ in attrs if name.startswith("on")]

    Reader().feed(text)
    assert not tags & {"script", "img", "iframe", "object", "embed"}
    assert addresses == ["data:,"]
    assert "url(" not in text and "@import" not in text
    assert html.escape(HOSTILE, quote=False).replace("'", "&#39;") in text


def test_the_verdict_comes_first_and_everything_is_there() -> None:
    text = page()
    body = text[text.index("<body>") :]
    assert body.index('id="verdict"') < 200
    for part in ("refuted", "Likely causes", "Predicted and measured", "decode, all requests",
                 "Latency distributions", "failed gates: arithmetic", "Over time", "GPU power",
                 "KV cache usage", "Server, machine and plan", "RTX PRO 6000",
                 "context 600", "concurrency 3"):  # fmt: skip
        assert part in body, part
    assert body.count("<svg") == body.count("</svg>") >= 8
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_outcomes_differ_by_sign_not_by_colour_alone() -> None:
    text = page()
    for sign in ("✓", "✗", "?"):
        assert sign in text
    terminal = verify_text(sample_report())
    assert "NO " in terminal and "ok " in terminal


def test_text_fits_one_screen() -> None:
    lines = verify_text(sample_report()).splitlines()
    assert lines[0].startswith("REFUTED: fill refuted: 2 of 3 contexts of 2400 tokens ran;")
    first = " ".join(line.strip() for line in lines[:3])
    assert "failed gates: arithmetic; predicted 300 ± 36 tok/s, measured 301" in first
    assert ": rate confirmed" in first
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


def chromium(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--hide-scrollbars", "--virtual-time-budget=2000", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr, done.stderr
    return done


@needs_chromium
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_width(tmp_path: Path, width: int) -> None:
    """In a frame of that width nothing is wider than the frame and text keeps its size."""
    frame = html.escape(page())
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(
        f'<!DOCTYPE html><iframe id="f" width="{width}" height="3000" srcdoc="{frame}"></iframe>'
        "<script>onload = () => { const d = document.getElementById('f').contentDocument;"
        "const small = [...d.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width"
        " / s.viewBox.baseVal.width * 11);"
        "document.title = d.documentElement.scrollWidth + ' ' + Math.min(...small); }</script>"
    )
    done = chromium(tmp_path, "--dump-dom", f"file://{wrapper}")
    found = re.search(r"<title>([\d.]+) ([\d.]+)</title>", done.stdout)
    assert found, done.stdout[-500:]
    assert float(found[1]) <= width
    assert float(found[2]) >= 9, "chart text in pixels"


@needs_chromium
def test_screenshots_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page())
    for width, name in ((1280, "wide.png"), (400, "narrow.png")):
        shot = tmp_path / name
        chromium(tmp_path, f"--window-size={width},1600", f"--screenshot={shot}", f"file://{file}")
        assert shot.stat().st_size > 40_000


def test_lengths_and_shares_are_shown_as_they_are() -> None:
    """8,000 tokens are not 7k, and a pool that is a thousandth full is not empty."""
    text = page()
    assert ">8,000</text>" in text and ">7k</text>" not in text
    report = sample_report()
    usage = figure(0.0012, "of the pool", 0.0)
    run = report.run.model_copy(update={"figures": {**report.run.figures, "kv_usage": usage}})
    shown = report.model_copy(update={"run": run})
    assert "0.12% of the pool" in verify_text(shown)
    assert "0.12% of the pool" in verify_html(shown, plan())


def test_a_measurement_beyond_the_chart_is_told() -> None:
    report = sample_report()
    (cold,) = [v for v in report.verdicts if v.quantity == "ttft_cold_ms"]
    far = cold.model_copy(update={"measured": figure(320, "ms", 0.01)})
    verdicts = tuple(far if v is cold else v for v in report.verdicts)
    assert "1,000% ▸" in verify_html(report.model_copy(update={"verdicts": verdicts}), plan())


@needs_chromium
def test_the_page_prints_in_few_pages_without_stray_headings(tmp_path: Path) -> None:
    """Charts stand side by side; a printed report of this size takes three pages."""
    file, pdf = tmp_path / "report.html", tmp_path / "report.pdf"
    file.write_text(page())
    chromium(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={pdf}", f"file://{file}")
    raw = pdf.read_bytes()
    pages = len(re.findall(rb"/Type\s*/Page\b", raw))
    assert raw.startswith(b"%PDF") and 1 <= pages <= 4

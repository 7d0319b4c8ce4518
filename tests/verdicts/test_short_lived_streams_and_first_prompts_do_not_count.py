"""What the client itself causes is not the server's: ended streams, miscounted and first prompts.

Each was met on an H200 with vLLM 0.20.1 (docs/field-test-h200.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from known import known_server
from measuring import POOL, on_client, small_plan, verified
from plan_samples import figure

from qwendeploy.documents import Fill, RequestCounts, Step, Window
from qwendeploy.verification.collecting import reached_figures
from qwendeploy.verification.loads.decode import prompt_length
from qwendeploy.verification.loads.decode_figures import judged_windows
from qwendeploy.verification.loads.decode_load import DecodeSettings
from qwendeploy.verification.loads.latency import LatencySettings, measure_latency


def _window(rate: float, running: float, *, turnover: bool = False, waiting: float = 0) -> Window:
    return Window(
        start_s=0,
        duration_s=8,
        tokens=8 * rate,
        aggregate_tps=rate,
        tpot_ms=None,
        running_low=int(running),
        server_running_low=running,
        waiting_high=waiting,
        clean=not (turnover or waiting),
        turnover=turnover,
    )


def _step(context: int, *windows: Window) -> Step:
    return Step(
        name=f"decode context={context}",
        shape="decode",
        concurrency=16,
        context=context,
        contexts="separate",
        status="complete",
        duration_s=30,
        requests=RequestCounts(sent=16, succeeded=0, cancelled=16, failed=0),
        windows=windows,
    )


@pytest.mark.parametrize(
    ("windows", "rates"),
    [
        pytest.param(
            [_window(1351, 16), _window(1337, 16), _window(974, 15, turnover=True)],
            [1351, 1337],
            id="a-stream-ended-in-the-third",
        ),
        pytest.param(
            [_window(1351, 16), _window(974, 15, turnover=True)], [1351, 974], id="one-whole"
        ),
        pytest.param(
            [_window(900, 7, waiting=9), _window(890, 7, waiting=9)],
            [900, 890],
            id="a-queue-counts",
        ),
    ],
)
def test_a_rate_of_all_streams_needs_all_streams(windows: list[Window], rates: list[float]) -> None:
    assert [window.aggregate_tps for window in judged_windows(windows)] == rates


def test_capacity_is_read_at_the_operating_point_while_all_streams_were_offered() -> None:
    plan = small_plan(1800, concurrency=16)
    predictions = plan.predictions.model_copy(
        update={"max_running_requests": figure(16, "requests", 0)}
    )
    plan = plan.model_copy(update={"predictions": predictions})
    here = _step(600, _window(1820, 16), _window(1700, 15, turnover=True))
    deeper = _step(32768, _window(700, 9, waiting=7))
    found = reached_figures([here, deeper], Fill(reason=""), plan)["max_running_requests"]
    assert found is not None and found.value == 16


@pytest.mark.parametrize(
    ("context", "longest", "wanted"),
    [
        pytest.param(8192, None, 8192 - 2200, id="middle-of-the-windows"),
        pytest.param(8192, 32768, 8192 - 2200, id="far-from-the-limit"),
        pytest.param(32768, 32768, 32768 - 3400, id="outlives-the-windows"),
        pytest.param(4096, 4096, 2048, id="never-below-half"),
    ],
)
def test_prompts_leave_room_for_the_windows(context: int, longest: int | None, wanted: int) -> None:
    settings = DecodeSettings(16, context, window_s=8.0, windows=3, expected_user_tps=100.0)
    assert prompt_length(settings, longest) == wanted


def test_the_first_prompt_of_a_length_is_told_and_not_counted(tmp_path: Path) -> None:
    with known_server(tmp_path, *POOL) as known:
        step = on_client(
            known.url,
            lambda client, surface: measure_latency(
                client,
                surface,
                LatencySettings(context=600, repeats=2, warm=False),
                lambda _text, _share: None,
            ),
        )
        prompts = [row["prompt_tokens"] for row in known.entries(4)]
    assert len([tokens for tokens in prompts if 550 < tokens < 650]) == 3
    assert step.requests.sent == 2
    assert any(note.startswith("first prompt of this length, not counted") for note in step.notes)


def test_a_prompt_that_the_server_counts_longer_is_sent_again_shorter(tmp_path: Path) -> None:
    """Long prompts count 2.5 % more here than the trial said; 0.20.1 refuses what ends beyond."""
    limits = ("--version", "0.20.1", "--max-model-len", "2400", "--long-prompts-count", "1.025")
    with known_server(tmp_path, *POOL, *limits) as known:
        plan = small_plan()
        option = plan.option.model_copy(update={"max_model_len": 2400})
        run, _ = verified(known.url, plan.model_copy(update={"option": option}), fill=True)
    fill = next(step for step in run.steps if step.shape == "fill")
    assert fill.requests.failures.get("status 400"), "no prompt was refused"
    checks = {check.id: check.outcome for check in run.fill.checks}
    assert "requests" not in checks
    assert checks["running"] == "confirmed"
    assert run.fill.outcome == "confirmed", run.fill.checks

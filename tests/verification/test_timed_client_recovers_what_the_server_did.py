"""The client against the server's own log of the same run, never against nominal times."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from known import Known, known_server, tokens_between
from measuring import on_client, oversubscription

from qwendeploy.documents import Step
from qwendeploy.verification.loads.decode import Decode
from qwendeploy.verification.loads.decode_figures import decode_step
from qwendeploy.verification.loads.decode_load import DecodeLoad, DecodeSettings
from qwendeploy.verification.loads.telemetry import Gpus
from qwendeploy.verification.wire.client import Client
from qwendeploy.verification.wire.server import Surface

HARD = ("--tokens", "3,1,2", "--spec-tokens", "3", "--reasoning-tokens", "9", "--split",
        "--comments", "--hold-every", "5")  # fmt: skip


def decoded(
    known: Known, concurrency: int, seconds: float, *, saved: bool = False
) -> tuple[DecodeLoad, Step]:
    """Return one decode measurement of a known server, ``saved`` on its way as a session does."""

    async def work(client: Client, surface: Surface) -> tuple[DecodeLoad, Step]:
        settings = DecodeSettings(
            concurrency, 400, window_s=seconds, windows=3, settle_s=6, patience_s=3
        )

        def told(_text: str, _share: float | None) -> None:
            if saved:
                decode_step(decode.load)

        decode = Decode(
            client,
            surface,
            settings,
            gpus=Gpus(local=False),
            told=told,
            decided=lambda _rates: False,
        )
        return decode.load, await decode.run()

    return on_client(known.url, work)


@pytest.mark.parametrize("concurrency", [1, 8, 32, 128])
def test_rate_and_tpot_are_the_servers_within_one_percent(tmp_path: Path, concurrency: int) -> None:
    step = "20" if concurrency < 128 else "60"
    with known_server(tmp_path, "--step-ms", step, *HARD) as known:
        load, result = decoded(known, concurrency, 1.5)
        sent = known.sent(at_least=concurrency + 1)
        rows = known.entries()
    assert len(load.spans) == 3
    assert all(window.clean for window in result.windows), result.windows
    # over all windows, so that bursts cut by an edge do not count
    start, end = load.spans[0].start, load.spans[-1].end
    measured = sum(span.tokens for span in load.spans)
    true = tokens_between(sent, start, end)
    assert true > 100
    assert measured == pytest.approx(true, rel=0.01), f"load {os.getloadavg()}"
    tpots = []
    for row in rows:
        inside = [(t, n) for t, n in row["sent"] if start < t <= end]
        if len(inside) > 1:
            count = sum(n for _, n in inside[1:])
            tpots.append((inside[-1][0] - inside[0][0]) / count * 1e3)
    assert len(tpots) == concurrency
    figure = result.figures["tpot_ms"]
    assert figure is not None
    assert figure.value == pytest.approx(sum(tpots) / len(tpots), rel=0.01)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_first_token_is_the_servers_within_three_milliseconds(
    tmp_path: Path, concurrency: int
) -> None:
    with known_server(tmp_path, "--ttft-ms", "100", *HARD) as known:
        begun = time.perf_counter()
        load, _ = decoded(known, concurrency, 0.5)
        rows = known.entries(at_least=concurrency + 1)
    streams = sorted(
        (row for row in rows if row["arrived"] > begun and row["prompt_tokens"] < 1000),
        key=lambda row: float(row["arrived"]),
    )[-concurrency:]
    true = [row["sent"][0][0] - row["arrived"] for row in streams]
    seen = [r.ttft for r in load.streams.records if r.ttft is not None]
    assert len(seen) == len(true) == concurrency
    mean_true, mean_seen = sum(true) / len(true), sum(seen) / len(seen)
    assert mean_seen >= mean_true - 0.001
    allowed = (0.003 + 0.01 * mean_true) * oversubscription()
    assert mean_seen - mean_true <= allowed, f"load {os.getloadavg()}"


@pytest.mark.parametrize("usage", ["final", "reject-continuous", "none"])
def test_tokens_are_counted_where_chunks_do_not_say(tmp_path: Path, usage: str) -> None:
    """Without usage on every chunk the server's own counter says how many tokens chunks hold."""
    with known_server(tmp_path, "--tokens", "3,1,2", "--usage", usage) as known:
        load, result = decoded(known, 4, 1.0)
        sent = known.sent(at_least=5)
    start, end = load.spans[0].start, load.spans[-1].end
    rates = [window.aggregate_tps for window in result.windows]
    true = tokens_between(sent, start, end) / (end - start)
    assert result.counted == "metrics"
    assert sum(rates) / len(rates) == pytest.approx(true, rel=0.03)


def test_without_counter_and_usage_the_trial_tells_tokens_a_chunk(tmp_path: Path) -> None:
    settings = ("--tokens", "2", "--usage", "final", "--absent", "/metrics")
    with known_server(tmp_path, *settings) as known:
        load, result = decoded(known, 2, 1.0)
        sent = known.sent(at_least=3)
    start, end = load.spans[0].start, load.spans[-1].end
    true = tokens_between(sent, start, end) / (end - start)
    assert result.counted == "chunk_ratio"
    assert result.windows[0].aggregate_tps == pytest.approx(true, rel=0.05)
    assert any("does not count tokens per chunk" in note for note in result.notes)


def test_windows_open_only_when_all_streams_decode(tmp_path: Path) -> None:
    """A server that prefills one prompt after another is measured after the last of them."""
    settings = ("--serial-prefill", "--ttft-ms", "250", "--step-ms", "10")
    with known_server(tmp_path, *settings) as known:
        load, result = decoded(known, 6, 0.8)
        rows = known.entries(at_least=7)
    last_first_token = max(row["sent"][0][0] for row in rows if row["sent"])
    assert load.spans[0].start > last_first_token
    assert result.steady is True
    figure = result.figures["aggregate_decode_tps"]
    assert figure is not None and figure.value == pytest.approx(600, rel=0.05)


def test_what_is_saved_on_the_way_leaves_no_remark_behind(tmp_path: Path) -> None:
    with known_server(tmp_path, *HARD) as known:
        _, result = decoded(known, 2, 0.5, saved=True)
    assert result.status == "complete"
    assert not any("stopped after" in note for note in result.notes)

"""Samples of the serving GPUs while a server starts name the all-reduce that hangs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from plan_samples import sample_plan, uuid

from qwendeploy.diagnosis import causes
from qwendeploy.engines.vllm.boot_log import BootLog
from qwendeploy.running.gpu_load import GpuWatch
from qwendeploy.running.waiting import Boot, _progress


class Cards:
    """NVML with two cards; ``used`` MiB grows by ``growth`` a sample."""

    class NVMLError(Exception):
        pass

    def __init__(self, rate: int, growth: int = 0, *, fails: bool = False) -> None:
        self.rate = rate
        self.growth = growth
        self.used = 20_000
        self.fails = fails
        self.asked: list[Any] = []

    def nvmlInit(self) -> None:
        if self.fails:
            raise self.NVMLError("no driver")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self.asked.append(index)
        return index

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:
        self.asked.append(name)
        return name

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return SimpleNamespace(gpu=self.rate if handle in (0, uuid(0)) else 100)

    def nvmlDeviceGetMemoryInfo(self, _handle: Any) -> Any:
        self.used += self.growth
        return SimpleNamespace(used=self.used * 2**20)


def watched(cards: Cards, seconds: int, gpus: tuple[str, ...] = ("0", "1")) -> dict[str, float]:
    watch = GpuWatch(gpus, cards)
    for second in range(seconds):
        watch.sample(float(second))
    return watch.metrics()


def test_busy_cards_that_take_no_memory_hang() -> None:
    metrics = watched(Cards(100), 90)

    (cause, *_) = causes((), {"healthy": 0.0, **metrics})
    assert cause.id == "start-hangs"
    assert "--disable-custom-all-reduce" in cause.fix


@pytest.mark.parametrize(
    ("cards", "seconds"),
    [
        pytest.param(Cards(100, growth=100), 90, id="memory-grows"),
        pytest.param(Cards(3), 90, id="one-card-idle"),
        pytest.param(Cards(100), 30, id="not-a-minute-yet"),
    ],
)
def test_a_start_that_works_is_no_hang(cards: Cards, seconds: int) -> None:
    found = causes((), {"healthy": 0.0, **watched(cards, seconds)})

    assert [cause.id for cause in found if cause.id == "start-hangs"] == []


def test_lowest_rate_counts() -> None:
    assert watched(Cards(7), 10)["gpu_utilization"] == 7


def test_cards_are_asked_by_the_names_of_the_plan() -> None:
    cards = Cards(100)

    watched(cards, 1, (uuid(0), "1"))

    assert cards.asked == [uuid(0), 1]


def test_without_nvml_nothing_is_claimed() -> None:
    assert watched(Cards(100, fails=True), 90) == {}


@pytest.mark.parametrize(("heard", "told"), [(195.0, ""), (20.0, "no log output for 180 s")])
def test_silence_of_the_log_is_told_while_it_lasts(heard: float, told: str) -> None:
    boot = Boot(BootLog().read_all(["Capturing CUDA graph"]), seconds=200.0, heard=heard)

    text = _progress(boot, sample_plan())

    assert text.startswith("capturing CUDA graphs: 200 s of about 295 s (first boot)")
    assert text.partition("; ")[2] == told

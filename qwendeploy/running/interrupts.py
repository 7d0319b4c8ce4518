"""Signal handling during critical steps: abort cleanly, or wait until the step is complete."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C, so that nothing is left behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield


@contextmanager
def interrupts_wait(came_again: Callable[[int], None] | None = None) -> Iterator[None]:
    """Run the block to its end; an interrupt that came meanwhile is raised after it.

    ``came_again`` is told of each with its number, the first being 1.
    """
    came = 0

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came += 1
        if came_again is not None:
            came_again(came)

    with _handled_by(note):
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    """Handle the signals by ``handler``; outside the main thread there are none to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)

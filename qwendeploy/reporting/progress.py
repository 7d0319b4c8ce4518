"""A progress bar with live numbers on a terminal; no output when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Callable[[str, float | None], None]]:
    """Yield ``told(text, share)``; ``share`` of the current stage is ``None`` if unknown."""
    if quiet or not sys.stderr.isatty():
        yield lambda _text, _share: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=4,
    )
    with bar:
        task = bar.add_task("starting", total=None)
        stage = ""

        def told(text: str, share: float | None) -> None:
            nonlocal stage
            head = text.split(":")[0]
            if share is None:
                bar.update(task, description=text, total=None)
            else:
                if head.split(" ")[0] != stage:
                    bar.reset(task, total=1.0)
                bar.update(task, description=text, total=1.0, completed=share)
            stage = head.split(" ")[0]

        yield told

"""How long other requests stalled while a prompt was processed."""

from __future__ import annotations

from collections.abc import Sequence


def longest_pauses(
    prompts: Sequence[tuple[float, float]], chunks: Sequence[Sequence[float]]
) -> list[float | None]:
    """Return, for each prompt's (sent, first token), the longest gap of any stream meanwhile.

    ``chunks`` are the chunk times of every request, in order. A gap counts if any of it lies
    between the two moments: the last chunk before the prompt came and the first after its first
    token bound the gaps. The prompt's own chunks begin when it ends, so they are none of them.
    ``None`` where no stream decoded. Each request is compared with the prompts of its own lifetime
    alone.
    """
    import numpy as np

    if not prompts:
        return []
    order = sorted(range(len(prompts)), key=lambda index: prompts[index][0])
    sent = np.array([prompts[index][0] for index in order])
    first = np.array([prompts[index][1] for index in order])
    longest_prompt = float(np.max(first - sent))
    found = np.zeros(len(prompts))
    for times_ in chunks:
        if len(times_) < 2:
            continue
        times = np.asarray(times_)
        begin = np.searchsorted(sent, times[0] - longest_prompt, "left")
        end = np.searchsorted(sent, times[-1], "left")
        if begin >= end:
            continue
        gaps = np.diff(times)
        low = np.maximum(np.searchsorted(times, sent[begin:end], "right") - 1, 0)
        high = np.minimum(np.searchsorted(times, first[begin:end], "left"), len(gaps))
        met = np.flatnonzero(low < high)
        if not len(met):
            continue
        # of the stretches low..high in turn, every second one is what lies between two of them
        edges = np.stack((low[met], high[met]), axis=1).ravel()
        longest = np.maximum.reduceat(np.append(gaps, 0.0), edges)[::2]
        found[begin + met] = np.maximum(found[begin + met], longest)
    pauses: list[float | None] = [None] * len(prompts)
    for place, index in enumerate(order):
        pauses[index] = float(found[place]) or None
    return pauses

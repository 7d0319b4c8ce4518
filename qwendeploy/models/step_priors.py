"""Priors of the step model: medians of its parameters, and how far effects may stray from one.

Spreads are deviations of logarithms. Those of rigs and of the noise lie where the marginal
likelihood of all rows is highest (``scripts/fit_spreads.py`` prints it); those of cards, kernels
and drafting are kept narrower than that, because they carry over to machines nobody measured.
"""

from __future__ import annotations

PRIORS: dict[str, tuple[float, float]] = {
    "weights": (1.15, 0.04),
    "weights_gguf": (1.4, 0.08),
    "host_ms": (2.4, 0.3),
    "sequence_ms": (0.02, 0.6),
    "mtp_pass_ms": (1.2, 0.4),
    "draft_step_ms": (4.0, 0.4),
    "dflash_pass_ms": (3.0, 0.4),
    "kv": (1.1, 0.08),
    "kv_fp8": (1.3, 0.25),
    "shared": (0.5, 0.4),
    "attention_efficiency": (0.5, 0.3),
    "state": (1.0, 0.3),
    "norm": (2.0, 0.15),
    "eager_ms": (95.0, 0.1),
    "reduce_ms:nvlink": (0.008, 0.3),
    "reduce_ms:pcie-p2p": (0.011, 0.3),
    "reduce_ms:pcie": (0.03, 0.3),
    "reduce_ms:unified": (0.03, 0.3),
    "reduce_ms:network": (0.11, 0.4),
    "link_gbps:nvlink": (200.0, 0.4),
    "link_gbps:pcie-p2p": (20.0, 0.4),
    "link_gbps:pcie": (10.0, 0.4),
    "link_gbps:unified": (100.0, 0.4),
    "link_gbps:network": (15.0, 0.4),
    "efficiency:bf16": (0.55, 0.25),
    "efficiency:fp8": (0.5, 0.25),
    "efficiency:fp8-cutlass": (0.45, 0.25),
    "efficiency:int8": (0.5, 0.25),
    "efficiency:fp4": (0.3, 0.25),
    "efficiency:marlin": (0.5, 0.25),
    "efficiency:gguf": (0.3, 0.3),
    "host:llama.cpp": (0.4, 0.25),
    "host:llama.cpp-new": (0.4, 0.25),
    "draft:llama.cpp-new": (0.4, 0.4),
}
"""Name -> (prior median, spread of its logarithm). ``_ms`` are milliseconds, ``_gbps`` GB/s.

1.15 over pure bandwidth, two to three milliseconds of host time and about eight of drafting three
tokens are what the study's card and an H200 agree on. A step whose tokens exceed the captured
graphs costs 92 to 100 ms on an H200 (own measurement 2026, 128 streams with three draft tokens and
graphs up to 256) and 93 ms uncaptured on four RTX 5060 Ti. KV in 8 bits halves the bytes, but its
kernels convert; no pair of runs on one machine measures what is left, hence the wide ``kv_fp8``.
llama.cpp reads its formats at two thirds of the bandwidth on cards of 360 to 1,792 GB/s, spends
little of a step on the host, and its later builds draft two tokens for a quarter of a step
(community pairs, August 2026). The rest is the order of magnitude of the mechanism.
"""
EFFECTS: dict[str, float] = {
    "architecture": 0.10,
    "gpu": 0.08,
    "kernel": 0.10,
    "batch": 0.25,
    "host": 0.25,
    "draft": 0.4,
    "share": 0.3,
    "accept": 0.15,
    "vendor": 0.5,
    "rig": 0.06,
    "rig_host": 0.17,
    "rig_link": 0.25,
    "rig_accept": 0.06,
}
"""Kind of effect -> prior spread of its logarithm around zero.

``batch`` scales what grows with the streams (matrix arithmetic and states), ``share`` the reading
of a shared context, ``accept`` what drafts of one content are worth. A rig is one host at one time:
``rig`` its cards (clocks, power caps), ``rig_host`` its processor and software, which launch the
step and its drafts, ``rig_link`` its slots and lanes, ``rig_accept`` its prompts. That a host's
part is the loose one is why sessions of the study drift by 22 % at up to 4 streams and by 8 % from
16 on: at few streams the launches are half of the step.
"""
HOME: dict[str, float] = {"rig": 0.09, "rig_host": 0.45}
"""The same for cards that sit in hosts of every sort: 55 to 109 tok/s for one option on two
RTX 3090 (community runs)."""
LINK_SPREAD: dict[str, float] = {
    "nvlink": 0.15,
    "pcie-p2p": 0.25,
    "pcie": 0.5,
    "unified": 0.3,
    "network": 0.4,
}
"""``rig_link`` by kind of link: cards that talk through the host depend on its slots and lanes."""
RIG_ACCEPT: dict[str, float] = {"mtp": 0.06, "dflash": 0.15}
"""``rig_accept`` by draft method, from runs that state their acceptance: MTP repeats within 7 %,
DFlash with 8 to 10 drafts gained 3.7 to 6.0 tokens a step on four kinds of text (GB10)."""
STUDY_ACCEPT = 0.03
"""Spread of what the study's own drafts are worth: its acceptance was sampled in every cell."""
LENGTH_NOISE = 0.05
"""Deviation of a stated acceptance length from what it was over the measured tokens."""
NOISE: tuple[tuple[int, float], ...] = ((1, 0.06), (1 << 30, 0.04))
"""Up to this concurrency, repetition of the log rate on one host and what the formula misses."""


def noise(concurrency: float) -> float:
    """Return the standard deviation of a single log rate at this concurrency."""
    return next(spread for limit, spread in NOISE if concurrency <= limit)

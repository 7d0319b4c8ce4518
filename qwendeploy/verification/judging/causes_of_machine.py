"""Causes of a deviation in the serving machine: memory, throttling, other users, links."""

from __future__ import annotations

from collections.abc import Mapping

from qwendeploy.documents import Cause, TimelinePoint
from qwendeploy.verification.judging.evidence import Evidence
from qwendeploy.verification.loads.telemetry import POWER_CAP

THROTTLE_SHARE = 0.2
"""Share of throttled samples that is reported; single samples are spikes."""
USUAL_CAP = 0.98
"""Share of the default power limit above which reaching the limit is normal operation."""
DRIFT = -0.02
"""Relative change per minute that is reported (thermal soak is about 4 % in 55 min)."""


def throttled(evidence: Evidence) -> Cause | None:
    cards = [card for point in evidence.run.timeline for card in point.gpu]
    reasons = [str(card["throttle"]) for card in cards if card.get("throttle") and _held(card)]
    if not cards or len(reasons) / len(cards) < THROTTLE_SHARE:
        return None
    most = max(set(reasons), key=reasons.count)
    heat, power = evidence.gpu("temperature_c"), evidence.gpu("power_w")
    told = f"{most} in {len(reasons) / len(cards):.0%} of the samples"
    if heat:
        told += f", up to {max(heat):.0f} °C"
    if power:
        told += f", up to {max(power):.0f} W"
    return Cause(
        id="throttled",
        text="the GPU was throttled",
        evidence=told,
        fix="check cooling and power limit (`nvidia-smi -q -d POWER,PERFORMANCE`)",
    )


def _held(card: Mapping[str, float | str | None]) -> bool:
    """Whether a GPU is throttled by more than its default power limit."""
    cap, usual = card.get("power_cap_w"), card.get("power_default_w")
    if not isinstance(cap, int | float) or not isinstance(usual, int | float):
        return True
    return card.get("throttle") != POWER_CAP or cap < USUAL_CAP * usual


def falling_rate(evidence: Evidence) -> Cause | None:
    step = evidence.decode
    if step is None or step.drift_per_minute is None or step.drift_per_minute > DRIFT:
        return None
    return Cause(
        id="falling-rate",
        text="the rate fell during the measurement",
        evidence=f"{step.drift_per_minute:+.1%} per minute over the windows",
        fix="check temperature and power; growing contexts explain only a small part",
    )


def other_gpu_user(evidence: Evidence) -> Cause | None:
    processes = evidence.gpu("processes")
    plan = evidence.plan
    if not processes or max(processes) <= 1 or plan is None or plan.option.replicas > 1:
        return None
    return Cause(
        id="other-gpu-user",
        text="another process uses a GPU of the server",
        evidence=f"up to {max(processes):.0f} processes on one GPU",
        fix="list them with `nvidia-smi` and stop them",
    )


def smaller_pool(evidence: Evidence) -> Cause | None:
    plan, server = evidence.plan, evidence.run.server
    if plan is None or server is None or server.kv_pool_blocks is None:
        return None
    predicted = plan.predictions.kv_pool_blocks
    if predicted is None or server.kv_pool_blocks >= predicted.low:
        return None
    return Cause(
        id="smaller-pool",
        text="the KV pool has fewer blocks than predicted",
        evidence=f"{server.kv_pool_blocks} blocks, predicted {predicted.low:.0f} to"
        f" {predicted.high:.0f}",
        fix="check for a display, other processes or a smaller memory fraction",
    )


def capture_exceeded(evidence: Evidence) -> Cause | None:
    plan, step = evidence.plan, evidence.decode
    if plan is None or step is None or plan.option.capture_size is None:
        return None
    tokens = step.concurrency * (1 + plan.option.spec_tokens)
    if tokens <= plan.option.capture_size:
        return None
    return Cause(
        id="capture-exceeded",
        text="steps exceed the captured CUDA graphs and run without them",
        evidence=f"{step.concurrency} requests x {1 + plan.option.spec_tokens} tokens = {tokens},"
        f" captured up to {plan.option.capture_size}",
        fix=f"set --max-cudagraph-capture-size {tokens}",
    )


def peer_access_off(evidence: Evidence) -> Cause | None:
    plan = evidence.plan
    if plan is None or plan.option.tp == 1 or plan.machine.p2p == "yes":
        return None
    off = [s for s in plan.env if s.name == "NCCL_P2P_DISABLE" and s.value == "1"]
    if plan.machine.p2p != "no" and not off:
        return None
    return Cause(
        id="no-peer-access",
        text="the GPUs exchange tensors through host memory",
        evidence="peer access is off on this machine",
        fix="check `nvidia-smi topo -p2p r` and the host's IOMMU and ACS settings",
    )


def hosts_busy(evidence: Evidence) -> Cause | None:
    client = evidence.run.client
    points: tuple[TimelinePoint, ...] = evidence.run.timeline
    if client is None or client.load_average is None or not points:
        return None
    import os

    cores = os.cpu_count() or 1
    if client.load_average <= 1.5 * cores:
        return None
    return Cause(
        id="host-busy",
        text="the host was busy with other work",
        evidence=f"load average {client.load_average:.1f} on {cores} cores",
        fix="repeat when the host is idle",
    )

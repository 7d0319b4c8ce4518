"""Times to the first token and end-to-end throughput of a resolved option."""

from __future__ import annotations

from qwendeploy.figures import Figure
from qwendeploy.models.estimate import Estimate
from qwendeploy.planning.resolve import Candidate
from qwendeploy.planning.scene import Scene


def latencies(
    candidate: Candidate, load: object, rate: Estimate | None, count: int, scene: Scene
) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the figures that are known, and why the others are not."""
    names = ("ttft_warm_ms", "ttft_cold_ms", "output_tps_end_to_end")
    return {}, {name: "no prefill measured on this card" for name in names}

"""What hardware needs of a GPU catalogue; ``tables.gpus.GpuCatalogue`` fits, tests bring their own.

Hardware does not import the tables: whoever calls it passes the catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class CatalogueGpu(Protocol):
    """One card as far as hardware looks at it."""

    @property
    def name(self) -> str: ...
    @property
    def vendor(self) -> str: ...
    @property
    def compute_capability(self) -> str | None: ...
    @property
    def memory_mib(self) -> int | None: ...
    @property
    def memory_gb_nominal(self) -> float | None: ...
    @property
    def bandwidth_gbps(self) -> float | None: ...
    @property
    def power_w(self) -> float | None: ...
    @property
    def unified(self) -> bool: ...
    @property
    def nvlink(self) -> str: ...
    @property
    def p2p(self) -> str: ...

    def has_memory(self, memory_mib: float) -> bool | None: ...


class Catalogue(Protocol):
    """Lookup of a printed or typed name."""

    def candidates(
        self, name: str, *, memory_mib: float | None = None, power_w: float | None = None
    ) -> Sequence[CatalogueGpu]: ...

    def find(
        self, name: str, *, memory_mib: float | None = None, power_w: float | None = None
    ) -> CatalogueGpu | None: ...

    def near(self, name: str, count: int = 3) -> tuple[str, ...]: ...

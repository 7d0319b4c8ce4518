"""The documents that pass between verbs: machine, workload, option, plan, run and verdict.

Pydantic models at the borders of the program; their JSON Schemas are what ``qwendeploy schema``
prints. Lengths are tokens, latencies end in ``_ms``, memory in ``_mib``, ``_gib`` or ``_bytes``.
"""

from qwendeploy.documents.base import SCHEMA_VERSION, Document, Model, Tool
from qwendeploy.documents.machine import (
    Gpu,
    GpuLink,
    Links,
    Machine,
    MachineDocument,
    MigDevice,
    MissingGpu,
    Tri,
)
from qwendeploy.documents.option import (
    Content,
    KvDtype,
    Objective,
    OperatingPoint,
    Option,
    Quality,
    SpecMethod,
    Workload,
)
from qwendeploy.documents.plan import (
    PREDICTION_NAMES,
    Alternative,
    Cell,
    Plan,
    PlanWarning,
    Predictions,
    Setting,
    TraceEntry,
)
from qwendeploy.documents.run import (
    Cause,
    ClientFacts,
    Distribution,
    Fill,
    FillCheck,
    Gate,
    Level,
    Outcome,
    RequestCounts,
    RunDocument,
    RunStatus,
    ServerFacts,
    Step,
    TimelinePoint,
    Verdict,
    VerifyReport,
    Window,
)

SCHEMAS: dict[str, type[Model]] = {
    "machine": MachineDocument,
    "plan": Plan,
    "run": RunDocument,
    "verify": VerifyReport,
    "workload": Workload,
}
"""Documents whose JSON Schema ``qwendeploy schema NAME`` prints."""

__all__ = [
    "PREDICTION_NAMES",
    "SCHEMAS",
    "SCHEMA_VERSION",
    "Alternative",
    "Cause",
    "Cell",
    "ClientFacts",
    "Content",
    "Distribution",
    "Document",
    "Fill",
    "FillCheck",
    "Gate",
    "Gpu",
    "GpuLink",
    "KvDtype",
    "Level",
    "Links",
    "Machine",
    "MachineDocument",
    "MigDevice",
    "MissingGpu",
    "Model",
    "Objective",
    "OperatingPoint",
    "Option",
    "Outcome",
    "Plan",
    "PlanWarning",
    "Predictions",
    "Quality",
    "RequestCounts",
    "RunDocument",
    "RunStatus",
    "ServerFacts",
    "Setting",
    "SpecMethod",
    "Step",
    "TimelinePoint",
    "Tool",
    "TraceEntry",
    "Tri",
    "Verdict",
    "VerifyReport",
    "Window",
    "Workload",
]

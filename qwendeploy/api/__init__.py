"""The verbs as functions: the command line and other programs call these and nothing below.

One module a family of verbs. Modules that are slow to import are imported inside the verb that
needs them, so that ``--help`` and ``recommend`` stay quick.
"""

from __future__ import annotations

from qwendeploy.api.artefacts import artefact_kinds, artefact_text, generate, start_command
from qwendeploy.api.audits import audit, audit_fix, audit_score
from qwendeploy.api.data import (
    data_check,
    data_export,
    data_forget,
    data_import,
    data_imports,
    data_list,
    data_own_pools,
    data_save,
    data_show,
)
from qwendeploy.api.machines import (
    describe_doctor,
    describe_machine,
    detect,
    doctor,
    load_machine,
    refuse_errors,
    refuse_unusable,
    resolve_machine,
    save_machine,
)
from qwendeploy.api.measurements import (
    compare,
    export_bench,
    new_run_id,
    verify,
    verify_notices,
    verify_self_test,
)
from qwendeploy.api.plans import explain, explain_topics, predict, predict_plan, recommend
from qwendeploy.api.servers import down, logs, status, status_exit_code, up
from qwendeploy.auditing.reading.text import LARGEST_BYTES as LARGEST_LAUNCH
from qwendeploy.auditing.request import AuditRequest
from qwendeploy.documents.request import Pins, Request
from qwendeploy.running.settings import UpSettings

__all__ = [
    "LARGEST_LAUNCH",
    "AuditRequest",
    "Pins",
    "Request",
    "UpSettings",
    "artefact_kinds",
    "artefact_text",
    "audit",
    "audit_fix",
    "audit_score",
    "compare",
    "data_check",
    "data_export",
    "data_forget",
    "data_import",
    "data_imports",
    "data_list",
    "data_own_pools",
    "data_save",
    "data_show",
    "describe_doctor",
    "describe_machine",
    "detect",
    "doctor",
    "down",
    "explain",
    "explain_topics",
    "export_bench",
    "generate",
    "load_machine",
    "logs",
    "new_run_id",
    "predict",
    "predict_plan",
    "recommend",
    "refuse_errors",
    "refuse_unusable",
    "resolve_machine",
    "save_machine",
    "start_command",
    "status",
    "status_exit_code",
    "up",
    "verify",
    "verify_notices",
    "verify_self_test",
]

"""Diagnosis: from log lines and measurements to the cause and the fix."""

from qwendeploy.diagnosis.matching import Match, causes, consequences, first_error, match
from qwendeploy.diagnosis.signature import METRICS, Signature, load_signatures

__all__ = [
    "METRICS",
    "Match",
    "Signature",
    "causes",
    "consequences",
    "first_error",
    "load_signatures",
    "match",
]

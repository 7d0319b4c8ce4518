"""The report files of a run: the verdict as JSON, text and one HTML page."""

from __future__ import annotations

from pathlib import Path

from qwendeploy.documents import Plan, VerifyReport
from qwendeploy.reporting.verify_html import verify_html
from qwendeploy.reporting.verify_text import verify_text
from qwendeploy.verification.writer import write_atomically

JSON_FILE, TEXT_FILE, HTML_FILE = "verify.json", "verify.txt", "report.html"
REPORT_FILES = (JSON_FILE, TEXT_FILE, HTML_FILE)


def write_report(directory: Path, report: VerifyReport, plan: Plan | None) -> None:
    """Write all forms of the report into the run's directory."""
    write_atomically(directory / JSON_FILE, report.model_dump_json(by_alias=True, indent=1) + "\n")
    write_atomically(directory / TEXT_FILE, verify_text(report))
    write_atomically(directory / HTML_FILE, verify_html(report, plan))

"""Single values in the tools' output: sizes, versions, switches, and ways to write *no*."""

from __future__ import annotations

import re
from typing import Literal

VERSION = r"\d{3,4}\.\d{1,3}(?:\.\d{1,3})?"
"""A driver version; two parts on Windows and for first releases of a Linux branch."""

FAULT_WORDS = (
    "gpu requires reset",
    "gpu is lost",
    "reset required",
    "gpu lost",
    "err!",
    "unknown error",
    "gpu access blocked",
)
_ABSENT = re.compile(
    r"^\[?\s*(?:n/?a|none|not supported|not found|unknown|insufficient permissions"
    r"|requested functionality has been deprecated|deprecated.*|-+)?\s*\]?$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"^\s*(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z%]{0,4})\s*$")
_BUS = re.compile(r"^(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-9A-Fa-f])$")
_CAPABILITY = re.compile(r"^\d{1,2}\.\d$")

Health = Literal["ok", "error", "lost", "requires_reset", "unknown"]


def fault(text: str) -> str | None:
    """Return the value if it says that the GPU does not answer, else ``None``."""
    low = text.strip().lower()
    return text.strip() if any(word in low for word in FAULT_WORDS) else None


def health_of(faults: list[str]) -> Health:
    """Return the state that fault values mean."""
    text = " ".join(faults).lower()
    if not text:
        return "ok"
    if "lost" in text or "fallen off" in text:
        return "lost"
    if "reset" in text:
        return "requires_reset"
    return "error"


def given(text: str | None) -> str | None:
    """Return the value, or ``None`` for N/A, [Not Supported], faults and the like."""
    if text is None:
        return None
    text = text.strip()
    if _ABSENT.match(text) or fault(text):
        return None
    return text


def is_unsupported(text: str) -> bool:
    """Say whether the tool says that the field does not exist on this GPU."""
    return text.strip().strip("[]").strip().lower() in ("n/a", "not supported")


def number(text: str | None) -> float | None:
    """Return a number with an optional unit (``350.00 W``, ``81 %``, ``16x`` is not one)."""
    text = given(text)
    match = _NUMBER.match(text) if text else None
    return float(match[1]) if match else None


def mib(text: str | None) -> int | None:
    """Return a memory size in MiB; a bare number is MiB, 0 totals are the caller's to refuse."""
    text = given(text)
    match = _NUMBER.match(text) if text else None
    if match is None:
        return None
    factor = {
        "": 1.0,
        "mib": 1.0,
        "mb": 1.0,
        "gib": 1024.0,
        "gb": 1024.0,
        "kib": 1 / 1024,
        "b": 2**-20,
    }
    unit = match[2].lower()
    return round(float(match[1]) * factor[unit]) if unit in factor else None


def switch(text: str | None) -> bool | None:
    """Return true for Enabled/On/Yes, false for Disabled/Off/No, else ``None``."""
    word = (text or "").strip().rstrip("*").lower()
    if word in ("enabled", "on", "yes", "active", "1"):
        return True
    if word in ("disabled", "off", "no", "not active", "0"):
        return False
    return None


def whole(text: str | None) -> int | None:
    """Return an integer as in ``4``, ``16x`` or ``x16``."""
    text = (given(text) or "").strip("x ")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def version(text: str | None) -> str | None:
    """Return a driver version or ``None``."""
    text = given(text)
    return text if text and re.fullmatch(VERSION, text) else None


def capability(text: str | None) -> str | None:
    """Return a compute capability such as ``8.6`` or ``12.0``."""
    text = given(text)
    return text if text and _CAPABILITY.match(text) else None


def bus_id(text: str | None) -> str | None:
    """Return a PCI address as the tool prints it today (``00000000:0A:00.0``), or ``None``.

    Older tools print a four-digit domain, and some texts none: both are filled up with zeros, so
    that one card has one address.
    """
    match = _BUS.match((text or "").strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{(domain or '0').zfill(8)}:{bus}:{device}.{function}".upper()

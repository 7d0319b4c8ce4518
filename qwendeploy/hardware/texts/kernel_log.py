"""GPUs that the kernel log (``dmesg``, ``journalctl -k``) reports as fallen off the bus."""

from __future__ import annotations

import re

from qwendeploy.hardware.reading import LostReading, Reading

_ADDRESS = r"((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?"
_FALLEN = re.compile(
    rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_ADDRESS}(?![0-9A-Fa-f])"
    r"(?:(?!NVRM: (?:GPU|The|Xid)).){0,300}?fallen off the bus",
    re.DOTALL,
)
_XID_79 = re.compile(rf"NVRM: Xid \(PCI:{_ADDRESS}\): 79\b")
_TABLE_ROW = re.compile(
    r"\|\s{0,6}\d{1,3}\s.{1,60}\|\s{0,6}[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d"
)
MAX_LOST = 64


def read_kernel_log(text: str, reading: Reading) -> None:
    """Take the addresses of cards that fell off the bus (Xid 79, or the driver's own words).

    A line after the text's last table tells of a card that is gone now; before it, of one that
    came back.
    """
    if "NVRM:" not in text or not ("fallen off the bus" in text or "): 79" in text):
        return
    table = max((match.start() for match in _TABLE_ROW.finditer(text)), default=-1)
    found: dict[str, bool] = {}
    for pattern in (_FALLEN, _XID_79):
        for match in pattern.finditer(text):
            address = f"{match[1]}.0"
            if len(found) < MAX_LOST or address in found:
                found[address] = found.get(address, False) or match.start() > table >= 0
    reading.lost += [LostReading(address, after) for address, after in found.items()]

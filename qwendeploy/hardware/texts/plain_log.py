"""``nvidia-smi -q`` without ``-x``: an indented list, turned into the tree of the XML form.

The heading line may be cut off by ``grep`` or ``tail``, and a form may have taken the indents;
then the names of sections and fields tell what belongs where.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

_START = re.compile(r"={4,}\s*NVSMI LOG\s*={4,}")
_GPU = re.compile(r"^GPU\s+((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_PAIR = re.compile(r"^\s*([^:]{1,60}?)\s*(?::(?:\s(.*))?)?$")
_SURE = re.compile(r"^\s*(?:Product Name|FB Memory Usage|GPU UUID|Minor Number|Clocks)\b")
"""What follows a GPU's address in a log, and not where a host lists what it can offer."""
_TAGS = {
    ("", "gpu_uuid"): "uuid",
    ("mig_mode", "current"): "current_mig",
    ("driver_model", "current"): "current_dm",
    ("ecc_mode", "current"): "current_ecc",
    ("pci", "gpu_link_info"): "pci_gpu_link_info",
    ("pci_gpu_link_info", "pcie_generation"): "pcie_gen",
    ("pci_gpu_link_info", "link_width"): "link_widths",
    ("pcie_gen", "max"): "max_link_gen",
    ("link_widths", "max"): "max_link_width",
    ("clocks", "sm"): "sm_clock",
    ("max_clocks", "sm"): "sm_clock",
}
"""Keys of the plain form whose XML tag is another, by parent tag."""

_OF_GPU = frozenset(
    {
        *("product_name", "product_brand", "product_architecture", "display_mode", "serial_number"),
        *("display_active", "display_attached", "persistence_mode", "gpu_uuid", "minor_number"),
        *("accounting_mode", "vbios_version", "multigpu_board", "gpu_part_number", "fan_speed"),
        *("performance_state", "compute_mode", "addressing_mode", "gpu_recovery_action"),
    }
)
"""Fields of the GPU itself; where indents are lost they end the section before them."""

_SKIPPED = ("process_id", "processes")
MAX_LINES = 50_000
MAX_LOGS = 64
FAR = 200


def plain_logs(lines: list[str]) -> tuple[list[ET.Element], list[str]]:
    """Return the trees of all plain logs in the lines, and the lines without them."""
    roots: list[ET.Element] = []
    rest: list[str] = []
    position = 0
    while position < len(lines) and len(roots) < MAX_LOGS:
        start = _next_start(lines, position)
        if start is None:
            break
        rest.extend(lines[position:start])
        root, position = _log_at(lines, start)
        roots.append(root)
    return roots, rest + lines[position:]


def _next_start(lines: list[str], position: int) -> int | None:
    for place in range(position, len(lines)):
        line = lines[place]
        if _START.search(line):
            return place
        if _GPU.match(line.strip()) and any(map(_SURE.match, lines[place + 1 : place + FAR])):
            return place
    return None


def _log_at(lines: list[str], start: int) -> tuple[ET.Element, int]:
    """Return the tree of the log that begins at a line, and where it ends.

    It ends before the first line that stands as far left as a GPU's address and is none, or,
    without indents, before the first line that is no field.
    """
    root = ET.Element("nvidia_smi_log")
    gpu: ET.Element | None = None
    stack: list[tuple[int, ET.Element]] = []
    flat, left = False, 0
    first = start + 1 if _START.search(lines[start]) else start
    end = min(len(lines), first + MAX_LINES)
    for place in range(first, end):
        line = lines[place]
        if match := _GPU.match(line.strip()):
            gpu, stack = ET.SubElement(root, "gpu", id=match[1]), []
            left = _indent(line)
            flat = _is_flat(lines[place + 1 : place + 8], left)
            continue
        if _START.search(line):
            return root, place
        if not line.strip():
            continue
        indent = _indent(line.expandtabs(4))
        if gpu is not None and indent <= left and not flat:
            return root, place
        pair = _PAIR.match(line)
        if pair is None:
            if flat:
                return root, place
            continue
        if flat and gpu is not None:
            _add_flat(gpu, stack, pair[1], pair[2])
        else:
            _add(gpu if gpu is not None else root, stack, indent, pair[1], pair[2])
    return root, end


def _is_flat(following: list[str], left: int) -> bool:
    shown = [line for line in following if line.strip()]
    return bool(shown) and all(_indent(line) <= left for line in shown)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _tag(key: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", key.strip().lower()).strip("_")


def _add(
    top: ET.Element,
    stack: list[tuple[int, ET.Element]],
    indent: int,
    key: str,
    value: str | None,
) -> None:
    """Add one field or section under the section that its indent shows."""
    while stack and stack[-1][0] >= indent:
        stack.pop()
    parent = stack[-1][1] if stack else top
    parent_tag = parent.tag if stack else ""
    tag = _tag(key)
    if not tag or len(stack) > 20 or parent_tag in _SKIPPED:
        return
    child = ET.SubElement(parent, _TAGS.get((parent_tag, tag), tag))
    if value is None:
        stack.append((indent, child))
    else:
        child.text = value.strip()


def _add_flat(
    gpu: ET.Element, stack: list[tuple[int, ET.Element]], key: str, value: str | None
) -> None:
    """Add one field under the section before it, or to the GPU if it can be only the GPU's."""
    if value is None or _tag(key) in _OF_GPU:
        stack.clear()
    _add(gpu, stack, len(stack), key, value)

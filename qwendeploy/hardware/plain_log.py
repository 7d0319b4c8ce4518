"""``nvidia-smi -q`` without ``-x``: an indented list, turned into the tree of the XML form."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

_START = re.compile(r"={4,}\s*NVSMI LOG\s*={4,}")
_GPU = re.compile(r"^GPU\s+((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_PAIR = re.compile(r"^(\s*)([^:]{1,60}?)\s*(?::\s(.*))?$")
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

_SKIPPED = ("process_id", "processes")
MAX_LINES = 50_000


def plain_log_as_tree(lines: list[str]) -> ET.Element | None:
    """Return the tree of a plain log in the lines, or ``None`` if there is none."""
    start = next((i for i, line in enumerate(lines) if _START.search(line)), None)
    if start is None:
        return None
    root = ET.Element("nvidia_smi_log")
    gpu: ET.Element | None = None
    stack: list[tuple[int, ET.Element]] = []
    for line in lines[start + 1 : start + 1 + MAX_LINES]:
        if match := _GPU.match(line.strip()):
            gpu = ET.SubElement(root, "gpu", id=match[1])
            stack = []
            continue
        pair = _PAIR.match(line)
        if not line.strip() or pair is None:
            continue
        indent, key, value = len(pair[1].expandtabs(4)), pair[2], pair[3]
        while stack and stack[-1][0] >= indent:
            stack.pop()
        parent = stack[-1][1] if stack else (gpu if gpu is not None else root)
        parent_tag = parent.tag if stack else ""
        tag = re.sub(r"[^a-z0-9]+", "_", key.strip().lower()).strip("_")
        if not tag or len(stack) > 20 or parent_tag in _SKIPPED:
            continue
        child = ET.SubElement(parent, _TAGS.get((parent_tag, tag), tag))
        if value is None:
            stack.append((indent, child))
        else:
            child.text = value.strip()
    return root

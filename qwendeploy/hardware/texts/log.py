"""The full log: ``nvidia-smi -q -x`` (XML) and its plain form ``nvidia-smi -q``.

The XML is read by a pull parser, so a file cut in the middle still gives the GPUs before the cut.
A declaration of entities is refused and nothing is ever fetched, expanded or followed.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from qwendeploy.errors import UserError
from qwendeploy.hardware.reading import GpuReading, MigReading, ProcessReading, Rank, Reading
from qwendeploy.hardware.texts.plain_log import plain_logs
from qwendeploy.hardware.values import (
    bus_id,
    fault,
    given,
    is_unsupported,
    mib,
    number,
    switch,
    version,
    whole,
)

_ROOT = "<nvidia_smi_log"
_END = "</nvidia_smi_log>"
MAX_DEPTH = 40
"""Real logs are nine levels deep."""

_HARMLESS = ("power", "fan", "ecc", "retired", "remapped", "encoder", "fbc", "inforom", "clocks")


def read_xml(text: str, reading: Reading) -> str:
    """Take every XML log in the text and return the text without them.

    Raises:
        UserError: the XML declares entities or is nested absurdly deep.
    """
    rest = []
    position = 0
    while (start := text.find(_ROOT, position)) >= 0:
        end = text.find(_END, start)
        stop = len(text) if end < 0 else end + len(_END)
        head = text[position:start]
        if re.search(r"<!ENTITY", head, re.IGNORECASE):
            raise UserError(
                "the XML declares entities, which is not allowed",
                where=reading.origin,
                hint="save the output of nvidia-smi -q -x unchanged",
            )
        rest.append(re.sub(r"<\?xml[^>]{0,200}\?>|<!DOCTYPE[^>]{0,300}>", "", head))
        root = _parse(text[start:stop], reading.origin)
        if root is not None:
            _read_root(root, reading)
        position = stop
    rest.append(text[position:])
    return "\n".join(rest)


def read_plain(lines: list[str], reading: Reading) -> list[str]:
    """Take every plain ``nvidia-smi -q`` log in the lines and return the lines without them."""
    roots, rest = plain_logs(lines)
    for root in roots:
        _read_root(root, reading)
    return rest


def _parse(text: str, origin: str) -> ET.Element | None:
    """Return the tree of a log, as far as it goes, or ``None`` if not even the root is there."""
    parser = ET.XMLPullParser(events=("start", "end"))  # type: ignore[var-annotated]
    root: ET.Element | None = None
    depth = 0
    try:
        for offset in range(0, len(text), 65536):
            parser.feed(text[offset : offset + 65536])
            for event, element in parser.read_events():  # type: ignore[misc]
                root = element if root is None else root  # type: ignore[assignment]
                depth += 1 if event == "start" else -1
                if depth > MAX_DEPTH:
                    raise UserError("the XML is nested too deeply", where=origin)
    except ET.ParseError:
        return root
    return root


def _text(element: ET.Element, path: str) -> str | None:
    found = element.find(path)
    return (found.text or "").strip() if found is not None else None


def _first(element: ET.Element, *paths: str) -> str | None:
    """Return the first value that is given; section names changed with drivers 535 and 550."""
    return next((text for path in paths if (text := given(_text(element, path)))), None)


def _read_root(root: ET.Element, reading: Reading) -> None:
    reading.driver = (
        reading.driver
        or version(_text(root, "kmd_version"))
        or version(_text(root, "driver_version"))
    )
    cuda = _first(root, "cuda_version", "cuda_umd_version")
    if cuda and re.fullmatch(r"\d{1,2}\.\d{1,2}", cuda):
        reading.cuda = reading.cuda or cuda
    known = {bus_id(gpu.bus_id): gpu for gpu in reading.gpus if gpu.rank == Rank.LOG}
    for element in root.findall("gpu"):
        gpu = _gpu(element, len(known))
        earlier = known.setdefault(bus_id(gpu.bus_id) or str(len(known)), gpu)
        gpu.position = earlier.position
        reading.gpus.append(gpu)
        _read_mig(element, gpu, reading)
        _read_processes(element, gpu, reading)


def _gpu(element: ET.Element, position: int) -> GpuReading:
    gpu = GpuReading(rank=Rank.LOG, position=position)
    address = (element.get("id") or _text(element, "pci/pci_bus_id") or "").strip()
    gpu.bus_id = address if bus_id(address) else None
    gpu.name = given(_text(element, "product_name"))
    gpu.uuid = given(_text(element, "uuid"))
    total = _text(element, "fb_memory_usage/total")
    gpu.memory_mib = mib(total) or None
    gpu.memory_unsupported = total is not None and is_unsupported(total)
    gpu.memory_used_mib = mib(_text(element, "fb_memory_usage/used"))
    gpu.memory_free_mib = mib(_text(element, "fb_memory_usage/free"))
    mode = given(_text(element, "mig_mode/current_mig"))
    gpu.mig = switch(mode) if mode else None
    gpu.vgpu = (_text(element, "gpu_virtualization_mode/virtualization_mode") or "") == "VGPU"
    gpu.display = switch(given(_text(element, "display_active")))
    gpu.persistence = switch(given(_text(element, "persistence_mode")))
    gpu.ecc = switch(given(_text(element, "ecc_mode/current_ecc")))
    gpu.driver_model = _first(element, "driver_model/current_dm")
    gpu.pcie_generation_max = whole(_text(element, "pci/pci_gpu_link_info/pcie_gen/max_link_gen"))
    gpu.pcie_width_max = whole(_text(element, "pci/pci_gpu_link_info/link_widths/max_link_width"))
    gpu.clock_sm_mhz = number(_text(element, "clocks/sm_clock"))
    gpu.clock_sm_max_mhz = number(_text(element, "max_clocks/sm_clock"))
    for section in ("gpu_power_readings", "power_readings"):
        gpu.power_cap_w = gpu.power_cap_w or number(
            _first(
                element,
                f"{section}/current_power_limit",
                f"{section}/enforced_power_limit",
                f"{section}/power_limit",
            )
        )
        default, most = f"{section}/default_power_limit", f"{section}/max_power_limit"
        gpu.power_cap_default_w = gpu.power_cap_default_w or number(_text(element, default))
        gpu.power_cap_max_w = gpu.power_cap_max_w or number(_text(element, most))
    gpu.slowdown = _slowdown(element)
    gpu.faults.extend(dict.fromkeys(_faults(element)))
    return gpu


def _slowdown(element: ET.Element) -> str | None:
    """Return the active reasons that cost speed under load, if any."""
    reasons = []
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        for child in element.find(section) or ():
            name = re.sub(r"^clocks_(?:event|throttle)_reason_", "", child.tag)
            if (child.text or "").strip() == "Active" and "slowdown" in name:
                reasons.append(name)
    return ", ".join(reasons) or None


def _faults(element: ET.Element) -> list[str]:
    found = []
    action = given(_text(element, "gpu_recovery_action"))
    if action and re.search(r"reset|reboot", action, re.IGNORECASE):
        found.append(f"recovery action: {action} (reset required)")
    for child in element.iter():
        problem = fault(child.text) if child.text else None
        if not problem or len(problem) > 40 or child.tag in ("process_name", "gpu_recovery_action"):
            continue
        if "unknown error" in problem.lower() and child.tag.startswith(_HARMLESS):
            continue
        found.append(problem)
    return found


def _read_mig(element: ET.Element, gpu: GpuReading, reading: Reading) -> None:
    # the plain form lists the slices beside the mode, the XML in a section of their own
    for device in (*element.findall("mig_devices/mig_device"), *element.findall("mig_device")):
        reading.mig.append(
            MigReading(
                Rank.LOG,
                gpu=None,
                gpu_bus_id=gpu.bus_id,
                device=whole(_text(device, "index")),
                gi=whole(_text(device, "gpu_instance_id")),
                ci=whole(_text(device, "compute_instance_id")),
                memory_mib=mib(_text(device, "fb_memory_usage/total")) or None,
            )
        )
        reading.mig[-1].gpu = gpu.position if gpu.bus_id is None else None


def _read_processes(element: ET.Element, gpu: GpuReading, reading: Reading) -> None:
    for process in element.findall("processes/process_info")[:1000]:
        name = given(_text(process, "process_name")) or "unknown"
        pid = given(_text(process, "pid"))
        reading.processes.append(
            ProcessReading(
                gpu.position,
                int(pid) if pid and pid.isascii() and pid.isdigit() and len(pid) < 12 else None,
                name,
                mib(_text(process, "used_memory")),
                (_text(process, "type") or "C")[:3],
            )
        )

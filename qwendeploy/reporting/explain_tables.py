"""Images, checkpoints, weight formats and cards as explanations: what the tables hold of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from qwendeploy.image_names import ImageName, image_name
from qwendeploy.reporting.explain_parts import Explanation, Fact
from qwendeploy.tables.checkpoints import CheckpointRow, checkpoint_rows
from qwendeploy.tables.decode import DecodeRow, decode_rows
from qwendeploy.tables.gpus import GpuModel, gpus
from qwendeploy.tables.images import ImageRow, image_rows
from qwendeploy.tables.quality import class_rows
from qwendeploy.tables.releases import find_release
from qwendeploy.units import format_count

MOST = 8
"""Rows of one name that are shown whole."""


def table_names(wanted: str) -> list[Explanation]:
    """Return the images, checkpoints or cards of this name, or an image that its tag tells of."""
    images = [row for row in image_rows() if _means_image(row, wanted)]
    checkpoints = [row for row in checkpoint_rows() if _means_checkpoint(row, wanted)]
    cards = gpus().candidates(wanted)
    found = [_image(row) for row in images[:MOST]]
    found += [_checkpoint(row) for row in checkpoints[:MOST]]
    found += [_card(card) for card in cards[:MOST]]
    if found or not (name := image_name(wanted)).is_reference or name.version is None:
        return found
    return [_unlisted_image(name)]


def listed_names() -> tuple[str, ...]:
    """Return every image, checkpoint, weight format and card of the tables."""
    names = [row.name for row in image_rows()]
    names += [name for row in checkpoint_rows() for name in (row.name, row.quant)]
    return tuple(dict.fromkeys([*names, *(card.name for card in gpus())]))


def _means_image(row: ImageRow, wanted: str) -> bool:
    """Say whether a name is the image's, its tag, its last part or its version."""
    name = image_name(row.name)
    tag = row.name.removeprefix(f"{name.repository}:")
    names = {row.name, name.short, tag, tag.removeprefix("v")}
    return wanted.lower() in {name.lower() for name in names}


def _means_checkpoint(row: CheckpointRow, wanted: str) -> bool:
    names = {row.name, row.name.rsplit("/", 1)[-1], row.quant, f"{row.name}:{row.quant}"}
    return wanted.lower() in {name.lower() for name in names}


def _facts(pairs: Iterable[tuple[str, object]]) -> tuple[Fact, ...]:
    """Return the facts that are known; a flag reads yes or no."""
    words = {True: "yes", False: "no"}
    return tuple(
        Fact(label=label, value=words[value] if isinstance(value, bool) else str(value))
        for label, value in pairs
        if value not in (None, "")
    )


def _measured(mine: Callable[[DecodeRow], bool], by: str) -> str:
    """Return how many usable decode rows there are, by the values of one column."""
    rows = [row for row in decode_rows() if row.usable and mine(row)]
    counts = Counter(str(getattr(row, by) or f"{by} not stated") for row in rows)
    shown = ", ".join(f"{count} {name}" for name, count in counts.most_common(MOST))
    return f"{shown} (decode rows)" if counts else "nothing"


def _image(row: ImageRow) -> Explanation:
    judged = {
        "ok": "used if it is the newest release with evidence on the card",
        "avoid": "never used in a plan",
        "unknown": "used only if --image names it",
    }[row.verdict]
    return Explanation(
        topic=row.name,
        kind="image",
        title=f"{row.name}: {row.engine} {row.engine_version or 'of unknown version'}",
        text=(f"Verdict {row.verdict}: {judged}." + (f" {row.reason}." if row.reason else ""),),
        facts=_facts(
            [
                ("CUDA", row.cuda),
                ("minimum driver", row.min_driver),
                ("observed driver", row.seen_driver),
                ("built for", row.compute_capabilities),
                ("publisher", row.fork or f"the {row.engine} project"),
                ("tag moves", row.moves),
                ("date", row.date),
                ("confidence", row.confidence),
                ("measured on", _measured(lambda item: item.image == row.name, "gpu")),
                ("its release", _release(row)),
                ("note", row.note),
            ]
        ),
        sources=(row.source,),
    )


def _release(row: ImageRow) -> str | None:
    """Return what the image's engine release does by itself, as far as releases differ."""
    if row.engine != "vllm":
        return None
    found = find_release(row.engine_version, fork=row.fork is not None, image=row.name)
    if found is None:
        return None
    caching = "on" if found.prefix_cache else "off"
    text = f"memory share {found.utilization:g} and prefix caching {caching} by default"
    return f"{text}; {found.note}" if found.note else text


def _unlisted_image(name: ImageName) -> Explanation:
    return Explanation(
        topic=name.text,
        kind="image",
        title=f"{name.text} is not in the tables",
        text=(
            f"With --image, a plan treats it as vLLM {name.version} because of its tag: flags and "
            "rules are those of that release. The image itself is neither checked nor measured.",
        ),
        facts=_facts([("publisher", name.publisher), ("variant", name.variant)]),
        sources=("the tag only",),
    )


def _checkpoint(row: CheckpointRow) -> Explanation:
    classes = [item for item in class_rows() if (item.checkpoint, item.quant) == _row_key(row)]
    facts = [
        ("role", row.role),
        ("engine", row.engine),
        ("download", f"{row.gib_on_disk} GiB ({row.kind})" if row.gib_on_disk else None),
        ("loaded", f"{row.gib_loaded} GiB on one card" if row.gib_loaded else None),
        ("vision tower", row.vision),
        ("MTP layer", row.mtp),
        ("gated", row.gated),
        *(
            (
                f"quality class, {item.kv_cache_dtype} KV"
                if item.kv_cache_dtype
                else "quality class",
                item.quality_class + (f" ({item.note})" if item.note else ""),
            )
            for item in classes
        ),
        (
            "measured on",
            _measured(lambda item: (item.checkpoint, item.quant) == _row_key(row), "gpu"),
        ),
        ("note", row.note),
    ]
    return Explanation(
        topic=row.name,
        kind="checkpoint" if row.role == "target" else "drafter",
        title=f"{row.name}: {row.quant} weights",
        text=()
        if classes or row.role == "drafter"
        else ("Its divergence from BF16 is not measured: quality class any, whatever its format.",),
        facts=_facts(facts),
        sources=tuple(dict.fromkeys((row.source, *(item.source for item in classes)))),
        see_also=("quality",) if row.role == "target" else (),
    )


def _row_key(row: CheckpointRow) -> tuple[str, str]:
    """Return what tells a checkpoint from the others: one repository may hold several formats."""
    return row.name, row.quant


def _card(card: GpuModel) -> Explanation:
    def of(value: float | None, unit: str) -> str | None:
        return f"{format_count(value)} {unit}" if value else None

    link = card.nvlink + (f", {card.nvlink_gbps:g} GB/s" if card.nvlink_gbps else "")
    return Explanation(
        topic=card.name,
        kind="card",
        title=f"{card.name}: {card.vendor} {card.segment.replace('-', ' ')}, {card.architecture}",
        text=(),
        facts=_facts(
            [
                ("memory", of(card.memory_mib / 1024 if card.memory_mib else None, "GiB")),
                ("bandwidth", of(card.bandwidth_gbps, "GB/s")),
                ("capability", card.compute_capability),
                ("BF16", of(card.bf16_tflops, "TFLOPS")),
                ("FP8", of(card.fp8_tflops, "TFLOPS")),
                ("FP4", of(card.fp4_tflops, "TFLOPS")),
                ("NVLink", link),
                ("peer access", card.p2p),
                ("PCIe", card.pcie_gen),
                ("power", of(card.power_w, "W")),
                ("unified", card.unified),
                ("measured", _measured(lambda row: row.gpu == card.name, "quant")),
                ("in images", _measured(lambda row: row.gpu == card.name, "image")),
                ("aliases", (card.aliases or "").replace("|", ", ")),
            ]
        ),
        sources=(card.sources,),
    )

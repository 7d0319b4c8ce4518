"""Narrowed rule books keep answers; every option must hear what the whole book says."""

from __future__ import annotations

import pytest

from qwendeploy.documents import Workload
from qwendeploy.documents.request import Request
from qwendeploy.hardware.stated import stated_machine
from qwendeploy.models import memory as kv
from qwendeploy.models.kv_layout import kv_layout
from qwendeploy.planning.facts import option_facts, resolved_facts, shared_facts
from qwendeploy.planning.options import enumerate_options
from qwendeploy.planning.recommend import make_scene
from qwendeploy.rulebook.book import RuleBook
from qwendeploy.rulebook.fields import Pass
from qwendeploy.tables.gpus import gpus


@pytest.mark.parametrize(
    ("gpu", "count"),
    [
        pytest.param("RTX PRO 6000 Blackwell Workstation", 4, id="PRO 6000"),
        pytest.param("RTX 3090", 2, id="3090"),
        pytest.param("GB10", 1, id="GB10"),
    ],
)
def test_narrowed_books_answer_as_the_whole_one(gpu: str, count: int) -> None:
    machine = stated_machine(gpu, count, catalogue=gpus())
    scene = make_scene(machine, Workload(concurrency=8, max_context=65536), Request())
    whole = scene.for_options(scene.facts)
    narrowed: dict[tuple[object, ...], RuleBook] = {}
    asked = 0
    for option in enumerate_options(scene.box, scene.workload, scene.pins, scene.knowledge):
        kind = (option.image, option.checkpoint, option.quant, option.spec_method)
        book = narrowed.setdefault(kind, whole.for_options(shared_facts(option)).rules)
        for seats, step in ((8, 2048), (4, 32768)):
            sized = option.model_copy(
                update={"max_num_seqs": seats, "max_num_batched_tokens": step}
            )
            facts = {**scene.facts, **option_facts(sized), **resolved_facts(sized)}
            for pass_ in (Pass.ADMIT, Pass.RESOLVE):
                assert book.fire(pass_, facts) == scene.rules.fire(pass_, facts)
                asked += 1
    assert asked > 100


@pytest.mark.parametrize("method", ["none", "mtp", "dflash"])
@pytest.mark.parametrize("sliding", [False, True])
@pytest.mark.parametrize("caching", [False, True])
def test_longest_context_is_the_last_block_edge_that_fits(
    method: str, sliding: bool, caching: bool
) -> None:
    layout = kv_layout(
        tp=2,
        spec_method=method,
        spec_tokens=0 if method == "none" else 3,
        prefix_cache=caching,
        sliding_drafter=sliding and method == "dflash",
    )
    for blocks in (1, 5, 17, 60, 199, 1000):
        for concurrency in (1, 3, 8):
            longest = kv.longest_context_for(layout, blocks, concurrency)
            edge = longest + layout.block_tokens
            if longest:
                assert kv.running_at(layout, blocks, longest) >= concurrency
            if edge <= 262144:
                assert kv.running_at(layout, blocks, edge) < concurrency
        length = kv.largest_max_model_len(layout, blocks)
        if length:
            assert kv.blocks_reserved(layout, length) <= blocks
        if length + layout.block_tokens <= 262144:
            assert kv.blocks_reserved(layout, length + layout.block_tokens) > blocks

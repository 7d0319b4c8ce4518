"""One parser reads every version and one every image name, whoever asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qwendeploy.auditing.reading.read import read_launch_text
from qwendeploy.auditing.understanding.context import described
from qwendeploy.auditing.understanding.understand import understand
from qwendeploy.evidence.knowledge import slides_in
from qwendeploy.image_names import image_name
from qwendeploy.models.kv_layout import layout_evidence
from qwendeploy.rulebook.fields import lookup
from qwendeploy.tables.images import image_rows
from qwendeploy.versions import llama_build, parse_version, release_of, version_in

PACKAGE = Path(__file__).parents[2] / "qwendeploy"


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.25.0", "0.25.0"),
        ("v0.25.0", "0.25.0"),
        ("0.25.0rc1", "0.25.0"),
        ("v0.25.0rc1.dev77", "0.25.0"),
        ("0.25.0.post1", "0.25.0"),
        ("0.24.0+aeon.sm121a.dflash", "0.24.0"),
        ("0.1.dev16595+gebc3d9d1b.d20260511", "0.1"),
        ("0.20", "0.20"),
        ("0.20.1-cu129", None),
        ("nightly", None),
        ("", None),
        (None, None),
    ],
)
def test_a_version_counts_as_its_release(text: str | None, release: str | None) -> None:
    found = release_of(text)
    assert (str(found) if found else None) == release
    assert (parse_version(text) is None) == (release is None)


@pytest.mark.parametrize(
    ("text", "numbers", "found"),
    [
        ("v0.20.1-cu129-ubuntu2404", 3, "0.20.1"),
        ("2026-07-01-v0.24.0", 3, "0.24.0"),
        ("v0.20.0rc1.dev", 3, "0.20.0rc1.dev"),
        ("cu130-ubuntu24.04", 2, None),
        ("2026.07.01", 3, None),
        ("nightly after 0.26.0", 2, "0.26.0"),
        ("0.19 nightly", 2, "0.19"),
        ("0.19 nightly", 3, None),
        ("nightly-07351e0883470724dd5a7e97", 3, None),
    ],
)
def test_a_version_is_found_in_words(text: str, numbers: int, found: str | None) -> None:
    assert version_in(text, numbers) == found


def test_builds_of_llama_cpp_are_numbers() -> None:
    texts = ("b10450", "b10450 (ece963f4)", "server-cuda-b9246", "62bf73d", "cub9246", None)
    assert [llama_build(text) for text in texts] == [10450, 10450, 9246, None, None, None]


@pytest.mark.parametrize(
    ("text", "registry", "path", "tag", "publisher", "version", "variant"),
    [
        ("vllm/vllm-openai:v0.25.0", None, "vllm/vllm-openai", "v0.25.0", None, "0.25.0", ""),
        (
            "docker.io/vllm/vllm-openai:v0.20.1-cu129-ubuntu2404",
            None, "vllm/vllm-openai", "v0.20.1-cu129-ubuntu2404", None, "0.20.1",
            "cu129-ubuntu2404",
        ),
        (
            "registry.local:5000/vllm/vllm-openai:v0.25.0rc1",
            "registry.local:5000", "vllm/vllm-openai", "v0.25.0rc1", None, "0.25.0rc1", "",
        ),
        ("reg.ex/me/vllm:v0.26.0", "reg.ex", "me/vllm", "v0.26.0", "me", "0.26.0", ""),
        ("repne/vllm:v3", None, "repne/vllm", "v3", "repne", None, "v3"),
        ("registry.local/repne/vllm:v3", "registry.local", "repne/vllm", "v3", "repne", None, "v3"),
        ("reg.ex:5000/vllm:v0.26.0", "reg.ex:5000", "vllm", "v0.26.0", "reg.ex:5000", "0.26.0", ""),
        ("my-vllm:0.26.0", None, "my-vllm", "0.26.0", None, "0.26.0", ""),
        ("localhost:5000/me/vllm", "localhost:5000", "me/vllm", None, None, None, ""),
        ("localhost/vllm:dev", "localhost", "vllm", "dev", None, None, "dev"),
        ("registry:5000/vllm-openai", "registry:5000", "vllm-openai", None, None, None, ""),
        (
            "ghcr.io/aeon-7/aeon-vllm-ultimate:2026-07-01-v0.24.0",
            "ghcr.io", "aeon-7/aeon-vllm-ultimate", "2026-07-01-v0.24.0", "aeon-7", "0.24.0",
            "2026-07-01",
        ),
    ],
)  # fmt: skip
def test_an_image_name_is_taken_apart(
    text: str,
    registry: str | None,
    path: str,
    tag: str | None,
    publisher: str | None,
    version: str | None,
    variant: str,
) -> None:
    name = image_name(text)
    assert (name.registry, name.path, name.tag) == (registry, path, tag)
    assert (name.publisher, name.version, name.variant) == (publisher, version, variant)
    assert name.engine == "vllm" and name.is_reference
    assert name.is_upstream is path.endswith("vllm-openai")


def test_digests_are_whole_or_short() -> None:
    whole = image_name("vllm/vllm-openai:v0.26.0@sha256:" + "0123456789abcdef" * 4)
    short = image_name("repne/vllm:latest@d0a200f77546")
    assert whole.digest_is_whole and not short.digest_is_whole
    assert (whole.tag, short.tag, short.digest) == ("v0.26.0", "latest", "d0a200f77546")
    assert not image_name("vllm sm121 (local build)").is_reference
    assert not image_name("a" * 256).is_reference


def test_the_name_tells_engine_and_build() -> None:
    name = image_name("ghcr.io/ggml-org/llama.cpp:server-cuda-b9246")
    assert (name.engine, name.build, name.is_upstream) == ("llama.cpp", 9246, True)
    assert image_name("lmsysorg/sglang:v0.5.15").engine == "sglang"
    assert image_name("nginx").engine == "other"


def test_names_of_the_table_say_what_its_columns_say() -> None:
    for row in image_rows():
        name = image_name(row.name)
        assert name.publisher == row.fork, row.name
        assert name.engine in (row.engine, "other"), row.name
        if row.engine_version and name.version and name.engine == "vllm":
            assert release_of(row.engine_version) == release_of(name.version), row.name
        if name.cuda and row.cuda:
            assert name.cuda == row.cuda, row.name


@pytest.mark.parametrize("registry", ["", "docker.io/", "registry.local/", "registry.local:5000/"])
def test_a_mirror_is_judged_like_what_it_mirrors(registry: str) -> None:
    image = f"{registry}repne/vllm:v3"
    assert slides_in("dflash", True, image, None)
    assert not slides_in("dflash", True, f"{registry}repne/vllm:v13", None)
    command = f"docker run --gpus all {image} Qwen/Qwen3.6-27B --max-model-len 8192"
    (launch,) = read_launch_text(command, "run.sh")
    understood = understand(launch, described({"gpu": "NVIDIA RTX PRO 6000", "count": 1}))
    assert understood.fork and understood.value("prefix_cache") is False


@pytest.mark.parametrize("version", ["0.25.0", "0.25.0rc1", "v0.25.0rc1.dev77", "0.25.0+local"])
def test_a_candidate_is_judged_like_its_release(version: str) -> None:
    assert slides_in("dflash", False, None, version)
    assert layout_evidence(version, fork=False) == layout_evidence("0.25.0", fork=False)
    facts = {"option.image": "vllm/vllm-openai:x", "option.engine_version": version}
    assert lookup(facts, "computed.image_cuda") == "13.0"


def test_no_other_module_reads_versions_or_image_names() -> None:
    own = re.compile(r"InvalidVersion|LegacyVersion|rsplit\(.:., 1\)\[-1\]|r\"[^\"]*v\?\\?\(\\d")
    readers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if own.search(path.read_text(encoding="utf-8"))
    }
    assert readers == {"versions.py"}

"""Names of container images taken apart: the one place that says what a reference tells.

The grammar is that of distribution/reference: ``[registry[:port]/]path[:tag][@digest]``; the first
part is a registry if it holds a dot or a colon or is ``localhost``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from qwendeploy.versions import llama_build, version_in

EngineName = Literal["vllm", "llama.cpp", "sglang", "other"]

LONGEST_NAME = 255
"""Characters of a repository that registries take (distribution/reference)."""

_DEFAULT_REGISTRIES = ("docker.io", "index.docker.io", "registry-1.docker.io")
_REFERENCE = re.compile(
    r"[a-z0-9][a-z0-9._-]*(?::[0-9]+)?(?:/[a-z0-9][a-z0-9._-]*)*(?::\w[\w.-]{0,127})?"
    r"(?:@[A-Za-z0-9:]+)?",
    re.ASCII,
)
_WHOLE_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_UPSTREAM = {
    "vllm": re.compile(r"(?:^|/)(?:vllm-openai|vllm/vllm-openai-[a-z0-9]+|rocm/vllm(?:-dev)?)$"),
    "llama.cpp": re.compile(r"(?:^|/)(?:ggml-org|ggerganov)/llama\.cpp$"),
    "sglang": re.compile(r"(?:^|/)lmsysorg/sglang$"),
}
"""Repositories of the engines' own projects, in their own registry or a mirror that keeps the
name."""
_MARKS: tuple[tuple[EngineName, tuple[str, ...]], ...] = (
    ("llama.cpp", ("llama.cpp", "llama-server", "llamacpp")),
    ("sglang", ("sglang",)),
    ("vllm", ("vllm",)),
)
_CUDA = re.compile(r"cu(1[23])(\d)")


@dataclass(frozen=True, slots=True)
class ImageName:
    """A reference and its parts; ``path`` is the repository without its registry."""

    text: str
    registry: str | None
    path: str
    tag: str | None
    digest: str | None

    @property
    def repository(self) -> str:
        """The name without tag and digest; Docker's own registry is left out."""
        return f"{self.registry}/{self.path}" if self.registry else self.path

    @property
    def short(self) -> str:
        """The last part of the name with tag and digest, as people call the image."""
        return self.text.rsplit("/", 1)[-1]

    @property
    def is_reference(self) -> bool:
        """Whether a registry would take the text for a reference."""
        named = len(self.repository) <= LONGEST_NAME
        return named and _REFERENCE.fullmatch(self.text) is not None

    @property
    def digest_is_whole(self) -> bool:
        """Whether the digest is one to pull by, not a short one as lists print it."""
        return self.digest is not None and _WHOLE_DIGEST.fullmatch(self.digest) is not None

    @property
    def engine(self) -> EngineName:
        """The engine that the image holds, as its name tells."""
        low = self.text.lower()
        return next((engine for engine, marks in _MARKS if any(m in low for m in marks)), "other")

    @property
    def is_upstream(self) -> bool:
        """Whether the repository is that of the engine's own project."""
        pattern = _UPSTREAM.get(self.engine)
        return pattern is not None and pattern.search(self.path) is not None

    @property
    def is_openai_server(self) -> bool:
        """Whether it is the vLLM project's image for NVIDIA cards, or a mirror of it."""
        return self.is_upstream and self.path.rpartition("/")[2] == "vllm-openai"

    @property
    def publisher(self) -> str | None:
        """The third party whose build it is; ``None`` for the project's own and local builds."""
        namespace, slash, _ = self.path.partition("/")
        local = (self.registry or "").partition(":")[0] == "localhost" or namespace == "local"
        if self.is_upstream or local or not (slash or self.registry):
            return None
        return namespace if slash else self.registry

    @property
    def version(self) -> str | None:
        """The engine version that the tag states, candidate and local parts included."""
        return version_in(self.tag or "")

    @property
    def build(self) -> int | None:
        """The build of llama.cpp that the tag states."""
        return llama_build(self.tag)

    @property
    def variant(self) -> str:
        """What the tag says beside the version: ``cu129-ubuntu2404``."""
        if self.version is None:
            return self.tag or ""
        before, _, after = (self.tag or "").partition(self.version)
        return "-".join(filter(None, (before.removesuffix("v").strip("-"), after.strip("-"))))

    @property
    def cuda(self) -> str | None:
        """The CUDA version that the tag names: 12.9 for ``-cu129``."""
        found = _CUDA.search(self.tag or "")
        return f"{found[1]}.{found[2]}" if found else None


@cache
def image_name(text: str) -> ImageName:
    """Return the parts of a reference; of any other text what can be told apart in it."""
    named, _, digest = text.partition("@")
    head, colon, tag = named.rpartition(":")
    if not colon or "/" in tag:
        head, tag = named, ""
    registry, slash, path = head.partition("/")
    if not slash or not ("." in registry or ":" in registry or registry == "localhost"):
        registry, path = "", head
    if registry in _DEFAULT_REGISTRIES:
        registry = ""
    if not registry:
        path = path.removeprefix("library/")
    return ImageName(text, registry or None, path, tag or None, digest or None)

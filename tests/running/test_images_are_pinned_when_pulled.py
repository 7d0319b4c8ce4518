"""An image is taken where it is, pulled with progress where not, and told with its digest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import docker.errors
import pytest
import urllib3.exceptions
from plan_samples import DIGEST

from qwendeploy.errors import EnvironmentProblem
from qwendeploy.running.images import ensure_image


class Found:
    def __init__(self, digests: list[str]) -> None:
        self.id = "sha256:of-the-image"
        self.attrs = {"RepoDigests": digests}


class Registry:
    """A daemon that has an image from the start, or after a pull with the events given."""

    def __init__(self, digests: list[str], events: list[dict[str, Any]] | None = None) -> None:
        self.digests = digests
        self.events = events
        self.asked: list[tuple[str, str]] = []
        self.images = self
        self.api = self

    def get(self, reference: str) -> Found:
        if self.events is not None and not self.asked:
            raise docker.errors.ImageNotFound(f"no such image: {reference}")
        return Found(self.digests)

    def pull(self, repository: str, *, tag: str, **_: Any) -> Iterator[dict[str, Any]]:
        self.asked.append((repository, tag))
        yield from self.events or ()


def ensure(registry: Registry, reference: str) -> tuple[Any, list[tuple[str, float | None]]]:
    told: list[tuple[str, float | None]] = []
    client: Any = registry
    return ensure_image(client, reference, lambda text, share: told.append((text, share))), told


EVENTS: list[dict[str, Any]] = [
    {"status": "Pulling fs layer", "id": "a"},
    {"status": "Downloading", "id": "a", "progressDetail": {"current": 2**29, "total": 2**30}},
    {"status": "Downloading", "id": "b", "progressDetail": {"current": 0, "total": 2**30}},
    {"status": "Download complete", "id": "a"},
    {"status": "Pull complete", "id": "b"},
    {"status": "Status: Downloaded newer image"},
]


@pytest.mark.parametrize(
    ("reference", "known", "pinned"),
    [
        pytest.param(
            "vllm/vllm-openai:v0.22.0",
            [f"vllm/vllm-openai@{DIGEST}"],
            f"vllm/vllm-openai:v0.22.0@{DIGEST}",
            id="tag",
        ),
        pytest.param(
            "host.example:5000/vllm:v1",
            [f"host.example:5000/vllm@{DIGEST}"],
            f"host.example:5000/vllm:v1@{DIGEST}",
            id="host-with-port",
        ),
        pytest.param(
            f"vllm/vllm-openai:v0.22.0@{DIGEST}",
            [f"vllm/vllm-openai@{DIGEST}"],
            f"vllm/vllm-openai:v0.22.0@{DIGEST}",
            id="pinned-before",
        ),
        pytest.param("mine:v1", [f"other/name@{DIGEST}"], "mine:v1", id="known-by-another-name"),
        pytest.param("mine:v1", [], "mine:v1", id="made-here"),
    ],
)
def test_image_here_is_told_with_its_digest(reference: str, known: list[str], pinned: str) -> None:
    image, told = ensure(Registry(known), reference)

    assert (image.reference, image.pulled, told) == (pinned, False, [])
    assert (image.digest is not None) == ("@" in pinned)


def test_pull_tells_the_share_over_all_layers() -> None:
    registry = Registry([f"vllm/vllm-openai@{DIGEST}"], EVENTS)

    image, told = ensure(registry, "vllm/vllm-openai:v0.22.0")

    assert registry.asked == [("vllm/vllm-openai", "v0.22.0")]
    assert image.pulled
    shares = [share for _, share in told if share is not None]
    assert shares[0] == 0.5
    assert shares[1] == 0.25
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("reference", "asked"),
    [
        ("vllm/vllm-openai", ("vllm/vllm-openai", "latest")),
        ("host:5000/vllm", ("host:5000/vllm", "latest")),
        (f"a/b:v1@{DIGEST}", ("a/b", DIGEST)),
        (f"a/b@{DIGEST}", ("a/b", DIGEST)),
    ],
)
def test_pull_asks_for_what_the_reference_names(reference: str, asked: tuple[str, str]) -> None:
    registry = Registry([], EVENTS)

    ensure(registry, reference)

    assert registry.asked == [asked]


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("manifest unknown", "check the name"),
        ("pull access denied for x, repository does not exist", "docker login"),
        ("write /var/lib/docker/x: no space left on device", "free disk space"),
        ("dial tcp: lookup: no such host", "check the network"),
    ],
)
def test_pull_that_fails_says_what_to_do(error: str, hint: str) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot pull the image") as problem:
        ensure(Registry([], [{"error": error}]), "a/b:v1")

    assert error in problem.value.what
    assert hint in (problem.value.hint or "")


@pytest.mark.parametrize(
    "broken",
    [
        urllib3.exceptions.ProtocolError("Connection broken: IncompleteRead(0 bytes read)"),
        urllib3.exceptions.ReadTimeoutError(cast(Any, None), "/images/create", "Read timed out."),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_daemon_that_ends_in_the_middle_of_a_pull_is_told(broken: Exception) -> None:
    class Ending(Registry):
        def pull(self, repository: str, *, tag: str, **_: Any) -> Iterator[dict[str, Any]]:
            yield from super().pull(repository, tag=tag)
            raise broken

    with pytest.raises(
        EnvironmentProblem, match=r"cannot connect to the Docker daemon|did not respond"
    ):
        ensure(Ending([], EVENTS[:2]), "a/b:v1")

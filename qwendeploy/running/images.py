"""The image of a plan: present or pulled with progress, and pinned to its digest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qwendeploy.errors import EnvironmentProblem
from qwendeploy.image_names import image_name
from qwendeploy.running.daemon import told_as_environment

if TYPE_CHECKING:
    from docker import DockerClient

OnProgress = Callable[[str, float | None], None]
"""Receives what is going on and the share done, ``None`` if unknown."""


@dataclass(frozen=True)
class Image:
    """An image that is here."""

    id: str
    reference: str
    """Name with digest where a registry knows it, else the name as asked."""
    digest: str | None
    """``sha256:...`` of the registry's manifest; ``None`` for an image made here."""
    pulled: bool


def ensure_image(client: DockerClient, reference: str, told: OnProgress) -> Image:
    """Return the image that ``reference`` names, pulled if it is not here.

    Raises:
        EnvironmentProblem: it cannot be pulled.
    """
    import docker.errors

    with told_as_environment(f"image {reference}"):
        try:
            found = client.images.get(reference)
        except docker.errors.ImageNotFound:
            _pull(client, reference, told)
            return _described(client.images.get(reference), reference, pulled=True)
        return _described(found, reference, pulled=False)


def _described(image: Any, reference: str, *, pulled: bool) -> Image:
    asked = image_name(reference).repository
    for known in image.attrs.get("RepoDigests") or ():
        name = image_name(known)
        if name.repository == asked and name.digest:
            tagged = reference.partition("@")[0]
            return Image(image.id, f"{tagged}@{name.digest}", name.digest, pulled)
    return Image(image.id, reference, None, pulled)


def _pull(client: DockerClient, reference: str, told: OnProgress) -> None:
    """Pull and report the share of bytes that are here, over all layers."""
    import docker.errors

    layers: dict[str, tuple[int, int]] = {}
    told(f"pulling {reference}", None)
    name = image_name(reference)
    tag = name.digest or name.tag or "latest"
    try:
        for event in client.api.pull(name.repository, tag=tag, stream=True, decode=True):
            if "error" in event:
                raise _not_pulled(reference, str(event["error"]))
            detail = event.get("progressDetail") or {}
            if event.get("status") == "Downloading" and detail.get("total"):
                layers[event["id"]] = (int(detail["current"]), int(detail["total"]))
            elif event.get("status") in {"Download complete", "Pull complete"}:
                size = layers.get(event["id"], (0, 0))[1]
                layers[event["id"]] = (size, size)
            total = sum(size for _, size in layers.values())
            if total:
                here = sum(done for done, _ in layers.values())
                told(f"pulling {reference}: {here / 2**30:.1f} GiB", here / total)
    except docker.errors.APIError as problem:
        raise _not_pulled(reference, str(problem.explanation or problem)) from None


def _not_pulled(reference: str, text: str) -> EnvironmentProblem:
    low = text.lower()
    if "not found" in low or "manifest unknown" in low or "denied" in low:
        hint = "check the name; a private image needs `docker login`"
    elif "no space left" in low:
        hint = "free disk space; `docker system df` shows what uses it"
    else:
        hint = "check the network, or load the image with `docker load`"
    return EnvironmentProblem(
        f"cannot pull the image; Docker says: {text.strip()}",
        where=f"image {reference}",
        hint=hint,
    )

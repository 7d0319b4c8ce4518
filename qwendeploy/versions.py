"""Versions as texts state them: the one place that reads engine versions, drivers and builds."""

from __future__ import annotations

import re
from functools import cache

from packaging.version import InvalidVersion, Version

_VERSION = re.compile(
    r"(?<![\d.])v?(\d(?:\.\d+){1,2}"
    r"(?:\.?(?:rc|post|dev|a|b)\d*(?![a-z]))*(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?)"
)
"""A version inside other words; no engine here has a major number of two digits, dates do."""
_BUILD = re.compile(r"(?<![a-z0-9])b(\d{4,5})(?!\d)")


NO_VERSION = Version("0")
"""Orders before every version that an engine has had."""


@cache
def parse_version(text: str | None) -> Version | None:
    """Return a text as a version that orders, ``None`` if it is not one and nothing else.

    A leading v and candidate, post, development and local parts are read (PEP 440).
    """
    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def version_in(text: str, numbers: int = 3) -> str | None:
    """Return the first version of at least so many numbers inside a tag or words, without its v."""
    return next(
        (found[1] for found in _VERSION.finditer(text) if _numbers(found[1]) >= numbers), None
    )


def _numbers(text: str) -> int:
    version = parse_version(text)
    return 0 if version is None else len(version.release)


@cache
def release_of(text: str | None) -> Version | None:
    """Return the release that a version counts as, ``None`` if the text is no version.

    Candidates, development and local builds of a release have what it has: 0.25.0 speaks for
    0.25.0rc1 and for 0.25.0+local.
    """
    version = parse_version(text)
    return None if version is None else Version(version.base_version)


def llama_build(text: str | None) -> int | None:
    """Return the build number of llama.cpp that a version or tag states: 9246 for ``b9246``."""
    found = _BUILD.search(text or "")
    return int(found[1]) if found else None

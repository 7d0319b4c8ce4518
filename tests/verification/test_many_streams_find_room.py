"""As many streams as the host can hold, or one line that says what it cannot."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from qwendeploy.errors import EnvironmentProblem
from qwendeploy.verification.beforehand import SPARE_FILES, make_room


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_open_files_are_allowed_as_needed(limits: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    make_room(512)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 512 + SPARE_FILES
    make_room(4)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 512 + SPARE_FILES


def test_what_the_host_does_not_allow_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: (_ for _ in ()).throw(ValueError))
    with pytest.raises(EnvironmentProblem, match="4096 concurrent requests need 4224 open files"):
        make_room(4096)

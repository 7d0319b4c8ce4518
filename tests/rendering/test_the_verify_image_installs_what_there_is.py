"""The compose profile ``verify`` installs the package that is named, at hand, or released."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from plan_samples import sample_plan
from real_tools import compose_config, lay_out, run

from qwendeploy import __version__
from qwendeploy.rendering import render


@pytest.mark.parametrize(
    ("named", "wheels", "installed"),
    [
        ("", (), f"qwendeploy=={__version__}"),
        ("", ("qwendeploy-0.1.0-py3-none-any.whl",), "qwendeploy-0.1.0-py3-none-any.whl"),
        ("qwendeploy==9.9", ("qwendeploy-0.1.0-py3-none-any.whl",), "qwendeploy==9.9"),
        ("", ("qwendeploy-0.1.0.whl", "qwendeploy-0.2.0.whl"), "qwendeploy-0.2.0.whl"),
    ],
    ids=["released", "wheel", "named", "newest-wheel"],
)
def test_package_is_the_one_named_else_at_hand_else_released(
    named: str, wheels: tuple[str, ...], installed: str, tmp_path: Path
) -> None:
    place = lay_out(render(sample_plan(), "compose"), tmp_path / "deploy")
    build = compose_config(place)["services"]["verify"]["build"]
    assert build["args"] == {"QWENDEPLOY_PACKAGE": ""}
    command = build["dockerfile_inline"].split("RUN --mount=target=/context ", 1)[1]
    command = command.split("\nENTRYPOINT", 1)[0].replace("/context", str(place))
    command = command.replace("$$", "$")  # compose escapes in its output what it would fill in
    for age, name in enumerate(wheels):
        (place / name).touch()
        os.utime(place / name, (age, age))
    (tmp_path / "pip").write_text('#!/bin/sh\nshift $(($# - 1))\necho "$1"\n')
    (tmp_path / "pip").chmod(0o755)

    done = run(
        "sh",
        *("-ec", command),
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "QWENDEPLOY_PACKAGE": named},
    )

    assert (done.returncode, done.stdout.strip()) == (0, installed), done.stderr

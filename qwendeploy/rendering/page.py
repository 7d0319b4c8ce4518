"""Jinja2 for artefacts: missing names are errors, every value passes a quoting filter."""

from __future__ import annotations

import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any

from qwendeploy import __version__
from qwendeploy.documents import Plan
from qwendeploy.rendering import quoting
from qwendeploy.rendering.launch import HUB_TOKEN, Launch
from qwendeploy.resources import data_dir

if TYPE_CHECKING:
    from jinja2 import Environment

WIDTH = 98
SECRETS_FILE = "secrets.env"
SCRIPT = 0o755
TEXT = 0o644
SECRET = 0o600
SCRIPT_CHECKS = (
    "shellcheck -s bash -S style -o all {file} verify.sh",
    "shfmt -d -i 2 -ci {file} verify.sh",
)
"""What every script of an artefact passes, run in its directory."""


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(data_dir("templates")),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    for name in ("shell", "yaml", "compose", "kubernetes", "systemd"):
        environment.filters[name] = getattr(quoting, name)
    environment.filters["shell_words"] = lambda line: quoting.words(line, quoting.shell)
    environment.filters["systemd_words"] = lambda line: quoting.words(line, quoting.systemd)
    return environment


def fill(template: str, **values: Any) -> str:
    """Return the template with ``values``; an unknown name in it is an error."""
    return _environment().get_template(template).render(**values)


def header(
    plan: Plan, launch: Launch, *, layout: str = "", tool_version: str | None = None
) -> list[str]:
    """Return the comment lines on top of an artefact: tool, plan, reasons, what to know.

    ``layout`` says how replicas are laid out, where that needs a word.
    """
    lines = [
        f"Made by qwendeploy {tool_version or __version__} from plan {plan.plan_id}.",
        "Change the plan and generate again rather than editing this file.",
        *plan.headlines,
        "Why this and not another:",
        *(f"{number}. {reason}" for number, reason in enumerate(plan.reasons[:3], 1)),
    ]
    if layout:
        lines.append(layout)
    if launch.image is not None and not launch.pinned:
        lines.append(
            f"The image {launch.image} is named by tag, since no digest is known:"
            " `qwendeploy up` prints the digest that it pulled; put it into the plan to pin it."
        )
    if any(name.startswith("MIG-") for name in launch.gpus):
        lines.append(
            "MIG slices do not outlive a reboot: have nvidia-mig-manager make them again before"
            " this starts."
        )
    if launch.is_public:
        lines.append(
            f"Listens on {launch.listen}, in plain HTTP: the key guards /v1 only, so put a proxy"
            " with TLS in front."
        )
    return [part for line in lines for part in _wrapped(quoting.comment(line))]


def _wrapped(line: str) -> list[str]:
    """Return the line in comment lines of readable width; a long word stays whole."""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent="   ", break_long_words=False, break_on_hyphens=False
    )


def secret_names(launch: Launch) -> tuple[str, ...]:
    """Return the variables that ``secrets.env`` may set."""
    return (launch.api_key_variable, HUB_TOKEN)

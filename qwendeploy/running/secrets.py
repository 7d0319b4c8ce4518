"""API key and token for the container, read only from the env file beside the plan."""

from __future__ import annotations

import stat
from pathlib import Path

from qwendeploy.errors import UserError
from qwendeploy.rendering.launch import HUB_TOKEN, Launch
from qwendeploy.rendering.writer import variables
from qwendeploy.running.container_spec import hub_directory


def read_secrets(launch: Launch, file: Path | None) -> dict[str, str]:
    """Return the secrets that ``file`` holds for this launch; other variables are left out.

    Raises:
        UserError: the file cannot be read, others can read it, or a required secret is missing.
    """
    held: dict[str, str] = {}
    if file is not None:
        try:
            mode = stat.S_IMODE(file.stat().st_mode)
            held = variables(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as problem:
            raise UserError(
                f"cannot read it: {getattr(problem, 'strerror', None) or problem}", where=str(file)
            ) from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UserError(
                f"other users can read the secrets: mode {mode:04o}",
                where=str(file),
                hint=f"chmod 600 {file}",
            )
    allowed = (launch.api_key_variable, HUB_TOKEN)
    found = {name: held[name] for name in allowed if held.get(name)}
    for name in launch.required_secrets:
        if name == HUB_TOKEN and (hub_directory() / "token").exists():
            # the hub's own file, which the container sees with the cache
            continue
        if name not in found:
            reason = (
                f"the plan listens on {launch.listen}"
                if name == launch.api_key_variable
                else "a checkpoint is gated"
            )
            raise UserError(
                f"{name} is required because {reason}",
                where=str(file) if file else "no secrets.env beside the plan",
                hint="`qwendeploy generate PLAN -o DIR` creates one; then run up DIR/plan.yaml",
            )
    return found

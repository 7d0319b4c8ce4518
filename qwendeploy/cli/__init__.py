"""The command line: one module per verb, loaded when the verb is used.

Every error of ``qwendeploy.errors`` becomes one message on stderr and its exit code; stdout
carries the result alone.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import os
import sys
from typing import Any

import click

from qwendeploy import __version__
from qwendeploy.errors import ExitCode, QwendeployError

VERBS = {
    "recommend": "Plan what to run for a machine and a workload.",
    "predict": "Predict one given option over a grid of concurrency and context.",
    "audit": "Check an existing launch command or file before it starts.",
    "generate": "Write the files that run a plan, with its verification script.",
    "up": "Start a plan, wait until it serves, and check the applied settings.",
    "status": "Show the state of a started plan.",
    "logs": "Show the log of a started plan.",
    "down": "Stop a started plan.",
    "verify": "Measure a live server and compare it with the plan's prediction.",
    "compare": "Compare two runs or two plans.",
    "detect": "Detect the hardware of this machine, or read it from saved output.",
    "doctor": "Check this environment for problems before anything is pulled.",
    "explain": "Explain a rule, flag, figure or rejected option, with sources.",
    "data": "Manage the data tables: list, show, check, accuracy, import, export.",
    "schema": "Print the JSON Schema of a document.",
}


class OutputClosed(Exception):
    """Whoever reads the output has read enough."""


class VerbGroup(click.Group):
    """Command group whose help needs no verb's module; ``command`` of the module is the verb."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"qwendeploy.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            found = super().resolve_command(ctx, args)
        except click.UsageError:
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx=ctx) from None
        if found[1] is not None:
            verb = click.Context(found[1], info_name=found[0], parent=ctx)
            refuse_contradictions(found[1], found[2], verb)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise OutputClosed from None  # click itself would leave with 1, which is a refusal here

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def refuse_contradictions(verb: click.Command, args: list[str], ctx: click.Context) -> None:
    """Refuse settings without a value, and of switches that exclude each other more than one.

    Raises:
        UsageError: names what was typed; click itself would take the last, or nothing.
    """
    typed = args[: args.index("--")] if "--" in args else args
    for before, word in zip(["", *typed], typed, strict=False):
        name, joined, value = word.partition("=")
        if name.startswith("--") and joined and not value.strip():
            raise click.UsageError(f"{name} needs a value", ctx=ctx)
        if not word.strip():
            raise click.UsageError(
                f"{before} needs a value" if before.startswith("-") else "an argument is empty",
                ctx=ctx,
            )
    ways: dict[str | None, list[list[str]]] = {}
    for option in verb.params:
        if isinstance(option, click.Option) and (option.is_flag or option.secondary_opts):
            ways.setdefault(option.name, []).extend([option.opts, option.secondary_opts])
    for alike in ways.values():
        said = [next(word for word in names if word in typed) for names in alike
                if any(word in typed for word in names)]  # fmt: skip
        if len(said) > 1:
            raise click.UsageError(f"{said[0]} and {said[1]} are mutually exclusive", ctx=ctx)


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="qwendeploy")
def cli() -> None:
    """Plan, predict, run and verify Qwen3.6-27B on a GPU machine."""


def tune_process() -> None:
    """Set this process up for one short command; before numpy and pydantic are imported."""
    # The matrices of the models have some hundred rows: threads cost more than they bring.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for plugins of the validation library costs a scan of all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Most of what is made at start lives to the end: looking for garbage there is time lost.
    gc.set_threshold(300_000, 20, 20)
    # The interpreter looks for it once more on its way out, for a tenth of the command's time.
    atexit.register(gc.freeze)


def main(args: list[str] | None = None) -> Any:
    """Run the command line and leave with an exit code of ``ExitCode``."""
    tune_process()
    _open_streams()
    if (args or sys.argv[1:])[:1] != ["logs"]:  # which has no other end than its reader's
        _outlive_reader()
    try:
        result = cli.main(args=args, prog_name="qwendeploy", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(result if isinstance(result, int) else ExitCode.DONE)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.exceptions.NoArgsIsHelpError as problem:
        problem.show()
        sys.exit(ExitCode.USAGE)
    except click.ClickException as problem:
        click.echo(f"error: {_one_line(problem)}", err=True)
        sys.exit(ExitCode.USAGE)
    except QwendeployError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(problem.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except (OutputClosed, BrokenPipeError):
        _drop_output()
        sys.exit(ExitCode.DONE)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        # what is left in the buffer would fail once more on the way out
        _drop_output()
        click.echo(f"error: cannot write the output: {problem.strerror}", err=True)
        sys.exit(ExitCode.USAGE)


def _one_line(problem: click.ClickException) -> str:
    """Return the message of a setting that cannot be read, and where its help is."""
    text = " ".join(problem.format_message().split()).rstrip(".")
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    return f"{text} (see '{context.command_path} --help')" if context else text


def _open_streams() -> None:
    """Give every standard stream a file, and each of them characters that its encoding lacks.

    A closed stream is ``None`` in Python; a terminal of another encoding shows ``?`` for a dash.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class _UntilClosed(io.FileIO):
    """Standard output that goes nowhere once its reader has gone: the verdict is the exit code."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            _drop_output()
            return len(data)


def _outlive_reader() -> None:
    """Let a command end as it would have, however much of its output is read."""
    stream = sys.stdout
    if stream is not sys.__stdout__ or not isinstance(stream, io.TextIOWrapper):
        return
    try:
        raw = _UntilClosed(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError):
        return
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="replace",
        line_buffering=stream.line_buffering,
    )


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

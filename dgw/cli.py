"""The Typer application: it names the commands, and turns every ending into one exit code and at most two lines."""

from __future__ import annotations

import contextlib
import difflib
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from dgw import __version__
from dgw.errors import DgwError, Exit, UsageError

COMMANDS = {
    "profile": "Measure variants on shapes: time, counters and static facts in one table.",
    "compare": "Variants side by side, sorted as a ladder.",
    "sweep": "Every config of a space: checked, screened, and the best raced.",
    "heatmap": "Tile sizes as a map: what is missing is swept, then drawn.",
    "best": "The stored winner for a shape, and how far the default is from it.",
    "check": "Check results: variants x types x layouts x shapes.",
    "diagnose": "What keeps a kernel from being faster, and what to do about it.",
    "gate": "Fail when a change makes a kernel worse.",
    "baseline": "What is approved of kernels: show, diff, approve.",
    "trend": "Ratios to cuBLAS over stored runs, and where they step.",
    "list": "The variants there are.",
    "show": "One variant: idea, tunables, source, PTX, SASS.",
    "new": "A kernel of your own to start from, and its declaration.",
    "recipes": "The causes that diagnose looks for, and what they need.",
    "claims": "What the stages claim of their counters, and whether it held in a run.",
    "metrics": "The metrics there are: unit, meaning, architectures, passes.",
    "runs": "The runs in the store.",
    "report": "A stored run as a table, an HTML page, Markdown, JSON, CSV or a chart.",
    "import": "Take over a run that was exported elsewhere, or a report of Nsight.",
    "doctor": "What is missing on this machine, and what to do about it.",
    "store": "Where results are kept: path, info, prune.",
    "child": "",
    "side": "",
}
"""Every command and its line of help. A command is `app` or `command` of the module of its name in dgw.commands."""

HIDDEN = ("child", "side")
_MODULES = {"list": "list_", "import": "import_", "store": "store"}


class Interrupted(DgwError):
    """Ctrl-C before anything was finished."""

    exit_code = Exit.INTERRUPTED


class Commands(TyperGroup):
    """A group that imports a command's module when the command is run, not when the commands are listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order shown."""
        return [name for name in COMMANDS if name not in HIDDEN]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; a usage error with the nearest names where there is none."""
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, self.list_commands(ctx), n=2, cutoff=0.5)
            raise UsageError(
                f"no command is named {cmd_name!r}", f"dgw {' or dgw '.join(near)}" if near else "dgw --help"
            )
        module = importlib.import_module(f"dgw.commands.{_MODULES.get(cmd_name, cmd_name)}")
        own: typer.Typer = module.app
        command = typer.main.get_command(own)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Ctrl-C outside of what a command handles itself is an error like any other."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted", "the same command again") from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


app = typer.Typer(
    cls=Commands, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"dgw {__version__}\n")
        raise typer.Exit


@app.callback()
def dgw(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="The version, and nothing else."
    ),
) -> None:
    """Why is this matrix multiplication as fast as it is, and what would make it faster?"""


_CLICK_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of every error that the option parser raises, wherever this version of Typer keeps it."""


def _parser_error(error: Exception) -> UsageError:
    """The option parser's own error in the form of every other one."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "dgw"
    message = getattr(error, "message", str(error))
    possible = getattr(error, "possibilities", None)
    formatted = error.format_message() if hasattr(error, "format_message") and not possible else message
    formatted = formatted.removesuffix(".").replace("Value error, ", "")
    text = formatted[:1].lower() + formatted[1:]
    return UsageError(text, f"{path} {possible[0]}" if possible else f"{path} --help")


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, with which job schedulers and CI systems end a job, is taken as Ctrl-C: what is finished is told, and
    processes, locks and checkouts are put away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. Errors raised on purpose become two lines on standard error."""
    from dgw.commands.console import complain

    typed = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if sum(word.startswith("--kernel") for word in typed) > 1:
            from dgw.commands.own_files import one_file

            one_file(typed)
        command = typer.main.get_command(app)
        with contextlib.nullcontext() if typed[:1] and typed[0] in HIDDEN else _terminated_as_interrupted():
            # `obj` is what the commands see of the whole command line
            code = command.main(args=typed, prog_name="dgw", standalone_mode=False, obj=tuple(typed))
    except DgwError as error:
        complain(error, typed)
        return int(error.exit_code)
    except _CLICK_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stdout.write(f"{error}\n")
            return int(Exit.OK)
        complain(_parser_error(error))
        return int(Exit.USAGE)
    return code if isinstance(code, int) else int(Exit.OK)


def main() -> None:
    """The console script."""
    _settle()
    code = run()
    gc.freeze()  # what is left is not searched for garbage before the process ends
    sys.exit(code)


def _settle() -> None:
    """What makes a short process cheaper: few collections of garbage, of which importing and parsing leave little, and
    one BLAS thread (unless the user wants another number), because the second mostly waits for products this small."""
    gc.set_threshold(50_000, 20, 20)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

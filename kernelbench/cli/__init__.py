"""The command line: parse, call, render. One module per command, imported when it is called."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import traceback
from io import TextIOWrapper
from typing import Any

import click

from kernelbench.base.errors import (
    DEBUG_VARIABLE,
    ExitCode,
    KernelbenchError,
    describe_internal_error,
    internal_error,
    torch_missing,
)
from kernelbench.base.version import __version__
from kernelbench.cli.served_command import run_elsewhere

#: Command name -> one line of help. The module is kernelbench.cli.<name>, and once imported it is
#: an attribute of this package: no name of a command (run, list, …) can be used as anything else.
COMMANDS = {
    "run": "Check steps for correctness, then time them.",
    "ab": "Compare two steps: is the candidate really faster?",
    "demo": "Take a line out of a Blackwell kernel: what the checker says.",
    "check": "Look for hangs, races and misused barriers in the emulator.",
    "explain": "What a class of findings means: wrong code, right code, why.",
    "replay": "Run a schedule of check again, or a saved check.",
    "sweep": "Run many runs, comparisons or checks side by side.",
    "gate": "Fail CI on a regression.",
    "tune": "Try other values of a step's constants, predicted first.",
    "calibrate": "Measure this device's false-positive rate and power.",
    "init": "Make a project of your own that runs at once.",
    "new": "Make a new step, or a variant, from another one.",
    "list": "Show the lineages and what runs on this machine.",
    "lineage": "A lineage as a tree: reported, measured, compared.",
    "diff": "What one step changes in another: source, resources, figures.",
    "show": "Print saved runs.",
    "log": "Print the ledger of comparisons.",
    "results": "Show what a results folder holds, or bring it up to date.",
    "report": "Write one page of everything known, without network.",
    "roofline": "Speed of light per shape, and each step's fraction of it.",
    "inspect": "Registers, spills, memory and CTAs per SM of compiled steps.",
    "lint": "Look for offsets that overflow 32 bits on large shapes.",
    "sanitize": "Run a step under compute-sanitizer.",
    "profile": "What each kernel of a call does with the GPU.",
    "bringup": "Try a GPU: functions, open points, every step, times.",
    "doctor": "Say what works on this machine and why the rest does not.",
    "export": "Write a step as one file for GPU MODE.",
    "import": "Make a project of FlashInfer-Trace or SOL-ExecBench files.",
    "serve": "Keep workers ready, so that commands begin at once.",
    "cache": "Show or clear compiled artefacts.",
    "completion": "Print the shell completion script.",
}

INTERRUPTED = 130
#: As shells report SIGPIPE; not 0, because a verdict that nobody read must not look like a pass.
PIPE_CLOSED = 141

EXIT_CODES = (
    "\b\nExit codes:\n"
    + "\n".join(f"  {code.value}  {code.meaning}" for code in ExitCode)
    + f"\n  {INTERRUPTED}  interrupted with Ctrl-C; what was measured is kept"
    + f"\n  {PIPE_CLOSED}  the reader of the output went away (| head)"
)

EXAMPLES = """\b
Examples:
  kernelbench run v00 --shape A           check and time one step
  kernelbench run v01..v07 --shape all    a range of steps, all benchmark shapes
  kernelbench ab v15 v16 --why "two accumulators hide the epilogue"
  kernelbench gate --against origin/main  compare live with another revision"""


class _Lazy(click.Group):
    """A group whose commands are imported only when one of them is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"kernelbench.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from kernelbench.base.errors import UnknownNameError

            raise UnknownNameError("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])


@click.group(
    cls=_Lazy,
    epilog=EXAMPLES + "\n\n" + EXIT_CODES,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, "-V", "--version", prog_name="kernelbench")
@click.option("--debug", is_flag=True, help="Print the traceback of a defect in kernelbench.")
def cli(debug: bool) -> None:
    """Check, time and compare the steps of an optimization lineage of GPU kernels."""
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"


def main(args: list[str] | None = None) -> None:
    """Entry point: run the command line and leave with a documented exit code."""
    words = sys.argv[1:] if args is None else args
    gc.set_threshold(50_000)  # parsed sources are many objects, few of them garbage
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores one
            signal.signal(number, _as_ctrl_c)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # not every encoding has our arrows
            stream.reconfigure(errors="replace")
    try:
        code = run_elsewhere(words) if args is None else None
    except KernelbenchError as error:
        _fail(str(error))
        code = int(error.exit_code)
    except KeyboardInterrupt:  # before it is known whom to hand it to: the connection's end is told
        _fail("interrupted")
        code = INTERRUPTED
    if code is None:
        _prefork(words)
        code = invoke(args)
    sys.exit(code)


def _as_ctrl_c(*_: object) -> None:
    """What was measured is kept, and nothing is left behind."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell's background
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _prefork(words: list[str]) -> None:
    """Start the workers of a command that times: torch, which they import, takes longest."""
    if words[:1] == ["ab"] and not {"-h", "--help"} & {*words}:
        from kernelbench.worker.served import prefork

        prefork()


def invoke(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are one line on stderr."""
    try:
        result: Any = cli.main(args=args, prog_name="kernelbench", standalone_mode=False)
        return int(result) if isinstance(result, int) else 0
    except KernelbenchError as error:
        _fail(str(error))
        return int(error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return int(ExitCode.USAGE)
    except click.ClickException as error:
        where = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            where = f"; see `{error.ctx.command_path} --help`"
        _fail(" ".join(error.format_message().split()).rstrip(".") + where)
        return int(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`); stdout must not be flushed into it again.
        sys.stdout = None
        return PIPE_CLOSED
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            _fail(str(torch_missing("this")))
            return int(ExitCode.ENVIRONMENT)
        found = internal_error(describe_internal_error(error), traceback.format_exc())
        _fail(str(found))
        return int(found.exit_code)


def _fail(message: str) -> None:
    click.echo(f"kernelbench: {message}", err=True)

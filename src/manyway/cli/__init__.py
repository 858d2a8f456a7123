"""The command line: one function per command, in the module of its subject.

Heavy libraries are imported inside.
"""

import errno
import os
import sys
import tempfile
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.main import get_command

import manyway
from manyway import encoding, files
from manyway.cli import bench, doctor, examine, extract, judge, label, review, show, train
from manyway.cli.console import (
    FOLDER,
    NOTES,
    OPTIONS,
    QUIET,
    say,
    spell_streams,
    with_options,
    without_folder,
)
from manyway.cli.options import with_formats
from manyway.cli.paths import local_path, without_host
from manyway.errors import InputError


class _Interrupted(Exception):
    """A command was interrupted; what there is to say about it."""


class _Command(TyperCommand):
    """A command whose errors name its options, where the library's name parameters."""

    # help in which formats are named -> what it was made of
    templates: ClassVar[dict[str, str]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [without_host(word) for word in args])

    def invoke(self, ctx: Any) -> Any:
        # what a command says of itself ends with it
        return copy_context().run(self._invoke, ctx)

    def _invoke(self, ctx: Any) -> Any:
        OPTIONS.set(self.params)
        NOTES.set([])
        QUIET.set(bool(ctx.params.get("quiet") or ctx.params.get("as_json")))
        with tempfile.TemporaryDirectory(prefix="manyway-") as folder:
            FOLDER.set(folder)
            try:
                for name, value in ctx.params.items():
                    if isinstance(value, Path):
                        is_input = name not in ("output", "out", "html")
                        ctx.params[name] = local_path(value, Path(folder) if is_input else None)
                if ctx.params.get("encoder"):
                    encoding.check_network(ctx.params["encoder"])
                return super().invoke(ctx)
            except KeyboardInterrupt as stop:
                kept = "" if ctx.params.get("no_cache") else "; finished results are kept"
                raise _Interrupted(f"interrupted{kept}.") from stop
            except InputError as error:
                words = with_options(str(error), self.params)
                raise InputError(without_folder(words)) from error

    def name_formats(self) -> None:
        """Fill in the formats that the help names: those that are there now."""
        self.help = self._with_formats(self.help or "")
        for param in self.params:
            if isinstance(param, TyperArgument | TyperOption) and param.help:
                param.help = self._with_formats(param.help)

    def _with_formats(self, text: str) -> str:
        """The text with its formats named, also where they have been named before."""
        template = self.templates.get(text, text)
        filled = with_formats(template)
        self.templates[filled] = template
        return filled

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.name_formats()
        super().format_help(ctx, formatter)


_FIRST_STEPS = """What do you have?

photographs     manyway review known/ photos/        (known/CLASS/*.jpg)
tickets, texts  manyway label done.csv new.xlsx      (columns text and label)
camera traps    manyway label --scores results.json  (SpeciesNet, MegaDetector)
sound           manyway label --scores results.csv   (BirdNET)
feature tables  manyway label known.csv new.csv      (or one, partly labelled)

manyway label --help says more, and manyway --help lists all commands."""
app = typer.Typer(
    name="manyway",
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (
    *(
        label.label,
        review.review,
        examine.examine,
        judge.judge,
        label.methods,
        extract.datasets,
        train.train,
        extract.extract,
    ),
    *(
        bench.bench,
        show.status,
        show.table,
        show.plot,
        show.report,
        show.compare,
        bench.tune,
        doctor.doctor,
    ),
):
    app.command(cls=_Command)(command)


_built = cache(get_command)  # once, however often it is called in a process


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"manyway {manyway.__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Label batches of items when there are many possible classes and few of them occur."""
    if context.invoked_subcommand is None:
        say(_FIRST_STEPS)


def main() -> None:
    """Run the command line; an error is one line and an exit code, never a traceback."""
    spell_streams()
    try:
        os.getcwd()
    except OSError:
        _stop("the folder that you are in was removed; go to another one.", 2)
    try:
        _built(app)()
    except InputError as error:
        _stop(str(error), 2)
    except _Interrupted as stop:
        _stop(str(stop), 130)
    except (KeyboardInterrupt, SystemExit) as stop:
        # typer turns an interrupt before the work begins into this code
        if isinstance(stop, SystemExit) and stop.code != 130:
            raise
        _stop("interrupted.", 130)
    except BrokenPipeError:
        # The reader of the output has closed it (`manyway table | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (OSError, MemoryError) as error:
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:
            _stop(_too_long(str(getattr(error, "filename", ""))), 2)
        _stop(str(error) or "out of memory.", 1)
    except Exception as error:
        if os.environ.get("MANYWAY_DEBUG"):
            raise
        if "TORCH_LOGS" in str(error):
            _stop(
                "the environment variable TORCH_LOGS has a value that torch does not "
                "know; unset it.",
                2,
            )
        report = "This is a bug: please report it with the command and what MANYWAY_DEBUG=1 shows"
        _stop(f"unexpected {type(error).__name__}: {error}. {report}.", 1)


def _too_long(path: str) -> str:
    """What is said of a path that the system refuses: which of its names is too long."""
    longest = max(Path(path).parts, key=len, default="")
    return f"the name of a file is too long: {files.shorten(longest)}; choose a shorter one."


def _stop(message: str, code: int) -> NoReturn:
    QUIET.set(False)
    say(f"manyway: {' '.join(message.split())}", stderr=True)
    sys.exit(code)

"""The command line: one function a command, in the module of its subject; heavy libraries are imported inside."""

from __future__ import annotations

import os
import sys

import typer

from manyway.cli import bench, images, label
from manyway.cli.console import spell_streams
from manyway.errors import InputError

app = typer.Typer(
    name="manyway",
    help="Label batches of items when there are many possible classes and few of them occur.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
for command in (
    label.label,
    label.methods,
    images.datasets,
    images.train,
    images.extract,
    bench.bench,
    bench.status,
    bench.table,
    bench.plot,
    bench.report,
    bench.compare,
    bench.tune,
):
    app.command()(command)


def main() -> None:
    """Run the command line; whatever goes wrong is one line and an exit code, never a traceback."""
    spell_streams()
    try:
        app()
    except InputError as error:
        _stop(str(error), 2)
    except KeyboardInterrupt:
        _stop("interrupted; what was finished is kept.", 130)
    except (OSError, MemoryError) as error:
        _stop(f"{error or 'out of memory'}", 1)
    except Exception as error:
        if os.environ.get("MANYWAY_DEBUG"):
            raise
        _stop(f"unexpected {type(error).__name__}: {error} (set MANYWAY_DEBUG=1 to see where).", 1)


def _stop(message: str, code: int) -> None:
    print(f"manyway: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)

"""How a function becomes a command, the options that several commands share, and the progress bar.

Parameters
----------
data
    The folder that holds data sets. Default: $MANYWAY_DATA, otherwise ./data.
device
    Where to compute: cpu, cuda or cuda:N. Default: cuda if available, otherwise cpu.
overwrite
    Replace a file that exists. Without it, a terminal asks.
root
    The folder of the pictures that a table lists. Default: the folder of the file.
results
    The folder of stored results.
skip_bad
    Leave out all files that cannot be read, not just a few;
    in a table of numbers, rows that lack one.
class_names : FILE
    One vector per class, such as the text embedding of its name: a feature file with labels, or a
    file of texts if the encoder reads texts. Classes then need no examples.
help_all
    Show all options and more examples, and stop.
quiet
    Print nothing but errors.
as_json
    Print one JSON object with the summary, the labels and the notes.
    A file is then written only where -o names one.
dry_run
    Say what would be read, with which columns and encoder, and
    about how long it would take; label nothing.
labels
    Labels of the examples if EXAMPLES has none: one per line, the column of a csv, or .npy. With
    --scores: a table with the columns item and label.
encoder
    What turns pictures (one folder per class) or texts (csv, jsonl, txt) into features:
    efficientnet-lite2 (default for pictures), minilm (default for texts), use-multilingual, a
    checkpoint of `manyway train`, timm:NAME, open_clip:NAME or others (`manyway extract --help`).
no_cache
    Encode all pictures or texts again, and do not keep the features for later runs.
open_set
    Whether items may be of none of the classes. They are then labelled `unknown`, and the table
    says which of them belong together.
features
    A feature file (.safetensors, .npz), or the key of a feature set, to use instead of those the
    suite names.
tasks
    Number of tasks per experiment. Default: as the suite says.
seed
    The seed that tasks are drawn with.
only
    Run only a part of the suite: AXIS=VALUE[,VALUE], e.g. method=paddle,tim or shots=5. May be
    repeated.
task
    Change the tasks: FIELD=VALUE, e.g. shots=10 or n_query=40. May be repeated.
jobs
    Number of experiments to run at the same time.
dask : ADDRESS
    The address of a Dask scheduler, whose workers then run the tasks.
rerun
    Run experiments again that already have results.
name
    A run, SUITE or SUITE@FEATURES, as `manyway status` lists it. Default: the latest run.
metric
    Show this metric, for example accuracy, calibration or n_present; repeat it for several.
    Default: as the suite says, else accuracy.

Columns of a table
------------------
label_column : NAME
    The column of labels in a table. Default: found by its name, or by what is in it.
item_column : NAME
    The column of item names in a table. Default: `item`, or an id column.
ignore_columns : NAME
    A column of a table that is no feature; may be repeated.
feature_columns : NAME
    A column that is a feature although it does not look so; may be repeated.
text_column : NAME
    The column of texts in a table. Default: found by what is in it.
sheet : NAME
    The sheet of an Excel file: its name or number. Default: the first that looks like a table.

Scores of a classifier
----------------------
scores : FILE
    Label from the scores of a classifier instead of features: a file of {formats of scores}; or a folder of such files.
    EXAMPLES are then scores of labelled items, and may be left out.
kind
    What the scores are: probability, log-probability, logit, sigmoid (each class has a yes-or-no
    probability of its own), or independent (the same as --several).
several
    An item may have several classes, or none: each class has a yes-or-no score of its own, as
    in BirdNET. Writes one row per item and class with a probability of --min-confidence
    (default: 0.5) or more.
class_prior : FILE
    The classes that the classifier can answer, and how frequent they were among its training data:
    the columns class and prior (or count). Default: equally frequent.
taxonomy : FILE
    The groups of the classes: the columns class, genus, family, …
at_least
    Also write the finest answer (class, genus, family, …) that has at least this probability.
form : FORMAT
    What to write: table; input (the file that was read with the answers in it, all else unchanged; for a folder, a
    folder); {formats of answers}. Default: input where the ending of -o is {endings of answers}, otherwise table.
media : FILE
    The media.csv of a Camtrap DP, which says the deployment and the time of each picture.
expect : FILE
    A list of the classes that are expected, such as the species of a region: the column class and
    optionally probability, or one class per line. Other classes remain possible.
batch_by : WHAT
    Label each file of a folder (file), each folder of pictures (folder),
    or each value of a column by itself.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path  # the annotations of options are evaluated
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from manyway.methods._table.parameters import doc_entries, doc_sections

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from manyway.files import Options

F = TypeVar("F", bound=Callable[..., Any])
# The options that the help of a command with very many of them shows; --help-all shows the others too.
COMMON = {
    "label": (
        *(
            "output",
            "overwrite",
            "review",
            "open_set",
            "min_confidence",
            "encoder",
            "scores",
            "label_column",
        ),
        *("text_column", "skip_bad", "help_all"),
    )
}
WHOLE_HELP: dict[str, str] = {}  # of each command, by its name
# Options that have another name than their parameter, or limits, in several commands.
OutputOption = Annotated[Path | None, typer.Option("--output", "--out", "-o")]
OpenSetOption = Annotated[bool, typer.Option("--open-set/--closed")]
KindOption = Annotated[str, typer.Option("--score-kind")]
FormOption = Annotated[str | None, typer.Option("--format")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q")]
JsonOption = Annotated[bool, typer.Option("--json")]
_MORE = "[bold]More examples:[/bold]"
_SHARED = {
    name: (entry, None if title == "Parameters" else title)
    for title, section in doc_sections(__doc__ or "").items()
    if title
    for name, entry in doc_entries(section).items()
}


class OptionGroup:
    """Options that belong together: a dataclass with a field for each.

    A command takes them as one argument.
    """


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(OptionGroup):
    """How examples and items are read."""

    labels: Path | None = None
    encoder: str | None = None
    skip_bad: bool = False
    no_cache: bool = False
    label_column: str | None = None
    item_column: str | None = None
    ignore_columns: Annotated[list[str] | None, typer.Option("--ignore-column")] = None
    feature_columns: Annotated[list[str] | None, typer.Option("--feature-column")] = None
    text_column: str | None = None
    sheet: str | None = None

    def columns(self, *, gaps: bool = False) -> Options:
        """What was said about the columns of a table.

        ``gaps`` says whether the command can use rows that lack features.
        """
        from manyway.files import Options

        return Options(
            label_column=self.label_column,
            item_column=self.item_column,
            ignore_columns=self.ignore_columns or (),
            feature_columns=self.feature_columns or (),
            text_column=self.text_column,
            sheet=self.sheet,
            skip_bad=self.skip_bad,
            gaps=gaps,
        )


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(OptionGroup):
    """What experiments run on, which of them, where, and where their results go."""

    features: Path | None = None
    data: Path | None = None
    tasks: Annotated[int | None, typer.Option(min=1)] = None
    seed: int | None = None
    only: list[str] | None = None
    task: list[str] | None = None
    device: str | None = None
    jobs: Annotated[int, typer.Option(min=1)] = 1
    dask: str | None = None
    rerun: bool = False
    results: Path = Path("results")


def command(function: F) -> F:
    """Make a function a command: what it takes by position is an argument, what it takes by name alone an option.

    An argument of a type of ``OptionGroup`` stands for the options in it.

    What the help says of each, and its placeholder, is in the section Parameters of the function's
    docstring, or, where several commands have it, in that of this module; there, the title of
    another section is that of a panel. A name or a limit of an option is written as
    ``Annotated[int, typer.Option("--tasks", min=1)]``.
    """
    sections = doc_sections(inspect.getdoc(function) or "")
    own = {
        name: (entry, None) for name, entry in doc_entries(sections.get("Parameters", "")).items()
    }
    flat = []
    for name, parameter in _options_of(function):
        hint = parameter.annotation
        kind, given = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
        by_name = parameter.kind is parameter.KEYWORD_ONLY
        info = copy(given) or (typer.Option() if by_name else typer.Argument())
        if kind is bool and info.default is ...:
            info.default = f"--{name.replace('_', '-')}"  # and no --no-…
        info.hidden = (
            by_name and function.__name__ in COMMON and name not in COMMON[function.__name__]
        )
        entry, info.rich_help_panel = {**_SHARED, **own}.get(name, ("", None))
        first, _, text = entry.partition("\n")
        info.metavar = first.partition(" : ")[2] or None
        info.help = " ".join(text.split())
        flat.append(parameter.replace(annotation=Annotated[kind, info]))
    # the terminal breaks the lines of a paragraph
    text = re.sub(r"(?<=\S)\n(?=\S)", " ", sections[""])
    WHOLE_HELP[function.__name__] = text
    made = _with_options(function, inspect.Signature(flat, return_annotation=None))
    made.__doc__ = text.partition(_MORE)[0].rstrip()
    return cast("F", made)


def _options_of(function: Callable[..., Any]) -> Iterator[tuple[str, inspect.Parameter]]:
    """The parameters of a command, with the fields of each group in its place."""
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        group = _group(parameter)
        if group is None:
            yield name, parameter
            continue
        hints = get_type_hints(group, include_extras=True)
        for field in fields(cast("Any", group)):
            option = parameter.replace(name=field.name, default=field.default)
            yield field.name, option.replace(annotation=hints[field.name])


def _group(parameter: inspect.Parameter) -> type[OptionGroup] | None:
    """The group that a parameter stands for, if any."""
    kind = parameter.annotation
    is_group = isinstance(kind, type) and issubclass(kind, OptionGroup)
    return kind if is_group else None


def _with_options(function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """The function with that signature; it makes the groups of the options in them."""
    own = inspect.signature(function, eval_str=True).parameters
    groups = {name: _group(parameter) for name, parameter in own.items()}

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        given = bound.arguments
        for name, group in groups.items():
            if group is not None:
                members = {
                    field.name: given.pop(field.name) for field in fields(cast("Any", group))
                }
                given[name] = group(**members)
        return function(**given)

    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return run


def show_all_help(context: typer.Context, wanted: bool) -> None:
    """Print the help of a command with all its options and examples."""
    if not wanted:
        return
    for parameter in context.command.params:
        parameter.hidden = False  # type: ignore[attr-defined]
    context.command.help = WHOLE_HELP[str(context.command.name)]
    typer.echo(context.command.get_help(context))
    raise typer.Exit


def with_formats(text: str) -> str:
    """A text of the help with the formats that are known here.

    They are loaded only where help is asked for.
    """
    if "{" not in text:
        return text
    from manyway.files.formats.base import ArrayFormat
    from manyway.files.formats.registry import (
        all_formats,
        answer_formats,
        endings_of,
        endings_of_answers,
        endings_of_tables,
        written_tables,
    )
    from manyway.files.scores import ScoreFormat

    scores = [each.name.replace("`", "") for each in all_formats(ScoreFormat)]
    answers = [f"{key} ({each.name})" for key, each in answer_formats().items()]
    words = {
        "{formats of scores}": ", ".join(scores),
        "{formats of answers}": "; ".join(answers),
        "{endings of answers}": " or ".join(endings_of_answers()),
        "{endings of arrays}": ", ".join(ending[1:] for ending in endings_of(ArrayFormat)),
        "{endings of tables}": ", ".join(ending[1:] for ending in endings_of_tables()),
        "{written tables}": ", ".join(written_tables()),
    }
    for name, known in words.items():
        text = text.replace(name, known)
    return text


def may_replace(path: Path | None, overwrite: bool) -> bool:
    """Whether an output that the user named may replace a file.

    By the option, or by an answer on the terminal.
    """
    if overwrite or path is None or not path.is_file() or not sys.stdin.isatty():
        return overwrite
    return typer.confirm(f"{path} exists. Replace it?", err=True)


def progress_bar(console: Console, transient: bool = False) -> Progress:
    """A bar with the number of items, the elapsed time and the time left."""
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        transient=transient,
        # seconds: a slow encoder takes more than the usual 30 for its first steps
        speed_estimate_period=300,
    )

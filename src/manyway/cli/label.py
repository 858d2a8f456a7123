"""``manyway label`` and ``manyway methods``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.padding import Padding
from rich.table import Table

from manyway import files, labelling
from manyway.cli.console import console, note
from manyway.cli.options import (
    FormOption,
    JsonOption,
    KindOption,
    OpenSetOption,
    OptionGroup,
    OutputOption,
    QuietOption,
    ReadingOptions,
    command,
    may_replace,
    show_all_help,
)
from manyway.errors import InputError
from manyway.methods import DEFAULT_METHOD, METHODS, get_method

if TYPE_CHECKING:
    from rich.status import Status

    from manyway.cli.inputs import Inputs, ScoreInputs
    from manyway.core import Solution


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(OptionGroup):
    """What is said about the scores of a classifier, and about answers for them."""

    scores: Path | None = None
    kind: KindOption = "auto"
    several: bool = False
    class_prior: Path | None = None
    expect: Path | None = None
    taxonomy: Path | None = None
    at_least: Annotated[float | None, typer.Option(min=0.0, max=1.0)] = None
    form: FormOption = None
    media: Path | None = None
    batch_by: str | None = None

    @property
    def any_number(self) -> bool:
        """Whether an item may have any number of classes."""
        from manyway.methods.scores.kinds import SEVERAL

        return self.several or self.kind == SEVERAL

    @property
    def for_scores_only(self) -> dict[str, object]:
        """What was said that means nothing without scores, by its option; None where it was not."""
        return {
            "--class-prior": self.class_prior,
            "--expect": self.expect,
            "--media": self.media,
            "--batch-by": self.batch_by,
            "--several": self.several or None,
        }

    def inputs(self, examples: Path | None, reading: ReadingOptions) -> ScoreInputs:
        """The scores that are read."""
        from manyway.cli.inputs import ScoreInputs
        from manyway.methods.scores.kinds import SEVERAL

        assert self.scores is not None
        return ScoreInputs(
            scores=self.scores,
            examples=examples,
            labels=reading.labels,
            kind=SEVERAL if self.several else self.kind,
            columns=reading.columns(),
            class_prior=self.class_prior,
            taxonomy=self.taxonomy,
            media=self.media,
            expect=self.expect,
        )


@command
def label(
    support: Path | None = None,
    query: Path | None = None,
    *,
    class_names: Path | None = None,
    output: OutputOption = None,
    overwrite: bool = False,
    method: str = "evidence",
    top: Annotated[int, typer.Option(min=1)] = 2,
    min_confidence: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.0,
    open_set: OpenSetOption = False,
    device: str | None = None,
    dask: str | None = None,
    reading: ReadingOptions,
    review: bool = False,
    of_scores: ScoreOptions,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
    dry_run: bool = False,
    help_all: Annotated[bool, typer.Option("--help-all", is_eager=True, callback=show_all_help)] = False,
) -> None:
    """Label a batch of items from a few labelled examples of many classes.

    All items are labelled together. Which classes occur in the batch, and how many, is part of the answer.

    EXAMPLES holds features and labels, ITEMS holds features from the same encoder. Both are files of arrays
    ({endings of arrays}) or tables ({endings of tables}). Arrays are named `features` and `labels`. In a table every
    column of numbers is a feature except the label and the item name; features are matched by column name, and other
    columns of ITEMS come back in the table of labels.

    EXAMPLES and ITEMS may also be pictures (folders, or zip archives of them; the names of folders are the classes) or
    texts (tables with a column `text`, or .txt files with one text per line). They are turned into features by
    --encoder. Features are kept, so that the next run encodes only new pictures or texts.

    A single table of which some rows have a label holds both: these rows are the examples, and the others are the
    items. A table comes back with all its rows and columns, and the labels after them.

    [bold]Examples:[/bold]

        manyway label catalogue/ photos/

        manyway label intents.csv tickets.xlsx --min-confidence 0.8

        manyway label sheet.xlsx --label-column species

        manyway label --scores predictions.json

    [bold]More examples:[/bold]

    Label photos from their features, and leave uncertain labels empty:

        manyway label catalogue.npz photos.npz -o labels.csv --min-confidence 0.5

    Tables with a column `species` for the label and `file` for the name of the item:

        manyway label herbarium.csv sheets.csv --label-column species --item-column file -o labels.parquet

    Photos of which some may be of none of the classes in the catalogue:

        manyway label catalogue.npz photos.npz --open-set

    Pictures, with an encoder that was trained by `manyway train`:

        manyway label catalogue/ photos/ --encoder runs/birds/best.safetensors

    Texts, with an encoder that is downloaded:

        manyway label intents.csv tickets.txt --encoder sentence-transformers:all-mpnet-base-v2

    Standard input, and the labels as JSON on standard output:

        cat tickets.csv | manyway label intents.csv - --json

    Texts of classes that have a name and no example:

        manyway label tickets.txt --class-names intents.txt

    The same for pictures, with an encoder of pictures and texts:

        manyway label photos/ --class-names birds.txt --encoder sentence-transformers:clip-ViT-B-32

    The predictions of SpeciesNet for one camera, with a genus or family where the species is uncertain:

        manyway label --scores predictions.json --at-least 0.9

    The same file with the answers in it, for the programs that read it:

        manyway label --scores predictions.json -o answers.json

    The scores of your own classifier, with a taxonomy, calibrated on the items that labels.csv names:

        manyway label --scores scores.csv --labels labels.csv --taxonomy taxonomy.csv --at-least 0.9 -o answers.csv

    Parameters
    ----------
    support : EXAMPLES
        Labelled examples: a feature file, or a folder of pictures, or texts; or a table that is partly labelled.
    query : ITEMS
        Items to label, of the same kind. With --class-names alone: leave EXAMPLES out.
    output
        The table of labels: {written tables}. Default: labels.csv, which is never written over a file of yours.
    method
        How to label; `manyway methods` lists them.
    top
        The number of classes to write per item.
    min_confidence
        Leave the label empty when its probability is lower.
    dask : ADDRESS
        Distribute the items over the workers of this Dask scheduler.
    review
        Afterwards look at the labels on a local web page; saved in the folder `review`.
    """
    from manyway.cli.plan import print_plan
    from manyway.cli.review import check_review

    if review:
        check_review(method, dask, several=of_scores.any_number)
    overwrite = may_replace(output, overwrite)
    status = console(stderr=True).status("reading …")
    place = _place(method, device, dask, status)
    source = _source(
        support,
        query,
        class_names=class_names,
        reading=reading,
        of_scores=of_scores,
        gaps=get_method(method).takes_gaps,
    )
    wishes = Wishes(method, top, min_confidence, open_set=open_set, of_scores=of_scores)
    if dry_run:
        print_plan(source.plan(place.where), as_json=as_json)
        return
    with _path_for(output, as_json=as_json) as path:
        target = Output(
            path, of_scores.form, overwrite, as_json=as_json, kept=path == output, review=review
        )
        _run(source, wishes, target, place, status)


def _source(
    support: Path | None,
    query: Path | None,
    *,
    class_names: Path | None,
    reading: ReadingOptions,
    of_scores: ScoreOptions,
    gaps: bool,
) -> ScoreInputs | Inputs:
    """What is read: the scores of a classifier, or examples and items.

    ``gaps`` says whether the method can use rows that lack features.
    """
    from manyway.cli.inputs import Inputs

    if of_scores.scores is not None:
        for_features = {
            "ITEMS": query,
            "--class-names": class_names,
            "--encoder": reading.encoder,
        }
        _refuse(for_features, _FOR_FEATURES)
        return of_scores.inputs(support, reading)
    _refuse(of_scores.for_scores_only, _FOR_SCORES)
    if support is None:
        hint = "give EXAMPLES and ITEMS, or --scores of a classifier"
        raise InputError(f"There is nothing to label; {hint}.")
    return Inputs.of(support, query, reading=reading, class_names=class_names, gaps=gaps)


@contextmanager
def _path_for(output: Path | None, *, as_json: bool) -> Iterator[Path | None]:
    """The file for the labels; one that nobody sees where they go to standard output alone."""
    if output is not None or not as_json:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="manyway-") as folder:
        yield Path(folder) / DEFAULT_JSON


def _place(method: str, device: str | None, dask: str | None, status: Status) -> labelling.Place:
    """Where a method labels, and who is told about its passes."""
    return labelling.Place(
        device=device,
        dask=dask,
        in_blocks=get_method(method).in_blocks is not None,
        progress=lambda number: status.update(f"labelling with {method}, pass {number} …"),
    )


DEFAULT_JSON = "labels.jsonl"  # a file that nobody sees, where the labels go to standard output


class Wishes(NamedTuple):
    """How to label."""

    method: str
    top: int
    min_confidence: float
    open_set: bool
    of_scores: ScoreOptions


class Output(NamedTuple):
    """Where the labels go."""

    path: Path | None
    form: str | None
    overwrite: bool
    as_json: bool
    kept: bool  # whether there is a file for the user
    review: bool


def _run(source: ScoreInputs | Inputs, wishes: Wishes, output: Output, place: labelling.Place, status: Status) -> None:
    """Read, label and write."""
    from manyway.cli.inputs import Inputs
    from manyway.cli.review import DEFAULT_FOLDER, features_data, run_review, scores_data
    from manyway.cli.summary import print_summary, summary_json

    read = None
    made: AbstractContextManager[labelling.Batch]
    form = labelling.find_format(output.form, output.path)
    if isinstance(source, Inputs):
        table = _feature_table(source, form, output)
        read = source.read(place.where)
        made = labelling.features_batch(read[0], read[1], place, class_names=read[2])
    else:
        table = source.check_target(output.path, form, overwrite=output.overwrite)
        made = source.batch(place)
    target = files.Output(table)
    rows: list[labelling.Row] = []
    with made as batch:
        if isinstance(source, Inputs):
            batch = _with_levels(batch, wishes, None if form != labelling.INPUT else source.query)
        else:
            at_levels = wishes.of_scores.at_least is not None
            labelling.check_format(form, labelling.scores_of(batch), table, at_levels=at_levels)
        with status:
            status.update(f"labelling {len(batch.items)} items with {wishes.method} …")
            solution = _solve(batch, wishes)
            summary = labelling.write_labels(
                batch,
                solution,
                target,
                top=wishes.top,
                min_confidence=wishes.min_confidence,
                at_least=wishes.of_scores.at_least,
                inputs=source.paths,
                form=form,
                each=rows.append if output.as_json else None,
            )
        if output.as_json:
            shown = summary if output.kept else replace(summary, output=None)
            typer.echo(summary_json(shown, rows, batch.items))
        else:
            print_summary(summary, wishes.of_scores.at_least)
        _say_where(output.path, table)
        if output.review:
            if isinstance(source, Inputs):
                assert read is not None
                data = features_data(source, read, open_set=wishes.open_set)
            else:
                data = scores_data(batch, source, open_set=wishes.open_set)
            run_review(data, DEFAULT_FOLDER, first=solution)


def _with_levels(
    batch: labelling.Batch, wishes: Wishes, origin: Path | None
) -> labelling.Batch:
    """The batch of features with its taxonomy, and with the file that answers go into, if any."""
    if wishes.of_scores.taxonomy is not None:
        batch = replace(batch, levels=labelling.read_taxonomy(wishes.of_scores.taxonomy))
    return batch if origin is None else labelling.with_origin(batch, origin)


def _say_where(path: Path | None, table: Path) -> None:
    """Say why the labels are not in the usual file, where the user named none."""
    if path is None and table.stem != labelling.DEFAULT_OUTPUT.stem:
        usual = labelling.DEFAULT_OUTPUT.with_suffix(table.suffix)
        note(f"{usual} is another file, or was changed; it stays as it is (`overwrite` replaces it)")


def _feature_table(source: Inputs, form: str, output: Output) -> Path:
    """Where the labels of features go, after checking that nothing of value is replaced."""
    return labelling.check_table(
        output.path,
        source.paths,
        overwrite=output.overwrite,
        endings=labelling.check_back(form, source.query, output.path),
        suffix=labelling.default_suffix(source.query),
    )


def _solve(batch: labelling.Batch, wishes: Wishes) -> Solution:
    """Label all items together, or those of each group."""
    if wishes.of_scores.batch_by is None:
        return labelling.solve_batch(batch, wishes.method, open_set=wishes.open_set)
    groups = labelling.groups_of(labelling.scores_of(batch), wishes.of_scores.batch_by)
    return labelling.solve_groups(batch, groups, wishes.method, open_set=wishes.open_set)


_FOR_FEATURES = "is for features; leave it out with --scores."
_FOR_SCORES = "is for the scores of a classifier; name their file with --scores."


def _refuse(given: Mapping[str, object], reason: str) -> None:
    """Refuse the first option that has a value."""
    for option in (option for option, value in given.items() if value is not None):
        raise InputError(f"{option} {reason}")


@command
def methods(name: str | None = None) -> None:
    """List the methods, or describe one: its reference, what it can use, and its parameters with their defaults.

    [bold]Examples:[/bold]

    manyway methods

    manyway methods evidence

    Parameters
    ----------
    name : NAME
        Describe this method.
    """
    if name is not None:
        _describe_method(name)
        return
    table = Table(box=None)
    for column in ("method", "what it does", "reference"):
        table.add_column(column, no_wrap=column == "method")
    for method in sorted(METHODS.values(), key=lambda method: method.name != DEFAULT_METHOD):
        shown = f"{method.name} (default)" if method.name == DEFAULT_METHOD else method.name
        table.add_row(shown, method.summary, method.reference)
    console().print(table)


def _describe_method(name: str) -> None:
    """Print what there is to know about a method before it is used."""
    method = get_method(name)
    screen = console()
    screen.print(f"{method.title} ({method.name})", style="bold")
    screen.print(method.summary)
    table = Table(box=None, show_header=False)
    facts = {
        "reference": method.reference,
        "items": "labelled jointly" if method.transductive else "labelled one by one",
        "class names": "used; a class then needs no example" if method.class_features else "not used",
        "known labels": "of some items are used" if method.takes_known else "of items are not used",
        "large piles": "read in blocks" if method.in_blocks is not None else "must fit into memory",
        "learned on other tasks": "yes; answers are best for tasks like those" if method.training is not None else "no",
        "more": "docs/methods.md: what it optimises, what it costs, what it reads besides examples and items",
    }
    for title, fact in facts.items():
        table.add_row(title, fact)
    screen.print("", table, "", sep="\n")
    for entry in method.parameter_docs.values():
        first, _, text = entry.partition("\n")
        screen.print(first)
        screen.print(Padding(" ".join(text.split()), (0, 0, 0, 4)))

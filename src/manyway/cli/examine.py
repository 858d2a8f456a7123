"""``manyway examine``: what labelled examples can do, before any pile is labelled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.table import Table

from manyway import encoding, examination, files, labelling
from manyway.cli.console import console, note, say
from manyway.cli.options import (
    JsonOption,
    OutputOption,
    QuietOption,
    ReadingOptions,
    command,
    may_replace,
)
from manyway.errors import InputError

if TYPE_CHECKING:
    from manyway.cli.inputs import Inputs

_SHOWN = 10  # rows of each table on the terminal
_CONFUSED = 2  # classes that another is taken for, there
_THUMBNAIL = 160
_PAGE_ENDINGS = (".html", ".htm")


@command
def examine(
    examples: Path,
    items: Path | None = None,
    *,
    output: OutputOption = None,
    html: Path | None = None,
    overwrite: bool = False,
    review: bool = False,
    batch_size: Annotated[int | None, typer.Option(min=1)] = None,
    seed: int = 0,
    device: str | None = None,
    reading: ReadingOptions,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find out what labelled examples can do, before anything is labelled with them.

    How many labels of a batch will be right, and what more examples would bring; which classes are confused; which
    examples look mislabelled, or are copies of each other; and, with ITEMS, whether these look like the examples.

    EXAMPLES and ITEMS are read as by `manyway label`.

    [bold]Examples:[/bold]

    manyway examine catalogue/ --html catalogue.html

    manyway examine intents.csv tickets.csv -o examples.csv

    manyway examine catalogue/ --review

    Parameters
    ----------
    examples : EXAMPLES
        Labelled examples: a feature file, a folder of pictures, or texts.
    items : ITEMS
        Items to be labelled later, of the same kind.
    output
        A table with a row per example, and how probable it is that its label is wrong: {written tables}.
    html : FILE
        Write everything as a page with plots, and with the pictures or texts themselves.
    review
        Look at the examples that look mislabelled on a local web page; saved in the folder `review`.
    batch_size : N
        The number of items in a batch for which right labels are predicted. Default: those of ITEMS, or 60.
    seed : N
        Of the rehearsals.
    as_json
        Print everything as one JSON object.
    """
    from manyway.cli.inputs import Inputs
    from manyway.core import resolve_device

    if items is None:
        source = Inputs.of_examples(examples, reading)
    else:
        source = Inputs.of(examples, items, reading=reading)
    targets = _Targets.checked(output, html, source, overwrite=overwrite, review=review)
    known, pile, _ = source.read(resolve_device(device))
    if items is not None:
        pile = files.match_columns(known, pile)
    if known.labels is None:
        raise InputError(
            "The examples have no labels; name their column with --label-column, or a file with --labels."
        )
    with console(stderr=True).status(f"examining {len(known)} examples …"):
        found = examination.examine(
            known.rows(0, len(known)),
            known.labels,
            None if items is None else pile.rows(0, len(pile)),
            names=[known.name(row) for row in range(len(known))],
            n_items=batch_size,
            seed=seed,
        )
    for remark in targets.write(found, known, source):
        note(remark)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        print_examination(found)
        targets.say()
    if review:
        _review_suspects(found, known, source)


class _Targets(NamedTuple):
    """Where the table and the page go; None where they are not asked for."""

    table: Path | None
    page: Path | None
    inputs: tuple[Path | None, ...]

    @classmethod
    def checked(
        cls, table: Path | None, page: Path | None, source: Inputs, *, overwrite: bool, review: bool
    ) -> _Targets:
        """Refuse what could not be written, before any work is done."""
        if review:
            from manyway.cli.review import check_review

            check_review()
        if table is not None:
            labelling.check_table(table, source.paths, overwrite=may_replace(table, overwrite))
        if page is not None:
            if page.suffix.lower() not in _PAGE_ENDINGS:
                raise InputError(f"The page is {page}; give it the ending .html.")
            files.check_output(page, source.paths, overwrite=may_replace(page, overwrite))
        return cls(table, page, source.paths)

    def write(
        self, found: examination.Examination, known: files.Items, source: Inputs
    ) -> list[str]:
        """Write both; return what there is to say about the table."""
        if self.page is not None:
            text = _page(found, known, source)
            with files.atomic_write(self.page, self.inputs) as temporary:
                temporary.write_text(text, encoding="utf-8")
        if self.table is None:
            return []
        rows = found.rows()
        return labelling.write_rows(
            self.table,
            list(rows[0]),
            ([*row.values()] for row in rows),
            self.inputs,
            for_excel=True,
        )

    def say(self) -> None:
        """Say where they are."""
        for path in (self.table, self.page):
            if path is not None:
                say(f"Written to {path}.")


def print_examination(found: examination.Examination) -> None:
    """Print an examination on one page of a terminal."""
    for sentence in found.sentences():
        say(sentence)
    if found.suspects:
        table = Table(box=None)
        for column in ("looks mislabelled", "label", "looks like"):
            table.add_column(column)
        table.add_column("wrong with", justify="right")
        for suspect in found.suspects[:_SHOWN]:
            cells = [_plain(cell) for cell in (suspect.item, suspect.label, suspect.looks_like)]
            table.add_row(*cells, f"{suspect.probability:.0%}")
        console().print(table)
        _say_rest(len(found.suspects))
    shown = [one for one in found.classes if one.found is not None][:_SHOWN]
    if shown:
        table = Table(box=None)
        table.add_column("class")
        for column in ("examples", "found"):
            table.add_column(column, justify="right")
        table.add_column("confused with")
        for one in shown:
            worst = one.confused_with[:_CONFUSED]
            confused = ", ".join(f"{_plain(other.name)} ({other.share:.0%})" for other in worst)
            table.add_row(_plain(one.name), str(one.n_examples), f"{one.found:.0%}", confused)
        console().print(table)
        _say_rest(sum(one.found is not None for one in found.classes))


def _say_rest(number: int) -> None:
    if number > _SHOWN:
        say(f"… and {number - _SHOWN} more.")


def _plain(name: str) -> str:
    """A name on one line: a line break could feign a line."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _page(found: examination.Examination, known: files.Items, source: Inputs) -> str:
    """The page, with pictures or texts where examples are that."""
    assert source.support is not None
    title = source.support.name
    if source.encoder is None:
        return examination.make_page(found, title)
    if encoding.encodes_texts(source.encoder, source.support):
        return examination.make_page(found, title, text=known.text)
    originals = encoding.open_originals(source.support)

    def picture(row: int) -> bytes | None:
        try:
            return encoding.thumbnail(originals.read(known.name(row)), _THUMBNAIL)
        except (OSError, InputError):
            return None

    return examination.make_page(found, title, picture=picture)


def _review_suspects(found: examination.Examination, known: files.Items, source: Inputs) -> None:
    """Serve the review page with the suspects as items and all other examples as examples."""
    from manyway.cli.review import DEFAULT_FOLDER, features_data, run_review

    if not found.suspects:
        say("No example looks mislabelled: there is nothing to review.")
        return
    suspected = [suspect.row for suspect in found.suspects]
    others = sorted(set(range(len(known))) - set(suspected))
    items = _some(known, suspected)
    given = {"given_label": [found.labels[row] for row in suspected]}
    items = replace(items, labels=None, carried={**items.carried, **given})
    alone = replace(source, query=source.support or source.query)
    run_review(features_data(alone, (_some(known, others), items, None)), DEFAULT_FOLDER)


def _some(items: files.Items, rows: list[int]) -> files.Items:
    """Some rows of the examples."""
    labels = None if items.labels is None else tuple(items.labels[row] for row in rows)
    texts = None if items.texts is None else [items.texts[row] for row in rows]
    carried = {name: [cells[row] for row in rows] for name, cells in items.carried.items()}
    names = [items.name(row) for row in rows]
    features = items.rows(0, len(items))[rows]
    return replace(
        items,
        features=features,
        labels=labels,
        names=names,
        texts=texts,
        carried=carried,
        skipped=(),
        origin=None,
    )

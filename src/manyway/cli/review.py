"""``manyway review``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated

import typer

from manyway.cli import inputs
from manyway.cli.console import console, note, say
from manyway.cli.inputs import Inputs
from manyway.cli.label_scores import INDEPENDENT, ScoreFile, ScoreInputs, ScoreKind
from manyway.cli.options import Device, SkipBad
from manyway.errors import InputError, optional

if TYPE_CHECKING:
    from torch import Tensor

    from manyway.core.solution import Solution
    from manyway.encoding.datasets.originals import Originals
    from manyway.files.items import Items
    from manyway.labelling.batch import Batch
    from manyway.review.data import ReviewData
    from manyway.review.session import Session

DEFAULT_FOLDER = Path("review")
_drawing = Lock()  # several pictures of a letter are asked for at once, and drawn once
_SHOTS = 3  # examples per letter of the demonstration
_GLYPHS = "embedded letters"  # where the pictures of the demonstration come from
Pictures = Annotated[
    Path | None,
    typer.Option(
        "--pictures",
        metavar="FOLDER",
        help="The folder of the pictures that the item names of a feature file refer to. Default: the pictures that "
        "were encoded; without any, names are shown.",
    ),
]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The port on this computer; a port in use takes the next.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address and open no browser.")]


def review(
    examples: Annotated[
        Path | None, typer.Argument(metavar="EXAMPLES", help="Labelled examples, or the folder of a saved review.")
    ] = None,
    items: Annotated[Path | None, typer.Argument(metavar="ITEMS", help="Items to review, of the same kind.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where the review is saved: answers, features and exports. Default: review. If it holds a review of "
            "the same items, that review goes on.",
        ),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Review drawings of letters that come with the package.")
    ] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the labels of a saved review to a .csv, .tsv, .parquet or .jsonl file and stop."
        ),
    ] = None,
    export_examples: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write the examples of a saved review and its reviewed items, to a table or to a folder with one "
            "folder of pictures per class, and stop. `manyway label` reads them as examples.",
        ),
    ] = None,
    sort_into: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Sort the pictures of a saved review into a new folder with one folder per label, as relative links, "
            "and stop.",
        ),
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="With --sort-into: copy the pictures.")] = False,
    class_names: inputs.ClassNames = None,
    scores: ScoreFile = None,
    kind: ScoreKind = "auto",
    labels: inputs.Labels = None,
    encoder: inputs.Encoder = None,
    pictures: Pictures = None,
    open_set: inputs.OpenSet = False,
    port: Port = 8765,
    no_browser: NoBrowser = False,
    device: Device = None,
    skip_bad: SkipBad = False,
    no_cache: inputs.NoCache = False,
    label_column: inputs.LabelColumn = None,
    item_column: inputs.ItemColumn = None,
    ignore_columns: inputs.IgnoreColumn = None,
    feature_columns: inputs.FeatureColumn = None,
    text_column: inputs.TextColumn = None,
    sheet: inputs.Sheet = None,
) -> None:
    """Look at the labels of a batch on a local web page, and correct them.

    The page shows the items grouped by suggested class, the least certain group first. Every answer is saved at once
    and labels the other items again. EXAMPLES and ITEMS are read as by `manyway label`.

    [bold]Examples:[/bold]

    Try it with drawings of letters:

        manyway review --demo

    Pictures, with the default encoder:

        manyway review catalogue/ photos/ -o birds

    Go on with a saved review, and write its labels:

        manyway review birds
        manyway review birds --export labels.csv
    """
    import tempfile

    check_review(several=kind == INDEPENDENT)
    exports = Exports(export, export_examples, sort_into, copy)
    if demo:
        if examples is not None:
            raise InputError("--demo brings its own examples and items; name none.")
        with tempfile.TemporaryDirectory(prefix="manyway-demo-") as made:
            folder = Path(made) / "review" if output is None else output
            run_review(demo_data(), folder, port=port, browser=not no_browser, kept=output is not None)
        return
    if scores is not None:
        if items is not None or class_names is not None:
            raise InputError("With --scores give at most EXAMPLES: scores of labelled items.")
        given = ScoreInputs(scores, examples, labels, kind, label_column=label_column, item_column=item_column)
        from manyway.labelling.batch import Place

        with given.batch(Place(device, in_blocks=False)) as batch:
            data = scores_data(batch, scores.name, pictures, open_set=open_set)
        run_review(data, output or DEFAULT_FOLDER, port=port, browser=not no_browser)
        return
    if examples is None:
        raise InputError("Name EXAMPLES and ITEMS, or the folder of a saved review, or try --demo.")
    folder = examples
    if items is None and class_names is not None:
        examples, items = None, examples
    if items is None:
        if output is not None:
            raise InputError("-o names the folder of a new review; one that goes on stays where it is.")
        run_review(None, folder, port=port, browser=not no_browser, exports=exports)
        return
    if exports.some:
        raise InputError("Exports are made of a saved review: manyway review FOLDER --export FILE.")
    source = Inputs(
        examples,
        items,
        labels,
        encoder,
        skip_bad,
        label_column,
        item_column,
        ignore_columns or (),
        feature_columns or (),
        class_names,
        text_column=text_column,
        sheet=sheet,
        cached=not no_cache,
    ).with_encoder()
    from manyway.core.device import resolve_device

    known, pile, named = source.read(resolve_device(device))
    data = features_data(source, known, pile, named, pictures, open_set=open_set)
    run_review(data, output or DEFAULT_FOLDER, port=port, browser=not no_browser)


@dataclass(frozen=True)
class Exports:
    """What is written of a saved review."""

    labels: Path | None = None
    examples: Path | None = None
    folders: Path | None = None
    copy: bool = False

    @property
    def some(self) -> bool:
        """Whether anything is written."""
        return any(path is not None for path in (self.labels, self.examples, self.folders))

    def write(self, session: Session, find: Callable[..., Path | bytes | None] | None) -> None:
        """Write everything, and close the session."""
        from manyway.review.export import export_examples, export_folders, export_labels

        try:
            if self.labels is not None:
                say(f"{export_labels(session, self.labels)} labels are in {self.labels}.")
            if self.examples is not None:
                say(f"{export_examples(session, self.examples, find)} examples are in {self.examples}.")
            if self.folders is not None:
                if find is None:
                    raise InputError("Only pictures are sorted into folders, and this review has none.")
                count = export_folders(session, self.folders, find, copy=self.copy)
                say(f"{count} of {len(session.data.names)} pictures are in {self.folders}.")
        finally:
            session.close()
        if session.journal.damage:
            raise InputError(f"{session.journal.damage} Answers that are lost are not in the export.")


def check_review(method: str = "evidence", dask: str | None = None, *, several: bool = False) -> None:
    """Refuse a review that could not be started, before any work is done."""
    for library in ("starlette", "uvicorn", "PIL"):
        optional(library, "review", "manyway review")
    if method != "evidence" or dask is not None:
        raise InputError("A review labels the items with evidence, in memory; leave out --method and --dask.")
    if several:
        raise InputError("A review gives each item one class; label items with several classes without a review.")


def features_data(
    source: Inputs,
    examples: Items,
    items: Items,
    class_names: Items | None = None,
    pictures: Path | None = None,
    *,
    open_set: bool = False,
) -> ReviewData:
    """What to review, and where its pictures are."""
    import os

    from manyway.encoding.datasets.originals import open_originals
    from manyway.encoding.encoders import encodes_texts
    from manyway.review.data import NAMES, PICTURES, TAKEN, TEXTS, ReviewData

    if pictures is not None and not pictures.is_dir():
        raise InputError(f"--pictures names {pictures}, which is not a folder.")
    if source.encoder is None:
        kind = NAMES if pictures is None else PICTURES
        origins = {} if pictures is None else dict.fromkeys(("examples", "items"), os.path.abspath(pictures))
    else:
        kind = TEXTS if encodes_texts(source.encoder, source.query) else PICTURES
        origins = {"examples": os.path.abspath(source.support or source.query), "items": os.path.abspath(source.query)}
    if kind == PICTURES and TAKEN not in items.carried:
        with console(stderr=True).status("reading when the pictures were taken …"):
            found = open_originals(origins["items"])
            taken = [found.taken(items.name(row)) for row in range(len(items))]
        items = replace(items, carried={**items.carried, **({TAKEN: taken} if any(taken) else {})})
    return ReviewData(examples, items, kind, source.query.name, origins, open_set, class_names)


def scores_data(batch: Batch, name: str, pictures: Path | None = None, *, open_set: bool = False) -> ReviewData:
    """The same for the scores of a classifier."""
    import os

    from manyway.files.items import Items
    from manyway.review.data import NAMES, PICTURES, ReviewData

    tasks = batch.tasks
    names = [batch.items.name(row) for row in range(len(batch.items))]
    labels = tuple(batch.classes[k] for k in tasks.support_labels[0].tolist())
    carried = getattr(batch.items, "carried", {})
    examples, items = (
        Items(tasks.support[0].cpu(), labels, None),
        Items(tasks.query[0].cpu(), None, names, skipped=batch.items.skipped, carried=carried),
    )
    if pictures is not None and not pictures.is_dir():
        raise InputError(f"--pictures names {pictures}, which is not a folder.")
    origins = {} if pictures is None else {"items": os.path.abspath(pictures)}
    kind = NAMES if pictures is None else PICTURES
    return ReviewData(examples, items, kind, name, origins, open_set, None, batch.classes)


def run_review(
    data: ReviewData | None,
    folder: Path,
    *,
    port: int = 8765,
    browser: bool = True,
    exports: Exports | None = None,
    first: Solution | None = None,
    kept: bool = True,
) -> None:
    """Start or go on with a review: write exports where they are asked for, otherwise serve the page."""
    import shlex
    import webbrowser
    from contextlib import suppress

    from manyway.review.serve import open_review, serve

    exports = exports or Exports()
    with console(stderr=True).status("labelling the items …"):
        session = open_review(folder, data, first, read_only=exports.some)
    read, find = picture_access(session.data)
    if exports.some:
        exports.write(session, find if read is not None else None)
        return
    if session.journal.damage:
        note(session.journal.damage)

    def ready(address: str, file: Path) -> None:
        say(f"Review of {len(session.data.names)} items: {address}")
        if kept:
            again = f"manyway review {shlex.quote(str(folder))}"
            say(f"Answers are saved in {folder}. Stop with Ctrl-C; go on later with: {again}")
        else:
            say("Stop with Ctrl-C. The answers of this demonstration are deleted then; -o FOLDER keeps them.")
        if browser and file.exists():
            webbrowser.open(file.absolute().as_uri())

    def announce(address: str) -> None:
        say(f"Another browser asks to be let in. If it is yours, open there: {address}")

    pictures = None if read is None else find
    with suppress(KeyboardInterrupt):
        serve(session, folder, thumbnail=read, find=pictures, port=port, ready=ready, announce=announce)
    progress = session.progress()
    say(f"{progress['reviewed']} of {progress['items']} items are reviewed.")


def picture_access(
    data: ReviewData,
) -> tuple[Callable[[str, int, int], bytes] | None, Callable[[str, int], Path | bytes | None]]:
    """Functions that make the thumbnail of an example or item and find its original; the first is None for texts."""
    from manyway.encoding.datasets.originals import thumbnail
    from manyway.review.data import PICTURES

    origins = data.origins or {}
    opened = {which: _open_pictures(origin) for which, origin in origins.items()}

    def name_of(which: str, row: int) -> str:
        return data.picture(row) if which == "items" else data.examples.name(row)

    def make(which: str, row: int, size: int) -> bytes:
        if which not in opened:
            raise InputError("Examples of scores have no pictures.")
        box = data.box(row) if which == "items" else None
        return thumbnail(opened[which].read(name_of(which, row)), size, box)

    def find(which: str, row: int) -> Path | bytes | None:
        name = name_of(which, row)
        try:
            path = opened[which].path(name)
            if path is not None and opened[which].holds(path):
                return path
            content = opened[which].read(name)
            if path is not None:
                thumbnail(content, 16)  # a link out of the folder: only what can be seen as a picture is copied
            return content
        except (OSError, InputError):
            return None

    return make if data.kind == PICTURES else None, find


def _open_pictures(origin: str) -> Originals:
    from manyway.encoding.datasets.originals import Originals, open_originals

    if origin == _GLYPHS:
        return Originals(_letter)
    return open_originals(origin)


def _letter(name: str) -> bytes:
    """A drawing of an embedded letter, dark on light, as a file; its name holds its row among the features."""
    from manyway.encoding.datasets.drawings import grey_file
    from manyway.training.glyphs import SAMPLES

    letter, index = divmod(int(Path(name).stem), SAMPLES)
    with _drawing:
        drawn = _drawings(letter, _SHOTS if index < _SHOTS else SAMPLES)  # most letters are examples only
        return grey_file(255 - drawn[index].numpy())


@cache
def _drawings(letter: int, count: int) -> Tensor:
    """[count, 28, 28] the first drawings of an embedded letter."""
    from manyway.sampling.embedded import load_glyphs
    from manyway.training.glyphs import draw

    return draw(load_glyphs().class_names[letter], range(count))


def demo_data() -> ReviewData:
    """Three drawings of each of 215 letters as examples, and drawings of some letters as items."""
    import numpy as np

    from manyway.files.items import Items
    from manyway.review.data import PICTURES, ReviewData
    from manyway.sampling.embedded import load_glyphs
    from manyway.training.glyphs import SAMPLES

    letters = load_glyphs()
    features = letters.features
    generator = np.random.default_rng(3)
    present = generator.choice(letters.n_classes, 14, replace=False)
    counts = generator.integers(4, SAMPLES - _SHOTS, len(present))
    known = [k * SAMPLES + i for k in range(letters.n_classes) for i in range(_SHOTS)]
    pile = [k * SAMPLES + _SHOTS + i for k, count in zip(present, counts, strict=True) for i in range(count)]
    pile = generator.permutation(pile).tolist()
    examples = Items(
        features[known],
        tuple(letters.class_names[row // SAMPLES] for row in known),
        [f"{row:04d}.png" for row in known],
        letters.base_mean,
    )
    items = Items(features[pile], None, [f"{row:04d}.png" for row in pile], letters.base_mean)
    return ReviewData(examples, items, PICTURES, "Letters", dict.fromkeys(("examples", "items"), _GLYPHS))

"""``manyway review``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from os.path import abspath, lexists
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from manyway import core, encoding, files, labelling, sampling, training
from manyway import review as reviews
from manyway.cli.console import console, note, say
from manyway.cli.options import (
    FormOption,
    KindOption,
    OpenSetOption,
    OptionGroup,
    ReadingOptions,
    command,
    may_replace,
)
from manyway.errors import InputError, counted, optional

if TYPE_CHECKING:
    from torch import Tensor

    from manyway.cli.inputs import Inputs, Read, ScoreInputs


DEFAULT_FOLDER = Path("review")
Find = Callable[[str, int], Path | bytes | None]  # the original of an example or item
_drawing = Lock()  # several pictures of a letter are asked for at once, and drawn once
_SHOTS = 3  # examples per letter of the demonstration
_LOOKED_AT = 100  # pictures of which one must be there
_GLYPHS = "embedded letters"  # where the pictures of the demonstration come from


@dataclass(frozen=True, kw_only=True)
class ExportOptions(OptionGroup):
    """What is to be written of a saved review; None where it is not asked for."""

    export: Path | None = None
    form: FormOption = None
    export_examples: Path | None = None
    overwrite: bool = False
    sort_into: Path | None = None
    copy: bool = False

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        wanted = (self.export, self.export_examples, self.sort_into)
        return any(path is not None for path in wanted)

    @property
    def replaced(self) -> tuple[Path, ...]:
        """The files that are written, perhaps in the place of others; folders are always new."""
        wanted = (self.export, self.export_examples)
        return tuple(path for path in wanted if path is not None and not path.is_dir())

    @property
    def into_scores(self) -> bool:
        """Whether labels are written in the format that the scores came in."""
        return labelling.find_format(self.form, self.export) == labelling.INPUT

    def check(self) -> None:
        """Refuse an unknown format, and to replace a file of the user."""
        labelling.find_format(self.form, self.export)
        for path in self.replaced:
            files.check_output(path, overwrite=may_replace(path, self.overwrite))

    def refuse(self) -> None:
        """Refuse exports where there is no saved review."""
        if self.any:
            hint = "manyway review FOLDER --export FILE"
            raise InputError(f"Exports are made of a saved review: {hint}.")


@command
def review(
    examples: Path | None = None,
    items: Path | None = None,
    *,
    output: Annotated[Path | None, typer.Option("--output", "-o")] = None,
    demo: bool = False,
    exports: ExportOptions,
    class_names: Path | None = None,
    scores: Path | None = None,
    kind: KindOption = "auto",
    pictures: Path | None = None,
    open_set: OpenSetOption = False,
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8765,
    no_browser: bool = False,
    device: str | None = None,
    reading: ReadingOptions,
) -> None:
    """Look at the labels of a batch on a local web page, and correct them.

    The page shows the items grouped by suggested class, the least certain group first. Every answer
    is saved at once and labels the other items again. EXAMPLES and ITEMS are read as by `manyway
    label`.

    [bold]Examples:[/bold]

    Try it with drawings of letters:

        manyway review --demo

    Pictures, with the default encoder:

        manyway review catalogue/ photos/ -o birds

    Go on with a saved review, and write its labels:

        manyway review birds
        manyway review birds --export labels.csv

    Parameters
    ----------
    examples : EXAMPLES
        Labelled examples, or the folder of a saved review; or a table that is partly labelled.
    items : ITEMS
        Items to review, of the same kind.
    output : FOLDER
        Where the review is saved: answers, features and exports. Default: review. If it holds a
        review of the same items, that review goes on.
    demo
        Review drawings of letters that come with the package.
    export : FILE
        Write the labels of a saved review to a .csv, .tsv, .xlsx, .parquet or .jsonl file and stop.
        A review of scores is also written into the format that they came in: name a .json or .txt
        file, or give --format.
    form : FORMAT
        With --export: `table`, or `input` for the format of the scores. Default: by the ending.
    export_examples : PATH
        Write the examples of a saved review and its reviewed items, to a table or to a folder with
        one folder of pictures per class, and stop. `manyway label` reads them as examples.
    sort_into : FOLDER
        Sort the pictures of a saved review into a new folder with one folder per label, as relative
        links, and stop.
    copy
        With --sort-into: copy the pictures.
    pictures : FOLDER
        The folder of the pictures that the item names of a feature file refer to. Default: the
        pictures that were encoded; without any, names are shown.
    port
        The port on this computer; a port in use takes the next.
    no_browser
        Print the address and open no browser.
    """
    from manyway.cli.inputs import Inputs, ScoreInputs
    from manyway.methods.scores.kinds import SEVERAL

    check_review(several=kind == SEVERAL)
    serve = partial(run_review, port=port, browser=not no_browser)
    exports.check()
    if demo:
        _demonstrate(serve, output, examples)
    elif scores is not None:
        if items is not None or class_names is not None:
            raise InputError("With --scores give at most EXAMPLES: scores of labelled items.")
        given = ScoreInputs(
            scores=scores,
            examples=examples,
            labels=reading.labels,
            kind=kind,
            columns=reading.columns(),
        )
        data = _data_of_scores(given, device, pictures, open_set=open_set)
        serve(data, output or DEFAULT_FOLDER)
    elif examples is None:
        raise InputError("Name EXAMPLES and ITEMS, or the folder of a saved review, or try --demo.")
    elif items is None and class_names is None and not files.is_table(examples):
        _go_on(serve, examples, exports, output)
    else:
        exports.refuse()
        source = Inputs.of(examples, items, reading=reading, class_names=class_names)
        read = source.read(core.resolve_device(device))
        serve(features_data(source, read, pictures, open_set=open_set), output or DEFAULT_FOLDER)


def _data_of_scores(
    given: ScoreInputs, device: str | None, pictures: Path | None, *, open_set: bool
) -> reviews.ReviewData:
    """The scores of a classifier, for a review."""
    with given.batch(labelling.Place(device, in_blocks=False)) as batch:
        return scores_data(batch, given, pictures, open_set=open_set)


def _go_on(
    serve: Callable[..., None], folder: Path, exports: ExportOptions, output: Path | None
) -> None:
    """Go on with a saved review, or write what is asked of it."""
    if output is not None:
        raise InputError("-o names the folder of a new review; one that goes on stays where it is.")
    if exports.any:
        _export(folder, exports)
    else:
        serve(None, folder)


def _demonstrate(serve: Callable[..., None], output: Path | None, examples: Path | None) -> None:
    """Review drawings of letters, in a folder that is deleted in the end unless one is named."""
    import tempfile

    if examples is not None:
        raise InputError("--demo brings its own examples and items; name none.")
    if output is not None:
        serve(demo_data(), output)
        return
    with tempfile.TemporaryDirectory(prefix="manyway-demo-") as made:
        serve(demo_data(), Path(made) / "review", kept=False)


def _export(folder: Path, exports: ExportOptions) -> None:
    """Write labels, examples and folders of a saved review, where they are asked for."""
    session = _open(folder, read_only=True)
    find = picture_access(session.data).find
    try:
        inputs = (*reviews.inputs_of(session), folder)
        for path in exports.replaced:
            files.check_output(path, inputs)
        if exports.sort_into is not None and not lexists(exports.sort_into):
            # pictures among those that were read would be read next time
            folders = map(Path, (session.data.origins or {}).values())
            files.check_output(exports.sort_into, (*inputs, *folders))
        if exports.export is not None:
            write = reviews.export_scores if exports.into_scores else reviews.export_labels
            count = write(session, exports.export)
            say(f"{counted(count, 'label is', 'labels are')} in {exports.export}.")
        if exports.export_examples is not None:
            count = reviews.export_examples(session, exports.export_examples, find)
            say(f"{counted(count, 'example is', 'examples are')} in {exports.export_examples}.")
        if exports.sort_into is not None:
            if find is None:
                raise InputError("Only pictures are sorted into folders, and this review has none.")
            count = reviews.export_folders(session, exports.sort_into, find, copy=exports.copy)
            say(f"{count} of {len(session.data.names)} pictures are in {exports.sort_into}.")
    finally:
        session.close()
    if session.journal.damage:
        lost = "Answers that are lost are not in the export."
        raise InputError(f"{session.journal.damage} {lost}")


def check_review(method: str = "evidence", dask: str | None = None, *, several: bool = False) -> None:
    """Refuse a review that could not be started, before any work is done."""
    for library in ("starlette", "uvicorn", "PIL"):
        optional(library, "review", "manyway review")
    if method != "evidence" or dask is not None:
        hint = "leave out --method and --dask"
        raise InputError(f"A review labels the items with evidence, in memory; {hint}.")
    if several:
        hint = "label items with several classes without a review"
        raise InputError(f"A review gives each item one class; {hint}.")


def features_data(
    source: Inputs, read: Read, pictures: Path | None = None, *, open_set: bool = False
) -> reviews.ReviewData:
    """What to review, and where its pictures are."""
    examples, items, class_names = read
    kind, origins = _in_folder(pictures, "examples", "items")
    if source.encoder is not None:
        kind = reviews.PICTURES
        origins = {"examples": abspath(source.support or source.query), "items": abspath(source.query)}
        if encoding.encodes_texts(source.encoder, source.query):
            kind = reviews.TEXTS
            origins = {}
    if kind == reviews.PICTURES and reviews.TAKEN not in items.carried:
        with console(stderr=True).status("reading when the pictures were taken …"):
            found = encoding.open_originals(origins["items"])
            taken = [found.taken(items.name(row)) for row in range(len(items))]
        if any(taken):
            items = replace(items, carried={**items.carried, reviews.TAKEN: taken})
    return reviews.ReviewData(
        examples=examples,
        items=items,
        kind=kind,
        title=source.query.name,
        origins=origins,
        open_set=open_set,
        class_names=class_names,
        inputs=_absolute(source.paths),
    )


def scores_data(
    batch: labelling.Batch,
    given: ScoreInputs,
    pictures: Path | None = None,
    *,
    open_set: bool = False,
) -> reviews.ReviewData:
    """The same for the scores of a classifier."""
    tasks = batch.tasks
    scores = labelling.scores_of(batch)
    items = files.Items(
        features=tasks.query[0].cpu(),
        labels=None,
        names=scores.names,
        columns=batch.classes,
        skipped=scores.skipped,
        carried=scores.carried,
    )
    examples = files.Items(
        features=tasks.support[0].cpu(),
        labels=tuple(batch.classes[k] for k in tasks.support_labels[0].tolist()),
        names=None,
        columns=batch.classes,
    )
    known = enumerate(tasks.known_labels[0].tolist())
    kind, origins = _in_folder(pictures, "items")
    return reviews.ReviewData(
        examples=examples,
        items=items,
        kind=kind,
        title=given.scores.name,
        origins=origins,
        open_set=open_set,
        scores=batch.classes,
        score_file=reviews.ScoreFile.of(scores),
        given={row: batch.classes[k] for row, k in known if k >= 0},
        inputs=_absolute(given.paths),
    )


def _absolute(paths: Iterable[Path | None]) -> tuple[str, ...]:
    """The paths that were given, as they are in any folder."""
    return tuple(abspath(path) for path in paths if path is not None)


def _in_folder(pictures: Path | None, *which: str) -> tuple[str, dict[str, str]]:
    """What is shown of items, names or the pictures of a folder, and where these are."""
    if pictures is None:
        return reviews.NAMES, {}
    if not pictures.is_dir():
        raise InputError(f"--pictures names {pictures}, which is not a folder.")
    return reviews.PICTURES, dict.fromkeys(which, abspath(pictures))


def run_review(
    data: reviews.ReviewData | None,
    folder: Path,
    *,
    port: int = 8765,
    browser: bool = True,
    first: core.Solution | None = None,
    kept: bool = True,
) -> None:
    """Start or go on with a review: serve the page."""
    import shlex
    import webbrowser

    from manyway.review.serve import serve

    if data is not None and data.origins:
        find = picture_access(data).find
        looked_at = range(min(_LOOKED_AT, len(data.names)))
        if find is not None and not any(find("items", row) for row in looked_at):
            missing = f"None of the pictures is in {data.origins['items']}, such as {data.picture(0)}"
            raise InputError(f"{missing}; name the folder that they are in with --pictures.")
    session = _open(folder, data, first)
    access = picture_access(session.data)
    if session.journal.damage:
        note(session.journal.damage)

    def ready(address: str, file: Path) -> None:
        say(f"Review of {counted(len(session.data.names), 'item')}: {address}")
        if kept:
            again = f"manyway review {shlex.quote(str(folder))}"
            say(f"Answers are saved in {folder}. Stop with Ctrl-C; go on later with: {again}")
        else:
            say("Stop with Ctrl-C. The answers of this demonstration are deleted then; -o FOLDER keeps them.")
        if browser and file.exists():
            webbrowser.open(file.absolute().as_uri())

    def announce(address: str) -> None:
        say(f"Another browser asks to be let in. If it is yours, open there: {address}")

    with suppress(KeyboardInterrupt):
        serve(
            session,
            folder,
            thumbnail=access.thumbnail,
            find=access.find,
            port=port,
            ready=ready,
            announce=announce,
        )
    progress = session.progress()
    say(f"{progress['reviewed']} of {progress['items']} items are reviewed.")


def _open(folder: Path, *given: Any, read_only: bool = False) -> reviews.Session:
    with console(stderr=True).status("labelling the items …"):
        return reviews.open_review(folder, *given, read_only=read_only)


class PictureAccess(NamedTuple):
    """How the pictures of a review are read; None where it has none.

    Parameters
    ----------
    thumbnail : callable or None
        Makes a small picture of an example or item: ("examples" or "items", row, size) -> a JPEG
        file.
    find : callable or None
        Finds the original of an example or item; None where it is missing.
    """

    thumbnail: Callable[[str, int, int], bytes] | None = None
    find: Find | None = None


def picture_access(data: reviews.ReviewData) -> PictureAccess:
    """How the pictures of a review are read."""
    if data.kind != reviews.PICTURES:
        return PictureAccess()
    drawn = encoding.Originals(_letter)
    opened = {
        which: drawn if place == _GLYPHS else encoding.open_originals(place)
        for which, place in (data.origins or {}).items()
    }

    def name_of(which: str, row: int) -> str:
        return data.picture(row) if which == "items" else data.examples.name(row)

    def make(which: str, row: int, size: int) -> bytes:
        if which not in opened:
            raise InputError("Examples of scores have no pictures.")
        box = data.box(row) if which == "items" else None
        return encoding.thumbnail(opened[which].read(name_of(which, row)), size, box)

    def find(which: str, row: int) -> Path | bytes | None:
        name = name_of(which, row)
        try:
            path = opened[which].path(name)
            if path is not None and opened[which].holds(path):
                return path
            content = opened[which].read(name)
            if path is not None:
                # A link out of the folder: only what can be seen is copied.
                encoding.thumbnail(content, 16)
            return content
        except (OSError, InputError):
            return None

    return PictureAccess(make, find)


def _letter(name: str) -> bytes:
    """A drawing of an embedded letter, dark on light, as a file.

    Its name holds its row among the features.
    """
    letter, index = divmod(int(Path(name).stem), training.SAMPLES)
    with _drawing:
        # Most letters are examples only.
        drawn = _drawings(letter, _SHOTS if index < _SHOTS else training.SAMPLES)
        return encoding.grey_file(255 - drawn[index].numpy())


@cache
def _drawings(letter: int, count: int) -> Tensor:
    """[count, 28, 28] the first drawings of an embedded letter."""
    return training.draw(sampling.load_glyphs().class_names[letter], range(count))


def demo_data() -> reviews.ReviewData:
    """Three drawings of each of 215 letters as examples, and drawings of some letters as items."""
    import numpy as np

    letters = sampling.load_glyphs()
    features = letters.features
    generator = np.random.default_rng(3)
    present = generator.choice(letters.n_classes, 14, replace=False)
    counts = generator.integers(4, training.SAMPLES - _SHOTS, len(present))
    known = [k * training.SAMPLES + i for k in range(letters.n_classes) for i in range(_SHOTS)]
    pile: list[int] = []
    for k, count in zip(present, counts, strict=True):
        first = k * training.SAMPLES + _SHOTS
        pile += range(first, first + count)
    pile = generator.permutation(pile).tolist()
    names = tuple(letters.class_names[row // training.SAMPLES] for row in known)
    examples, items = (
        files.Items(features[rows], labels, [f"{row:04d}.png" for row in rows], letters.base_mean)
        for rows, labels in ((known, names), (pile, None))
    )
    origins = dict.fromkeys(("examples", "items"), _GLYPHS)
    return reviews.ReviewData(examples, items, reviews.PICTURES, "Letters", origins)

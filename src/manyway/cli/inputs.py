"""What ``label`` and ``review`` read: examples and items, or the scores of a classifier.

It loads torch.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from manyway import encoding, files, labelling
from manyway.cli.console import console, note, say
from manyway.cli.options import ReadingOptions, progress_bar
from manyway.cli.plan import Part, Plan
from manyway.errors import InputError, install, nearest
from manyway.methods.scores.kinds import KINDS, SEVERAL

# The default encoder of what an input holds, and what to say about it.
_BETTER = "timm:vit_small_patch14_dinov2.lvd142m or open_clip:ViT-B-16/laion2b_s34b_b88k"
_ENGLISH = "it reads English; --encoder use-multilingual reads 16 languages"
_ONLINE = "and where there is a network sentence-transformers:all-mpnet-base-v2 is better"
_DEFAULTS = {
    "pictures": ("efficientnet-lite2", f"where there is a network, --encoder {_BETTER} is better"),
    "texts": ("minilm", f"{_ENGLISH}, {_ONLINE}"),
}


_TRIED = 8  # items that say how long an encoder takes
Read = tuple[files.Items, files.Items, files.Items | None]  # examples, items and class names


@dataclass(frozen=True)
class Inputs:
    """Files of features, pictures or texts, and how to read them."""

    support: Path | None  # None: classes are known by name only
    query: Path
    labels: Path | None
    class_names: Path | None
    encoder: str | None
    columns: files.Options
    cached: bool = True  # whether features of earlier runs are used, and new ones kept
    # what was read to choose the encoder
    texts: Mapping[str, encoding.Source] = field(default_factory=dict)
    alone: bool = False  # whether there are examples only, and no items

    @classmethod
    def of(
        cls,
        first: Path,
        second: Path | None = None,
        *,
        reading: ReadingOptions,
        class_names: Path | None = None,
        gaps: bool = True,
    ) -> "Inputs":
        """From the arguments of a command.

        A single one is a partly labelled table, or the items of named classes. ``gaps`` says
        whether rows that lack features can be used.
        """
        found = cls(
            support=None if second is None else first,
            query=first if second is None else second,
            labels=reading.labels,
            class_names=class_names,
            encoder=reading.encoder,
            columns=reading.columns(gaps=gaps),
            cached=not reading.no_cache,
        )
        if second is None and class_names is None:
            if not files.is_table(first):
                hint = "give EXAMPLES and ITEMS, a table that has labels in some rows, or --class-names and ITEMS"
                raise InputError(f"There is one input; {hint}.")
            found = replace(
                found, support=first, columns=files.open_partly_labelled(first, found.columns)
            )
        return found.with_encoder()

    @classmethod
    def of_examples(cls, examples: Path, reading: ReadingOptions) -> "Inputs":
        """Examples without items. Of a table that is partly labelled, they are the rows
        that have a label.
        """
        columns = reading.columns(gaps=True)
        if reading.labels is None and files.is_table(examples):
            columns = replace(columns, labelled=True, all_labelled=True)
        found = cls(
            support=examples,
            query=examples,
            labels=reading.labels,
            class_names=None,
            encoder=reading.encoder,
            columns=columns,
            cached=not reading.no_cache,
            alone=True,
        )
        return found.with_encoder()

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """What is read, and must not be written over."""
        return self.support, self.query, self.labels, self.class_names

    def with_encoder(self) -> "Inputs":
        """The same with the default encoder, if one is needed and none was named; says which.

        Pictures and texts need one.
        """
        _check_sheet(self.columns, self.paths)
        if self.encoder is not None:
            return self
        given = [path for path in (self.support, self.query, self.class_names) if path is not None]
        kinds: list[str] = []
        for path in given:  # the examples say what is wanted where the items have texts and numbers
            kinds.append(encoding.kind_of(path, self.columns, kinds[0] if kinds else None))
        kind = kinds[0]
        if set(kinds) == {encoding.FEATURES}:
            return self
        for path in given:
            if not path.exists():
                raise InputError(f"There is no file or folder {path}.")
        if (
            self.class_names is not None
            and kinds[-1] == encoding.TEXTS
            and set(kinds[:-1]) == {encoding.PICTURES}
        ):
            both = f"name an encoder that reads both with --encoder, such as {encoding.PICTURES_AND_TEXTS}"
            raise InputError(f"{self.query} holds pictures and {self.class_names} texts; {both}.")
        for path, other in zip(given, kinds, strict=True):
            if other != kind:
                for features in (
                    given[at] for at, what in enumerate(kinds) if what == encoding.FEATURES
                ):
                    # says what is wrong with a file that cannot be read
                    files.read_items(features, self.columns)
                command = "manyway extract SOURCE --encoder NAME --out FILE.safetensors"
                hint = f"they must be of one kind. To make features of pictures or texts: {command}"
                raise InputError(f"{given[0]} holds {kind} and {path} holds {other}; {hint}.")
        name, hint = _DEFAULTS[kind]
        texts = self._sources(encoding.open_texts) if kind == encoding.TEXTS else {}
        share, seen = _other_languages(texts.values())
        if seen:
            hint = f"{seen}, and --encoder use-multilingual reads 16 languages"
        if share >= encoding.ENOUGH:
            name = "use-multilingual"
            hint = f"it reads 16 languages, and {seen}"
        if not encoding.PACKAGED[name].installed():
            hint = f"install the default one with {install(kind)}, or name another with --encoder"
            raise InputError(f"{self.query} holds {kind}, which need an encoder; {hint}.")
        note(f"{kind} are encoded with {name}; {hint}")
        return replace(self, encoder=name, texts=texts)

    def _sources(self, opening: Callable[..., encoding.Source]) -> dict[str, encoding.Source]:
        """Class names, examples and items as they are opened.

        In the items, the text column of the examples counts.
        """
        sources: dict[str, encoding.Source] = {}
        paths = {"class names": self.class_names, "examples": self.support}
        if not self.alone:
            paths["items"] = self.query
        for what, path in paths.items():
            if path is not None:
                text = getattr(sources.get("examples"), "text_column", "")
                labelled = self.columns.labelled and what != "items"
                options = replace(
                    self._options(what), like=(text,) if text else None, labelled=labelled
                )
                sources[what] = opening(path, options=options, need_labels=what != "items")
        return sources

    def _options(self, what: str) -> files.Options:
        """How to read a table.

        The labels of examples must be there, and the items help to find their column.
        """
        if what != "examples" or self.labels is not None:
            return self.columns
        is_one_table = self.alone or self.columns.labelled
        items = None if is_one_table else files.columns_of(self.query, self.columns)
        return replace(self.columns, find_label=True, columns_of_items=items)

    def read(self, device: torch.device) -> Read:
        """Read or encode examples, items and class names, and print what the reader guessed."""
        examples, items, named = (
            self._features() if self.encoder is None else self._encode(self.encoder, device)
        )
        for path, part in ((self.support, examples), (self.query, items)):
            for sentence in encoding.remarks(part.skipped, ()):
                note(f"{sentence} ({path})")
        classes = (
            files.remarks_on_classes(self.support or self.query, examples.labels or ())
            if self.encoder
            else ()
        )
        for remark in dict.fromkeys((*examples.notes, *classes, *items.notes)):
            note(remark)
        if self.labels is not None:
            names = files.read_labels(
                self.labels,
                self.columns.label_column,
                item_column=self.columns.item_column,
                examples=examples,
                say=note,
            )
            if len(names) != len(examples):
                given = f"{len(names)} labels for {len(examples)} examples"
                raise InputError(f"{self.labels} has {given}; give one for each.")
            if examples.labels is not None and examples.labels != names:
                note(f"the labels in {self.labels} are used, not those in {self.support}")
            for remark in files.remarks_on_classes(self.labels, names):
                note(remark)
            examples = replace(examples, labels=names)
        if len(examples) == len({*(examples.labels or ("",))}):
            note(
                "every class has one example, which cannot teach how sure to be: do not rely on the probabilities"
            )
        if (
            self.columns.labelled is not None
            and items.origin is not None
            and examples.origin is not None
        ):
            known = examples.origin.labelled(examples.labels or (), examples.skipped)
            items = replace(items, origin=replace(items.origin, known=known))
        if items.all_alike():
            note(f"all items in {self.query} have the same features; check the encoder or the file")
        return examples, items, named

    def plan(self, device: torch.device) -> Plan:
        """What would be read, with which encoder, and about how long it takes.

        What the readers guess about columns is printed.
        """
        if self.encoder is None:
            started = time.perf_counter()
            examples, items, _ = self.read(device)
            seconds = time.perf_counter() - started
            given = (
                (self.support, "examples", examples),
                (self.query, "items", items),
            )
            parts = [
                _part_of_features(path, what, rows)
                for path, what, rows in given
                if path is not None and len(rows)
            ]
            return Plan(parts, seconds)
        opened = encoding.open_encoder(self.encoder, device=device, say=partial(say, stderr=True))
        sources = self.texts or self._sources(partial(encoding.open_for, opened))
        remarks = [remark for source in sources.values() for remark in source.notes]
        for remark in dict.fromkeys(remarks):
            note(remark)
        parts = [_part_of_source(what, source) for what, source in sources.items()]
        seconds = sum(map(len, sources.values())) * _seconds_per_item(opened, sources["items"])
        return Plan(parts, seconds, self.encoder)

    def _features(self) -> Read:
        if self.alone:
            assert self.support is not None
            examples = files.read_items(
                self.support, replace(self.columns, find_label=self.labels is None)
            )
            self._check_columns(examples.header, ())
            return examples, _no_items(examples), None
        named = (
            None if self.class_names is None else files.read_items(self.class_names, self.columns)
        )
        # Of a partly labelled table the items are the other rows.
        blank = replace(self.columns, labelled=None if self.columns.labelled is None else False)
        beside = None if self.support is None else files.open_beside(self.query, blank)
        theirs = beside.names if beside is not None and self.columns.labelled is None else None
        wanted = self.labels is None
        columns = replace(self.columns, beside=beside, find_label=wanted, columns_of_items=theirs)
        examples = (
            _no_examples(named) if self.support is None else files.read_items(self.support, columns)
        )
        items = files.read_items(self.query, blank, like=examples, beside=beside)
        self._check_columns(examples.header, items.header)
        return examples, items, named

    def _check_folders(self) -> None:
        """Refuse examples and items of which one lies in the folder of the other."""
        known, pile = (
            None if path is None else path.resolve() for path in (self.support, self.query)
        )
        if known is None or pile is None:
            return
        if known in pile.parents:
            raise InputError(
                f"The items {self.query} lie in the folder of examples {self.support}; move them out."
            )
        if pile in known.parents:
            raise InputError(
                f"The examples {self.support} lie in the folder of items {self.query} and would be "
                "labelled with them; move them out."
            )

    def _encode(self, encoder: str, device: torch.device) -> Read:
        speak = partial(say, stderr=True)
        self._check_folders()
        opened = encoding.open_encoder(encoder, device=device, say=speak)
        remark = encoding.remark_on_engine(opened)
        if remark is not None:
            note(remark)
        sources = self.texts or self._sources(partial(encoding.open_for, opened))
        first = "class names" if self.support is None else "examples"
        self._check_columns(sources[first].header, () if self.alone else sources["items"].header)
        if "examples" in sources and self.labels is None and not sources["examples"].is_labelled:
            hint = "put pictures into a folder per class, give texts a column `label`, or name a file with --labels"
            raise InputError(
                f"The labelled examples in {self.support} (they come first) have no labels; {hint}."
            )
        for source in sources.values():
            if isinstance(source, encoding.ImageSource):
                encoding.check_pictures(source, skip_bad=self.columns.skip_bad)
        bar = progress_bar(console(stderr=True))
        parts = {what: encoding.part_for(opened, source) for what, source in sources.items()}
        with bar, ExitStack() as stack:
            used = {*parts.values()} if self.cached else ()
            caches = {part: stack.enter_context(encoding.cache_for(part, speak)) for part in used}
            left = sum(map(len, sources.values()))
            task = bar.add_task("encoding", total=left)

            def advance(n_done: int, n_encoded: int) -> None:
                nonlocal left
                left -= n_done - n_encoded  # only what has to be encoded takes time
                bar.update(task, advance=n_encoded, total=left, visible=left > 0)

            read = {}
            for what, source in sources.items():
                bar.update(task, description=f"encoding {what}")
                encode = partial(
                    encoding.encode_items, source, parts[what], cache=caches.get(parts[what])
                )
                read[what] = encode(skip_bad=what != "class names", progress=advance)
        named = read.get("class names")
        examples = read["examples"] if "examples" in read else _no_examples(named)
        items = _no_items(examples) if self.alone else read["items"]
        return examples, items, named

    def _check_columns(self, examples: Sequence[str], items: Sequence[str]) -> None:
        """Refuse a column that was asked for and that no table has: it is a slip of the pen."""
        name = None if self.labels is not None else self.columns.label_column
        if name is not None and examples and files.find_column(examples, name) is None:
            raise InputError(
                f"The labelled examples have no column '{name}'; {nearest(name, examples)}"
            )
        headers = [header for header in (examples, items) if header]
        asked = self.columns
        for name in filter(
            None,
            (asked.item_column, asked.text_column, *asked.ignore_columns, *asked.feature_columns),
        ):
            if headers and all(files.find_column(header, name) is None for header in headers):
                raise InputError(f"There is no column '{name}'; {nearest(name, headers[-1])}")


def _seconds_per_item(opened: encoding.Encoder, source: encoding.Source) -> float:
    """How long it takes to encode an item, by the first few, once the encoder is loaded."""
    first = encoding.first_items(source, _TRIED)
    encoding.encode(encoding.first_items(source, 1), opened, skip_bad=True)
    started = time.perf_counter()
    encoding.encode(first, opened, skip_bad=True)
    return (time.perf_counter() - started) / len(first)


def _part_of_features(path: Path, what: str, rows: files.Items) -> Part:
    classes = None if rows.labels is None else len({*rows.labels})
    return Part(str(path), what, len(rows), classes, rows.n_features)


def _part_of_source(what: str, source: encoding.Source) -> Part:
    classes = len(source.class_names) if source.is_labelled else None
    return Part(source.title, what, len(source), classes)


def _check_sheet(columns: files.Options, paths: Iterable[Path | None]) -> None:
    if columns.sheet and not any(p.is_dir() or files.has_sheets(p) for p in filter(None, paths)):
        raise InputError(
            "--sheet names a sheet of an Excel file (.xlsx, .xlsm), and no input is one; leave it out."
        )


def _other_languages(sources: Iterable[encoding.Source]) -> tuple[float, str]:
    """The largest share of texts that are not English, and what to say about all."""
    found = [Counter(map(encoding.language, getattr(source, "texts", ()))) for source in sources]
    share = max((1 - each[encoding.ENGLISH] / each.total() for each in found if each), default=0.0)
    seen = sum(found, Counter[str]())
    names = [name for name, _ in seen.most_common() if name != encoding.ENGLISH]
    several = " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    others = seen.total() - seen[encoding.ENGLISH]
    return share, f"{others} of {seen.total()} texts seem to be {several}" if names else ""


def _no_examples(named: files.Items | None) -> files.Items:
    """No examples, in the space of the class names."""
    assert named is not None
    return replace(named, features=named.features[:0], labels=(), names=None, skipped=(), notes=())


def _no_items(examples: files.Items) -> files.Items:
    """No items, in the space of the examples."""
    return files.Items(
        features=examples.features[:0], labels=None, names=(), columns=examples.columns
    )


class ScoreInputs(NamedTuple):
    """Files of scores of a classifier, and how to read them."""

    scores: Path
    examples: Path | None
    labels: Path | None
    kind: str
    columns: files.Options
    class_prior: Path | None = None
    taxonomy: Path | None = None
    media: Path | None = None
    expect: Path | None = None

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """What is read, and must not be written over."""
        return (
            self.scores,
            self.examples,
            self.labels,
            self.class_prior,
            self.taxonomy,
            self.media,
            self.expect,
        )

    def _labels_of(self, scores: files.Scores) -> dict[str, str]:
        """The labels of items, with a note where these are called by numbers from 0."""
        assert self.labels is not None
        if list(scores.names) == [str(number) for number in range(len(scores))]:
            counted_from = f"the items of {self.scores.name} are called 0, 1, 2, …"
            note(f"{counted_from}; the labels of {self.labels.name} go to them by these numbers")
        return files.read_item_labels(self.labels, self.columns)

    def batch(self, place: labelling.Place) -> AbstractContextManager[labelling.Batch]:
        """Read everything, print what the readers guessed, and make a batch."""
        _check_sheet(self.columns, self.paths)
        if self.kind not in (*KINDS, SEVERAL):
            raise InputError(
                f"--score-kind is '{self.kind}'; choose one of {', '.join((*KINDS, SEVERAL))}."
            )
        if self.kind == SEVERAL and self.examples is not None:
            raise InputError("EXAMPLES are for items with one class; leave them out, or --several.")
        with console(stderr=True).status(f"reading {self.scores} …"):
            scores = files.read_scores(self.scores, self.columns)
            scores = scores if self.media is None else files.with_media(scores, self.media)
            examples = (
                None if self.examples is None else files.read_scores(self.examples, self.columns)
            )
        if examples is not None and examples.labels is None:
            raise InputError(
                f"{self.examples} has no column of labels; scores are calibrated on labelled items."
            )
        if scores.independent and self.kind == "auto":
            note(
                f"each class of {self.scores.name} has a score of its own: one is chosen; --several allows more"
            )
        for remark in (*scores.notes, *(() if examples is None else examples.notes)):
            note(remark)
        class_prior = None if self.class_prior is None else files.read_class_prior(self.class_prior)
        expected = None if self.expect is None else files.read_expected(self.expect, scores)
        if expected is not None:
            said = expected.without_effect(len(class_prior or scores.classes))
            remarks = (*expected.notes, said if self.kind != SEVERAL else "")
            for remark in filter(None, remarks):
                note(remark)
        return labelling.scores_batch(
            scores,
            place,
            examples=examples,
            labels=None if self.labels is None else self._labels_of(scores),
            kind=None if self.kind == "auto" else self.kind,
            class_prior=class_prior,
            levels=None if self.taxonomy is None else labelling.read_taxonomy(self.taxonomy),
            expected=None if expected is None else expected.likely,
        )

    def plan(self, device: torch.device) -> Plan:
        """What would be read; what the readers guess is printed."""
        started = time.perf_counter()
        with self.batch(labelling.Place(device)) as batch:
            part = Part(str(self.scores), "items with scores", len(batch.items), len(batch.classes))
            told = self.labels or self.examples or self.scores
            known = [Part(str(told), "known labels", batch.n_labelled)]
            parts = [part, *(known if batch.n_labelled else [])]
        return Plan(parts, time.perf_counter() - started)

    def check_target(self, output: Path | None, form: str, *, overwrite: bool) -> Path:
        """Where the answers go, after checking that nothing of value is replaced."""
        check = partial(labelling.check_table, output, self.paths, overwrite=overwrite)
        answers = files.answer_format(form, labelling.TABLE, labelling.INPUT)
        if form != labelling.INPUT:
            return check(endings=None if answers is None else answers.endings)
        if output is None or not self.scores.is_dir():
            return check(endings=(*files.endings_of_answers(), *files.written_tables()))
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise InputError(f"The output {output} exists; name a new folder.")
        if output.resolve().is_relative_to(self.scores.resolve()):
            raise InputError(
                f"The output {output} lies in the input folder {self.scores}; choose another name."
            )
        return output

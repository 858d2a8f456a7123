"""What is reviewed: examples, items and where their pictures are.

It is saved in the folder of the review.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open
from safetensors.torch import save_file

from manyway.errors import InputError
from manyway.files import BOX, SOURCE, Items, Scores, TableOrigin, atomic_write, box_of, trying
from manyway.files import FILE as IN_FILE

PICTURES = "pictures"
TEXTS = "texts"
NAMES = "names"
FILE = "review.safetensors"
JOURNAL = "journal.jsonl"
TAKEN = "taken"  # the column that says when a picture was taken
_SECONDS = timedelta(seconds=10)  # between the pictures of a burst
_FORMAT = 2
_PARTS = ("examples", "items", "class_names")  # what is saved as arrays
_PLAIN = ("kind", "title", "open_set", "scores")  # what is saved as it is


class ScoreFile(NamedTuple):
    """The file of another program that scores were read from.

    Labels can be written into it.

    Parameters
    ----------
    path : str
        The file or folder.
    format : str
        What it is, as people call it.
    checksum : str
        The SHA-256 of what was read.
    """

    path: str
    format: str
    checksum: str

    @classmethod
    def of(cls, scores: Scores) -> "ScoreFile | None":
        """Where scores come from.

        None where labels cannot be written back, because it is a table.
        """
        paths = [origin.path for origin in scores.origins]
        if not paths or sum(origin.n_items for origin in scores.origins) < len(scores):
            return None
        path = str(paths[0])
        if SOURCE in scores.carried:  # a folder of such files
            path = os.path.commonpath([one.parent for one in paths])
        digest = hashlib.sha256()
        for one in paths:
            digest.update(one.read_bytes())
        return cls(os.path.abspath(path), scores.origins[0].format.name, digest.hexdigest())


@dataclass(frozen=True, eq=False)
class ReviewData:
    """Labelled examples and items to review.

    Parameters
    ----------
    examples, items : Items
        As for ``manyway label``. Items that could not be read (``items.skipped``) are reviewed too:
        they have no features, so nothing is suggested for them.
    kind : {"pictures", "texts", "names"}
        What the page shows: pictures, texts, or the names alone.
    title : str
        The heading of the page.
    origins : mapping of str to str, optional
        Where the pictures of ``examples`` and ``items`` come from, in words that the opener of
        pictures understands.
    open_set : bool, default=False
        Whether items may be unknown.
    class_names : Items, optional
        One vector per class, such as the text embedding of its name. Classes then need no examples.
    scores : tuple of str
        The classes of a classifier, where the rows of items and examples are its log-probabilities;
        () for features.
    score_file : ScoreFile, optional
        Where the scores were read from, if labels can be written back into it.
    given : mapping of int to str
        Labels of items that are known before the review. They are its first answers.
    inputs : tuple of str
        The files and folders that all of this was read from.
    """

    examples: Items
    items: Items
    kind: str = NAMES
    title: str = "review"
    origins: Mapping[str, str] | None = None
    open_set: bool = False
    class_names: Items | None = None
    scores: tuple[str, ...] = ()
    score_file: ScoreFile | None = None
    given: Mapping[int, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()

    @property
    def protected(self) -> tuple[Path, ...]:
        """What was read for the review and is still there: no export is written over it."""
        paths = [Path(path) for path in self.inputs]
        origins = [items.origin for items in (self.examples, self.items)]
        paths += [origin.path for origin in origins if origin is not None]
        if self.score_file is not None:
            paths.append(Path(self.score_file.path))
        # What cannot be looked at, in the folder of another person, cannot be written over either.
        return tuple(path for path in paths if os.path.exists(path))

    @cached_property
    def catalogue(self) -> tuple[str, ...]:
        """The classes that are known before the review."""
        if self.scores:
            return self.scores
        named = self.examples if self.class_names is None else self.class_names
        return tuple(sorted(set(named.labels or named.names or ())))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all items, those that could not be read last."""
        read = (self.items.name(row) for row in range(len(self.items)))
        return (*read, *(name for name, _ in self.items.skipped))

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """What the page shows of all items: their texts, where they are texts, or their names."""
        return (*map(self.items.text, range(len(self.items))), *self.names[len(self.items) :])

    @cached_property
    def columns(self) -> dict[str, list[str]]:
        """What else is known about all items, as texts.

        It is the columns of their file, and the folders of pictures.
        """
        told = self.items.texts  # a column of texts is what the page shows: once is enough
        found = {}
        for name, cells in self.items.carried.items():
            is_shown = told is not None and tuple(cells[: len(told)]) == tuple(told)
            if name not in (*BOX, IN_FILE) and not is_shown:
                texts = [*map(_cell, cells), *[""] * len(self.items.skipped)]
                found[name] = texts[: len(self.names)]
        folders = [self.picture(row).rpartition("/")[0] for row in range(len(self.names))]
        if self.kind == PICTURES and len(set(folders)) > 1:
            found.setdefault("folder", folders)
        return found

    @cached_property
    def bursts(self) -> list[int]:
        """[n] the number of each item's burst, -1 for none.

        A burst is pictures of one folder that were taken within seconds.
        """
        times = [_time(text) for text in self.columns.get(TAKEN, ())]
        folders = self.columns.get("folder", [""] * len(times))
        found = [-1] * len(self.names)
        number = 0
        order = sorted((folders[row], time, row) for row, time in enumerate(times) if time)
        for (folder, time, row), (other, later, after) in pairwise(order):
            if folder == other and later - time <= _SECONDS:
                number += found[row] < 0
                found[row] = found[after] = number
        return found

    def picture(self, row: int) -> str:
        """The name of the picture that an item is in."""
        carried = self.items.carried.get(IN_FILE)
        if carried is None or row >= len(self.items):
            return self.names[row]
        return str(carried[row])

    def box(self, row: int) -> tuple[float, ...] | None:
        """Left, top, width and height of an item, in parts of its picture.

        None is all of the picture.
        """
        if row >= len(self.items):
            return None
        return box_of({name: cells[row] for name, cells in self.items.carried.items()})

    @cached_property
    def items_hash(self) -> str:
        """Identifies the items: the SHA-256 of their names and features."""
        digest = hashlib.sha256(json.dumps(self.names).encode())
        step = 4096
        for start in range(0, len(self.items), step):
            digest.update(self.items.rows(start, start + step).numpy().tobytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write everything into the folder of a review.

        It then needs neither the files nor the encoder again.
        """
        parts = {name: getattr(self, name) for name in _PARTS if getattr(self, name) is not None}
        tensors = {name: items.rows(0, len(items)).contiguous() for name, items in parts.items()}
        if self.examples.base_mean is not None:
            tensors["base_mean"] = self.examples.base_mean.contiguous()
        about: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        about |= {name: _about(items) for name, items in parts.items()}
        about["format"] = _FORMAT
        about["origins"] = dict(self.origins or {})
        about["inputs"] = list(self.inputs)
        about["score_file"] = None if self.score_file is None else self.score_file._asdict()
        text = json.dumps(about, default=str)
        with atomic_write(folder / FILE) as temporary:
            save_file(tensors, temporary, metadata={"review": text, "check": _check(text, tensors)})
        (folder / FILE).chmod(0o600)

    @classmethod
    def load(cls, folder: Path) -> "ReviewData":
        """Read a saved review.

        Raises
        ------
        InputError
            If the folder holds none, or one that is damaged.
        """
        path = folder / FILE
        if not path.is_file():
            start = "to start one, name examples and items: manyway review EXAMPLES ITEMS"
            raise InputError(f"{folder} holds no saved review; {start}")
        hint = (
            "move this file away and start the review with the same examples and items in the "
            "same folder"
        )
        with trying(f"{path} is damaged", f". Its answers are not lost: {hint}."):
            with safe_open(path, framework="pt") as file:
                text = file.metadata()["review"]
                check = file.metadata()["check"]
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if check != _check(text, tensors):
                raise ValueError("its checksum is wrong")
            about = json.loads(text)
            if about["format"] != _FORMAT:
                its_format = f"has the format {about['format']}"
                raise InputError(f"{path} {its_format}, which this version of manyway cannot read.")
            read = partial(_items, base_mean=tensors.get("base_mean"))
            saved: dict[str, Any] = {name: about[name] for name in (*_PLAIN, "origins")}
            saved |= {name: read(tensors[name], about[name]) for name in _PARTS if name in tensors}
            saved["scores"] = tuple(about["scores"])
            saved["inputs"] = tuple(about.get("inputs", ()))  # earlier versions did not save them
            if about.get("score_file") is not None:  # nor this
                saved["score_file"] = ScoreFile(**about["score_file"])
            return cls(**saved)


def _cell(cell: Any) -> str:
    """A cell as a text; nothing for a cell that is empty or not a number."""
    if cell is None or cell != cell:
        return ""
    return str(cell)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None


def _about(items: Items) -> dict[str, Any]:
    """Everything of some items but their features."""
    return {
        "names": None if items.names is None else list(items.names),
        "texts": None if items.texts is None else list(items.texts),
        "carried": {name: list(cells) for name, cells in items.carried.items()},
        "labels": items.labels,
        "columns": items.columns,
        "skipped": items.skipped,
        "gaps": items.gaps,
        "origin": None if items.origin is None else items.origin.saved(),
    }


def _check(text: str, tensors: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy())
    return digest.hexdigest()


def _items(features: Any, about: Mapping[str, Any], base_mean: Any) -> Items:
    saved = {key: _tuple(about[key]) for key in ("labels", "names", "columns", "texts")}
    for key in ("labels", "names", "texts"):
        values = saved[key]
        if values is not None and len(values) != len(features):
            raise ValueError("names or labels do not fit the features")
    skipped = tuple((str(name), str(reason)) for name, reason in about["skipped"])
    carried = about["carried"]
    origin = about.get("origin")  # reviews of older versions have none
    if origin is not None:
        origin = TableOrigin.load(origin)
    return Items(
        features,
        base_mean=base_mean,
        skipped=skipped,
        carried=carried,
        origin=origin,
        gaps=bool(about.get("gaps")),  # neither
        **saved,
    )


def _tuple(values: Sequence[str] | None) -> Any:
    return None if values is None else tuple(values)

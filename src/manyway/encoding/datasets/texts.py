"""Texts with labels, from csv, jsonl and txt files."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from manyway.encoding.datasets.sources import UNLABELLED, refuse_same_names
from manyway.errors import InputError

TEXT_SUFFIXES = (".csv", ".jsonl", ".txt")
_TEXT_KEYS = ("text", "sentence", "utterance", "query")
_LABEL_KEYS = ("label", "intent", "class", "category")


@dataclass(frozen=True, eq=False)
class TextSource:
    """Texts in memory; without labels they are all of one class, ``unlabelled``."""

    names: tuple[str, ...]  # [n] the texts' line numbers in their file
    texts: tuple[str, ...]  # [n]
    labels: Tensor  # [n] int64
    class_names: tuple[str, ...]
    title: str

    def __len__(self) -> int:
        return len(self.texts)


def open_texts(path: str | Path) -> TextSource:
    """A csv or jsonl with texts and (optionally) labels, a txt with a text on each line, or a folder of CLASS.txt."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no folder or file {path}.")
    if path.is_dir():
        files = sorted(path.glob("*.txt"))
        if not files:
            raise InputError(f"{path} holds no CLASS.txt files with a text on each line.")
        pairs = [(f"{file.stem}:{name}", text, file.stem) for file in files for name, text, _ in _read_lines(file)]
    elif path.suffix == ".csv":
        pairs = _read_csv(path)
    elif path.suffix == ".jsonl":
        pairs = _read_jsonl(path)
    elif path.suffix == ".txt":
        pairs = _read_lines(path)
    else:
        raise InputError(f"{path} is no text file known here; give one of {', '.join(TEXT_SUFFIXES)}.")
    if not pairs:
        raise InputError(f"{path} holds no texts.")
    class_names = tuple(sorted({label for _, _, label in pairs}))
    refuse_same_names(class_names, str(path))
    number = {name: i for i, name in enumerate(class_names)}
    return TextSource(
        tuple(name for name, _, _ in pairs),
        tuple(text for _, text, _ in pairs),
        torch.tensor([number[label] for _, _, label in pairs], dtype=torch.int64),
        class_names,
        str(path),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text ({error}).") from error


def _read_lines(path: Path) -> list[tuple[str, str, str]]:
    lines = enumerate(_read(path).splitlines(), start=1)
    return [(str(number), line.strip(), UNLABELLED) for number, line in lines if line.strip()]


def _read_csv(path: Path) -> list[tuple[str, str, str]]:
    rows = csv.DictReader(_read(path).splitlines())
    header = [str(name).strip().lower() for name in rows.fieldnames or []]
    text_key = next((key for key in _TEXT_KEYS if key in header), None)
    if text_key is None:
        raise InputError(
            f"{path} has the columns {', '.join(header) or '(none)'}; it needs one of {', '.join(_TEXT_KEYS)}, "
            f"and for labelled examples one of {', '.join(_LABEL_KEYS)}."
        )
    label_key = next((key for key in _LABEL_KEYS if key in header), None)
    pairs = []
    for number, row in enumerate(rows, start=1):
        values = {str(key).strip().lower(): value for key, value in row.items() if key is not None}
        text = values.get(text_key)
        label = UNLABELLED if label_key is None else values.get(label_key)
        if not text or not label:
            raise InputError(f"Row {number} of {path} lacks a {text_key if not text else label_key}.")
        pairs.append((str(number), text, label.strip()))
    return pairs


def _read_jsonl(path: Path) -> list[tuple[str, str, str]]:
    pairs = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"Line {number} of {path} is not JSON ({error.msg}).") from error
        text = next((record[key] for key in _TEXT_KEYS if key in record), None) if isinstance(record, dict) else None
        if not isinstance(text, str) or not text:
            raise InputError(f"Line {number} of {path} needs a text under one of {', '.join(_TEXT_KEYS)}.")
        label = next((record[key] for key in _LABEL_KEYS if key in record), UNLABELLED)
        pairs.append((str(number), text, str(label)))
    return pairs

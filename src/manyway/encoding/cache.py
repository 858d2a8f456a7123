"""Features that were computed before, by the content of the item, the encoder and its preprocessing.

The cache is a folder of files that are written once and never changed: each holds the features of up to ``SHARD`` items
of one encoder. Processes can therefore share it without locks. A row that fails its checksum, or a file that cannot be
read, counts as absent; its items are encoded again. When the folder grows beyond its limit, the files that were not
used for the longest time are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from manyway.errors import InputError
from manyway.files.files import atomic_write, cache_folder

SHARD = 1024  # items per file
LIMIT = 4 * 2**30  # bytes of all files together


class FeatureCache:
    """Features of one encoder by the hash of their item; new ones are written when the block ends.

    Parameters
    ----------
    space : list
        What the features depend on besides the item: encoder, weights, preprocessing. Plain data.
    folder : Path, optional
        By default `cache_folder`.
    say : callable, optional
        Called with a sentence if the cache cannot be written. The work goes on without it.

    Examples
    --------
    >>> import tempfile
    >>> with FeatureCache(["letters"], Path(tempfile.mkdtemp())) as cache:
    ...     cache.add("ab" * 32, torch.ones(3), "")
    ...     cache.get("ab" * 32)
    (tensor([1., 1., 1.]), '')
    """

    def __init__(
        self, space: list[Any], folder: Path | None = None, say: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self.folder = (folder or cache_folder()) / "features"
        self._place = self.folder / hashlib.sha256(json.dumps(space).encode()).hexdigest()[:32]
        self._say = say
        self._new: dict[str, tuple[Tensor, str]] = {}
        self._rows: dict[str, tuple[_Shard, int]] = {}
        self._used: set[Path] = set()
        self._writable = True
        for path in sorted(self._place.glob("[0-9a-f]*.safetensors")):
            shard = _open(path)
            if shard is None:
                _remove(path)
            else:
                self._index(shard)

    def get(self, key: str) -> tuple[Tensor, str] | None:
        """The features [d] of an item and the note on its decoding; None if they are not known."""
        if key in self._new:
            return self._new[key]
        shard, row = self._rows.get(key, (None, 0))
        if shard is None:
            return None
        features, note = shard.features[row].clone(), shard.notes.get(key, "")
        if shard.sums[row] != _checksum(key, features, note):
            _remove(shard.path)  # otherwise it would be found, and refused, in every run
            return None
        self._used.add(shard.path)
        return features, note

    def add(self, key: str, features: Tensor, note: str) -> None:
        """Keep the features [d] of an item."""
        self._new[key] = features.to(torch.float32), note
        if len(self._new) >= SHARD:
            self._write()

    def __enter__(self) -> FeatureCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write()
        for path in self._used:  # files in use are removed last
            with contextlib.suppress(OSError):
                os.utime(path)

    def _write(self) -> None:
        if not self._new or not self._writable:
            return
        keys = list(self._new)
        tensors = {
            "keys": torch.tensor([list(bytes.fromhex(key)) for key in keys], dtype=torch.uint8),
            "features": torch.stack([self._new[key][0] for key in keys]),
            "sums": torch.tensor([_checksum(key, *self._new[key]) for key in keys]),
        }
        notes = {key: note for key, (_, note) in self._new.items() if note}
        # Processes that encode the same items write the same file.
        path = self._place / f"{hashlib.sha256(''.join(keys).encode()).hexdigest()[:32]}.safetensors"
        try:
            with atomic_write(path) as temporary:
                save_file(tensors, temporary, metadata={"notes": json.dumps(notes)})
            _shrink(self.folder)
        except (InputError, OSError) as error:
            self._writable = False
            self._say(f"note: features are not kept for the next run: {error}")
            return
        shard = _open(path)
        if shard is not None:
            self._index(shard)
        self._new = {}

    def _index(self, shard: _Shard) -> None:
        self._rows |= {key: (shard, row) for row, key in enumerate(shard.keys)}


class _Shard:
    """The content of one file; features stay on the disk until they are used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with safe_open(path, framework="pt") as file:
            keys, self.features = file.get_tensor("keys"), file.get_tensor("features")
            self.sums: list[int] = file.get_tensor("sums").tolist()
            self.notes: dict[str, str] = json.loads(file.metadata()["notes"])
        self.keys = [bytes(key).hex() for key in keys.tolist()]
        n = len(self.keys)
        if self.features.dtype != torch.float32 or self.features.shape[:1] != (n,) or len(self.sums) != n:
            raise ValueError("arrays of different lengths")


def _open(path: Path) -> _Shard | None:
    try:
        return _Shard(path)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError):
        return None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # another process was faster, or has it open
        path.unlink()


def _checksum(key: str, features: Tensor, note: str) -> int:
    return zlib.crc32(features.contiguous().numpy().tobytes() + f"{key}{note}".encode("utf-8", "replace"))


def _shrink(folder: Path, limit: int | None = None) -> None:
    """Remove the files that were not used for the longest time, until a tenth of the limit is free."""
    limit = LIMIT if limit is None else limit
    files = []
    for path in folder.glob("*/*.safetensors"):
        with contextlib.suppress(OSError):  # another process has removed it
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in sorted(files):
        if total <= 0.9 * limit:
            return
        _remove(path)
        total -= size

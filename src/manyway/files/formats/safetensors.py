"""Arrays with a header, as `manyway extract` writes them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from manyway.files.contents import Contents
from manyway.files.formats.base import ArrayFormat
from manyway.files.text import reading


class Safetensors(ArrayFormat):
    """Tensors by name, memory-mapped, with class names and origin in the header."""

    key = "safetensors"
    name = "safetensors"
    endings: ClassVar[tuple[str, ...]] = (".safetensors",)
    holds = "a row of the tensor `features`"
    kept = "all tensors, class names and origin"
    example = "features.safetensors"

    def read(self, path: Path) -> Contents:
        from safetensors import safe_open

        from manyway.files.arrays import ARRAY_NAMES, contents_of, read_header

        with reading(path, "safetensors"), safe_open(path, framework="pt") as file:
            names = list(file.keys())
            metadata = file.metadata()
            found: dict[str, Any] = {name: file.get_tensor(name) for name in names if name in ARRAY_NAMES}
        header = read_header(path, metadata)
        if "labels" in found:
            labels = found["labels"]
            found["labels"] = (labels.double() if labels.is_floating_point() else labels).numpy()  # no bfloat16
        if header.get("class_names") is not None:
            found["class_names"] = header["class_names"]
        return contents_of(path, {**found, "meta": header.get("meta") or {}}, names)

    def write(self, path: Path, arrays: Mapping[str, Any]) -> None:
        import torch
        from safetensors.torch import save_file

        from manyway.files.arrays import FORMAT

        tensors = {
            name: torch.as_tensor(array).cpu().contiguous()
            for name, array in arrays.items()
            if name not in ("class_names", "meta") and array is not None
        }
        about = {"class_names": arrays.get("class_names"), "meta": dict(arrays.get("meta") or {})}
        # One header entry: safetensors writes several in any order, and the same set should be the same bytes.
        save_file(tensors, path, metadata={FORMAT: json.dumps(about, sort_keys=True)})

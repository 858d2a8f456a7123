"""The README's Python examples run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

from problems import make_features

README = Path(__file__).parents[1] / "README.md"


def test_python_examples_run():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    assert len(blocks) == 2
    whole = make_features(n_classes=20, per_class=40)
    names = {
        "X_support": whole.features[:400],
        "y_support": whole.labels[:400],
        "X_query": whole.features[400:],
        "features": whole.features,
        "labels": whole.labels,
    }
    for block in blocks:
        code = block.replace("n_tasks=10_000", "n_tasks=10").replace("count=1000", "count=10")
        exec(compile(code, "README.md", "exec"), names)


def test_every_page_it_names_exists():
    for page in re.findall(r"\]\((docs/[^)]+|[A-Z]+\.[a-z]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / page).exists(), page

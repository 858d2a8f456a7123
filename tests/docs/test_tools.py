"""The commands on the pages per tool run as they stand, on the example files of the formats."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from manyway.cli import main
from manyway.files.formats.registry import our_formats

TOOLS = Path(__file__).parents[2] / "docs" / "tools"
EXAMPLES = {each.key: each.example_path for each in our_formats() if each.example}
# The file that a page speaks of, and the format whose example it is.
FILES = {
    "label-studio": {"tasks.json": "label-studio"},
    "birdnet": {"birdnet.csv": "birdnet"},
    "speciesnet": {"predictions.json": "speciesnet"},
    "pybioclip": {"predictions.csv": "pybioclip"},
    "scanpy": {"cells.h5ad": "anndata", "celltypist_probability_matrix.csv": "celltypist"},
    "kraken": {"reads.kraken": "kraken2", "reads.kreport": "kraken-report"},
    "setfit": {},
    "fiftyone": {},
}
TICKETS = """text,label
where is my new card,card
my card has not come,card
i want my money back,refund
when do i get the refund,refund
the card is still missing,
please refund this,
"""


def commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"```\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)
    return [line.split()[1:] for block in blocks for line in block.splitlines() if line.startswith("manyway ")]


@pytest.mark.usefixtures("quick_evidence")
@pytest.mark.parametrize("name", [name for name in FILES if name != "fiftyone"])
def test_the_commands_of_a_page_run_and_write_what_they_name(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("tickets.csv").write_text(TICKETS)
    for file, key in FILES[name].items():
        shutil.copy(EXAMPLES[key], file)
    found = commands(TOOLS / f"{name}.md")
    assert found
    for words in found:
        monkeypatch.setattr("sys.argv", ["manyway", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, f"{words}: {capsys.readouterr().err}"
        output = words[words.index("-o") + 1] if "-o" in words else "labels.csv"
        assert Path(output).stat().st_size > 0


def test_every_page_is_tested():
    assert {page.stem for page in TOOLS.glob("*.md")} == set(FILES)


def test_the_lines_for_fiftyone_run():
    """Runs where fiftyone and its database are installed."""
    fiftyone = pytest.importorskip("fiftyone")
    rng = np.random.default_rng(1)
    made = fiftyone.Dataset("herbarium", overwrite=True)
    for number in range(24):
        vector = 5 * np.eye(3)[number % 3] + 0.2 * rng.normal(size=3)
        sample = fiftyone.Sample(filepath=f"/sheets/{number}.jpg", embeddings=vector)
        if number < 9:
            sample["ground_truth"] = fiftyone.Classification(label=f"species {number % 3}")
        made.add_sample(sample)
    try:
        (block,) = re.findall(r"```py\n(.*?)```", (TOOLS / "fiftyone.md").read_text(encoding="utf-8"), flags=re.S)
        exec(compile(block, "fiftyone.md", "exec"), {})
        made.reload()
        found = made.exists("manyway").values("manyway.label")
        assert found == [f"species {number % 3}" for number in range(9, 24)]
    finally:
        made.delete()

"""``manyway label --scores``: label a batch from the scores of a classifier, and the options for that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manyway.cli.console import console, note
from manyway.errors import InputError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from manyway.labelling.batch import Batch, Place
    from manyway.labelling.label import Summary

INDEPENDENT = "independent"  # the kind of scores of which several may be right; its own module loads torch


def _option(text: str, *names: str, **more: Any) -> Any:
    """An option that the help shows among those of scores."""
    return typer.Option(*names, help=text, rich_help_panel="Scores of a classifier", **more)


_FILE = {"metavar": "FILE"}
ScoreFile = Annotated[
    Path | None,
    _option(
        "Label from the scores of a classifier instead of features: a table with a column per class or with the "
        "columns item, class, score; a predictions.json of SpeciesNet; a MegaDetector file with classifications; a "
        "table of BirdNET; or a folder of such files. EXAMPLES are then scores of labelled items, and may be left out.",
        **_FILE,
    ),
]
ScoreKind = Annotated[
    str,
    _option(
        "What the scores are: probability, log-probability, logit, sigmoid (each class has a yes-or-no probability of "
        "its own), or independent (the same as --several).",
        "--score-kind",
    ),
]
Several = Annotated[
    bool,
    _option(
        "An item may have several classes, or none: each class has a yes-or-no score of its own, as in BirdNET. "
        "Writes one row per item and class with a probability of --min-confidence (default: 0.5) or more.",
        "--several",
    ),
]
ClassPrior = Annotated[
    Path | None,
    _option(
        "The classes that the classifier can answer, and how frequent they were among its training data: the columns "
        "class and prior (or count). Default: equally frequent.",
        **_FILE,
    ),
]
Taxonomy = Annotated[Path | None, _option("The groups of the classes: the columns class, genus, family, …", **_FILE)]
AtLeast = Annotated[
    float | None,
    _option(
        "Also write the finest answer (class, genus, family, …) that has at least this probability.", min=0.0, max=1.0
    ),
]
Format = Annotated[
    str | None,
    _option(
        "What to write: table; input (the file of SpeciesNet, MegaDetector or BirdNET with the answers in it, all "
        "else unchanged; for a folder, a folder); camtrap-dp (its observations.csv); presence (a table of site, night "
        "and class). Default: input where the ending of -o is .json or .txt, otherwise table.",
        "--format",
        metavar="FORMAT",
    ),
]
Media = Annotated[
    Path | None,
    _option("The media.csv of a Camtrap DP, which says the deployment and the time of each picture.", **_FILE),
]
Expect = Annotated[
    Path | None,
    _option(
        "A list of the classes that are expected, such as the species of a region: the column class and optionally "
        "probability, or one class per line. Other classes remain possible.",
        **_FILE,
    ),
]
BatchBy = Annotated[
    str | None,
    _option(
        "Label each file of a folder (file), each folder of pictures (folder), or each value of a column by itself.",
        metavar="WHAT",
    ),
]


@dataclass(frozen=True)
class ScoreInputs:
    """The files and options of ``manyway label --scores``."""

    scores: Path
    examples: Path | None = None
    labels: Path | None = None
    kind: str = "auto"
    class_prior: Path | None = None
    taxonomy: Path | None = None
    at_least: float | None = None
    label_column: str | None = None
    item_column: str | None = None
    ignore_columns: tuple[str, ...] = ()
    media: Path | None = None
    expect: Path | None = None

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """What is read, and must not be written over."""
        return self.scores, self.examples, self.labels, self.class_prior, self.taxonomy, self.media, self.expect

    def batch(self, place: Place) -> AbstractContextManager[Batch]:
        """Read everything, print what the readers guessed, and make a batch."""
        from manyway.files.columns import Options
        from manyway.files.score_files import read_class_prior, read_expected, read_item_labels, read_scores, with_media
        from manyway.labelling.batch import scores_batch
        from manyway.labelling.taxonomy import read_taxonomy
        from manyway.methods.evidence.from_scores import KINDS

        if self.kind not in (*KINDS, INDEPENDENT):
            raise InputError(f"--score-kind is '{self.kind}'; choose one of {', '.join((*KINDS, INDEPENDENT))}.")
        if self.kind == INDEPENDENT and self.examples is not None:
            raise InputError("EXAMPLES are for items with one class; leave them out, or --several.")
        options = Options(self.label_column, self.item_column, self.ignore_columns)
        with console(stderr=True).status(f"reading {self.scores} …"):
            scores = read_scores(self.scores, options)
            scores = scores if self.media is None else with_media(scores, self.media)
            examples = None if self.examples is None else read_scores(self.examples, options)
        if examples is not None and examples.labels is None:
            raise InputError(f"{self.examples} has no column of labels; scores are calibrated on labelled items.")
        if scores.independent and self.kind == "auto":
            note(f"each class of {self.scores.name} has a score of its own: one is chosen; --several allows more")
        for remark in (*scores.notes, *(() if examples is None else examples.notes)):
            note(remark)
        return scores_batch(
            scores,
            place,
            examples=examples,
            labels=None if self.labels is None else read_item_labels(self.labels, options),
            kind=None if self.kind == "auto" else self.kind,
            class_prior=None if self.class_prior is None else read_class_prior(self.class_prior),
            levels=None if self.taxonomy is None else read_taxonomy(self.taxonomy),
            expected=None if self.expect is None else read_expected(self.expect, scores),
        )


def check_target(given: ScoreInputs, output: Path | None, form: str, *, overwrite: bool) -> Path:
    """Where the answers go, after checking that nothing of value is replaced."""
    from manyway.labelling.outputs import INPUT, TABLE
    from manyway.labelling.table import WRITTEN, check_table

    if form != INPUT:
        return check_table(output, given.paths, overwrite=overwrite, endings=WRITTEN if form == TABLE else (".csv",))
    if given.at_least is not None:
        raise InputError("--at-least is for tables and for --format camtrap-dp; leave it out.")
    if output is None or not given.scores.is_dir():
        return check_table(output, given.paths, overwrite=overwrite, endings=(".json", ".txt", ".csv", ".tsv"))
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"The output {output} exists; name a new folder.")
    if output.resolve().is_relative_to(given.scores.resolve()):
        raise InputError(f"The output {output} lies in the input folder {given.scores}; choose another name.")
    return output


# How features are compared, where that is not how embeddings are.
_FIRST_STEPS = {
    0: "Features are compared as they are: the examples say so.",
    2: "Columns are divided by their scale before they are compared: the examples say so.",
    3: "Columns are divided by their scale, and rows get equal length: the examples say so.",
}


def describe(found: Summary, at_least: float | None) -> list[str]:
    """What is printed besides the summary of labels."""
    lines, temperature = [], found.learned.get("temperature")
    chosen = _FIRST_STEPS.get(int(found.learned.get("first_step", 1)))
    if chosen is not None:
        lines.append(chosen)
    if temperature is not None and found.n_labelled:
        helped = f"{found.n_labelled} labelled item" + ("s" if found.n_labelled > 1 else "")
        lines.append(f"The scores have the temperature {temperature:.2f}; {helped} helped.")
    elif temperature is not None:
        lines.append(f"The batch gave the scores the temperature {temperature:.2f}; labelled items would help.")
    if at_least is not None:
        levels = dict(found.levels)
        without = levels.pop("", 0)
        parts = [f"{count} as {level}" for level, count in sorted(levels.items(), key=lambda each: -each[1])]
        lines.append(f"Answers with probability {at_least:g} or more: {', '.join([*parts, f'{without} without'])}.")
    return lines

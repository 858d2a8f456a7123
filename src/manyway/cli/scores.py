"""``manyway label --scores``: label a batch from the scores of a classifier, and the options for that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from manyway.cli.console import console, note
from manyway.errors import InputError

if TYPE_CHECKING:
    from manyway.labelling.scores import ScoreSummary

ScoreFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Label from the scores of a classifier instead of features: a table with a column per class or with the "
        "columns item, class, score; a predictions.json of SpeciesNet; a MegaDetector file with classifications; a "
        "table of BirdNET. EXAMPLES are then scores of labelled items, and may be left out.",
        rich_help_panel="Scores of a classifier",
    ),
]
ScoreKind = Annotated[
    str,
    typer.Option(
        help="What the scores are: probability, log-probability, logit, or sigmoid (each class has a yes-or-no "
        "probability of its own).",
        rich_help_panel="Scores of a classifier",
    ),
]
ClassPrior = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The classes that the classifier can answer, and how frequent they were among its training data: the "
        "columns class and prior (or count). Default: equally frequent.",
        rich_help_panel="Scores of a classifier",
    ),
]
Taxonomy = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The groups of the classes: the columns class, genus, family, …",
        rich_help_panel="Scores of a classifier",
    ),
]
AtLeast = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Also write the finest answer (class, genus, family, …) that has at least this probability.",
        rich_help_panel="Scores of a classifier",
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

    @property
    def paths(self) -> tuple[Path | None, ...]:
        """What is read, and must not be written over."""
        return self.scores, self.examples, self.labels, self.class_prior, self.taxonomy

    def refuse(self, **others: object) -> None:
        """Refuse options of ``label`` that scores cannot have."""
        for name, value in others.items():
            if value:
                option = "--" + name.replace("_", "-")
                raise InputError(f"{option} is for features; leave it out with --scores.")

    def label(self, table: Path, *, top: int, min_confidence: float, device: str | None) -> ScoreSummary:
        """Read everything, print what the readers guessed, label and write."""
        from manyway.files.columns import Options
        from manyway.files.score_files import read_class_prior, read_item_labels, read_scores
        from manyway.labelling.scores import label_scores
        from manyway.labelling.taxonomy import read_taxonomy
        from manyway.methods.evidence.from_scores import KINDS

        if self.kind not in KINDS:
            raise InputError(f"--score-kind is '{self.kind}'; choose one of {', '.join(KINDS)}.")
        options = Options(self.label_column, self.item_column, self.ignore_columns)
        with console(stderr=True).status(f"reading {self.scores} …"):
            scores = read_scores(self.scores, options)
            examples = None if self.examples is None else read_scores(self.examples, options)
        if examples is not None and examples.labels is None:
            raise InputError(f"{self.examples} has no column of labels; scores are calibrated on labelled items.")
        for remark in (*scores.notes, *(() if examples is None else examples.notes)):
            note(remark)
        with console(stderr=True).status(f"labelling {len(scores)} items …"):
            return label_scores(
                scores,
                table,
                examples=examples,
                labels=None if self.labels is None else read_item_labels(self.labels, options),
                kind=None if self.kind == "auto" else self.kind,
                class_prior=None if self.class_prior is None else read_class_prior(self.class_prior),
                levels=None if self.taxonomy is None else read_taxonomy(self.taxonomy),
                at_least=self.at_least,
                top=top,
                min_confidence=min_confidence,
                device=device,
                inputs=self.paths,
            )


def describe(found: ScoreSummary, at_least: float | None) -> list[str]:
    """What is printed besides the summary of labels."""
    lines = []
    if found.calibrated:
        lines.append(
            f"Scores were calibrated on {found.n_labelled} labelled items (temperature {found.temperature:.2f})."
        )
    elif found.n_labelled:
        lines.append(
            f"The batch and {found.n_labelled} labelled items gave the scores the temperature {found.temperature:.2f}."
        )
    else:
        lines.append(
            f"The batch gave the scores the temperature {found.temperature:.2f}; labelled items would calibrate them."
        )
    if at_least is not None:
        levels = dict(found.labels.levels)
        without = levels.pop("", 0)
        parts = [f"{count} as {level}" for level, count in sorted(levels.items(), key=lambda each: -each[1])]
        lines.append(f"Answers with probability {at_least:g} or more: {', '.join([*parts, f'{without} without'])}.")
    return lines

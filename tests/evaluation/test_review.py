"""The simulated reviewer: what it counts, and that known labels teach more than the same labels as examples."""

from __future__ import annotations

import pytest

from manyway import InputError, TaskSpec, evaluate, sample_tasks, solve
from manyway.evaluation import review as module
from manyway.evaluation.review import REVIEWERS, review
from manyway.sampling.embedded import load_glyphs

SHAPE = {"shots": 1, "k_eff": 4, "n_query": 16, "n_ways": 40}


def correct(reviewer, n_answers, n_tasks=2, seed=3, **changes):
    spec = TaskSpec(**{**SHAPE, **changes}, n_answers=n_answers, reviewer=reviewer)
    return evaluate("evidence", load_glyphs("val"), spec, n_tasks, seed).correct


@pytest.mark.slow
def test_every_reviewer_begins_with_the_labels_of_evidence_and_ends_with_the_true_ones():
    small = {"n_ways": 40, "n_query": 4}
    tasks = sample_tasks(load_glyphs("val"), TaskSpec(**{**SHAPE, **small}), seed=3, count=2)
    start = (solve("evidence", tasks).labels == tasks.query_labels).sum(1)
    assert (start < 4).any()
    for reviewer in REVIEWERS:
        assert correct(reviewer, 0, **small).tolist() == start.tolist()
        assert (correct(reviewer, 4, **small) == 4).all()


def test_without_labelling_again_an_answer_corrects_at_most_one_label():
    first, second = correct("fixed", 5), correct("fixed", 6)
    assert set((second - first).tolist()) <= {0, 1}


def test_known_labels_improve_more_labels_than_their_own():
    gain = correct("known", 3, n_tasks=30) - correct("fixed", 3, n_tasks=30)
    assert gain.mean() > 2 * gain.std() / 30**0.5


def test_methods_that_take_no_known_labels_can_have_them_as_examples():
    spec = TaskSpec(**SHAPE, n_answers=3, reviewer="appended")
    assert evaluate("simpleshot", load_glyphs("val"), spec, 2).accuracy > 3 / 16
    with pytest.raises(InputError, match="simpleshot cannot use known labels of queries"):
        evaluate("simpleshot", load_glyphs("val"), TaskSpec(**SHAPE, n_answers=3, reviewer="known"), 2)


def test_a_review_goes_on_where_one_with_fewer_answers_has_stopped(monkeypatch):
    """Each number of answers of a suite costs only the questions beyond the one before it."""
    letters = load_glyphs("val")
    solved = []
    ask = REVIEWERS["known"]

    def counting(method, tasks, params):
        answer = ask(method, tasks, params)
        return lambda known: solved.append(int((known >= 0).sum(1).max())) or answer(known)

    def labels_known_when_solved(n_answers, seed=3):
        solved.clear()
        spec = TaskSpec(**SHAPE, n_answers=n_answers, reviewer="known")
        right = evaluate("evidence", letters, spec, 2, seed).correct.tolist()
        return right, list(solved)

    monkeypatch.setattr(module, "REVIEWERS", {"known": counting})
    assert labels_known_when_solved(3)[1] == [0, 1, 2, 3]
    right, after = labels_known_when_solved(5)
    assert after == [3, 4, 5]
    assert labels_known_when_solved(2)[1] == [2]
    assert labels_known_when_solved(3, seed=4)[1] == [0, 1, 2, 3]  # other tasks
    assert right == correct("known", 5).tolist()  # from the beginning, on a table of its own


def test_bad_input_is_refused_with_a_sentence():
    with pytest.raises(InputError, match="reviewer is 'knwon'; choose fixed, appended, known, uherding, badge"):
        TaskSpec(reviewer="knwon")
    with pytest.raises(InputError, match="n_answers is 17; it must be from 0 to 16, the number of queries"):
        TaskSpec(**SHAPE, n_answers=17, reviewer="known")
    with pytest.raises(InputError, match="n_answers needs a reviewer"):
        TaskSpec(n_answers=5)
    with pytest.raises(InputError, match="without unknown queries and streams"):
        TaskSpec(n_batches=3, reviewer="known")
    with pytest.raises(InputError, match="needs a method by its name"):
        evaluate(solve, load_glyphs("val"), TaskSpec(reviewer="known"), 1)
    tasks = sample_tasks(load_glyphs("val"), TaskSpec(**SHAPE), seed=3, count=1)
    with pytest.raises(InputError, match="n_answers is 17"):
        review("evidence", tasks, 17)

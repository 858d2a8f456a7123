"""EOL: a classifier with an outlier logit, trained on support and queries."""

import pytest
import torch
from problems import make_tasks

from benchmarks.reference import compare_scores
from manyway import EOL, Tasks, solve


def test_without_training_the_scores_are_those_of_the_equations():
    tasks = make_tasks(1, shots=1)
    cosine = torch.nn.functional.cosine_similarity
    query, w = tasks.query[0], tasks.support[0]

    def both(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = 10 * cosine(query.unsqueeze(1), w.unsqueeze(0), dim=-1)
        return logits.softmax(1), torch.sigmoid(logits.exp().mean(1).log() + torch.tensor(0.5).log())

    found, inlier = both(w)
    taken = found * inlier.unsqueeze(1)
    w = (w + taken.T @ query) / (1 + taken.sum(0)).unsqueeze(1)
    solution = solve("eol", tasks, scale=None, lr=1e-12)
    torch.testing.assert_close(solution.prototypes[0], w)
    torch.testing.assert_close(solution.probabilities[0], both(w)[0])
    torch.testing.assert_close(solution.unknown[0], 1 - both(w)[1])


def test_training_fits_the_support_and_the_expected_proportion():
    generator = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(5, 16, generator=generator)
    draw = lambda of: centres[of] + torch.randn(len(of), 16, generator=generator)  # noqa: E731
    labels, truth = torch.arange(4).repeat(3), torch.arange(5).repeat(6)
    tasks = Tasks.from_arrays(draw(labels)[None], labels[None], draw(truth)[None])
    solution = solve("eol", tasks)
    known = truth < 4
    assert (solution.labels[0][known] == truth[known]).double().mean() > 0.9
    assert solution.unknown[0][~known].min() > solution.unknown[0][known].median()
    few, many = (float(solve("eol", tasks, proportion=b).unknown.mean()) for b in (0.2, 0.8))
    assert few < many


def test_tasks_do_not_depend_on_each_other_and_the_estimator_says_the_same():
    tasks = make_tasks(2)
    both = solve("eol", tasks).unknown
    torch.testing.assert_close(both[:1], solve("eol", tasks[:1]).unknown)
    found = EOL().fit(tasks.support[0].numpy(), tasks.support_labels[0].numpy()).infer(tasks.query[0].numpy())
    assert found.to_frame()["unknown"].to_numpy() == pytest.approx(both[0].numpy(), abs=1e-6)


def test_the_benchmark_measures_it_on_the_recorded_open_set_tasks(data_folder):
    if not (data_folder.parent / "reference").is_dir():
        pytest.skip("needs the recorded runs beside the data folder")
    found = {one.features: one.auroc for one in compare_scores(data_folder, ["eol"])}
    assert found["clinc150"] > 0.8

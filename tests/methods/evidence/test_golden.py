"""Evidence gives the golden answers in all its modes: unknown queries, names, known labels, streams, blocks, scores.

``tests/methods/test_golden.py`` has those of every method, and says what they are.
"""

import pytest
import torch

from benchmarks.golden import MODES, load_modes

CLOSE = 1e-4  # two best probabilities that are closer than this count as a tie


@pytest.mark.parametrize("mode", MODES)
def test_evidence_gives_the_golden_answers_in_every_mode(mode):
    classes, probabilities, presence = load_modes()[mode]
    solution = MODES[mode]()
    tie = probabilities[..., 0] - probabilities[..., 1] < CLOSE
    assert (solution.probabilities.argmax(-1) == classes[..., 0])[~tie].all()
    torch.testing.assert_close(solution.probabilities.gather(2, classes), probabilities, rtol=0, atol=2e-5)
    torch.testing.assert_close(solution.presence.double(), presence, rtol=0, atol=2e-5)

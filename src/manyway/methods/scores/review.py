"""Review: which item a person should label next."""

import torch
from torch import Tensor

_MOST_PAIRS = 1 << 25  # of items that are compared: limits memory and time


def review_scores(outcomes: Tensor, known: Tensor) -> Tensor:
    """[q] how many labels an answer to each item is expected to repair; -1 where the label is known.

    An answer repairs the label of its own item with the probability that this is wrong, d_q = 1 − max_k p_qk. It says
    half as much about an item with the same classes in question, and less if others like it are known already:

        d_q + ½ Σ_o a_qo d_o / (1 + Σ_p a_po),        a_qo = cos(p_q, p_o),

    where p runs over the items whose label is known. ``outcomes`` [q, k] are probabilities, ``known`` [q] labels.
    """
    doubt = 1 - outcomes.amax(-1)
    labelled = known >= 0
    others = doubt.topk(min(len(doubt), max(_MOST_PAIRS // len(doubt), 1))).indices
    directions = torch.nn.functional.normalize(outcomes, dim=-1)
    alike = directions @ directions[others].mT
    alike[others, torch.arange(len(others), device=others.device)] = (
        0  # nothing more is learned about itself
    )
    remaining = doubt[others] / (1 + alike[labelled].sum(0))
    return (doubt + alike @ remaining / 2).masked_fill(labelled, -1)

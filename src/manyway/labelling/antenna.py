"""Responses of a pipeline of Antenna: a function that a post-processing task can call."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manyway import __version__
from manyway.core.arguments import checks_arguments
from manyway.errors import InputError
from manyway.files.formats.antenna import Antenna, answers_to, read_responses, with_answers
from manyway.labelling.batch import Place, scores_batch
from manyway.labelling.label import solve_batch
from manyway.labelling.outputs import ranked_classes


@checks_arguments
def label_antenna(
    response: Any,
    *,
    expected: Mapping[str, float] | None = None,
    open_set: bool = False,
    min_confidence: float = 0.0,
) -> Any:
    """Label all detections of a collection jointly: the response of an Antenna pipeline with one more classification.

    Parameters
    ----------
    response : mapping or sequence of mapping
        What a pipeline answered for a collection, as plain values (``PipelineResultsResponse.dict()``); or several
        such responses, which are one batch.
    expected : mapping of str to float, optional
        Taxa that are expected at the site, by their labels, and how likely each is. Others remain possible. By default
        all are equally likely.
    open_set : bool, default=False
        Whether detections may be of none of the taxa. Those that probably are keep their classification.
    min_confidence : float, default=0.0
        Detections whose label has a lower probability keep their classification.

    Returns
    -------
    dict or list of dict
        Copies. Behind the last terminal classification of a detection, which is terminal no longer, is ours, with the
        probabilities of all labels in their order. Its algorithm is declared in ``algorithms`` under the key of the one
        that was used and ``-manyway``, with the same category map. All else is as it was.

    Raises
    ------
    InputError
        If the response cannot be used. The sentence says what is wrong, and where.

    Notes
    -----
    ``logits`` are used where all of these classifications have them, else ``scores``.

    Examples
    --------
    >>> from manyway.files.formats.antenna import Antenna
    >>> import json
    >>> response = json.loads(Antenna().example_path.read_text())
    >>> labelled = label_antenna(response)
    >>> ours = labelled["detections"][0]["classifications"][-1]
    >>> ours["classification"], ours["algorithm"]["key"], ours["terminal"]
    ('Noctua pronuba', 'uk-manyway', True)
    """
    if not 0 <= min_confidence <= 1:
        raise InputError(f"min_confidence is {min_confidence}; it must be from 0 to 1.")
    several = isinstance(response, Sequence)
    responses = list(response) if several else [response]
    for each in responses:
        if not isinstance(each, Mapping) or not isinstance(each.get("detections"), list):
            raise InputError("The response of a pipeline is a mapping with a list 'detections'; this is none.")
    scores = read_responses(Path("The response"), responses, Antenna())
    if not len(scores):
        raise InputError("The response has no detection with a terminal classification.")
    (origin,) = scores.origins
    program = f"manyway {__version__}"
    with scores_batch(scores, Place(), expected=expected) as batch:
        solution = solve_batch(batch, open_set=open_set)
        ranked = ranked_classes(batch, solution, origin.n_listed)
    answers = list(answers_to(origin.places, ranked, min_confidence, program))
    labelled = []
    for which, each in enumerate(responses):
        own = [answer for answer in answers if answer.target.response == which]
        labelled.append(with_answers(each, own, program))
    return labelled if several else labelled[0]

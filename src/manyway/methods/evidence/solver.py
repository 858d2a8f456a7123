"""Evidence: calibrated likelihoods, and as few classes as the queries give evidence for.

The method of this project, which docs/evidence.md states on one page. A query with the features
z_q has in class k, whose prototype is w_k, the log-likelihood

    ℓ_qk = −½ τ (‖z_q − w_k‖² − e_k).

The prototype is the mean of the examples of the class, shortened as far as it is long by chance,
and e_k is what its random error adds to a squared distance on average
(`manyway.methods.calibration.prototypes`): S/n_k for the mean of n_k examples, where S is the
scatter within classes. The proportions of the
classes among the queries have a Dirichlet(α, …, α) prior and are integrated out (``prior``). The
labels maximise a bound on ln p(queries | support), and with it the number of classes that occur is
found. There are seven stages, each in a module of its own name. ``label`` calls the first two, and
``answer`` the others:

1. **calibrate** (`calibrate`): what a distance says about a class, that is, the metric of ‖·‖, the
   precision τ and S; and the queries where that is measured;
2. **adapt** (`adapt`): where the first answer gives a reason, the queries are moved back by what
   they all differ from the examples in, and answered again;
3. **judge** (`judge`): ν_q, how probable it is that a query is of none of the classes, with
   ``open_set``;
4. **search** (`search`): the assignments u with the highest evidence, and with them the classes
   that occur;
5. **group** (`group`): what the queries of a class say together, and what known labels change;
6. **confidence** (`confidence`): how sure to be, the power of the final probabilities;
7. **count** (`count`): probabilities p_qk (1 − ν_q), and which classes are present.

The first stage makes a ``CalibratedBatch``, which all later ones read. The other modules belong to
one stage or to the queries:

- calibrate: `manyway.methods.calibration` learns from the support; `scaling` makes rows comparable,
  `names` has classes that are known by a vector, `complete` and `missing` have cells without a
  number, `copies` near-copies, and `likelihood` has ℓ itself;
- adapt: `shift` finds what the queries all differ in;
- judge: `judged` has the queries and what of them is there, and `neighbourhood` those around each;
- search: `prior` has the bound, `loop` the updates, and `kernel` the same for GPUs;
- confidence: `rehearse` labels examples that are held out, and `separation` says whether single
  examples tell classes apart;
- count: `unknown_groups` groups the unknown queries, and `review` says which query a person should
  label next;
- queries are held in memory, for many tasks at once (`queries`, and `dense` while they are
  searched), or read in blocks, for one (`blocks`);
- `streams` carries what earlier batches taught, and `schedule` has every parameter and constant.

Scores of a classifier have a method of their own (`manyway.methods.scores`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from manyway.core import Solution, Sums, Tasks
from manyway.core.arguments import checks_arguments
from manyway.errors import InputError
from manyway.methods.evidence.adapt import can_keep_metrics, merged, moved_back, shift_of
from manyway.methods.evidence.calibrate import (
    CalibratedBatch,
    Learned,
    LearnedBatch,
    calibrate,
    learn_for_batch,
    learn_support,
)
from manyway.methods.evidence.complete import complete_support
from manyway.methods.evidence.confidence import confidence
from manyway.methods.evidence.count import Findings, count
from manyway.methods.evidence.group import group
from manyway.methods.evidence.judge import judge
from manyway.methods.evidence.likelihood import GivenLikelihood
from manyway.methods.evidence.names import equal_proportions, log_probability
from manyway.methods.evidence.queries import InMemory, Part
from manyway.methods.evidence.rehearse import Rehearsed, rehearse_claims
from manyway.methods.evidence.scaling import representation_of
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.search import search
from manyway.methods.evidence.shift import Moved, with_queries
from manyway.methods.evidence.streams import Labelling, in_streams, next_batch
from manyway.methods.scores.search import Limits
from manyway.methods.scores.solver import Options, label_scores

_AXES = 3  # task, query, class


def evidence(
    tasks: Tasks,
    *,
    precision: float | None = None,
    metric: bool = True,
    likelihood: Literal["auto", "metric", "logistic"] = "metric",
    temperature: float | None = None,
    concentration: float | None = None,
    update_prototypes: bool = True,
    group_posterior: bool = True,
    merge_groups: bool = True,
    open_set: bool = False,
    adapt: Literal["auto"] | bool = "auto",
    rehearse: bool = False,
    max_iter: int = 50,
    tol: float = 1e-2,
    scale: str | None = "auto",
    schedule: Mapping[str, Any] | None = None,
    prepared: Learned | None = None,
    with_objective: bool = False,
    carry: bool = False,
) -> Solution:
    """Calibrate distances on the support, then find the present classes by all queries' evidence.

    The log-likelihood of query q under class k is ℓ_qk = −½ τ (‖z_q − w_k‖² − e_k), where w_k is
    the mean of the support samples, shortened as far as it is long by chance, and e_k what its
    random error adds to a squared distance on average. The precision τ is calibrated by leaving
    support samples out in turn. Class proportions have a Dirichlet(α, …, α) prior and are
    integrated out. The method maximises, over the assignments u and over a grid of α, a lower bound
    on ln p(queries | support):

        Σ u_qk ℓ_qk − Σ u_qk ln u_qk + Σ_k (1 − p⁰_k) φ(m_k / (1 − p⁰_k)) + ln Γ(Kα)/Γ(|Q|+Kα),

    where m_k = Σ_q u_qk, p⁰_k = Π_q (1 − u_qk) and φ(n) = ln Γ(n+α)/Γ(α). An iteration takes the
    best α for the present u, and then u_qk = softmax_k(ℓ_qk + the derivative of the prior's terms).
    With a small α few classes are present; with a large α labels are those of the nearest
    prototypes. Prototypes stay fixed during the search.

    The search begins with annealed likelihoods, so that queries agree on classes before each one is
    certain, and it sharpens them where many classes are present. Final probabilities are computed
    with ℓ itself.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. Queries may be rows, a pile that is read in blocks, or scores of a
        classifier; some labels may be known, classes may have names, and a batch may follow earlier
        ones.
    precision : float or None, default=None
        τ in the log-likelihood −½ τ ‖z − w‖². By default it is calibrated on the support.
    metric : bool, default=True
        Whether distances are measured in a metric that is learned from the support: directions in
        which samples of one class differ much count less. It needs two examples of some class.
    likelihood : {"auto", "metric", "logistic"}, default="metric"
        "metric": prototypes are class means. "logistic": they are tuned by logistic regression on
        the examples. "auto", about three times the time: tuned where left-out examples gain by it
        and no query is unknown.
    temperature : float or None, default=None
        T, which divides the logits before a softmax. For scores alone; by default labelled scores
        or the batch itself say it.
    concentration : float or None, default=None
        α of the Dirichlet prior of the class proportions. Small values favour few classes. By
        default the value with the highest evidence is chosen for each task.
    update_prototypes : bool, default=True
        Whether the queries of a class update its prototype before the final probabilities are
        computed.
    group_posterior : bool, default=True
        Whether the queries of a class, which share the error of its prototype, may as a group
        belong to another class. This makes the probabilities calibrated where few classes are
        present. It changes few labels.
    merge_groups : bool, default=True
        Whether small groups may be fragments of larger ones. Part of ``group_posterior``.
    open_set : bool, default=False
        Whether queries may be unknown: of none of the classes. The solution then has ``unknown``,
        the probability of that, and class probabilities sum to 1 − ``unknown``. It is calibrated on
        the support, by leaving classes out.
    adapt : {"auto", True, False}, default="auto"
        Whether queries may differ from the examples, all in the same way, as another camera makes
        them. They are then moved back. "auto": where the first answer gives a reason to look for
        it; True: it is always looked for. Not with one example per class, nor with ``open_set``.
        See ``manyway.methods.evidence.shift``.
    rehearse : bool, default=False
        Whether some examples are held out and labelled first, so that claims that are too high on
        this data are lowered; it changes no label. See ``manyway.methods.evidence.rehearse``. It
        takes several times as long as learning from the support: estimators do it once, in ``fit``,
        and for many tasks it is off.
    max_iter : int, default=50
        The largest number of iterations. Updates of the annealing come before them.
    tol : float, default=0.01
        A task stops when an iteration changes less than this. What changes are the assignments u.
    scale : {"auto", "rcl2", "cl2", "tcl2", "l2", "range", "power", "white"} or None, default="auto"
        Feature transform; None uses the features as they are. "auto": as the support says; see
        ``manyway.methods.calibration.representation``.
    schedule : mapping of str to object or None, default=None
        Other values for constants of the method, by name; see
        ``manyway.methods.evidence.schedule``. For research.
    prepared : Learned or None, default=None
        What ``prepare_evidence`` learned from the same support, so that it is not learned again.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. It is the bound that iterations raise,
        with ψ ℓ for ℓ, where ψ is their sharpness (``Schedule.sharpness``). Its terms are ``fit``,
        ``entropy`` and ``prior``. Not for a pile.
    carry : bool, default=False
        Whether the batches of a stream (``Tasks.stream``) are labelled one after another, each with
        what earlier ones taught; see ``manyway.methods.evidence.streams``. Tasks without a stream
        are labelled alone.

    Returns
    -------
    Solution
        ``presence``, ``n_present`` and ``n_present_sd`` say which classes are present, and how
        many.

    Notes
    -----
    All queries are updated at once. With α chosen by evidence the bound has not been seen to
    decrease; with a tiny fixed α and few queries it can. The method extends the correction of label
    shift by maximum likelihood (Saerens et al., 2002).

    Reference: docs/evidence.md derives the method and shows the effect of each part.

    Examples
    --------
    >>> known = [[[0.0, 0.0], [4.0, 0.0], [0.0, 9.0]]]
    >>> tasks = Tasks.from_arrays(known, [[0, 1, 2]], [[[0.1, 0.2], [0.2, 0.1], [0.1, 0.0], [0.3, 8.8]]])
    >>> evidence(tasks).labels.tolist()
    [[0, 0, 0, 2]]
    """
    parameters = Parameters.of(locals())
    if temperature is not None and not tasks.scores:
        problem = "temperature divides the logits of scores, and these tasks have features"
        raise InputError(f"evidence: {problem}; leave it out, or give the scores of a classifier.")
    alone = partial(label, parameters=parameters, with_objective=with_objective)
    # The batches of a run were moved back one by one.
    not_moved = replace(parameters, adapt=False)
    together = partial(label, parameters=not_moved, with_objective=with_objective)
    labelling = Labelling(alone=alone, together=together)
    if tasks.gaps:
        tasks = complete_support(tasks, parameters.constants)
    if carry and tasks.n_batches > 1:
        if prepared is None:
            prepared = _prepare(tasks[:: tasks.n_batches], parameters)
        return in_streams(tasks, labelling, parameters, prepared)
    if tasks.earlier is not None:
        return next_batch(tasks, labelling, parameters, prepared)
    return alone(tasks, prepared)


def label(
    tasks: Tasks,
    learned: Learned | None,
    parameters: Parameters,
    with_objective: bool,
) -> Solution:
    """Batches that are labelled alone.

    Parameters
    ----------
    tasks : Tasks
    learned : Learned or None
        What was learned from the support before; None: it is learned now.
    parameters : Parameters
    with_objective : bool
        Whether the terms of the bound are recorded.

    Returns
    -------
    Solution
        Known labels are kept. Where they contradict what the batch says without them, it is
        searched once more. Where the answers give a reason, queries are moved back, and answered
        again.
    """
    if tasks.scores:
        return label_scores(tasks, _options_of_scores(parameters, with_objective))
    if learned is None and (parameters.rehearse or can_keep_metrics(tasks)):
        learned = _prepare(tasks, parameters)
    proportions = None
    if learned is None and not tasks.n_support:
        proportions = first_proportions(replace(tasks, known=None), parameters)
    batch = calibrate(tasks, parameters, learned, proportions)
    solution = answer(batch, with_objective=with_objective)
    for moved in moved_back(tasks, batch, learned):
        again = answer(moved.batch, with_objective=with_objective)
        if len(moved.rows) == len(tasks):
            solution = again
        else:
            solution = merged(solution, moved.rows, again)
    return solution


def answer(batch: CalibratedBatch, *, with_objective: bool = False) -> Solution:
    """Judge, search, group, confidence and count, for a batch whose likelihood is known.

    Parameters
    ----------
    batch : CalibratedBatch
        Its queries have the last assignments afterwards.
    with_objective : bool, default=False
        Whether the terms of the bound are recorded.

    Returns
    -------
    Solution
    """
    unknown = judge(batch)
    searched = search(batch, unknown, with_terms=with_objective)
    grouped = group(batch, searched)
    probabilities = confidence(batch, grouped)
    findings = Findings(
        unknown=unknown,
        searched=searched,
        grouped=grouped,
        probabilities=probabilities,
    )
    return count(batch, findings)


def _options_of_scores(parameters: Parameters, with_objective: bool) -> Options:
    """What the scores of a classifier need to know of the parameters."""
    limits = Limits(
        concentration=parameters.concentration,
        max_iter=parameters.max_iter,
        tol=parameters.tol,
    )
    return Options(
        temperature=parameters.temperature,
        open_set=parameters.open_set,
        limits=limits,
        constants=parameters.constants,
        with_objective=with_objective,
    )


def first_proportions(tasks: Tasks, parameters: Parameters) -> Tensor:
    """[t, k] the proportions of classes that are known by name alone, by the better of two guesses.

    Items lie where names do, or around their own mean; see ``names``. Each guess is labelled as a
    task of its own, without updated prototypes and unknown queries. The better one has the higher
    Σ_q ln Σ_k π_k exp(ℓ_qk), with its own proportions π.
    """
    plain = replace(parameters, update_prototypes=False, open_set=False)
    proportions = []
    log_probabilities = []
    for guess in (None, equal_proportions(tasks)):
        # How sure to be says nothing about where items lie, so that pairs of queries are not asked.
        batch = replace(calibrate(tasks, plain, proportions=guess), one_shot=False)
        queries = batch.queries
        masses = answer(batch).tallied.masses
        found = (masses / queries.n_query).to(queries.likelihood.counts)
        proportions.append(found)
        log_probabilities.append(queries.each(partial(_log_probability, found)).values[0])
    first_is_better = (log_probabilities[0] >= log_probabilities[1]).unsqueeze(-1)
    return torch.where(first_is_better, proportions[0], proportions[1])


def _log_probability(proportions: Tensor, part: Part) -> Sums:
    """The work that computes ln p(queries) [t] for given proportions [t, k] of the classes."""
    return Sums((log_probability(part.log_likelihood, proportions),))


def learn_for_review(tasks: Tasks, open_set: bool = False) -> LearnedBatch:
    """Learn from the support of one batch in memory, and place its queries, once for many answers.

    A review labels the batch again and again, each time with more known labels. A shift is looked
    for now, and queries are moved back by it.
    """
    parameters = Parameters(open_set=open_set)
    if tasks.gaps:
        tasks = complete_support(tasks, parameters.constants)
    proportions = None
    if not tasks.n_support:
        proportions = first_proportions(replace(tasks, known=None), parameters)
    learned = LearnedBatch.of(learn_for_batch(tasks, parameters, proportions), tasks)
    learned = replace(learned, rehearsed=_rehearse(tasks, parameters, learned))
    batch = calibrate(tasks, parameters, learned)
    batch = replace(batch, representation=representation_of(learned.scaling))
    answer(batch)  # leaves the assignments in ``batch.queries``
    shift = shift_of(tasks, batch)
    if shift is None:
        return learned
    tasks = with_queries(tasks, Moved(shift.vector))
    moved = LearnedBatch.of(learn_for_batch(tasks, parameters, proportions), tasks)
    return replace(moved, found_shift=shift, rehearsed=learned.rehearsed)


def prepare_evidence(tasks: Tasks, **parameters: Any) -> Learned | None:
    """Learn what depends on the support alone: prototypes, within-class scatter and precision.

    Parameters
    ----------
    tasks : Tasks
        Tasks with the support; their queries are not used.
    **parameters
        As in ``evidence``.

    Returns
    -------
    Learned or None
        None if the scale depends on the queries, or if there is no example, so that nothing can be
        prepared.
    """
    asked = Parameters(**parameters)
    if tasks.gaps:
        tasks = complete_support(tasks, asked.constants)
    return _prepare(tasks, asked)


def _prepare(tasks: Tasks, parameters: Parameters) -> Learned | None:
    """What the support says, and, on request, what a rehearsal with it says about claims.

    The examples have no gaps.
    """
    learned = learn_support(tasks, parameters)
    if learned is None or not parameters.rehearse:
        return learned
    return replace(learned, rehearsed=_rehearse(tasks, parameters, learned))


def _rehearse(tasks: Tasks, parameters: Parameters, learned: Learned) -> Rehearsed | None:
    """What held-out examples say about claims; ``learned`` is what all examples say."""
    wrong = learned.doubts.wrong
    return rehearse_claims(tasks, parameters, _label_rehearsed, wrong)


def _label_rehearsed(tasks: Tasks, parameters: Parameters) -> Solution:
    return label(tasks, None, parameters, with_objective=False)


@checks_arguments
def evidence_from_likelihood(
    likelihood: Tensor,
    counts: Tensor,
    *,
    concentration: float | None = None,
    group_posterior: bool = True,
    merge_groups: bool = True,
    max_iter: int = 50,
    tol: float = 1e-2,
    schedule: Mapping[str, Any] | None = None,
    with_objective: bool = False,
) -> Solution:
    """Evidence for a classifier of your own, given its log-likelihoods.

    ``EvidenceFromScores`` makes them of scores of any kind, and calibrates them.

    Parameters
    ----------
    likelihood : Tensor of shape (t, q, k)
        ln p(query | class), up to a constant per query. A classifier's logits serve if it was
        trained on equally frequent classes and is calibrated on samples that it was not trained on.
    counts : Tensor of shape (t, k)
        The number of samples of each class that the classifier was trained on.
    concentration, group_posterior, merge_groups, max_iter, tol, schedule
        As in ``evidence``.
    with_objective : bool, default=False
        Whether to record the bound after each iteration.

    Returns
    -------
    Solution
        As from ``evidence``, without prototypes.

    Examples
    --------
    >>> import torch
    >>> logits = torch.tensor([[[3.0, 0.0, 0.0], [4.0, 0.0, 1.0], [3.0, 1.0, 0.0], [1.0, 1.1, 0.0]]])
    >>> evidence_from_likelihood(logits, torch.ones(1, 3)).labels.tolist()
    [[0, 0, 0, 0]]
    """
    _check_likelihood(likelihood, counts)
    parameters = Parameters(
        concentration=concentration,
        group_posterior=group_posterior,
        merge_groups=merge_groups,
        max_iter=max_iter,
        tol=tol,
        schedule=schedule,
    )
    given = GivenLikelihood(n_samples=counts.to(likelihood))
    queries = InMemory(likelihood, Tasks.from_scores(likelihood), given, parameters)
    batch = CalibratedBatch(queries=queries, parameters=parameters, told=given.told)
    return answer(batch, with_objective=with_objective)


def _check_likelihood(likelihood: Tensor, counts: Tensor) -> None:
    """Refuse shapes that do not go together, and values that are no log-likelihoods."""
    has_queries = likelihood.ndim == _AXES and likelihood.shape[1] > 0
    if not has_queries or counts.shape not in _shapes_of_counts(likelihood):
        of_likelihood = f"The likelihoods have shape {tuple(likelihood.shape)}"
        shapes = f"{of_likelihood} and the counts {tuple(counts.shape)}"
        raise InputError(f"{shapes}; they must be [task, query, class] and [task, class].")
    if not likelihood.is_floating_point():
        problem = f"The likelihoods are {likelihood.dtype}"
        raise InputError(f"{problem}; they must be floating-point numbers.")
    if not bool(torch.isfinite(likelihood).all()):
        hint = "use a low finite number for what is impossible"
        raise InputError(f"A log-likelihood is NaN or infinite; {hint}.")


def _shapes_of_counts(likelihood: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shapes that counts may have: of every task, or of one that stands for all."""
    n_tasks, _, n_classes = likelihood.shape
    return (n_tasks, n_classes), (1, n_classes)

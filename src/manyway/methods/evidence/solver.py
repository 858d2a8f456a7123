"""Evidence: calibrated likelihoods, and as few classes as the queries give evidence for. The method of this project.

A query with the features z_q has in class k, whose n_k examples have the mean w_k and the pooled scatter S, the
log-likelihood

    ℓ_qk = −½ τ (‖z_q − w_k‖² − S/n_k).

S/n_k is what the random error of w_k adds to a squared distance on average. The proportions of the classes among the
queries have a Dirichlet(α, …, α) prior and are integrated out (``prior``). The labels maximise a bound on
ln p(queries | support), and with it the number of classes that occur is found. Five steps, each in a module of its own:

1. **calibrate** (`likelihood`, `names`, `from_scores`, and `manyway.methods.calibration`): what a distance or a score
   says about a class, that is, the metric of ‖·‖, the precision τ and S;
2. **judge** (`unknown`): ν_q, how probable it is that a query is of none of the classes; 0 without ``open_set``;
3. **search** (`search`, `prior`): the assignments u with the highest evidence, and with them the classes that occur;
4. **group** (`groups`): what the queries of a class say together;
5. **count**: probabilities p_qk (1 − ν_q), and which classes are present.

A class is *present* with a probability between 1 − Π_q (1 − p_qk), which holds if the errors of queries are
independent, and max_q p_qk, which holds if they are shared; ``Solution.presence`` is the middle.

Queries are held in memory (`queries`), for many tasks at once, or read in blocks (`blocks`), for one. `streams` carries
what earlier batches taught, and `review` says which query a person should label next. Known labels, names of classes,
unknown queries, weights and powers are parts that are always there, and neutral where a task has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import torch
from torch import Tensor

from manyway.core import Answered, Pile, Reading, Scaling, Solution, Sums, Tasks, class_sums
from manyway.core.arguments import checks_arguments
from manyway.errors import InputError
from manyway.methods.calibration import (
    Calibration,
    Finish,
    Representation,
    calibrate,
    calibrate_and_place,
    doubted,
    tuned,
)
from manyway.methods.calibration.scaling import QUERY_DEPENDENT
from manyway.methods.evidence import groups as grouping
from manyway.methods.evidence.blocks import InBlocks
from manyway.methods.evidence.groups import GroupPosterior, Groups, Probabilities, is_one_shot
from manyway.methods.evidence.likelihood import Distances, Likelihood, Scores
from manyway.methods.evidence.names import Named, guesses, log_probability, named
from manyway.methods.evidence.queries import InMemory, Part, excluded, sample
from manyway.methods.evidence.schedule import Parameters
from manyway.methods.evidence.search import Dense, fused_search
from manyway.methods.evidence.streams import in_streams, next_batch
from manyway.methods.evidence.unknown import (
    UnknownGroups,
    UnknownPosterior,
    clumping,
    judge,
    judged_stride,
)
from manyway.methods.scores.search import Limits
from manyway.methods.scores.solver import Options, label_scores

Queries = InMemory | InBlocks


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
    max_iter: int = 50,
    tol: float = 1e-2,
    scale: str | None = "auto",
    schedule: Mapping[str, Any] | None = None,
    prepared: Learned | None = None,
    with_objective: bool = False,
    carry: bool = False,
) -> Solution:
    """Calibrate distances on the support, then find which classes are present by the evidence of all queries.

    The log-likelihood of query q under class k is ℓ_qk = −½ τ (‖z_q − w_k‖² − S/n_k), where w_k is the mean of the n_k
    support samples and S the within-class scatter. The precision τ is calibrated by leaving support samples out in
    turn. Class proportions have a Dirichlet(α, …, α) prior and are integrated out. The method maximises, over the
    assignments u and over a grid of α, a lower bound on ln p(queries | support):

        Σ u_qk ℓ_qk − Σ u_qk ln u_qk + Σ_k (1 − p⁰_k) φ(m_k / (1 − p⁰_k)) + ln Γ(Kα)/Γ(|Q|+Kα),

    where m_k = Σ_q u_qk, p⁰_k = Π_q (1 − u_qk) and φ(n) = ln Γ(n+α)/Γ(α). An iteration takes the best α for the present
    u, and then u_qk = softmax_k(ℓ_qk + the derivative of the prior's terms). With a small α few classes are present;
    with a large α labels are those of the nearest prototypes. Prototypes stay fixed during the search.

    The search begins with annealed likelihoods, so that queries agree on classes before each one is certain, and it
    sharpens them where many classes are present. Final probabilities are computed with ℓ itself.

    Parameters
    ----------
    tasks : Tasks
        The tasks to solve. Queries may be rows, a pile that is read in blocks, or scores of a classifier; some labels
        may be known, classes may have names, and a batch may follow earlier ones.
    precision : float or None, default=None
        τ in the log-likelihood −½ τ ‖z − w‖². By default it is calibrated on the support.
    metric : bool, default=True
        Whether distances are measured in a metric that is learned from the support: directions in which samples of one
        class differ much count less. It needs two examples of some class.
    likelihood : {"auto", "metric", "logistic"}, default="metric"
        "metric": prototypes are class means. "logistic": they are tuned by logistic regression on the examples. "auto",
        about three times the time: tuned where left-out examples gain by it and no query is unknown.
    temperature : float or None, default=None
        T, which divides the logits before a softmax. For scores; by default labelled scores or the batch itself say it.
    concentration : float or None, default=None
        α of the Dirichlet prior of the class proportions. Small values favour few classes. By default the value with
        the highest evidence is chosen for each task.
    update_prototypes : bool, default=True
        Whether the queries of a class update its prototype before the final probabilities are computed.
    group_posterior : bool, default=True
        Whether the queries of a class, which share the error of its prototype, may as a group belong to another class.
        This makes the probabilities calibrated where few classes are present. It changes few labels.
    merge_groups : bool, default=True
        Whether small groups may be fragments of larger ones. Part of ``group_posterior``.
    open_set : bool, default=False
        Whether queries may be unknown: of none of the classes. The solution then has ``unknown``, the probability of
        that, and class probabilities sum to 1 − ``unknown``. It is calibrated on the support, by leaving classes out.
    max_iter : int, default=50
        The largest number of iterations. Updates of the annealing come before them.
    tol : float, default=0.01
        A task stops when an iteration changes less than this. What changes are the assignments u.
    scale : {"auto", "rcl2", "cl2", "tcl2", "l2", "range", "power", "white"} or None, default="auto"
        Feature transform; None uses the features as they are. "auto": as the support says; see
        ``manyway.methods.calibration.representation``.
    schedule : mapping of str to object or None, default=None
        Other values for constants of the method, by name; see ``manyway.methods.evidence.schedule``. For research.
    prepared : Learned or None, default=None
        What ``prepare_evidence`` learned from the same support, so that it is not learned again.
    with_objective : bool, default=False
        Whether to record the objective after each iteration. It is the bound, with its terms ``fit``, ``entropy`` and
        ``prior``. Not for a pile.
    carry : bool, default=False
        Whether the batches of a stream (``Tasks.stream``) are labelled one after another, each with what earlier ones
        taught; see ``manyway.methods.evidence.streams``. Tasks without a stream are labelled alone.

    Returns
    -------
    Solution
        ``presence``, ``n_present`` and ``n_present_sd`` say which classes are present, and how many.

    Notes
    -----
    All queries are updated at once. With α chosen by evidence the bound has not been seen to decrease; with a tiny
    fixed α and few queries it can. The method extends the correction of label shift by maximum likelihood (Saerens et
    al., 2002).

    Reference: docs/evidence.md derives the method and shows the effect of each part.

    Examples
    --------
    >>> known = [[[0.0, 0.0], [4.0, 0.0], [0.0, 9.0]]]
    >>> tasks = Tasks.from_arrays(known, [[0, 1, 2]], [[[0.1, 0.2], [0.2, 0.1], [0.1, 0.0], [0.3, 8.8]]])
    >>> evidence(tasks).labels.tolist()
    [[0, 0, 0, 2]]
    """
    given = precision, metric, likelihood, temperature, concentration, update_prototypes, group_posterior, merge_groups
    parameters = Parameters(*given, open_set, max_iter, tol, scale, schedule)

    solve = partial(label, parameters=parameters, with_objective=with_objective)
    if carry and tasks.n_batches > 1:
        learned = learn_before(tasks[:: tasks.n_batches], parameters) if prepared is None else prepared
        return in_streams(tasks, solve, parameters, learned)
    return next_batch(tasks, solve, parameters, prepared) if tasks.earlier is not None else solve(tasks, prepared)


def label(tasks: Tasks, learned: Learned | None, parameters: Parameters, with_objective: bool) -> Solution:
    """Batches that are labelled alone: calibrate, and find.

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
        Known labels are kept. Where they contradict what the batch says without them, it is searched once more.
    """
    if tasks.scores:
        return label_scores(tasks, of_scores(parameters, with_objective))
    if learned is None:
        learned, placed = learn_and_place(tasks, scaled(tasks, parameters), parameters)
    else:
        placed = learned.place(tasks)
    likelihood = Distances(learned.calibration)
    queries = hold(tasks, placed, likelihood, parameters)
    more: dict[str, Any] = {}
    if isinstance(queries, InMemory):
        more["make_prototypes"] = lambda: learned.prototypes(tasks, queries)
    if isinstance(learned.scaling, Representation):
        more["learned"] = learned.scaling.learned
    return find(queries, one_shot=learned.one_shot, with_objective=with_objective, **more)


def of_scores(parameters: Parameters, with_objective: bool) -> Options:
    """What the scores of a classifier need to know of the parameters."""
    limits = Limits(concentration=parameters.concentration, max_iter=parameters.max_iter, tol=parameters.tol)
    return Options(
        temperature=parameters.temperature,
        open_set=parameters.open_set,
        limits=limits,
        constants=parameters.constants,
        with_objective=with_objective,
    )


def find(queries: Queries, *, one_shot: bool = False, with_objective: bool = False, **more: Any) -> Solution:
    """Judge, search, group and count, for queries whose likelihood is known.

    Parameters
    ----------
    queries : InMemory or InBlocks
        They are searched: afterwards they have the last assignments.
    one_shot : bool, default=False
        Whether no class had two samples to calibrate with. The probabilities are then raised to a power that pairs of
        queries decide; see ``powers``.
    with_objective : bool, default=False
    **more
        Goes into the solution.

    Returns
    -------
    Solution
    """
    likelihood, parameters, given_classes = queries.of, queries.parameters, queries.given_classes
    schedule = parameters.constants
    judges = (judged(queries, one_shot),) if parameters.open_set else ()
    in_blocks = isinstance(queries, InBlocks)
    prior = parameters.prior(queries.n_query, likelihood.counts, weighted=bool(judges), double=in_blocks)

    found = queries.search(prior, with_terms=with_objective)
    n_iter, converged = found.n_iter, found.converged
    groups = Groups.of(queries, prior)
    posterior = groups.posterior(likelihood, torch.zeros_like(given_classes), parameters)
    if queries.any_given:
        contradicted = queries.each(partial(_contradictions, groups, posterior)).values[0] > 0
        if bool(contradicted.any()):
            again = queries.fix(contradicted, prior)
            groups = Groups.of(queries, prior, fixed=True)
            if parameters.update_prototypes and groups.updated.classes.shape[1] and not one_shot:
                # Known queries tell which groups are right, so that the search can go on with updated prototypes. With
                # one sample per class it must not: a prototype is then mostly queries, and those of a wrong group stay.
                queries.resume(groups.updated, groups.presence, prior)
                groups = Groups.of(queries, prior, fixed=True)
            n_iter = n_iter + again.n_iter
            converged = torch.where(again.n_iter > 0, again.converged, converged)
            known = given_classes & contradicted.unsqueeze(-1)
            posterior = groups.posterior(likelihood, known, parameters)
    answer = Probabilities.plain(groups, posterior)
    if not parameters.precision and isinstance(likelihood, Distances):
        calibration = likelihood.calibration
        power = calibration.power / grouping.farther(groups.lengths, calibration)
        if one_shot:
            placed, found_there = sample(queries, grouping.stride(queries.n_query), answer)
            power = calibration.power * grouping.powers(placed, found_there, calibration, schedule)
        answer = replace(answer, power=power.view(-1, 1, 1))

    present = groups.presence.present
    finds = tuple(one.groups(*sample(queries, one.stride, answer)) for one in judges)
    for groups_of_unknown in finds:
        more["unknown_medoids"] = groups_of_unknown.medoids
    answering = partial(_answers, answer, finds)
    answers = answering if in_blocks else cache(answering)
    at_least = torch.zeros_like(present).masked_fill(given_classes, 1)
    more["make_presence"] = lambda: torch.maximum(posterior.presence(present), at_least)
    more["make_copies"], more["counting"] = (lambda: grouping.copies(queries, schedule, one_shot)), schedule
    more["learned"] = {**likelihood.learned, **more.get("learned", {})}
    more["objective_parts"] = found.terms
    if isinstance(queries, InBlocks):
        reading = Reading(queries.pile, queries.on_part(answers).found, queries.before)
        return Solution(reading, n_iter, converged, **more)
    (probabilities, unknown, its_groups), part = queries.each(answers), queries.part
    outcomes = probabilities if unknown is None else torch.cat([probabilities, unknown.unsqueeze(-1)], -1)
    more["make_review_scores"] = lambda: grouping.review_scores(part, outcomes, schedule)
    return Solution(probabilities, n_iter, converged, unknown=unknown, unknown_groups=its_groups, **more)


def judged(queries: Queries, one_shot: bool) -> UnknownPosterior:
    """Judge which queries are unknown, and let the others count more in the search.

    A sample of the queries is first assigned as if none were unknown: the groups of this search, and groups of similar
    queries, are compared with what classes that are left out look like (``unknown``). In the search that follows, query
    q has the weight 1 − ν_q.
    """
    likelihood = queries.of
    assert isinstance(likelihood, Distances)  # unknown scores have a method of their own
    stride = judged_stride(queries.n_query, likelihood.counts.shape[1])
    placed, known = sample(queries, stride)
    closed = likelihood.of(placed)
    if queries.any_given:
        closed = excluded(closed, known)
    parameters = queries.parameters
    schedule, prior = parameters.constants, parameters.prior(placed.shape[1], likelihood.counts)
    assigned = fused_search(Dense.of(closed), prior, parameters).queries.u
    posterior = judge(placed, assigned, likelihood.calibration.unshrunk(), stride, schedule, one_shot)
    queries.weigh(posterior.unknown)
    return posterior


def _answers(probabilities: Probabilities, finds: tuple[UnknownGroups, ...], part: Part) -> Answered:
    """From some queries to their answers; ``finds`` has the groups of unknown queries where queries may be unknown.

    Otherwise it is empty. (Throughout the folder, what may be missing is a tuple of at most one, which ``for`` reads.)
    """
    found = probabilities.finished(probabilities.searched(part), part)
    for groups in finds:
        return Answered(found, part.unknown, groups(part, found))
    return Answered(found)


def hold(tasks: Tasks, placed: Tensor | Pile, likelihood: Likelihood, parameters: Parameters) -> Queries:
    """The placed queries of tasks, in memory or in blocks.

    Parameters
    ----------
    tasks : Tasks
        They have the known labels.
    placed : Tensor of shape [t, q, d] or Pile
        The rows in the coordinates of the likelihood.
    likelihood : Likelihood
    parameters : Parameters

    Returns
    -------
    InMemory or InBlocks
    """
    if isinstance(placed, Pile):
        return InBlocks(placed, tasks, likelihood, parameters)
    return InMemory(placed, tasks, likelihood, parameters)


def _contradictions(groups: Groups, posterior: GroupPosterior, part: Part) -> Sums:
    """The work that counts the known labels [t] which the batch without them does not say."""
    answer = Probabilities.plain(groups, posterior)
    labels = answer.searched(part).argmax(-1)
    return Sums((((part.given >= 0) & (labels != part.given)).sum(1),))


@dataclass(frozen=True, eq=False)
class Learned:
    """What is learned from the support, so that it serves any batch of queries.

    It is what ``prepare_evidence`` returns and estimators keep in ``fit``.
    """

    scaled: Tasks  # with the support, and with names as examples where a class has no other
    scaling: Scaling | Representation  # of the queries
    calibration: Calibration
    one_shot: bool  # whether no class had two samples

    @property
    def precision(self) -> Tensor:
        """[t] τ."""
        return self.calibration.precision

    def place(self, tasks: Tasks) -> Tensor | Pile:
        """The queries, scaled and placed."""
        if isinstance(tasks.pile, Pile):
            return tasks.pile.then(self.scaling).then(self.calibration.placing())
        return self.calibration.place(self.scaling(tasks.query))

    def prototypes(self, tasks: Tasks, queries: InMemory) -> Tensor:
        """[t, k, d] the means of scaled examples and queries, which count as much as the method lets them.

            (Σ_s y_sk z_s + Σ_q a_qk z_q) / (n_k + Σ_q a_qk),

        where a is u times the weight of queries.
        """
        part, parameters = queries.part, queries.parameters
        taken = part.u * grouping.query_weights(queries.presence.masses).unsqueeze(1)
        taken = taken * float(parameters.update_prototypes)
        sums, counts = class_sums(self.scaled)
        return (sums + taken.mT @ self.scaling(tasks.query)) / (counts + taken.sum(1)).unsqueeze(-1)


@dataclass(frozen=True, eq=False)
class Placed(Learned):
    """What is learned from the support, and queries that are placed already."""

    placed: Tensor  # [1, q, d]

    def place(self, tasks: Tasks) -> Tensor | Pile:
        return self.placed

    def with_classes(self, first: list[int], rows: list[int]) -> Placed:
        """The queries ``rows``, and a further class for each query in ``first``, which is its one sample."""
        calibration = self.calibration.with_classes(self.placed[:, first])
        return replace(self, calibration=calibration, placed=self.placed[:, rows])


def _learned(found: Named, parameters: Parameters) -> Learned:
    calibration = calibrate(found.tasks, *parameters.of_calibration, finishing(found, parameters))
    return _with_power(found, calibration, calibration.place(found.vectors), parameters)


def _with_power(found: Named, calibration: Calibration, names: Tensor, parameters: Parameters) -> Learned:
    """What was learned, with placed names [t, k, d]."""
    one_shot = is_one_shot(found.tasks)
    power = torch.ones_like(calibration.precision) if one_shot else doubted(calibration.examples, parameters.constants)
    if isinstance(found.scaling, Representation):
        if one_shot:  # one example in few columns may be anywhere in its class
            columns = found.scaling.columns.flatten().square()
            power = columns / (columns + parameters.constants.few_columns**2)
        # Where the length of rows says little (h near 1), a little of ρ costs much.
        clumped = calibration.clumped * (1 - found.scaling.shortening.flatten())
        calibration = replace(calibration, clumped=clumped)
    calibration = found.with_names(replace(calibration, power=power), names)
    return Learned(found.tasks, found.scaling, calibration, one_shot)


def finishing(found: Named, parameters: Parameters) -> Finish | None:
    """What is done to a calibration at last, where the errors of prototypes can be known: they are shrunk, and tuned.

    Tuned prototypes are not in the middle of their classes, which tells unknown queries.
    """
    tasks, constants = found.tasks, parameters.constants
    likelihood = parameters.likelihood
    if is_one_shot(tasks) or parameters.precision or found.vectors.shape[1]:
        return None
    tune = likelihood == "logistic" or (likelihood == "auto" and not parameters.open_set)

    def finish(calibration: Calibration, tasks: Tasks) -> Calibration:
        shrunk, always = calibration.shrunk(constants), likelihood == "logistic"
        if parameters.open_set:
            shrunk = replace(shrunk, clumped=clumping(calibration, tasks, constants))
        return tuned(shrunk, calibration.offsets, tasks, constants, always) if tune else shrunk

    return finish


def learn_and_place(tasks: Tasks, found: Named, parameters: Parameters) -> tuple[Learned, Tensor | Pile]:
    """What ``_learned`` learns, and the placed queries. The metrics of many tasks in memory are not kept.

    A metric is a [d, d] factor per task. Queries and names are therefore placed while it is there.
    """
    if isinstance(tasks.pile, Pile):
        learned = _learned(found, parameters)
        return learned, learned.place(tasks)
    with_names = found.tasks
    if found.vectors.shape[1]:
        with_names = with_names.with_rows(with_names.support, torch.cat([with_names.query, found.vectors], 1))
    finish = finishing(found, parameters)
    calibration, placed = calibrate_and_place(with_names, *parameters.of_calibration, finish)
    return _with_power(found, calibration, placed[:, tasks.n_query :], parameters), placed[:, : tasks.n_query]


def place_once(tasks: Tasks, open_set: bool = False) -> Placed:
    """What is learned of one batch in memory that is labelled again and again, with more known labels each time."""
    parameters = Parameters(open_set=open_set)
    learned, placed = learn_and_place(tasks, scaled(tasks, parameters), parameters)
    assert isinstance(placed, Tensor)
    return Placed(learned.scaled, learned.scaling, learned.calibration, learned.one_shot, placed)


def scaled(tasks: Tasks, parameters: Parameters) -> Named:
    """The tasks with scaled features, and the names of their classes, where they have any."""
    if tasks.n_support:
        return named(grouping.distinct(tasks, parameters.constants), parameters, guesses(tasks)[0])
    return named(tasks, parameters, first_proportions(replace(tasks, known=None), parameters))


def first_proportions(tasks: Tasks, parameters: Parameters) -> Tensor:
    """[t, k] the proportions of classes that are known by name alone, by the better of two guesses: see ``names``.

    Each guess is labelled as a task of its own, without updated prototypes and unknown queries. The better one has the
    higher Σ_q ln Σ_k π_k exp(ℓ_qk), with its own proportions π.
    """
    plain, tried = replace(parameters, update_prototypes=False, open_set=False), []
    for guess in guesses(tasks):
        learned, placed = learn_and_place(tasks, named(tasks, parameters, guess), parameters)
        queries = hold(tasks, placed, Distances(learned.calibration), plain)
        proportions = (find(queries).tallied.masses / queries.n_query).to(learned.precision)
        tried.append((proportions, queries.each(partial(_fit, proportions)).values[0]))
    (one, fit), (other, other_fit) = tried
    return torch.where((fit >= other_fit).unsqueeze(-1), one, other)


def _fit(proportions: Tensor, part: Part) -> Sums:
    """The work that computes ln p(queries) [t] for given proportions [t, k] of the classes."""
    return Sums((log_probability(part.likelihood, proportions),))


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
        None if the scale depends on the queries, or if there is no example, so that nothing can be prepared.
    """
    return learn_before(tasks, Parameters(**parameters))


def learn_before(tasks: Tasks, parameters: Parameters) -> Learned | None:
    """What can be learned before the queries are known; None where they have a part in it."""
    if parameters.scale in {*QUERY_DEPENDENT, "power"} or not tasks.n_support or tasks.scores:
        return None
    return _learned(scaled(tasks, parameters), parameters)


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
        ln p(query | class), up to a constant per query. A classifier's logits serve if it was trained on equally
        frequent classes and is calibrated on samples that it was not trained on.
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
    is_filled = likelihood.ndim == 3 and likelihood.shape[1] > 0
    if not is_filled or counts.shape not in (likelihood[:, 0].shape, (1, likelihood.shape[-1])):
        shapes = f"The likelihoods have shape {tuple(likelihood.shape)} and the counts {tuple(counts.shape)}"
        raise InputError(f"{shapes}; they must be [task, query, class] and [task, class].")
    if not likelihood.is_floating_point():
        raise InputError(f"The likelihoods are {likelihood.dtype}; they must be floating-point numbers.")
    if not bool(torch.isfinite(likelihood).all()):
        raise InputError("A log-likelihood is NaN or infinite; use a low finite number for what is impossible.")
    grouping: dict[str, Any] = {"group_posterior": group_posterior, "merge_groups": merge_groups, "schedule": schedule}
    parameters = Parameters(concentration=concentration, max_iter=max_iter, tol=tol, **grouping)
    queries = hold(Tasks.from_scores(likelihood), likelihood, Scores(counts.to(likelihood)), parameters)
    return find(queries, with_objective=with_objective)

"""What an estimator has found for one batch of queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyway.core import DEFAULT_RATE, Solution, best_two, shapes
from manyway.errors import optional
from manyway.estimators.values import like, to_numpy

# What is handed back in the array type of the queries.
_ARRAYS = ["probabilities", "proportions", "prototypes", "objective", "presence"]
_ARRAYS += ["unknown", "unknown_groups", "unknown_medoids"]
_SHOWN = 10  # rows of a table in a notebook


class FoundShift(NamedTuple):
    """How much queries differ from the examples, all in the same way, as another camera makes them."""

    size: float  # expected, in units of the spread of a class
    probability: float  # that they do
    moved: bool  # whether they were moved back before they were labelled
    # How well they tell classes apart, relative to examples; the probabilities are lower by it.
    contrast: float


class RehearsedClaims(NamedTuple):
    """How right claims were when examples were held out and labelled as batches."""

    n_items: int  # how many examples were held out, over all batches
    right: float  # the part of them that was labelled right
    claimed: float  # the mean probability of their labels
    n_sure: int  # how many had a label with a probability above 0.9
    sure_right: float  # the part of these that was labelled right
    n_listed: int  # how many classes were listed as present, over all batches
    n_absent: int  # how many of these did not occur
    power: float  # what probabilities are raised to for it; 1: they are as they were


@dataclass(frozen=True, eq=False, repr=False)
class Inference:
    """What ``infer`` returns for one batch of queries.

    NumPy in gives NumPy here, torch in gives torch. Inferences can be pickled;
    ``repr`` shows shapes only.

    Parameters
    ----------
    labels : array of shape [q]
        The labels, as they were given to ``fit``; strings are always NumPy.
    probabilities : array of shape [q, k]
        The class probabilities, columns in the order of ``classes``.
    proportions : array of shape [k]
        The estimated proportion of each class among the queries.
    prototypes : array of shape [k, d] or None
        The class prototypes in the feature scale of the method; None where it has none.
    objective : array of shape [i] or None
        The objective after each iteration; None where it was not recorded.
    n_iter : int
        The number of iterations.
    converged : bool
        Whether the method's own stopping rule was met.
    presence : array of shape [k]
        The probability that each class occurs among the queries.
    n_present : float
        The expected number of classes that occur among the queries.
    n_present_sd : float
        Its standard deviation.
    classes : ndarray of shape [k]
        The classes, in the order of the columns.
    solution : Solution
        What the solver returned.
    unknown : array of shape [q] or None
        How likely each query is unknown; None where the method assumes that all are of a class.
    unknown_groups : array of shape [q] or None
        The number of the group of unknown queries that a query belongs to, the largest first;
        -1 for the others.
    unknown_medoids : array of shape [g] or None
        The query in the middle of each of these groups.

    Attributes
    ----------
    review_order : array of shape [n]
        The rows whose label is not known, in the order in which a person should look at them.

    Examples
    --------
    >>> from manyway import SimpleShot
    >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [1.0, 0.2]])
    >>> result
    Inference(labels=[2], probabilities=[2, 2], prototypes=[2, 2], n_iter=1, converged=True, n_present=1.7 ± 0.5)
    >>> result.labels.tolist()
    ['ant', 'bee']
    """

    labels: Any
    probabilities: Any
    proportions: Any
    prototypes: Any
    objective: Any
    n_iter: int
    converged: bool
    presence: Any
    n_present: float
    n_present_sd: float
    classes: Any
    solution: Solution
    unknown: Any = None
    unknown_groups: Any = None
    unknown_medoids: Any = None

    @staticmethod
    def of(
        solution: Solution, labels: Any, classes: Any, X: Any, *, with_objective: bool
    ) -> "Inference":
        """The solution of one task, in the array type of its queries X.

        Parameters
        ----------
        solution : Solution
        labels : array of shape [q]
            The user's labels.
        classes : ndarray of shape [k]
        X : array
        with_objective : bool
            Whether the objective was asked for.

        Returns
        -------
        Inference
        """

        asked = {name: with_objective or name != "objective" for name in _ARRAYS}
        arrays = {
            name: getattr(solution, name) if wanted else None for name, wanted in asked.items()
        }
        return Inference(
            labels,
            n_iter=int(solution.n_iter[0]),
            converged=bool(solution.converged[0]),
            n_present=float(solution.n_present[0]),
            n_present_sd=float(solution.n_present_sd[0]),
            classes=classes,
            solution=solution,
            **{
                name: None if value is None else like(value[0], X) for name, value in arrays.items()
            },
        )

    @property
    def n_present_interval(self) -> tuple[int, int]:
        """The lowest and the highest number of classes that occur, in about 95 % of all batches."""
        low, high = self.solution.n_present_interval[0].tolist()
        return low, high

    @property
    def shift_(self) -> FoundShift | None:
        """How much the queries differ from the examples, all in the same way.

        None where the method does not look for it.
        """
        told = self.solution.told
        if "shift" not in told:
            return None
        moved_by = self.solution.moved_by
        return FoundShift(
            size=float(told["shift"][0]),
            probability=float(told["shift_probability"][0]),
            moved=moved_by is not None and bool((moved_by[0] != 0).any()),
            contrast=float(told.get("contrast", torch.ones(1))[0]),
        )

    @property
    def rehearsed_(self) -> RehearsedClaims | None:
        """How right claims were on held-out examples; None where none were held out."""
        told = self.solution.told
        if "rehearsed_power" not in told:
            return None
        seen = {name: told[f"rehearsed_{name}"][0].item() for name in RehearsedClaims._fields}
        return RehearsedClaims(
            n_items=int(seen["n_items"]),
            right=seen["right"],
            claimed=seen["claimed"],
            n_sure=int(seen["n_sure"]),
            sure_right=seen["sure_right"],
            n_listed=int(seen["n_listed"]),
            n_absent=int(seen["n_absent"]),
            power=seen["power"],
        )

    @property
    def n_unseen(self) -> float:
        """How many further classes are expected to occur if more queries were drawn so."""
        return float(self.solution.n_unseen[0])

    @cached_property
    def review_order(self) -> Any:
        """The rows whose label is not known, in the order in which to review them.

        Those come first whose answer is expected to repair most labels.

        It is computed on first use. After an answer, call ``infer`` with the longer ``known``:
        the order changes.
        """
        scores = self.solution.review_scores[0]
        order = scores.argsort(descending=True, stable=True)[: int((scores >= 0).sum())]
        return order if isinstance(self.probabilities, Tensor) else order.cpu().numpy()

    def present(self, error_rate: float | None = DEFAULT_RATE) -> list[Any]:
        """The labels of the classes that occur, the most certain first: a list that can be signed.

        Over many batches at most ``error_rate`` of the listed classes are absent.
        See ``Solution.present``.

        Parameters
        ----------
        error_rate : float or None, default=0.05
            The false discovery rate: the part of the listed classes that may be absent, on average
            over batches. None: a longer list, whose expected F1 is the highest.

        Returns
        -------
        list

        Examples
        --------
        >>> from manyway import SimpleShot
        >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [0.0, 1.0]])
        >>> result.present(error_rate=0.2)
        ['ant']
        """
        return list(self.classes[self.solution.present(error_rate)[0].cpu().numpy()].tolist())

    def possible(self, error_rate: float | None = DEFAULT_RATE) -> list[Any]:
        """The labels of the classes that are not in ``present(error_rate)`` but cannot be ruled out.

        Parameters
        ----------
        error_rate : float or None, default=0.05

        Returns
        -------
        list
            Those that occur with a probability above ``error_rate``; the most probable first.
        """
        return list(self.classes[self.solution.possible(error_rate)[0].cpu().numpy()].tolist())

    def to_frame(self) -> Any:
        """A pandas table with one row per query.

        Returns
        -------
        pandas.DataFrame
            Columns ``label``, ``probability``, ``label_2``, ``probability_2``, and ``unknown`` and
            ``group`` where the method has them. Where the label says that a query is unknown,
            ``probability`` is that of being unknown, and the most probable class comes second.

        Examples
        --------
        >>> from manyway import SimpleShot
        >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [1.0, 0.2]])
        >>> result.to_frame()[["label", "label_2"]].values.tolist()
        [['ant', 'bee'], ['bee', 'ant']]
        """
        return optional("pandas", "tables", "to_frame").DataFrame(self.columns())

    def columns(self) -> dict[str, Any]:
        """The columns of `to_frame` as NumPy arrays, by their names.

        Returns
        -------
        dict of str to ndarray

        Examples
        --------
        >>> from manyway import SimpleShot
        >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [1.0, 0.2]])
        >>> list(result.columns())
        ['label', 'probability', 'label_2', 'probability_2']
        """
        unknown = None if self.unknown is None else torch.as_tensor(self.unknown)
        columns = best_two(torch.as_tensor(self.probabilities), unknown)
        for name in ("label", "label_2"):
            columns[name] = self.classes[columns[name]]
        if self.unknown_groups is not None:
            columns["group"] = to_numpy(self.unknown_groups)
            for name, answer in (
                ("label", to_numpy(self.labels)),
                ("probability", columns["unknown"]),
            ):
                columns[f"{name}_2"] = np.where(
                    columns["group"] < 0, columns[f"{name}_2"], columns[name]
                )
                columns[name] = np.where(columns["group"] < 0, columns[name], answer)
        return columns

    def classes_frame(self) -> Any:
        """A pandas table with one row per class, the most probably present first.

        Returns
        -------
        pandas.DataFrame
            Columns ``class``, ``presence``, ``proportion`` and ``items``,
            the number of queries with that label.

        Examples
        --------
        >>> from manyway import SimpleShot
        >>> result = SimpleShot().fit([[0.0, 1.0], [1.0, 0.0]], ["ant", "bee"]).infer([[0.1, 1.0], [0.0, 1.0]])
        >>> result.classes_frame()[["class", "items"]].values.tolist()
        [['ant', 2], ['bee', 0]]
        """
        pandas = optional("pandas", "tables", "classes_frame")
        chosen = best_two(torch.as_tensor(self.probabilities))["label"]
        chosen = (
            chosen if self.unknown_groups is None else chosen[to_numpy(self.unknown_groups) < 0]
        )
        estimates = {"presence": to_numpy(self.presence), "proportion": to_numpy(self.proportions)}
        counts = np.bincount(chosen, minlength=len(self.classes))
        table = pandas.DataFrame({"class": self.classes, **estimates, "items": counts})
        return table.sort_values("presence", ascending=False, kind="stable", ignore_index=True)

    def _repr_html_(self) -> str:
        """A sentence, and tables of the classes that occur and of the first queries.

        A notebook shows them.
        """
        from markupsafe import Markup

        low, high = self.n_present_interval
        number = str(low) if low == high else f"{low} to {high}"
        listed = dict.fromkeys(self.present(), "present") | dict.fromkeys(
            self.possible(), "possible"
        )
        order = np.argsort(-to_numpy(self.presence), kind="stable")
        classes = [
            (
                name,
                listed[name],
                f"{float(self.presence[k]):.0%}",
                f"{float(self.proportions[k]):.1%}",
            )
            for k, name in ((k, self.classes[k]) for k in order)
            if name in listed
        ]
        columns = self.columns()
        queries = [
            [row, *(f"{cell:.2f}" if isinstance(cell, float) else cell for cell in cells)]
            for row, cells in enumerate(
                zip(*(values[:_SHOWN].tolist() for values in columns.values()), strict=True)
            )
        ]
        sentence = (
            f"{len(self.labels)} queries, {len(self.classes)} possible classes; "
            f"{number} are estimated to occur."
        )
        more = len(self.labels) - len(queries)
        return str(
            Markup("<p>{}</p>").format(sentence)
            + _html_table(("class", "verdict", "is present", "share"), classes[:_SHOWN])
            + _html_table(("query", *columns), queries)
            + (
                Markup("<p>… and {} more; to_frame() has all.</p>").format(more)
                if more
                else Markup("")
            )
        )

    def __repr__(self) -> str:
        found = shapes(self, ("labels", "probabilities", "prototypes", "objective"))
        number = f"n_present={self.n_present:.1f} ± {self.n_present_sd:.1f}"
        return f"Inference({found}, n_iter={self.n_iter}, converged={self.converged}, {number})"


def _html_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """A table for a notebook; whatever stands in its cells is text."""
    from markupsafe import Markup

    def line(cells: Sequence[Any], kind: str) -> Any:
        open_tag = Markup(f"<{kind}>")
        close_tag = Markup(f"</{kind}>")
        inside = Markup("").join(open_tag + str(cell) + close_tag for cell in cells)
        return Markup("<tr>") + inside + Markup("</tr>")

    head = Markup("<thead>") + line(header, "th") + Markup("</thead>")
    body = Markup("<tbody>") + Markup("").join(line(row, "td") for row in rows) + Markup("</tbody>")
    return Markup("<table>") + head + body + Markup("</table>")

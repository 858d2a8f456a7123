"""What a person is told about a batch, in one place for the summary and the page of a review."""

from __future__ import annotations

from collections.abc import Mapping

_MORE_LIKELY = 0.5  # a shift that is more likely than not is said


def remark_on_shift(told: Mapping[str, float]) -> str | None:
    """A sentence about items that differ from the examples, all alike; None where they do not.

    Parameters
    ----------
    told : mapping of str to float
        What the method tells about the batch.

    Returns
    -------
    str or None

    Examples
    --------
    >>> remark_on_shift({"shift": 1.84, "shift_probability": 0.97}).split(";")[0]
    'The items differ from the examples by 1.8 times the spread of a class'
    """
    if told.get("shift_probability", 0.0) <= _MORE_LIKELY:
        return None
    return (
        f"The items differ from the examples by {told['shift']:.1f} times the spread of a "
        "class; the labels assume that all differ alike; confirm a few in the review."
    )

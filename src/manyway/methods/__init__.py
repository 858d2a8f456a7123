"""The methods: one file or one folder each, and the table that lists them."""

from manyway.methods._table.checks import check_solution
from manyway.methods._table.registry import (
    DEFAULT_METHOD,
    METHODS,
    Method,
    get_method,
    needs_whole_rows,
    solve,
)

__all__ = [
    "DEFAULT_METHOD",
    "METHODS",
    "Method",
    "check_solution",
    "get_method",
    "needs_whole_rows",
    "solve",
]

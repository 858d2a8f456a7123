"""The methods: one file or one folder each, and the table that lists them."""

from manyway.methods._table.registry import (
    DEFAULT_METHOD,
    METHODS,
    Method,
    get_method,
    needs_whole_rows,
    solve,
)

__all__ = ["DEFAULT_METHOD", "METHODS", "Method", "get_method", "needs_whole_rows", "solve"]

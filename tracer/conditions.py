"""Which rows of a table are asked for: conditions, and names that are not there.

Checks a condition against a schema before anything is read; it reads nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracer.errors import TracerError, UnknownNameError

Where: TypeAlias = "pc.Expression | Sequence[tuple[str, str, Any]] | None"


def unknown_name(what: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """An error that names the close matches, or all names where nothing is close."""
    close = difflib.get_close_matches(str(name), list(known)) or sorted(known)
    return UnknownNameError(
        f"There is no {what} {name!r}; did you mean one of: {', '.join(close)}?"
    )


def condition(where: Where, schema: pa.Schema) -> pc.Expression | None:
    """The Arrow expression of a condition, checked against a schema before anything is read.

    Raises:
        UnknownNameError: A tuple names a column that is not there.
        TracerError: An operator or a type that does not fit.
    """
    if where is None or isinstance(where, pc.Expression):
        expression = where
    else:
        for name, *_ in where:
            if name not in schema.names:
                raise unknown_name("column called", name, schema.names)
        try:
            expression = pq.filters_to_expression(list(where)) if where else None
        except ValueError as error:
            raise TracerError(f"The condition {where!r} can't be read: {error}") from error
    if expression is not None:
        try:
            schema.empty_table().filter(expression)
        except (pa.ArrowException, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise TracerError(f"The condition {where!r} does not fit: {reason}.") from error
    return expression

"""Which rows of a table are asked for: a condition, checked against a schema.

Checks it before anything is read; it reads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracer.errors import TracerError
from tracer.explain.lookup import unknown_name
from tracer.explain.sentences import phrase

Where: TypeAlias = "pc.Expression | Sequence[tuple[str, str, Any]] | None"


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
                raise unknown_name("column", name, schema.names)
        try:
            expression = pq.filters_to_expression(list(where)) if where else None
        except ValueError as error:
            raise TracerError(
                phrase("errors.condition_unreadable", where=where, why=error)
            ) from error
    if expression is not None:
        try:
            schema.empty_table().filter(expression)
        except (pa.ArrowException, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise TracerError(phrase("errors.condition_misfit", where=where, why=reason)) from error
    return expression

"""Questions about a load: which tensors took longest."""

from __future__ import annotations

import pandas as pd

from tracer.trace import Trace


def slowest_tensors(trace: Trace, count: int = 10) -> pd.DataFrame:
    """The tensors whose read and cast took longest.

    Args:
        trace: A trace with a load.
        count: At most so many rows, the slowest first.

    Returns:
        Columns key, file, shape, stored_dtype, loaded_dtype, size_bytes, read_ns, cast_ns,
        duration_ns, worker. A `mapped` tensor is still a view of the file: its bytes will be
        read by whoever touches them first.
    """
    columns = [
        "key",
        "file",
        "shape",
        "stored_dtype",
        "loaded_dtype",
        "size_bytes",
        "mapped",
        "read_ns",
        "cast_ns",
        "duration_ns",
        "worker",
    ]
    loads = trace.read("tensor_loads", columns=columns)
    return loads.sort_values("duration_ns", ascending=False).head(count).reset_index(drop=True)

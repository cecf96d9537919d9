"""`verify_weights`: live values compared with the file by content, one tensor at a time.

Runs after the user's call, as stage `verify`. What went through a conversion or comes from no file
is `not compared`; a cast is repeated on the source before comparing.
"""

from __future__ import annotations

import sys
from typing import Any

from tracer.instrument.placements import named_tensors
from tracer.instrument.reads import Load


def verify(load: Load, model: Any) -> None:
    """Fill in `verified`, `new_infinities` and `new_zeros` of the load's placements."""
    tensors = {each.name: each.tensor for each in named_tensors(model)}
    state = load.state
    span = state.open("spans", "verify", "weights compared with their sources")
    verdicts = {"equal": 0, "different": 0, "not compared": 0}
    for row in load.placement_rows:
        with state.recorder.guard("verify_weights"):
            _verify_row(load, row, tensors)
        verdicts[row["verified"]] += 1
    state.close(span, summary=verdicts)


def _verify_row(load: Load, row: dict[str, Any], tensors: dict[str, Any]) -> None:
    live = tensors[row["param"]]
    if row["origin"] == "tied":
        source = tensors[row["sources"][0]]
        row["verified"] = "equal" if live.data_ptr() == source.data_ptr() else "different"
    elif row["origin"] == "checkpoint" and live.device.type != "meta":
        stored = _stored(load, row["sources"][0])
        if stored is not None:
            _compare(row, stored, live)


def _stored(load: Load, key: str) -> Any:
    path = load.file_of.get(key)
    if path is None or not path.endswith(".safetensors"):
        return None
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return file.get_tensor(key)


def _compare(row: dict[str, Any], stored: Any, live: Any) -> None:
    torch = sys.modules["torch"]
    expected = stored.to(live.dtype)
    own = live.detach().to("cpu")
    same = own.shape == expected.shape and torch.equal(_bits(own), _bits(expected))
    row["verified"] = "equal" if same else "different"
    if expected.is_floating_point() and expected.dtype != stored.dtype:
        row["new_infinities"] = int((torch.isinf(expected) & ~torch.isinf(stored)).sum())
        row["new_zeros"] = int(((expected == 0) & (stored != 0)).sum())


def _bits(tensor: Any) -> Any:
    """The raw bytes: NaN equals itself, and -0.0 differs from 0.0."""
    return tensor.contiguous().reshape(-1).view(sys.modules["torch"].uint8)

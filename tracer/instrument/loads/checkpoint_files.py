"""Checkpoint files of a load: opened, their headers read, and which tensors came whole.

Function and line numbers were read in transformers 5.24.0.
"""

from __future__ import annotations

import zipfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

from tracer import checkpoint
from tracer.errors import CheckpointError, in_english
from tracer.formats import gguf
from tracer.formats.safetensors import read_text
from tracer.instrument import measure
from tracer.instrument.loads import gguf_names
from tracer.instrument.loads.load_notes import Load
from tracer.instrument.stages import Arguments, Call, Outcome, open_span
from tracer.recorder import Recorder
from tracer.spans import ThreadState


def opened_file(state: ThreadState, call: Call) -> Generator[Arguments | None, Outcome, Outcome]:
    """`safe_open`: a checkpoint file is opened, its header parsed; no weight is read."""
    path = str(call.argument(0, "filename"))
    span = open_span(state, call, Path(path).name)
    outcome = yield None
    state.close(span, outcome.status, summary={"backend": call.kwargs.get("backend")})
    load = state.load
    if load is not None:
        if path not in load.files:
            load.files.append(path)
        if outcome.error is None:
            _note_opened(load, call, path, outcome.result)
        elif path.endswith(".safetensors"):
            _name_the_cause(state.recorder, path)
    return outcome


def _note_opened(load: Load, call: Call, path: str, content: Any) -> None:
    """How the bytes come, and which names a file without a header holds."""
    if call.target.attribute == "safe_open":
        load.access[path] = call.kwargs.get("backend") or "mmap"
    elif not path.endswith(".safetensors"):
        # A `.bin` that is a zip archive is mapped (load_state_dict, modeling_utils.py); older ones
        # are read. Of one that is opened on meta nothing but the names is read.
        if call.argument(1, "map_location") != "meta":
            load.access[path] = "mmap" if zipfile.is_zipfile(path) else "bytes"
        load.file_of.update(dict.fromkeys(content, path))


def _name_the_cause(recorder: Recorder, path: str) -> None:
    try:
        checkpoint.read_header(path)
    except CheckpointError as error:
        recorder.fault(Path(path).name, in_english(error))


def note_unseen_access(load: Load) -> None:
    """Files that were read through no call that is observed: in one go, or mapped by GGUF's reader.

    The user may ask for the first (`disable_mmap`), and the library does so on some file systems.
    """
    for path in load.files:
        load.access.setdefault(path, "mmap" if path.endswith(".gguf") else "bytes")
    ways = {load.access[path] for path in load.files}
    load.are_mapped = ways == {"mmap"} and all(map(_is_safetensors, load.files))


def _is_safetensors(path: str) -> bool:
    return path.endswith(".safetensors")


def read_headers(load: Load, files: Iterable[str]) -> None:
    """Headers of files that have one, for shapes, places and fates of what is in them."""
    for path in files:
        try:
            if path.endswith(".gguf"):
                header = gguf.read_header(path)
                load.note_header(path, header)
                gguf_names.match(load, header)
            elif path.endswith(".safetensors"):
                load.texts[path] = read_text(path)
        except CheckpointError as error:
            load.state.recorder.fault(Path(path).name, in_english(error))


def note_given(load: Load, state_dict: dict[str, Any]) -> None:
    """Shapes of tensors that came whole, out of a `.bin` or from the user: no header has them."""
    kinds = set(map(type, state_dict.values()))
    are_tensors = {kind: hasattr(kind, "element_size") for kind in kinds}
    if not any(are_tensors.values()) and load.texts.keys() >= set(load.files):
        return  # slices of safetensors files, which headers tell of
    for name, tensor in state_dict.items():
        key = gguf_names.in_file(load, name)[0]
        if load.file_of.get(key) not in load.headers and are_tensors[type(tensor)]:
            dtype = measure.dtype_name(tensor.dtype)
            load.given[key] = (measure.shape_of(tensor), dtype, measure.size_of(tensor))
        if key not in load.file_of and len(load.files) == 1:
            load.file_of[key] = load.files[0]

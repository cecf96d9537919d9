"""Rules on a folder before anything is loaded: files, headers, index, configuration.

What is wrong with files is decided once, by `inspect`; here its kinds become findings.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from tracer import problems
from tracer.diagnosis.finding import Found, Row, Severity, cells
from tracer.diagnosis.rules import Answers, rule
from tracer.formats.entries import dtype_name
from tracer.inspecting.fit import chosen_entries, stored_dtype
from tracer.problems import Problem

if TYPE_CHECKING:
    from tracer.inspection import Inspection

_POINTERS: Final = "huggingface/transformers#27923, deepseek-ai/DeepSeek-V3#557"
_SHARDS: Final = "Blaizzy/mlx-vlm#1464, JustVugg/colibri#1317"

_DAMAGE: Final = (
    "wrong_format", "damaged_header", "extra_bytes", "gap", "size_mismatch", "damaged_json",
    "damaged_index",
)  # fmt: skip

_KINDS: Final[tuple[tuple[str, Severity, str, tuple[str, ...]], ...]] = (
    ("file_absent", "fatal", _SHARDS, ("absent_file", "broken_link")),
    ("file_unreadable", "fatal", "", ("no_permission", "unreadable")),
    ("file_empty", "fatal", _POINTERS, ("empty_file",)),
    ("file_pointer", "fatal", _POINTERS, ("lfs_pointer",)),
    ("file_cut", "fatal", _POINTERS, ("header_cut", "tail_cut")),
    (
        "file_damaged",
        "fatal",
        _POINTERS,
        _DAMAGE,
    ),
    ("path_outside_folder", "fatal", "", ("outside_folder",)),
    ("folder_incomplete", "fatal", "", ("no_config", "no_weights", "no_index", "no_base")),
    ("weights_nested", "fatal", "", ("nested",)),
    ("file_unused", "note", _SHARDS, ("stray_file",)),
    ("memory_too_small", "warning", "", ("no_room",)),
)
"""Rule, severity, reference, and the kinds of `problems.KINDS` that it is about."""

_IN_BYTES: Final = {"lfs_pointer", "tail_cut", "header_cut", "extra_bytes", "no_room"}
_WIDE: Final = {"float32", "bfloat16"}
_BYTES: Final = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def problem_rows(found: Iterable[Problem]) -> tuple[Row, ...]:
    """Problems of an inspection as evidence."""
    return tuple(
        cells(
            "problems",
            {"kind": one.kind, "file": one.file, "key": one.key},
            expected=one.expected,
            found=one.found,
            sentence=one.sentence,
        )
        for one in found
    )


def _of_kinds(kinds: tuple[str, ...], inspection: Inspection) -> Answers:
    found = [one for one in inspection.problems if one.kind in kinds]
    if not found:
        return
    files = list(dict.fromkeys(one.file for one in found if one.file is not None))
    first = found[0]
    in_bytes = first.kind in _IN_BYTES
    lacking = [one.missing_bytes for one in found if one.missing_bytes is not None]
    yield Found(
        {
            "count": len(files),
            "files": files,
            "expected_bytes": first.expected if in_bytes else None,
            "found_bytes": first.found if in_bytes else None,
            "expected": first.expected
            if in_bytes
            else list(dict.fromkeys(str(one.expected) for one in found)),
            "found": first.found if in_bytes else None,
            "missing_bytes": sum(lacking) if lacking else None,
        },
        problem_rows(found),
    )


for _name, _severity, _reference, _of in _KINDS:
    rule(_name, _severity, "folder", _reference)(functools.partial(_of_kinds, _of))


@rule("config_without_type", "fatal", "folder", "huggingface/transformers#42381")
def config_without_type(inspection: Inspection) -> Answers:
    """A configuration by which no Auto class can know the family."""
    held = inspection.survey.settings.get("config.json")
    auto = (held or {}).get("auto_map")
    is_own = isinstance(auto, dict) and "AutoConfig" in auto
    is_adapter = (inspection.survey.entry or "").startswith("adapter_model")
    if held is not None and not held.get("model_type") and not is_own and not is_adapter:
        key = {"source": "config.json", "fact": "model_type"}
        named = held.get("architectures")
        names = [one for one in named if isinstance(one, str)] if isinstance(named, list) else None
        yield Found({"architectures": names or None}, (cells("facts", key, value=None),))


@rule("index_disagrees", "warning", "folder", _SHARDS)
def index_disagrees(inspection: Inspection) -> Answers:
    """Index and headers that name different tensors, or one tensor twice."""
    kinds = {"not_held", "misplaced", "not_in_index", "held_twice"}
    found = [one for one in inspection.problems if one.kind in kinds]
    if found:
        lost = [one for one in found if one.kind == "not_held"]
        keys = list(dict.fromkeys(one.key for one in found))
        severity: Severity = "fatal" if lost else "warning"
        yield Found({"count": len(keys), "keys": keys}, problem_rows(found), severity)


@rule("index_total_wrong", "note", "folder", _SHARDS)
def index_total_wrong(inspection: Inspection) -> Answers:
    """A total that the headers do not add up to, while every file and name is there."""
    broken = problems.causes(inspection.problems)
    for one in inspection.problems:
        is_explained = broken or any(
            other.kind in {"not_held", "misplaced", "not_in_index"} for other in inspection.problems
        )
        if one.kind == "total_size" and not is_explained:
            yield Found(
                {"expected_bytes": one.expected, "found_bytes": one.found}, problem_rows([one])
            )


@rule("dtype_of_config_differs", "note", "folder", "huggingface/transformers#34743")
def dtype_of_config_differs(inspection: Inspection) -> Answers:
    """A configuration that names another dtype than most of the stored bytes have."""
    asked = stored_dtype(inspection.config)
    floats = [one for one in inspection.dtypes if one.dtype in _BYTES]
    if asked not in _BYTES or not floats or "quantization_config" in inspection.config:
        return
    stored = floats[0].dtype
    if stored == asked:
        return
    # float16 has few exponents: what the file holds in a wider range may not fit.
    severity: Severity = "note"
    if (asked == "float16" and stored in _WIDE) or _BYTES[asked] > _BYTES[stored]:
        severity = "warning"
    values = floats[0].parameters
    first = next(
        (path, entry) for path, entry in chosen_entries(inspection.survey)
        if dtype_name(entry.dtype) == stored
    )  # fmt: skip
    yield Found(
        {
            "asked": asked,
            "stored": stored,
            "stored_bytes": values * _BYTES[stored],
            "loaded_bytes": values * _BYTES[asked],
        },
        (
            cells("facts", {"source": "config.json", "fact": "dtype"}, value=asked),
            cells("tensors", {"file": first[0], "key": first[1].key}, dtype=stored),
        ),
        severity,
    )


@rule("remote_code_present", "note", "folder")
def remote_code_present(inspection: Inspection) -> Answers:
    """Python of the folder's own, named by an auto_map."""
    rows = []
    for file in ("config.json", "tokenizer_config.json", "preprocessor_config.json"):
        held = inspection.survey.settings.get(file, {}).get("auto_map")
        for auto, target in (held if isinstance(held, dict) else {}).items():
            rows.append(cells("facts", {"source": file, "fact": "auto_map"}, auto=auto, to=target))
    scripts = [file.path for file in inspection.survey.files if file.kind == "code"]
    if rows:
        named: list[Any] = list(dict.fromkeys(_script(row.cells["to"]) for row in rows))
        yield Found({"files": scripts or named, "count": len(rows)}, tuple(rows))


def _script(target: Any) -> str:
    """The file that `modeling_x.ClassName` lies in; another repository stands before `--`."""
    text = str(next((one for one in target if one), "") if isinstance(target, list) else target)
    return text.rpartition(".")[0] + ".py"

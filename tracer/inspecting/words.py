"""An inspection as rows, as text for a terminal and as a page for a notebook.

Names and texts come from a stranger's folder: all of them are escaped, bounded and shown on one
line.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tracer.checkpoint import Header
from tracer.export.text import storable_text, visible_text
from tracer.inspecting.fit import stored_dtype
from tracer.inspecting.tokenizer import ROLES, TokenizerFacts
from tracer.problems import Problem, causes
from tracer.survey import Survey
from tracer.views.labels import bytes_label, count_label, plural

if TYPE_CHECKING:
    import pandas

    from tracer.inspection import Inspection

PROBLEM_COLUMNS: Final = [
    "level", "kind", "file", "key", "expected", "found", "missing_bytes", "sentence",
]  # fmt: skip
_MOST_OF_A_KIND: Final = 3
_LONGEST_CELL: Final = 300
_CONFIG_FACTS: Final = (
    "model_type", "architectures", "dtype", "tie_word_embeddings", "vocab_size", "hidden_size",
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "num_local_experts",
    "max_position_embeddings", "quantization_config", "auto_map", "transformers_version",
)  # fmt: skip


def problem_rows(found: Iterable[Problem]) -> list[dict[str, Any]]:
    """Rows of problems; numbers and words stand in one column, as text where they are mixed."""
    return [
        {
            "level": one.level,
            "kind": one.kind,
            "file": one.file,
            "key": one.key,
            "expected": None if one.expected is None else str(one.expected),
            "found": None if one.found is None else str(one.found),
            "missing_bytes": one.missing_bytes,
            "sentence": one.sentence,
        }
        for one in found
    ]


def file_rows(survey: Survey) -> list[dict[str, Any]]:
    """Every file of the folder, and every weights file that should be there."""
    broken = causes(survey.problems)
    rows = []
    for file in survey.files:
        header, cause = survey.headers.get(file.path), broken.get(file.path)
        is_read = file.path in survey.chosen or file.path not in survey.why_not
        if file.kind in {"other", "code"}:
            is_read = False
        rows.append(
            {
                "path": file.path,
                "kind": file.kind,
                "format": file.format,
                "size_bytes": file.size_bytes,
                "expected_bytes": _end(header) if header else _expected(cause),
                "tensors": len(header.tensors) if header else None,
                "read": is_read and cause is None,
                "why_not": cause.sentence if cause else _reason(file.kind, file.path, survey),
            }
        )
    present = {file.path for file in survey.files}
    rows += [
        {
            "path": path,
            "kind": "weights",
            "format": "safetensors" if path.endswith(".safetensors") else "pickle",
            "read": False,
            "why_not": broken[path].sentence,
        }
        for path in survey.chosen
        if path not in present and path in broken
    ]
    return rows


def _end(header: Header) -> int:
    ends = [one.offset_bytes + one.size_bytes for one in header.tensors.values()]
    return max(ends, default=header.file_bytes)


def _expected(cause: Problem | None) -> int | None:
    return cause.expected if cause is not None and isinstance(cause.expected, int) else None


def _reason(kind: str, path: str, survey: Survey) -> str | None:
    if kind == "other":
        return "no part of a model that the library looks for by this name"
    if kind == "code":
        return "run only with trust_remote_code=True, which the lab never sets"
    return survey.why_not.get(path)


def fact_rows(config: Mapping[str, Any], tokenizer: TokenizerFacts) -> list[dict[str, Any]]:
    """What configuration and tokenizer say, each with its file."""
    rows: list[dict[str, Any]] = [
        {"subject": "configuration", "fact": name, "value": _plain(value), "source": "config.json"}
        for name, value in _config_facts(config)
    ]
    rows += [
        {"subject": "tokenizer", "fact": fact, "value": _plain(value), "source": source}
        for fact, value, source in _tokenizer_facts(tokenizer)
        if value is not None
    ]
    return rows


def _config_facts(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    inner = config.get("text_config")
    for name in _CONFIG_FACTS:
        value = stored_dtype(config) if name == "dtype" else config.get(name)
        if value is None and isinstance(inner, dict):
            value = inner.get(name)
        if value is not None:
            yield name, value


def _tokenizer_facts(facts: TokenizerFacts) -> Iterator[tuple[str, Any, str | None]]:
    yield "class", facts.class_name, "tokenizer_config.json"
    yield "vocabulary", facts.size, facts.vocabulary_file
    yield "highest id", facts.highest_id, facts.vocabulary_file
    yield "rows in the embedding", facts.embedding_rows, "header"
    for role in ROLES:
        text, number = facts.special.get(role, (None, None))
        if text is not None:
            absent = "not in the vocabulary" if facts.vocabulary_file else "id not known"
            shown = absent if number is None else f"id {number}"
            yield f"{role} token", f"{text} ({shown})", "tokenizer files"
        for file, ids in facts.config_ids.items():
            if role in ids:
                yield f"{role} ids", ", ".join(map(str, ids[role])), file
    for file, length in facts.templates.items():
        yield "chat template", f"{length} characters", file


def _plain(value: Any) -> str:
    return visible_text(str(value)).replace("\n", "\\n").replace("\t", "\\t")[:_LONGEST_CELL]


def text(inspection: Inspection) -> str:
    """Some thirty lines for a terminal."""
    return "\n".join(
        [one_line(inspection.folder.name or str(inspection.folder)), *_body(inspection)]
    )


def _body(inspection: Inspection) -> Iterator[str]:
    for title, lines in _parts(inspection):
        yield ""
        yield title
        yield from (f"  {one_line(line)}" for line in lines)


def page(inspection: Inspection) -> str:
    """The same for a notebook, its tables folded below."""
    from tracer.views.tables import styled

    parts = html_parts(_parts(inspection))
    names = ("problems", "files", "tensors", "facts", "fit")
    tables = "".join(folded(name, styled(inspection.frame(name))) for name in names)
    return f"<div><h3>{html.escape(one_line(inspection.folder.name))}</h3>{parts}{tables}</div>"


def html_parts(parts: Iterable[tuple[str, list[str]]]) -> str:
    """Titles and their lines as escaped lists."""
    return "".join(
        f"<h4>{html.escape(title)}</h4><ul>"
        + "".join(f"<li>{html.escape(one_line(line))}</li>" for line in lines)
        + "</ul>"
        for title, lines in parts
    )


def folded(title: str, table: Any) -> str:
    """A styled table below its title, closed until somebody opens it."""
    return f"<details><summary>{title}</summary>{table._repr_html_()}</details>"


def one_line(value: str) -> str:
    """Text that moves no cursor, on one line."""
    return visible_text(value).replace("\n", "\\n").replace("\t", "\\t")


def _parts(inspection: Inspection) -> Iterator[tuple[str, list[str]]]:
    facts = inspection.frame("facts")
    yield "Weights", list(_weights(inspection))
    for subject in ("configuration", "tokenizer"):
        part = facts[facts["subject"] == subject]
        if len(part):
            yield (
                subject.capitalize(),
                [f"{row.fact}: {row.value}  ({row.source})" for row in part.itertuples()],
            )
    if inspection.fits:
        yield "Memory (estimated: weights alone)", list(_fits(inspection))
    found = inspection.problems
    title = plural(len(found), "problem") if found else "No problem found"
    yield title, list(problem_lines(found))


def _weights(inspection: Inspection) -> Iterator[str]:
    survey = inspection.survey
    yield f"begins with: {survey.entry or 'nothing that from_pretrained looks for'}"
    held = [path for path in survey.chosen if path in survey.headers]
    if survey.chosen:
        yield (
            f"{len(held)} of {plural(len(survey.chosen), 'file')} can be read: "
            f"{bytes_label(inspection.size_bytes)} in {count_label(inspection.parameters)} values"
        )
    for one in inspection.dtypes:
        yield f"{one.dtype}: {plural(one.tensors, 'tensor')}, {bytes_label(one.size_bytes)}"
    if survey.index is not None:
        size = bytes_label(survey.index.total_size)
        yield f"index: {plural(len(survey.index.weight_map), 'tensor')}, {size} in all"
    if inspection.missing_bytes:
        yield (
            f"missing: {bytes_label(inspection.missing_bytes)} ({inspection.missing_bytes:,} bytes)"
        )


def _fits(inspection: Inspection) -> Iterator[str]:
    first = inspection.fits[0]
    if first.left_bytes is not None:
        yield f"{bytes_label(first.left_bytes)} can still be had ({first.limit})"
    for one in inspection.fits:
        verdict = {True: "fits", False: "does not fit", None: "unknown"}[one.fits]
        yield f"{one.dtype}: {bytes_label(one.needed_bytes)}, {verdict}  (by {one.basis})"


def problem_lines(found: Iterable[Problem]) -> Iterator[str]:
    """One line a problem; of a kind that occurs often the first few, and how many more."""
    kinds: dict[str, list[Problem]] = {}
    for one in found:
        kinds.setdefault(one.kind, []).append(one)
    for kind, group in kinds.items():
        yield from (f"{one.level}  {one.sentence}" for one in group[:_MOST_OF_A_KIND])
        rest = group[_MOST_OF_A_KIND:]
        if rest:
            missing = sum(one.missing_bytes or 0 for one in group)
            size = f"; {missing:,} bytes are missing in all" if missing else ""
            yield f"{group[0].level}  ... and {len(rest)} more of {kind}{size}"


def frame(rows: list[dict[str, Any]], columns: list[str]) -> pandas.DataFrame:
    """Rows as a table; half characters in a stranger's names are written out."""
    import pandas

    cells = [
        {
            name: storable_text(value) if isinstance(value, str) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    return pandas.DataFrame(cells, columns=columns).convert_dtypes()


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose lists are JSON text, as in every table of the lab."""
    return {
        name: json.dumps(value) if isinstance(value, tuple) else value
        for name, value in row.items()
    }

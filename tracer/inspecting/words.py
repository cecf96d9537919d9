"""An inspection as rows, as text for a terminal and as a page for a notebook.

Names and texts come from a stranger's folder: all of them are escaped, bounded and shown on one
line.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tracer import explain
from tracer.checkpoint import Header
from tracer.explain.languages import words
from tracer.export.text import storable_text, visible_text
from tracer.inspecting.fit import limit, stored_dtype
from tracer.inspecting.tokenizer import ROLES, TokenizerFacts
from tracer.problems import Problem, causes
from tracer.survey import Survey
from tracer.views.labels import bytes_label, count_label

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
        return explain.text("unread.no_part")
    if kind == "code":
        return explain.text("unread.code")
    why = survey.why_not.get(path)
    return None if why is None else str(why)


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
            absent = "absent" if facts.vocabulary_file else "unknown"
            kind = absent if number is None else "id"
            known: dict[str, Any] = {} if number is None else {"number": number}
            shown = explain.text(f"facts.token_{kind}", token=text, **known)
            yield f"{role} token", shown, "tokenizer files"
        for file, ids in facts.config_ids.items():
            if role in ids:
                yield f"{role} ids", ", ".join(map(str, ids[role])), file
    for file, length in facts.templates.items():
        yield "chat template", explain.text("facts.characters", number=length), file


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
    shown = ("problems", "files", "tensors", "facts", "fit")
    tables = "".join(
        folded(_say(f"table_{name}"), styled(inspection.frame(name))) for name in shown
    )
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
    yield _say("weights"), list(_weights(inspection))
    for subject in ("configuration", "tokenizer"):
        part = facts[facts["subject"] == subject]
        if len(part):
            yield (
                _say(subject),
                [
                    _say("fact", name=_fact(row.fact), value=row.value, source=_fact(row.source))
                    for row in part.itertuples()
                ],
            )
    if inspection.fits:
        yield _say("memory"), list(_fits(inspection))
    yield problems_title(inspection.problems), list(problem_lines(inspection.problems))


def problems_title(found: list[Problem]) -> str:
    """How many problems there are."""
    return explain.count("problem", len(found)) if found else _say("no_problem")


def _fact(name: str) -> str:
    """A fact or its source in words; a setting's name and a file's are what they are."""
    role, _, kind = name.partition(" ")
    if role in ROLES and kind in ("token", "ids"):
        return explain.text(f"facts.role_{kind}", role=role)
    return str(words("folders")["facts"].get(name, name))


def _say(phrase: str, **values: Any) -> str:
    return explain.text(f"inspection.{phrase}", **values)


def _weights(inspection: Inspection) -> Iterator[str]:
    survey = inspection.survey
    yield _say("begins", entry=survey.entry) if survey.entry else _say("begins_with_nothing")
    held = [path for path in survey.chosen if path in survey.headers]
    if survey.chosen:
        yield _say(
            "readable",
            held=len(held),
            files=explain.count("file", len(survey.chosen)),
            size=bytes_label(inspection.size_bytes),
            values=count_label(inspection.parameters),
        )
    for one in inspection.dtypes:
        tensors = explain.count("tensor", one.tensors)
        yield _say("of_dtype", dtype=one.dtype, tensors=tensors, size=bytes_label(one.size_bytes))
    if survey.index is not None:
        tensors = explain.count("tensor", len(survey.index.weight_map))
        yield _say("of_index", tensors=tensors, size=bytes_label(survey.index.total_size))
    missing = inspection.missing_bytes
    if missing:
        yield _say("missing", size=bytes_label(missing), bytes=f"{missing:,}")


def _fits(inspection: Inspection) -> Iterator[str]:
    first = inspection.fits[0]
    if first.left_bytes is not None:
        yield _say("left", size=bytes_label(first.left_bytes), limit=limit(first.limit))
    for one in inspection.fits:
        verdict = {True: "fits", False: "does_not_fit", None: "unknown"}[one.fits]
        size, basis = bytes_label(one.needed_bytes), limit(one.basis)
        yield _say(verdict, dtype=limit(one.dtype), size=size, basis=basis)


def problem_lines(found: Iterable[Problem]) -> Iterator[str]:
    """One line a problem; of a kind that occurs often the first few, and how many more."""
    kinds: dict[str, list[Problem]] = {}
    for one in found:
        kinds.setdefault(one.kind, []).append(one)
    for kind, group in kinds.items():
        level = _say(group[0].level)
        for one in group[:_MOST_OF_A_KIND]:
            yield _say("problem", level=level, sentence=one.sentence)
        rest = len(group) - _MOST_OF_A_KIND
        missing = sum(one.missing_bytes or 0 for one in group)
        if rest > 0 and missing:
            size = f"{missing:,}"
            yield _say("more_of_kind_missing", level=level, number=rest, kind=kind, bytes=size)
        elif rest > 0:
            yield _say("more_of_kind", level=level, number=rest, kind=kind)


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

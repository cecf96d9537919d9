"""What each stage, table, column, term and finding means, in English and Chinese.

The sentences are data: one TOML file for each kind of words, in one folder a language; both folders
have the same files and the same keys, and a test walks them against the schema. To add a word, add
it beside its neighbours in both. `languages` chooses and reads, `lookup` finds; neither knows a
trace, a frame or a chart.
"""

from tracer.explain.languages import LANGUAGES, language
from tracer.explain.lookup import (
    Column,
    Finding,
    Stage,
    Table,
    audit_word,
    column,
    columns,
    count,
    finding,
    finding_title,
    glossary,
    label,
    moved_names,
    stage,
    table,
    text,
)
from tracer.explain.recorded import said_again

__all__ = [
    "LANGUAGES",
    "Column",
    "Finding",
    "Stage",
    "Table",
    "audit_word",
    "column",
    "columns",
    "count",
    "finding",
    "finding_title",
    "glossary",
    "label",
    "language",
    "moved_names",
    "said_again",
    "stage",
    "table",
    "text",
]

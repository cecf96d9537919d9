"""Both languages say everything that the schema has, nothing that it has not, and say it well."""

import re
import string
import tomllib
from pathlib import Path

import pytest

import tracer
from tracer.explain import LANGUAGES
from tracer.schema import EVENTS, STAGES, TABLES

FOLDER = Path(tracer.__file__).parent / "explain"


def kinds_of(code: str) -> list[str]:
    """Files of words by name, those in folders as `findings/loading`."""
    folder = FOLDER / code
    files = folder.rglob("*.toml")
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in files)


KINDS = kinds_of("en")
FINDINGS = [kind for kind in KINDS if kind.startswith("findings/")]
KNOWN = {**TABLES, EVENTS.name: EVENTS}
CHINESE = "\u4e00-\u9fff"
# What belongs to Chinese text although it stands outside the block of characters.
FULL_WIDTH = "，。：；？！（）“”、……《》"
each_language = pytest.mark.parametrize("code", LANGUAGES)
each_kind = pytest.mark.parametrize("kind", KINDS)


def read(code: str, kind: str) -> dict:
    return tomllib.loads((FOLDER / code / f"{kind}.toml").read_text("utf-8"))


def sentences(value, path=()):
    """Yield each text of a file with the keys that lead to it."""
    if isinstance(value, str):
        yield ".".join(path), value
    else:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from sentences(inner, (*path, str(key)))


def braces(text: str) -> set[str]:
    return {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}


def mentions(word: str, text: str) -> bool:
    return re.search(rf"\b{word}\b", text, re.ASCII) is not None


@each_language
def test_every_language_has_the_same_files(code):
    assert kinds_of(code) == KINDS


@each_kind
def test_every_language_has_the_same_keys_in_the_same_order(kind):
    english, chinese = read("en", kind), read("zh", kind)
    assert list(english) == list(chinese)
    for section in english:
        # A language without a singular of its own has no form for it.
        if (kind == "phrases" and section == "counts") or isinstance(english[section], dict):
            assert list(english[section]) == list(chinese[section])


@each_language
def test_every_stage_is_told(code):
    assert list(read(code, "stages")) == list(STAGES)


@each_language
def test_every_table_is_told(code):
    assert set(read(code, "tables")) == set(KNOWN)


@each_language
@pytest.mark.parametrize("table", KNOWN)
def test_every_column_is_told_and_no_other(code, table):
    texts = read(code, "columns")
    own, columns = texts.get(table, {}), KNOWN[table].column_names
    assert [name for name in columns if name not in own and name not in texts["shared"]] == []
    assert [name for name in own if name not in columns] == []


@each_language
def test_texts_of_columns_belong_to_tables(code):
    assert set(read(code, "columns")) <= {"shared", *KNOWN}


@each_language
def test_a_shared_text_is_read_in_several_tables(code):
    texts = read(code, "columns")
    for name in texts["shared"]:
        readers = [
            table
            for table, known in KNOWN.items()
            if name in known.column_names and name not in texts.get(table, {})
        ]
        assert len(readers) > 1, name


@each_language
def test_every_column_has_a_head_and_no_other(code):
    names = {name for table in KNOWN.values() for name in table.column_names}
    labels = read(code, "labels")
    assert set(labels["columns"]) == names
    assert names.isdisjoint(labels["computed"])


def test_every_stage_is_shown_by_tables_that_exist():
    stages = read("names", "stages")
    assert list(stages) == list(STAGES)
    for stage in stages.values():
        assert stage["tables"]
        assert set(stage["tables"]) <= set(TABLES)


@each_language
def test_a_lesson_has_two_to_five_sentences_and_ends_with_where_to_look(code):
    tables = {name: stage["tables"] for name, stage in read("names", "stages").items()}
    for name, stage in read(code, "stages").items():
        assert 2 <= len(stage["lesson"]) <= 5, name
        named = [word for word in TABLES if mentions(word, stage["lesson"][-1])]
        assert set(named) & set(tables[name]), name
        assert mentions(tables[name][0], " ".join(stage["lesson"])), name


@each_language
def test_there_are_terms_enough(code):
    assert len(read(code, "glossary")) >= 60


@each_language
@each_kind
def test_no_text_is_empty_or_has_space_around_it(code, kind):
    joints = {"between_sentences", "summary.row_counts", "tables.comma", "tables.semicolon"}
    joints |= {"joints.names", "joints.clauses", "joints.parts", "joints.choice"}
    joints |= {"joints.sentences"}
    spaced = joints if kind == "phrases" else set()
    if kind == "argparse":
        return  # Python's own words, with the space and the line's end that it puts there
    for path, text in sentences(read(code, kind)):
        if path not in spaced:
            assert text, path
            assert text == text.strip(), path
            assert "  " not in text, path


@each_language
@pytest.mark.parametrize("kind", ["stages", "tables", "columns", "glossary", "moved", *FINDINGS])
def test_sentences_end_as_sentences_do(code, kind):
    ends = (".", "?") if code == "en" else ("。", "？")
    heads = ("title", "term")
    for path, text in sentences(read(code, kind)):
        if path.rpartition(".")[2] not in heads:
            assert text.endswith(ends), path


@each_language
def test_a_column_takes_one_or_two_sentences(code):
    end = r"[.?](?= [A-Z]|$)" if code == "en" else "[。？]"
    for path, text in sentences(read(code, "columns")):
        assert 1 <= len(re.findall(end, text)) <= 2, path


def test_english_says_more_than_the_schema():
    texts = read("en", "columns")
    for table, known in KNOWN.items():
        for column in known.columns:
            text = texts.get(table, {}).get(column.name) or texts["shared"][column.name]
            assert len(text) > len(column.meaning), f"{table}.{column.name}"


@each_language
def test_a_section_of_sentences_is_in_one_file_only(code):
    assert set(read(code, "phrases")).isdisjoint(read(code, "charts"))


@each_kind
def test_both_languages_have_the_same_braces(kind):
    chinese = dict(sentences(read("zh", kind)))
    for path, text in sentences(read("en", kind)):
        # Chinese gives a stage's title beside its name or for it, and has no singular.
        if path in chinese and path not in {"summary.stage", "figure.stage", "figure.block"}:
            assert braces(text) == braces(chinese[path]), path


@each_kind
def test_chinese_is_chinese(kind):
    for path, text in sentences(read("zh", kind)):
        last = path.rpartition(".")[2]
        # Terms, heads and titles may be names that nobody translates; some phrases have no words.
        is_name = kind == "labels" or (kind in {"glossary", "moved"} and last in {"term", "title"})
        has_words = re.search("[A-Za-z]", re.sub(r"\{[^}]*\}|%\(\w+\)[sr]", "", text))
        assert is_name or not has_words or re.search(f"[{CHINESE}]", text), path


@each_kind
def test_chinese_stands_apart_from_latin_words(kind):
    for path, text in sentences(read("zh", kind)):
        touching = re.search(f"[{CHINESE}][A-Za-z0-9_]|[A-Za-z0-9_][{CHINESE}]", text)
        assert not touching, f"{path}: {touching and touching[0]}"


@each_kind
def test_chinese_has_full_width_punctuation(kind):
    # A brace stands for something that is put in: it counts as a Latin word.
    for path, text in sentences(read("zh", kind)):
        half = re.search(f"[{CHINESE}][,.:;?!()]|[,;?!()][{CHINESE}]", text)
        assert not half, f"{path}: {half and half[0]}"
        spaced = re.search(f" [{FULL_WIDTH}]|[{FULL_WIDTH}] ", text)
        assert not spaced, f"{path}: {spaced and spaced[0]}"


@each_kind
def test_english_has_no_chinese(kind):
    for path, text in sentences(read("en", kind)):
        assert not re.search(f"[{CHINESE}，。：；？！（）、]", text), path


# What names it in code (`pad_token_id`, `<pad>`, a column, a brace) stays as it is.
TOKEN = re.compile(r"(?<![\w.`{/-])token(?![\w`}=(/-])", re.ASCII)
WHERE_IT_IS_INTRODUCED = "token.term"


@each_kind
def test_chinese_has_one_word_for_a_token(kind):
    for path, text in sentences(read("zh", kind)):
        introduced = kind == "glossary" and path == WHERE_IT_IS_INTRODUCED
        assert introduced or not TOKEN.search(text), f"{path}: {text}"


def test_the_glossary_introduces_the_word_beside_the_english_one():
    assert read("zh", "glossary")["token"]["term"] == "词元（token）"


def test_the_players_chinese_has_the_same_word():
    source = (FOLDER.parent / "views/player/words.js").read_text("utf-8")
    told = [text for text in re.findall(r'"([^"\n]*)"', source) if re.search(f"[{CHINESE}]", text)]
    assert len(told) > 100  # the reader reads
    assert [text for text in told if TOKEN.search(text)] == []

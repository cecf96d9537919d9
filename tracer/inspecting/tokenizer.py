"""What the tokenizer's files say of themselves: vocabulary, special tokens, chat template.

Read as JSON, lines and bytes; no tokenizer is built. Texts of tokens are a stranger's: they are
told, never run or rendered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tracer import problems
from tracer.errors import CheckpointError
from tracer.explain.sentences import phrase
from tracer.formats import signature
from tracer.problems import Problem
from tracer.survey import Survey

ROLES: Final = ("bos", "eos", "pad")
_EMBEDDINGS: Final = (
    "embed_tokens.weight",
    "word_embeddings.weight",
    "wte.weight",
    "tok_embeddings.weight",
    "shared.weight",
    "embed_in.weight",
    "embeddings.weight",
)
"""Ends of names, whole parts, the surest first: position embeddings are no `embeddings`."""
_TEMPLATES: Final = ("chat_template.jinja", "chat_template.json", "processor_config.json")
_LARGEST_TEXT: Final = 200_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class TokenizerFacts:
    """A folder's tokenizer.

    Attributes:
        class_name: Class that `tokenizer_config.json` names; None where it names none.
        vocabulary: Ids by token text as far as files name both, added tokens included.
        vocabulary_file: File that the vocabulary comes from; None where none could be read.
        size: Number of different ids.
        highest_id: The largest id; an embedding needs one row more than this.
        embedding_rows: Rows of the input embedding in the checkpoint; None without a header.
        config_rows: `vocab_size` of the configuration.
        special: Text and id of bos, eos and pad, as the tokenizer's files tell.
        config_ids: Ids of bos, eos and pad by file: `config.json`, `generation_config.json`.
        templates: Files that hold a chat template, with its length in characters.
    """

    class_name: str | None
    vocabulary: Mapping[str, int]
    vocabulary_file: str | None
    size: int | None
    highest_id: int | None
    embedding_rows: int | None
    config_rows: int | None
    special: Mapping[str, tuple[str, int | None]]
    config_ids: Mapping[str, Mapping[str, tuple[int, ...]]]
    templates: Mapping[str, int]


def read_tokenizer(survey: Survey) -> TokenizerFacts:
    """Read what the files say, as far as they can be read."""
    own = survey.settings.get("tokenizer_config.json", {})
    held, file, unnamed = _vocabulary(survey)
    vocabulary = held | _added(survey, own)
    ids = vocabulary.values()
    # Without its main file, added tokens say nothing of how large a vocabulary is.
    highest = max([*ids, unnamed - 1]) if held or unnamed else None
    size = None if highest is None else len({*ids} | {*range(unnamed)})
    special = dict(_special(survey, own, vocabulary))
    files = ("config.json", "generation_config.json")
    config_ids = {
        name: dict(_config_ids(survey.settings[name])) for name in files if name in survey.settings
    }
    config_rows = _config_rows(survey.settings.get("config.json", {}))
    return TokenizerFacts(
        class_name=_text(own.get("tokenizer_class")),
        vocabulary=vocabulary,
        vocabulary_file=file,
        size=size,
        highest_id=highest,
        embedding_rows=_embedding_rows(survey, config_rows),
        config_rows=config_rows,
        special=special,
        config_ids=config_ids,
        templates=dict(_templates(survey, own)),
    )


def _vocabulary(survey: Survey) -> tuple[dict[str, int], str | None, int]:
    """Ids by text and the file they come from; of SentencePiece only how many there are."""
    whole = survey.settings.get("tokenizer.json", {})
    model = whole.get("model")
    if isinstance(model, dict):
        held = model.get("vocab")
        found = _ids(held) if isinstance(held, dict) else {}
        if isinstance(held, list):  # Unigram: pairs of text and score, in order
            pairs = [(place, one) for place, one in enumerate(held) if isinstance(one, list)]
            found = {str(one[0]): place for place, one in pairs if one}
        added = whole.get("added_tokens")
        for one in added if isinstance(added, list) else ():
            if isinstance(one, dict) and type(one.get("id")) is int:
                found[str(one.get("content"))] = one["id"]
        return found, "tokenizer.json", 0
    if "vocab.json" in survey.settings:
        return _ids(survey.settings["vocab.json"]), "vocab.json", 0
    for name in ("vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model"):
        raw = _read(survey.folder / name)
        if raw is not None and name == "vocab.txt":
            lines = raw.decode("utf-8", "replace").splitlines()
            return {line: place for place, line in enumerate(lines)}, name, 0
        if raw is not None:
            return {}, name, sum(1 for _ in _pieces(raw))
    return {}, None, 0


def _ids(held: Mapping[str, Any]) -> dict[str, int]:
    return {text: number for text, number in held.items() if type(number) is int}


def _read(path: Path) -> bytes | None:
    try:
        _, size = signature.read_start(path)
        return path.read_bytes() if size <= _LARGEST_TEXT else None
    except (CheckpointError, OSError):
        return None  # told among the problems already, or not there


def _pieces(raw: bytes) -> Iterator[int]:
    """Places of a SentencePiece model's pieces: field 1 of a protocol buffer, again and again."""
    place = 0
    while place < len(raw):
        tag, place = _varint(raw, place)
        kind = tag & 7
        if kind == 2:
            length, place = _varint(raw, place)
            if tag >> 3 == 1:
                yield place
            place += length
        elif kind == 0:
            _, place = _varint(raw, place)
        elif kind in {1, 5}:
            place += 8 if kind == 1 else 4
        else:
            return


def _varint(raw: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(raw) and shift < 64:
        byte = raw[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            break
    return value, place


def _added(survey: Survey, own: Mapping[str, Any]) -> dict[str, int]:
    found = _ids(survey.settings.get("added_tokens.json", {}))
    decoder = own.get("added_tokens_decoder")
    for number, entry in (decoder if isinstance(decoder, dict) else {}).items():
        text = _text(entry)
        if text is not None and number.isdecimal() and len(number) < 10:
            found[text] = int(number)
    return found


def _text(entry: Any) -> str | None:
    """A token's text, bare or as `{"content": ...}`."""
    text = entry.get("content") if isinstance(entry, dict) else entry
    return text if isinstance(text, str) else None


def _special(
    survey: Survey, own: Mapping[str, Any], vocabulary: Mapping[str, int]
) -> Iterator[tuple[str, tuple[str, int | None]]]:
    beside = survey.settings.get("special_tokens_map.json", {})
    for role in ROLES:
        name = f"{role}_token"
        text = _text(own.get(name)) or _text(beside.get(name))
        if text is not None:
            yield role, (text, vocabulary.get(text))


def _config_ids(content: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    inner = content.get("text_config")
    for role in ROLES:
        name = f"{role}_token_id"
        value = content.get(name)
        if value is None and isinstance(inner, dict):
            value = inner.get(name)
        ids: list[Any] = value if isinstance(value, list) else [value]
        if ids and all(type(one) is int for one in ids):
            yield role, tuple(ids)


def _config_rows(config: Mapping[str, Any]) -> int | None:
    inner = config.get("text_config")
    for content in (config, inner if isinstance(inner, dict) else {}):
        if type(content.get("vocab_size")) is int:
            return int(content["vocab_size"])
    return None


def _embedding_rows(survey: Survey, config_rows: int | None) -> int | None:
    """Rows of the input embedding; of several, those that the configuration speaks of."""
    headers = [survey.headers[path] for path in survey.chosen if path in survey.headers]
    shapes = {key: one.shape for header in headers for key, one in header.tensors.items()}
    found = [
        shape[0]
        for ending in _EMBEDDINGS
        for key, shape in shapes.items()
        if f".{key}".endswith(f".{ending}") and "visual" not in key and len(shape) == 2
    ]
    # A model that also speaks or draws has a vocabulary for each, and text is the largest.
    if config_rows in found or not found:
        return config_rows if found else None
    return found[0] if len(set(found)) == 1 else max(found)


def _templates(survey: Survey, own: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name in _TEMPLATES:
        if name in survey.settings:
            held = survey.settings[name].get("chat_template")
            if held is not None:
                yield name, len(str(held))
        elif name.endswith(".jinja"):
            raw = _read(survey.folder / name)
            if raw is not None:
                yield name, len(raw.decode("utf-8", "replace"))
    held = own.get("chat_template")
    if held is not None:
        # Several templates are a list of names and texts.
        texts = [_template(one) for one in held] if isinstance(held, list) else [held]
        sizes = [len(text) for text in texts if isinstance(text, str)]
        if sizes:
            yield "tokenizer_config.json", sum(sizes)


def _template(entry: Any) -> Any:
    return entry.get("template") if isinstance(entry, dict) else None


def tokenizer_problems(survey: Survey, facts: TokenizerFacts) -> Iterator[Problem]:
    """What of a tokenizer does not fit its model, or is not there."""
    if not any(file.kind == "tokenizer" for file in survey.files):
        yield problems.problem(
            "no_tokenizer",
            phrase("folders.no_tokenizer"),
        )
        return
    if not facts.templates:
        yield problems.problem(
            "no_template",
            phrase("folders.no_template"),
        )
    rows = facts.config_rows if facts.embedding_rows is None else facts.embedding_rows
    if facts.highest_id is not None and rows is not None and facts.highest_id >= rows:
        yield problems.problem(
            "vocabulary",
            phrase(
                "folders.ids_above_rows",
                file=facts.vocabulary_file,
                highest=facts.highest_id,
                rows=rows,
            ),
            file=facts.vocabulary_file,
            expected=rows,
            found=facts.highest_id + 1,
        )
    if None not in (facts.config_rows, facts.embedding_rows) and (
        facts.config_rows != facts.embedding_rows
    ):
        yield problems.problem(
            "vocabulary",
            phrase("folders.rows_differ", found=facts.config_rows, expected=facts.embedding_rows),
            file="config.json",
            key="vocab_size",
            expected=facts.embedding_rows,
            found=facts.config_rows,
        )
    yield from _ids_that_differ(facts)


def _ids_that_differ(facts: TokenizerFacts) -> Iterator[Problem]:
    """A turn's end that generation never stops at: the tokenizer's eos is no stop id."""
    text, number = facts.special.get("eos", ("", None))
    by_file = {name: ids["eos"] for name, ids in facts.config_ids.items() if "eos" in ids}
    # The generation configuration wins where there is one.
    name = "generation_config.json" if "generation_config.json" in by_file else "config.json"
    if number is not None and name in by_file and number not in by_file[name]:
        stops = ", ".join(map(str, by_file[name]))
        yield problems.problem(
            "token_ids",
            phrase("folders.token_ids", token=text, expected=number, file=name, found=stops),
            file=name,
            key="eos_token_id",
            expected=number,
            found=stops,
        )

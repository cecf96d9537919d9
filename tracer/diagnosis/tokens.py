"""Rules on a folder's tokenizer, template, token ids and generation settings, before loading.

Templates are searched for names of tokens, never rendered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tracer.diagnosis.families import hears, may_chat, reads_words
from tracer.diagnosis.finding import Found, Row, cells
from tracer.diagnosis.folders import problem_rows
from tracer.diagnosis.rules import Answers, rule
from tracer.diagnosis.template_files import template_texts
from tracer.inspecting.tokenizer import TokenizerFacts

if TYPE_CHECKING:
    from tracer.inspection import Inspection

_GENERATION: Final = "generation_config.json"
_TOKENIZER: Final = "tokenizer_config.json"
# Classes whose `__init__` gives no pad token of its own: what the files do not name is not set.
_WITHOUT_PAD: Final = {
    "LlamaTokenizer", "LlamaTokenizerFast", "GPT2Tokenizer", "GPT2TokenizerFast",
    "CodeLlamaTokenizer", "CodeLlamaTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend",
    "CodeGenTokenizer", "CodeGenTokenizerFast",
}  # fmt: skip
_ADDS_BEGIN: Final = {
    "LlamaTokenizer",
    "LlamaTokenizerFast",
    "GemmaTokenizer",
    "GemmaTokenizerFast",
}
_WRITES_BEGIN: Final = re.compile(
    r"(?:\{\{|\{%-?\s*set\b)(?:(?!\}\}|%\}|[\w.]\().)*\bbos_token\b", re.S
)
_WRITES_END: Final = re.compile(r"\beos_token\b")
_ENDS_A_TURN: Final = re.compile(r"^(?:<\|?/?)\S*(?:end|eot|eom|eos|/s>)\S*$", re.I)
_ENDS_ELSE: Final = re.compile(
    r"vision|image|img|video|audio|speech|header|role|think|tool|function|call|name|document|"
    r"context|code|system|file|box|quad|ref",
    re.I,
)
"""What a mark may end that is no turn."""
_SAMPLING: Final[Mapping[str, Any]] = {
    "temperature": 1.0, "top_p": 1.0, "top_k": 50, "min_p": None, "typical_p": 1.0,
    "epsilon_cutoff": 0.0, "eta_cutoff": 0.0,
}  # fmt: skip
"""Settings that only sampling reads, each with the value that says nothing."""
_ALWAYS: Final[Mapping[str, Any]] = {
    "do_sample": False, "num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0,
    "length_penalty": 1.0, "max_new_tokens": None, "max_length": 20, "min_length": 0,
    "suppress_tokens": None, "begin_suppress_tokens": None, "bad_words_ids": None,
    "forced_bos_token_id": None, "forced_eos_token_id": None, "sequence_bias": None,
}  # fmt: skip
"""Settings that act in greedy search too, each with the value that does nothing."""
_OF_SPEECH: Final = ("suppress_tokens", "begin_suppress_tokens", "max_length")
"""What a model of speech could not work without."""


@rule("folder_without_tokenizer", "note", "folder")
def folder_without_tokenizer(inspection: Inspection) -> Answers:
    """No file of a tokenizer at all, for a model that reads token ids."""
    found = [one for one in inspection.problems if one.kind == "no_tokenizer"]
    if found and reads_words(inspection):
        yield Found({}, problem_rows(found))


@rule("folder_without_template", "note", "folder")
def folder_without_template(inspection: Inspection) -> Answers:
    """A tokenizer, and no chat template in any file, for a model that may chat."""
    found = [one for one in inspection.problems if one.kind == "no_template"]
    if found and may_chat(inspection):
        yield Found({}, problem_rows(found))


@rule("ids_beyond_embedding", "fatal", "folder")
def ids_beyond_embedding(inspection: Inspection) -> Answers:
    """A tokenizer that gives ids for which the embedding has no row."""
    facts = inspection.tokenizer
    rows = facts.config_rows if facts.embedding_rows is None else facts.embedding_rows
    if facts.highest_id is None or rows is None or facts.highest_id < rows:
        return
    above = {text: number for text, number in facts.vocabulary.items() if number >= rows}
    source = {"source": facts.vocabulary_file, "fact": "vocabulary"}
    yield Found(
        {"highest_id": facts.highest_id, "rows": rows, "count": len(above) or None},
        tuple(cells("facts", source, token=text, id=number) for text, number in above.items())
        or (cells("facts", source, highest_id=facts.highest_id),),
        "warning" if _is_spare(inspection, above) else None,
    )


def _is_spare(inspection: Inspection, tokens: Mapping[str, int]) -> bool:
    """Whether these are marks that a prompt holds only where somebody types them."""
    added = inspection.survey.settings.get("tokenizer.json", {}).get("added_tokens")
    held = [one for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    marks = {one.get("content") for one in held if one.get("special") is True}
    roles = {text for text, _ in inspection.tokenizer.special.values()}
    template = "".join(template_texts(inspection).values())
    return bool(tokens) and all(
        text in marks and text not in roles and text not in template for text in tokens
    )


@rule("embedding_of_another_size", "fatal", "folder")
def embedding_of_another_size(inspection: Inspection) -> Answers:
    """A configuration whose vocabulary is not as large as the stored embedding."""
    facts = inspection.tokenizer
    if facts.config_rows is None or facts.embedding_rows in (None, facts.config_rows):
        return
    found = [one for one in inspection.problems if one.key == "vocab_size"]
    yield Found({"asked": facts.config_rows, "rows": facts.embedding_rows}, problem_rows(found))


@rule("stop_ids_disagree", "warning", "folder", "vllm-project/vllm#4182")
def stop_ids_disagree(inspection: Inspection) -> Answers:
    """The tokenizer's end, or the template's end of a turn, is none of the ids that stop."""
    facts = inspection.tokenizer
    file, stops = _stop_ids(facts)
    if file is None:
        return
    ends = _turn_ends(inspection)
    text, number = facts.special.get("eos", ("", None))
    rows = []
    if number is not None and number not in stops:
        rows.append(cells("facts", {"source": _TOKENIZER, "fact": "eos token"}, id=number))
    if ends and not stops & set(ends.values()):
        for token, one in ends.items():
            if one != number or not rows:
                key = {"source": "chat template", "fact": "end of a turn"}
                rows.append(cells("facts", key, token=token, id=one))
    if rows:
        rows.append(cells("facts", {"source": file, "fact": "eos ids"}, ids=sorted(stops)))
        named = [text] if number is not None and number not in stops else list(ends)
        yield Found({"tokens": named, "file": file, "stops": sorted(stops)}, tuple(rows))


def _stop_ids(facts: TokenizerFacts) -> tuple[str | None, set[int]]:
    """The ids that stop, and the file that has the last word on them."""
    for file in (_GENERATION, "config.json"):
        ids = facts.config_ids.get(file, {}).get("eos")
        if ids:
            return file, set(ids)
    return None, set()


def _turn_ends(inspection: Inspection) -> dict[str, int]:
    """Tokens that a chat template writes and whose names say that something ends."""
    template = "".join(template_texts(inspection).values())
    known = inspection.tokenizer.vocabulary
    ends = {
        text: number
        for text, number in known.items()
        if len(text) > 3
        and text in template
        and _ENDS_A_TURN.match(text)
        and not _ENDS_ELSE.search(text)
    }
    text, number = inspection.tokenizer.special.get("eos", ("", None))
    if number is not None and _WRITES_END.search(template):
        ends[text] = number
    return ends


@rule("begin_written_twice", "note", "folder")
def begin_written_twice(inspection: Inspection) -> Answers:
    """A template that writes the begin token, beside a tokenizer that adds it by itself."""
    begin, number = inspection.tokenizer.special.get("bos", (None, None))
    if begin is None:
        return
    template = "".join(template_texts(inspection).values())
    writes = _WRITES_BEGIN.search(template) or template.lstrip().startswith(begin)
    source = _begin_adder(inspection, begin)
    if writes and source:
        yield Found(
            {"token": begin, "source": source},
            (
                cells("facts", {"source": source, "fact": "adds bos"}, token=begin, id=number),
                cells("facts", {"source": "chat template", "fact": "writes bos"}, token=begin),
            ),
        )


def _begin_adder(inspection: Inspection, begin: str) -> str | None:
    """The file that says that encoding puts the begin token first; None where none does."""
    settings = inspection.survey.settings
    whole = settings.get("tokenizer.json")
    if whole is not None:
        return "tokenizer.json" if begin in _begins(whole.get("post_processor")) else None
    own = settings.get(_TOKENIZER, {})
    default = own.get("tokenizer_class") in _ADDS_BEGIN
    return _TOKENIZER if own.get("add_bos_token", default) else None


def _begins(processor: Any) -> set[str]:
    """Tokens that a tokenizer's post-processor puts before a single text."""
    if not isinstance(processor, dict):
        return set()
    inner = processor.get("processors")
    found = {text for one in inner or () for text in _begins(one)}
    single = processor.get("single")
    first = single[0] if isinstance(single, list) and single else None
    if isinstance(first, dict) and isinstance(first.get("SpecialToken"), dict):
        found.add(str(first["SpecialToken"].get("id")))
    return found


@rule("folder_pad_unset", "note", "folder")
def folder_pad_unset(inspection: Inspection) -> Answers:
    """No pad token in any file, for a class that gives none of its own."""
    facts = inspection.tokenizer
    is_known = facts.class_name in _WITHOUT_PAD and _TOKENIZER in inspection.survey.settings
    if is_known and "pad" not in facts.special:
        key = {"source": _TOKENIZER, "fact": "pad token"}
        yield Found({"name": facts.class_name}, (cells("facts", key, value=None),))


@rule("folder_pad_is_end", "note", "folder", "huggingface/transformers#25790")
def folder_pad_is_end(inspection: Inspection) -> Answers:
    """A pad id that also ends a row: without a mask the library can't tell padding from an end."""
    if hears(inspection):
        return  # what is padded there is sound
    facts = inspection.tokenizer
    file, stops = _stop_ids(facts)
    for source in (_GENERATION, "config.json"):
        pads = facts.config_ids.get(source, {}).get("pad", ())
        if pads:
            both = sorted(stops & set(pads))
            if both:
                rows = (
                    cells("facts", {"source": source, "fact": "pad id"}, id=both[0]),
                    cells("facts", {"source": file, "fact": "eos ids"}, ids=sorted(stops)),
                )
                yield Found({"pad_id": both[0], "source": source, "file": file}, rows)
            return


@rule("settings_shipped", "note", "folder", "huggingface/transformers#33427")
def settings_shipped(inspection: Inspection) -> Answers:
    """Generation settings in the folder that change the answer of a call which names none."""
    own = inspection.survey.settings.get(_GENERATION, {})
    by_design = _OF_SPEECH if hears(inspection) else ()
    acting = {
        name: own[name]
        for name, idle in _ALWAYS.items()
        if own.get(name) not in (None, idle, []) and name not in by_design
    }
    if own.get("do_sample") is True:
        acting |= _not_idle(own)
    if acting:
        yield Found({"settings": _pairs(acting)}, _setting_rows(acting))


@rule("settings_unsavable", "warning", "folder", "huggingface/transformers#45559")
def settings_unsavable(inspection: Inspection) -> Answers:
    """Sampling settings without sampling: loaded with a log line, refused when saved."""
    own = inspection.survey.settings.get(_GENERATION, {})
    unread = _not_idle(own)
    if own.get("do_sample") is not True and unread:
        yield Found({"settings": _pairs(unread)}, _setting_rows(unread))


def _not_idle(own: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: own[name] for name, idle in _SAMPLING.items() if own.get(name) not in (None, idle)
    }


def _pairs(held: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {value}" for name, value in held.items()]


def _setting_rows(held: Mapping[str, Any]) -> tuple[Row, ...]:
    return tuple(
        cells("facts", {"source": _GENERATION, "fact": name}, value=value)
        for name, value in held.items()
    )

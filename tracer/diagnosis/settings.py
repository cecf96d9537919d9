"""Rules on settings in force: which were ignored, and which came from the model unasked.

A setting that changes nothing is no finding: neither a neutral value, nor a padding that no row
needed. What a model's own file sets is told only where it showed in this run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pandas as pd

from tracer.diagnosis.finding import Found, rows_of
from tracer.diagnosis.generating import OWN_FILES, Generating, generations, value
from tracer.diagnosis.rules import rule
from tracer.trace import Trace

_SHOWN: Final = ("scope", "setting", "asked", "effective", "origin", "used", "why")
_NO_EFFECT: Final = "this value changes nothing"
_DROPPED: Final = "accepted and dropped"
_SAMPLING: Final[dict[str, tuple[Any, ...]]] = {
    "temperature": (0, 1),
    "top_p": (1,),
    "top_k": (0, 50),  # the library's own
    "min_p": (0,),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
}
"""Settings that act on sampling alone, with values that ask for nothing without it."""
_DEFAULTS: Final[dict[str, Any]] = {
    "max_length": 20, "length_penalty": 1, "early_stopping": False, "num_beam_groups": 1,
    "num_assistant_tokens": 20, "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.4, "assistant_lookbehind": 10, "target_lookbehind": 10,
}  # fmt: skip
"""What an object that a class fills up with the library's defaults holds; nobody asked for it."""
PENALTIES: Final[dict[str, str]] = {
    "RepetitionPenaltyLogitsProcessor": "repetition_penalty",
    "EncoderRepetitionPenaltyLogitsProcessor": "encoder_repetition_penalty",
    "NoRepeatNGramLogitsProcessor": "no_repeat_ngram_size",
    "EncoderNoRepeatNGramLogitsProcessor": "encoder_no_repeat_ngram_size",
    "NoBadWordsLogitsProcessor": "bad_words_ids",
    "SequenceBiasLogitsProcessor": "sequence_bias",
    "MinLengthLogitsProcessor": "min_length",
    "MinNewTokensLengthLogitsProcessor": "min_new_tokens",
    "ExponentialDecayLengthPenalty": "exponential_decay_length_penalty",
    "HammingDiversityLogitsProcessor": "diversity_penalty",
    "SuppressTokensLogitsProcessor": "suppress_tokens",
    "SuppressTokensAtBeginLogitsProcessor": "begin_suppress_tokens",
}
"""Processors that change which token is best, and the setting that each comes from. What a model
forces as first or last token is left out: it was trained so."""
_OF_SPEECH: Final = frozenset({"suppress_tokens", "begin_suppress_tokens"})
"""What a model of speech could not work without."""
_SOUNDS: Final = frozenset({"input_features", "input_values"})

_MAKE_WEIGHTS: Final = frozenset({"eager", "eager_paged", "paged|eager", "flex_attention"})


@rule("setting_ignored", "warning", "trace", "huggingface/transformers#33427")
def setting_ignored(trace: Trace) -> Iterator[Found]:
    """Settings that the caller gave to generate() and that had no effect in it."""
    for call in generations(trace):
        ignored = [name for name, row in call.settings.items() if _is_ignored(name, row)]
        if _kernel_without_weights(trace, call) is not None:  # a rule of its own says why
            ignored = [name for name in ignored if name != "output_attentions"]
        if ignored:
            first = call.settings[ignored[0]]
            origins = {call.settings[name]["origin"] for name in ignored}
            yield Found(
                {"settings": ignored, "count": len(ignored), "reason": str(first["why"])},
                call.setting_rows(*ignored, "do_sample", "num_beams"),
                # An object that was copied brings along what nobody thought of.
                "note" if origins == {"config object"} else None,
            )


def _is_ignored(name: str, row: dict[str, Any]) -> bool:
    given = row["asked"]
    if given is None or row["used"] or row["why"] == _NO_EFFECT or _is_filled_up(name, row):
        return False
    return given is not False and given not in _SAMPLING.get(name, ())


def _is_filled_up(name: str, row: dict[str, Any]) -> bool:
    """Whether a value is the library's own, in an object that holds one for every setting."""
    is_object = row.get("scope") == "generate" and name in _DEFAULTS
    return is_object and row.get("origin") != "call" and row.get("asked") == _DEFAULTS[name]


@rule("argument_dropped", "warning", "trace")
def argument_dropped(trace: Trace) -> Iterator[Found]:
    """Arguments that a call accepted and dropped without a word."""
    settings = trace["settings"]
    unused = settings[settings["used"].eq(False) & settings["asked"].notna()]
    # A release that drops it makes fast tokenizers alone; a pipeline asks for one by itself.
    unused = unused[~(unused["setting"].eq("use_fast") & unused["asked"].eq("true"))]
    is_dropped = unused["why"].fillna("").str.startswith(_DROPPED)
    encodings = set(trace["calls"].query("kind == 'encode'")["seq"])
    for (event, scope), rows in unused[is_dropped].groupby(["event", "scope"]):
        yield Found(
            {"arguments": rows["setting"].tolist(), "scope": scope, "call": _name(trace, event)},
            rows_of("settings", rows, *_SHOWN),
            # A load that drops one works as it does without; an encoding gives other ids.
            "note" if scope in ("load", "tokenizer") and event not in encodings else None,
        )


def _name(trace: Trace, event: object) -> str:
    calls = trace["calls"]
    named = calls[calls["seq"] == event]["name"]
    return str(named.iloc[0]) if len(named) else "-"


@rule("clean_up_refused", "note", "trace")
def clean_up_refused(trace: Trace) -> Iterator[Found]:
    """Clean-up of spaces that was asked for and that this release does not do."""
    settings = trace["settings"]
    rows = settings[settings["setting"] == "clean_up_tokenization_spaces"]
    rows = rows[(rows["scope"] == "decode") & rows["why"].fillna("").str.startswith("this release")]
    rows = rows[rows["asked"].map(value).eq(True)]
    if len(rows):
        yield Found({"count": len(rows)}, rows_of("settings", rows, *_SHOWN))


@rule("two_limits", "warning", "trace", "huggingface/transformers#21369")
def two_limits(trace: Trace) -> Iterator[Found]:
    """Both limits given: the number of new tokens decides, the length is ignored."""
    for call in generations(trace):
        row = call.settings.get("max_length", {})
        asked = None if _is_filled_up("max_length", row) else row.get("asked")
        new = call.effective("max_new_tokens")
        if asked is not None and new is not None and call.effective("max_length") != asked:
            yield Found(
                {"asked": asked, "new": new, "effective": call.effective("max_length")},
                call.setting_rows("max_length", "max_new_tokens"),
            )


@rule("sampled_by_file", "note", "trace", "huggingface/transformers#33427")
def sampled_by_file(trace: Trace) -> Iterator[Found]:
    """The model's file, or a pipeline, turned sampling on, and it showed in what was chosen."""
    unasked = {*OWN_FILES, "pipeline"}
    for call in generations(trace):
        row = call.settings.get("do_sample", {})
        if row.get("effective") is not True or row.get("origin") not in unasked:
            continue
        names = [
            name
            for name, one in call.settings.items()
            if one["origin"] in unasked and one["used"] and name in (*_SAMPLING, "do_sample")
        ]
        chosen = call.choices[call.choices["accepted"].fillna(True).astype(bool)]
        others = chosen[chosen["raw_rank"] > 0]
        if len(others) and call.steps["drafted_tokens"].isna().all():
            yield Found(
                {"settings": names, "file": str(row["origin"]), "count": len(others)}
                | {"whole": len(chosen)},
                call.setting_rows(*names)
                + rows_of("choices", others, "text", "raw_rank", "probability"),
            )


@rule("file_flags_unused", "note", "trace", "huggingface/transformers#33427")
def file_flags_unused(trace: Trace) -> Iterator[Found]:
    """A model's file sets values for sampling and does not turn it on: it contradicts itself."""
    for call in generations(trace):
        sample = call.settings.get("do_sample", {})
        if sample.get("effective") or sample.get("origin") in {"call", "config object", "pipeline"}:
            continue
        names = [
            name
            for name, neutral in _SAMPLING.items()
            if call.settings.get(name, {}).get("origin") in OWN_FILES
            and call.effective(name) not in neutral
        ]
        if names:
            file = str(call.settings[names[0]]["origin"])
            yield Found({"settings": names, "file": file}, call.setting_rows(*names, "do_sample"))


@rule("choice_overruled", "warning", "trace", "huggingface/transformers#2302")
def choice_overruled(trace: Trace) -> Iterator[Found]:
    """Greedy decoding that took another token than the model's best: a setting nobody gave did."""
    chain = trace["chain"]
    for call in generations(trace):
        if not call.is_greedy:
            continue
        moved = call.choices[(call.choices["raw_rank"] > 0).fillna(False)]
        own = chain[(chain["call"] == call.seq) & (chain["kind"] == "processor")]
        unasked = own[[_is_unasked(call, name) for name in own["class_name"]]]
        is_by_caller = len(own) > len(unasked) and not _moved_by(trace, call, unasked, moved)
        if moved.empty or unasked.empty or is_by_caller:
            continue
        names = [PENALTIES[name] for name in unasked["class_name"]]
        yield Found(
            {
                "count": len(moved),
                "whole": len(call.choices),
                "processors": unasked["class_name"].tolist(),
                "settings": names,
                "origin": str(call.settings[names[0]]["origin"]),
                "first": int(moved["step"].iloc[0]),
            },
            rows_of("choices", moved, "token_id", "text", "raw_rank", "raw_logprob", "logprob")
            + rows_of("chain", unasked, "class_name", "parameters")
            + call.setting_rows(*names),
        )


def _is_unasked(call: Generating, class_name: str) -> bool:
    name = PENALTIES.get(class_name)
    row = call.settings.get(name or "", {})
    is_by_design = name in _OF_SPEECH and _hears(call)
    return row.get("origin") in {*OWN_FILES, "pipeline"} and not is_by_design


def _hears(call: Generating) -> bool:
    """Whether sound went into the call."""
    inputs = call.trace["inputs"]
    return bool(inputs.loc[inputs["call"] == call.seq, "tensor"].isin(_SOUNDS).any())


def _moved_by(trace: Trace, call: Generating, unasked: Any, moved: Any) -> bool:
    """Whether one of these processors changed anything at a step whose best was not taken."""
    effects = trace["effects"]
    own = effects[(effects["call"] == call.seq) & effects["step"].isin(moved["step"])]
    own = own[own["class_name"].isin(unasked["class_name"])]
    changed = (own["entropy_before"] - own["entropy_after"]).abs() > 0
    return bool((changed | (own["removed_tokens"] > 0)).fillna(False).any())


@rule("attentions_not_made", "warning", "trace", "huggingface/transformers#30978")
def attentions_not_made(trace: Trace) -> Iterator[Found]:
    """Attention weights were asked for, and the kernel in use makes none."""
    for call in generations(trace):
        kernel = _kernel_without_weights(trace, call)
        if kernel is not None:
            yield Found({"kernel": kernel}, call.setting_rows("output_attentions"))


def _kernel_without_weights(trace: Trace, call: Generating) -> str | None:
    """The attention kernel of a call that asks for weights, where it makes none."""
    models = trace["models"].drop_duplicates("model", keep="last").set_index("model")["attention"]
    kernel = models.get(call.call["model"])
    asked = call.settings.get("output_attentions", {}).get("asked")
    if not asked or kernel is None or pd.isna(kernel) or kernel in _MAKE_WEIGHTS:
        return None
    return str(kernel)

"""What is in force as a generate() begins to decode: settings with origins, chain, inputs, cache.

Told as the recorder's own work; what comes out in the end is told by `answers.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from tracer.instrument import measure, model_state, modules
from tracer.instrument.answering import cached_ids, caches, finishes, generation_settings
from tracer.instrument.answering.beams import Beams
from tracer.instrument.answering.own_loops import OwnLoop
from tracer.instrument.answering.run import Run
from tracer.instrument.asking import consumed, tokens
from tracer.instrument.asking.vocabulary import TextAssembler

_FEW: Final = 256
"""Ids that a processor may hold and still be told whole: the longest list shipped with a speech
model has about 90; an encoder's input is longer."""


def tell_setup(run: Run, input_ids: Any, kwargs: dict[str, Any]) -> None:
    """Everything in force as decoding begins."""
    config = kwargs["generation_config"]
    run.prompt = input_ids.tolist()
    own = run.model.generation_config.to_dict()
    run.own_config = {name: generation_settings.plain(value) for name, value in own.items()}
    run.defaults = generation_settings.library_defaults(run.model.generation_config)
    run.is_greedy = not config.do_sample
    run.max_length = config.max_length
    run.watches_criteria = not finishes.are_plain(kwargs["stopping_criteria"])
    run.stop_ids = _stop_ids(config)
    _begin_rows(run)
    if run.follows == "beams":
        returned = config.num_return_sequences or 1
        run.beams = Beams(config.num_beams, returned, len(run.prompt[0]))
    if run.follows == "loop":
        run.loop = OwnLoop(run.prompt, _fillers(config, run.stop_ids))
    run.chain_length = len(kwargs["logits_processor"])
    _tell_call(run, config, kwargs)
    cached_ids.compare(run, kwargs.get("cache", kwargs.get("past_key_values")))
    generation_settings.tell(run, config)
    _tell_chain(run, "processor", kwargs["logits_processor"])
    _tell_chain(run, "criterion", kwargs["stopping_criteria"])
    _tell_inputs(run)


def tell_unprepared(run: Run, input_ids: Any) -> None:
    """What is known of a loop that had nothing prepared: its prompt, and the ids that may end it.

    Args:
        run: The generate().
        input_ids: What its first forward is fed, for want of a prompt among its arguments.
    """
    given: Any = run.kwargs.get("input_ids")
    given = run.kwargs.get("inputs") if given is None else given
    if getattr(given, "ndim", 0) != 2 or consumed.is_encoder_decoder(run):
        given = input_ids
    if getattr(given, "ndim", 0) != 2 or given.is_floating_point():
        run.follows = ""
        return
    config = run.kwargs.get("generation_config") or run.model.generation_config
    ends, pad = (
        generation_settings.plain(run.kwargs.get(name, getattr(config, name, None)))
        for name in ("eos_token_id", "pad_token_id")
    )
    run.stop_ids = [one for one in (ends if isinstance(ends, list) else [ends]) if one is not None]
    run.prompt = given.tolist()
    _begin_rows(run)
    run.loop = OwnLoop(run.prompt, [*([] if pad is None else [pad]), *run.stop_ids])
    run.span.columns |= {
        "mode": mode(run),
        "rows": len(run.prompt),
        "grad_mode": modules.grad_mode(),
        **model_state.of(run.model),
        "compiled": run.is_compiled or modules.is_compiled(run.model),
    }


def _begin_rows(run: Run) -> None:
    """The rows as they are before the first choice, and what reads them."""
    run.chosen = [[] for _ in run.prompt]
    run.texts = [[] for _ in run.prompt]
    run.finished = [False] * len(run.prompt)
    run.encoding = consumed.find(run)
    run.tokenizer = run.encoding.tokenizer if run.encoding else _tokenizer_of(run)
    run.vocabulary = tokens.vocabulary_of(run.recorder, run.tokenizer)
    if run.vocabulary is not None:
        run.assemblers = [TextAssembler(run.vocabulary, after=row) for row in run.prompt]


def _tokenizer_of(run: Run) -> Any:
    """The tokenizer given to generate(), else the one loaded from the model's own folder."""
    given = run.kwargs.get("tokenizer")
    if given is not None:
        return given
    loaded: dict[str, Any] = run.recorder.notes.get("tokenizers", {})
    return loaded.get(str(run.model.config.name_or_path))


def _stop_ids(config: Any) -> list[int]:
    tensor = getattr(config, "_eos_token_tensor", None)
    return [] if tensor is None else [int(one) for one in tensor.reshape(-1).tolist()]


def _fillers(config: Any, stop_ids: list[int]) -> list[int]:
    """Ids that stand behind the end of a row: the pad id first, where there is one."""
    pad = getattr(config, "_pad_token_tensor", None)
    return [*([] if pad is None else [int(pad)]), *stop_ids]


def _tell_call(run: Run, config: Any, kwargs: dict[str, Any]) -> None:
    torch = sys.modules["torch"]
    cache = kwargs.get("cache", kwargs.get("past_key_values"))
    returned = config.num_return_sequences or 1
    beams = config.num_beams or 1
    stop_origin, _ = generation_settings.origin_of(run, "eos_token_id", config.eos_token_id)
    run.span.columns |= {
        "mode": mode(run),
        "rows": len(run.prompt) // max(returned, beams),
        "beams": beams,
        "return_sequences": returned,
        "cache": None if cache is None else caches.name(run.recorder, cache, run),
        "cache_class": None if cache is None else type(cache).__name__,
        "cache_why": _cache_why(run, config, cache),
        "mask_origin": _mask_origin(run, config),
        "attended_pads": _attended_pads(run, config),
        "stop_ids": [{"id": one, "origin": stop_origin} for one in run.stop_ids],
        "grad_mode": modules.grad_mode(),
        **model_state.of(run.model),
        "compiled": run.is_compiled or modules.is_compiled(run.model),
        "summary": {
            **_caches_alive(run, cache),
            **_ends_of_config(run),
            **model_state.checkpointing(run.model),
        }
        or None,
        "rng_state": None
        if run.is_greedy
        else {"cpu": bytes(torch.random.get_rng_state().tolist()).hex()},
    }


def _caches_alive(run: Run, own: Any) -> dict[str, list[str]]:
    """Caches of earlier calls that somebody still holds as this call begins, by their short ids."""
    recorder = run.recorder
    others = [one for one in recorder.caches.alive() if one is not own]
    # A cache of tuples goes by the run that holds it, which proves nothing of its tensors.
    held = [recorder.caches.of(one) for one in others if hasattr(one, "get_seq_length")]
    return {"caches_alive": sorted(held)} if held else {}


def _ends_of_config(run: Run) -> dict[str, list[int]]:
    """End ids of the model's config that end nothing in this call: its other file has others."""
    text = getattr(run.model.config, "get_text_config", lambda **_: run.model.config)(decoder=True)
    told = getattr(text, "eos_token_id", None)
    ids = told if isinstance(told, list | tuple) else [told]
    others = [one for one in ids if isinstance(one, int) and one not in run.stop_ids]
    return {"config_end_ids": others} if others else {}


def mode(run: Run) -> str:
    """How tokens are chosen, and the function that does it."""
    how = "greedy" if run.is_greedy else "sampling"
    if run.beams is not None:
        how = f"beam search, {how}"
    elif run.follows == "drafts":
        how = f"assisted by {run.drafting}, {how}" if run.drafting else f"assisted, {how}"
    elif run.follows == "loop":
        how = "custom" if run.is_custom else run.mode.strip("_")
    return f"{how} ({run.mode})"


def _cache_why(run: Run, config: Any, cache: Any) -> str:
    if run.kwargs.get("cache") is not None or run.kwargs.get("past_key_values") is not None:
        return "passed by the user" if run.span.parent < 0 else "passed by the call around it"
    if config.use_cache is False:
        return "use_cache=False"
    if config.cache_implementation is not None:
        return f"cache_implementation={config.cache_implementation!r}"
    return "the library's default" if cache is not None else "made by the model itself"


def _mask_origin(run: Run, config: Any) -> str:
    if run.kwargs.get("attention_mask") is not None:
        return "given"
    if run.model.config.is_encoder_decoder:
        return "made by the library for the encoder"
    pad = config.pad_token_id
    if pad is None or pad in run.stop_ids or not any(pad in row for row in run.prompt):
        return "all ones"
    return "inferred from pad ids"


def _attended_pads(run: Run, config: Any) -> int | None:
    mask, pad = run.kwargs.get("attention_mask"), config.pad_token_id
    if pad is None:  # the library takes the first end id then
        pad = next(iter(run.stop_ids), None)
    if run.model.config.is_encoder_decoder:
        return None  # the mask is the encoder's, the ids at hand are the decoder's
    if pad is None or _mask_origin(run, config) == "inferred from pad ids":
        return 0
    rows = len(run.prompt) if mask is None else len(mask)
    times, rest = divmod(len(run.prompt), rows or 1)  # generate() repeats rows, not what was given
    if mask is None:
        times = max(config.num_beams or 1, config.num_return_sequences or 1)
    elif mask.ndim != 2 or rest:
        return None
    padding = [_padding(ids, pad, pad in run.stop_ids) for ids in run.prompt[::times]]
    if mask is None:
        return sum(map(len, padding))
    return sum(
        bool(row[place])
        for places, row in zip(padding, mask.tolist(), strict=True)
        for place in places
        if place < len(row)
    )


def _padding(ids: list[int], pad: int, is_stop: bool) -> list[int]:
    """Positions of pad ids at the ends of a row; one at its end is a turn's own if it is a stop."""
    left = next((place for place, one in enumerate(ids) if one != pad), len(ids))
    right = next((place for place, one in enumerate(reversed(ids)) if one != pad), 0)
    own = 1 if is_stop and right else 0
    return [*range(left), *range(len(ids) - right + own, len(ids))]


def _tell_chain(run: Run, kind: str, parts: Any) -> None:
    name = {"processor": "logits_processor", "criterion": "stopping_criteria"}[kind]
    given = run.kwargs.get(name) or ()
    for index, part in enumerate(parts):
        run.recorder.add_fact(
            "chain",
            run.span.seq,
            run.span.seq,
            model=run.name,
            kind=kind,
            index=index,
            class_name=type(part).__name__,
            defined_in=type(part).__module__,
            origin="call" if any(part is one for one in given) else "library",
            parameters=_plain_attributes(part),
        )


def _plain_attributes(part: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in getattr(part, "__dict__", {}).items():  # a class with slots has none
        if isinstance(value, bool | int | float | str):
            plain[name] = value
        elif hasattr(value, "numel") and value.numel() <= _FEW and value.device.type == "cpu":
            plain[name] = value.tolist()
        elif isinstance(value, dict) and _are_sequences(value):
            plain[name] = [[list(ids), number] for ids, number in value.items()]
    return plain


def _are_sequences(value: dict[Any, Any]) -> bool:
    """Whether sequences of ids each have a number, as biases and banned words do; not too many."""
    are_ids = all(isinstance(one, tuple) for one in value)
    return are_ids and 0 < sum(map(len, value)) <= _FEW


def _tell_inputs(run: Run) -> None:
    for name, value in _tensors(run):
        run.recorder.add_fact(
            "inputs",
            run.span.seq,
            run.span.seq,
            tensor=name,
            shape=measure.shape_of(value),
            dtype=measure.dtype_name(value.dtype),
            device=str(value.device),
            size_bytes=measure.size_of(value),
        )


def _tensors(run: Run) -> Iterator[tuple[str, Any]]:
    """Tensors among the arguments by name; those in a list, as pictures may come, each by place."""
    for name, value in run.kwargs.items():
        named = run.model.main_input_name if name == "inputs" else name
        if hasattr(value, "element_size"):
            yield named, value
        elif isinstance(value, list):
            for place, one in enumerate(value):
                if hasattr(one, "element_size"):
                    yield f"{named}[{place}]", one

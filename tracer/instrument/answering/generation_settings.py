"""Settings of a generate() in force, each with where it came from and whether it has an effect."""

from __future__ import annotations

from typing import Any, Final

from tracer.instrument.answering.run import Run
from tracer.instrument.installer import release
from tracer.instrument.stages import Call, Observer
from tracer.instrument.targets import FIVE, LATE_FOUR
from tracer.spans import ThreadState

_SAMPLING_ONLY: Final = frozenset(
    {"temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"}
)
_ASSISTED_ONLY: Final = frozenset(
    {
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "assistant_confidence_threshold",
        "target_lookbehind",
        "assistant_lookbehind",
        "assistant_early_exit",
        "max_matching_ngram_size",
    }
)
# At these values a setting adds no processor (generation/utils.py, _get_logits_processor).
_NEUTRAL: Final[dict[str, tuple[Any, ...]]] = {
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "diversity_penalty": (0.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "temperature": (1.0,),
    "top_p": (1.0,),
    "top_k": (0,),
    "typical_p": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "min_length": (0,),
}
_BEAMS_ONLY: Final = frozenset({"length_penalty", "early_stopping", "num_beam_groups"})
_EXTRA_OUTPUTS: Final = frozenset(
    {"output_attentions", "output_hidden_states", "output_scores", "output_logits"}
)
_FUSED: Final = ("sdpa", "flash")  # beginnings of the kernels' names
# Not settings of a generation: bookkeeping of the file itself.
_NOT_SETTINGS: Final = frozenset({"transformers_version"})


def tell(run: Run, config: Any) -> None:
    """Write `settings` of scope generate: what has a value, and what was asked for."""
    effective = {name: plain(value) for name, value in config.to_dict().items()}
    asked = {name for name in run.kwargs if name in effective}
    for name, value in effective.items():
        if name in _NOT_SETTINGS or name.startswith("_"):  # tensors made of other settings
            continue
        if value is None and name not in asked:
            continue
        origin, given = origin_of(run, name, value)
        used, why = _use(run, config, name)
        run.recorder.add_fact(
            "settings",
            run.span.seq,
            run.span.seq,
            model=run.name,
            scope="generate",
            setting=name,
            asked=given,
            effective=value,
            origin=origin,
            used=used,
            why=why,
            model_value=_of_model(run, name, value),
        )


def plain(value: Any) -> Any:
    """A setting without tensors and arrays, which no comparison says yes or no of."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def _of_model(run: Run, name: str, value: Any) -> Any:
    """What the model itself has for a setting that has another value in force."""
    own = run.own_config.get(name)
    return None if own == value or own == run.defaults.get(name) else own


def origin_of(run: Run, name: str, value: Any) -> tuple[str, Any]:
    """Where a value in force comes from, and what the user asked for (None when nothing)."""
    pipeline, asked = run.state.notes.get("runs") or (None, {})
    value = plain(value)
    if run.own_config.get(name) != value and _is_of_pipeline(pipeline, asked, name, value):
        return "pipeline", None
    if run.kwargs.get(name) is not None:
        given = plain(run.kwargs[name])
        return ("call" if given == value else "derived"), given
    passed = plain(getattr(run.kwargs.get("generation_config"), name, None))
    own = run.own_config.get(name)
    is_copy = pipeline is not None and passed == own  # it hands on what the model itself has
    if passed is not None and not is_copy and not _is_default(run, name, passed, own):
        return ("config object" if passed == value else "derived"), passed
    if own is not None and own == value:
        if _is_default(run, name, own, own) and name not in _keys_read(run):
            return "library", None
        loaded: dict[str, Any] = run.recorder.notes.get("generation_configs", {}).get(run.name, {})
        if not loaded:
            return "model's generation_config", None
        same = loaded.get(name) == own
        return ("generation_config.json" if same else "model after load"), None
    if own is not None or name == "max_length":
        return "derived", None
    return "library", None


def _is_of_pipeline(pipeline: Any, asked: dict[str, Any], name: str, value: Any) -> bool:
    """Whether a pipeline brought this value along: its own default, which nobody asked for."""
    default = getattr(getattr(pipeline, "_default_generation_config", None), name, None)
    told = (asked, asked.get("generate_kwargs") or {}, getattr(pipeline, "_forward_params", {}))
    given = any(name in one for one in told)
    return default is not None and default == value and not given


def _is_default(run: Run, name: str, value: Any, own: Any) -> bool:
    """Whether a config object has this value without being told, as the model's own has.

    In generation 4 a config object holds a value for every setting, its class's where nobody gave
    one; later it holds None there.
    """
    return name in run.defaults and value == run.defaults[name] == own


def library_defaults(config: Any) -> dict[str, Any]:
    """Values that a config object has without being told; none since generation 5."""
    if release() >= FIVE:
        return {}
    values: dict[str, Any] = type(config)().to_dict()
    return {name: plain(value) for name, value in values.items() if value is not None}


def file_read(state: ThreadState, call: Call) -> Observer:
    """`GenerationConfig.from_dict`: which settings the file names, before defaults fill it up."""
    outcome = yield None
    given = call.argument(1, "config_dict")
    made = outcome.result[0] if isinstance(outcome.result, tuple) else outcome.result
    if made is not None and isinstance(given, dict):
        read: list[tuple[Any, set[str]]] = state.recorder.notes.setdefault("settings_read", [])
        read.append((made, set(given)))


def _keys_read(run: Run) -> set[str]:
    read: list[tuple[Any, set[str]]] = run.recorder.notes.get("settings_read", [])
    own = run.model.generation_config
    return next((keys for made, keys in reversed(read) if made is own), set())


def _use(run: Run, config: Any, name: str) -> tuple[bool, str | None]:
    if name in _SAMPLING_ONLY and run.is_greedy:
        return False, "do_sample is off: the most likely token is taken"
    if name in _ASSISTED_ONLY and run.mode != "_assisted_decoding":
        return False, "no assistant model"
    if getattr(config, name, None) in _NEUTRAL.get(name, ()):
        return False, "this value changes nothing"
    if name in _EXTRA_OUTPUTS and getattr(config, name, None):
        return _is_returned(run, config, name)
    if name in _BEAMS_ONLY and (config.num_beams or 1) == 1:
        return False, "one beam only"
    if name == "max_length" and config.max_new_tokens is not None:
        return True, f"{len(run.prompt[0])} prompt + {config.max_new_tokens} new tokens"
    return True, None


def _is_returned(run: Run, config: Any, name: str) -> tuple[bool, str | None]:
    """Whether what was asked for besides the ids is computed, and comes back."""
    kernel = getattr(run.model.config, "_attn_implementation", None) or ""
    # Before, such a kernel gave way to eager where weights were asked for.
    if name == "output_attentions" and release() >= LATE_FOUR and kernel.startswith(_FUSED):
        return False, f"the attention implementation {kernel} computes no weights, eager does"
    if not config.return_dict_in_generate:
        return False, "return_dict_in_generate is off: ids alone are returned"
    return True, None

"""Settings of a generate() in force, each with where it came from and whether it has an effect."""

from __future__ import annotations

from typing import Any, Final

from tracer.instrument.run import Run

_SAMPLING_ONLY: Final = frozenset(
    {"temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"}
)
_BEAMS_ONLY: Final = frozenset({"length_penalty", "early_stopping", "num_beam_groups"})
# Not settings of a generation: bookkeeping of the file itself.
_NOT_SETTINGS: Final = frozenset({"transformers_version"})


def tell(run: Run, config: Any) -> None:
    """Write `settings` of scope generate: what has a value, and what was asked for."""
    effective = config.to_dict()
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
        )


def origin_of(run: Run, name: str, value: Any) -> tuple[str, Any]:
    """Where a value in force comes from, and what the user asked for (None when nothing)."""
    if run.kwargs.get(name) is not None:
        given = run.kwargs[name]
        return ("call" if given == value else "derived"), given
    passed = getattr(run.kwargs.get("generation_config"), name, None)
    if passed is not None:
        return ("config object" if passed == value else "derived"), passed
    own = run.own_config.get(name)
    if own is not None and own == value:
        loaded: dict[str, Any] = run.recorder.notes.get("generation_configs", {}).get(run.name, {})
        if not loaded:
            return "model's generation_config", None
        same = loaded.get(name) == own
        return ("generation_config.json" if same else "model after load"), None
    if own is not None or name in {"max_length", "min_length"}:
        return "derived", None
    return "library", None


def _use(run: Run, config: Any, name: str) -> tuple[bool, str | None]:
    if name in _SAMPLING_ONLY and run.is_greedy:
        return False, "do_sample is off: the most likely token is taken"
    if name in _BEAMS_ONLY and (config.num_beams or 1) == 1:
        return False, "one beam only"
    if name == "max_length" and config.max_new_tokens is not None:
        return True, f"{len(run.prompt[0])} prompt + {config.max_new_tokens} new tokens"
    return True, None

"""`settings` of a load: what was asked for, what is in force, and what was accepted in vain."""

from __future__ import annotations

from typing import Any, Final

from tracer.instrument.installer import release
from tracer.instrument.loads.load_notes import Load
from tracer.instrument.targets import IGNORED_LOAD_ARGUMENTS

_DROPPED: Final = "accepted and dropped by this version"
_SECRETS: Final = {"token", "use_auth_token", "proxies"}
_HIDDEN: Final = "given, not recorded"


def tell(load: Load, model: Any) -> None:
    """Rows of scope `load`."""
    asked, effective = dict(load.arguments), _effective(load, model)
    if "torch_dtype" in asked:
        asked.setdefault("dtype", asked["torch_dtype"])
    dropped = ignored(IGNORED_LOAD_ARGUMENTS)
    for name in [*effective, *(key for key in asked if key not in effective)]:
        if name.startswith("_"):
            continue  # the library's own plumbing between the Auto class and this one
        is_dropped = name in dropped
        load.state.recorder.add_fact(
            "settings",
            load.call,
            load.call,
            model=load.model,
            scope="load",
            setting=name,
            asked=shown(name, asked[name]) if name in asked else None,
            effective=None if is_dropped else shown(name, effective.get(name, asked.get(name))),
            origin=_origin(load, name, asked, effective),
            used=not is_dropped,
            why=_DROPPED if is_dropped else _why(load, name),
        )


def _effective(load: Load, model: Any) -> dict[str, Any]:
    """What is in force whether or not it was asked for."""
    config = model.config
    found = {
        "dtype": load.dtype,
        "attn_implementation": getattr(config, "_attn_implementation", None),
        "device_map": getattr(model, "hf_device_map", load.arguments.get("device_map")),
    }
    return found if load.budget is None else found | {"max_memory": load.budget}


def _why(load: Load, name: str) -> str | None:
    if name == "dtype":
        return load.dtype_why
    if name == "max_memory" and load.budget is not None:
        return "bytes that each device may take; the device map was made to fit them"
    if name == "torch_dtype":
        return "the old name of dtype"
    return None


def _origin(load: Load, name: str, asked: dict[str, Any], effective: dict[str, Any]) -> str:
    # An argument given as None leaves to the library what is in force then.
    is_left = asked.get(name) is None and effective.get(name) is not None
    if name in asked and not is_left:
        names = {name, "torch_dtype"} if name == "dtype" else {name}
        return "call" if names & load.by_user else "pipeline"
    if name == "dtype" and load.dtype_why in {"config.json", "config object"}:
        return load.dtype_why
    return "derived" if name == "max_memory" else "library"


def ignored(table: Any) -> tuple[str, ...]:
    """Of a table of dropped arguments those of the release that runs."""
    found: tuple[str, ...] = next(names for since, names in table if release() >= since)
    return found


def shown(name: str, value: Any) -> Any:
    """A value as JSON has it: secrets hidden, what may be large in a few words."""
    if name in _SECRETS and value not in (None, True, False):
        return _HIDDEN
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict) and any(hasattr(one, "element_size") for one in value.values()):
        return f"{len(value)} tensors"
    if isinstance(value, dict):
        return {str(key): shown(str(key), one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [shown(name, one) for one in value]
    if hasattr(value, "to_dict"):
        return type(value).__name__
    return str(value).removeprefix("torch.")

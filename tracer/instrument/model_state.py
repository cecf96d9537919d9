"""What a model is at the moment it is called: its mode, its dropout, and how far it can reach.

Plain attributes of modules and configuration, read once a call; `generation_facts` and `forwards`
write them into `calls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tracer.instrument.hooks import every_module

# What configurations call the number of positions; attribute maps turn most into the first.
_LIMITS: Final = ("max_position_embeddings", "n_positions", "max_target_positions")


def of(model: Any) -> dict[str, Any]:
    """Columns of `calls` that tell the state of the model that the call is to."""
    is_training = any(module.training for module in every_module(model))
    return {
        "training": is_training,
        "dropout": _dropout(model) if is_training else None,
        "position_limit": position_limit(getattr(model, "config", None)),
    }


def checkpointing(model: Any) -> dict[str, bool]:
    """That layers are to compute their values anew for gradients; nothing of a model in use.

    The library's own word for it warns of its name.
    """
    every = every_module(model) if model.training else ()
    is_on = any(getattr(module, "gradient_checkpointing", False) for module in every)
    return {"gradient_checkpointing": True} if is_on else {}


def keeps_graph(result: Any) -> bool | None:
    """Whether what a forward gave holds a graph for gradients; None where it gave no tensor."""
    values = result.values() if isinstance(result, Mapping) else result
    parts = list(values) if isinstance(result, Mapping | tuple | list) else [result]
    tensors = [one for one in parts if hasattr(one, "grad_fn")]
    return any(one.grad_fn is not None for one in tensors) if tensors else None


def _dropout(model: Any) -> float:
    """The largest probability with which a module in training mode drops a value."""
    found = [0.0]
    for module in every_module(model):
        if not module.training:
            continue
        if "dropout" in type(module).__name__.lower():
            found.append(getattr(module, "p", 0.0))
        # Attention hands its own probability to a function instead.
        found += [value for name, value in vars(module).items() if "dropout" in name]
    return max(float(one) for one in found if isinstance(one, int | float))


def position_limit(config: Any) -> int | None:
    """Positions that a configuration provides, stretched as it says; None where it names none."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    named = (getattr(text, name, None) for name in _LIMITS)
    limit = next((one for one in named if isinstance(one, int) and one > 0), None)
    if limit is None or getattr(text, "alibi", False):
        return None
    ropes = (getattr(text, name, None) for name in ("rope_parameters", "rope_scaling"))
    return max([limit, *(_reach(rope, limit) for rope in ropes if isinstance(rope, Mapping))])


def _reach(rope: Mapping[str, Any], limit: int) -> int:
    """Positions after scaling. Of layer types with ropes of their own, the furthest counts."""
    inner = [_reach(one, limit) for one in rope.values() if isinstance(one, Mapping)]
    factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
    own = int((original or limit) * factor) if isinstance(factor, int | float) else 0
    return max([own, *inner])

"""Rules on layers that the file holds and the model lacks, or the other way round.

Layers are counted by the first number in a tensor's name; what stands before it names a stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tracer.diagnosis.finding import Found, cells, rows_of
from tracer.diagnosis.placed import model_title
from tracer.diagnosis.rules import Answers, rule
from tracer.inspecting.fit import chosen_entries
from tracer.trace import Trace

if TYPE_CHECKING:
    from tracer.inspection import Inspection

_STACKS: Final = (
    "layers", "model.layers", "model.language_model.layers", "language_model.model.layers",
    "h", "transformer.h",
)  # fmt: skip
_COUNTS: Final = ("num_hidden_layers", "n_layer")


@rule("layers_dropped", "fatal", "trace")
def layers_dropped(trace: Trace) -> Answers:
    """Whole layers among a load's unexpected tensors, behind the last that it used."""
    held = trace["checkpoint_tensors"]
    for model, own in held.groupby("model", sort=False):
        extra = own[own["fate"] == "unexpected"]
        used = _stacks(own.loc[own["fate"].isin(["loaded", "converted"]), "key"])
        for stack, layers in _stacks(extra["key"]).items():
            last = max(used.get(stack, {}), default=None)
            keys = [key for number, names in layers.items() for key in names
                    if last is not None and number > last]  # fmt: skip
            if keys and last is not None:
                lost = extra[extra["key"].isin(keys)]
                yield Found(
                    {
                        "model": model_title(trace, model),
                        "count": len(keys),
                        "whole": max(layers) + 1,
                        "used": last + 1,
                        "first": keys[0],
                    },
                    rows_of("checkpoint_tensors", lost, "fate", "because", "shape"),
                )


@rule("layers_dropped", "warning", "folder")
def layers_beyond_config(inspection: Inspection) -> Answers:
    """More layers in the headers than the configuration gives the model."""
    count = _configured(inspection.config)
    stacks = _stacks(entry.key for _, entry in chosen_entries(inspection.survey))
    for stack, layers in stacks.items():
        if count is None or (len(stacks) > 1 and stack not in _STACKS):
            continue  # a tower or a decoder of its own: which count is meant is not sure
        keys = [key for number, names in sorted(layers.items()) for key in names if number >= count]
        if keys:
            key = {"source": "config.json", "fact": "num_hidden_layers"}
            yield Found(
                {
                    "model": inspection.folder.name,
                    "count": len(keys),
                    "whole": max(layers) + 1,
                    "used": count,
                    "first": keys[0],
                },
                (
                    cells("facts", key, value=count),
                    *(cells("tensors", {"key": one}, layers=max(layers) + 1) for one in keys),
                ),
            )


@rule("layers_lacking", "fatal", "folder")
def layers_lacking(inspection: Inspection) -> Answers:
    """Fewer layers in the headers than the configuration gives the model."""
    survey, counted = inspection.survey, _counted(inspection.config)
    is_whole = bool(survey.chosen) and all(path in survey.headers for path in survey.chosen)
    if counted is None or not is_whole or "auto_map" in inspection.config:
        return
    count = counted[0]
    for stack, layers in _stacks(entry.key for _, entry in chosen_entries(survey)).items():
        lost = [number for number in range(count) if number not in layers]
        # A gap in between is no layer that is lacking: some families leave numbers out.
        if stack in _STACKS and lost and lost == list(range(max(layers) + 1, count)):
            key = {"source": "config.json", "fact": "num_hidden_layers"}
            last = layers[max(layers)][0]
            yield Found(
                {"stack": stack, "asked": count, "held": max(layers) + 1, "last": last},
                (
                    cells("facts", key, value=count),
                    cells("tensors", {"key": last}, layers=max(layers) + 1),
                ),
            )


def _stacks(keys: Iterable[str]) -> dict[str, dict[int, list[str]]]:
    """Names by stack and number of their layer."""
    found: dict[str, dict[int, list[str]]] = {}
    for key in keys:
        parts = key.split(".")
        place = next((at for at, part in enumerate(parts) if at and part.isdecimal()), None)
        if place is not None and len(parts[place]) < 6:
            layers = found.setdefault(".".join(parts[:place]), {})
            layers.setdefault(int(parts[place]), []).append(key)
    return found


def _configured(config: Mapping[str, Any]) -> int | None:
    """Layers of the text model, those that predict further tokens ahead included."""
    found = _counted(config)
    if found is None:
        return None
    ahead = found[1].get("num_nextn_predict_layers")
    return found[0] + (ahead if type(ahead) is int else 0)


def _counted(config: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]] | None:
    """How many layers the text model has by its configuration, and the part that says so."""
    inner = config.get("text_config")
    for content in (inner if isinstance(inner, dict) else {}, config):
        for name in _COUNTS:
            if type(content.get(name)) is int:
                return int(content[name]), content
    return None

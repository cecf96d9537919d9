"""Whether image features really replaced the placeholders: rows compared, not counted.

The vision model's output is copied (the lab's own copy, freed at the end of the prefill) and
compared with the embeddings that the language model is then given, in generate() as in a forward of
the user's own. Where the model computes its positions itself, they are met on the same way.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument.asking import fed
from tracer.instrument.asking.fed import Fed
from tracer.instrument.hooks import InertInCopies, every_module
from tracer.instrument.installer import tracing_test
from tracer.recorder import Recorder
from tracer.spans import ACTIVE, ThreadState

if TYPE_CHECKING:
    from tracer.instrument.answering.run import Run

_MAIN_INPUT: Final = "main_input_name"


def watch(recorder: Recorder, model: Any, handles: list[Any]) -> None:
    """Watch the vision part and the language part of a model that has both."""
    # Sub-models alone have a main input; there are a handful of them, however deep the model.
    # It is their class's: asking each module for what it lacks would raise, hundreds of times.
    parts = list(every_module(model))
    kinds = {kind for kind in set(map(type, parts)) if hasattr(kind, _MAIN_INPUT)}
    inner = [part for part in parts if part is not model and type(part) in kinds]
    eyes = [part for part in inner if _sees(part) and not any(map(_sees, _above(part, inner)))]
    if not eyes:
        return

    is_traced = tracing_test()

    def seen(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if is_traced():
            return
        state, prompt = _consumed(recorder)
        features = getattr(output, "pooler_output", output)
        if state is None or prompt is None or not hasattr(features, "detach"):
            return
        with state.own_work("copy of image features"), recorder.guard("images"):
            prompt.features.append(features.detach().clone())

    def merged(module: Any, args: Any, kwargs: Any) -> None:
        if is_traced():
            return
        state, prompt = _consumed(recorder)
        if state is None or prompt is None:
            return
        prompt.note_positions(kwargs.get("position_ids"))
        embeddings = kwargs.get("inputs_embeds")
        if not prompt.features or embeddings is None:
            return
        with state.own_work("comparison of embeddings"), recorder.guard("images"):
            if isinstance(prompt, Fed):
                prompt.compare(embeddings)
            else:
                _compare(prompt, embeddings)

    for eye in eyes:
        handles.append(eye.register_forward_hook(InertInCopies(seen), with_kwargs=True))
    for part in inner:
        # The first of them that is given embeddings compares; the features are gone after that.
        if not any(part is eye for eye in eyes):
            handles.append(part.register_forward_pre_hook(InertInCopies(merged), with_kwargs=True))


def _consumed(recorder: Recorder) -> tuple[ThreadState | None, Run | Fed | None]:
    """Whose prompt goes through the model in this thread: a generate()'s or a forward's."""
    state = ACTIVE.get(threading.get_ident())
    if state is None or state.recorder is not recorder:
        return None, None
    return state, state.run or fed.running(recorder, state.ident)


def _compare(run: Run, embeddings: Any) -> None:
    """Note of each placeholder of the prompt whether the row of its embedding is a feature's.

    Features come in the order of the placeholders. Where generate() repeats rows, they may have
    been made once for all copies of a row.
    """
    torch = sys.modules["torch"]
    features, run.features = torch.cat(run.features), []
    marks = run.placeholders()
    places = [
        [row * len(ids) + place for place, token_id in enumerate(ids) if marks.kind(token_id)]
        for row, ids in enumerate(run.prompt)
    ]
    wanted = [place for row in places for place in row]
    flat = embeddings.detach().reshape(-1, embeddings.shape[-1])
    times, rest = divmod(len(wanted), len(features))
    if not wanted or rest or not times or len(flat) <= max(wanted):
        return
    if times > 1:
        counts = [len(row) for row in places[::times]]
        if sum(counts) != len(features):
            return  # pooled to one vector a picture: these are not what takes the places
        features = torch.cat(_repeated(features, counts, times))
    index = torch.tensor(wanted, device=flat.device)
    equal = (flat[index] == features.to(flat.device, flat.dtype)).all(-1)
    run.replaced = [bool(one) for one in equal.tolist()]


def _repeated(features: Any, counts: list[int], times: int) -> list[Any]:
    """Features of each row, as often in succession as the row stands in the batch."""
    return [own for each in features.split(counts) for own in [each] * times]


def _sees(module: Any) -> bool:
    """Whether a sub-model takes pixels: by its main input, or by its class's name."""
    return module.main_input_name == "pixel_values" or "Vision" in type(module).__name__


def _above(module: Any, others: list[Any]) -> list[Any]:
    return [
        other
        for other in others
        if other is not module and any(part is module for part in other.modules())
    ]

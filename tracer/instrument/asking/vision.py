"""Whether image features really replaced the placeholders: rows compared, not counted.

What the model's vision part made is copied (the lab's own copies, freed with the prompt's last
piece) and compared with the embeddings that the language model is then given, in generate() as in
a forward of the user's own. Where the model computes its positions itself, they are met on the way.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tracer.instrument.asking import fed, replaced
from tracer.instrument.asking.fed import Fed
from tracer.instrument.hooks import InertInCopies, every_module
from tracer.instrument.installer import INSTALLER, tracing_test
from tracer.instrument.patching import IsOn, Wrap
from tracer.instrument.targets import FEATURE_METHODS
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
    if not _watch_methods(kinds):
        for eye in eyes:
            hook = InertInCopies(_seen(recorder))
            handles.append(eye.register_forward_hook(hook, with_kwargs=True))
    merged = _merged(recorder)
    for part in inner:
        if not any(part is eye for eye in eyes):
            handles.append(part.register_forward_pre_hook(InertInCopies(merged), with_kwargs=True))


def _watch_methods(kinds: set[type]) -> bool:
    """Watch the methods that make a model's features, of whatever kind; False where it has none."""
    owners = {
        (owner, name)
        for kind in kinds
        for name in FEATURE_METHODS
        for owner in kind.__mro__
        if name in vars(owner)
    }
    for owner, name in owners:
        INSTALLER.place(owner, name, _made_by(FEATURE_METHODS[name]))
    return bool(owners)


def _made_by(kind: str) -> Wrap:
    is_traced = tracing_test()

    def wrap(original: Callable[..., Any], is_on: IsOn) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(*args: Any, **kwargs: Any) -> Any:
            state = None if is_traced() else ACTIVE.get(threading.get_ident())
            prompt = _prompt_of(state) if state is not None and is_on() else None
            before = 0 if prompt is None else len(prompt.features)
            result = original(*args, **kwargs)
            # One that calls another of that name hands on what that one made.
            if state is not None and prompt is not None and len(prompt.features) == before:
                _keep(state, prompt, kind, result)
            return result

        return made

    return wrap


def _keep(state: ThreadState, prompt: Run | Fed, kind: str | None, result: Any) -> None:
    """Copy what a vision part made."""
    with state.own_work("copy of image features"), state.recorder.guard("images"):
        for one in replaced.features_of(result):
            prompt.features.append(replaced.Features(kind, one.detach().clone()))


def _seen(recorder: Recorder) -> Callable[..., None]:
    is_traced = tracing_test()

    def seen(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if is_traced():
            return
        state, prompt = _consumed(recorder)
        if state is not None and prompt is not None:
            _keep(state, prompt, None, output)

    return seen


def _merged(recorder: Recorder) -> Callable[..., None]:
    is_traced = tracing_test()

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

    return merged


def _prompt_of(state: ThreadState) -> Run | Fed | None:
    found: Run | None = state.run
    return found or fed.running(state)


def _consumed(recorder: Recorder) -> tuple[ThreadState | None, Run | Fed | None]:
    """Whose prompt goes through the model in this thread: a generate()'s or a forward's."""
    state = ACTIVE.get(threading.get_ident())
    if state is None or state.recorder is not recorder:
        return None, None
    return state, _prompt_of(state)


def _compare(run: Run, embeddings: Any) -> None:
    """Note of each placeholder of the prompt, or of a piece of it, whether its feature is there.

    Where generate() repeats rows, features may have been made once for all copies of a row.
    """
    torch, marks = sys.modules["torch"], run.placeholders()
    rows, length = len(run.prompt), len(run.prompt[0]) if run.prompt else 0
    start = run.cached_before + run.prompt_fed
    count = min(embeddings.shape[1], length - start)  # behind the prompt there may be drafts
    if len(embeddings) != rows or count <= 0:
        return
    made = sum(len(one.rows) for one in run.features)
    wanted = sum(marks.kind(one) is not None for ids in run.prompt for one in ids)
    times, rest = divmod(wanted, made) if made else (0, 0)
    if rest or not times or rows % times:
        run.features = []
        return
    kinds = [[marks.kind(one) for one in ids] for ids in run.prompt[::times]]
    if sum(kind is not None for row in kinds for kind in row) != made:
        run.features = []  # pooled to one vector a picture: these are not what takes the places
        return
    image, video = (
        torch.tensor([[one == kind for one in row] for row in kinds], dtype=torch.bool)
        for kind in ("image", "video")
    )
    if run.replaced is None:
        run.replaced = [[None] * length for _ in range(rows)]
    expected = replaced.expect(run.features, image.flatten(), video.flatten())
    own = expected.piece(len(kinds), start, count)
    for copy in range(times):
        flat = embeddings.detach()[copy::times, :count].flatten(0, 1)
        found = replaced.best(own.equal(flat)).reshape(-1, count).tolist()
        for row, equal in enumerate(found):
            run.replaced[row * times + copy][start : start + count] = equal
    if start + count == length:
        run.features = []


def _sees(module: Any) -> bool:
    """Whether a sub-model takes pixels: by its main input, or by its class's name."""
    return module.main_input_name == "pixel_values" or "Vision" in type(module).__name__


def _above(module: Any, others: list[Any]) -> list[Any]:
    return [
        other
        for other in others
        if other is not module and any(part is module for part in every_module(other))
    ]

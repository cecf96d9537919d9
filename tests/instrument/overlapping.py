"""Two loads that overlap in two threads in the order that leaves the process changed."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from transformers import GPT2LMHeadModel


class Built(GPT2LMHeadModel):
    """Calls what a test wants called each time that it has built itself."""

    when_built = staticmethod(lambda: None)

    def __init__(self, config):
        super().__init__(config)
        self.when_built()


_CHANGED = (
    (torch.nn.Module, "register_parameter"),
    (transformers.PreTrainedModel, "tie_weights"),
    (torch, "linspace"),
    (transformers.modeling_utils, "_init_weights"),
    (Built, "when_built"),
)


@contextlib.contextmanager
def put_right() -> Iterator[None]:
    """Afterwards nothing is changed of what the library leaves changed in the process."""
    kept = [(owner, name, vars(owner).get(name)) for owner, name in _CHANGED]
    dtype = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        for owner, name, value in kept:
            if value is not None and vars(owner)[name] is not value:
                setattr(owner, name, value)


def two_at_once(folder: Any, **arguments: dict[str, Any]) -> None:
    """Load in threads A and B: A begins, B begins, A ends, B ends.

    Args:
        folder: Of a GPT-2.
        **arguments: By thread, of `from_pretrained`.
    """
    inside, ended, done = threading.Event(), threading.Event(), []

    def load():
        me = threading.current_thread().name
        Built.from_pretrained(folder, **arguments.get(me, {}))
        done.append(me)
        if me == "A":
            ended.set()

    first, second = (threading.Thread(target=load, name=name) for name in "AB")

    def meet():
        # What the lab builds anew comes here as well, once both were inside: it goes on.
        me = threading.current_thread().name
        if me == "A" and not inside.is_set():
            second.start()
            assert inside.wait(60)
        elif me == "B" and not inside.is_set():
            inside.set()
            assert ended.wait(60)

    Built.when_built = staticmethod(meet)
    first.start()
    first.join(60)
    second.join(60)
    assert done == ["A", "B"]

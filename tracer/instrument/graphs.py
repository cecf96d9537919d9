"""Whether a model runs for a graph's sake: what the lab computes then would become a part of it.

`torch.jit.trace`, `torch.export` and `make_fx` run a model once and write down each operation of
torch; `torch.fx.symbolic_trace` each thing that is asked of a stand-in for a tensor. Needs torch.
"""

from __future__ import annotations

import contextlib
import sys
from contextlib import AbstractContextManager
from typing import Any, Final

import torch
from torch.utils import _python_dispatch

UNREAD: Final = "it runs to become a graph: nothing is computed of its tensors, lest it be in there"


def is_drawn() -> bool:
    """Whether operations of this thread are written into a graph now."""
    # What was never imported draws nothing.
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    symbols = sys.modules.get("torch.fx._symbolic_trace")
    return (
        torch._C._get_tracing_state() is not None
        or (proxies is not None and proxies.get_proxy_mode() is not None)
        or getattr(symbols, "_is_fx_tracing_flag", False)  # to ask by its function warns
    )


def is_without_values(tensor: Any) -> bool:
    """Whether a tensor has a shape and no numbers."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return tensor.is_meta or (fakes is not None and isinstance(tensor, fakes.FakeTensor))


def is_readable(tensor: Any) -> bool:
    """Whether its numbers are there to be read: a vmap has those of all its rows at once."""
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return not is_wrapped and not is_without_values(tensor)


def unseen() -> AbstractContextManager[Any]:
    """A block whose operations no mode of the user's sees, such as one that counts them."""
    if torch._C._len_torch_dispatch_stack() == 0 and torch._C._len_torch_function_stack() == 0:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    stack.enter_context(torch._C.DisableTorchFunction())
    stack.enter_context(_python_dispatch._disable_current_modes())
    return stack

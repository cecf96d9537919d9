"""Which arguments of an encoding a tokenizer may look at; others are taken and dropped."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from tracer.instrument.targets import ENCODING

_OWN_ENCODING: Final = "tokenization_utils_tokenizers"
_READ_BY_NAME: Final = "sanitize_control_tokens"  # `_encode_plus` of 5.24.0 asks for it alone


def read_by(
    tokenizer: Any, signature: inspect.Signature, asked: Mapping[str, Any]
) -> frozenset[str]:
    """Which arguments an encoding may look at; the library's own takes others and drops them.

    A class with an encoding of its own may read them all, as may a tokenizer written in Python.
    """
    inner: Any = getattr(type(tokenizer), ENCODING, None)
    if not getattr(inner, "__module__", "").endswith(_OWN_ENCODING):
        return frozenset(asked)
    known = {*signature.parameters, *inspect.signature(inner).parameters}
    return frozenset(known | {_READ_BY_NAME})

"""What a branch knows of its prompt from the answer that it left: who wrote each of its ids.

A branch hands ids to the model, no messages, so its own run can't tell who wrote them. An id that
its parent had at the same place is the same piece of the same prompt, or of the parent's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracer.analysis.inputs import sequence_tokens

if TYPE_CHECKING:
    import pandas as pd

    from tracer.lab import Answer

_UNKNOWN = "unknown"


def tokens_of(answer: Answer) -> pd.DataFrame:
    """The tokens of an answer's run, with the origins that its parent knows.

    What a user put in the place of a token, and all that differs from the parent, stays unknown.
    """
    assert answer.trace is not None
    tokens = sequence_tokens(answer.trace)
    parent = answer.parent
    if parent is None or parent.trace is None:
        return tokens
    earlier = tokens_of(parent)
    known = dict(zip(earlier["index"], zip(earlier["token_id"], earlier["origin"], strict=True),
                     strict=True))  # fmt: skip
    places = zip(tokens["index"], tokens["token_id"], tokens["origin"], strict=True)
    tokens["origin"] = [
        known[index][1] if origin == _UNKNOWN and known.get(index, (None,))[0] == one else origin
        for index, one, origin in places
    ]
    return tokens


def segments_of(answer: Answer) -> tuple[pd.DataFrame, Answer]:
    """The pieces of the rendered prompt, and the answer whose run rendered it.

    A branch has its parent's prompt, with other ids behind it.
    """
    assert answer.trace is not None
    segments, parent = answer.trace["segments"], answer.parent
    has_same_prompt = parent is not None and parent.prompt_ids == answer.prompt_ids
    if segments.empty and parent is not None and parent.trace is not None and has_same_prompt:
        return segments_of(parent)
    return segments, answer

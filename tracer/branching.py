"""How an answer goes on from inside itself: its cache cropped, or its ids encoded again.

A cache may only be used where going on from it gives the tokens of a fresh run over the same ids:
it has to let itself be cropped, and the model has to compute alike with and without it. `lab` asks.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from tracer.conversation import encode, tokenizer_of
from tracer.errors import TracerError
from tracer.explain import text
from tracer.instrument.answering import caches
from tracer.instrument.hooks import every_module
from tracer.instrument.targets import POSITION_MEMORY

if TYPE_CHECKING:
    from tracer.lab import Answer

# Logits of a step computed with the cache and without it may differ so far, as a share of their
# range, and still count as the same arithmetic: float32 stays below, bfloat16 does not.
_SAME_ARITHMETIC: Final = 1e-4


class Branching:
    """What a model needs to go on from any token of its answers.

    Args:
        model: The model.
        front: Its processor or tokenizer.
    """

    def __init__(self, model: Any, front: Any) -> None:
        self._model = model
        self._front = front
        self._is_same_arithmetic: bool | None = None
        self._cache_name = ""  # what this release calls a cache, in outputs as in arguments

    def keep(self, answer: Answer, output: Any) -> None:
        """Keep of an answer's output what a branch of it needs: cache and positions."""
        self._cache_name = next((name for name in caches.NAMES if name in output), "")
        answer.cache = output[self._cache_name] if self._cache_name else None
        # What modules remember of the last prompt's positions, as vision models do.
        answer.positions = [
            (module, getattr(module, POSITION_MEMORY))
            for module in every_module(self._model)
            if hasattr(module, POSITION_MEMORY)
        ]

    def prefix(self, answer: Answer, at: int, token: int | str) -> list[int]:
        """Ids of an answer up to a token, and those that come in its place.

        Raises:
            TracerError: There is no such place, or the token ends the answer.
        """
        if not 0 <= at <= len(answer.ids):
            raise TracerError(text("asking.no_such_place", tokens=len(answer.ids), place=at))
        return [*answer.ids[:at], *self._ids(token)]

    def _ids(self, token: int | str) -> list[int]:
        if isinstance(token, str):
            ids = tokenizer_of(self._front)(token, add_special_tokens=False)["input_ids"]
        else:
            ids = [token]
        if not ids:
            raise TracerError(text("asking.no_token"))
        stops = self._model.generation_config.eos_token_id
        if ids[-1] in (stops if isinstance(stops, list) else [stops]):
            raise TracerError(text("asking.ends_answer", token=ids[-1]))
        return list(ids)

    def cropped(self, answer: Answer, keep: int) -> tuple[Any, str]:
        """A copy of an answer's cache with its first tokens only; else None and the reason."""
        if answer.cache is None:
            return None, text("asking.cache_gone")
        if not self._computes_alike(answer):
            return None, text("asking.other_arithmetic")
        kind = type(answer.cache).__name__
        try:
            cache = copy.deepcopy(answer.cache)
            surplus = int(cache.get_seq_length()) - keep
            if surplus > 0:
                cache.crop(-surplus)
            kept = int(cache.get_seq_length())
        # What a kind of cache can't do, each says with an exception of its own.
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            return None, text("asking.not_croppable", cache=kind, error=error)
        if kept > keep:
            return None, text("asking.not_croppable_to", cache=kind, tokens=keep)
        return cache, ""

    def inputs(self, answer: Answer, prefix: list[int], cache: Any) -> dict[str, Any]:
        """Inputs of a branch: all ids with a cropped cache, or with the pictures anew.

        Args:
            answer: The answer that it leaves.
            prefix: Ids behind the prompt that the branch begins with.
            cache: As `cropped` gives it; None encodes everything.
        """
        import torch

        ids = torch.tensor([[*answer.prompt_ids, *prefix]], device=self._model.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if cache is None:
            return inputs | self._features(answer, ids)
        for module, remembered in answer.positions:
            setattr(module, POSITION_MEMORY, remembered)
        return inputs | {self._cache_name: cache}

    def _computes_alike(self, answer: Answer) -> bool:
        """Whether the last logits of an answer are the same when all of it is encoded at once."""
        import torch

        if self._is_same_arithmetic is None:
            # Without the last one, which no cache holds: what follows was computed step by step.
            ids = torch.tensor([[*answer.prompt_ids, *answer.ids[:-1]]], device=self._model.device)
            features = self._features(answer, ids)
            mask = torch.ones_like(ids)
            with torch.no_grad():
                whole = self._model(input_ids=ids, attention_mask=mask, **features).logits[0, -1]
                stepwise = _last_logits(answer, whole)
            if stepwise is None:
                return True  # nothing was decoded yet: the cache is a prefill's
            spread = float(whole.float().max() - whole.float().min())
            apart = float((whole.float() - stepwise.float()).abs().max())
            self._is_same_arithmetic = apart <= _SAME_ARITHMETIC * spread
        return self._is_same_arithmetic

    def _features(self, answer: Answer, ids: Any) -> dict[str, Any]:
        """What the processor gives besides ids and mask, made anew, lengthened to all ids."""
        import torch

        given = encode(self._front, answer.prompt, answer.messages).to(self._model.device)
        prompt_shape = given["input_ids"].shape
        extra = ids.shape[1] - prompt_shape[1]
        return {
            # Kinds of the tokens, one an id: those of an answer are text.
            name: torch.cat([value, value.new_zeros(1, extra)], dim=1)
            if getattr(value, "shape", None) == prompt_shape
            else value
            for name, value in given.items()
            if name not in ("input_ids", "attention_mask")
        }


def _last_logits(answer: Answer, like: Any) -> Any:
    """The recorded raw logits of the last decode step, shape (vocabulary,); None without one."""
    import torch

    rows = answer.trace.arrow("logits").to_pylist() if answer.trace is not None else []
    if not rows or rows[-1]["step"] < 1:
        return None
    kind = getattr(torch, rows[-1]["dtype"])
    return torch.frombuffer(bytearray(rows[-1]["values"]), dtype=kind).to(like.device)

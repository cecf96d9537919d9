"""One `generate()` of a trace as the rules ask it: its call, settings, prompt, choices and steps.

Only finds rows; judges nothing. Frames are cut out of the trace's own when they are first asked
for, and are not to be changed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import pandas as pd

from tracer.analysis.generation import generate_calls
from tracer.diagnosis.finding import Found, Row, Untold, items, rows_of
from tracer.diagnosis.held import HeldTrace
from tracer.diagnosis.rules import Look
from tracer.trace import Trace

OWN_FILES = frozenset(
    {"generation_config.json", "config.json", "model's generation_config", "model after load"}
)
"""Origins of a setting that the caller did not give: the model brought it along."""


class Generating:
    """A generate call.

    Attributes:
        trace: The trace.
        seq: Its seq.
        call: Its row of `calls`.
    """

    def __init__(self, trace: Trace, call: pd.Series) -> None:
        self.trace = trace
        self.call = call
        self.seq = int(call["seq"])

    @functools.cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Its settings by name; `asked`, `effective` and `model_value` are values, None missing."""
        frame = _of(self.trace["settings"], self.seq)
        rows = frame[frame["scope"] == "generate"].to_dict("records")
        return {row["setting"]: row | {name: value(row[name]) for name in _JSON} for row in rows}

    def effective(self, name: str) -> Any:
        """The value in force; None where none is told."""
        return self.settings.get(name, {}).get("effective")

    def is_asked(self, name: str) -> bool:
        """Whether the caller gave a setting, in the call or in an object handed over."""
        return self.settings.get(name, {}).get("origin") in {"call", "config object"} or (
            self.settings.get(name, {}).get("asked") is not None
        )

    def setting_rows(self, *names: str) -> tuple[Row, ...]:
        """Rows of `settings` as evidence."""
        frame = _of(self.trace["settings"], self.seq)
        named = frame[(frame["scope"] == "generate") & frame["setting"].isin(names)]
        return rows_of("settings", named, "asked", "effective", "origin", "used", "why")

    def call_row(self, *columns: str) -> tuple[Row, ...]:
        """The row of `calls` as evidence."""
        return rows_of("calls", self.call.to_frame().T, "name", *columns)

    @functools.cached_property
    def tokens(self) -> pd.DataFrame:
        """Every token that it consumed or generated, cut ones too, in order."""
        return _of(self.trace["tokens"], self.seq).sort_values(["row", "index"])

    @functools.cached_property
    def is_encoder_decoder(self) -> bool:
        """Whether prompt and answer lie in different parts of the model."""
        return bool((self.tokens["part"] == "encoder").any())

    @functools.cached_property
    def prompt(self) -> pd.DataFrame:
        """What the model was given of the prompt: no answer, nothing that was cut."""
        tokens = self.tokens
        return tokens[(tokens["origin"] != "generated") & tokens["position"].notna()]

    @functools.cached_property
    def answer(self) -> pd.DataFrame:
        """What was generated."""
        return self.tokens[self.tokens["origin"] == "generated"]

    @functools.cached_property
    def choices(self) -> pd.DataFrame:
        """Its choices in order."""
        return _of(self.trace["choices"], self.seq).sort_values(["step", "offset", "row"])

    @functools.cached_property
    def steps(self) -> pd.DataFrame:
        """Its forwards in order."""
        return _of(self.trace["steps"], self.seq).sort_values("step")

    @property
    def stop_ids(self) -> list[int]:
        """The ids that end a row."""
        return [int(one["id"]) for one in items(self.call["stop_ids"])]

    @property
    def pad_id(self) -> int | None:
        """The id that fills rows up; the library takes the first end id where none is set."""
        told = self.effective("pad_token_id")
        return told if told is not None else next(iter(self.stop_ids), None)

    @property
    def finish(self) -> list[str]:
        """Why each row ended."""
        return [str(one) for one in items(self.call["finish"])]

    @property
    def mask_origin(self) -> str:
        """Where the attention mask came from; empty of a call that never came so far."""
        return "" if pd.isna(self.call["mask_origin"]) else str(self.call["mask_origin"])

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken, by the library's own loop."""
        return str(self.call["mode"]).startswith("greedy")

    @functools.cached_property
    def prompt_rows(self) -> dict[int, list[int]]:
        """Ids of the prompt by row; empty where ids were not kept."""
        return _ids(self.prompt)

    @functools.cached_property
    def answer_rows(self) -> dict[int, list[int]]:
        """Ids of the answer by row; empty where ids were not kept."""
        return _ids(self.answer)

    @functools.cached_property
    def encoding(self) -> pd.Series | None:
        """The encoding call that its prompt came from: the last before it of the same shape."""
        if self.prompt.empty:
            return None
        shape = [self.prompt["row"].nunique(), int(self.prompt.groupby("row").size().max())]
        calls = self.trace["calls"]
        earlier = calls[(calls["kind"] == "encode") & (calls["seq"] < self.seq)]
        for _, call in earlier.sort_values("seq", ascending=False).iterrows():
            if summary(call).get("input_ids") == shape:
                return call
        return None


_ASKED = frozenset({"calls", "settings", "tokens", "choices", "steps"})
_JSON = ("asked", "effective", "model_value")


def _of(frame: pd.DataFrame, seq: int) -> pd.DataFrame:
    return frame[frame["call"] == seq]


def _ids(tokens: pd.DataFrame) -> dict[int, list[int]]:
    if tokens["token_id"].isna().any():
        return {}
    return {int(row): part["token_id"].tolist() for row, part in tokens.groupby("row")}


def value(text: object) -> Any:
    """A JSON cell as a value; None where it is missing."""
    return json.loads(text) if isinstance(text, str) else None


def summary(call: Any) -> dict[str, Any]:
    """The numbers that a call or span tells of itself; empty where it tells none."""
    held = value(call["summary"])
    return held if isinstance(held, dict) else {}


def needs_text(look: Look) -> Look:
    """A rule that rests on ids or texts: of a trace without them it can't tell."""

    @functools.wraps(look)
    def asked(trace: Trace) -> Iterator[Found | Untold]:
        answers = list(look(trace))
        yield from answers
        ids = trace["tokens"]["token_id"]
        if not answers and len(ids) and ids.isna().all():
            yield Untold("text")

    return asked


def generations(trace: Trace) -> Iterator[Generating]:
    """Every generate call that is no part of another one, in order; shared by the rules."""
    if not isinstance(trace, HeldTrace):
        yield from _made(trace)
        return
    # Whoever asks a call that another rule has looked at rests on the same tables.
    trace.asked |= _ASKED
    if "generations" not in trace.shared:
        trace.shared["generations"] = list(_made(trace))
    yield from trace.shared["generations"]


def _made(trace: Trace) -> Iterator[Generating]:
    calls = trace["calls"].set_index("seq", drop=False)
    for seq in generate_calls(trace):
        yield Generating(trace, calls.loc[seq])

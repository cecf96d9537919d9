"""How sure the model was, along the answer and at one step: probability, entropy, margin, top k."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from tracer.views.bins import folded
from tracer.views.figure import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    SKY,
    Chart,
    cut,
    empty_chart,
    legend,
    names,
    quiet,
    whole_numbers,
)
from tracer.views.fonts import drawable
from tracer.views.labels import share_label
from tracer.views.words import listed, many, say, then

_MOST_NAMED: Final = 40
_MOST_DOTS: Final = 200
_LONGEST: Final = 14
_THREAD: Final = 0.1  # a margin below it: the two best were close
_SURE: Final = 0.999
_MOST_CANDIDATES: Final = 20


def answer_certainty(answer: pd.DataFrame, row: int | None = None) -> Chart:
    """Probability, entropy and margin of each token: where did the answer hang by a thread?

    Args:
        answer: As `analysis.answer.answer_tokens` gives them: row, step, text, token_id,
            probability, entropy (nats), margin.
        row: Row of the batch; the first one without.

    Returns:
        Three panels below each other, with the tokens' texts where there are at most 40; many are
        folded: a band from lowest to highest of neighbours, and their median.
    """
    what = say("answer_certainty.what")
    row = int(answer["row"].min()) if row is None and len(answer) else row
    tokens = answer[answer["row"] == row].dropna(subset=["probability"])
    if tokens.empty:
        return empty_chart(what, say("figure.needs_choices"))
    tokens = tokens.sort_values("step").reset_index(drop=True)
    chart = Chart(9, 4.6)
    panels = chart.subplots(3, 1, sharex=True)
    for axes, name in zip(panels, ("probability", "entropy", "margin"), strict=True):
        _series(axes, tokens[name].to_numpy(dtype=float))
        label = "entropy_nats" if name == "entropy" else name
        axes.set_ylabel(say(f"axis.{label}"), fontsize=9, color=INK)
    for axes in (panels[0], panels[2]):
        axes.set_ylim(-0.03, 1.05)
        axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    highest = max(0.1, float(np.nanmax([0.0, *tokens["entropy"].to_numpy(dtype=float)])))
    panels[1].set_ylim(-0.03 * highest, 1.1 * highest)
    panels[2].axhspan(-0.03, _THREAD, facecolor=ORANGE, alpha=0.15, linewidth=0)
    if len(tokens) <= _MOST_NAMED:
        texts = [_token(token) for _, token in tokens.iterrows()]
        names(
            panels[2].xaxis, range(len(tokens)), texts,
            rotation=60, ha="right", rotation_mode="anchor",
        )  # fmt: skip
    else:
        whole_numbers(panels[2].xaxis)
        panels[2].set_xlabel(say("axis.answer_token"), fontsize=9, color=INK)
    chart.tell(what, _finding(tokens))
    return chart


def _series(axes: Axes, values: Any) -> None:
    bins = folded(np.arange(len(values)), values, _MOST_DOTS)
    if bins.width == 1:
        axes.plot(bins.places, values, color=BLUE, linewidth=1, marker=".", markersize=5)
    else:
        axes.fill_between(bins.places, bins.low, bins.high, color=SKY, linewidth=0)
        axes.plot(bins.places, bins.middle, color=BLUE, linewidth=1)
    axes.set_xlim(-0.6, len(values) - 0.4)
    quiet(axes)
    axes.grid(True, axis="y", color=FAINT, linewidth=0.6)


def _token(token: pd.Series[Any]) -> str:
    text = token["text"]
    if pd.isna(text) or text == "":
        return "?" if pd.isna(token["token_id"]) else f"#{token['token_id']}"
    return cut(str(text), _LONGEST)


def _finding(tokens: pd.DataFrame) -> str:
    close = int((tokens["margin"] < _THREAD).sum())
    least = tokens.loc[tokens["probability"].idxmin()]
    folding = -(-len(tokens) // _MOST_DOTS)
    rest = say("answer_certainty.folded", width=folding) if folding > 1 else ""
    count = many("token", len(tokens))
    if least["probability"] > _SURE:
        return then(say("answer_certainty.sure", tokens=count, share=share_label(_SURE, 1)), rest)
    finding = say(
        "answer_certainty.finding",
        tokens=count,
        mean=_percent(float(tokens["probability"].mean())),
        close=f"{close:,}",
        thread=share_label(_THREAD, 1),
        token=drawable(_token(least)),
        least=_percent(float(least["probability"])),
    )
    return then(finding, rest)


def top_candidates(candidates: pd.DataFrame) -> Chart:
    """The likeliest tokens of a step before and after the processors: what did these change?

    Args:
        candidates: As `analysis.candidates.before_and_after` gives them: step, token_rank,
            token_id, text, raw_probability, probability, is_chosen; a row without a rank stands
            for all other tokens.

    Returns:
        Two bars a token, before and after, the chosen one marked, and the share of all others.
    """
    what = say("top_candidates.what")
    if candidates.empty:
        return empty_chart(what, say("top_candidates.needs"))
    is_rest = candidates["token_rank"].isna()
    shown = pd.concat([candidates[~is_rest].head(_MOST_CANDIDATES), candidates[is_rest]])
    chart = Chart(9, 0.9 + 0.3 * len(shown))
    axes = chart.subplots()
    places = np.arange(len(shown))
    before, after = (
        shown[name].to_numpy(dtype=float) for name in ("raw_probability", "probability")
    )
    axes.barh(places - 0.19, before, 0.36, color=SKY)
    axes.barh(places + 0.19, after, 0.36, color=BLUE)
    for place, low, high in zip(places, before, after, strict=True):
        axes.annotate(
            _change(low, high), (max(low, high), place), (4, 0), textcoords="offset points",
            va="center", fontsize=8, color=INK,
        )  # fmt: skip
    names(axes.yaxis, range(len(shown)), [_candidate(one) for _, one in shown.iterrows()])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    most = max(before.max(), after.max(), 1e-9)
    axes.set_xlim(0, most * 1.2)
    axes.set_xticks([tick for tick in MaxNLocator(6).tick_values(0, most) if tick <= 1])
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    quiet(axes)
    axes.grid(True, axis="x", color=FAINT, linewidth=0.6)
    words = {"raw": SKY, "chosen_from": BLUE}
    legend(
        axes,
        [Patch(color=shade, label=say(f"top_candidates.{word}")) for word, shade in words.items()],
    )
    chart.tell(what, _candidate_finding(shown, candidates))
    return chart


def _change(before: float, after: float) -> str:
    if round(before, 4) == round(after, 4):
        return _percent(after)
    return f"{_percent(before)} → {_percent(after)}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 or not share else "< 0.1 %"


def _candidate(one: pd.Series[Any]) -> str:
    if pd.isna(one["token_rank"]):
        return say("top_candidates.rest")
    return f"{'▶ ' if one['is_chosen'] else ''}{_token(one)}"


def _candidate_finding(shown: pd.DataFrame, candidates: pd.DataFrame) -> str:
    step = shown["step"].iloc[0]
    chosen = shown[shown["is_chosen"]]
    best = shown.iloc[0]
    if chosen.empty:
        finding = say("top_candidates.not_there", step=step)
    else:
        one = chosen.iloc[0]
        change = _change(float(one["raw_probability"]), float(one["probability"]))
        token = drawable(_token(one))
        finding = say("top_candidates.chose", step=step, token=token, change=change)
        if one["token_rank"] != best["token_rank"]:
            known = {"rank": int(one["token_rank"]), "token": drawable(_token(best))}
            finding = listed(finding, say("top_candidates.likeliest", **known))
    moved = (candidates["probability"] - candidates["raw_probability"]).abs().sum() / 2
    return then(finding, say("top_candidates.moved", share=_percent(float(moved))))

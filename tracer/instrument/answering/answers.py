"""What came out of a generate(): its last choices, the tokens of prompt and answer, its images.

Told when the call has returned, as the recorder's own work.
"""

from __future__ import annotations

from typing import Any

from tracer.instrument.answering import cached_ids, choices
from tracer.instrument.answering.beams import Beams
from tracer.instrument.answering.run import Run
from tracer.instrument.asking import consumed


def tell(run: Run, result: Any) -> None:
    """What came out: choices with their ends, tokens of prompt and answer, images."""
    rows = _returned(run, result)
    finish = None
    if run.loop is not None:
        rows = rows if _go_on(run, rows) else None
        finish = run.loop.finish(run, rows)
        is_plain = finish is not None and run.prompt_rows == list(range(len(run.prompt)))
        if finish is not None:
            _place(run, run.prompt_rows)
        cached_ids.remember(run, rows, is_known=is_plain and run.loop.is_told)
    elif run.beams is not None:
        finish = run.beams.finish(run, rows)
        _take_sequences(run, run.beams)
    elif run.follows:
        finish = [run.ends.get(row, "unfinished") for row in range(len(run.chosen))]
        _tell_choices(run, rows, finish)
        cached_ids.remember(run, rows)
    run.span.columns["finish"] = finish
    if not run.prompt and not run.delegates:
        consumed.note_given(run)
    if run.prompt:
        _tell_answer(run, rows, consumed.tell_prompt(run))
        consumed.tell_images(run)


def _returned(run: Run, result: Any) -> list[list[int]] | None:
    """The ids that were returned, a row each; a loop of the user's own may return anything."""
    returned: Any = result.get("sequences") if isinstance(result, dict) else result
    returned = getattr(returned, "sequences", returned)
    if getattr(returned, "ndim", 0) != 2 or returned.is_floating_point():
        return None
    rows: list[list[int]] = returned.tolist()
    return rows


def _go_on(run: Run, rows: list[list[int]] | None) -> bool:
    """Whether rows begin with prompts, as what the library returns does."""
    width = len(run.prompt[0]) if run.prompt else 0
    return rows is not None and all(row[:width] in run.prompt for row in rows)


def _take_sequences(run: Run, beams: Beams) -> None:
    """From now on a row is a returned sequence, no longer a beam."""
    ways = beams.paths or [[] for _ in range(len(run.prompt) // beams.count * beams.returned)]
    _place(run, [row // beams.returned * beams.count for row in range(len(ways))])
    run.chosen = [[one["token_id"] for one in way] for way in ways]
    run.texts = [[one["text"] for one in way] for way in ways]


def _place(run: Run, rows: list[int]) -> None:
    """From now on these rows are the prompts, one for each sequence that was returned."""
    if rows == list(range(len(run.prompt))):
        return
    run.prompt = [run.prompt[row] for row in rows]
    if run.replaced is not None:
        run.replaced = [run.replaced[row] for row in rows]
    if run.encoding is not None:
        run.encoding = run.encoding.of(rows)
    if run.first_positions is not None:
        run.first_positions = [[axis[row] for row in rows] for axis in run.first_positions]


def _tell_choices(run: Run, rows: list[list[int]] | None, finish: list[str]) -> None:
    """The last choice of each row: it stands if what was returned has it."""
    for row, choice in list(run.last_choice.items()):
        place = len(run.prompt[row]) + len(run.chosen[row]) - 1
        choice["text"] = run.end_text(row)
        stands = None
        if rows is not None:
            stands = place < len(rows[row]) and rows[row][place] == choice["token_id"]
        choices.release(run, row, accepted=stands, finish=finish[row])


def _tell_answer(run: Run, rows: list[list[int]] | None, numbers: list[int]) -> None:
    """Tokens of the answer; `numbers` are the running numbers of each row's first."""
    part = "decoder" if consumed.is_encoder_decoder(run) else None
    for row, ids in enumerate(run.chosen):
        start = len(run.prompt[row])
        for place, token_id in enumerate(ids):
            if rows is not None and (
                start + place >= len(rows[row]) or rows[row][start + place] != token_id
            ):
                continue
            vocab, raw = run.vocabulary.piece(token_id) if run.vocabulary else (None, None)
            special = run.vocabulary.is_special(token_id) if run.vocabulary else None
            run.recorder.add_fact(
                "tokens",
                run.span.seq,
                run.span.seq,
                row=row,
                index=numbers[row] + place,
                position=start + place,
                part=part,
                token_id=token_id,
                vocab=vocab,
                bytes_hex=None if raw is None else raw.hex(),
                text=run.texts[row][place],
                kind=None if special is None else ("special" if special else "text"),
                origin="generated",
                attended=True,
            )

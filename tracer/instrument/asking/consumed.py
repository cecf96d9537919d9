"""The prompt that a generate() consumed: its tokens, and the images behind its placeholders."""

from __future__ import annotations

from typing import Any

from tracer.instrument.answering.run import Run
from tracer.instrument.asking import encodings, image_rows, tokens
from tracer.instrument.asking.encodings import Encoding


def find(run: Run) -> Encoding | None:
    """The encoding that the call's ids come from; of an encoder-decoder, the encoder's."""
    rows = encoder_rows(run) if is_encoder_decoder(run) else run.prompt
    found = encodings.find(run.recorder, rows)
    if found is None:
        grids = [
            tuple(int(size) for size in grid)
            for name in ("image_grid_thw", "video_grid_thw")
            for grid in _listed(run.kwargs.get(name))
        ]
        found = encodings.find_by_images(run.recorder, grids)
    return found


def note_given(run: Run) -> None:
    """The prompt of a call that never came to its decoding method: as the user gave it."""
    given: Any = run.kwargs.get("input_ids")
    given = run.kwargs.get("inputs") if given is None else given
    if getattr(given, "ndim", 0) != 2 or given.is_floating_point() or is_encoder_decoder(run):
        return
    run.prompt = given.tolist()
    run.encoding = find(run)
    run.tokenizer = run.encoding.tokenizer if run.encoding else None


def is_encoder_decoder(run: Run) -> bool:
    """Whether the prompt goes to an encoder, and the answer comes from a decoder."""
    return bool(getattr(run.model.config, "is_encoder_decoder", False))


def encoder_rows(run: Run) -> list[list[int]]:
    """Ids that the encoder is given, each row as often as the decoder has rows for it."""
    given: Any = run.kwargs.get("input_ids")
    given = run.kwargs.get("inputs") if given is None else given
    if getattr(given, "ndim", 0) != 2 or given.is_floating_point():
        return []  # sound or pictures, or made in another way
    return _for_each_row(run, given.tolist()) or []


def _listed(grid: Any) -> list[list[int]]:
    return grid.tolist() if hasattr(grid, "tolist") else []


def tell_prompt(run: Run) -> list[int]:
    """Write the tokens of the prompt.

    Returns:
        The running number of each row's first answered token.
    """
    if run.encoding is not None:
        run.encoding.consume()
    event, marks = run.span.seq, run.placeholders()
    mask: Any = run.kwargs.get("attention_mask")
    seen = mask.tolist() if getattr(mask, "ndim", 0) == 2 else None
    if not is_encoder_decoder(run):
        prompt = tokens.Prompt(
            run.prompt,
            _for_each_row(run, seen),
            run.encoding,
            marks,
            run.tokenizer,
            run.first_positions,
        )
        return tokens.tell(run.recorder, event, prompt)
    rows = encoder_rows(run)
    if seen is not None and len(rows) != len(seen):
        seen = encodings.repeat(seen, len(rows) // max(1, len(seen)))
    whole = tokens.Prompt(rows, seen, run.encoding, marks, run.tokenizer, part="encoder")
    starts = tokens.tell(run.recorder, event, whole) if rows else None
    begun = tokens.Prompt(
        run.prompt, None, None, marks, run.tokenizer, run.first_positions, "decoder", starts
    )
    return tokens.tell(run.recorder, event, begun)


def _for_each_row(run: Run, rows: list[Any] | None) -> list[Any] | None:
    """What was handed over for each prompt, for each of the sequences made of it."""
    if not rows:
        return rows
    times = max(1, len(run.prompt) // len(rows))
    return encodings.repeat(rows, times)


def _replaced(run: Run) -> list[bool]:
    """Of each placeholder in turn whether a feature took its place; empty where nobody knows."""
    marks, every = run.placeholders(), run.replaced
    if every is None or len(every) != len(run.prompt):
        return []
    found = [
        one
        for row, ids in zip(every, run.prompt, strict=True)
        for one, token_id in zip(row, ids, strict=True)
        if marks.kind(token_id)
    ]
    return [bool(one) for one in found] if None not in found else []


def tell_images(run: Run) -> None:
    """Write the images of the prompt, with the embeddings that their features replaced."""
    if run.encoding is None:
        return
    rows, marks = encoder_rows(run) if is_encoder_decoder(run) else run.prompt, run.placeholders()
    for image in image_rows.placed(run.encoding, rows, marks, _replaced(run)):
        image_rows.tell(run.recorder, image, run.span.seq, run.span.seq)

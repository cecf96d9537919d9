"""The model card of the demo checkpoint: what it is, how it was made, what it cannot do.

`train` writes it with the shares of its own last look at the model, `check --card` puts those of
the examination in their place.
"""

import re
from collections.abc import Mapping
from pathlib import Path

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: image-text-to-text
language: [en, zh]
---

# A small model that sees shapes

## What it is

A model of the Qwen2.5-VL architecture with {parameters:,} parameters, in bf16, small enough to
travel inside a package. It looks at synthetic pictures of up to three coloured shapes (circle,
square, triangle, star; red, green, blue, yellow, purple, orange), at most one in each quarter, and
answers questions about them in English and Chinese: describe, how many, what is in the top left,
where is, what colour, is there, left or right of; about one picture, about two in one message, or
about a short video of one moving shape. It exists so that loading and generating can be looked at
on any computer: its tables of tokens, probabilities and attention mean something.

The files have the form of the published models: flat `config.json`, tensors named `visual.*`,
`model.*` and `lm_head.weight`, three shards with an index. The tokenizer is its own; the standard
system prompt and `Describe this image.` are 25 text tokens round one picture, as with the family's.
Rare Chinese characters stay in bytes. `generation_config.json` ships sampling values; ask with
`do_sample=False` for the same answer each time.

## How it was trained

`make demo-model`: {steps:,} steps on one CPU core, from random weights, on scenes drawn while it
ran; no other data. First the vision tower learns alone, then all of it; of a message only the
answer is in the loss. One scene in ten is held out by its content. Sizes, places, colours and
backgrounds vary; pictures give 9 to 25 image tokens. Guides helped and were thrown away: fixed
readers of what lies in each quarter, on the picture's features; between the text layers, of which
of two pictures a token belongs to, and of where the shapes are that a question names. The weights
were rounded to bf16 at the end. Exact answers on held-out scenes, word for word:

{table}

`make demo-model-check` repeats the examination through the library.

## What it cannot do

It knows nothing else. It has never seen a photograph, a letter or a number; shown one, it talks of
shapes. It reads the questions it was trained on and close relatives, no others; asked anything
else, it says something, sure and wrong. It does not know two shapes in one quarter, other colours
or forms, longer videos, three pictures, or a conversation of several turns. Larger pictures are
made smaller by its processor (at most 140 x 140 pixels). Use it to learn how models run, never to
see.
"""


Shares = Mapping[tuple[str, str], float]  # of exact answers, by kind and language


def model_card(parameters: int, steps: int, shares: Shares) -> str:
    """Write the card."""
    return CARD.format(parameters=parameters, steps=steps, table=results_table(shares))


def results_table(shares: Shares) -> str:
    """Write the shares as a table, kinds in their order of appearance."""
    lines = ["| kind | English | Chinese |", "|---|---|---|"]
    for kind in dict.fromkeys(kind for kind, _ in shares):
        lines.append(f"| {kind} | {shares[kind, 'en']:.1%} | {shares[kind, 'zh']:.1%} |")
    return "\n".join(lines)


def write_results(folder: Path, shares: Shares) -> None:
    """Put a new table into the card of a checkpoint."""
    path = folder / "README.md"
    card = path.read_text(encoding="utf-8")
    card = re.sub(r"\| kind \|(?:.*\|\n)+", f"{results_table(shares)}\n", card)
    path.write_text(card, encoding="utf-8", newline="\n")

"""Examine the demo model on scenes it was not trained on: `python -m tracer.demo.check`.

Everything goes through the library: the folder's own processor, chat template and `generate`,
greedy, in batches, with the penalty that the generation configuration ships. It computes in fp32
unless told otherwise (a CPU is slow at bf16; the weights are the same). Runs on each supported
generation of transformers. Prints a table; its last line names the lowest kind; the exit status
is 1 when a kind is under 97 % or answers differ from those of `--like`.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm import tqdm
from transformers import AutoModelForImageTextToText, AutoProcessor

from tracer.demo import checkpoint_folder
from tracer.demo.card import write_results
from tracer.demo.examples import Example, draw
from tracer.demo.questions import (
    KINDS,
    LANGUAGES,
    SCENE_KINDS,
    Question,
    ask,
    ask_movie,
    ask_pair,
    small_talk,
)
from tracer.demo.scenes import (
    GRIDS,
    MOVIE_GRIDS,
    PAIR_SHARES,
    random_movie,
    random_scene,
    random_size,
)

NEEDED = 0.97
SCENES = 1000
ROWS = 50  # messages a batch
LONGEST = 72  # tokens of an answer
SEED = 1_000_003


@dataclass(frozen=True)
class Result:
    """One question of the examination and what the model answered."""

    question: Question
    answer: str

    @property
    def is_right(self) -> bool:
        """Say whether the answer is exactly the expected one."""
        return self.answer == self.question.answer


def exam(scenes: int) -> Iterator[Example]:
    """Give one question of each kind for each held-out scene, languages in turn."""
    chance = random.Random(SEED)
    for number in range(scenes):
        scene = random_scene(chance, held_out=True)
        first, second = (random_scene(chance, True, PAIR_SHARES) for _ in range(2))
        movie = random_movie(chance, held_out=True)
        size = random_size(chance, chance.choice(GRIDS))
        movie_size = random_size(chance, chance.choice(MOVIE_GRIDS))
        seed = chance.getrandbits(32)
        for kind in SCENE_KINDS:
            question = ask(scene, kind, LANGUAGES[number % 2], chance)
            yield Example((scene,), None, size, seed, (question,))
        question = ask_pair(first, second, LANGUAGES[number % 2], chance)
        yield Example((first, second), None, size, seed, (question,))
        question = ask_movie(movie, LANGUAGES[number % 2], chance)
        yield Example((), movie, movie_size, seed, (question,))
        question = small_talk(scene, LANGUAGES[number % 2], chance)
        yield Example((), None, size, seed, (question,))


def in_batches(examples: Iterator[Example]) -> list[list[Example]]:
    """Put messages with the same sort of pictures together, those of like length side by side."""
    sorts: dict[tuple[int, bool], list[Example]] = {}
    for example in examples:
        sorts.setdefault((len(example.pictures), example.movie is not None), []).append(example)
    batches = []
    for members in sorts.values():
        members.sort(key=lambda each: len(each.questions[0].answer.encode()))
        batches += [members[start : start + ROWS] for start in range(0, len(members), ROWS)]
    return batches


def answer_batch(model: Any, processor: Any, examples: list[Example]) -> list[str]:
    """Ask the model all questions of a batch through the library's own path."""
    drawn = [draw(example) for example in examples]
    is_video = examples[0].movie is not None
    sort = "video" if is_video else "image"
    texts = []
    for example, pictures in zip(examples, drawn, strict=True):
        content = [{"type": sort} for _ in pictures]
        content.append({"type": "text", "text": example.questions[0].text})
        message = {"role": "user", "content": content}
        texts.append(
            processor.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
        )
    media: dict[str, Any] = {}
    if is_video:
        media["videos"] = [frames for pictures in drawn for frames in pictures]
    elif drawn[0]:
        media["images"] = [frame for pictures in drawn for (frame,) in pictures]
    inputs = processor(text=texts, padding=True, return_tensors="pt", **media)
    output = model.generate(
        **inputs,
        max_new_tokens=LONGEST,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
    )
    written = output[:, inputs["input_ids"].shape[1] :]
    answers: list[str] = processor.batch_decode(written, skip_special_tokens=True)
    return answers


def examine(folder: Path, scenes: int, dtype: torch.dtype = torch.float32) -> list[Result]:
    """Ask a checkpoint about held-out scenes, computing in the given dtype."""
    processor: Any = AutoProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
    processor.tokenizer.padding_side = "left"
    model: Any = AutoModelForImageTextToText.from_pretrained(folder)
    model.to(dtype)
    results = []
    for batch in tqdm(in_batches(exam(scenes)), unit="batch"):
        answers = answer_batch(model, processor, batch)
        for example, answer in zip(batch, answers, strict=True):
            results.append(Result(example.questions[0], answer))
    return results


def shares_right(results: list[Result]) -> dict[tuple[str, str], float]:
    """Give the share of exact answers by kind and language."""
    asked = _count(results)
    right = _count([each for each in results if each.is_right])
    return {key: right[key] / asked[key] for key in product(KINDS, LANGUAGES) if asked[key]}


def _count(results: list[Result]) -> Counter[tuple[str, str]]:
    return Counter((each.question.kind, each.question.language) for each in results)


def table(results: list[Result]) -> tuple[list[str], float]:
    """Give the lines of the table, the lowest kind in the last, and the lowest share."""
    asked, shares = _count(results), shares_right(results)
    lines = [f"{'kind':<10}{'English':>10}{'Chinese':>10}{'asked':>8}"]
    for kind in KINDS:
        cells = [f"{shares.get((kind, each), float('nan')):>10.1%}" for each in LANGUAGES]
        lines.append(f"{kind:<10}{''.join(cells)}{sum(asked[kind, e] for e in LANGUAGES):>8}")
    (kind, language), lowest = min(shares.items(), key=lambda item: item[1])
    name = {"en": "English", "zh": "Chinese"}[language]
    lines.append(f"lowest: {kind} in {name}, {lowest:.1%} exact (needed: {NEEDED:.0%})")
    return lines, lowest


def differences(results: list[Result], path: Path) -> list[str]:
    """Compare answers with those that another run saved."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    if len(saved) != len(results):
        return [f"{path} holds {len(saved)} answers, this run gave {len(results)}"]
    return [
        f"{each.question.text} {each.answer!r} instead of {answer!r}"
        for each, answer in zip(results, saved, strict=True)
        if each.answer != answer
    ]


def exit_status(others: list[str], lowest: float) -> int:
    """Give 0 where no answer differs from the other run's and no kind is under what is needed."""
    return 1 if others or lowest < NEEDED else 0


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, examine, print the table; give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tracer.demo.check", description=__doc__)
    parser.add_argument("--scenes", type=int, default=SCENES)
    parser.add_argument("--folder", type=Path, default=checkpoint_folder())
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print")
    parser.add_argument("--save", type=Path, help="file to write the answers to")
    parser.add_argument("--like", type=Path, help="file of answers that must be the same")
    parser.add_argument("--card", action="store_true", help="write the shares into its README.md")
    options = parser.parse_args(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    results = examine(options.folder, options.scenes, getattr(torch, options.dtype))
    for wrong in [each for each in results if not each.is_right][: options.show]:
        print(f"{wrong.question.text} {wrong.answer!r} instead of {wrong.question.answer!r}")
    if options.save:
        answers = json.dumps([each.answer for each in results], ensure_ascii=False)
        options.save.write_text(answers, encoding="utf-8")
    if options.card:
        write_results(options.folder, shares_right(results))
    others = differences(results, options.like) if options.like else []
    lines, lowest = table(results)
    print("\n".join([*others, f"transformers {transformers.__version__}", *lines]))
    return exit_status(others, lowest)


if __name__ == "__main__":
    sys.exit(main())

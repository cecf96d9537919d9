"""Train the demo model that sees: `python -m tracer.demo.train --out DIR`.

Deterministic: the same steps, threads and library give the same weights. About 40 minutes on two
cores. The loss counts the answers alone; every so many steps held-out scenes are asked. Stopped,
it goes on from the last such step. It writes the finished checkpoint; `check` examines it.
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from tqdm import tqdm
from transformers import Qwen2_5_VLForConditionalGeneration

from tracer.demo.batches import IGNORED, Batch, Maker
from tracer.demo.card import model_card
from tracer.demo.checkpoint import new_model, write_checkpoint
from tracer.demo.optimiser import Rates, Tower
from tracer.demo.probe import Probe
from tracer.demo.questions import PAIR_FORMS, SCENE_KINDS
from tracer.demo.scenes import SHAPE_SHARES
from tracer.demo.seeing_fast import MOVIE_INTERVALS, answer, see
from tracer.demo.tokenizer import build_tokenizer

SEED = 20
SEEING_STEPS = 700  # first the vision tower learns alone, which costs little
STEPS = 3950


@dataclass(frozen=True)
class Phase:
    """What the steps before `until` learn from."""

    until: int
    rows: int  # messages with one picture in a batch
    questions: int  # about each picture; without any, the vision tower learns alone
    others: tuple[int, int] | None  # messages, and questions each, with two pictures or a video
    kinds: tuple[float, ...]  # how often each of SCENE_KINDS is asked
    shares: tuple[float, ...] = SHAPE_SHARES  # how often there are 0, 1, 2 and 3 shapes
    cycle: int = 4  # one step in so many has a video, the others two pictures
    pairs: tuple[str, ...] = PAIR_FORMS  # what is asked about two pictures
    twins: float = 0.0  # how often these have shapes in the same places


WHICH_FORMS = ("both", "nth", "nth_count", *("which",) * 7)
LOOK_UP = (1, 0, 1, 1, 0, 0, 0)
LAST_KINDS = (0.8, 1.3, 0.6, 1.0, 0.7, 1.3, 2.4)
PHASES = (
    # Three shapes are the hardest to tell apart.
    Phase(SEEING_STEPS, 20, 0, None, LOOK_UP, (0.02, 0.13, 0.3, 0.55)),
    # Then it learns to look something up in a picture, and only that: sooner than in a mix.
    Phase(SEEING_STEPS + 200, 20, 6, None, LOOK_UP, (0.0, 0.2, 0.3, 0.5)),
    Phase(1600, 18, 6, (10, 5), (1.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5)),
    Phase(2200, 16, 6, (12, 5), (1.0, 1.5, 0.8, 1.0, 0.8, 1.3, 1.5), cycle=3),
    # What is left to learn: which of two pictures has something, and left or right of what.
    Phase(3000, 16, 6, (12, 8), LAST_KINDS, cycle=3, pairs=WHICH_FORMS),
    # Where places differ, it is enough to find the place and take the picture with any shape there:
    # so most pairs have shapes in the same places.
    Phase(STEPS, 14, 6, (12, 8), LAST_KINDS, cycle=3, pairs=WHICH_FORMS, twins=0.65),
)
# Small steps make answers exact, a new task needs larger ones again. Where a later line begins, the
# end of the one before only gives its slope.
VISION_RATES: Rates = (
    (0, 0.025, 30, 1.0),
    (30, 1.0, 350, 1.0),
    (350, 1.0, SEEING_STEPS, 0.2),
    (SEEING_STEPS, 0.2, 4300, 0.0),
    (3000, 0.07, 3800, 0.0),
    (3500, 0.03, STEPS, 0.0),
)
TEXT_RATES: Rates = (
    (SEEING_STEPS, 0.0, SEEING_STEPS + 40, 1.0),
    (SEEING_STEPS + 40, 1.0, 1600, 1.0),
    (1600, 1.0, 2000, 0.4),
    (2000, 0.4, 3900, 0.0),
    (3000, 0.35, 3800, 0.0),
    (3500, 0.15, STEPS, 0.0),
)
GUIDE = 0.5  # weight of the probe's losses
UNFINISHED = "unfinished.pt"  # the weights so far, beside the checkpoint to be
EVALUATE_EVERY = 200


def initialise(model: Qwen2_5_VLForConditionalGeneration, seed: int) -> None:
    """Give random weights that suit this small width better than the family's 0.02."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        fan_in = weight[0].numel()
        spread = 0.5 if "embed_tokens" in name else fan_in**-0.5
        if name.endswith(("attn.proj.weight", "o_proj.weight", "down_proj.weight")):
            spread = 0.0  # each block begins as the identity
        if name == "lm_head.weight":
            spread = 0.02
        torch.nn.init.normal_(weight, std=spread, generator=generator)


class Training:
    """A model on its way: weights, optimisers, the source of batches, and the step."""

    def __init__(self) -> None:
        """Begin with random weights."""
        self.step = 0
        self.tokenizer = build_tokenizer()
        self.model = new_model(SEED)
        initialise(self.model, SEED)
        self.maker = Maker(SEED, self.tokenizer)
        self._probe = Probe(self.model.lm_head.in_features, SEED)
        self._pool = ThreadPoolExecutor(max_workers=2)
        core = self.model.model
        text = torch.nn.ModuleDict({"model": core.language_model, "lm_head": self.model.lm_head})
        self._towers = (Tower(core.visual, VISION_RATES), Tower(text, TEXT_RATES))

    def advance(self) -> list[float]:
        """Do one step; give the loss of each of its batches."""
        batches = list(self._batches())
        # Two of them at once, on two cores: the sum of two gradients is the same in either order,
        # that of three is not.
        losses = [*self._pool.map(self._learn, batches[:2]), *map(self._learn, batches[2:])]
        for tower in self._towers:
            tower.move(self.step)
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        return losses

    def _batches(self) -> Iterator[Batch]:
        """Give the batches that this step learns from."""
        phase = self._phase()
        kinds = {kind: share for kind, share in zip(SCENE_KINDS, phase.kinds, strict=True) if share}
        yield self.maker.pictures(phase.rows, phase.questions, phase.shares, kinds)
        if phase.questions == 0:  # another size
            yield self.maker.pictures(phase.rows, 0, phase.shares)
        if phase.others is None:
            return
        if self.step % phase.cycle:
            yield self.maker.pairs(*phase.others, phase.pairs, phase.twins)
        else:
            yield self.maker.movies(*phase.others)
        if self.step % 4 == 0:
            yield self.maker.texts(4, 6)

    def _phase(self) -> Phase:
        return next(phase for phase in PHASES if self.step < phase.until)

    def _learn(self, batch: Batch) -> float:
        """Add a batch's gradients; give its loss: the answers', or the probe's without any."""
        if batch.patches is not None and not batch.examples[0].questions:
            features = see(self.model.model.visual, batch.patches, *batch.grid[1:])
            loss = self._probe.loss(batch, features)
            torch.autograd.backward(loss)
            return loss.item()
        outcome = answer(self.model, batch, MOVIE_INTERVALS[self.step // self._phase().cycle % 2])
        loss = functional.cross_entropy(outcome.logits, outcome.labels)
        guide = self._probe.guide(batch, outcome.features, outcome.states, self._phase().twins > 0)
        torch.autograd.backward(loss + GUIDE * guide)
        return loss.item()

    def save(self, path: Path) -> None:
        """Write all that is needed to go on from here."""
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "towers": [tower.state() for tower in self._towers],
            "chance": self.maker.state(),
        }
        torch.save(state, path)

    def resume(self, path: Path) -> None:
        """Go on from a file that `save` wrote."""
        state = torch.load(path, weights_only=True)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        for tower, towers in zip(self._towers, state["towers"], strict=True):
            tower.restore(towers)
        self.maker.restore(state["chance"])


def train(steps: int, threads: int, folder: Path, every: int) -> Qwen2_5_VLForConditionalGeneration:
    """Train from random weights, or from an interrupted training, and return the model in fp32."""
    torch.set_num_threads(threads)
    training = Training()
    if (folder / UNFINISHED).exists():
        training.resume(folder / UNFINISHED)
    with tqdm(total=steps, initial=training.step, unit="step", mininterval=5) as progress:
        while training.step < steps:
            losses = training.advance()
            progress.set_postfix_str(" ".join(f"{loss:.3f}" for loss in losses), refresh=False)
            progress.update()
            if training.step % every == 0:
                shares = evaluate(training.model, training.tokenizer)
                tqdm.write(f"step {training.step}: {summary(shares)}")
                training.save(folder / UNFINISHED)
    return training.model


@torch.no_grad()
def evaluate(
    model: Qwen2_5_VLForConditionalGeneration, tokenizer: Tokenizer, rounds: int = 1
) -> dict[tuple[str, str], float]:
    """Give the share of exact answers on held-out scenes, by kind and language.

    An answer whose every token is the likeliest one is what greedy decoding would write.
    """
    maker = Maker(1, tokenizer, held_out=True)
    asked: Counter[tuple[str, str]] = Counter()
    right: Counter[tuple[str, str]] = Counter()
    for _ in range(rounds):
        batches = [maker.pictures(32, 8), maker.pictures(32, 8)]
        batches += [maker.pairs(24, 4), maker.movies(24, 4), maker.texts(12, 6)]
        for batch in batches:
            wrong = wrong_answers(model, batch)
            for row, example in enumerate(batch.examples):
                for branch, question in enumerate(example.questions, start=1):
                    asked[question.kind, question.language] += 1
                    right[question.kind, question.language] += (row, branch) not in wrong
    return {key: right[key] / asked[key] for key in sorted(asked)}


def wrong_answers(model: Qwen2_5_VLForConditionalGeneration, batch: Batch) -> set[tuple[int, int]]:
    """Give row and branch of each answer with a token that is not the likeliest."""
    outcome = answer(model, batch)
    missed = outcome.logits.argmax(-1) != outcome.labels
    rows, columns = torch.nonzero(batch.labels != IGNORED, as_tuple=True)
    branches = batch.branches[rows, columns]
    return set(zip(rows[missed].tolist(), branches[missed].tolist(), strict=True))


def summary(shares: dict[tuple[str, str], float]) -> str:
    """Write the shares on one line."""
    return " ".join(f"{kind}-{language} {share:.3f}" for (kind, language), share in shares.items())


def finish(model: Qwen2_5_VLForConditionalGeneration, steps: int, folder: Path) -> None:
    """Round the weights to bf16, examine them so, and write the checkpoint with its card."""
    with torch.no_grad():
        for weight in model.parameters():  # not the buffers: rotary angles stay exact
            weight.copy_(weight.bfloat16())
    shares = evaluate(model, build_tokenizer(), rounds=8)
    write_checkpoint(model, folder, model_card(model.num_parameters(), steps, shares))
    (folder / UNFINISHED).unlink(missing_ok=True)


def main() -> None:
    """Read the command line, train, and write the checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m tracer.demo.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the new checkpoint")
    parser.add_argument("--steps", type=int, default=STEPS, help="stop earlier, for a trial")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="of each of two batches at once; the result depends on it a little",
    )
    parser.add_argument("--evaluate-every", type=int, default=EVALUATE_EVERY)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = train(options.steps, options.threads, options.out, options.evaluate_every)
    finish(model, options.steps, options.out)


if __name__ == "__main__":
    main()

"""The same faults and the same health on families that nothing else here is tried on."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault, healthy
from transformers import (
    AutoModelForAudioClassification,
    AutoModelForSequenceClassification,
    ViTImageProcessor,
    WhisperFeatureExtractor,
)

IDS = torch.tensor([[11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25, 26]])
LEFT = torch.tensor([[11, 12, 13, 14, 15, 16], [0, 0, 21, 22, 23, 24]])
RIGHT = torch.tensor([[11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 0, 0]])
WRITERS = ("opt", "bloom", "gpt_neox", "gptj", "falcon", "gemma2", "phi3", "stablelm", "mamba")
HALVES = ("bart", "marian", "pegasus")
READERS = ("roberta", "distilbert", "electra")
GREEDY = {"max_new_tokens": 4, "do_sample": False}


def mask(ids: Any, pad: int = 0) -> Any:
    return (ids != pad).long()


def answered(bench: Bench, family: str, ids: Any, **settings: Any) -> Any:
    """A load with its weights checked, and an answer."""
    with bench.recorded(verify_weights=True) as recording:
        model = bench.other_auto(family).from_pretrained(bench.other(family))
        model.generate(input_ids=ids, **(GREEDY | settings))
    return recording.trace


def writes(family: str, bench: Bench) -> Any:
    return answered(bench, family, LEFT, attention_mask=mask(LEFT))


for _family in WRITERS:
    _run = functools.partial(writes, _family)
    _run.__name__ = f"{_family} loaded and asked"
    healthy()(_run)


def translates(family: str, bench: Bench) -> Any:
    return answered(bench, family, RIGHT, attention_mask=mask(RIGHT), num_beams=2)


for _family in HALVES:
    _run = functools.partial(translates, _family)
    _run.__name__ = f"{_family} loaded and asked"
    healthy()(_run)


def reads(family: str, bench: Bench) -> Any:
    with bench.recorded(verify_weights=True) as recording, torch.inference_mode():
        model = bench.other_auto(family).from_pretrained(bench.other(family))
        model(input_ids=RIGHT, attention_mask=mask(RIGHT))
    return recording.trace


for _family in READERS:
    _run = functools.partial(reads, _family)
    _run.__name__ = f"{_family} loaded and read with"
    healthy()(_run)


def heard() -> Any:
    return torch.randn(1, 8, 40, generator=torch.Generator().manual_seed(0))


@healthy()
def a_speech_model_that_suppresses_tokens(bench: Bench) -> Any:
    with bench.recorded(verify_weights=True) as recording:
        model = bench.other_auto("whisper").from_pretrained(bench.other("whisper"))
        model.generate(input_features=heard(), **GREEDY)
    return recording.trace


@healthy()
def letters_out_of_sound(bench: Bench) -> Any:
    with bench.recorded(verify_weights=True) as recording, torch.inference_mode():
        model = bench.other_auto("wav2vec2").from_pretrained(bench.other("wav2vec2"))
        model(input_values=torch.randn(1, 200))
    return recording.trace


@healthy()
def a_picture_classified(bench: Bench) -> Any:
    with bench.recorded(verify_weights=True) as recording, torch.inference_mode():
        model = bench.other_auto("vit").from_pretrained(bench.other("vit"))
        model(pixel_values=torch.randn(1, 3, 28, 28))
    return recording.trace


SEEN = torch.tensor([[1, 60, 60, 60, 60, 11, 12, 13]])  # a picture of two patches by two


@healthy()
def a_picture_asked_about(bench: Bench) -> Any:
    with bench.recorded(verify_weights=True) as recording:
        model = bench.other_auto("llava").from_pretrained(bench.other("llava"))
        pixels = torch.randn(1, 3, 28, 28, generator=torch.Generator().manual_seed(0))
        model.generate(
            input_ids=SEEN, attention_mask=torch.ones_like(SEEN), pixel_values=pixels, **GREEDY
        )
    return recording.trace


@fault("placeholders_differ")
def a_picture_that_llavas_call_leaves_out(bench: Bench) -> Any:
    model = bench.model("llava")
    with bench.recorded() as recording:
        model.generate(input_ids=SEEN, attention_mask=torch.ones_like(SEEN), **GREEDY)
    return recording.trace


def beyond(bench: Bench, family: str, tokens: int) -> Any:
    model, ids = bench.model(family), (torch.arange(tokens) % 40 + 8)[None]
    with bench.recorded() as recording, contextlib.suppress(IndexError, ValueError):
        model.generate(ids, attention_mask=torch.ones_like(ids), **GREEDY, eos_token_id=[])
    return recording.trace


@healthy()
def a_long_prompt_for_positions_without_an_end(bench: Bench) -> Any:
    return beyond(bench, "bloom", 60)


@fault("positions_exhausted")
def a_prompt_beyond_the_learned_positions_of_opt(bench: Bench) -> Any:
    return beyond(bench, "opt", 40)


@fault("beyond_positions")
def a_prompt_beyond_the_rotary_positions_of_neox(bench: Bench) -> Any:
    return beyond(bench, "gpt_neox", 40)


@clean("beyond_positions", "positions_exhausted")
def a_prompt_within_the_positions_of_opt(bench: Bench) -> Any:
    return beyond(bench, "opt", 20)


@fault("positions_exhausted")
def a_text_beyond_the_learned_positions_of_a_reader(bench: Bench) -> Any:
    model = bench.model("distilbert")
    ids = (torch.arange(40) % 40 + 8)[None]
    failing = contextlib.suppress(IndexError, RuntimeError)
    with bench.recorded() as recording, torch.inference_mode(), failing:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    return recording.trace


def padded(bench: Bench, family: str, ids: Any, **settings: Any) -> Any:
    model = bench.model(family)
    with bench.recorded() as recording:
        model.generate(input_ids=ids, **(GREEDY | settings))
    return recording.trace


for _family in ("opt", "bloom", "gpt_neox", "falcon", "phi3", "gemma2"):
    _run = functools.partial(lambda family, bench: padded(
        bench, family, RIGHT, attention_mask=mask(RIGHT)), _family)  # fmt: skip
    _run.__name__ = f"{_family} padded on the right"
    fault("padding_on_the_right")(_run)
    _run = functools.partial(lambda family, bench: padded(
        bench, family, LEFT, attention_mask=torch.ones_like(LEFT)), _family)  # fmt: skip
    _run.__name__ = f"{_family} with padding attended"
    fault("padding_attended")(_run)


@fault("padding_attended")
def padding_that_an_encoder_of_bart_sees(bench: Bench) -> Any:
    return padded(bench, "bart", RIGHT, attention_mask=torch.ones_like(RIGHT))


def loaded(bench: Bench, family: str, auto: Any, **given: Any) -> Any:
    with bench.recorded() as recording:
        auto.from_pretrained(bench.other(family), **given)
    return recording.trace


@fault("head_random")
def opt_as_a_classifier(bench: Bench) -> Any:
    return loaded(bench, "opt", AutoModelForSequenceClassification)


@fault("head_random")
def a_masked_model_as_a_classifier(bench: Bench) -> Any:
    return loaded(bench, "roberta", AutoModelForSequenceClassification)


@fault("head_random")
def whisper_as_a_classifier_of_sound(bench: Bench) -> Any:
    return loaded(bench, "whisper", AutoModelForAudioClassification)


def spoilt(bench: Bench, family: str, name: str, value: float, **options: Any) -> Any:
    model = bench.fresh(family)
    with torch.no_grad():
        dict(model.named_parameters())[name].view(-1)[0] = value
    return model


@fault("nonfinite_module", "nonfinite_scores")
def an_infinity_in_a_norm_of_phi(bench: Bench) -> Any:
    model = spoilt(bench, "phi3", "model.layers.1.mlp.down_proj.weight", float("inf"))
    with bench.recorded(values=True) as recording:
        model.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), **GREEDY)
    return recording.trace


@fault("nonfinite_module", "nonfinite_scores")
def a_weight_that_is_no_number_in_an_encoder(bench: Bench) -> Any:
    model = spoilt(bench, "bart", "model.encoder.layers.0.fc1.weight", float("nan"))
    with bench.recorded(values=True) as recording, contextlib.suppress(RuntimeError):
        model.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), **GREEDY, num_beams=2)
    return recording.trace


@fault("nonfinite_module")
def a_reader_with_a_weight_that_is_no_number(bench: Bench) -> Any:
    name = "roberta.encoder.layer.0.output.dense.weight"
    model = spoilt(bench, "roberta", name, float("nan"))
    with bench.recorded(values=True) as recording, torch.inference_mode():
        model(input_ids=IDS)
    return recording.trace


@fault("gradients_on")
def a_reader_that_keeps_its_graph(bench: Bench) -> Any:
    model = bench.model("roberta")
    with bench.recorded() as recording:
        model(input_ids=IDS, attention_mask=torch.ones_like(IDS))
    return recording.trace


@fault("dropout_on")
def a_translator_left_training(bench: Bench) -> Any:
    model = bench.fresh("bart").train()
    with bench.recorded() as recording:
        model.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), **GREEDY)
    return recording.trace


def first_suppressed(bench: Bench, family: str, setting: str) -> Any:
    """An answer whose most likely first token the model's own settings forbid."""
    model = bench.fresh(family)
    given = {"input_ids": IDS[:1], "attention_mask": torch.ones_like(IDS[:1])}
    first = int(model.generate(**given, **GREEDY)[0, IDS.shape[1]])
    setattr(model.generation_config, setting, [first])
    with bench.recorded() as recording:
        model.generate(**given, **GREEDY)
    return recording.trace


@fault("choice_overruled")
def tokens_that_a_file_suppresses(bench: Bench) -> Any:
    return first_suppressed(bench, "phi3", "suppress_tokens")


@fault("choice_overruled")
def a_first_token_that_a_file_suppresses(bench: Bench) -> Any:
    return first_suppressed(bench, "opt", "begin_suppress_tokens")


@clean("choice_overruled")
def tokens_that_the_call_suppresses(bench: Bench) -> Any:
    model = bench.model("phi3")
    given = {"input_ids": IDS[:1], "attention_mask": torch.ones_like(IDS[:1])}
    first = int(model.generate(**given, **GREEDY)[0, IDS.shape[1]])
    with bench.recorded() as recording:
        model.generate(**given, **GREEDY, suppress_tokens=[first])
    return recording.trace


def stands(family: str, bench: Bench) -> Any:
    return bench.model(family)


for _family in ("opt", "falcon", "phi3", "mamba", *HALVES, "whisper", "llava", "vit", *READERS):
    _run = functools.partial(stands, _family)
    _run.__name__ = f"{_family} as it was loaded"
    healthy()(_run)


@healthy()
def a_speech_model_with_what_makes_sounds_ready(bench: Bench) -> Any:
    return bench.model("whisper"), WhisperFeatureExtractor(feature_size=8)


@healthy()
def a_vision_model_with_what_makes_pictures_ready(bench: Bench) -> Any:
    return bench.model("vit"), ViTImageProcessor()


@healthy()
def a_model_cast_as_a_whole(bench: Bench) -> Any:
    return bench.fresh("phi3").to(torch.bfloat16)


@healthy()
def a_model_that_needs_no_gradients(bench: Bench) -> Any:
    return bench.fresh("opt").requires_grad_(False)


@fault("model_untied", also=("model_differs",))
def a_head_of_barts_own(bench: Bench) -> Any:
    model = bench.fresh("bart")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model

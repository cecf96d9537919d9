"""What is often said of inference and is not so, each set against what the trace measures."""

import contextlib
import gc
import weakref

import pytest
import torch
from instrument.families import FAMILIES
from instrument.toys import ask, text_inputs
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import tracer

pytestmark = pytest.mark.generations


def _toy(family):
    auto, config = FAMILIES[family]()
    torch.manual_seed(0)
    return auto.from_config(config).eval()


def test_the_length_limit_feeds_a_stopping_criterion_and_no_mask(llama):
    """Said: prompt and new tokens are added up for the attention mask."""
    with tracer.record(strict=True) as recording:
        llama.generate(**text_inputs(), max_new_tokens=3, do_sample=False)
    trace = recording.trace
    criteria = trace["chain"].query("kind == 'criterion'").set_index("class_name")["parameters"]
    assert '"max_length": 9' in criteria["MaxLengthCriteria"]
    masks = trace["steps"].sort_values("step")["mask"].tolist()
    assert not any("9]" in mask for mask in masks)
    widths = [mask for mask in masks if mask.startswith("2D")]
    assert widths == [f"2D [1, {6 + n}] int64" for n in range(len(widths))]


def test_positions_turn_queries_and_keys_and_leave_embeddings_alone(llama):
    """Said: rotary positions are added to the embeddings, and computed once, in the prefill."""
    ids = text_inputs()["input_ids"]
    with torch.no_grad(), tracer.record(strict=True, values=True) as recording:
        llama(input_ids=ids, position_ids=torch.arange(6)[None])
        llama(input_ids=ids, position_ids=torch.arange(6)[None] * 3)
    trace = recording.trace
    values = trace["modules"].sort_values("seq").groupby("path")[["mean", "std", "abs_max"]]
    embedded = values.get_group("model.embed_tokens").to_numpy()
    attended = values.get_group("model.layers.1.self_attn").to_numpy()
    assert (embedded[0] == embedded[1]).all()
    assert (attended[0] != attended[1]).any()
    assert trace["steps"]["rotary_applications"].tolist() == [2, 2]  # once in each layer
    assert trace["steps"]["rotary_calls"].tolist() == [1, 1]


MODES = {
    "neither": (contextlib.nullcontext, "no_grad", "grad"),
    "no_grad": (torch.no_grad, "no_grad", "no_grad"),
    "inference_mode": (torch.inference_mode, "inference_mode", "inference_mode"),
}


@pytest.mark.parametrize("mode", MODES)
def test_generate_never_tracks_gradients_whatever_is_around_it(llama, mode):
    """Said: only inference_mode forbids gradients, and it switches autocast's cache off."""
    around, inside, own = MODES[mode]
    with around(), tracer.record(strict=True) as recording:
        llama.generate(**text_inputs(), max_new_tokens=1)
        llama(**text_inputs())
        assert torch.is_autocast_cache_enabled()
    modes = recording.trace["calls"].set_index("kind")["grad_mode"]
    assert (modes["generate"], modes["forward"]) == (inside, own)


def test_a_cache_that_generate_made_is_gone_when_it_returns():
    """Said: memory grows from request to request by the caches."""
    model, seen = _toy("llama"), []

    def look(module, args, kwargs):
        cache = kwargs.get("cache")
        seen.append(weakref.ref(kwargs["past_key_values"] if cache is None else cache))

    handle = model.model.register_forward_pre_hook(look, with_kwargs=True)
    with tracer.record(strict=True) as recording:
        for _ in range(2):
            model.generate(**text_inputs(), max_new_tokens=2, do_sample=False)
        gc.collect()
        assert [one() for one in seen] == [None] * len(seen)
    handle.remove()
    calls = recording.trace["calls"].query("kind == 'generate'")
    assert calls["cache"].nunique() == 2
    assert calls["cache_prefix_tokens"].isna().all()
    assert calls.sort_values("seq")["recomputed_tokens"].tolist()[1] > 0  # nothing was kept


def test_beyond_its_positions_a_rotary_model_goes_on_and_a_learned_table_ends():
    """Said: a prompt that is too long raises IndexError or is cut."""
    long = torch.arange(40)[None] % 60 + 3
    with tracer.record(strict=True) as recording:
        _toy("llama")(input_ids=long)
        with pytest.raises(IndexError, match="index out of range"):
            _toy("gpt2")(input_ids=long)
    trace = recording.trace
    calls = trace["calls"].sort_values("seq")
    assert calls["status"].tolist() == ["ok", "error"]
    steps = trace["steps"].sort_values("seq")
    assert steps["input_tokens"].tolist() == [40, 40]  # nothing was cut
    assert steps["last_position"].iloc[0] == 39


def test_the_users_words_are_the_smaller_part_of_a_prompt(processor, seeing):
    """Said: the length of the encoded message tells whether the prompt fits."""
    with tracer.record(strict=True) as recording:
        _, inputs = ask(processor)
        seeing.generate(**inputs, max_new_tokens=1, do_sample=False)
    tokens = recording.trace["tokens"].query("origin != 'generated'")
    words = processor.tokenizer.encode("What is at the top left?")
    assert (tokens["origin"] == "user").sum() == len(words) < len(tokens) / 2
    assert (tokens["kind"] == "image").sum() > 0
    assert len(tokens) == inputs["input_ids"].shape[1]


def test_it_is_the_tokenizer_that_needs_a_pad_token():
    """Said: generate() raises ValueError where no pad token is set."""
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    model = _toy("llama")
    model.generation_config.pad_token_id = model.config.pad_token_id = None
    with tracer.record(strict=True) as recording:
        with pytest.raises(ValueError, match="pad"):
            tokenizer(["a", "a b"], padding=True)
        output = model.generate(text_inputs()["input_ids"].repeat(2, 1), max_new_tokens=2)
    assert len(output) == 2
    calls = recording.trace["calls"].sort_values("seq")
    assert calls["status"].tolist() == ["error", "ok"]

"""Every generation parameter of the installed library, out of each place that may set it."""

import copy
import json

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model
from transformers import GenerationConfig, LlamaForCausalLM

import tracer
from tracer.instrument.answering.generation_settings import plain
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = [pytest.mark.generations, pytest.mark.filterwarnings("ignore")]

# A value for each that differs from the library's, and that a plain call can run with. What has
# none is another way to decode, or a machine that is not here.
VALUES = {
    "max_new_tokens": 3, "min_new_tokens": 1, "max_length": 11, "min_length": 2, "max_time": 99.0,
    "early_stopping": True, "do_sample": True, "use_cache": False, "temperature": 0.7, "top_k": 7,
    "top_p": 0.9, "min_p": 0.01, "top_h": 0.5, "typical_p": 0.95, "epsilon_cutoff": 0.001,
    "eta_cutoff": 0.001, "repetition_penalty": 1.3, "encoder_repetition_penalty": 1.1,
    "length_penalty": 0.8, "no_repeat_ngram_size": 3, "bad_words_ids": [[3, 4]],
    "renormalize_logits": True, "remove_invalid_values": True, "forced_bos_token_id": 9,
    "forced_eos_token_id": 4, "exponential_decay_length_penalty": (2, 1.1),
    "suppress_tokens": [5], "begin_suppress_tokens": [6], "sequence_bias": [[[8], 0.5]],
    "guidance_scale": 1.2, "output_scores": True, "output_logits": True,
    "output_attentions": True, "output_hidden_states": True, "return_dict_in_generate": True,
    "pad_token_id": 1, "bos_token_id": 3, "eos_token_id": [2, 5], "num_assistant_tokens": 6,
    "num_assistant_tokens_schedule": "heuristic", "assistant_confidence_threshold": 0.3,
    "prefill_chunk_size": 4, "num_return_sequences": 1, "low_memory": True,
    "max_matching_ngram_size": 3, "target_lookbehind": 5, "assistant_lookbehind": 5,
    "cache_implementation": "static", "max_cache_len": 64, "num_beams": 2,
    "encoder_no_repeat_ngram_size": 2, "decoder_start_token_id": 4, "disable_compile": True,
    "assistant_ensemble_weight": 0.4, "return_legacy_cache": True,
}  # fmt: skip
OTHER = {
    "cache_config", "diversity_penalty", "is_assistant", "speculation_type", "forced_decoder_ids",
    "generation_kwargs",
    "stop_strings", "prompt_lookup_num_tokens", "assistant_early_exit", "token_healing",
    "watermarking_config", "compile_config", "continuous_batching_config", "transformers_version",
    "num_beam_groups", "penalty_alpha", "dola_layers", "constraints", "force_words_ids",
    "trust_remote_code", "use_mtp",
}  # fmt: skip
NAMES = sorted(name for name in GenerationConfig().to_dict() if not name.startswith("_"))


def test_every_parameter_of_the_installed_library_is_looked_at():
    assert [name for name in NAMES if name not in VALUES and name not in OTHER] == []


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    _model(0).save_pretrained(folder)
    return folder


def _loaded(base, folder, name, place):
    """A model with the value in its file or put on it, and the call's arguments."""
    value, given = VALUES[name], {} if name.startswith("max_") else {"max_new_tokens": 2}
    model = LlamaForCausalLM.from_pretrained(base)
    if place == "file":
        model.save_pretrained(folder)
        path = folder / "generation_config.json"
        told = json.loads(path.read_text("utf-8")) | {name: value}
        path.write_text(json.dumps(told), "utf-8")
        model = LlamaForCausalLM.from_pretrained(folder)
    elif place == "model":
        setattr(model.generation_config, name, value)
    elif place == "object":
        own = {"eos_token_id": 2, "pad_token_id": 0} | {name: value}
        given["generation_config"] = GenerationConfig(**own)
    else:
        given[name] = value
    return model, given


ORIGINS = {
    "file": "generation_config.json", "model": "model after load", "object": "config object",
    "call": "call",
}  # fmt: skip


@pytest.mark.parametrize("place", ORIGINS)
@pytest.mark.parametrize("name", [name for name in NAMES if name in VALUES])
def test_a_parameter_is_told_with_the_librarys_value_and_its_place(base, tmp_path, name, place):
    with tracer.record(strict=True) as recording:
        model, given = _loaded(base, tmp_path / "own", name, place)
        passed = copy.deepcopy(given)
        try:
            prepared = model._prepare_generation_config(**{"generation_config": None} | passed)[0]
            model.generate(ROWS[:1], attention_mask=torch.ones_like(ROWS[:1]), **given)
        except (ValueError, ImportError, TypeError, NotImplementedError) as refused:
            pytest.skip(f"the library refuses it: {refused}"[:90])
    told = recording.trace["settings"].query("scope == 'generate'").set_index("setting")
    expected = plain(getattr(prepared, name, None))
    assert (name in told.index) == (expected is not None or name in given)
    if name not in told.index:
        return
    effective, origin = told.loc[name, ["effective", "origin"]]
    assert json.loads(effective) == json.loads(json.dumps(expected))
    if expected != plain(VALUES[name]):
        assert origin != ORIGINS[place]  # the library put another in its place
    elif release() >= FIVE or expected != plain(getattr(GenerationConfig(), name, None)):
        assert origin == ORIGINS[place]

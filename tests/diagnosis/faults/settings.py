"""Faults of settings: without effect, dropped, or from a file that nobody read."""

import json
import warnings

import torch
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault
from transformers import AutoModelForCausalLM, pipeline

IDS = torch.tensor([[11, 12, 13, 14, 15, 16]])


def _asked(bench: Bench, model=None, **settings):
    model = model or bench.model("llama")
    given = {"attention_mask": torch.ones_like(IDS), "max_new_tokens": 6}
    torch.manual_seed(3)
    with bench.recorded() as recording:
        model.generate(IDS, **(given | settings))
    return recording.trace


def _with_file(bench: Bench, **settings):
    """A model whose folder brings these generation settings along, loaded from there."""
    folder = bench.copy(bench.folder("llama"))
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | settings), "utf-8")
    return AutoModelForCausalLM.from_pretrained(folder)


@fault("setting_ignored")
def a_temperature_for_greedy_decoding(bench: Bench):
    return _asked(bench, do_sample=False, temperature=0.7, top_p=0.9)


@fault("setting_ignored")
def a_length_penalty_without_beams(bench: Bench):
    return _asked(bench, do_sample=False, length_penalty=2.0)


@clean("setting_ignored")
def a_temperature_for_sampling(bench: Bench):
    return _asked(bench, do_sample=True, temperature=0.7, top_p=0.9, top_k=0)


@clean("setting_ignored")
def neutral_values_for_greedy_decoding(bench: Bench):
    return _asked(
        bench, do_sample=False, temperature=1.0, top_p=1.0, repetition_penalty=1.0, top_k=50
    )


@fault("argument_dropped")
def an_argument_that_no_part_of_the_processor_knows(bench: Bench):
    _, processor = bench.seeing_model()
    with bench.recorded() as recording:
        processor(text=["Hello"], return_tensors="pt", max_pixles=1000)
    return recording.trace


@clean("argument_dropped")
def an_argument_that_the_tokenizer_knows(bench: Bench):
    _, processor = bench.seeing_model()
    with bench.recorded() as recording:
        processor(text=["Hello"], return_tensors="pt", padding=True)
    return recording.trace


@clean("argument_dropped", also=("dtype_doubled",))
def a_chat_pipeline_made_and_asked(bench: Bench):
    with bench.recorded() as recording:
        chat = pipeline("text-generation", model=str(bench.chat()))
        chat([{"role": "user", "content": "Hello!"}], max_new_tokens=30, do_sample=False)
    return recording.trace


def _decoded(bench: Bench, **settings):
    _, tokenizer = bench.chat_model()
    with bench.recorded() as recording:
        tokenizer.decode(tokenizer("Hello , world .")["input_ids"], **settings)
    return recording.trace


@fault("clean_up_refused", generations=(5,))
def a_clean_up_that_this_release_refuses(bench: Bench):
    return _decoded(bench, clean_up_tokenization_spaces=True)


@clean("clean_up_refused")
def no_clean_up_asked_for(bench: Bench):
    return _decoded(bench, clean_up_tokenization_spaces=False)


@fault("two_limits")
def a_length_and_a_number_of_new_tokens(bench: Bench):
    return _asked(bench, do_sample=False, max_length=50)


@clean("two_limits")
def a_number_of_new_tokens_alone(bench: Bench):
    return _asked(bench, do_sample=False)


@fault("sampled_by_file")
def a_file_that_turns_sampling_on(bench: Bench):
    return _asked(bench, _with_file(bench, do_sample=True, temperature=1.5))


@clean("sampled_by_file")
def a_file_that_turns_sampling_on_and_a_call_that_does_not(bench: Bench):
    return _asked(bench, _with_file(bench, do_sample=True, temperature=1.5), do_sample=False)


@clean("sampled_by_file")
def sampling_that_the_call_asks_for(bench: Bench):
    return _asked(bench, do_sample=True)


@fault("file_flags_unused")
def a_file_with_a_temperature_and_no_sampling(bench: Bench):
    model = bench.fresh("llama")
    model.generation_config.temperature = 0.7
    return _asked(bench, model)


@clean("file_flags_unused")
def a_file_with_a_temperature_and_sampling_in_the_call(bench: Bench):
    model = bench.fresh("llama")
    model.generation_config.temperature = 0.7
    return _asked(bench, model, do_sample=True)


@fault("choice_overruled")
def a_penalty_out_of_the_models_file(bench: Bench):
    model = _with_file(bench, repetition_penalty=3.0)
    return _asked(bench, model, do_sample=False, max_new_tokens=12)


@clean("choice_overruled")
def a_penalty_that_the_call_asks_for(bench: Bench):
    return _asked(bench, do_sample=False, max_new_tokens=12, repetition_penalty=3.0)


def _with_attentions(bench: Bench, kernel):
    with bench.recorded() as recording, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # generation 4 says it while it runs
        model = AutoModelForCausalLM.from_pretrained(
            bench.folder("llama"), attn_implementation=kernel
        )
        model.generate(
            IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=2, do_sample=False,
            output_attentions=True, return_dict_in_generate=True,
        )  # fmt: skip
    return recording.trace


@fault("attentions_not_made")
def attention_weights_of_a_kernel_that_makes_none(bench: Bench):
    return _with_attentions(bench, "sdpa")


@clean("attentions_not_made")
def attention_weights_of_the_eager_kernel(bench: Bench):
    return _with_attentions(bench, "eager")


@fault("argument_dropped", generations=(5,))
def a_limit_whose_name_is_misspelt(bench: Bench):
    _, tokenizer = bench.chat_model()
    with bench.recorded() as recording:
        tokenizer("Hello there, all of you", truncation=True, max_lenght=3)
    return recording.trace


@clean("argument_dropped")
def arguments_that_every_tokenizer_takes(bench: Bench):
    _, tokenizer = bench.chat_model()
    with bench.recorded() as recording:
        tokenizer("Hello", truncation=True, max_length=30, return_length=True, stride=0,
                  return_offsets_mapping=True, split_special_tokens=True)  # fmt: skip
    return recording.trace


@fault("cache_off")
def a_cache_that_the_models_file_switches_off(bench: Bench):
    return _asked(bench, _with_file(bench, use_cache=False), do_sample=False)


@fault("setting_ignored")
def an_early_stop_without_beams(bench: Bench):
    return _asked(bench, do_sample=False, early_stopping=True)


@fault("setting_ignored")
def a_temperature_for_beams(bench: Bench):
    return _asked(bench, do_sample=False, num_beams=2, temperature=0.5)

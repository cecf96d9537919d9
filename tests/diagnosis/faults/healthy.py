"""Runs of which nothing is to be found: every family, and settings used as they are meant."""

import functools

import torch
from diagnosis.bench import Bench
from diagnosis.cases import dtype_as, healthy
from diagnosis.faults.placement import LAYER_ON_DISK
from instrument.families import FAMILIES
from transformers import AutoModelForCausalLM, AutoTokenizer

IDS = torch.tensor([[11, 12, 13, 14, 15, 16], [21, 22, 23, 24, 25, 26]])
WRITERS = ("gpt2", "llama", "qwen2", "mistral", "mixtral", "gemma", "phi")
WAYS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "temperature": 0.8, "top_k": 10, "top_p": 0.9},
    "with beams": {"do_sample": False, "num_beams": 2},
}
STOPS = {"max_new_tokens": 3, "eos_token_id": 2, "pad_token_id": 0}


def given(ids=IDS):
    """Ids with their mask."""
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def a_family_answers(family: str, way: str, bench: Bench):
    """A load and an answer of two rows."""
    auto, _ = FAMILIES[family]()
    with bench.recorded() as recording:
        model = auto.from_pretrained(bench.folder(family))
        torch.manual_seed(0)
        model.generate(**given(), **STOPS, **WAYS[way])
    return recording.trace


for _family in (*WRITERS, "t5", "qwen2_5_vl"):
    for _way in WAYS if _family in WRITERS[:4] else ["greedy"]:
        _run = functools.partial(a_family_answers, _family, _way)
        _run.__name__ = f"{_family} {_way}"
        healthy()(_run)


@healthy()
def bert_reads(bench: Bench):
    auto, _ = FAMILIES["bert"]()
    with bench.recorded() as recording, torch.inference_mode():
        auto.from_pretrained(bench.folder("bert"))(**given())
    return recording.trace


def a_family_in_bf16(family: str, bench: Bench):
    """A load asked for in bf16, checked, and an answer."""
    auto, _ = FAMILIES[family]()
    with bench.recorded(verify_weights=True) as recording:
        model = auto.from_pretrained(bench.folder(family), **dtype_as(torch.bfloat16))
        model.generate(**given(), **STOPS, **WAYS["greedy"])
    return recording.trace


for _family in ("llama", "qwen2", "mixtral"):
    _run = functools.partial(a_family_in_bf16, _family)
    _run.__name__ = f"{_family} in bf16"
    healthy()(_run)


def talk(tokenizer, *questions, **options):
    """Questions as chats, each its own row."""
    chats = [[{"role": "user", "content": question}] for question in questions]
    options = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True} | options
    return tokenizer.apply_chat_template(chats, **options)


@healthy()
def a_chat_loaded_and_asked(bench: Bench):
    with bench.recorded(values=True) as recording:
        tokenizer = AutoTokenizer.from_pretrained(bench.chat())
        model = AutoModelForCausalLM.from_pretrained(bench.chat(), **dtype_as("auto"))
        inputs = talk(tokenizer, "Hello!")
        output = model.generate(**inputs, max_new_tokens=30, do_sample=False)
        tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return recording.trace


@healthy()
def two_chats_padded_on_the_left(bench: Bench):
    with bench.recorded() as recording:
        tokenizer = AutoTokenizer.from_pretrained(bench.chat(), padding_side="left")
        model = AutoModelForCausalLM.from_pretrained(bench.chat(), **dtype_as("auto"))
        inputs = talk(tokenizer, "Hello!", "Which shapes do you know?", padding=True)
        output = model.generate(**inputs, max_new_tokens=30, do_sample=False)
        tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return recording.trace


@healthy()
def a_layer_offloaded_as_asked(bench: Bench):
    with bench.recorded() as recording:
        model = AutoModelForCausalLM.from_pretrained(
            bench.folder("llama", max_shard_size="9KB"),
            device_map=LAYER_ON_DISK,
            offload_folder=str(bench.new()),
        )
        model.generate(**given(), **STOPS, **WAYS["greedy"])
    return recording.trace


@healthy()
def scores_asked_for(bench: Bench):
    model = bench.model("llama")
    with bench.recorded(logits=True) as recording:
        model.generate(
            **given(), **STOPS, **WAYS["greedy"], output_scores=True, return_dict_in_generate=True
        )
    return recording.trace


@healthy()
def a_static_cache(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording:
        model.generate(**given(), **STOPS, **WAYS["greedy"], cache_implementation="static")
    return recording.trace


@healthy()
def a_prompt_longer_than_the_window(bench: Bench):
    model = bench.model("mistral")
    ids = torch.arange(3, 17)[None]
    with bench.recorded() as recording:
        model.generate(**given(ids), **STOPS, **WAYS["greedy"])
    return recording.trace


@healthy()
def a_cache_that_goes_on_to_the_next_turn(bench: Bench):
    model = bench.model("llama")
    ids = IDS[:1]
    name = "past_key_values"
    with bench.recorded() as recording:
        first = model.generate(
            **given(ids), **STOPS, **WAYS["greedy"], return_dict_in_generate=True
        )
        longer = torch.cat([first.sequences, torch.tensor([[31, 32]])], dim=1)
        held = getattr(first, "cache", None) or first.past_key_values
        name = "cache" if hasattr(first, "cache") else name
        model.generate(**given(longer), **STOPS, **WAYS["greedy"], **{name: held})
    return recording.trace


@healthy()
def a_loop_of_the_users_own(bench: Bench):
    model = bench.model("llama")
    with bench.recorded() as recording, torch.no_grad():
        ids = IDS[:1]
        for _ in range(3):
            ids = torch.cat([ids, model(ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return recording.trace


@healthy()
def a_load_alone(bench: Bench):
    with bench.recorded(detail="stages") as recording:
        AutoModelForCausalLM.from_pretrained(bench.folder("gpt2"))
    return recording.trace


@healthy()
def a_load_in_shards_checked(bench: Bench):
    with bench.recorded(verify_weights=True) as recording:
        AutoModelForCausalLM.from_pretrained(bench.folder("llama", max_shard_size="9KB"))
    return recording.trace


@healthy()
def every_module_recorded(bench: Bench):
    with bench.recorded(detail="modules", values=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(bench.folder("qwen2"))
        model.generate(**given(), **STOPS, **WAYS["greedy"])
    return recording.trace


@healthy()
def a_text_that_was_redacted(bench: Bench):
    with bench.recorded(redact_text=True) as recording:
        tokenizer = AutoTokenizer.from_pretrained(bench.chat())
        model = AutoModelForCausalLM.from_pretrained(bench.chat(), **dtype_as("auto"))
        inputs = talk(tokenizer, "Hello!")
        model.generate(**inputs, max_new_tokens=30, do_sample=False)
    return recording.trace


@healthy(also=("folder_pad_is_end",))
def the_chat_models_folder(bench: Bench):
    return bench.chat()


@healthy(also=("folder_without_tokenizer",))
def a_folder_in_shards(bench: Bench):
    return bench.folder("qwen2", max_shard_size="9KB")


@healthy()
def a_live_model(bench: Bench):
    return bench.model("gpt2")


@healthy()
def an_empty_recording(bench: Bench):
    with bench.recorded() as recording:
        pass
    return recording.trace

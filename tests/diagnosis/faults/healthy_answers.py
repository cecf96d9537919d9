"""Runs with nothing wrong: ways to generate, conversations, pictures."""

from typing import Any

import torch
from diagnosis.bench import MESSAGES, Bench
from diagnosis.cases import healthy
from transformers import AutoModelForCausalLM, LogitsProcessor, pipeline

from tracer.demo import draw_scene

IDS = torch.tensor([[11, 12, 13, 14, 15, 16]])
LEFT = torch.tensor([[11, 12, 13, 14, 15, 16], [0, 0, 21, 22, 23, 24]])
GREEDY = {"max_new_tokens": 6, "do_sample": False}


@healthy()
def a_model_loaded_and_asked_in_inference_mode(bench: Bench):
    folder = bench.folder("llama")
    with bench.recorded() as recording, torch.inference_mode():
        model = AutoModelForCausalLM.from_pretrained(folder)
        model.generate(input_ids=LEFT, attention_mask=(LEFT != 0).long(), **GREEDY)
    return recording.trace


def _ask(bench: Bench, ids=IDS, **settings):
    model = bench.model("llama")
    torch.manual_seed(1)
    given = {"attention_mask": (ids != 0).long(), "pad_token_id": 0}
    with bench.recorded() as recording:
        model.generate(input_ids=ids, **(given | GREEDY | settings))
    return recording.trace


@healthy()
def sampling_with_settings_of_the_call(bench: Bench):
    return _ask(bench, do_sample=True, temperature=0.8, top_p=0.9, top_k=20, min_p=0.01)


@healthy()
def a_penalty_that_was_asked_for(bench: Bench):
    return _ask(bench, repetition_penalty=1.3, no_repeat_ngram_size=2, max_new_tokens=16)


@healthy()
def beam_search_on_a_padded_batch(bench: Bench):
    return _ask(bench, LEFT, num_beams=3, num_return_sequences=2, length_penalty=0.9)


@healthy()
def sampled_beams(bench: Bench):
    return _ask(bench, num_beams=2, do_sample=True, temperature=0.9)


@healthy()
def several_samples_of_one_prompt(bench: Bench):
    return _ask(bench, do_sample=True, num_return_sequences=3)


@healthy()
def assisted_decoding(bench: Bench):
    return _ask(bench, assistant_model=bench.fresh("llama"))


@healthy()
def prompt_lookup(bench: Bench):
    ids = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 7]])
    return _ask(bench, ids, prompt_lookup_num_tokens=2)


class _Shift(LogitsProcessor):
    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores.roll(1, dims=-1)


@healthy()
def a_processor_of_the_callers_own(bench: Bench):
    return _ask(bench, logits_processor=[_Shift()])


@healthy()
def a_row_that_ends_by_itself(bench: Bench):
    model = bench.model("llama")
    given = {"attention_mask": torch.ones_like(IDS), "do_sample": False, "pad_token_id": 0}
    third = int(model.generate(IDS, max_new_tokens=3, **given)[0, -1])
    return _ask(bench, max_new_tokens=20, eos_token_id=[2, third])


@healthy()
def half_precision(bench: Bench):
    model = bench.fresh("llama").to(torch.bfloat16)
    with bench.recorded(values=True) as recording:
        model.generate(IDS, attention_mask=torch.ones_like(IDS), **GREEDY)
    return recording.trace


@healthy()
def a_step_of_training_with_dropout(bench: Bench):
    model = bench.fresh("gpt2").train()
    with bench.recorded() as recording:
        model(IDS, labels=IDS).loss.backward()
    return recording.trace


def _chat(bench: Bench, messages=MESSAGES, **settings):
    model, tokenizer = bench.chat_model()
    with bench.recorded() as recording:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)
        output = model.generate(**inputs, **({"max_new_tokens": 48, "do_sample": False} | settings))
        answer = output[:, inputs["input_ids"].shape[1] :]
        tokenizer.batch_decode(answer, skip_special_tokens=True)
    return recording.trace


@healthy()
def a_question_and_its_answer(bench: Bench):
    return _chat(bench)


@healthy()
def a_question_after_an_answer(bench: Bench):
    said = [{"role": "assistant", "content": "Circles."}, {"role": "user", "content": "Thank you."}]
    return _chat(bench, [*MESSAGES, *said])


@healthy()
def two_questions_in_one_recording(bench: Bench):
    model, tokenizer = bench.chat_model()
    with bench.recorded() as recording:
        for words in ("Hello!", "Who are you?"):
            inputs = tokenizer.apply_chat_template(
                [{"role": "user", "content": words}], add_generation_prompt=True,
                return_tensors="pt", return_dict=True,
            )  # fmt: skip
            model.generate(**inputs, max_new_tokens=40, do_sample=False)
    return recording.trace


@healthy()
def a_padded_batch_of_questions(bench: Bench):
    model, tokenizer = bench.chat_model()
    texts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": words}], tokenize=False, add_generation_prompt=True
        )
        for words in ("Hello!", "Which shapes do you know?")
    ]
    before, tokenizer.padding_side = tokenizer.padding_side, "left"
    try:
        with bench.recorded() as recording:
            inputs = tokenizer(texts, padding=True, return_tensors="pt")
            model.generate(**inputs, max_new_tokens=40, do_sample=False)
    finally:
        tokenizer.padding_side = before
    return recording.trace


@healthy()
def a_pipeline_that_is_told_its_limit(bench: Bench):
    model, tokenizer = bench.chat_model()
    pipe = pipeline("text-generation", model=model, tokenizer=tokenizer)
    with bench.recorded() as recording:
        pipe(MESSAGES, max_new_tokens=30, do_sample=False, return_full_text=False)
    return recording.trace


def _seen(bench: Bench, pictures: int, **settings):
    from qwen_vl_utils import process_vision_info

    model, processor = bench.seeing_model()
    content: list[dict[str, Any]] = [
        {"type": "image", "image": draw_scene("red circle top left")} for _ in range(pictures)
    ]
    content.append({"type": "text", "text": "What is at the top left?"})
    messages = [MESSAGES[0], {"role": "user", "content": content}]
    with bench.recorded() as recording:
        text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        images, _ = process_vision_info(messages)
        inputs = processor(text=[text], images=images, return_tensors="pt")
        output = model.generate(**inputs, **({"max_new_tokens": 24, "do_sample": False} | settings))
        new = output[:, inputs["input_ids"].shape[1] :]
        processor.batch_decode(new, skip_special_tokens=True)
    return recording.trace


@healthy()
def a_question_about_a_picture(bench: Bench):
    return _seen(bench, 1)


@healthy()
def a_question_about_two_pictures(bench: Bench):
    return _seen(bench, 2)


@healthy()
def a_sampled_answer_about_a_picture(bench: Bench):
    return _seen(bench, 1, do_sample=True, temperature=0.7, top_p=0.8)

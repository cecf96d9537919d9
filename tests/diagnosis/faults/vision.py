"""Faults of pictures and videos."""

import contextlib

import numpy as np
import torch
from diagnosis.bench import Bench
from diagnosis.cases import GENERATION, clean, fault
from PIL import Image

from tracer.demo import draw_scene

MARKED = "<|vision_start|><|image_pad|><|vision_end|>What is at the top left?"
PICTURE = draw_scene("red circle top left")
GREEDY = {"max_new_tokens": 2, "do_sample": False}


def _encoded(bench: Bench, text=MARKED, pictures=(PICTURE,), **settings):
    _, processor = bench.seeing_model()
    with bench.recorded() as recording, contextlib.suppress(Exception):
        processor(text=[text], images=list(pictures) or None, return_tensors="pt", **settings)
    return recording.trace


@fault("picture_markers_differ")
def a_picture_without_a_marker(bench: Bench):
    return _encoded(bench, "What is at the top left?")


@fault("picture_markers_differ")
def a_marker_without_a_picture(bench: Bench):
    return _encoded(bench, pictures=())


@fault("picture_markers_differ")
def two_markers_and_one_picture(bench: Bench):
    return _encoded(bench, MARKED + MARKED)


@clean("picture_markers_differ", "placeholders_differ", "picture_enlarged")
def a_picture_with_its_marker(bench: Bench):
    model, processor = bench.seeing_model()
    with bench.recorded() as recording:
        inputs = processor(text=[MARKED], images=[PICTURE], return_tensors="pt")
        model.generate(**inputs, **GREEDY)
    return recording.trace


@fault("placeholders_differ", also=("setup_refused",))  # generation 5 stops in the set-up
def a_placeholder_taken_out_afterwards(bench: Bench):
    model, processor = bench.seeing_model()
    with bench.recorded() as recording, contextlib.suppress(Exception):
        inputs = processor(text=[MARKED], images=[PICTURE], return_tensors="pt")
        place = (inputs["input_ids"][0] == model.config.image_token_id).nonzero()[3].item()
        kept = [index for index in range(inputs["input_ids"].shape[1]) if index != place]
        changed = {
            name: value[:, kept] if value.shape == inputs["input_ids"].shape else value
            for name, value in inputs.items()
        }
        model.generate(**changed, **GREEDY)
    return recording.trace


@fault("placeholders_differ")
def a_picture_that_the_call_leaves_out(bench: Bench):
    model, processor = bench.seeing_model()
    with bench.recorded() as recording:
        inputs = processor(text=[MARKED], images=[PICTURE], return_tensors="pt")
        names = ("input_ids", "attention_mask")
        model.generate(**{name: inputs[name] for name in names}, **GREEDY)
    return recording.trace


@clean("placeholders_differ")
def a_second_answer_that_rests_on_the_cache(bench: Bench):
    model, processor = bench.seeing_model()
    with bench.recorded() as recording:
        inputs = processor(text=[MARKED], images=[PICTURE], return_tensors="pt")
        first = model.generate(**inputs, **GREEDY, return_dict_in_generate=True)
        ids = first.sequences
        name = "cache" if hasattr(first, "cache") else "past_key_values"
        model.generate(ids, attention_mask=torch.ones_like(ids), **{name: first[name]}, **GREEDY)
    return recording.trace


def _helped(bench: Bench, size, **limits):
    from qwen_vl_utils import process_vision_info

    _, processor = bench.seeing_model()
    noise = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    part = {"type": "image", "image": Image.fromarray(noise), **limits}
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}]
    with bench.recorded() as recording:
        text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        pictures, _ = process_vision_info(messages)
        processor(text=[text], images=pictures, return_tensors="pt")
    return recording.trace


@fault("picture_resized_twice")
def a_picture_that_helper_and_processor_resize(bench: Bench):
    return _helped(bench, (640, 480))


@clean("picture_resized_twice", "picture_enlarged")
def a_picture_that_the_helper_leaves_at_its_final_size(bench: Bench):
    return _helped(bench, (640, 480), min_pixels=7056, max_pixels=19600)


@fault("picture_enlarged")
def a_picture_of_a_few_pixels(bench: Bench):
    return _encoded(bench, pictures=[PICTURE.resize((30, 30))])


FILM = "<|vision_start|><|video_pad|><|vision_end|>What happens?"


def _filmed(bench: Bench, fps=None, new_tokens=0):
    """Eight frames, with the rate at which they were taken or without; an answer if asked for."""
    model, processor = bench.seeing_model()
    frames = np.random.default_rng(0).integers(0, 255, (8, 112, 112, 3), dtype=np.uint8)
    told = {"total_num_frames": 8, "fps": fps, "frames_indices": list(range(8))}
    five = {"video_metadata": [told], "do_sample_frames": False}
    given = {} if fps is None else five if GENERATION >= 5 else {"fps": fps}
    with bench.recorded() as recording:
        inputs = processor(text=[FILM], videos=[list(frames)], return_tensors="pt", **given)
        if new_tokens:
            model.generate(**inputs, do_sample=False, max_new_tokens=new_tokens)
    return recording.trace


@fault("video_rate_assumed")
def frames_without_their_rate(bench: Bench):
    return _filmed(bench)


@clean("video_rate_assumed")
def frames_with_their_rate(bench: Bench):
    return _filmed(bench, 4.0)


@fault("video_steps_collide")
def frames_that_follow_too_closely_for_the_model(bench: Bench):
    return _filmed(bench, 48.0, new_tokens=2)


@clean("video_steps_collide", "video_rate_assumed", also=("choice_overruled",))
def frames_a_second_apart(bench: Bench):
    return _filmed(bench, 1.0, new_tokens=2)

"""What people met on the way in, each reduced to a small input: the right value is in the trace."""

import contextlib
import json

import numpy as np
import pytest
import torch
from instrument.toys import MESSAGES, ask
from PIL import Image
from qwen_vl_utils import process_vision_info

import tracer
from tracer.analysis.inputs import image_chain, video_times
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, LATE_FOUR

pytestmark = pytest.mark.generations

MARKED = "<|vision_start|><|image_pad|><|vision_end|>What is at the top left?"
PICTURE = MESSAGES[1]["content"][0]["image"]


def _encoded(processor, text, pictures, **settings):
    """A recording of one call of the processor, which may refuse."""
    settings = {"return_tensors": "pt"} | settings
    inputs = None
    with tracer.record(strict=True) as recording, contextlib.suppress(Exception):
        inputs = processor(text=[text], images=pictures, **settings)
    return recording.trace, inputs


def _summary(trace):
    calls = trace["calls"]
    (encoding,) = calls[calls["stage"] == "encode"].itertuples()
    return json.loads(encoding.summary), encoding.status


def _setting(trace, scope, name):
    settings = trace["settings"]
    settings = settings[(settings["scope"] == scope) & (settings["setting"] == name)]
    (row,) = settings.itertuples()
    return row


# Placeholders and features: V01


def test_a_prompt_without_a_marker_is_seen_before_anything_is_processed(processor):
    trace, _ = _encoded(processor, "What is at the top left?", [PICTURE])
    told, status = _summary(trace)
    assert (told["image_markers_in_text"], told["images"]) == (0, 1)
    assert status == ("error" if release() >= FIVE else "ok")
    (image,) = trace["images"].itertuples()
    assert (image.original_w, image.original_h) == PICTURE.size
    if status == "ok":  # the earlier releases notice in the model only
        assert image.expected_tokens == 16
        assert image.found_tokens == 0


def test_an_id_taken_out_afterwards_is_missed_at_its_image(processor, seeing):
    with tracer.record(strict=True) as recording, contextlib.suppress(Exception):
        _, inputs = ask(processor)
        place = (inputs["input_ids"][0] == seeing.config.image_token_id).nonzero()[3].item()
        kept = [index for index in range(inputs["input_ids"].shape[1]) if index != place]
        changed = {
            name: value[:, kept] if value.shape == inputs["input_ids"].shape else value
            for name, value in inputs.items()
        }
        seeing.generate(**changed, max_new_tokens=1, do_sample=False)
    trace = recording.trace
    (call,) = trace["calls"].query("kind == 'generate'").itertuples()
    assert call.status == "error"
    (image,) = trace["images"].itertuples()
    assert (image.call, image.expected_tokens, image.found_tokens) == (call.seq, 16, 15)
    assert trace.audit().set_index("check")["verdict"]["7 placeholders = features"] == "broken"


def test_a_marker_without_an_image_is_unexplained(processor):
    trace, inputs = _encoded(processor, MARKED, None)
    told, status = _summary(trace)
    assert (told["image_markers_in_text"], told["images"]) == (1, 0)
    if inputs is not None:  # generation 4 takes it without a word
        assert status == "ok"
        verdict = trace.audit().set_index("check")["verdict"]["7 images behind placeholders"]
        assert verdict == "broken"


def test_two_markers_and_one_image_are_counted_as_they_are(processor):
    trace, _ = _encoded(processor, MARKED + MARKED, [PICTURE])
    told, status = _summary(trace)
    assert (told["image_markers_in_text"], told["images"]) == (2, 1)
    assert status == "error"


# Truncation: V02


def _cut_in(trace):
    tokens = trace["tokens"]
    return tokens[tokens["kind"] == "cut"]


def test_truncation_through_an_image_says_how_much_of_it_is_lost(processor):
    trace, _ = _encoded(processor, MARKED, [PICTURE], truncation=True, max_length=9)
    cut, tokens = _cut_in(trace), trace["tokens"]
    assert len(tokens) - len(cut) == 9
    assert (cut["image"] == 0).sum() == 16 - 8  # the limit leaves its start and 8 placeholders
    assert cut["position"].isna().all()
    limit = _setting(trace, "tokenizer", "max_length")
    assert (json.loads(limit.effective), limit.origin, limit.used) == (9, "call", True)
    (image,) = trace["images"].itertuples()
    assert image.expected_tokens == 16


def test_truncation_behind_an_image_loses_the_question_and_says_so(processor):
    whole = "<|vision_start|>" + "<|image_pad|>" * 16 + "<|vision_end|>What is at the top left?"
    trace, inputs = _encoded(processor, MARKED, [PICTURE], truncation=True, max_length=20)
    tokens = trace["tokens"].sort_values("index")
    assert "".join(tokens["text"]) == whole
    assert "What is at the top left?".endswith("".join(_cut_in(trace)["text"]))
    assert len(_cut_in(trace)) > 0
    kept = tokens[tokens["kind"] != "cut"]
    if inputs is not None:
        assert kept["token_id"].tolist() == inputs["input_ids"][0].tolist()
    assert (
        _setting(trace, "tokenizer", "truncation").why == f"{len(_cut_in(trace))} tokens were cut"
    )


@pytest.mark.parametrize("side", ["left", "right"])
def test_what_truncation_cuts_is_kept_on_its_side(processor, side):
    tokenizer, text = processor.tokenizer, "the red star is top left and the blue circle"
    before, tokenizer.truncation_side = tokenizer.truncation_side, side
    try:
        with tracer.record(strict=True) as recording:
            ids = tokenizer(text, truncation=True, max_length=4)["input_ids"]
    finally:
        tokenizer.truncation_side = before
    tokens = recording.trace["tokens"].sort_values("index")
    assert tokens["token_id"].tolist() == tokenizer(text)["input_ids"]
    kept = tokens[tokens["kind"] != "cut"]
    assert kept["token_id"].tolist() == ids
    assert kept["position"].tolist() == list(range(4))
    assert (kept["index"].min() > 0) == (side == "left")
    assert json.loads(_setting(recording.trace, "tokenizer", "truncation_side").effective) == side


def test_an_answer_is_numbered_after_what_was_cut(llama, processor):
    with tracer.record(strict=True) as recording:
        inputs = processor.tokenizer(
            "the red star is top left", truncation=True, max_length=3, return_tensors="pt"
        )
        llama.generate(**inputs, max_new_tokens=2, do_sample=False)
    tokens = recording.trace["tokens"].sort_values("index")
    assert tokens["index"].is_unique
    answered = tokens[tokens["origin"] == "generated"]
    assert answered["position"].tolist() == [3, 4]
    assert answered["index"].min() > tokens[tokens["kind"] == "cut"]["index"].max()


# Pixel limits: V04

WIDE = Image.effect_noise((480, 270), 60).convert("RGB")


def _with_limit(processor, how, pixels):
    """Apply a limit in one of the ways, and ask once; gives the recording and the undoing."""
    part = processor.image_processor
    call = {"max_pixels": pixels} if how == "call" else {}
    if how == "size":
        call = {"images_kwargs": {"size": {"shortest_edge": 3136, "longest_edge": pixels}}}
    if how == "attribute":
        part.max_pixels = pixels
    text = [MARKED]
    with tracer.record(strict=True) as recording:
        inputs = processor(text=text, images=[WIDE], return_tensors="pt", **call)
    return recording.trace, inputs


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", ["call", "size", "attribute", "construction"])
def test_the_limit_told_is_the_one_that_acted(processor, how, demo_processor):
    if how == "size" and release() < FIVE:
        pytest.skip("here the pixel limits win over size")
    settings = {"max_pixels": 15680} if how == "construction" else {}
    fresh = demo_processor(**settings)
    trace, inputs = _with_limit(fresh, how, 15680)
    (image,) = trace["images"].itertuples()
    assert [image.grid_t, image.grid_h, image.grid_w] == inputs["image_grid_thw"][0].tolist()
    (resize,) = json.loads(image.resizes)
    assert (resize["by"], resize["before"]) == ("processor", [480, 270])
    assert (resize["acted"], resize["max_pixels"]) == ("max_pixels", 15680)
    assert resize["after"] == [image.processor_w, image.processor_h]
    origin = {"attribute": "processor", "construction": "processor"}.get(how, "call")
    assert resize["origin"] == origin
    told = _setting(trace, "processor", "images_kwargs.max_pixels")
    assert (json.loads(told.effective), told.origin) == (15680, origin)


@pytest.fixture
def demo_processor(processor):
    """Makes a fresh processor before any recording, so that a test may change it."""
    from transformers import AutoProcessor

    from tracer.demo import checkpoint_folder

    return lambda **settings: AutoProcessor.from_pretrained(checkpoint_folder(), **settings)


SIZES = {"big": ((1920, 1080), (1932, 1092)), "small": ((20, 10), (84, 56))}


@pytest.mark.parametrize("given", SIZES)
def test_the_chain_of_sizes_names_every_step(processor, given):
    size, by_helper = SIZES[given]
    content = [{"type": "image", "image": Image.new("RGB", size)}, {"type": "text", "text": "?"}]
    with tracer.record(strict=True) as recording:
        ask(processor, [{"role": "user", "content": content}])
    chain = image_chain(recording.trace)
    assert chain["step"].tolist() == ["original", "helper", "processor"]
    sizes = list(zip(chain["width"], chain["height"], strict=True))
    assert sizes[:2] == [size, by_helper]
    assert chain["scale_x"].iloc[-1] == pytest.approx(sizes[2][0] / size[0])
    assert chain["scale_y"].iloc[-1] == pytest.approx(sizes[2][1] / size[1])
    acted = chain["acted"].tolist()
    assert acted[1:] == (["none", "max_pixels"] if given == "big" else ["min_pixels"] * 2)
    assert chain["resampled"].tolist() == [False, True, True]


def test_a_limit_in_the_message_is_the_messages(processor):
    content = [{"type": "image", "image": WIDE, "max_pixels": 50176}]
    with tracer.record(strict=True) as recording:
        ask(processor, [{"role": "user", "content": content}])
    (image,) = recording.trace["images"].itertuples()
    first, _ = json.loads(image.resizes)
    assert (first["origin"], first["acted"]) == ("message (max_pixels)", "max_pixels")
    assert image.helper_w * image.helper_h <= 50176


def test_a_size_in_the_message_leaves_the_original_as_it_was(processor):
    content = [{"type": "image", "image": WIDE, "resized_height": 100, "resized_width": 200}]
    with tracer.record(strict=True) as recording:
        ask(processor, [{"role": "user", "content": content}])
    (image,) = recording.trace["images"].itertuples()
    assert (image.original_w, image.original_h) == WIDE.size
    assert (image.helper_w, image.helper_h) == (196, 112)


# The time base of videos: V05

FRAMES = [Image.effect_noise((112, 112), 60 + turn).convert("RGB") for turn in range(8)]
VIDEO = "<|vision_start|><|video_pad|><|vision_end|>What moves?"


def _watched(processor, seeing=None, **settings):
    video = torch.stack([torch.from_numpy(np.array(one)) for one in FRAMES])
    video = video.permute(0, 3, 1, 2)  # (frame, channel, height, width)
    inputs = None
    with tracer.record(strict=True) as recording:
        inputs = processor(text=[VIDEO], videos=[video], return_tensors="pt", **settings)
        if seeing is not None:
            seeing.generate(**inputs, max_new_tokens=1, do_sample=False)
    (row,) = recording.trace["images"].itertuples()
    return recording.trace, row, inputs


def test_a_rate_that_nobody_told_is_assumed(processor):
    _, video, inputs = _watched(processor)
    assert (video.frames, video.fps_known) == (8, False)
    assert video.fps == (24.0 if release() >= FIVE else 2.0)
    assert video.seconds_per_grid == pytest.approx(2 / video.fps)
    assert video.seconds_per_grid == pytest.approx(float(inputs["second_per_grid_ts"][0]))


def test_a_rate_in_the_metadata_counts_where_the_release_looks_at_it(processor):
    if release() < LATE_FOUR:
        pytest.skip("no metadata yet")
    metadata = {"fps": 4.0, "total_num_frames": 8, "frames_indices": list(range(8))}
    _, video, _ = _watched(processor, video_metadata=[metadata], do_sample_frames=False)
    told = release() >= FIVE
    assert (video.fps, video.fps_known) == ((4.0, True) if told else (2.0, False))
    assert video.seconds_per_grid == pytest.approx(0.5 if told else 1.0)


def test_the_argument_fps_counts_where_the_release_looks_at_it(processor):
    _, video, _ = _watched(processor, fps=4.0)
    told = release() < FIVE
    assert video.fps_known == told
    assert video.fps == (4.0 if told else 24.0)


def test_steps_of_the_grid_that_share_a_position_are_found(processor, seeing):
    settings = {"fps": 4.0}
    if release() >= FIVE:
        metadata = {"fps": 4.0, "total_num_frames": 8, "frames_indices": list(range(8))}
        settings = {"video_metadata": [metadata], "do_sample_frames": False}
    trace, video, _ = _watched(processor, seeing, **settings)
    times = video_times(trace)
    assert times["seconds"].tolist() == pytest.approx([0.0, 0.5, 1.0, 1.5])
    assert len(times) == video.grid_t == 4
    places = trace["tokens"].query("kind == 'video'").groupby("position_t").size()
    assert times["shares_position"].any() == (len(places) < 4)
    # 4.57 makes whole numbers of the seconds first, and half of one becomes none.
    assert (len(places) < 4) == (LATE_FOUR <= release() < FIVE)


def test_the_helper_says_at_which_rate_it_sampled(processor):
    video = {"type": "video", "video": FRAMES, "sample_fps": 4.0}
    with tracer.record(strict=True) as recording:
        images, videos = process_vision_info([{"role": "user", "content": [video]}])
        processor(text=[VIDEO], images=images, videos=videos, return_tensors="pt")
    (row,) = recording.trace["images"].itertuples()
    assert (row.helper_fps, row.source_kind, row.frames) == (4.0, "frames", 8)
    assert row.helper_fps != row.fps
    assert row.fps_known == False  # noqa: E712 - a missing value is neither


def test_ids_alone_are_an_encoding_too_and_not_inside_another(processor):
    tokenizer, text = processor.tokenizer, "the red star is top left"
    with tracer.record(strict=True) as recording:
        ids = tokenizer.encode(text)
        tensor = tokenizer.encode(text, return_tensors="pt", truncation=True, max_length=3)
        tokenizer(text)
    trace = recording.trace
    calls = trace["calls"].query("kind == 'encode'").sort_values("seq")
    assert len(calls) == 3
    kept = trace["tokens"].query("kind != 'cut'").sort_values("index")
    told = [kept[kept["call"] == seq]["token_id"].tolist() for seq in calls["seq"]]
    assert told == [ids, tensor[0].tolist(), ids]

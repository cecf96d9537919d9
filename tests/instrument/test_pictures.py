"""Pictures in their other forms: several, from files, in padded batches, repeated, as videos."""

import base64
import copy
import io

import pytest
import torch
from instrument.toys import MESSAGES, ask
from qwen_vl_utils import process_vision_info
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations
_COPIED_BEFORE = process_vision_info


@pytest.mark.parametrize("is_copied_before", [True, False])
def test_the_helper_is_met_whenever_its_name_was_imported(processor, is_copied_before):
    with tracer.record(strict=True) as recording:
        if is_copied_before:
            helper = _COPIED_BEFORE
        else:
            from qwen_vl_utils import process_vision_info as helper
        images, _ = helper(MESSAGES)
        processor(text=["<|vision_start|><|image_pad|><|vision_end|>"], images=images)
    (image,) = recording.trace["images"].itertuples()
    assert (image.helper_w, image.helper_h) == images[0].size
    assert image.fetch_ns > 0
    names = set(recording.trace["spans"]["name"]) | set(recording.trace["calls"]["name"])
    assert {"extract_vision_info", "fetch_image"} <= names


def test_a_picture_from_a_file_is_told_as_one(processor, tmp_path):
    path = tmp_path / "图 片.png"
    MESSAGES[1]["content"][0]["image"].convert("RGBA").save(path)
    for given, kind in ((str(path), "path"), (f"file://{path}", "file")):
        messages = [{"role": "user", "content": [{"type": "image", "image": given}]}]
        with tracer.record(strict=True) as recording:
            ask(processor, messages)
        (image,) = recording.trace["images"].itertuples()
        assert image.source_kind == kind
        assert (image.original_w, image.original_h) == MESSAGES[1]["content"][0]["image"].size
        assert str(tmp_path) not in str(recording.trace["images"].to_dict())


def test_a_picture_in_a_message_itself_says_so(processor):
    content = io.BytesIO()
    MESSAGES[1]["content"][0]["image"].convert("RGBA").save(content, "PNG")
    given = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
    with tracer.record(strict=True) as recording:
        ask(processor, [{"role": "user", "content": [{"type": "image", "image": given}]}])
    (image,) = recording.trace["images"].itertuples()
    assert (image.source_kind, image.mode) == ("base64", "RGBA")
    assert image.fetch_ns > 0


def test_a_processor_without_a_grid_tells_sizes_and_values():
    part = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    picture = MESSAGES[1]["content"][0]["image"]
    with tracer.record(strict=True) as recording:
        values = part(images=[picture], return_tensors="pt")["pixel_values"]
    (image,) = recording.trace["images"].itertuples()
    assert (image.original_w, image.original_h) == picture.size
    assert (image.processor_w, image.processor_h) == (32, 32)
    assert image.value_min == pytest.approx(values.min().item())
    assert image.value_max == pytest.approx(values.max().item())


def test_two_images_are_two_rows_and_share_no_token(processor, seeing):
    picture = MESSAGES[1]["content"][0]
    messages = [
        {
            "role": "user",
            "content": [picture, picture, {"type": "text", "text": "Compare them."}],
        }
    ]
    with tracer.record(strict=True) as recording:
        _, inputs = ask(processor, messages)
        seeing.generate(**inputs, max_new_tokens=1, do_sample=False)
    images = recording.trace["images"].sort_values("index")
    tokens = recording.trace["tokens"]
    assert images["index"].tolist() == [0, 1]
    for image in images.itertuples():
        own = tokens[tokens["image"] == image.index]
        assert image.expected_tokens == image.found_tokens == len(own)
        assert image.replaced_embeddings == image.expected_tokens
        assert own["index"].min() == image.first_position
    assert inputs["image_grid_thw"].shape == torch.Size([2, 3])


def _two_questions(processor):
    """A batch of two pictures and questions of different length, padded on the left."""
    other = {"type": "image", "image": MESSAGES[1]["content"][0]["image"].rotate(90)}
    words = {"type": "text", "text": "And where is the circle now, if there is one?"}
    batch = [MESSAGES, [{"role": "user", "content": [other, words]}]]
    texts = [processor.apply_chat_template(one, tokenize=False) for one in batch]
    images, _ = process_vision_info(batch)
    inputs = processor(
        text=texts, images=images, padding=True, padding_side="left", return_tensors="pt"
    )
    assert not inputs["attention_mask"].all()
    return texts, inputs


@pytest.mark.parametrize("is_consumed", [True, False])
def test_a_padded_batch_of_pictures_keeps_rows_and_origins_apart(processor, seeing, is_consumed):
    with tracer.record(strict=True) as recording:
        texts, inputs = _two_questions(processor)
        if is_consumed:
            seeing.generate(**inputs, max_new_tokens=1, do_sample=False)
    trace = recording.trace
    prompt = trace["tokens"].query("origin != 'generated'").sort_values(["row", "index"])
    for row, text in enumerate(texts):
        mine = prompt[prompt["row"] == row]
        assert mine["token_id"].tolist() == inputs["input_ids"][row].tolist()
        padding = inputs["attention_mask"][row].eq(0).tolist()
        assert mine["origin"].eq("pad").tolist() == padding
        assert mine["kind"].eq("pad").tolist() == padding
        assert "unknown" not in set(mine["origin"])
        said = "".join(mine[mine["origin"] == "user"]["text"])
        assert said
        assert said in text
        assert set(mine["image"].dropna()) == {row}
    if is_consumed:
        images = trace["images"].sort_values("index")
        assert images["row"].tolist() == [0, 1]
        assert (images["replaced_embeddings"] == images["expected_tokens"]).all()


@pytest.mark.parametrize("settings", [{"num_beams": 2}, {"num_return_sequences": 2}], ids=str)
def test_repeated_rows_consume_the_prompt_that_they_repeat(processor, seeing, settings):
    with tracer.record() as recording:
        _, inputs = ask(processor)
        settings = {"do_sample": "num_beams" not in settings} | settings
        seeing.generate(**inputs, max_new_tokens=1, **settings)
    trace = recording.trace
    (call,) = trace["calls"].query("kind == 'generate'").itertuples()
    assert set(trace["tokens"]["event"]) == {call.seq}
    assert "unknown" not in set(trace["tokens"]["origin"])
    assert trace["images"]["replaced_embeddings"].notna().all()


def test_a_video_is_followed_to_its_embeddings(processor, seeing):
    frames = [MESSAGES[1]["content"][0]["image"].rotate(90 * turn) for turn in range(4)]
    video = [{"type": "video", "video": frames}, {"type": "text", "text": "What moves?"}]
    messages = [{"role": "user", "content": video}]
    with tracer.record(strict=True) as recording:
        _, inputs = ask(processor, messages)
        seeing.generate(**inputs, max_new_tokens=1, do_sample=False)
    (row,) = recording.trace["images"].itertuples()
    assert (row.kind, row.source_kind, row.frames) == ("video", "frames", len(frames))
    assert [row.grid_t, row.grid_h, row.grid_w] == inputs["video_grid_thw"][0].tolist()
    assert row.expected_tokens == row.found_tokens == row.replaced_embeddings
    assert (recording.trace["tokens"]["kind"] == "video").sum() == row.found_tokens


_PICTURE = MESSAGES[1]["content"][0]
_VIDEO = {"type": "video", "video": [_PICTURE["image"].rotate(90 * turn) for turn in range(4)]}
ORDERS = {
    "video first": [[_VIDEO, _PICTURE]],
    "image first": [[_PICTURE, _VIDEO]],
    "in turn": [[_PICTURE, _VIDEO, _PICTURE]],
    "in two rows": [[_VIDEO], [_PICTURE, _VIDEO]],
}


def _mixed(processor, rows):
    words = {"type": "text", "text": "What is it?"}
    batch = [[{"role": "user", "content": [*parts, words]}] for parts in rows]
    texts = [processor.apply_chat_template(one, tokenize=False) for one in batch]
    images, videos = process_vision_info(batch)
    return processor(
        text=texts, images=images, videos=videos, padding=True, padding_side="left",
        return_tensors="pt",
    )  # fmt: skip


@pytest.mark.parametrize("rows", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("way", ["generate", "beams", "forward"])
def test_images_and_videos_of_one_prompt_each_have_their_own_features(processor, seeing, rows, way):
    with tracer.record(strict=True) as recording:
        inputs = _mixed(processor, rows)
        if way == "forward":
            with torch.no_grad():
                seeing(**inputs)
        else:
            beams = 2 if way == "beams" else 1
            seeing.generate(**inputs, max_new_tokens=1, do_sample=False, num_beams=beams)
    images = recording.trace["images"]
    assert sorted(images["kind"]) == sorted(part["type"] for row in rows for part in row)
    assert (images["expected_tokens"] > 0).all()
    assert (images["found_tokens"] == images["expected_tokens"]).all()
    assert (images["replaced_embeddings"] == images["expected_tokens"]).all()
    verdicts = recording.trace.audit().set_index("check")["verdict"]
    assert verdicts["7 placeholders = features"] == "holds"


def test_features_that_did_not_come_to_their_place_are_counted_by_what_stands_there(
    processor, seeing
):
    """The model is handed a video where the image is: none of either is where it belongs."""

    def swapped(module, args, kwargs):
        embeddings = kwargs.get("inputs_embeds")
        if embeddings is not None and embeddings.shape[1] > 1:
            kwargs["inputs_embeds"] = embeddings.flip(1)
        return args, kwargs

    with tracer.record(strict=True) as recording:
        inputs = _mixed(processor, ORDERS["video first"])
        language = getattr(seeing.model, "language_model", seeing.model)  # 4.51 has one level less
        hook = language.register_forward_pre_hook(swapped, with_kwargs=True, prepend=True)
        try:
            seeing.generate(**inputs, max_new_tokens=1, do_sample=False)
        finally:
            hook.remove()
    images = recording.trace["images"]
    assert (images["replaced_embeddings"] < images["expected_tokens"]).all()
    verdicts = recording.trace.audit().set_index("check")["verdict"]
    assert verdicts["7 placeholders = features"] == "broken"


@pytest.fixture(scope="module")
def llava(processor):
    """A model whose vision part does not make the features itself, and its processor."""
    tokenizer = copy.deepcopy(processor.tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    mark = tokenizer.convert_tokens_to_ids("<image>")
    small = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**small, num_hidden_layers=2, image_size=16, patch_size=8),
        text_config=LlamaConfig(
            **small, num_hidden_layers=1, vocab_size=len(tokenizer), pad_token_id=0,
            bos_token_id=1, eos_token_id=2,
        ),
        image_token_index=mark, vision_feature_layer=-1,
    )  # fmt: skip
    torch.manual_seed(0)
    pixels = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    part = LlavaProcessor(
        image_processor=pixels, tokenizer=tokenizer, patch_size=8, image_token="<image>",
        vision_feature_select_strategy="default", num_additional_image_tokens=1,
    )  # fmt: skip
    return LlavaForConditionalGeneration(config).eval(), part


WAYS = {
    "one": (["look <image> what?"], {}),
    "beams": (["look <image> what?"], {"num_beams": 2}),
    "two rows": (["a <image> b <image> c", "<image> d"], {}),
    "pieces": (["look <image> what?"], {"prefill_chunk_size": 3}),
}


@pytest.mark.filterwarnings("ignore")  # of the release's own use of its processor
@pytest.mark.parametrize(("texts", "settings"), WAYS.values(), ids=WAYS)
def test_features_that_a_projector_makes_are_followed_to_their_places(llava, texts, settings):
    if "prefill_chunk_size" in settings and release() < FIVE:
        pytest.skip("there a picture is not cut")
    model, part = llava
    pictures = [[_PICTURE["image"]] * text.count("<image>") for text in texts]
    with tracer.record(strict=True) as recording:
        inputs = part(
            text=texts, images=pictures, padding=True, padding_side="left", return_tensors="pt"
        )
        model.generate(**inputs, max_new_tokens=2, do_sample=False, **settings)
    images = recording.trace["images"].sort_values("index")
    assert images["found_tokens"].tolist() == [4] * sum(map(len, pictures))
    assert images["replaced_embeddings"].tolist() == images["found_tokens"].tolist()
    assert images["row"].tolist() == [row for row, own in enumerate(pictures) for _ in own]
    verdicts = recording.trace.audit().set_index("check")["verdict"]
    assert verdicts["7 placeholders = features"] == "holds"


def test_a_template_that_tokenizes_tells_prompt_tokens_and_image(processor, seeing):
    if release() < FIVE:
        pytest.skip("it takes no system message of plain text")
    with tracer.record(strict=True) as recording:
        inputs = processor.apply_chat_template(
            MESSAGES, tokenize=True, return_dict=True, return_tensors="pt"
        )
        seeing.generate(**inputs, max_new_tokens=1, do_sample=False)
    trace = recording.trace
    assert trace.rows("images") == 1
    assert trace["images"]["replaced_embeddings"].notna().all()
    assert "unknown" not in set(trace["tokens"]["origin"])
    assert trace["prompts"]["text"].tolist() == ["".join(trace["segments"]["text"])]

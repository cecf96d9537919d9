"""The prompt's way in: template, segments, images, tokens and positions agree with the library."""

import json

import pytest
from instrument.toys import MESSAGES, ask

import tracer

pytestmark = pytest.mark.generations


def test_the_prompt_is_the_rendered_text(demo):
    prompts = demo.trace["prompts"]
    assert prompts["text"].tolist() == [demo.text]


def test_segments_cover_the_prompt_without_gap_or_overlap(demo):
    segments = demo.trace["segments"].sort_values("start")
    assert "".join(segments["text"]) == demo.text
    assert segments["start"].tolist() == [0, *segments["end"].tolist()[:-1]]
    assert segments["end"].iloc[-1] == len(demo.text)
    for row in segments.itertuples():
        assert row.text == demo.text[row.start : row.end]


def test_segments_credit_each_messages_own_words(demo):
    segments = demo.trace["segments"]
    spoken = segments[segments["origin"] != "template"].sort_values("start")
    assert spoken["origin"].tolist() == ["system", "user"]
    assert spoken["message"].tolist() == [0, 1]
    assert spoken["text"].tolist() == [MESSAGES[0]["content"], MESSAGES[1]["content"][1]["text"]]


def test_tokens_are_the_whole_sequence_in_order(demo):
    tokens = demo.trace["tokens"].sort_values("index")
    assert tokens["token_id"].tolist() == demo.output.sequences[0].tolist()
    assert tokens["position"].tolist() == list(range(len(tokens)))
    prompt = demo.inputs["input_ids"].shape[1]
    assert (tokens["origin"].iloc[prompt:] == "generated").all()
    assert (tokens["origin"].iloc[:prompt] != "generated").all()


def test_joined_token_texts_equal_what_the_tokenizer_decodes(demo):
    tokens = demo.trace["tokens"].sort_values("index")
    whole = demo.processor.tokenizer.decode(demo.output.sequences[0])
    assert "".join(tokens["text"]) == whole


def test_token_bytes_are_the_bytes_of_the_text(demo):
    tokens = demo.trace["tokens"].sort_values("index")
    raw = bytes.fromhex("".join(tokens["bytes_hex"]))
    assert raw.decode("utf-8", "replace") == demo.processor.tokenizer.decode(
        demo.output.sequences[0]
    )
    assert tokens["vocab"].tolist() == demo.processor.tokenizer.convert_ids_to_tokens(
        demo.output.sequences[0].tolist()
    )


def test_kinds_of_tokens_follow_the_ids(demo):
    tokens = demo.trace["tokens"]
    config, special = demo.model.config, set(demo.processor.tokenizer.all_special_ids)
    for row in tokens.itertuples():
        if row.token_id == config.image_token_id:
            assert (row.kind, row.image) == ("image", 0)
        else:
            assert row.kind == ("special" if row.token_id in special else "text")


def test_the_users_words_are_the_users_tokens(demo):
    tokens = demo.trace["tokens"].sort_values("index")
    said = tokens[tokens["origin"] == "user"]["text"]
    assert "".join(said) == MESSAGES[1]["content"][1]["text"]


def test_positions_are_those_of_the_models_rope_index(demo):
    ids = demo.inputs["input_ids"]
    names = ("input_ids", "mm_token_type_ids", "image_grid_thw", "attention_mask")
    given = {name: demo.inputs[name] for name in names if name in demo.inputs}
    own = demo.model if hasattr(demo.model, "get_rope_index") else demo.model.model
    expected, _ = own.get_rope_index(**given)
    tokens = demo.trace["tokens"].sort_values("index").iloc[: ids.shape[1]]
    for axis, name in enumerate(("position_t", "position_h", "position_w")):
        assert tokens[name].tolist() == expected[axis, 0].tolist()


def test_the_image_is_followed_from_picture_to_embeddings(demo):
    (image,) = demo.trace["images"].itertuples()
    picture = MESSAGES[1]["content"][0]["image"]
    grid = demo.inputs["image_grid_thw"][0].tolist()
    ids = demo.inputs["input_ids"][0]
    places = (ids == demo.model.config.image_token_id).nonzero().flatten().tolist()
    assert [image.grid_t, image.grid_h, image.grid_w] == grid
    assert image.patches == demo.inputs["pixel_values"].shape[0]
    assert image.expected_tokens == image.found_tokens == image.replaced_embeddings == len(places)
    assert image.first_position == places[0]
    assert (image.original_w, image.original_h) == picture.size
    assert (image.processor_w, image.processor_h) == (grid[2] * 14, grid[1] * 14)
    assert (image.source_kind, image.mode) == ("PIL", picture.mode)
    assert image.value_min == pytest.approx(demo.inputs["pixel_values"].min().item())
    assert image.value_max == pytest.approx(demo.inputs["pixel_values"].max().item())


def test_inputs_are_the_tensors_handed_to_generate(demo):
    rows = demo.trace["inputs"].set_index("tensor")
    assert set(rows.index) == set(demo.inputs)
    for name, tensor in demo.inputs.items():
        assert json.loads(rows.loc[name, "shape"]) == list(tensor.shape)
        assert rows.loc[name, "dtype"] == str(tensor.dtype).removeprefix("torch.")
        assert rows.loc[name, "size_bytes"] == tensor.numel() * tensor.element_size()


def test_no_module_runs_inside_the_processor(demo):
    spans = demo.trace["spans"]
    summaries = [json.loads(one) for one in spans["summary"].dropna() if '"modules"' in one]
    calls = demo.trace["calls"]
    encoding = calls[calls["stage"] == "encode"]["seq"]
    inside = demo.trace["modules"]["call"].isin(encoding)
    assert not inside.any()
    assert summaries


@pytest.mark.parametrize("text", ["plain words", "你好, 世界 \U0001f600", "a\nb\t<|im_end|> c"])
def test_a_plain_tokenizer_call_tells_its_tokens(processor, text):
    with tracer.record(strict=True) as recording:
        encoded = processor.tokenizer(text)
    tokens = recording.trace["tokens"].sort_values("index")
    assert tokens["token_id"].tolist() == encoded["input_ids"]
    assert "".join(tokens["text"]) == processor.tokenizer.decode(encoded["input_ids"])
    (call,) = recording.trace["calls"].itertuples()
    assert set(tokens["event"]) == {call.seq}
    assert call.stage == "encode"


def test_a_batch_of_texts_has_rows_and_marks_padding(processor):
    with tracer.record(strict=True) as recording:
        encoded = processor.tokenizer(
            ["red", "the blue star is top left"],
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )
    tokens = recording.trace["tokens"].sort_values(["row", "index"])
    assert tokens["token_id"].tolist() == encoded["input_ids"].flatten().tolist()
    attended = encoded["attention_mask"].flatten().bool().tolist()
    assert tokens["attended"].tolist() == attended
    assert ((tokens["kind"] == "pad") == [not one for one in attended]).all()


def test_a_prompt_that_no_model_consumed_belongs_to_its_encoding(processor):
    with tracer.record(strict=True) as recording:
        _, inputs = ask(processor)
    trace = recording.trace
    (encoding,) = trace["calls"].query("stage == 'encode'").itertuples()
    assert set(trace["tokens"]["event"]) == set(trace["images"]["event"]) == {encoding.seq}
    assert trace.rows("tokens") == inputs["input_ids"].shape[1]


def test_a_consumed_prompt_belongs_to_each_call_that_consumed_it(processor, seeing):
    with tracer.record(strict=True) as recording:
        _, inputs = ask(processor)
        for _ in range(2):
            seeing.generate(**inputs, max_new_tokens=1, do_sample=False)
    trace = recording.trace
    calls = trace["calls"].query("kind == 'generate'").sort_values("seq")["seq"].tolist()
    prompt = inputs["input_ids"].shape[1]
    assert trace["tokens"].groupby("event").size().to_dict() == dict.fromkeys(calls, prompt + 1)
    assert sorted(trace["images"]["event"]) == calls

"""The first walk with the published processor, tokenizer, template and generation settings.

The model is tiny and random, of the same architecture and with the same token ids: every number of
the walk that does not depend on weights must come out.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from qwen_vl_utils import process_vision_info
from transformers import (
    AutoProcessor,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    StoppingCriteria,
)

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE, LATE_FOUR

PUBLISHED = Path(__file__).resolve().parents[3] / "shared/data/folders/Qwen2.5-VL-7B-Instruct"
pytestmark = [
    pytest.mark.generations,
    pytest.mark.skipif(not PUBLISHED.exists(), reason=f"no published files at {PUBLISHED}"),
]

TEXT_TOKENS, IMAGE_TOKENS, NEW_TOKENS = 25, 3577, 512
LAYERS, ANSWERED = 2, 3
SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
SMALL_TEXT = {**SMALL, "num_hidden_layers": LAYERS, "num_key_value_heads": 1}
SMALL_EYE = {"hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "depth": 1}


class Enough(StoppingCriteria):
    """Ends the answer early: the walk's limit is read, not reached."""

    def __call__(self, input_ids, scores, **kwargs):
        length = TEXT_TOKENS + IMAGE_TOKENS + ANSWERED
        return torch.full((len(input_ids),), input_ids.shape[1] >= length)


def _write_tiny_model(folder):
    config = json.loads((PUBLISHED / "config.json").read_text())
    config |= SMALL_TEXT | {"torch_dtype": "float32"}
    config["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 1, 1]}
    config["vision_config"] |= SMALL_EYE | {"out_hidden_size": 16, "fullatt_block_indexes": []}
    torch.manual_seed(0)
    model = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig.from_dict(config))
    model.save_pretrained(folder)
    shutil.copy(PUBLISHED / "generation_config.json", folder)


def _question():
    picture = Image.effect_noise((2048, 1365), 60).convert("RGB")
    words = {"type": "text", "text": "Describe this image."}
    return [{"role": "user", "content": [{"type": "image", "image": picture}, words]}]


def _encode(processor):
    messages = _question()
    text = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    images, videos = process_vision_info(messages)
    return processor(text=[text], images=images, videos=videos, padding=True, return_tensors="pt")


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """Load, question, answer, text: as in the walk, and nothing of it changed."""
    folder = tmp_path_factory.mktemp("tiny")
    _write_tiny_model(folder)
    with tracer.record() as recording:
        processor = AutoProcessor.from_pretrained(PUBLISHED)
        model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)
        inputs = _encode(processor).to(model.device)
        output = model.generate(**inputs, max_new_tokens=NEW_TOKENS, stopping_criteria=[Enough()])
        answer = [ids[len(given) :] for given, ids in zip(inputs["input_ids"], output, strict=True)]
        processor.batch_decode(answer, skip_special_tokens=True)
    return recording.trace


@pytest.fixture(scope="module")
def default_limit():
    """The same picture through a processor with the limits of its class."""
    processor = AutoProcessor.from_pretrained(PUBLISHED)
    # Said outright: loading the file changed the defaults of the class itself in 4.57.
    limits = {"min_pixels": 4 * 28 * 28, "max_pixels": 1280 * 28 * 28}
    processor.image_processor = type(processor.image_processor)(**limits)
    with tracer.record() as recording:
        _encode(processor)
    return recording.trace


def _setting(trace, scope, name):
    settings = trace["settings"]
    (row,) = settings[(settings["scope"] == scope) & (settings["setting"] == name)].itertuples()
    return json.loads(row.effective), row.origin


def test_the_picture_goes_the_walks_way(walk):
    (image,) = walk["images"].itertuples()
    assert (image.original_w, image.original_h) == (2048, 1365)
    assert (image.helper_w, image.helper_h) == (2044, 1372)
    assert (image.processor_w, image.processor_h) == (2044, 1372)
    assert (image.grid_t, image.grid_h, image.grid_w) == (1, 98, 146)
    assert image.patches == 14308
    assert image.expected_tokens == image.found_tokens == IMAGE_TOKENS
    assert image.replaced_embeddings == IMAGE_TOKENS
    assert image.first_position == 15
    assert -1.8 < image.value_min < image.value_max < 2.2
    assert [one["acted"] for one in json.loads(image.resizes)] == [None, None]
    assert image.limit_origin == "helper: library. processor: preprocessor_config.json"


def test_the_tensors_have_the_walks_shapes(walk):
    shapes = walk["inputs"].set_index("tensor")["shape"].map(json.loads)
    assert shapes["input_ids"] == [1, TEXT_TOKENS + IMAGE_TOKENS] == [1, 3602]
    assert shapes["pixel_values"] == [14308, 1176]
    tokens = walk["tokens"]
    assert (tokens["kind"] == "image").sum() == IMAGE_TOKENS


def test_the_processor_writes_one_placeholder_out_and_runs_no_module(walk):
    calls = walk["calls"]
    (encoding,) = calls[calls["stage"] == "encode"].itertuples()
    told = json.loads(encoding.summary)
    assert (told["modules"], told["images"]) == (0, 1)
    assert (told["image_markers_in_text"], told["image_tokens"]) == (1, IMAGE_TOKENS)
    # The markers round it are the template's, not the processor's.
    (prompt,) = walk["prompts"].itertuples()
    assert "<|im_start|>" in prompt.text
    assert "<|vision_start|><|image_pad|><|vision_end|>" in prompt.text
    assert prompt.template_origin == "chat_template.json"
    tokens = walk["tokens"]
    assert set(tokens.loc[tokens["vocab"] == "<|vision_start|>", "origin"]) == {"template"}
    assert "unknown" not in set(tokens["origin"])


def test_the_system_prompt_is_the_templates(walk):
    tokens = walk["tokens"].sort_values("index")
    said = tokens[tokens["origin"] == "user"]["text"]
    assert "".join(said) == "Describe this image."
    assert "system" not in set(walk["segments"]["origin"])  # nobody gave one


def test_the_limit_is_prompt_plus_new_and_ends_the_answer_only(walk):
    assert _setting(walk, "generate", "max_length") == (4114, "derived")
    chain = walk["chain"].set_index("class_name")["parameters"].map(json.loads)
    assert chain["MaxLengthCriteria"]["max_length"] == 4114
    # It shapes no mask: an unpadded prompt needs none since generation 5.
    masks = walk["steps"]["mask"].tolist()
    lengths = [3602 + step for step in range(len(masks))]
    given = [f"2D [1, {length}] int64" for length in lengths]
    assert masks == (["none"] * len(masks) if release() >= FIVE else given)


def test_the_shipped_settings_act(walk):
    assert _setting(walk, "generate", "temperature") == (1e-06, "generation_config.json")
    assert _setting(walk, "generate", "repetition_penalty") == (1.05, "generation_config.json")
    chain = walk["chain"]
    processors = chain[chain["kind"] == "processor"].sort_values("index")
    names = processors["class_name"].tolist()
    assert names[:2] == ["RepetitionPenaltyLogitsProcessor", "TemperatureLogitsWarper"]
    parameters = [json.loads(one) for one in processors["parameters"][:2]]
    assert [one.get("penalty", one.get("temperature")) for one in parameters] == [1.05, 1e-06]
    effects = walk["effects"].sort_values(["step", "index"])
    assert effects["class_name"].tolist() == names * ANSWERED
    warmed = effects[effects["class_name"] == "TemperatureLogitsWarper"]
    assert (warmed["entropy_after"] < warmed["entropy_before"]).all()
    (call,) = walk["calls"].query("kind == 'generate'").itertuples()
    assert call.mode == "sampling (_sample)"


def test_rotary_positions_are_computed_as_the_source_says(walk):
    steps = walk["steps"].sort_values("step")
    assert steps["rope_index_calls"].tolist() == [1] + [0] * (ANSWERED - 1)
    assert steps["rotary_calls"].tolist() == [1] * ANSWERED
    assert steps["rotary_applications"].tolist() == [LAYERS] * ANSWERED
    # Positions go on after the picture's largest, not after its last token.
    assert steps["last_position"].tolist() == [97, 98, 99]
    assert set(steps["position_offset"]) == {97 - 3601}


def test_one_forward_a_token_and_the_last_is_never_cached(walk):
    steps, choices = walk["steps"].sort_values("step"), walk["choices"]
    assert len(steps) == len(choices) == ANSWERED
    assert steps["input_tokens"].tolist() == [3602] + [1] * (ANSWERED - 1)
    assert steps["cache_tokens_after"].iloc[-1] == 3602 + ANSWERED - 1
    heads = walk["modules"].query("path == 'lm_head'")
    fed = [json.loads(shape)[1] for shape in heads.sort_values("step")["input_shape"]]
    # The head sees the last position only; 4.51 made logits of the whole prompt.
    assert fed == [1 if release() >= LATE_FOUR else 3602] + [1] * (ANSWERED - 1)


def test_the_default_limit_resizes_twice(default_limit):
    (image,) = default_limit["images"].itertuples()
    assert (image.helper_w, image.helper_h) == (2044, 1372)
    assert image.processor_w * image.processor_h <= 1280 * 28 * 28
    first, second = json.loads(image.resizes)
    assert (first["acted"], second["acted"]) == (None, "max_pixels")
    assert (second["before"], second["max_pixels"]) == ([2044, 1372], 1280 * 28 * 28)
    assert second["origin"] == "library"
    assert image.expected_tokens == image.found_tokens == 1247
    assert default_limit.rows("tokens") == 1272


def test_every_check_of_the_audit_holds(walk):
    verdicts = walk.audit().set_index("check")["verdict"]
    kept = verdicts.drop("5 explained time")  # says something of a busy machine too
    assert set(kept[kept == "broken"].index) == set()
    assert verdicts["7 placeholders = features"] == "holds"

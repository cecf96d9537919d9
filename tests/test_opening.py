"""What can't be asked is refused before it is loaded: one sentence, in the language that holds."""

import re
import shutil

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    T5Config,
    T5ForConditionalGeneration,
)

import tracer
from tracer.conversation import Settings
from tracer.demo.fetching import DownloadError
from tracer.errors import CheckpointError
from tracer.lessons.text_model import text_model

CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small chat model that reads text only."""
    return text_model(tmp_path_factory.mktemp("text"))


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


@pytest.fixture(params=["en", "zh"])
def code(request):
    tracer.language(request.param)
    yield request.param
    tracer.language("en")


def refused(*asked, kind=CheckpointError):
    with pytest.raises(kind) as caught:
        tracer.Lab.open(*asked)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_folder_without_tokenizer_is_told_before_loading(copy, code):
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"):
        (copy / name).unlink(missing_ok=True)
    said = refused(copy)
    assert ("分词器" if code == "zh" else "no tokenizer") in said


def test_a_pointer_in_place_of_weights_is_told_before_loading(copy, code):
    (copy / "model.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\nsize 900\n"
    )
    said = refused(copy)
    assert "git lfs pull" in said
    assert bool(CHINESE.search(said)) == (code == "zh")


def test_a_file_that_was_cut_short_is_told_before_loading(copy):
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[:-100])
    assert "100 bytes of weights are missing" in refused(copy)


def test_a_model_that_encodes_and_decodes_is_no_chat_model(folder, code):
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(vocab_size=40, **sizes))
    said = refused(model, AutoTokenizer.from_pretrained(folder))
    assert ("对话模型" if code == "zh" else "no chat model") in said


def test_a_model_in_memory_without_a_template_is_told_at_once(folder, code):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = None
    said = refused(AutoModelForCausalLM.from_pretrained(folder), tokenizer)
    assert ("对话模板" if code == "zh" else "no chat template") in said


def test_a_name_that_nobody_knows_is_told(code):
    said = refused("nobody/no-such-model", kind=DownloadError)
    assert "HF_HUB_OFFLINE" in said
    assert bool(CHINESE.search(said)) == (code == "zh")


@pytest.mark.parametrize("at", [2, 20])
def test_where_a_cache_cannot_be_cropped_the_branch_is_encoded_again_and_says_so(folder, at):
    kinds = ["full_attention"] * 2 + ["sliding_attention"] * 2
    sliding = {"use_sliding_window": True, "sliding_window": 32, "layer_types": kinds}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **sliding)
    lab = tracer.Lab.open(model, AutoTokenizer.from_pretrained(folder))
    answer = lab.ask("Hello!", Settings(do_sample=True, temperature=9.0, seed=1, max_new_tokens=30))
    branch = lab.branch(answer, at, 40)
    ids = torch.tensor([[*answer.prompt_ids, *answer.ids[:at], 40]])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        whole = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=9.0,
            max_new_tokens=30 - at - 1,
        )  # fmt: skip
    assert branch.ids == whole[0, len(answer.prompt_ids) :].tolist()
    assert "encoded again" in branch.note

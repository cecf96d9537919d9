"""The model as it would be built against the files, by each release's own renames."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MixtralConfig,
)

import tracer
from tracer.demo import checkpoint_folder
from tracer.instrument.installer import release

pytestmark = pytest.mark.generations

PUBLISHED = Path(__file__).resolve().parents[3] / "shared/data/folders"
INDEX = "model.safetensors.index.json"
SIZES = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "tied llama": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "mixtral": MixtralConfig(**SIZES, num_local_experts=3),
    "gpt2": GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=2, n_head=2),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder for each configuration, written once."""
    folders = {}
    for name, config in CONFIGS.items():
        folders[name] = tmp_path_factory.mktemp("saved")
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        model.save_pretrained(folders[name])
    return folders


@pytest.fixture
def llama(saved, tmp_path):
    return Path(shutil.copytree(saved["llama"], tmp_path / "llama"))


def rewrite(folder, change):
    """Change the tensors of a folder's one file."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def library_says(folder, **arguments):
    """Missing, unexpected and mismatched names of a real load."""
    _, info = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, ignore_mismatched_sizes=True, **arguments
    )
    mismatched = {one[0] if isinstance(one, tuple) else one for one in info["mismatched_keys"]}
    return set(info["missing_keys"]), set(info["unexpected_keys"]), mismatched


def expectation_says(expectation):
    return tuple(set(expectation.names(one)) for one in ("missing", "unexpected", "mismatched"))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_sound_folder_is_held_whole_and_its_bytes_are_the_models(saved, name):
    expectation = tracer.inspect(saved[name]).model()
    model = AutoModelForCausalLM.from_pretrained(saved[name])
    assert expectation.class_name == type(model).__name__
    assert expectation.problems == []
    assert expectation.parameters == sum(one.numel() for one in model.parameters())
    assert expectation.size_bytes == 4 * expectation.parameters
    names = {one.param for one in expectation.params if one.kind == "parameter"}
    assert names == {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert {one.status for one in expectation.keys} <= {"same name", "renamed", "converted"}
    assert library_says(saved[name]) == expectation_says(expectation) == (set(), set(), set())


def test_tied_names_are_told_with_their_source(saved):
    params = tracer.inspect(saved["tied llama"]).model().frame("params").set_index("param")
    assert params.loc["lm_head.weight", "status"] == "tied"
    assert params.loc["lm_head.weight", "tied_to"] == "model.embed_tokens.weight"


def test_experts_of_a_file_become_one_parameter_where_the_release_packs_them(saved):
    expectation = tracer.inspect(saved["mixtral"]).model()
    keys = expectation.frame("keys")
    experts = keys[keys["key"].str.contains("experts")]
    assert len(experts) == 2 * 3 * 3
    if release() < (5, 0):
        assert set(experts["status"]) == {"same name"}
        return
    assert set(experts["status"]) == {"converted"}
    params = expectation.frame("params").set_index("param")
    packed = params.loc["model.layers.0.mlp.experts.gate_up_proj"]
    assert packed["status"] == "converted"
    assert len(json.loads(packed["sources"])) == 6
    assert json.loads(packed["operations"]) == ["MergeModulelist", "Concatenate"]


def test_the_embedded_checkpoint_is_renamed_as_the_library_does():
    inspection = tracer.inspect(checkpoint_folder())
    expectation = inspection.model()
    assert [one for one in expectation.problems if one.level != "note"] == []
    assert {one.status for one in expectation.params} <= {"held", "tied", "not in a file"}
    renamed = {one.key: one.params[0] for one in expectation.keys if one.status == "renamed"}
    assert any(key.startswith("visual.") for key in renamed) == (release() >= (4, 57))


CHANGES = {
    "a tensor less": lambda held: {k: v for k, v in held.items() if "layers.1.mlp.up" not in k},
    "a tensor more": lambda held: held | {"extra.weight": torch.ones(2)},
    "another shape": lambda held: held | {"model.norm.weight": torch.ones(15)},
    "a rotary table": lambda held: (
        held | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_does_not_fit_is_what_the_library_finds_when_it_loads(llama, change):
    rewrite(llama, change)
    expectation = tracer.inspect(llama).model()
    assert expectation_says(expectation) == library_says(llama)
    assert "recorder" not in str(expectation)


def test_a_missing_tensor_is_told_with_its_share(llama):
    rewrite(llama, CHANGES["a tensor less"])
    expectation = tracer.inspect(llama).model()
    (one,) = expectation.problems
    assert (one.kind, one.key, one.expected) == ("missing", "model.layers.1.mlp.up_proj.weight", 1)
    assert one.missing_bytes == 16 * 32 * 4
    assert f"{100 * 16 * 32 / expectation.parameters:.1f} % of the model's values" in one.sentence


def test_a_mismatch_is_told_with_both_shapes(llama):
    rewrite(llama, CHANGES["another shape"])
    (one,) = tracer.inspect(llama).model().problems
    assert (one.kind, one.expected, one.found) == ("mismatched", "[16]", "[15]")


def test_keys_under_another_prefix_are_one_problem_with_the_rule(llama):
    rewrite(llama, lambda held: {f"wrapper.{name}": one for name, one in held.items()})
    expectation = tracer.inspect(llama).model()
    (one,) = expectation.problems
    assert (one.kind, one.found, one.expected) == ("other_prefix", "wrapper.", "")
    assert "100.0 % of the model's values" in one.sentence
    assert "remove 'wrapper.' from the file's names" in one.sentence
    assert len(library_says(llama)[0]) == len(expectation.rules[0].pairs)


def test_a_base_model_leaves_the_head(llama):
    for model_class in (LlamaModel, "LlamaModel"):
        expectation = tracer.inspect(llama).model(model_class=model_class)
        assert expectation.names("unexpected") == ["lm_head.weight"]
        assert expectation.names("missing") == []


def test_an_index_is_believed_only_of_files_that_can_not_be_read(saved, tmp_path):
    config = LlamaConfig.from_pretrained(saved["llama"])
    LlamaForCausalLM(config).save_pretrained(tmp_path, max_shard_size="8KB")
    first, second, *_ = sorted(tmp_path.glob("*.safetensors"))
    held = load_file(first)
    name = next(iter(held))
    del held[name]
    save_file(held, first, metadata={"format": "pt"})
    names = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    second.unlink()
    params = tracer.inspect(tmp_path).model().frame("params").set_index("param")
    assert params.loc[name, "status"] == "missing"
    promised = set(params.index[params["status"] == "promised"])
    assert promised == {key for key, file in names.items() if file == second.name}


def test_a_dtype_that_is_asked_changes_the_bytes_and_nothing_else(llama):
    before = torch.get_default_dtype()
    whole = tracer.inspect(llama).model()
    half = tracer.inspect(llama).model(dtype="bfloat16")
    assert torch.get_default_dtype() is before
    assert (half.dtype, half.size_bytes * 2) == ("bfloat16", whole.size_bytes)


def test_a_split_is_predicted_where_memory_is_short(llama):
    whole = tracer.inspect(llama).model().size_bytes
    limits = {"cpu": whole // 2 + 4000}
    expectation = tracer.inspect(llama).model(max_memory=limits)
    placed = expectation.frame("placement").set_index("device")
    assert set(placed.index) == {"cpu", "disk"}
    assert placed.loc["cpu", "size_bytes"] <= limits["cpu"]
    assert placed["size_bytes"].sum() >= whole
    assert [one.kind for one in expectation.problems] == ["no_room"]


def test_a_map_that_is_given_is_followed(llama):
    devices = {"model.embed_tokens": "cpu", "model.layers.0": 0, "model": 1, "lm_head": "disk"}
    expectation = tracer.inspect(llama).model(device_map=devices, max_memory={0: 100, 1: "1MB"})
    placed = expectation.frame("placement").set_index("device")
    assert set(placed.index) == {"cpu", "0", "1", "disk"}
    assert placed.loc["disk", "size_bytes"] == 64 * 16 * 4
    assert placed["fits"].to_dict()["0"] == False  # noqa: E712
    assert placed["fits"].to_dict()["1"] == True  # noqa: E712


UNBUILDABLE = {
    "no architecture": ({"architectures": None}, {}, "names no architecture"),
    "unknown class": ({"architectures": ["OwnForCausalLM"]}, {}, "no class OwnForCausalLM"),
    "impossible sizes": ({"num_attention_heads": 0}, {}, "can't be built"),
    "unknown dtype": ({}, {"dtype": "float17"}, "'float17' is no dtype"),
}


@pytest.mark.parametrize(("settings", "asked", "words"), UNBUILDABLE.values(), ids=UNBUILDABLE)
def test_what_can_not_be_built_is_a_problem_of_its_own(llama, settings, asked, words):
    content = json.loads((llama / "config.json").read_text()) | settings
    (llama / "config.json").write_text(json.dumps(content))
    expectation = tracer.inspect(llama).model(**asked)
    (one,) = expectation.problems
    assert one.kind == "no_model"
    assert words in one.sentence
    assert words in str(expectation)
    assert expectation.frame("params").empty


def test_it_is_shown_as_text_and_as_a_page(llama):
    rewrite(llama, CHANGES["a tensor more"])
    expectation = tracer.inspect(llama).model()
    assert "20 held" in str(expectation) or "21 held" in str(expectation)
    assert "estimated" in str(expectation)
    assert "extra.weight" in expectation._repr_html_()


def test_the_published_configuration_of_seven_billion_parameters_takes_no_memory():
    folder = PUBLISHED / "Qwen2.5-VL-7B-Instruct"
    if not folder.is_dir():
        pytest.skip("the published folder is not here")
    expectation = tracer.inspect(folder).model()
    tensors = [one for one in expectation.params if one.kind == "parameter"]
    assert len(tensors) == 729
    assert expectation.parameters == 8_292_166_656
    assert expectation.size_bytes == 16_584_333_312
    assert {one.status for one in tensors} == {"unknown"}


@pytest.mark.parametrize("name", ["WizardLM-2-8x22B", "Devstral-Small-2507"])
def test_published_indexes_promise_every_parameter(name):
    if not (PUBLISHED / name).is_dir():
        pytest.skip(f"the published folder {name} is not here")
    inspection = tracer.inspect(PUBLISHED / name)
    expectation = inspection.model(device_map="cpu")
    assert expectation.size_bytes == inspection.survey.index.total_size
    assert {one.status for one in expectation.params} == {"promised", "not in a file"}
    assert {one.kind for one in expectation.problems} <= {"no_room"}

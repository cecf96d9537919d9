"""A load told whole by every release that the lab knows; where releases differ, each its own truth.

On 5.24 these run with all other tests; with an older transformers first on PYTHONPATH they are
marked `generations`.
"""

import json
import subprocess
import sys
import threading
from collections import Counter

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    LlamaConfig,
    LlamaForCausalLM,
)

import tracer
from tracer.analysis.loading import shape_checks
from tracer.checkpoint import read_header
from tracer.demo import checkpoint_folder
from tracer.instrument.installer import release

RELEASE = release()
FOUR = RELEASE < (5, 0)
pytestmark = [pytest.mark.generations] if FOUR else []

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
NORM = "model.layers.0.input_layernorm.weight"
BIAS = "model.layers.0.self_attn.q_proj.bias"
UP = "model.layers.1.mlp.up_proj.weight"


def _config(**changes):
    return LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attention_bias=True,
        pad_token_id=0,
        **changes,
    )


@pytest.fixture
def folder(tmp_path):
    """A Llama with biases, in three shards."""
    torch.manual_seed(0)
    LlamaForCausalLM(_config()).save_pretrained(tmp_path / "llama", max_shard_size="9KB")
    assert len(_files(tmp_path / "llama")) > 2
    return tmp_path / "llama"


def _files(folder):
    return sorted(folder.glob("*.safetensors"))


def _tensors(folder):
    return {key: value for path in _files(folder) for key, value in load_file(path).items()}


def _in_one_file(folder, tensors):
    for path in [*_files(folder), *folder.glob("*.index.json")]:
        path.unlink()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _record(folder, model_class=AutoModelForCausalLM, **arguments):
    with tracer.record(strict=True) as recording:
        model = model_class.from_pretrained(folder, **arguments)
    return model, recording.trace


def _names(model):
    return sorted(
        [name for name, _ in model.named_parameters(remove_duplicate=False)]
        + [name for name, _ in model.named_buffers(remove_duplicate=False)]
    )


def _broken(trace):
    verdicts = trace.audit().set_index("check")["verdict"].drop("5 explained time")
    return sorted(verdicts.index[verdicts == "broken"])


def _assert_whole(trace, model):
    assert sorted(trace["placements"]["param"]) == sorted(trace["meta_params"]["param"])
    assert sorted(trace["placements"]["param"]) == _names(model)
    assert set(trace["placements"]["origin"]) <= {"checkpoint", "rebuilt", "initialised", "tied"}
    assert _broken(trace) == []
    assert trace["faults"][["target", "reason"]].to_numpy().tolist() == []


def _assert_every_tensor_is_read(trace, folder):
    headers = [(path.name, key) for path in _files(folder) for key in read_header(path).tensors]
    for table in ("tensor_loads", "checkpoint_tensors"):
        rows = trace[table]
        assert sorted(zip(rows["file"], rows["key"], strict=True)) == sorted(headers)


def _origins(trace):
    return trace["placements"].set_index("param")["origin"]


def _fates(trace):
    return trace["checkpoint_tensors"].set_index("key")["fate"]


def test_the_embedded_checkpoint_is_told_whole():
    model, trace = _record(checkpoint_folder(), AutoModelForImageTextToText)
    _assert_whole(trace, model)
    _assert_every_tensor_is_read(trace, checkpoint_folder())
    assert set(_fates(trace)) == {"loaded"}
    parameters = {name for name, _ in model.named_parameters()}
    expected = {name: "checkpoint" if name in parameters else "rebuilt" for name in _names(model)}
    assert _origins(trace).to_dict() == expected


def test_shards_are_read_whole(folder):
    model, trace = _record(folder)
    _assert_whole(trace, model)
    _assert_every_tensor_is_read(trace, folder)
    reads = trace["tensor_loads"]
    assert (reads["read_ns"] + reads["cast_ns"] == reads["duration_ns"]).all()
    assert (reads[["read_ns", "cast_ns"]] >= 0).all(axis=None)
    assert reads["mapped"].all()
    assert not reads["discarded"].any()
    assert set(reads["parent"]) <= set(trace["spans"]["seq"])
    assert reads["queue_ns"].isna().all() == FOUR  # generation 4 hands nothing to a pool of readers
    assert (trace["placements"].query("kind == 'parameter'")["place_ns"] > 0).all()


def test_a_read_stands_at_the_line_that_reads(folder):
    _, trace = _record(folder)
    (stack,) = set(trace["tensor_loads"]["stack"])
    frames = json.loads(trace["stacks"].set_index("stack").loc[stack, "frames"])
    reader = "_load_state_dict_into_meta_model" if FOUR else "_materialize_copy"
    assert frames[-1].endswith(reader) or not FOUR
    (source,) = set(trace["tensor_loads"]["source"])
    assert trace["sources"].set_index("source").loc[source, "function"] == reader


def test_one_file_is_read_whole_and_cast(folder):
    _in_one_file(folder, {key: one.to(torch.bfloat16) for key, one in _tensors(folder).items()})
    model, trace = _record(folder, torch_dtype=torch.float32)
    _assert_whole(trace, model)
    _assert_every_tensor_is_read(trace, folder)
    reads = trace["tensor_loads"]
    assert set(zip(reads["stored_dtype"], reads["loaded_dtype"], strict=True)) == {
        ("bfloat16", "float32")
    }
    assert not reads["mapped"].any()


@pytest.mark.parametrize("in_files", ["embedding", "both"])
def test_a_tied_head_has_the_embeddings_values(folder, in_files):
    LlamaForCausalLM(_config(tie_word_embeddings=True)).save_pretrained(folder / "tied")
    folder = folder / "tied"
    if in_files == "both":
        tensors = _tensors(folder)
        _in_one_file(folder, tensors | {HEAD: tensors[EMBEDDING].clone()})
    model, trace = _record(folder)
    _assert_whole(trace, model)
    _assert_every_tensor_is_read(trace, folder)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    is_tied = FOUR or in_files == "embedding"
    if is_tied:
        placed = trace["placements"].set_index("param").loc[HEAD]
        assert (placed["origin"], json.loads(placed["sources"])) == ("tied", [EMBEDDING])
        assert json.loads(trace["models"]["tied"].iloc[0]) == {HEAD: EMBEDDING}
    if FOUR and in_files == "both":
        assert Counter(_fates(trace))["discarded"] == 1
        reads = trace["tensor_loads"].set_index("key")["discarded"]
        assert reads.index[reads].tolist() == [HEAD]


def test_a_pickled_checkpoint_is_told_tensor_by_tensor(folder):
    tensors = _tensors(folder)
    _in_one_file(folder, tensors)
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    model, trace = _record(folder)
    _assert_whole(trace, model)
    reads = trace["tensor_loads"].set_index("key")
    assert sorted(reads.index) == sorted(tensors)
    assert set(reads["file"]) == {"pytorch_model.bin"}
    assert [json.loads(reads.loc[key, "shape"]) for key in tensors] == [
        list(one.shape) for one in tensors.values()
    ]
    files = trace["files"].set_index("path")
    assert files.loc["pytorch_model.bin", "read"]


def test_a_state_dict_of_the_user_is_told_whole(folder):
    tensors = _tensors(folder)
    with tracer.record(strict=True) as recording:
        model = LlamaForCausalLM.from_pretrained(None, config=_config(), state_dict=tensors)
    _assert_whole(recording.trace, model)
    assert sorted(recording.trace["tensor_loads"]["key"]) == sorted(tensors)


def test_shards_loaded_in_parallel_belong_to_their_load(folder, monkeypatch):
    monkeypatch.setenv("HF_ENABLE_PARALLEL_LOADING", "true")
    models = {}

    def load(number):
        models[number] = AutoModelForCausalLM.from_pretrained(folder)

    with tracer.record(strict=True) as recording:
        load(0)
    trace = recording.trace
    _assert_whole(trace, models[0])
    _assert_every_tensor_is_read(trace, folder)
    if FOUR and RELEASE >= (4, 57):
        assert trace["tensor_loads"]["thread"].str.startswith("ThreadPoolExecutor").all()
        spans = trace["spans"].set_index("seq")
        shards = spans[spans["function"] == "modeling_utils.load_shard_file"]
        assert sorted(shards["name"]) == [path.name for path in _files(folder)]
        above = "modeling_utils.load_shard_files_with_threadpool"
        assert set(spans.loc[shards["parent"], "function"]) == {above}
        assert set(shards["call"]) == set(trace["models"]["call"])


@pytest.mark.skipif(not FOUR, reason="generation 5 has no worker that loads a whole shard")
def test_two_loads_at_once_keep_their_tensors_apart(folder, monkeypatch):
    monkeypatch.setenv("HF_ENABLE_PARALLEL_LOADING", "true")
    built = [threading.Event(), threading.Event()]

    class Waiting(LlamaForCausalLM):
        def tie_weights(self):
            super().tie_weights()
            built[int(threading.current_thread().name)].set()
            # Only then: two models can't be built at once, the library patches torch meanwhile.
            assert built[1].wait(timeout=60)

    with tracer.record(strict=True) as recording:
        threads = [
            threading.Thread(target=Waiting.from_pretrained, args=(folder,), name=name)
            for name in "01"
        ]
        for thread, event in zip(threads, built, strict=True):
            thread.start()
            assert event.wait(timeout=60)
        for thread in threads:
            thread.join()
    reads = recording.trace["tensor_loads"]
    tensors = sorted(_tensors(folder))
    assert reads["model"].nunique() == 2
    for _, rows in reads.groupby("model"):
        assert sorted(rows["key"]) == tensors


def test_what_no_file_holds_is_initialised_to_the_same_values(folder):
    tensors = _tensors(folder)
    _in_one_file(folder, {key: tensors[key] for key in tensors if key not in (HEAD, BIAS)})
    torch.manual_seed(3)
    alone = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(3)
    model, trace = _record(folder)
    _assert_whole(trace, model)
    _assert_every_tensor_is_read(trace, folder)
    origins = _origins(trace)
    assert sorted(origins.index[origins == "initialised"]) == [HEAD, BIAS]
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter, model.get_parameter(name))


def test_memory_that_nothing_wrote_is_unwritten(folder):
    tensors = _tensors(folder)
    _in_one_file(folder, {key: tensors[key] for key in tensors if key != NORM})
    _, trace = _record(folder)
    # The Llama of 4.51 initialises linear layers and embeddings, and leaves norms as they come.
    is_forgotten = RELEASE < (4, 57)
    assert _origins(trace)[NORM] == ("unwritten" if is_forgotten else "initialised")
    assert _broken(trace) == (["2 none unwritten"] if is_forgotten else [])


def test_a_strangers_tensor_is_unexpected_and_not_read_into_anything(folder):
    _in_one_file(folder, _tensors(folder) | {"stranger.weight": torch.ones(3)})
    model, trace = _record(folder)
    _assert_whole(trace, model)
    assert Counter(_fates(trace)) == {"unexpected": 1, "loaded": len(_tensors(folder)) - 1}
    assert "stranger.weight" not in set(trace["tensor_loads"]["key"])


def test_other_shapes_are_initialised_anew(folder):
    model, trace = _record(folder, vocab_size=32, ignore_mismatched_sizes=True)
    _assert_whole(trace, model)
    fates, origins = _fates(trace), _origins(trace)
    odd = [HEAD, EMBEDDING]
    assert sorted(origins.index[origins == "initialised"]) == odd
    assert set(fates[odd]) == {"skipped" if FOUR else "discarded"}
    assert (set(trace["tensor_loads"]["key"]) & set(odd) == set()) == FOUR
    checks = shape_checks(trace)
    assert sorted(checks.loc[checks["fits"].eq(False).fillna(False), "param"]) == odd


def test_a_load_that_fails_half_way_keeps_what_was_read(folder):
    with tracer.record(strict=True) as recording, pytest.raises(RuntimeError):
        AutoModelForCausalLM.from_pretrained(folder, vocab_size=32)
    trace = recording.trace
    assert trace["calls"].set_index("name").loc["LlamaForCausalLM.from_pretrained", "status"] == (
        "error"
    )
    assert trace.rows("tensor_loads") > 0
    assert _broken(trace) == []


def test_what_is_offloaded_to_the_disk_stays_in_its_file(folder, tmp_path):
    parts = ("model.embed_tokens", "model.layers.0", "model.norm", "model.rotary_emb", "lm_head")
    devices = dict.fromkeys(parts, "cpu") | {"model.layers.1": "disk"}
    model, trace = _record(folder, device_map=devices, offload_folder=tmp_path / "offload")
    _assert_whole(trace, model)
    placed = trace["placements"].set_index("param")
    away = placed.index[placed["residence"] == "offloaded_disk"]
    assert set(away) == {name for name in placed.index if name.startswith("model.layers.1.")}
    assert set(placed.loc[away, "origin"]) == {"checkpoint"}
    if FOUR:  # in a file that also holds others they are read all the same, in vain
        reads = trace["tensor_loads"].set_index("key")["discarded"]
        assert set(reads.index[reads]) <= set(away)
        assert set(_fates(trace)[away]) <= {"discarded", "skipped"}


def _change_index(folder, change):
    (path,) = folder.glob("*.index.json")
    index = json.loads(path.read_text("utf-8"))
    change(index["weight_map"])
    path.write_text(json.dumps(index), encoding="utf-8")


def test_a_tensor_that_the_index_leaves_out(folder):
    _change_index(folder, lambda names: names.pop(UP))
    _, trace = _record(folder)
    entry = trace["checkpoint_tensors"].set_index("key").loc[UP]
    assert not entry["in_index"]
    assert entry["fate"] == ("skipped" if FOUR else "loaded")
    assert _origins(trace)[UP] == ("initialised" if FOUR else "checkpoint")
    assert _broken(trace) == ["3 index = headers"]


def test_a_tensor_that_the_index_alone_names(folder):
    (path,) = [path for path in _files(folder) if UP in load_file(path)]
    tensors = {key: one for key, one in load_file(path).items() if key != UP}
    save_file(tensors, path, metadata={"format": "pt"})
    _, trace = _record(folder)
    # Generation 4 trusts the index: nothing is missing, so nothing is given to the parameter.
    assert _origins(trace)[UP] == ("unwritten" if FOUR else "initialised")
    found = ["2 none left on meta", "2 none unwritten"] if FOUR else []
    assert _broken(trace) == [*found, "3 index = headers"]


def test_of_two_files_with_one_name_the_later_one_counts(folder):
    first, *_, last = _files(folder)
    key = next(iter(load_file(first)))
    again = load_file(last) | {key: load_file(first)[key] + 1}
    save_file(again, last, metadata={"format": "pt"})
    model, trace = _record(folder)
    entries = trace["checkpoint_tensors"].query("key == @key").set_index("file")["fate"]
    lost = "discarded" if FOUR else "skipped"  # generation 4 reads both, one after the other
    assert entries.to_dict() == {first.name: lost, last.name: "loaded"}
    assert _broken(trace) == ["3 index = headers"]
    assert torch.equal(model.get_parameter(key), again[key])
    if FOUR:
        reads = trace["tensor_loads"].query("key == @key").set_index("file")["discarded"]
        assert reads.to_dict() == {first.name: True, last.name: False}


def test_a_base_models_file_becomes_part_of_a_task_model(folder):
    LlamaForCausalLM.from_pretrained(folder).model.save_pretrained(folder / "base")
    model, trace = _record(folder / "base")
    _assert_whole(trace, model)
    _assert_every_tensor_is_read(trace, folder / "base")
    assert _origins(trace)[HEAD] == "initialised"
    row = trace["placements"].set_index("param").loc[EMBEDDING]
    assert json.loads(row["sources"]) == ["embed_tokens.weight"]
    assert isinstance(row["rule"], str)


def test_a_task_models_file_gives_its_base(folder):
    model, trace = _record(folder, AutoModel)
    _assert_whole(trace, model)
    assert _fates(trace)[HEAD] == "unexpected"
    assert Counter(_fates(trace)) == {"unexpected": 1, "loaded": len(_tensors(folder)) - 1}


@pytest.mark.filterwarnings("ignore:`torch_dtype` is deprecated")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "default of the library" if FOUR else "config.json"),
        ({"torch_dtype": "auto"}, "config.json"),
        ({"torch_dtype": torch.float16}, "argument"),
    ],
)
def test_the_models_dtype_and_why(folder, arguments, why):
    model, trace = _record(folder, **arguments)
    (row,) = trace["models"].itertuples()
    assert row.dtype == str(model.dtype).removeprefix("torch.")
    assert row.dtype_why == why
    placed = trace["placements"].set_index("param")["dtype_why"]
    assert placed[EMBEDDING] == why


def test_verified_weights_equal_their_sources(folder):
    with tracer.record(strict=True, verify_weights=True) as recording:
        AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.bfloat16)
    placed = recording.trace["placements"].query("kind == 'parameter'")
    assert set(placed["verified"]) == {"equal"}


@pytest.mark.parametrize("argument", ["low_cpu_mem_usage", "offload_state_dict", "from_flax"])
def test_an_argument_that_this_release_drops_says_so(folder, argument):
    _, trace = _record(folder, **{argument: False})
    row = trace["settings"].query("scope == 'load'").set_index("setting").loc[argument]
    is_used = {"offload_state_dict": RELEASE < (4, 57), "from_flax": FOUR}.get(argument, False)
    assert row["used"] == is_used
    assert isinstance(row["why"], str) != is_used


_FIRST_IMPORT = """
import sys, tracer
from tracer.instrument import installer
from tracer.instrument.targets import Target
absent = Target("transformers.utils.hub", "no_such_function", "stages.span")
installer._OF_MODULE["transformers.utils.hub"].append(absent)
with tracer.record() as recording:
    from transformers import AutoModelForCausalLM
    AutoModelForCausalLM.from_pretrained(sys.argv[1])
for fault in recording.trace["faults"].itertuples():
    print(fault.target)
"""


@pytest.mark.slow
def test_a_name_that_is_gone_is_told_though_its_module_comes_later(folder):
    command = [sys.executable, "-c", _FIRST_IMPORT, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["utils.hub.no_such_function"], done.stderr


@pytest.mark.parametrize("sets_plain_first", [False, True])  # as quanto does
@pytest.mark.skipif(not FOUR, reason="quantisers work in another way in generation 5")
def test_what_a_quantiser_makes_is_told_and_made_anew_to_be_compared(folder, sets_plain_first):
    from transformers.quantizers import (
        HfQuantizer,
        register_quantization_config,
        register_quantizer,
    )
    from transformers.utils.quantization_config import QuantizationConfigMixin

    method = f"toy_rounding_{sets_plain_first}"

    @register_quantization_config(method)
    class Config(QuantizationConfigMixin):
        def __init__(self, **_):
            self.quant_method = method

    @register_quantizer(method)
    class Rounding(HfQuantizer):
        requires_calibration = False
        requires_parameters_quantization = True
        is_trainable = False

        def param_needs_quantization(self, model, param_name, **_):
            return param_name == UP

        def check_quantized_param(self, model, param_value, param_name, *_, **__):
            return param_name == UP  # the name of that method in 4.51

        def create_quantized_param(self, model, param_value, param_name, device, *_, **__):
            if sets_plain_first:
                from transformers.modeling_utils import _load_parameter_into_model

                _load_parameter_into_model(model, param_name, param_value)
            module = model.get_submodule(param_name.removesuffix(".weight"))
            module.weight = torch.nn.Parameter(param_value.round())

        def is_serializable(self, safe_serialization=None):
            return False

        def _process_model_before_weight_loading(self, model, **_):
            return model

        def _process_model_after_weight_loading(self, model, **_):
            return model

    with tracer.record(strict=True, verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=Config())
    trace = recording.trace
    row = trace["placements"].set_index("param").loc[UP]
    assert (row["origin"], json.loads(row["operations"])) == ("converted", ["Rounding"])
    assert row["verified"] == "equal"
    assert row["verified_because"] == f"as {method} makes it of what the file holds"
    fates = trace["checkpoint_tensors"].set_index("key")["fate"]
    assert fates[fates != "loaded"].to_dict() == {UP: "converted"}
    assert _broken(trace) == []
    with torch.no_grad():
        model.get_parameter(UP).view(-1)[3] += 1
    audit = tracer.audit_model(model, folder).set_index("check")
    assert UP in audit.loc["4 parameters = sources", "evidence"]

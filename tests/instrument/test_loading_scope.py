"""Every kind of checkpoint and of call that from_pretrained accepts: told whole, told true."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import transformers
from instrument.gguf_files import write_llama
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoFeatureExtractor,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    MixtralConfig,
    MixtralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    Wav2Vec2FeatureExtractor,
)

import tracer
from tracer.demo import checkpoint_folder
from tracer.instrument.installer import release
from tracer.instrument.loads import names_apart, resolution

FOUR = release() < (5, 0)
pytestmark = [pytest.mark.generations] if FOUR else []
SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def llama(llama_in_one_file):
    """A Llama in one safetensors file."""
    return llama_in_one_file(**SIZES)


def _record(load, **options):
    with tracer.record(strict=True, **options) as recording:
        model = load()
    trace = recording.trace
    assert trace.rows("faults") == 0
    assert _broken(trace) == []
    return model, trace


def _broken(trace):
    verdicts = trace.audit().set_index("check").drop("5 explained time")["verdict"]
    return verdicts.index[verdicts == "broken"].tolist()


def _verdicts(trace):
    return trace.audit().set_index("check")["verdict"]


def _placed(trace):
    return trace["placements"].set_index("param")


def _assert_sums(trace, folder, files):
    """Rows of files and tensors add up to the bytes that lie on the disk."""
    rows = trace["files"].set_index("path")
    for name in files:
        entries = trace["checkpoint_tensors"].query("file == @name")
        size = entries["size_bytes"].sum() + rows.loc[name, "header_bytes"] + 8
        assert size == rows.loc[name, "size_bytes"] == (folder / name).stat().st_size
        reads = trace["tensor_loads"].query("file == @name")
        assert reads["size_bytes"].sum() == entries["size_bytes"].sum()


def _pickled(folder, tensors, shards):
    """The tensors in `.bin` files with their index, beside the configuration."""
    names, keys = (
        [f"pytorch_model-{n + 1:05}-of-{shards:05}.bin" for n in range(shards)],
        [*tensors],
    )
    parts = {name: keys[number::shards] for number, name in enumerate(names)}
    for name, part in parts.items():
        torch.save({key: tensors[key] for key in part}, folder / name)
    index = {"weight_map": {key: name for name, part in parts.items() for key in part}}
    size = sum(one.nbytes for one in tensors.values())
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}} | index), "utf-8"
    )
    return parts


def test_one_safetensors_file_adds_up(llama):
    _, trace = _record(lambda: AutoModelForCausalLM.from_pretrained(llama))
    _assert_sums(trace, llama, ["model.safetensors"])
    row = trace["files"].set_index("path").loc["model.safetensors"]
    assert (row["read"], row["access"]) == (True, "mmap")
    assert trace["tensor_loads"]["mapped"].all()


@pytest.mark.skipif(FOUR, reason="an argument of generation 5")
def test_a_file_that_is_read_in_one_go_is_told_as_well(llama):
    _, trace = _record(lambda: AutoModelForCausalLM.from_pretrained(llama, disable_mmap=True))
    _assert_sums(trace, llama, ["model.safetensors"])
    row = trace["files"].set_index("path").loc["model.safetensors"]
    assert (row["read"], row["access"]) == (True, "bytes")
    assert not trace["tensor_loads"]["mapped"].any()
    assert set(trace["checkpoint_tensors"]["fate"]) == {"loaded"}


@pytest.mark.parametrize("shards", [1, 3])
def test_pickled_shards_tell_the_file_of_each_tensor(llama, tmp_path, shards):
    shutil.copy(llama / "config.json", tmp_path)
    tensors = load_file(llama / "model.safetensors")
    parts = _pickled(tmp_path, tensors, shards)
    _, trace = _record(lambda: AutoModelForCausalLM.from_pretrained(tmp_path))
    reads = trace["tensor_loads"]
    assert {name: sorted(rows["key"]) for name, rows in reads.groupby("file")} == {
        name: sorted(part) for name, part in parts.items()
    }
    assert reads["size_bytes"].sum() == sum(one.nbytes for one in tensors.values())
    assert reads["mapped"].all()  # a zip archive is mapped too: nothing was copied
    parameters = trace["placements"].query("kind == 'parameter'")
    assert set(parameters["stored_dtype"]) == {"float32"}
    files = trace["files"].set_index("path")
    assert set(files.loc[list(parts), "access"]) == {"mmap"}
    verdicts = _verdicts(trace)
    for check in ("1 one fate a tensor", "1 reads = fates", "3 bytes of a file"):
        assert verdicts[check] == "not applicable"


def test_what_lies_beside_the_weights_is_told_with_its_reason(llama, tmp_path):
    folder = tmp_path / "beside"
    shutil.copytree(llama, folder)
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "README.md").write_text("read me", "utf-8")
    pytest.importorskip("gguf")
    write_llama(folder / "toy.gguf")
    (folder / "onnx").mkdir()
    shutil.copy(llama / "model.safetensors", folder / "onnx")
    _, trace = _record(lambda: AutoModelForCausalLM.from_pretrained(folder))
    why = trace["files"].set_index("path")["why_not"].dropna().to_dict()
    assert why == {
        "pytorch_model.bin": "model.safetensors is there and comes first",
        "README.md": "no call of the recording asked for it",
        "toy.gguf": "GGUF is read only where gguf_file='toy.gguf' asks for it",
        "onnx/model.safetensors": (
            "in a folder below, which from_pretrained does not enter by itself"
        ),
    }


def test_tensors_that_the_user_gives_have_no_file(llama):
    tensors = load_file(llama / "model.safetensors")
    config = AutoConfig.from_pretrained(llama)
    model, trace = _record(
        lambda: LlamaForCausalLM.from_pretrained(None, config=config, state_dict=tensors)
    )
    placed = _placed(trace)
    given = placed.loc[[name for name, _ in model.named_parameters()]]
    assert set(given["because"]) == {"set from the state_dict that the call was given"}
    (row,) = trace["models"].itertuples()
    assert (row.folder, row.hub, row.asked) == (None, None, None) or trace["models"][
        ["folder", "hub", "asked"]
    ].isna().all(axis=None)
    settings = trace["settings"].set_index("setting")
    assert json.loads(settings.loc["state_dict", "asked"]) == f"{len(tensors)} tensors"
    assert json.loads(settings.loc["config", "asked"]) == "LlamaConfig"
    assert _verdicts(trace)["1 one fate a tensor"] == "not applicable"


def test_an_encoder_and_decoder_share_their_embeddings(tmp_path):
    config = T5Config(
        vocab_size=64, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4,
        pad_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    model, trace = _record(lambda: AutoModelForSeq2SeqLM.from_pretrained(tmp_path))
    tied = _placed(trace).query("origin == 'tied'")["sources"].map(json.loads)
    names = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"]
    assert tied.to_dict() == {name: ["shared.weight"] for name in names}
    assert all(model.get_parameter(name) is model.shared.weight for name in names)
    (row,) = trace["models"].itertuples()
    assert row.parameters == sum(one.numel() for one in model.parameters())
    _assert_sums(trace, tmp_path, ["model.safetensors"])


@pytest.mark.skipif(FOUR, reason="generation 4 keeps the names and shapes of the file")
def test_one_tensor_that_becomes_two_parameters(tmp_path):
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, image_size=8, patch_size=4,
        use_swiglu_ffn=True,
    )  # fmt: skip
    Dinov2Model(config).save_pretrained(tmp_path)
    file = load_file(tmp_path / "model.safetensors")
    model, trace = _record(lambda: AutoModel.from_pretrained(tmp_path))
    placed = _placed(trace)
    source = next(key for key in file if key.endswith("0.mlp.weights_in.weight"))
    split = placed[placed["sources"].map(lambda text: json.loads(text) == [source])]
    assert sorted(name.rpartition("mlp.")[2] for name in split.index) == [
        "gate_proj.weight",
        "up_proj.weight",
    ]
    assert set(split["origin"]) == {"converted"}
    assert set(split["operations"].map(lambda text: json.loads(text)[0])) == {"Chunk(dim=0)"}
    halves = [model.get_parameter(name) for name in sorted(split.index)]
    assert torch.equal(torch.cat(halves), file[source])
    assert len(placed[placed["kind"] == "parameter"]) == len(list(model.parameters()))
    assert set(trace["checkpoint_tensors"]["key"]) == set(file)


class _ToyConfig(PretrainedConfig):
    model_type = "toy_of_the_scope"


class _Inner(PreTrainedModel):
    config_class = _ToyConfig
    base_model_prefix = "toy"

    def __init__(self, config):
        super().__init__(config)
        self.linear = torch.nn.Linear(4, 4)
        self.post_init()

    def _init_weights(self, module):
        pass


class _Outer(PreTrainedModel):
    config_class = _ToyConfig
    base_model_prefix = "outer"
    inner_folder = Path()

    def __init__(self, config):
        super().__init__(config)
        self.inner = _Inner(config)
        self.out = torch.nn.Linear(4, 2)
        self.post_init()

    def _init_weights(self, module):
        pass

    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        model = super().from_pretrained(*args, **kwargs)
        model.inner = _Inner.from_pretrained(cls.inner_folder)
        return model


def test_a_load_within_a_load_says_who_brought_what(tmp_path, monkeypatch):
    _Inner(_ToyConfig()).save_pretrained(tmp_path / "inner")
    _Outer(_ToyConfig()).save_pretrained(tmp_path / "outer")
    monkeypatch.setattr(_Outer, "inner_folder", tmp_path / "inner")
    model, trace = _record(lambda: _Outer.from_pretrained(tmp_path / "outer"))
    calls = trace["calls"].set_index("name")
    outer, inner = calls.loc["_Outer.from_pretrained"], calls.loc["_Inner.from_pretrained"]
    assert inner["parent"] == outer["seq"]
    file = load_file(tmp_path / "inner" / "model.safetensors")
    assert torch.equal(model.inner.linear.weight, file["linear.weight"])
    placed = trace["placements"].query("model == @outer.model").set_index("param")
    row = placed.loc["inner.linear.weight"]
    assert row["because"] == f"brought by the load of call {inner['seq']}: set from the file"
    assert json.loads(row["sources"]) == ["linear.weight"]
    fates = trace["checkpoint_tensors"].query("model == @outer.model").set_index("key")["fate"]
    lost = "loaded" if FOUR else "discarded"
    assert fates.to_dict() == {
        "inner.linear.bias": lost,
        "inner.linear.weight": lost,
        "out.bias": "loaded",
        "out.weight": "loaded",
    }


@pytest.fixture(scope="module")
def answering(llama, tmp_path_factory):
    """The same Llama with a tokenizer beside it."""
    folder = tmp_path_factory.mktemp("answering") / "llama"
    shutil.copytree(llama, folder)
    for path in checkpoint_folder().iterdir():
        if any(part in path.name for part in ("token", "vocab", "merges")):
            shutil.copy(path, folder)
    return folder


def test_a_pipeline_is_a_call_that_holds_its_loads(answering):
    before = transformers.pipeline
    _, trace = _record(
        lambda: transformers.pipeline("text-generation", model=str(answering), device_map="cpu")
    )
    assert transformers.pipeline is before
    calls = trace["calls"].sort_values("seq")
    assert (calls["kind"].iloc[0], calls["name"].iloc[0]) == ("pipeline", "pipeline")
    (loaded,) = calls.dropna(subset="model")["name"]
    assert loaded == "LlamaForCausalLM.from_pretrained"
    assert "AutoTokenizer.from_pretrained" in set(calls["name"])
    origins = trace["settings"].query("scope == 'load'").set_index("setting")["origin"]
    assert origins["device_map"] == "call"
    assert origins["revision"] == "pipeline"


def test_a_pipeline_that_is_first_asked_for_while_recording_is_undone_too(answering, monkeypatch):
    original = transformers.pipeline
    monkeypatch.delattr(transformers, "pipeline")
    _, trace = _record(lambda: transformers.pipeline("text-generation", model=str(answering)))
    assert transformers.pipeline is original is transformers.pipelines.pipeline
    assert trace["calls"]["kind"].tolist().count("pipeline") == 1


def test_tokenizer_processor_and_configuration_are_calls_with_their_settings(answering):
    def load():
        AutoTokenizer.from_pretrained(answering, use_fast=True, token=False)
        AutoProcessor.from_pretrained(checkpoint_folder())
        AutoConfig.from_pretrained(answering)

    _, trace = _record(load)
    calls = trace["calls"]
    top = calls[calls["parent"] == -1].sort_values("seq")
    assert top["name"].tolist() == [
        "AutoTokenizer.from_pretrained",
        "AutoProcessor.from_pretrained",
        "AutoConfig.from_pretrained",
    ]
    row = trace["settings"].query("scope == 'tokenizer'").set_index("setting").loc["use_fast"]
    assert (json.loads(row["asked"]), row["used"]) == (True, FOUR)
    assert isinstance(row["why"], str) != FOUR


def test_a_feature_extractor_is_a_call_that_reads_its_file(llama, tmp_path):
    folder = shutil.copytree(llama, tmp_path / "heard")
    Wav2Vec2FeatureExtractor(sampling_rate=8000).save_pretrained(folder)
    with tracer.record(strict=True) as recording:
        AutoModelForCausalLM.from_pretrained(folder)
        heard = AutoFeatureExtractor.from_pretrained(folder)
    trace = recording.trace
    assert heard.sampling_rate == 8000
    assert "AutoFeatureExtractor.from_pretrained" in trace["calls"]["name"].tolist()
    files = trace["files"].set_index("path")
    assert files.loc["preprocessor_config.json", "read"]


def test_secrets_given_to_a_load_are_not_written_down(llama, tmp_path):
    def load():
        return AutoModelForCausalLM.from_pretrained(llama, token="hf_quite_secret")

    with tracer.record(tmp_path / "run", strict=True) as recording:
        load()
    row = recording.trace["settings"].set_index("setting").loc["token"]
    assert json.loads(row["asked"]) == "given, not recorded"
    events = recording.trace.to_csv(tmp_path / "csv")
    del events
    written = b"".join(path.read_bytes() for path in (tmp_path / "csv").iterdir())
    assert b"hf_quite_secret" not in written


def _as_snapshot(folder, hub):
    """The folder as the hub's cache would hold it."""
    repository = hub / "models--org--toy"
    shutil.copytree(folder, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT, "utf-8")
    return repository / "snapshots" / COMMIT


@pytest.mark.parametrize("by", ["id", "path"])
def test_a_model_out_of_the_hubs_cache(llama, tmp_path, by):
    snapshot = _as_snapshot(llama, tmp_path)
    name = "org/toy" if by == "id" else str(snapshot)
    _, trace = _record(lambda: AutoModelForCausalLM.from_pretrained(name, cache_dir=tmp_path))
    (row,) = trace["models"].itertuples()
    assert (row.asked, row.hub, row.revision) == (name, "huggingface", COMMIT)
    assert row.folder == str(snapshot)
    assert (row.from_cache, row.downloaded_bytes) == (True, 0)
    first = _first_span(trace)
    assert first["folder"] == str(snapshot)
    assert (
        first["from"]
        == {
            "id": "the hub's cache",
            "path": "a local path into the hub's cache",
        }[by]
    )


@pytest.mark.parametrize("fault", ["cut", "absent"])
def test_a_broken_snapshot_of_the_hubs_cache_names_file_and_bytes(llama, tmp_path, fault):
    snapshot = _as_snapshot(llama, tmp_path / "hub")
    path = snapshot / "model.safetensors"
    size = path.stat().st_size
    if fault == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        held = load_file(path)
        path.unlink()
        index = {
            "metadata": {},
            "weight_map": dict.fromkeys(held, "model-00001-of-00001.safetensors"),
        }
        (snapshot / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    with (
        tracer.record(strict=True) as recording,
        pytest.raises((OSError, SafetensorError)) as raised,
    ):
        AutoModelForCausalLM.from_pretrained("org/toy", cache_dir=tmp_path / "hub")
    assert not isinstance(raised.value, tracer.TracerError)
    faults = " ".join(recording.trace["faults"]["reason"])
    files = recording.trace["files"].set_index("path")
    if fault == "cut":
        assert "100 bytes" in faults
        assert files.loc["model.safetensors", "expected_bytes"] == size
    else:
        assert "model-00001-of-00001.safetensors" in faults
        assert not files.loc["model-00001-of-00001.safetensors", "read"]


def _first_span(trace):
    """What the first stage of the model's load that found a file says."""
    spans = trace["spans"][trace["spans"]["call"].isin(trace["models"]["call"])]
    spans = spans[spans["stage"] == "resolve"].sort_values("seq")
    summaries = map(json.loads, spans["summary"].dropna())
    # Where PEFT is installed an adapter is looked for before.
    return next(one for one in summaries if one.get("found") != [])


def test_a_folder_that_modelscope_filled(llama, tmp_path):
    folder = tmp_path / "models" / "org" / "toy"
    shutil.copytree(llama, folder)
    (folder / ".msc").write_bytes(b"")
    (folder / ".mv").write_text("Revision:v1.2,CreatedAt:1700000000", "utf-8")
    _, trace = _record(lambda: AutoModelForCausalLM.from_pretrained(folder))
    (row,) = trace["models"].itertuples()
    assert (row.hub, row.revision, row.folder) == ("modelscope", "v1.2", str(folder))
    assert _first_span(trace)["from"] == "a folder that ModelScope fetched"


def test_a_plain_folder_is_local(llama):
    _, trace = _record(lambda: AutoModelForCausalLM.from_pretrained(llama))
    (row,) = trace["models"].itertuples()
    assert (row.hub, row.from_cache, row.downloaded_bytes) == ("local", True, 0)
    assert _first_span(trace) == {
        "files": ["model.safetensors"],
        "name": str(llama),
        "folder": str(llama),
        "from": "a local folder",
        "revision": None,
    }


class _Hub(http.server.SimpleHTTPRequestHandler):
    """Just so much of a hub that a repository of one commit can be downloaded from it."""

    def _name(self):
        parts = self.path.partition("?")[0].split("/")
        return parts[-1] if "resolve" in parts else None

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def _answer(self, with_body):
        name = self._name()
        path = None if name is None else Path(self.directory) / name
        if path is None or not path.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if name else "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{name}"')
        self.send_header("Content-Length", str(path.stat().st_size))
        self.end_headers()
        if with_body:
            self.wfile.write(path.read_bytes())

    def log_message(self, *_):
        pass


_DOWNLOAD = """
import sys, tracer
from transformers import AutoModelForCausalLM
with tracer.record(sys.argv[1], strict=True):
    AutoModelForCausalLM.from_pretrained("org/toy", cache_dir=sys.argv[2])
"""


@pytest.mark.slow
def test_what_a_download_fetches_is_counted(llama, tmp_path):
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args: _Hub(*args, directory=str(llama))
    )
    threading.Thread(target=server.serve_forever).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    environment = os.environ | {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": endpoint}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DOWNLOAD, tmp_path / "run", tmp_path / "hub"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    trace = tracer.open_trace(tmp_path / "run")
    (row,) = trace["models"].itertuples()
    fetched = ("config.json", "generation_config.json", "model.safetensors")
    assert row.downloaded_bytes == sum((llama / name).stat().st_size for name in fetched)
    assert (row.hub, row.revision, row.from_cache) == ("mirror", COMMIT, False)
    spans = trace["spans"]
    names = set(spans["name"])
    assert {f"download of {name}" for name in fetched} <= names
    assert "fetched from 127.0.0.1" in {
        json.loads(text).get("from") for text in spans["summary"].dropna()
    }
    assert _broken(trace) == []


@pytest.mark.parametrize(
    ("missing", "unexpected", "rule"),
    [
        (["a.b", "a.c"], ["x.a.b", "x.a.c"], ("x.", "", 2)),
        (["x.y.a.b"], ["a.b"], ("", "x.y.", 1)),
        (["a.b"], ["xa.b", "c"], None),
        ([], ["a.b"], None),
    ],
)
def test_a_prefix_counts_whole_words_only(missing, unexpected, rule):
    found = names_apart.compare(missing, unexpected)
    assert (found["missing"], found["unexpected"]) == (len(missing), len(unexpected))
    told = found.get("prefix")
    assert (told and tuple(told.values())) == rule


def test_a_name_that_is_no_folder_has_an_unknown_origin():
    assert resolution.origin_of(None, "no/such", None).hub == "unknown"


class _TiesItself(LlamaForCausalLM):
    """As models of speech do, without asking the library."""

    def tie_weights(self, *_, **__):
        self.lm_head.weight = self.model.embed_tokens.weight


def test_a_class_that_ties_by_itself(llama):
    model, trace = _record(lambda: _TiesItself.from_pretrained(llama))
    row = _placed(trace).loc["lm_head.weight"]
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert (row["origin"], json.loads(row["sources"])) == ("tied", ["model.embed_tokens.weight"])


def test_several_models_keep_their_files_apart(llama, tmp_path):
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path)

    def load():
        return [AutoModelForCausalLM.from_pretrained(one) for one in (llama, tmp_path)]

    _, trace = _record(load)
    files = trace["files"]
    assert not files.duplicated(["model", "path"]).any()
    assert trace["models"].set_index("model")["folder"].to_dict() == {
        "model-1": str(llama),
        "model-2": str(tmp_path),
    }
    assert files.groupby("model")["read"].sum().to_dict() == {"model-1": 3, "model-2": 3}


def test_a_class_that_keeps_a_part_in_float32_is_the_reason(tmp_path):
    config = T5Config(
        vocab_size=64, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4,
        pad_token_id=0, decoder_start_token_id=0,
    )  # fmt: skip
    T5ForConditionalGeneration(config).half().save_pretrained(tmp_path)
    model, trace = _record(
        lambda: AutoModelForSeq2SeqLM.from_pretrained(tmp_path, torch_dtype=torch.float16)
    )
    placed = _placed(trace).query("kind == 'parameter'")
    kept = {n for n, one in model.named_parameters() if one.dtype == torch.float32}
    assert kept
    assert set(placed.index[placed["dtype_why"] == "kept in float32 by the class"]) == kept
    assert set(placed.loc[sorted(kept), "stored_dtype"]) == {"float16"}


def test_each_part_may_have_a_dtype_of_its_own(tmp_path):
    text = {"model_type": "llama"} | SIZES
    vision = {
        "model_type": "clip_vision_model", "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 16, "image_size": 16, "patch_size": 8,
    }  # fmt: skip
    config = LlavaConfig(text_config=text, vision_config=vision, image_token_index=63)
    LlavaForConditionalGeneration(config).save_pretrained(tmp_path)
    wanted = {"text_config": "bfloat16", "vision_config": "float16"}
    model, trace = _record(
        lambda: AutoModelForImageTextToText.from_pretrained(tmp_path, torch_dtype=wanted),
        verify_weights=True,
    )
    (row,) = trace["models"].to_dict("records")
    assert json.loads(row["dtype_asked"]) == wanted
    placed = _placed(trace)
    live = {name: str(one.dtype) for name, one in model.named_parameters()}
    assert {f"torch.{placed.loc[name, 'dtype']}" for name in live} == set(live.values())
    assert set(placed.loc[list(live), "dtype_why"]) == {"argument"}
    settings = trace["settings"].set_index("setting")
    assert settings.loc["dtype", "origin"] == "call"
    assert set(placed["verified"]) == {"equal"}


@pytest.mark.skipif(FOUR, reason="generation 4 converts nothing")
def test_what_was_converted_is_offloaded_to_a_file_of_its_own(tmp_path):
    config = MixtralConfig(**SIZES, num_local_experts=2, num_experts_per_tok=1)
    MixtralForCausalLM(config).save_pretrained(tmp_path / "mixtral")
    parts = ("model.embed_tokens", "model.layers.0", "model.norm", "model.rotary_emb", "lm_head")
    devices = dict.fromkeys(parts, "cpu") | {"model.layers.1": "disk"}
    _, trace = _record(
        lambda: AutoModelForCausalLM.from_pretrained(
            tmp_path / "mixtral", device_map=devices, offload_folder=tmp_path / "offload"
        )
    )
    placed = _placed(trace)
    experts = placed.loc["model.layers.1.mlp.experts.gate_up_proj"]
    assert (experts["origin"], experts["residence"]) == ("converted", "offloaded_disk")
    assert experts["because"].endswith(
        "written from the file to the offload folder, read at each use"
    )
    norm = placed.loc["model.layers.1.input_layernorm.weight"]
    assert (norm["origin"], norm["because"]) == (
        "checkpoint",
        "left in its file, which is read at each use",
    )
    reads = trace["tensor_loads"].set_index("key")["discarded"]
    fates = trace["checkpoint_tensors"].set_index("key")["fate"]
    assert set(fates[reads]) == {"discarded"}
    assert set(fates[~reads]) == {"loaded", "converted"}
    assert reads["model.layers.1.input_layernorm.weight"]

"""What is often said of loading and is not so, or no longer: each shows as it is in a trace.

A claim has the number that it goes by among those of two published walks through a load. Others
are shown by tests of their own (`ELSEWHERE`): decorators and stops of a debugger, an index against
its headers, memory by path, values lost in a cast.
"""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)

import tracer
from tracer.demo import checkpoint_folder
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = [
    pytest.mark.generations,
    pytest.mark.filterwarnings("ignore:.*torch_dtype.*"),
    pytest.mark.filterwarnings("ignore:.*low_cpu_mem_usage.*"),
]
IS_FIVE = release() >= FIVE
CONFIG = {
    "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": True,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ARGUMENTS = {"torch_dtype": torch.bfloat16, "low_cpu_mem_usage": True}


def _recorded(kind, folder, **arguments):
    with tracer.record(strict=True) as recording:
        kind.from_pretrained(folder, **arguments)
    return recording.trace


def _configured(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Traces of loads of one tied Llama, in bfloat16, as one file and as shards."""
    folder, sharded, other = (tmp_path_factory.mktemp(name) for name in ("one", "shards", "other"))
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).to(torch.bfloat16)
    for each in (folder, other):
        model.save_pretrained(each)
    model.save_pretrained(sharded, max_shard_size="5KB")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    _configured(folder, architectures=["GPT2LMHeadModel"])
    _configured(other, vocab_size=48)
    with tracer.record(strict=True, detail="modules") as on_meta:
        with torch.device("meta"):
            empty = LlamaForCausalLM(LlamaConfig(**CONFIG))
        ids = torch.ones(1, 5, dtype=torch.long, device="meta")
        with nullcontext() if IS_FIVE else pytest.raises(RuntimeError):
            empty(input_ids=ids)
    with tracer.record(strict=True) as tokenizer:
        AutoTokenizer.from_pretrained(checkpoint_folder(), use_fast=True)
    with pytest.raises(AttributeError), tracer.record(strict=True) as printed:
        _as_printed(folder)
    with tracer.record(strict=True) as mangled:
        model = AutoModelForCausalLM.from_pretrained(folder)
        with pytest.raises(ValueError, match="pad__id"):
            model.generate(torch.ones(1, 3, dtype=torch.long), pad__id=0, eos__id=2)
    return SimpleNamespace(
        printed=printed.trace,
        mangled=mangled.trace,
        trusting=_recorded(AutoModelForCausalLM, folder, trust_remote_code=True),
        one=_recorded(AutoModelForCausalLM, folder, **ARGUMENTS),
        half=_recorded(AutoModelForCausalLM, folder, torch_dtype=torch.float16),
        shards=_recorded(AutoModelForCausalLM, sharded),
        auto=_recorded(AutoModelForCausalLM, folder, device_map="auto"),
        head=_recorded(AutoModelForSequenceClassification, sharded),
        odd=_recorded(AutoModelForCausalLM, other, ignore_mismatched_sizes=True),
        meta=on_meta.trace,
        tokenizer=tokenizer.trace,
    )


def _as_printed(folder):
    """A function of the second walk that makes a service's model, with its names as printed."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(), padding_side="left")
    if tokenizer.pad_ is None:
        tokenizer.pad_ = tokenizer.eos_
    return AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float16)


def _whose(trace):
    """The package whose code built the model."""
    spans = trace["spans"].query("stage == 'meta_init'").dropna(subset="source")
    return {source.partition("/models/")[0] for source in spans["source"] if "/models/" in source}


def _setting(trace, name):
    return trace["settings"].set_index("setting").loc[name]


def _origins(trace):
    return trace["placements"].set_index("param")["origin"].to_dict()


def _model(trace):
    (row,) = trace["models"].itertuples()
    return row


def _known(cell):
    """A cell as plain Python has it; None where it is missing."""
    return None if pd.isna(cell) else getattr(cell, "item", lambda: cell)()


def _is_meta(trace):
    built = trace["meta_params"]
    return set(built.loc[built["kind"] == "parameter", "device"]) == {"meta"}


def _bytes(trace):
    return trace["tensor_loads"]["size_bytes"].sum(), _model(trace).size_bytes


def _misfit(trace):
    """Shapes of the embeddings: in the header, of the model as built."""
    name = "model.embed_tokens.weight"
    header = trace["checkpoint_tensors"].set_index("key").loc[name]
    built = trace["meta_params"].set_index("param").loc[name]
    return header["shape"], built["shape"], header["fate"]


def _metadata(trace):
    files = trace["files"].set_index("path")
    return json.loads(files.loc["model.safetensors", "metadata"])


def _built_by(trace):
    (span,) = trace["spans"].query("stage == 'meta_init' and name.str.endswith('on meta')",
                                   engine="python").itertuples()  # fmt: skip
    return span.function


def _unread(trace):
    row = trace["files"].set_index("path").loc["pytorch_model.bin"]
    return row["read"], "safetensors" in row["why_not"]


CLAIMS = {
    7: ("a header's metadata knows no sizes of the model", lambda t: _metadata(t.one),
        {"format": "pt"}),
    8: ("the class builds the structure, no file", lambda t: _built_by(t.one),
        "LlamaForCausalLM.__init__"),
    9: ("a header has names and shapes, the classes of modules come with the model",
        lambda t: ("module_class" in t.one["checkpoint_tensors"],
                   "LlamaRMSNorm" in set(t.one["meta_params"]["module_class"])), (False, True)),
    11: ("a sound file may lack a name", lambda t: (
        "lm_head.weight" in set(t.one["checkpoint_tensors"]["key"]),
        _origins(t.one)["lm_head.weight"]), (False, "tied")),
    13: ("`architectures` does not decide the class", lambda t: _model(t.one).class_name,
         "LlamaForCausalLM"),
    17: ("one file is built on meta as well as shards are",
         lambda t: (_is_meta(t.one), _is_meta(t.shards)), (True, True)),
    20: ("a forward on meta goes through the modules, without values", lambda t: (
        t.meta["calls"]["status"].tolist(), set(t.meta["modules"]["device"].dropna())),
        (["ok" if IS_FIVE else "error"], {"meta"})),
    27: ("a slice is no read: without a cast nothing is read at all",
         lambda t: set(t.one["tensor_loads"]["mapped"]), {True}),
    29: ("a header's shape is not the model's: only the two together prove something",
         lambda t: _misfit(t.odd), ("[64, 16]", "[48, 16]", "discarded" if IS_FIVE else "skipped")),
    30: ("not all values come out of the files", lambda t: set(_origins(t.one).values()),
         {"checkpoint", "tied", "rebuilt"}),
    74: ("of two formats only one is read", lambda t: _unread(t.one), (False, True)),
    78: ("float16 saves nothing where the file has bfloat16",
         lambda t: _bytes(t.half)[0] == _bytes(t.one)[0], True),
    81: ("torch's load_state_dict is not what reads", lambda t: {
        source.partition(":")[0] for source in t.one["tensor_loads"]["source"]},
        {f"transformers/{'core_model_loading' if IS_FIVE else 'modeling_utils'}.py"}),
    82: ("a class with another head raises nothing, its head is random",
         lambda t: _origins(t.head)["score.weight"], "initialised"),
    83: ("as printed it ends before any weight", lambda t: (
        t.printed.manifest["ended"].partition(":")[0], len(t.printed["models"])),
        ("AttributeError", 0)),
    84: ("names that no one knows end generate() before its first forward", lambda t: (
        t.mangled["calls"].set_index("kind").loc["generate", "status"], t.mangled.rows("steps")),
        ("error", 0)),
    85: ("without code of its own in the folder it changes nothing", lambda t: (
        json.loads(_setting(t.trusting, "trust_remote_code")["asked"]), _whose(t.trusting),
        _origins(t.trusting) == _origins(t.half)), (True, {"transformers"}, True)),
    87: ("`use_fast` is dropped since generation 5",
         lambda t: _known(_setting(t.tokenizer, "use_fast")["used"]) is False, IS_FIVE),
    89: ("`torch_dtype` still decides", lambda t: (
        _model(t.half).dtype, _model(t.half).dtype_why), ("float16", "argument")),
    90: ("`low_cpu_mem_usage` is accepted and dropped",
         lambda t: bool(_setting(t.one, "low_cpu_mem_usage")["used"]), False),
    91: ("without `low_cpu_mem_usage` it is built on meta too", lambda t: _is_meta(t.half), True),
    92: ("a loaded model is in evaluation mode already",
         lambda t: bool(_model(t.one).training), False),
    93: ("on a CPU alone `hf_device_map` is missing since generation 5", lambda t: (
        _known(_model(t.auto).device_map), set(t.auto["placements"]["device"])),
        (None if IS_FIVE else '{"": "cpu"}', {"cpu"})),
}  # fmt: skip


ELSEWHERE = {
    4: ("test_first_seed.py", "test_a_stop_of_the_first_seed_is_seen_in_the_recording"),
    15: ("test_broken_folders.py", "test_a_tensor_that_the_index_does_not_name"),
    76: ("test_load_analyses.py", "test_peak_memory_goes_by_the_path_that_the_bytes_take"),
    79: ("test_loading.py", "test_what_a_cast_makes_infinite_or_zero_is_counted"),
}


def test_no_belief_that_is_not_so_is_left_out():
    """Those of loads that are false, outdated, half true or harmful, where the list is here."""
    path = Path(__file__).resolve().parents[3] / "shared/seeds/claims.md"
    if not path.exists():
        pytest.skip("the list of what the two walks say is not here")
    rows = re.findall(r"^\| (\d+) \|[^|]*\| (.*?) \|", path.read_text("utf-8"), re.MULTILINE)
    wrong = {
        int(number)
        for number, verdict in rows
        if re.match(r"[FOP](\b|:)|harmful|redundant", verdict)
    }
    ours = {number for number in wrong if number <= 30 or 72 <= number <= 93}
    assert len(ours) > 20
    assert ours <= CLAIMS.keys() | ELSEWHERE.keys()
    for name, test in ELSEWHERE.values():
        assert f"def {test}(" in (Path(__file__).parent / name).read_text("utf-8")


@pytest.mark.parametrize("number", CLAIMS)
def test_a_trace_shows_what_is_so(told, number):
    _, seen, expected = CLAIMS[number]
    assert seen(told) == expected

"""Where a forward spends its time, asked of modules whose every time is known."""

import pytest
from synthetic import coherent_rows, event, make_trace

from tracer.analysis.modules import layer_times, module_calls, part_of

MS = 1_000_000


def forward(rows, first, step, stage, start, scale):
    """One forward of a model with two layers, one of them inside a Sequential's neighbour."""
    call = rows["calls"][-1]["seq"]
    parents = {"": -1}
    for offset, (path, class_name, parent, begin, length) in enumerate(
        [
            ("", "Toy", None, 0, 20),
            ("h.0", "Block", "", 1, 8),
            ("h.0.ln_1", "LayerNorm", "h.0", 1, 1),
            ("h.0.attn", "ToyAttention", "h.0", 2, 3),
            ("h.0.attn.q", "Linear", "h.0.attn", 2, 1),
            ("h.0.mlp", "ToyMLP", "h.0", 5, 2),
            ("h.1", "Block", "", 9, 6),
            ("h.1.attn", "ToyAttention", "h.1", 9, 4),
            ("merger.0", "Linear", "", 16, 2),
        ]
    ):
        seq = first + offset
        row = event(seq, parents.get(parent, 1), call, stage, path, start + begin, length * scale)
        row |= {"path": path, "class_name": class_name, "step": step}
        rows["modules"].append(row)
        parents[path] = seq


@pytest.fixture
def trace():
    rows = coherent_rows()
    rows["modules"] = []
    forward(rows, 500, 0, "prefill", 211, 1)
    forward(rows, 600, 1, "decode", 231, 0.1)
    forward(rows, 700, 2, "decode", 241, 0.3)
    return make_trace(rows)


@pytest.mark.parametrize(
    ("path", "class_name", "part"),
    [
        ("model.layers.0.self_attn", "LlamaAttention", "attention"),
        ("model.layers.0.post_attention_layernorm", "LlamaRMSNorm", "norm"),
        ("h.0.ln_1", "LayerNorm", "norm"),
        ("encoder.block.0.layer.0", "T5LayerSelfAttention", "attention"),
        ("encoder.block.0.layer.1", "T5LayerFF", "MLP"),
        ("layers.3.block_sparse_moe", "MixtralSparseMoeBlock", "MLP"),
        ("backbone.layers.0.mixer", "MambaMixer", "attention"),
        ("model.rotary_emb", "LlamaRotaryEmbedding", "embedding"),
        ("transformer.wte", "Embedding", "embedding"),
        ("lm_head", "Linear", "output head"),
        ("model.layers.0", "LlamaDecoderLayer", "other"),
        ("", "LlamaForCausalLM", "other"),
    ],
)
def test_a_module_is_known_by_its_own_name_and_class(path, class_name, part):
    assert part_of(path, class_name) == part


def test_layers_are_split_into_attention_mlp_and_the_rest(trace):
    times = layer_times(trace).set_index(["phase", "layer"])
    first = times.loc[("prefill", 0)]
    assert first[["attention_ns", "mlp_ns", "rest_ns", "total_ns"]].tolist() == [
        3 * MS, 2 * MS, 3 * MS, 8 * MS,
    ]  # fmt: skip
    assert times.loc[("prefill", 1), "mlp_ns"] == 0


def test_a_decode_step_is_the_mean_of_all_of_them(trace):
    times = layer_times(trace).set_index(["phase", "layer"])
    assert times.loc[("decode", 0), "forwards"] == 2
    assert times.loc[("decode", 0), "total_ns"] == round(0.2 * 8 * MS)


def test_a_numbered_part_of_a_sequential_is_no_layer(trace):
    assert set(layer_times(trace)["stack"]) == {"h"}


def test_an_encoder_that_ran_before_the_first_step_belongs_to_prefill():
    rows = coherent_rows()
    rows["modules"] = []
    forward(rows, 500, None, "setup", 201, 1)
    trace = make_trace(rows)
    assert set(layer_times(trace)["phase"]) == {"prefill"}
    assert len(module_calls(trace, step=0)) == 9
    assert module_calls(trace, step=1).empty


def test_each_module_lies_below_its_caller(trace):
    calls = module_calls(trace).set_index("path")
    assert calls.loc[["", "h.0", "h.0.attn", "h.0.attn.q"], "depth"].tolist() == [0, 1, 2, 3]
    assert calls.loc["", "start_ns"] == 0
    assert calls.loc["h.1", "start_ns"] == 9 * MS


def test_own_time_is_what_inner_modules_leave_over(trace):
    calls = module_calls(trace).set_index("path")
    assert calls.loc["h.0", "self_ns"] == (8 - 1 - 3 - 2) * MS
    assert calls.loc["h.0.attn", "self_ns"] == 2 * MS
    assert calls["self_ns"].sum() == calls.loc["", "duration_ns"]


def test_a_projection_inside_an_attention_belongs_to_it(trace):
    assert module_calls(trace).set_index("path").loc["h.0.attn.q", "part"] == "attention"


def test_a_step_is_picked_by_its_number(trace):
    assert module_calls(trace, step=2)["duration_ns"].max() == 6 * MS
    assert module_calls(trace, step=99).empty


@pytest.mark.parametrize("question", [layer_times, module_calls])
def test_without_modules_the_frame_is_empty(trace, question):
    rows = coherent_rows()
    del rows["modules"]
    for empty in (question(make_trace({})), question(make_trace(rows))):
        assert empty.empty
        assert list(empty.columns) == list(question(trace).columns)

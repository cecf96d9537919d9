"""What users reported of hooks, each with the value that a tracer must tell nevertheless."""

import functools
import gc
import json
import weakref

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model
from instrument.toys import hook_count
from transformers import AutoModelForCausalLM

import tracer
from tracer.analysis.modules import arguments
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = pytest.mark.generations


def test_what_is_given_by_keyword_is_seen_and_what_is_made_is_told_by_its_shape():
    """H01. Plain hooks see no keyword; `[0]` of a bare tensor takes its first row."""
    model, seen = _model(0), {}
    layer = model.model.layers[0]
    given = layer.self_attn.register_forward_pre_hook(lambda module, args: seen.update(given=args))
    made = layer.register_forward_hook(lambda module, args, output: seen.update(made=output))
    with tracer.record(strict=True, detail="modules") as recording, torch.no_grad():
        model(ROWS)
    given.remove()
    made.remove()
    assert seen["given"] == ()
    rows = recording.trace["modules"].set_index("path")
    for path in ("model.layers.0.self_attn", "model.layers.0", "model.layers.0.mlp"):
        shapes = rows.loc[path, ["input_shape", "output_shape"]]
        assert shapes.tolist() == ["[2, 6, 32]"] * 2, path
    whole = seen["made"] if isinstance(seen["made"], torch.Tensor) else seen["made"][0]
    assert list(whole.shape) == [2, 6, 32]
    assert rows.loc["", "input_shape"] == "[2, 6]"
    assert rows.loc["", "output_shape"] == "[2, 6, 40]"


def _told(trace, path, column):
    cells = trace["modules"].query("path == @path").sort_values("seq")[column]
    return [json.loads(one) for one in cells.dropna()]


def test_each_argument_of_a_module_is_told_by_its_name_with_its_class_and_shape():
    """H01. Whatever is given by keyword, and whether a tensor or a tuple comes out."""
    model = _model(0)
    with tracer.record(strict=True) as recording:
        model.generate(ROWS, attention_mask=(ROWS != 0).long(), max_new_tokens=4, do_sample=False)
    trace = recording.trace
    first, *later = _told(trace, "model.layers.0.self_attn", "arguments")
    hidden = {"class": "Tensor", "shape": [2, 6, 32], "dtype": "float32"}
    assert first["hidden_states"] == {"given": "by keyword"} | hidden
    cache = "cache" if release() >= FIVE else "past_key_values"
    cache = cache if cache in first else "past_key_value"  # until 4.56
    assert first[cache] == {"given": "by keyword", "class": "DynamicCache"}
    cosines = first["position_embeddings"]
    assert (cosines["class"], cosines["length"]) == ("tuple", 2)
    assert cosines["parts"][0]["shape"] == [2, 6, 8]
    assert first["attention_mask"]["shape"][-2:] == [6, 6]
    assert len(later) <= 1  # decode steps are called from one other place at most
    assert all(one["hidden_states"]["shape"] == [2, 1, 32] for one in later)
    embedded, *_ = _told(trace, "model.embed_tokens", "arguments")
    assert embedded["input"]["given"] == "by position"
    made, *_ = _told(trace, "model.layers.0", "returned")
    whole = made if made["class"] == "Tensor" else made["parts"][0]
    assert whole["shape"] == [2, 6, 32]
    output, *_ = _told(trace, "", "returned")
    assert output["class"] == "CausalLMOutputWithPast"
    assert output["parts"]["logits"]["shape"] == [2, 1, 40]
    table = arguments(trace, "model.layers.0.self_attn").query("seq == seq.min()")
    named = table.set_index("name")
    assert named.loc["hidden_states", ["side", "how", "class_name"]].tolist() == [
        "given", "by keyword", "Tensor"
    ]  # fmt: skip
    assert named.loc["position_embeddings.1", "shape"] == "[2, 6, 8]"
    assert named.loc[cache, "class_name"] == "DynamicCache"
    assert "[2, 6, 32]" in table.query("side == 'made'")["shape"].tolist()


def test_arguments_hold_no_words_and_survive_whatever_is_given():
    """H01, the same kind: text, numbers, long lists, nested ones, objects, nothing."""

    class Odd(torch.nn.Module):
        def forward(self, *args, flag=False, **rest):
            return args[0] if args else None

    model, odd = _model(0), Odd()
    model.model.odd = odd
    plain = model.model.norm.forward

    def with_odd(hidden):
        deep = [[[[hidden]]]]
        odd(hidden, "a secret", None, 3, flag=True, many=[hidden] * 20, deep=deep, own=object())
        return plain(hidden)

    model.model.norm.forward = with_odd
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS, use_cache=False)
    (told,) = _told(recording.trace, "model.odd", "arguments")
    assert list(told) == ["*0", "*1", "*2", "*3", "flag", "many", "deep", "own"]
    assert told["*1"] == {"given": "by position", "class": "str"}
    assert (told["*2"]["value"], told["*3"]["value"]) == (None, 3)
    assert told["flag"] == {"given": "by keyword", "value": True}
    assert (told["many"]["length"], len(told["many"]["parts"])) == (20, 8)
    assert told["own"] == {"given": "by keyword", "class": "object"}
    assert "secret" not in recording.trace["modules"].to_csv()


def test_a_module_that_is_given_no_tensor_or_makes_none_has_a_row_all_the_same():
    """H01, the same kind: no argument at all, a number, an output of the user's own."""

    class Odd(torch.nn.Module):
        def forward(self, *args, **kwargs):
            return None if not args else {"words": "none"}

    model, odd = _model(0), Odd()
    model.model.odd = odd
    plain = model.model.norm.forward

    def with_odd(hidden):
        assert odd() is None
        assert odd(3, flag=True) == {"words": "none"}
        return plain(hidden)

    model.model.norm.forward = with_odd
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
    rows = recording.trace["modules"].query("path == 'model.odd'")
    assert rows["status"].tolist() == ["ok", "ok"]
    assert rows[["input_shape", "output_shape", "dtype", "device"]].isna().all(axis=None)
    assert rows["stack"].notna().all()


@pytest.mark.slow
def test_a_model_that_was_compiled_before_says_that_its_modules_are_not_seen():
    """H02. Hooks that come after the first compiled call never run, and nobody says so."""
    model, calls = _model(0), []
    with torch.no_grad():
        model.compile(backend="eager")
        plain = model(ROWS, use_cache=False).logits
        handle = model.model.norm.register_forward_hook(lambda *_: calls.append(1))
        with tracer.record(strict=True) as recording:
            recorded = model(ROWS, use_cache=False).logits
    handle.remove()
    torch.compiler.reset()
    assert torch.equal(plain, recorded)
    trace = recording.trace
    (fault,) = trace["faults"].itertuples()
    assert "compiled" in fault.reason
    assert trace["calls"]["compiled"].tolist() == [True]
    assert trace.rows("modules") == 0


def _fails(module, args):
    raise ValueError("the user's own")


@pytest.mark.slow
def test_fifty_recordings_keep_neither_model_nor_activations_nor_hooks():
    """H04. A hook that holds the model, outputs that hold the graph, handles left by an error."""
    model = _model(0)
    before = hook_count(model)
    tensors = None
    for number in range(50):
        handle = model.model.norm.register_forward_pre_hook(_fails) if number % 5 == 0 else None
        with tracer.record(strict=True, values=True):
            try:
                model(ROWS[:1])  # with gradients: an output kept would keep its whole graph
            except ValueError:
                assert handle is not None
        if handle is not None:
            handle.remove()
        assert hook_count(model) == before
        if number == 10:
            gc.collect()
            tensors = sum(type(one) is torch.Tensor for one in gc.get_objects())
    gc.collect()
    assert sum(type(one) is torch.Tensor for one in gc.get_objects()) <= tensors
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_an_offloaded_model_keeps_accelerates_forward_and_is_told_offloaded(llama_folder, tmp_path):
    """H05. Accelerate puts a partial in the place of forward; weights exist only inside it."""
    pytest.importorskip("accelerate")
    plan = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    plan |= {"model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    seen = []
    with tracer.record(strict=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(
            llama_folder, device_map=plan, offload_folder=tmp_path
        )
        part = model.model.layers[1].mlp.gate_proj
        forward, old = part.forward, part._old_forward
        look = part.register_forward_hook(lambda module, *_: seen.append(module.weight.device.type))
        output = model.generate(ROWS[:1], max_new_tokens=2, min_new_tokens=2, do_sample=False)
    look.remove()
    assert (part.forward, part._old_forward) == (forward, old)
    assert isinstance(forward, functools.partial)
    assert seen == ["meta"] * 2  # nothing was fetched for the hooks' sake
    plain = AutoModelForCausalLM.from_pretrained(llama_folder)
    expected = plain.generate(ROWS[:1], max_new_tokens=2, min_new_tokens=2, do_sample=False)
    assert torch.equal(output, expected)
    trace = recording.trace
    placed = trace["placements"].set_index("param")["residence"]
    on_disk = placed[placed.index.str.startswith("model.layers.1.")]
    assert set(on_disk) == {"offloaded_disk"}
    rows = trace["modules"].query("path == 'model.layers.1.mlp'")
    assert rows["device"].tolist() == ["cpu"] * 2  # what it made is there, its weights are not
    assert trace.rows("faults") == 0


@pytest.mark.skipif(release() < FIVE, reason="a forward on meta fails there")
def test_a_device_that_changes_between_calls_is_told_of_each():
    """The same place, another device: what was once looked at is no proof."""
    model = _model(0)
    with tracer.record(strict=True) as recording, torch.no_grad():
        for device in ("cpu", "meta"):
            mask = torch.ones(1, 1, 6, 6, dtype=torch.bool, device=device)
            model.to(device)(ROWS[:1].to(device), attention_mask=mask, use_cache=False)
    rows = recording.trace["modules"].query("path == 'model.layers.0.mlp'").sort_values("seq")
    assert rows["device"].tolist() == ["cpu", "meta"]

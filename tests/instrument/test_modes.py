"""Whatever mode torch is in, the answer with a recording is the answer without one."""

import contextlib
import copy

import pytest
import torch
from instrument.toys import generate, hook_count, text_inputs
from transformers import LlamaConfig, LlamaForCausalLM

import tracer


@contextlib.contextmanager
def _deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


MODES = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "deterministic": _deterministic,
}


def _assert_same_answer(plain, recorded):
    assert torch.equal(recorded.sequences, plain.sequences)
    for name in ("logits", "scores"):
        mine, theirs = (torch.cat(getattr(one, name)) for one in (recorded, plain))
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_torch_changes_nothing_and_is_told(llama, mode):
    with MODES[mode]():
        plain, logits = generate(llama, text_inputs(2)), llama(**text_inputs()).logits
        with tracer.record(strict=True, detail="modules", values=True, logits=True) as recording:
            recorded, again = generate(llama, text_inputs(2)), llama(**text_inputs()).logits
    _assert_same_answer(plain, recorded)
    assert torch.equal(logits, again)
    assert logits.requires_grad == again.requires_grad
    assert logits.is_inference() == again.is_inference()
    trace = recording.trace
    told = mode if mode in ("inference_mode", "no_grad") else "grad"
    assert trace["calls"].query("kind == 'forward'")["grad_mode"].tolist() == [told]
    head = trace["modules"].query("path == 'lm_head'")["dtype"]
    assert set(head) == {"bfloat16" if mode == "autocast" else "float32"}
    assert trace.rows("faults") == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_model_of_another_precision_answers_the_same(llama, dtype):
    model = LlamaForCausalLM(llama.config).eval().to(dtype)
    plain = generate(model, text_inputs(2))
    with tracer.record(strict=True, values=True, logits=True) as recording:
        recorded = generate(model, text_inputs(2))
    _assert_same_answer(plain, recorded)
    name = str(dtype).removeprefix("torch.")
    assert set(recording.trace["modules"].query("path == 'lm_head'")["dtype"]) == {name}
    assert set(recording.trace["logits"]["dtype"]) == {name}


def test_a_functional_call_computes_with_the_weights_it_is_given(llama):
    weights = {name: 0.5 * one for name, one in llama.state_dict().items()}

    def answer():
        return torch.func.functional_call(llama, weights, kwargs=text_inputs()).logits

    plain = answer()
    with tracer.record(strict=True, detail="modules", values=True) as recording:
        recorded = answer()
    assert torch.equal(recorded, plain)
    assert recording.trace["calls"]["kind"].tolist() == ["forward"]
    assert hook_count(llama) == hook_count(copy.copy(llama))


# The attention kernel of the CPU says that it works row by row there.
under_vmap = pytest.mark.filterwarnings("ignore:There is a performance drop")


@under_vmap
def test_a_forward_under_vmap_is_recorded_with_the_shapes_that_its_code_sees(llama):
    def one(ids):
        return llama(input_ids=ids[None], use_cache=False).logits[0]

    ids = torch.arange(12).reshape(3, 4)
    with torch.no_grad():
        plain = torch.func.vmap(one)(ids)
        with tracer.record(strict=True, detail="modules") as recording:
            recorded = torch.func.vmap(one)(ids)
    assert torch.equal(recorded, plain)
    modules = recording.trace["modules"].set_index("path")
    assert modules.loc["lm_head", "output_shape"] == "[1, 4, 640]"


@under_vmap
def test_statistics_that_vmap_does_not_give_are_a_fault_and_the_answer_stays(llama):
    def one(ids):
        return llama(input_ids=ids[None], use_cache=False).logits[0]

    ids = torch.arange(12).reshape(3, 4)
    with torch.no_grad():
        plain = torch.func.vmap(one)(ids)
        with tracer.record(values=True) as recording:
            recorded = torch.func.vmap(one)(ids)
    assert torch.equal(recorded, plain)
    assert set(recording.trace["faults"]["target"]) == {"module hook"}
    modules = recording.trace["modules"].set_index("path")
    assert modules.loc[["model.embed_tokens", "lm_head"], "mean"].isna().all()


def test_a_model_without_values_gives_shapes_and_no_statistics(llama):
    config = copy.deepcopy(llama.config)
    config._attn_implementation = "eager"  # the other one asks the mask for a value
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval()
    given = {name: one.to("meta") for name, one in text_inputs(2).items()}
    plain = model(**given, use_cache=False).logits
    with tracer.record(strict=True, detail="modules", values=True) as recording:
        recorded = model(**given, use_cache=False).logits
    assert recorded.is_meta
    assert recorded.shape == plain.shape
    modules = recording.trace["modules"]
    assert set(modules["device"]) == {"meta"}
    assert modules["mean"].isna().all()
    assert recording.trace.rows("faults") == 0


def _gradients(model):
    model.zero_grad()
    torch.manual_seed(1)
    given = text_inputs(2)
    loss = model(**given, labels=given["input_ids"], use_cache=False).loss
    loss.backward()
    return loss.detach(), {name: one.grad.clone() for name, one in model.named_parameters()}


def _checkpointed(model):
    model.activation_checkpointing_enable()


def _reentrant(model):
    model.activation_checkpointing_enable({"use_reentrant": True})
    model.enable_input_require_grads()


TRAININGS = {"plain": lambda model: None, "checkpointed": _checkpointed, "reentrant": _reentrant}


@pytest.mark.parametrize("prepare", TRAININGS.values(), ids=TRAININGS)
def test_gradients_are_the_same_to_the_last_bit(llama, prepare):
    config = copy.deepcopy(llama.config)
    config.attention_dropout = 0.1  # random numbers that recomputation must draw again
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).train()
    prepare(model)
    count = hook_count(model)
    loss, plain = _gradients(model)
    with tracer.record(strict=True, detail="modules", values=True) as recording:
        loss_inside, recorded = _gradients(model)
    assert torch.equal(loss_inside, loss)
    assert recorded.keys() == plain.keys()
    assert all(torch.equal(recorded[name], plain[name]) for name in plain)
    assert hook_count(model) == count
    layers = recording.trace["modules"].query("path == 'model.layers.0'")
    assert layers["status"].tolist() == ["ok"]  # what the backward pass computes again is no step
    assert recording.trace["calls"]["kind"].tolist() == ["forward"]


def test_hooks_of_the_user_run_in_their_order_and_may_change_the_output(llama):
    order = []

    def pre(module, args, kwargs):
        order.append("pre")
        return (args[0] * 2, *args[1:]), kwargs

    def post(module, args, output):
        order.append("post")
        return output + 1

    def backward(module, given, made):
        order.append("backward")
        return (given[0] * 3,)

    model = LlamaForCausalLM(llama.config)
    norm = model.model.norm
    handles = [
        norm.register_forward_pre_hook(pre, with_kwargs=True),
        norm.register_forward_hook(post),
        norm.register_full_backward_hook(backward),
    ]
    _, plain = _gradients(model)
    with tracer.record(strict=True, detail="modules"):
        late = norm.register_forward_hook(post, prepend=True)
        late.remove()
        _, recorded = _gradients(model)
    assert all(torch.equal(recorded[name], plain[name]) for name in plain)
    assert order == ["pre", "post", "backward"] * 2
    for handle in handles:
        handle.remove()


@pytest.fixture
def small():
    """A model that compiles quickly, and what compiling left behind taken away."""
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    yield LlamaForCausalLM(config).eval()
    torch.compiler.reset()


def _in_place(model):
    model.compile(backend="eager", fullgraph=True)
    return model


def _its_forward(model):
    model.forward = torch.compile(model.forward, backend="eager")
    return model


def _a_part(model):
    model.model.layers[0].compile(backend="eager", fullgraph=True)
    return model


def _as_another(model):
    return torch.compile(model, backend="eager", fullgraph=True)


COMPILED = {
    "in place": (_in_place, "model-1"),
    "its forward": (_its_forward, "model-1"),
    "a part": (_a_part, "model-1 model.layers.0"),
    "as another": (_as_another, "LlamaForCausalLM"),
}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "inside"])
@pytest.mark.parametrize(("compile_", "fault"), COMPILED.values(), ids=COMPILED)
def test_a_compiled_model_answers_the_same_and_what_is_not_seen_of_it_is_a_fault(
    small, when, compile_, fault
):
    ids = torch.arange(1, 7)[None]
    with torch.no_grad():
        plain = small(input_ids=ids, use_cache=False).logits
        model = compile_(small) if when == "before" else small
        with tracer.record(strict=True) as recording:
            model = compile_(small) if when == "inside" else model
            recorded = model(input_ids=ids, use_cache=False).logits
        after = model(input_ids=ids, use_cache=False).logits
    assert torch.equal(recorded, plain)
    assert torch.equal(after, plain)
    assert hook_count(small) == 0
    assert recording.trace["faults"]["target"].tolist() == [fault]
    (call,) = recording.trace["calls"].itertuples()
    assert (call.kind, call.compiled) == ("forward", fault != "model-1 model.layers.0")


@pytest.mark.slow
def test_a_model_compiled_in_one_recording_answers_the_same_in_the_next(small):
    ids = torch.arange(1, 7)[None]
    with torch.no_grad():
        plain = small(input_ids=ids, use_cache=False).logits
        with tracer.record(strict=True):
            small(input_ids=ids, use_cache=False)
            _in_place(small)
            first = small(input_ids=ids, use_cache=False).logits
        with tracer.record(strict=True) as recording:
            second = small(input_ids=ids, use_cache=False).logits
    assert torch.equal(first, plain)
    assert torch.equal(second, plain)
    assert recording.trace["faults"]["reason"].str.contains("compiled").all()

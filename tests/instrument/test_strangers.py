"""Others patch the same library: theirs stays and works, ours goes, the answer is the same."""

import copy
import functools
import pickle
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from accelerate import cpu_offload, dispatch_model
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from instrument.toys import World, fingerprint, generate, hook_count, is_ours, text_inputs
from transformers import AutoModelForCausalLM
from transformers.generation.utils import GenerationMixin
from transformers.modeling_utils import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaForCausalLM

import tracer
from tracer.instrument import patching


class _Proxy:
    """A wrapper in the manner of wrapt: it pretends to be what it wraps, and tells who it is for.

    `seen` gets the object or class that each call was bound to.
    """

    def __init__(self, wrapped, seen):
        self.__wrapped__, self.seen = wrapped, seen

    @property
    def __class__(self):
        return type(self.__wrapped__)

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    def __get__(self, instance, owner):
        bound = self.__wrapped__.__get__(instance, owner)
        told = {classmethod: owner, staticmethod: None}.get(self.__class__, instance)

        def call(*args, **kwargs):
            self.seen.append(told)
            return bound(*args, **kwargs)

        return call

    def __call__(self, *args, **kwargs):
        self.seen.append(None)
        return self.__wrapped__(*args, **kwargs)


def _wrapt_proxy(wrapped, seen):
    wrapt = pytest.importorskip("wrapt")

    def note(wrapped, instance, args, kwargs):
        seen.append(instance)
        return wrapped(*args, **kwargs)

    return wrapt.FunctionWrapper(wrapped, note)


class _Toy:
    def plain(self, number):
        return type(self).__name__, number

    @classmethod
    def made(cls, number):
        return cls.__name__, number

    @staticmethod
    def still(number):
        return "still", number

    loose = functools.partial(divmod, 7)


def _noted(told):
    """A begin that only notes the arguments."""
    return lambda function, args, kwargs: told.append(args)


@pytest.mark.parametrize("proxy", [_Proxy, _wrapt_proxy])
@pytest.mark.parametrize("attribute", ["plain", "made", "still"])
def test_a_wrapper_under_ours_is_bound_to_what_the_call_is_for(proxy, attribute):
    seen, told = [], []
    owner = type("Owner", (_Toy,), {attribute: proxy(vars(_Toy)[attribute], seen)})
    heir = type("Heir", (owner,), {})
    alone, bound_alone = getattr(heir(), attribute)(3), seen.copy()
    placed = patching.place(owner, attribute, patching.observing(_noted(told), _fail), lambda: True)
    seen.clear()
    assert getattr(heir(), attribute)(3) == alone
    assert [type(one) for one in seen] == [type(one) for one in bound_alone]
    assert told[0][-1] == 3
    assert patching.undo(placed)
    assert type(vars(owner)[attribute]) is type(proxy(vars(_Toy)[attribute], seen))


def _fail(error):
    raise error


def test_a_callable_that_a_class_does_not_bind_stays_unbound():
    told = []
    placed = patching.place(_Toy, "loose", patching.observing(_noted(told), _fail), lambda: True)
    assert _Toy().loose(2) == (3, 1)
    assert told == [(2,)]
    assert patching.undo(placed)


PATCHED = (
    (PreTrainedModel, "from_pretrained"),
    (GenerationMixin, "generate"),
    (PreTrainedModel, "__call__"),
)


@pytest.fixture
def proxied(monkeypatch):
    """A stranger's wrappers on a class method, on a method and on what every forward calls."""
    seen = []
    for owner, name in PATCHED:
        raw = next(vars(base)[name] for base in owner.__mro__ if name in vars(base))
        monkeypatch.setattr(owner, name, _Proxy(raw, seen))
    return seen


def test_wrappers_that_were_there_first_see_what_they_always_see(proxied, llama_folder):
    def answer():
        proxied.clear()
        model = AutoModelForCausalLM.from_pretrained(llama_folder)
        output = generate(model, text_inputs(), max_new_tokens=2)
        return output.sequences, [one if one is LlamaForCausalLM else type(one) for one in proxied]

    plain, bound = answer()
    with tracer.record(strict=True) as recording:
        recorded, bound_inside = answer()
    assert torch.equal(recorded, plain)
    assert bound_inside == bound
    assert recording.trace.rows("faults") == 0
    assert recording.trace["calls"]["kind"].tolist()[-1] == "generate"


def _over(calls):
    """A stranger's patch of generate, over whatever is there; gives what puts that back."""
    below = vars(GenerationMixin)["generate"]

    @functools.wraps(below)
    def theirs(*args, **kwargs):
        calls.append(below)
        return below(*args, **kwargs)

    GenerationMixin.generate = theirs
    return functools.partial(setattr, GenerationMixin, "generate", below)


def test_a_patch_put_over_ours_and_removed_inside_the_block_is_no_matter(llama):
    before, calls = World.now(), []
    plain = generate(llama, text_inputs())
    with tracer.record(strict=True) as recording:
        put_back = _over(calls)
        recorded = generate(llama, text_inputs())
        put_back()
    assert before.differences() == []
    assert len(calls) == 1
    assert torch.equal(recorded.sequences, plain.sequences)
    assert recording.trace.rows("faults") == 0


def test_what_a_stranger_puts_back_after_the_block_is_inert_and_the_next_recording_takes_it_off(
    llama,
):
    before = World.now()
    plain = generate(llama, text_inputs())
    for _ in range(3):  # nothing piles up
        with tracer.record(strict=True) as recording:
            put_back = _over([])
            generate(llama, text_inputs())
        put_back()
        kept = vars(GenerationMixin)["generate"]
        assert is_ours(kept)
        assert not is_ours(kept.__wrapped__)
        assert torch.equal(generate(llama, text_inputs()).sequences, plain.sequences)
        assert recording.trace["faults"]["target"].tolist() == ["GenerationMixin.generate"]
    with tracer.record(strict=True) as recording:
        recorded = generate(llama, text_inputs())
    assert before.differences() == []
    assert torch.equal(recorded.sequences, plain.sequences)
    assert recording.trace.rows("calls") == 1


class _Hub:
    """Patches loads as ModelScope's `patch_hub()` does, of a class and of its heir."""

    def __init__(self):
        self.kept = []

    def patch(self):
        for owner in (LlamaForCausalLM, PreTrainedModel):
            bound = owner.from_pretrained
            self.kept.append((owner, bound))
            owner.from_pretrained = classmethod(functools.partial(self._load, bound.__func__))

    def _load(self, below, cls, *args, **kwargs):
        return below(cls, *args, **kwargs)

    def unpatch(self):
        for owner, bound in self.kept:
            owner.from_pretrained = classmethod(bound.__func__)


def _loaded(folder):
    return fingerprint(AutoModelForCausalLM.from_pretrained(folder))


@pytest.mark.parametrize("patched", ["before", "inside"])
@pytest.mark.parametrize("unpatched", ["inside", "after"])
def test_loads_patched_as_modelscope_does_are_the_same(llama_folder, patched, unpatched):
    raw, plain, hub = vars(PreTrainedModel)["from_pretrained"], _loaded(llama_folder), _Hub()
    try:
        if patched == "before":
            hub.patch()
        with tracer.record(strict=True) as recording:
            if patched == "inside":
                hub.patch()
            assert _loaded(llama_folder) == plain
            if unpatched == "inside":
                hub.unpatch()
                assert _loaded(llama_folder) == plain
        if unpatched == "after":
            hub.unpatch()
        assert _loaded(llama_folder) == plain
        with tracer.record(strict=True) as later:
            assert _loaded(llama_folder) == plain
        for owner in (LlamaForCausalLM, PreTrainedModel):
            left = vars(owner)["from_pretrained"].__func__
            assert not is_ours(left)
            assert getattr(left, "__func__", left) is raw.__func__
    finally:
        PreTrainedModel.from_pretrained = raw
        del LlamaForCausalLM.from_pretrained
    loads = recording.trace["calls"].query("name == 'LlamaForCausalLM.from_pretrained'")
    assert len(loads) >= 1
    assert "LlamaForCausalLM.from_pretrained" in set(later.trace["calls"]["name"])
    assert later.trace.rows("faults") == 0


def _fresh(model):
    """A model of the same weights without hooks of the library's own, which no pickle takes."""
    twin = type(model)(copy.deepcopy(model.config)).eval().to(model.dtype)
    twin.load_state_dict(model.state_dict())
    return twin


def _ours_in(value):
    return type(value).__module__.startswith("tracer") or is_ours(value)


def _carried(model):
    """What of the lab a model carries: hooks, and anything in the instances of its modules."""
    found = []
    for module in model.modules():
        for name, value in vars(module).items():
            inner = value.values() if isinstance(value, dict) else [value]
            found += [(name, one) for one in inner if _ours_in(one)]
    return found


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("family", ["llama", "seeing"])
def test_a_copy_of_a_traced_model_carries_nothing_of_the_lab(request, family, make):
    model = _fresh(request.getfixturevalue(family))
    inputs = text_inputs() if family == "llama" else dict(request.getfixturevalue("seeing_inputs"))
    plain = generate(model, inputs)
    with tracer.record(strict=True, detail="modules", values=True):
        generate(model, inputs)
        assert _carried(model)
        inside = make(model)
        assert b"tracer.instrument" not in pickle.dumps(model)
        own = generate(inside, inputs)
    after = make(model)
    assert _carried(model) == _carried(inside) == _carried(after) == []
    for answer in (own, generate(inside, inputs), generate(after, inputs)):
        assert torch.equal(answer.sequences, plain.sequences)
        assert torch.equal(torch.cat(answer.logits), torch.cat(plain.logits))


class _Counting(ModelHook):
    def __init__(self):
        self.calls = 0

    def pre_forward(self, module, *args, **kwargs):
        self.calls += 1
        return args, kwargs


def test_accelerates_hook_put_on_inside_the_block_stays(llama_folder):
    model, hook = AutoModelForCausalLM.from_pretrained(llama_folder), _Counting()
    plain = generate(model, text_inputs())
    with tracer.record(strict=True) as recording:
        add_hook_to_module(model.model.layers[0], hook)
        inside = generate(model, text_inputs())
    after = generate(model, text_inputs())
    assert hook.calls == 10
    assert model.model.layers[0]._hf_hook is hook
    assert torch.equal(inside.sequences, plain.sequences)
    assert torch.equal(after.sequences, plain.sequences)
    assert hook_count(model) == 0
    assert "model.layers.0" in set(recording.trace["modules"]["path"])


def test_accelerates_hook_taken_off_inside_the_block_is_off(llama_folder):
    model, hook = AutoModelForCausalLM.from_pretrained(llama_folder), _Counting()
    add_hook_to_module(model, hook)
    add_hook_to_module(model.model.layers[1].mlp, hook)
    plain = generate(model, text_inputs())
    with tracer.record(strict=True) as recording:
        with_hook = generate(model, text_inputs())
        remove_hook_from_module(model, recurse=True)
        without = generate(model, text_inputs())
    assert hook.calls == 20
    assert not any(hasattr(module, "_hf_hook") for module in model.modules())
    assert torch.equal(with_hook.sequences, plain.sequences)
    assert torch.equal(without.sequences, plain.sequences)
    assert recording.trace.rows("steps") == 10


def _dispatched(model, folder):
    plan = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    rest = {"model.norm": "disk", "model.rotary_emb": "cpu", "lm_head": "cpu"}
    return dispatch_model(
        model, plan | rest, main_device="cpu", offload_dir=folder, force_hooks=True
    )


OFFLOADS = {
    "cpu_offload": lambda model, folder: cpu_offload(model, torch.device("cpu")),
    "dispatch_model": _dispatched,
}


@pytest.mark.parametrize("offload", OFFLOADS.values(), ids=OFFLOADS)
def test_a_model_that_accelerate_offloads_inside_the_block_answers_the_same(
    llama_folder, tmp_path, offload
):
    model = AutoModelForCausalLM.from_pretrained(llama_folder)
    plain = generate(model, text_inputs())
    with tracer.record(strict=True) as recording:
        offload(model, tmp_path)
        inside = generate(model, text_inputs())
    assert any(parameter.is_meta for parameter in model.parameters())
    after = generate(model, text_inputs())
    remove_hook_from_module(model, recurse=True)
    assert hook_count(model) == 0
    assert torch.equal(inside.sequences, plain.sequences)
    assert torch.equal(torch.cat(inside.logits), torch.cat(after.logits))
    assert recording.trace.rows("steps") == 5


def test_a_model_whose_forward_is_replaced_inside_the_block_is_still_seen(llama):
    calls, forward = [], llama.forward

    def theirs(self, *args, **kwargs):
        calls.append(self)
        return forward(*args, **kwargs)

    functools.update_wrapper(theirs, type(llama).forward)
    plain = generate(llama, text_inputs())
    try:
        with tracer.record(strict=True) as recording:
            llama.forward = types.MethodType(theirs, llama)
            recorded = generate(llama, text_inputs())
        assert llama.forward.__func__ is theirs
    finally:
        del llama.forward
    assert len(calls) == 5
    assert torch.equal(recorded.sequences, plain.sequences)
    assert recording.trace.rows("steps") == 5


@pytest.mark.filterwarnings("ignore")  # of its own use of the library
@pytest.mark.parametrize("adapted", ["before", "inside"])
def test_an_adapter_of_peft_stays_and_answers_the_same(llama_folder, tmp_path, adapted):
    peft = pytest.importorskip("peft")

    def adapt():
        torch.manual_seed(3)
        settings = peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
        model = AutoModelForCausalLM.from_pretrained(llama_folder)
        return peft.get_peft_model(model, settings).eval()

    plain = generate(adapt(), text_inputs())
    model = adapt() if adapted == "before" else None
    with tracer.record(strict=True) as recording:
        model = model or adapt()
        inside = generate(model, text_inputs())
        model.save_pretrained(tmp_path)
        base = AutoModelForCausalLM.from_pretrained(llama_folder)
        read = peft.PeftModel.from_pretrained(base, tmp_path)
        again = generate(read, text_inputs())
    assert hook_count(model) == hook_count(read) == 0
    for answer in (inside, again, generate(model, text_inputs()), generate(read, text_inputs())):
        assert torch.equal(answer.sequences, plain.sequences)
        assert torch.equal(torch.cat(answer.logits), torch.cat(plain.logits))
    assert recording.trace.rows("steps") == 10
    assert recording.trace.rows("faults") == 0


# ModelScope patches every class that it knows and puts each back as the class's own, so it gets a
# process to itself.
HUB = """
import itertools, sys
sys.path[:0] = sys.argv[1].split(":")
from modelscope.utils.hf_util.patcher import patch_hub, unpatch_hub
from instrument.toys import fingerprint, is_ours, owners
from transformers import AutoModelForCausalLM
from transformers.modeling_utils import PreTrainedModel
import tracer

def load():
    return fingerprint(AutoModelForCausalLM.from_pretrained(sys.argv[2]))

def ours():
    return [(owner, name) for owner in owners().values() for name, one in vars(owner).items()
            if is_ours(one)]

plain = load()
for patched, unpatched in itertools.product(("before", "inside"), ("inside", "after")):
    if patched == "before":
        patch_hub()
    with tracer.record(strict=True) as recording:
        if patched == "inside":
            patch_hub()
        assert load() == plain
        if unpatched == "inside":
            unpatch_hub()
            assert load() == plain
    is_on = hasattr(PreTrainedModel, "_from_pretrained_origin")
    assert is_on == (unpatched == "after"), (patched, unpatched)
    if unpatched == "after":
        unpatch_hub()
    assert load() == plain
    print(patched, unpatched, len(ours()), recording.trace.rows("faults"))
    with tracer.record(strict=True) as later:
        assert load() == plain
    assert later.trace.rows("faults") == 0
    assert not ours(), ours()
print("all the same")
"""


@pytest.mark.slow
def test_modelscopes_patch_hub_stays_or_goes_as_its_user_says(llama_folder):
    pytest.importorskip("modelscope.utils.hf_util.patcher")
    root = Path(tracer.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", HUB, f"{root}:{root / 'tests'}", str(llama_folder)],
        capture_output=True,
        text=True,
    )
    assert done.stdout.endswith("all the same\n"), done.stdout + done.stderr

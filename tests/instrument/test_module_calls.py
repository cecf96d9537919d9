"""A module's call is told from where torch looks for a stand-in of it; nobody else may notice."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model
from instrument.toys import hook_count

import tracer
from tracer.instrument.modules import is_stand_in
from tracer.instrument.targets import STAND_IN

pytestmark = pytest.mark.generations

NORM = "model.norm"


def _stand_in(module):
    return vars(module).get(STAND_IN)


def _paths(recording):
    rows = recording.trace["modules"].sort_values("seq")
    return rows["path"].tolist(), rows["status"].tolist()


@pytest.fixture
def model():
    made = _model(0).eval()
    yield made
    assert hook_count(made) == 0


def test_single_modules_have_a_stand_in_and_models_have_hooks(model):
    """Others ask a model for a stand-in to learn whether it is compiled."""
    with tracer.record(strict=True, detail="modules"), torch.no_grad():
        model(ROWS)
        assert is_stand_in(_stand_in(model.model.norm))
        assert not model.model.norm._forward_hooks
        for one in (model, model.model):
            assert _stand_in(one) is None
            assert len(one._forward_hooks) == len(one._forward_pre_hooks) == 1


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_two_recordings_share_the_calls_and_may_end_in_any_order(model, first_ends_first):
    """The one that meets the model later finds the places taken, and uses torch's hooks."""
    first, second = tracer.start(strict=True), tracer.start(strict=True)
    pair = (first, second) if first_ends_first else (second, first)
    with torch.no_grad():
        model(ROWS)  # one of them is told
        pair[0].stop()
        model(ROWS)
        pair[1].stop()
    told = [_paths(one) for one in pair]
    paths = told[0][0] + told[1][0]
    assert set(told[0][1] + told[1][1]) == {"ok"}
    assert len(paths) == 2 * len(set(paths))
    for module in model.modules():
        assert STAND_IN not in vars(module)


class _OwnCall(torch.nn.Identity):
    def __call__(self, hidden):
        return super().__call__(hidden) * 2


class _OwnState(torch.nn.Identity):
    def __getstate__(self):
        return self.__dict__


@pytest.mark.parametrize("kind", [_OwnCall, _OwnState])
def test_a_class_with_a_call_or_a_state_of_its_own_is_told_by_torchs_hooks(model, kind):
    model.model.norm = torch.nn.Sequential(model.model.norm, kind())
    with tracer.record(strict=True, detail="modules") as recording, torch.no_grad():
        model(ROWS)
        assert _stand_in(model.model.norm[1]) is None
    assert "model.norm.1" in _paths(recording)[0]


def test_a_replica_is_called_itself(model):
    """Data parallelism copies a module's attributes as they are."""
    given = torch.ones(1, 32)
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
        head = model.lm_head
        replica = head._replicate_for_data_parallel()
        replica.weight, replica.bias = torch.zeros_like(head.weight), None
        assert is_stand_in(_stand_in(head))
        assert torch.equal(replica(given), torch.zeros(1, 40))
    assert recording.trace.rows("faults") == 0


def test_copies_and_pickles_have_no_stand_in(model):
    with tracer.record(strict=True), torch.no_grad():
        model(ROWS)
        norm = model.model.norm
        copies = copy.copy(norm), copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))
        assert is_stand_in(_stand_in(norm))
        assert [_stand_in(one) for one in copies] == [None] * 3
        given = torch.randn(2, 32)
        assert all(torch.equal(one(given), norm(given)) for one in copies)


def test_what_a_stranger_puts_in_its_place_stays(model):
    def theirs(*args, **kwargs):
        return model.model.norm._call_impl(*args, **kwargs)

    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
        plain = model(ROWS).logits
        vars(model.model.norm)[STAND_IN] = theirs
        assert torch.equal(model(ROWS).logits, plain)
    assert _stand_in(model.model.norm) is theirs
    del vars(model.model.norm)[STAND_IN]
    assert _paths(recording)[0].count(NORM) == 2


def test_a_stand_in_that_a_stranger_kept_does_nothing_but_call(model):
    with tracer.record(strict=True), torch.no_grad():
        model(ROWS)
        kept = _stand_in(model.model.norm)
    given = torch.randn(2, 32)
    with tracer.record(strict=True) as recording, torch.no_grad():
        assert torch.equal(kept(given), model.model.norm(given))
    assert recording.trace.rows("modules") == 0


def test_hooks_of_the_user_run_inside_of_what_is_told(model):
    """What they make of the output is what the module made."""
    norm, seen = model.model.norm, []
    handles = [
        norm.register_forward_pre_hook(lambda module, args: seen.append("before")),
        norm.register_forward_hook(lambda module, args, output: output[:, :2]),
    ]
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
    for handle in handles:
        handle.remove()
    assert seen == ["before"]
    (row,) = recording.trace["modules"].query("path == @NORM").itertuples()
    assert (row.input_shape, row.output_shape) == ("[2, 6, 32]", "[2, 2, 32]")


def test_the_users_error_passes_and_the_modules_that_it_passed_say_so(model):
    error = ValueError("the user's own")

    def fails(module, args):
        raise error

    handle = model.model.layers[1].mlp.register_forward_pre_hook(fails)
    with tracer.record(strict=True) as recording, torch.no_grad():
        with pytest.raises(ValueError, match="the user's own") as caught:
            model(ROWS)
        handle.remove()
        model(ROWS)
    assert caught.value is error
    rows = recording.trace["modules"]
    failed = rows[rows["status"] != "ok"]
    assert set(failed["status"]) == {"error"}
    assert set(failed["path"]) == {"", "model", "model.layers.1", "model.layers.1.mlp"}
    assert failed["duration_ns"].notna().all()


def test_a_module_that_makes_nothing_while_an_error_is_handled_has_not_failed(model):
    class Nothing(torch.nn.Module):
        def forward(self, hidden):
            return None

    model.model.nothing, plain = Nothing(), model.model.norm.forward

    def after_an_error(hidden):
        try:
            raise ValueError("handled")
        except ValueError:
            model.model.nothing(hidden)
        return plain(hidden)

    model.model.norm.forward = after_an_error
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
    del model.model.norm.forward
    (row,) = recording.trace["modules"].query("path == 'model.nothing'").itertuples()
    assert row.status == "ok"


def test_an_interrupt_that_a_forward_lets_pass_is_told_of_what_it_cut_short(model):
    """The modules above go on, those that it left never end."""

    def interrupted(module, args):
        raise KeyboardInterrupt

    mlp, plain = model.model.layers[1].mlp, model.model.layers[1].forward

    with torch.no_grad():
        made = []
        look = model.model.layers[1].register_forward_hook(lambda *called: made.append(called[-1]))
        model(ROWS)
        look.remove()
    gives_a_tuple = isinstance(made[0], tuple)  # of the older releases

    def forgiving(hidden, *args, **kwargs):
        try:
            return plain(hidden, *args, **kwargs)
        except KeyboardInterrupt:
            return (hidden,) if gives_a_tuple else hidden

    handle = mlp.register_forward_pre_hook(interrupted)
    model.model.layers[1].forward = forgiving
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
    handle.remove()
    del model.model.layers[1].forward
    rows = recording.trace["modules"].set_index("path")
    assert rows.loc["model.layers.1.mlp", "status"] == "interrupted"
    assert rows.loc["model.layers.1", "status"] == rows.loc[NORM, "status"] == "ok"
    assert rows.loc[NORM, "parent"] == rows.loc["model", "seq"]


def test_a_model_that_goes_while_recorded_goes_at_once(model):
    """Its weights may be gigabytes: nothing waits for Python's collector."""
    gone = copy.deepcopy(model)
    alone = weakref.ref(copy.deepcopy(model).model.norm)
    assert alone() is None  # the library itself leaves no cycle there
    with tracer.record(strict=True, detail="modules"), torch.no_grad():
        gone(ROWS)
        norm = weakref.ref(gone.model.norm)
        gc.disable()
        try:
            del gone
            assert norm() is None
        finally:
            gc.enable()


def test_a_deep_copy_of_a_module_that_copies_itself_is_called_itself(model):
    """A parametrised module copies its attributes as they are."""
    with tracer.record(strict=True), torch.no_grad():
        model(ROWS)
        late = model.model.layers[0].mlp.up_proj
        torch.nn.utils.parametrizations.weight_norm(late)
        given = torch.randn(1, 32)
        copied = copy.deepcopy(late)
        copied.parametrizations.weight.original0.zero_()
        assert torch.count_nonzero(copied(given)) == 0
        assert torch.count_nonzero(late(given))
    torch.nn.utils.parametrize.remove_parametrizations(late, "weight")


def test_a_call_that_is_changed_while_recorded_is_the_one_that_runs(model):
    norm = model.model.norm
    with tracer.record(strict=True), torch.no_grad():
        model(ROWS)
        norm._call_impl = lambda hidden: hidden * 0
        assert torch.count_nonzero(model(ROWS).logits) == 0
    del norm._call_impl


def _copied_by_hand(module):
    """Some libraries copy a module so, to share its parameters."""
    made = type(module).__new__(type(module))
    made.__dict__ = module.__dict__.copy()
    made._parameters = module._parameters.copy()
    return made


def _updated(module):
    made = torch.nn.Linear(1, 1)
    made.__dict__.update(vars(module), _parameters=module._parameters.copy())
    return made


@pytest.mark.parametrize("copied", [_copied_by_hand, _updated])
@pytest.mark.parametrize("when", ["while it is on", "the original is gone", "it has ended"])
def test_a_copy_that_was_made_by_hand_is_called_itself(model, copied, when):
    """Its attributes are the original's, the stand-in of the call among them."""
    given = torch.randn(2, 32)
    recording = tracer.start(strict=True)
    with torch.no_grad():
        model(ROWS)
        head = model.lm_head
        plain = head(given)
        assert is_stand_in(_stand_in(head))
        made = copied(head)
        made._parameters["weight"] = torch.nn.Parameter(torch.zeros_like(head.weight))
        if when == "it has ended":
            recording.stop()
        elif when == "the original is gone":
            model.lm_head = torch.nn.Identity()
            del head
        for _ in range(2):
            assert torch.count_nonzero(made(given)) == 0
        assert _stand_in(made) is None
        if when != "the original is gone":
            assert torch.equal(model.lm_head(given), plain)
            model(ROWS)
    trace = recording.stop()
    assert trace.rows("faults") == 0
    told = trace["modules"]["path"].tolist().count("lm_head")
    assert told == (2 if when == "while it is on" else 1)


def test_a_module_with_a_stand_in_is_not_taken_for_a_compiled_one(model):
    """As peft asks it, before it prepares a model for the exchange of compiled adapters."""
    with tracer.record(strict=True), torch.no_grad():
        model(ROWS)
        assert is_stand_in(_stand_in(model.model.norm))
        assert not getattr(model.model.norm, STAND_IN, False)


class _Twice(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


@pytest.mark.parametrize("way", ["forward", "generate"])
def test_a_module_that_is_put_in_later_is_told_from_the_next_call_on(model, way):
    def call():
        if way == "forward":
            model(ROWS)
        else:
            model.generate(ROWS, max_new_tokens=1, do_sample=False)

    with tracer.record(strict=True, detail="modules") as recording, torch.no_grad():
        call()
        model.model.norm = _Twice(model.model.norm)
        model.model.layers.append(torch.nn.Identity())  # called by nobody
        call()
    trace = recording.trace
    assert trace.rows("faults") == 0
    first, second = trace["calls"].query("parent == -1")["call"]
    paths = {seq: rows["path"].tolist() for seq, rows in trace["modules"].groupby("call")}
    assert NORM in paths[first]
    assert f"{NORM}.inner" not in paths[first]
    assert paths[second].count(NORM) == paths[second].count(f"{NORM}.inner") == 1
    rows = trace["modules"].query("call == @second").set_index("path")
    assert rows.loc[f"{NORM}.inner", "parent"] == rows.loc[NORM, "seq"]
    assert rows.loc[NORM, "class_name"] == "_Twice"


def test_a_module_that_left_the_model_is_told_no_more(model):
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
        norm, model.model.norm = model.model.norm, torch.nn.Identity()
        model(ROWS)
        assert _stand_in(norm) is None
    assert _paths(recording)[0].count(NORM) == 2  # the second is its successor's


def test_whoever_empties_a_stand_ins_place_leaves_a_fault_and_is_told_again(model):
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
        model.model.norm._compiled_call_impl = None
        model.model.norm(torch.randn(2, 32))
        model(ROWS)
        model.lm_head._compiled_call_impl = None
    trace = recording.trace
    assert _paths(recording)[0].count(NORM) == 2
    faults = trace["faults"].sort_values("seq")
    assert faults["target"].tolist() == ["model-1 model.norm", "model-1 lm_head"]
    assert faults["reason"].str.contains("taken away").all()
    second = trace["calls"]["start_ns"].max()
    assert faults["start_ns"].iloc[0] <= second <= faults["start_ns"].iloc[1]


@pytest.mark.slow
def test_a_part_that_is_compiled_while_recorded_says_so(model):
    with tracer.record(strict=True) as recording, torch.no_grad():
        plain = model(ROWS).logits
        model.lm_head.compile(backend="eager")
        assert torch.equal(model(ROWS).logits, plain)
    torch.compiler.reset()
    reasons = recording.trace["faults"].query("target == 'model-1 lm_head'")["reason"]
    assert any("compiled" in one for one in reasons)


class _Doubled(torch.nn.Module):
    def forward(self, hidden):
        return hidden * 2


_Doubled.__annotations__ = {}  # scripting would write it


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda one: torch.jit.trace(one, torch.ones(1))]
)
@pytest.mark.filterwarnings("ignore")
def test_a_scripted_part_keeps_no_other_module_from_being_told(model, make):
    model.model.norm = torch.nn.Sequential(model.model.norm, make(_Doubled()))
    with torch.no_grad():
        plain = model(ROWS).logits
        with tracer.record(strict=True, detail="modules", values=True) as recording:
            assert torch.equal(model(ROWS).logits, plain)
    trace = recording.trace
    paths = trace["modules"]["path"].tolist()
    assert {"", "model", NORM, "model.norm.0", "lm_head"} <= set(paths)
    assert trace.rows("faults") == 0
    row = trace["modules"].set_index("path").loc["model.norm.1"]
    assert (row["output_shape"], row["status"]) == ("[2, 6, 32]", "ok")

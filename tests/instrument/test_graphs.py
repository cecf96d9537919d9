"""A graph that torch makes of a model is the same with and without a recording."""

import re

import pytest
import torch
from instrument.test_beams_and_drafts import ROWS, _model
from instrument.toys import hook_count
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import tracer
from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE

pytestmark = [pytest.mark.generations, pytest.mark.filterwarnings("ignore")]

NORM = "model.norm"
needs_five = pytest.mark.skipif(release() < FIVE, reason="torch can't trace a model of it")


@pytest.fixture
def model():
    made = _model(0).eval()
    yield made
    assert hook_count(made) == 0


class _Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


@pytest.mark.skipif(release() < FIVE, reason="torch can't trace a model of it")
@pytest.mark.filterwarnings("ignore")
def test_what_is_traced_into_a_graph_is_a_fault_and_costs_no_other_row(model):
    with tracer.record(strict=True) as recording, torch.no_grad():
        model(ROWS)
        torch.jit.trace(_Logits(model), (ROWS,), check_trace=False)
    trace = recording.trace
    assert set(trace["faults"]["target"]) == {"torch.jit.trace", "LlamaForCausalLM.forward"}
    assert trace["modules"]["path"].value_counts()[NORM] == 1


def test_an_export_with_symbols_for_sizes_is_left_alone(model):
    given = torch.randn(2, 3, 32)
    sizes = ({1: torch.export.Dim("length", min=2, max=16)},)
    with tracer.record(strict=True), torch.no_grad():
        model(ROWS)
        mlp = model.model.layers[0].mlp
        program = torch.export.export(mlp, (given,), dynamic_shapes=sizes)
    longer = torch.randn(2, 9, 32)
    assert torch.allclose(program.module()(longer), mlp(longer))


class _Step(_Logits):
    """A forward that makes a cache, and is given positions and a mask."""

    def forward(self, ids):
        places = torch.arange(ids.shape[1]).expand(ids.shape)
        given = {"attention_mask": (ids != 0).long(), "position_ids": places}
        return self.model(ids, use_cache=True, **given).logits


def _exported(module):
    return str(torch.export.export(module, (ROWS,), strict=False).graph)


def _exported_strictly(module):
    return str(torch.export.export(module, (ROWS,), strict=True).graph)


def _traced(module):
    graph = torch.jit.trace(module, (ROWS,), check_trace=False).inlined_graph
    return re.findall(r"aten::\w+", str(graph))


OPTIONS = {
    "layers": {},
    "modules": {"detail": "modules"},
    "values": {"detail": "modules", "values": True},
    "logits": {"logits": True, "values": True},
}


@needs_five
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@pytest.mark.parametrize("kind", [_Logits, _Step])
@pytest.mark.parametrize("draw", [_exported, _traced])
def test_nothing_of_the_lab_is_in_a_graph_of_a_model(model, draw, kind, options):
    with torch.no_grad():
        plain = draw(kind(model))
        with tracer.record(strict=True, **options) as recording:
            model(ROWS)
            drawn = draw(kind(model))
            model(ROWS)
    assert drawn == plain
    trace = recording.trace
    assert trace["calls"]["status"].tolist() == ["ok"] * 3
    (told,) = trace["faults"].query("target == 'LlamaForCausalLM.forward'").itertuples()
    assert told.call == trace["calls"].sort_values("seq")["seq"].iloc[1]
    if "values" in options:
        values = trace["modules"].dropna(subset="mean")
        assert set(values["call"]) == set(trace["calls"]["seq"]) - {told.call}


@needs_five
@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_nothing_of_the_lab_is_in_a_strict_export(model, options):
    with torch.no_grad():
        plain = _exported_strictly(_Logits(model))
        with tracer.record(**options):
            model(ROWS)
            assert _exported_strictly(_Logits(model)) == plain


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_nothing_of_the_lab_is_in_a_graph_of_a_part(model, options):
    given, part = torch.randn(1, 6, 32), model.model.layers[0].mlp
    draws = (lambda: make_fx(part)(given).graph, lambda: torch.fx.symbolic_trace(part).graph)
    with torch.no_grad():
        plain = [str(draw()) for draw in draws]
        with tracer.record(strict=True, **options):
            model(ROWS)
            assert [str(draw()) for draw in draws] == plain


class _Operations(TorchDispatchMode):
    """Notes each operation, as counters of operations do."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def test_values_are_read_where_no_mode_of_the_user_sees_it(model):
    with torch.no_grad():
        with _Operations() as plain:
            model(ROWS)
        with (
            tracer.record(strict=True, detail="modules", values=True) as recording,
            _Operations() as seen,
        ):
            model(ROWS)
    assert seen.names == plain.names
    assert recording.trace["modules"]["mean"].notna().all()

"""A model's tensors by every name, and where the values of each are."""

import torch
from accelerate.hooks import AlignDevicesHook, SequentialHook, add_hook_to_module
from accelerate.utils import OffloadedWeightsLoader, PrefixedDataset, offload_state_dict

from tracer.instrument.loads.named_tensors import named_tensors, residence, shared_names


def _places(model):
    return {each.name: residence(each) for each in named_tensors(model)}


def _offloaded(module, weights, prefix):
    """Placeholders instead of values, which a hook brings at each call."""
    hook = AlignDevicesHook(
        execution_device="cpu", offload=True, weights_map=PrefixedDataset(weights, prefix)
    )
    add_hook_to_module(module, hook)


def test_one_map_may_hold_some_weights_in_memory_and_some_on_the_disk(tmp_path):
    """As accelerate makes it where an accelerator, the memory and the disk share a model."""
    model = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    values = model.state_dict()
    offload_state_dict(tmp_path, {name: one for name, one in values.items() if name[0] == "1"})
    in_memory = {name: one for name, one in values.items() if name[0] == "2"}
    weights = OffloadedWeightsLoader(state_dict=in_memory, save_folder=tmp_path)
    for number in (1, 2):
        _offloaded(model[number], weights, f"{number}.")
    assert _places(model) == {
        "0.weight": "resident",
        "0.bias": "resident",
        "1.weight": "offloaded_disk",
        "1.bias": "offloaded_disk",
        "2.weight": "offloaded_cpu",
        "2.bias": "offloaded_cpu",
    }


def test_a_placeholder_that_no_map_can_fill_is_nowhere(tmp_path):
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    offload_state_dict(tmp_path, {"0.weight": model[0].weight.detach()})
    _offloaded(model[0], dict(model.state_dict()), "0.")
    # What the hook was given is gone, but for one weight.
    model[0]._hf_hook.weights_map.dataset = OffloadedWeightsLoader(save_folder=tmp_path)
    assert _places(model) == {"0.weight": "offloaded_disk", "0.bias": "meta"}


def test_one_of_several_hooks_may_hold_the_weights():
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
    _offloaded(model[0], dict(model.state_dict()), "0.")
    own = model[0]._hf_hook
    model[0]._hf_hook = SequentialHook(AlignDevicesHook(), own)
    assert set(_places(model).values()) == {"offloaded_cpu"}


def test_names_that_stand_for_one_tensor_are_found_by_the_tensor():
    model = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False) for _ in range(3))
    model[2].weight = model[0].weight
    assert shared_names(named_tensors(model)) == [["0.weight", "2.weight"]]

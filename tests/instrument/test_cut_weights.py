"""Weights that are cut over several ranks: each rank's part against its part of the source.

The ranks that share a mesh are made up: torch's own fake group answers for the others, so that one
process can be any of them. What torch itself would hand to a rank is what a part is held against;
two real processes are in `test_torchrun.py`.
"""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from tracer.instrument.installer import release
from tracer.instrument.targets import FIVE
from tracer.instrument.verifying import slices

pytestmark = pytest.mark.generations


@pytest.fixture(params=[0, 2])
def mesh(request):
    """Three ranks, of which this process is the first or the last."""
    dist.init_process_group("fake", rank=request.param, world_size=3, store=FakeStore())
    yield init_device_mesh("cpu", (3,))
    dist.destroy_process_group()


def _first_part(tensor, whole, mesh):
    return next(iter(slices.parts(tensor, whole, mesh)))


@pytest.mark.parametrize("shape", [(6, 4), (7, 4), (2, 4)], ids=str)
@pytest.mark.parametrize("placement", [Shard(0), Shard(1), Shard(-1), Replicate()], ids=str)
def test_a_rank_has_what_torch_hands_to_it(mesh, shape, placement):
    """Evenly, with less for the last, and with nothing for it."""
    whole = torch.arange(shape[0] * shape[1]).reshape(shape)
    cut = distribute_tensor(whole, mesh, [placement], src_data_rank=None)
    part, words = _first_part(cut, whole, mesh)
    assert torch.equal(part, cut.to_local())
    assert ("this rank's" in words) == (placement != Replicate())


def test_the_words_name_the_places(mesh):
    whole = torch.arange(12).reshape(6, 2)
    cut = distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
    place = {0: "0 to 1", 2: "4 to 5"}[mesh.get_local_rank()]
    assert _first_part(cut, whole, mesh)[1] == f", {place} of 6 in dimension 0 being this rank's"


def test_two_packed_halves_are_cut_one_by_one(mesh):
    from torch.distributed.tensor.placement_types import _StridedShard

    whole = torch.arange(12)
    cut = DTensor.from_local(
        torch.zeros(4), mesh, [_StridedShard(0, split_factor=2)], run_check=False,
        shape=torch.Size([12]), stride=(1,),
    )  # fmt: skip
    part, words = _first_part(cut, whole, mesh)
    rank = mesh.get_local_rank()
    assert part.tolist() == [2 * rank, 2 * rank + 1, 6 + 2 * rank, 7 + 2 * rank]
    assert f"{2 * rank} to {2 * rank + 1}, {6 + 2 * rank} to {7 + 2 * rank} of 12" in words


def test_a_plain_tensor_is_whole_unless_generation_four_cut_it(mesh):
    whole = torch.arange(12).reshape(6, 2)
    rank = mesh.get_local_rank()
    found = [part.tolist() for part, _ in slices.parts(torch.zeros(2, 2), whole, mesh)]
    if release() >= FIVE:
        assert found == [whole.tolist()]
    else:  # cut in one piece, or two halves cut one by one
        assert found == [whole[2 * rank : 2 * rank + 2].tolist(), whole[[rank, 3 + rank]].tolist()]
    assert [words for _, words in slices.parts(whole, whole, mesh)] == [""]
    assert [words for _, words in slices.parts(whole, whole, None)] == [""]

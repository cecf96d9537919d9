"""Two real processes under torchrun share one model, and each records what it did of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

import tracer
from tracer.errors import IncompleteTraceWarning
from tracer.schema import TABLES

# The group of processes is made inside the first recording, by the load itself.
WORKER = """
import json, os, signal, sys
import torch
import torch.distributed as dist
import tracer
from transformers import AutoModelForCausalLM

folder, out = sys.argv[1:]
torch.set_num_threads(1)
prompt = torch.tensor([[5, 6, 7, 8]])

def answer(model):
    with torch.no_grad():
        logits = model(prompt).logits
    ids = model.generate(prompt, max_new_tokens=4, do_sample=False)
    return ids.tolist(), logits.numpy().tobytes().hex()

with tracer.record(f"{out}/load", strict=True, verify_weights=True) as load:
    model = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto")
    recorded = answer(model)
rank = dist.get_rank()
bare = answer(model)
with tracer.record(f"{out}/load", strict=True, if_exists="number") as again:
    answer(model)
said = {"same": recorded == bare, "ids": recorded[0][0], "paths": [str(load.path), str(again.path)]}
with open(f"{out}/rank-{rank}.json", "w") as file:
    json.dump(said, file)
if rank == 0:
    with tracer.record(f"{out}/alone", strict=True):
        model.config
with tracer.record(f"{out}/killed", strict=True):
    answer(model)
    if rank == 1:
        dist.barrier()
        os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""


@pytest.fixture(scope="module")
def out(llama_folder, tmp_path_factory):
    """What both ranks left behind: a load, an answer, one rank alone, and a kill at the end."""
    folder = tmp_path_factory.mktemp("torchrun")
    script = folder / "worker.py"
    script.write_text(WORKER)
    root = str(Path(tracer.__file__).parent.parent)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*command, "--nproc-per-node", "2", str(script), str(llama_folder), str(folder)],
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert "Signal 9 (SIGKILL)" in done.stderr, done.stderr
    return folder


def said_by(out, rank):
    return json.loads((out / f"rank-{rank}.json").read_text())


pytestmark = [pytest.mark.slow, pytest.mark.generations]


def test_the_answer_is_the_same_with_and_without_a_recording(out):
    assert [said_by(out, rank)["same"] for rank in (0, 1)] == [True, True]


def test_each_rank_records_into_its_own_folder_of_the_same_run(out):
    for rank in (0, 1):
        assert said_by(out, rank)["paths"] == [
            f"{out}/load/rank-0000{rank}",
            f"{out}/load-2/rank-0000{rank}",
        ]


@pytest.mark.parametrize("run", ["load", "load-2"])
def test_both_ranks_open_as_one_trace(out, run):
    trace = tracer.open_trace(out / run)
    assert trace.manifest["state"] == "complete"
    assert "2 ranks" in trace.summary().splitlines()[0]
    for table in trace.tables:
        frame = trace[table]
        assert not frame.duplicated(list(TABLES[table].key)).any(), table
        if TABLES[table].is_event:
            assert (frame["seq"] // 2**40).equals(frame["rank"])
    tokens = trace["tokens"]
    for rank in (0, 1):
        of_rank = tokens[tokens["rank"] == rank]
        assert of_rank["token_id"].tolist() == said_by(out, rank)["ids"]
    # Four of generate(), and a forward of the user's own, which fills a cache.
    steps = trace["steps"].groupby("rank").size()
    assert steps.to_dict() == {0: 5, 1: 5}


def test_every_rank_passes_its_audit(out):
    audit = tracer.open_trace(out / "load").audit().set_index("check")
    broken = set(audit.index[audit["verdict"] == "broken"])
    if (
        transformers.__version__ < "4.57"
    ):  # it makes the group of processes in the body of from_pretrained
        broken -= {"5 explained time"}
    assert not broken
    assert audit.loc["1 one fate a tensor", "verdict"] == "holds"
    assert audit.loc["2 one placement a parameter", "verdict"] == "holds"
    assert audit.loc["0 ranks whole", "verdict"] == "holds"


def test_each_rank_compares_its_part_of_every_weight(out):
    trace = tracer.open_trace(out / "load")
    placed = trace["placements"]
    assert set(placed["verified"]) == {"equal"}
    cut = placed[placed["verified_because"].str.contains("being this rank's")]
    parts = cut.groupby("param")["verified_because"].nunique()
    assert len(parts) > 10
    assert set(parts) == {2}  # each rank its own
    audit = trace.audit().set_index("check")
    assert audit.loc["4 values = sources", "verdict"] == "holds"


def test_every_read_of_every_rank_is_timed(out):
    """Of a tensor that is cut each rank reads its part, and together they read all of it once."""
    trace = tracer.open_trace(out / "load")
    assert trace.rows("faults") == 0
    loads, held = trace["tensor_loads"], trace["checkpoint_tensors"]
    assert len(loads) == len(held)
    assert loads[["read_ns", "cast_ns"]].notna().all(axis=None)
    assert set(loads["status"]) == {"ok"}
    assert set(loads["discarded"]) == {False}
    whole = held.set_index(["rank", "key"])["size_bytes"]
    part = loads.set_index(["rank", "key"])["size_bytes"]
    shares = (part / whole).groupby("key").sum()
    assert set(shares) == {1.0, 2.0}  # halves, or both ranks the whole
    assert (shares == 1).sum() > 10
    audit = trace.audit().set_index("check")
    assert audit.loc["1 reads = fates", "verdict"] == "holds"
    assert audit.loc["8 targets seen", "verdict"] == "holds"


def test_steps_of_both_ranks_lie_side_by_side_on_one_time_line(out):
    """Each forward of a tensor-parallel model waits for the other rank's."""
    trace = tracer.open_trace(out / "load-2")
    paired = {rank["clock"]["paired"] for rank in trace.manifest["ranks"]}
    assert paired == {"after a barrier"}
    steps = trace["steps"]
    first, second = (steps[steps["rank"] == rank].reset_index() for rank in (0, 1))
    ends = first["start_ns"] + first["duration_ns"]
    assert (second["start_ns"] < ends).all()
    ends = second["start_ns"] + second["duration_ns"]
    assert (first["start_ns"] < ends).all()


def test_a_rank_that_records_alone_is_not_kept_waiting_for_ever(out):
    with pytest.warns(IncompleteTraceWarning, match="nothing is there of rank 1"):
        trace = tracer.open_trace(out / "alone")
    assert trace.manifest["ranks"][0]["clock"]["paired"] == "alone"


def test_a_killed_rank_is_told_apart_from_the_one_that_ended(out):
    trace = tracer.open_trace(out / "killed")
    states = [rank["state"] for rank in trace.manifest["ranks"]]
    assert states == ["complete", "interrupted"]
    assert "Rank 1 interrupted" in trace.summary()
    calls = trace["calls"]
    assert "generate" in set(calls.loc[calls["rank"] == 0, "kind"])


EXPERTS = """
import sys
import torch
import tracer
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

folder, out, how = sys.argv[1:]
torch.set_num_threads(1)
sizes = {"experts": {"tp_size": 2, "ep_size": 2}, "sharded": {"fsdp_size": 2}}[how]
with tracer.record(out, strict=True, verify_weights=True):
    AutoModelForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(**sizes))
"""


@pytest.mark.skipif(transformers.__version__ < "5", reason="generation 4 has no such arguments")
@pytest.mark.parametrize("how", ["experts", "sharded"])
def test_experts_that_ranks_share_are_read_by_the_rank_that_holds_them(tmp_path, how):
    """Expert parallel, and FSDP: each rank passes over the experts that are another's."""
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
    )  # fmt: skip
    folder, script, out = tmp_path / "mixtral", tmp_path / "worker.py", tmp_path / "run"
    transformers.MixtralForCausalLM(config).save_pretrained(folder)
    script.write_text(EXPERTS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run(
        [*command, "--nproc-per-node", "2", str(script), str(folder), str(out), how],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(tracer.__file__).parent.parent),
            "OMP_NUM_THREADS": "1",
        },
        check=True,
        capture_output=True,
    )
    trace = tracer.open_trace(out)
    assert trace.rows("faults") == 0
    assert set(trace["placements"]["verified"]) == {"equal"}
    fates = trace["checkpoint_tensors"]
    of_experts = fates[fates["key"].str.contains("experts")]
    assert of_experts.groupby(["rank", "fate"]).size().to_dict() == {
        (rank, fate): 12 for rank in (0, 1) for fate in ("converted", "skipped")
    }
    taken = of_experts[of_experts["fate"] == "converted"]
    assert sorted(taken["key"]) == sorted(of_experts["key"].unique())  # each by one of them
    reads = trace["tensor_loads"]
    assert sorted(reads.loc[reads["key"].str.contains("experts"), "key"]) == sorted(taken["key"])
    audit = trace.audit().set_index("check")["verdict"].drop("5 explained time")
    assert audit.index[audit == "broken"].tolist() == []

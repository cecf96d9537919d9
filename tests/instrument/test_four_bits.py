"""Blocks of four bits that transformers 4 unpacks as it loads: compared with what is in memory."""

import json

import pytest
import torch
from instrument.packed import in_four_bits

import tracer
from tracer.instrument.installer import release

if not (4, 55) <= release() < (5, 0):
    pytest.skip("this release does not unpack them, or in another way", allow_module_level=True)

from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM

pytestmark = [pytest.mark.generations, pytest.mark.filterwarnings("ignore")]
NAME = "model.layers.0.mlp.experts.gate_up_proj"


@pytest.fixture
def folder(tmp_path):
    """A toy of GPT-OSS as it is published."""
    torch.manual_seed(0)
    config = GptOssConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, pad_token_id=0,
        num_local_experts=2, num_experts_per_tok=1, layer_types=["full_attention"],
    )  # fmt: skip
    GptOssForCausalLM(config).bfloat16().save_pretrained(tmp_path)
    in_four_bits(tmp_path)
    return tmp_path


def _changed(audit):
    row = audit.set_index("check").loc["4 parameters = sources"]
    return row["verdict"], json.loads(row["evidence"])


def test_what_is_unpacked_equals_its_blocks(folder):
    with tracer.record(verify_weights=True) as recording:
        model = AutoModelForCausalLM.from_pretrained(folder)
    placed = recording.trace["placements"].set_index("param")
    assert set(placed["verified"]) == {"equal"}
    assert _changed(tracer.audit_model(model, folder)) == ("holds", [])
    with torch.no_grad():
        model.get_parameter(NAME).view(-1)[5] += 1
    verdict, (said,) = _changed(tracer.audit_model(model, folder))
    assert verdict == "broken"
    assert said.startswith(f"{NAME}: differs from its source in 1 of ")

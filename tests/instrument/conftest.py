"""Toy models built once, a recorded demo, and a guard round every test."""

import dataclasses
from typing import Any

import pytest
import torch
from instrument.toys import MODELS, World, ask, generate, text_inputs
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
)

import tracer
from tracer.demo import checkpoint_folder


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Toys are so small that a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _nothing_is_left():
    """Every patched owner, hook, finder, handler and registry is after a test what it was."""
    before = World.now()
    assert before.differences() == []
    yield
    assert before.differences() == []


def _built(model):
    MODELS.append(model.eval())
    return model


def _llama_config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=640,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )


@pytest.fixture(scope="session")
def llama_in_one_file(tmp_path_factory):
    """Give a function that saves a Llama of some sizes in one safetensors file."""

    def saved(**sizes):
        folder = tmp_path_factory.mktemp("one_file") / "llama"
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**sizes)).save_pretrained(folder)
        return folder

    return saved


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory):
    """A sharded Llama, its head not tied."""
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(_llama_config())
    model.save_pretrained(folder, max_shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory):
    """A GPT-2 in one file, its head tied to the embeddings."""
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=640, n_positions=64, n_embd=32, n_layer=2, n_head=4,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def llama(llama_folder):
    """A Llama made before any recording; the library has placed its own hooks already."""
    model = AutoModelForCausalLM.from_pretrained(llama_folder)
    model(**text_inputs(), output_hidden_states=True)
    return _built(model)


@pytest.fixture(scope="session")
def gpt2(gpt2_folder):
    """A GPT-2 made before any recording."""
    return _built(AutoModelForCausalLM.from_pretrained(gpt2_folder))


@pytest.fixture(scope="session")
def processor():
    """The demo's processor, loaded before any recording."""
    return AutoProcessor.from_pretrained(checkpoint_folder())


@pytest.fixture(scope="session")
def seeing():
    """The demo model, loaded before any recording."""
    return _built(AutoModelForImageTextToText.from_pretrained(checkpoint_folder()))


@pytest.fixture(scope="session")
def seeing_inputs(processor):
    """What the demo model is asked, as tensors."""
    return ask(processor)[1]


@dataclasses.dataclass
class Recorded:
    """A trace, and the library's own answers that it must agree with."""

    trace: Any
    model: Any
    processor: Any
    text: str
    inputs: Any
    output: Any

    @property
    def answer_ids(self) -> list[int]:
        """The generated ids."""
        return self.output.sequences[0, self.inputs["input_ids"].shape[1] :].tolist()


def _record_demo(path: Any, **settings: Any) -> Recorded:
    before = World.now()
    with tracer.record(path, strict=True, logits=True) as recording:
        processor = AutoProcessor.from_pretrained(checkpoint_folder())
        model = AutoModelForImageTextToText.from_pretrained(checkpoint_folder())
        text, inputs = ask(processor)
        inputs = inputs.to(model.device)
        output = generate(model, inputs, **settings)
        processor.batch_decode(output.sequences, skip_special_tokens=True)
    assert before.differences() == []
    return Recorded(recording.trace, _built(model), processor, text, inputs, output)


@pytest.fixture(scope="session")
def sampled(tmp_path_factory):
    """The demo loaded and asked while recording to a folder; sampled, three processors."""
    return _record_demo(tmp_path_factory.mktemp("runs") / "sampled", max_new_tokens=6)


@pytest.fixture(scope="session")
def greedy():
    """The same in memory, greedy."""
    return _record_demo(None, do_sample=False, repetition_penalty=1.0)


@pytest.fixture(scope="session", params=["sampled", "greedy"])
def demo(request):
    """Each recorded demo in turn."""
    return request.getfixturevalue(request.param)

"""Faults in where the values of a model come from."""

import torch
from diagnosis.bench import Bench, rewritten
from diagnosis.cases import clean, fault
from instrument.scaled import Filled, Scaled, ScaledConfig
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BertForPreTraining,
    LlamaForCausalLM,
)

ALL = (
    "layers_dropped",
    "weights_initialised",
    "head_random",
    "weights_mismatched",
    "weights_prefixed",
)
ALL += ("left_on_meta", "buffers_unwritten", "ties_undone", "tie_overwrote", "layers_dropped")
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def loaded(bench: Bench, folder, auto=AutoModelForCausalLM, *, verify=False, **given):
    """The trace of a load."""
    with bench.recorded(verify_weights=verify) as recording:
        auto.from_pretrained(folder, **given)
    return recording.trace


def changed(bench: Bench, family, change):
    """A copy of a family's folder whose tensors were changed."""
    folder = bench.copy(bench.folder(family))
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
    return folder


@clean(*ALL, "weights_differ")
def a_checkpoint_in_its_own_class(bench: Bench):
    return loaded(bench, bench.folder("llama"), verify=True)


@clean(*ALL, "weights_differ")
def a_head_that_the_file_lacks_since_it_is_tied(bench: Bench):
    return loaded(bench, bench.folder("qwen2"), verify=True)


@clean(*ALL)
def experts_that_are_merged_while_loading(bench: Bench):
    return loaded(bench, bench.folder("mixtral"))


@fault("weights_initialised")
def a_layer_that_the_file_lacks(bench: Bench):
    folder = changed(bench, "llama", lambda held: {
        key: one for key, one in held.items() if ".layers.1.mlp." not in key
    })  # fmt: skip
    return loaded(bench, folder)


@fault("head_random")
def a_language_model_as_a_classifier(bench: Bench):
    return loaded(bench, bench.folder("llama"), AutoModelForSequenceClassification)


@fault("head_random")
def a_base_model_as_a_language_model(bench: Bench):
    folder = changed(bench, "llama", lambda held: {
        key: one for key, one in held.items() if key != HEAD
    })  # fmt: skip
    return loaded(bench, folder)


@fault("weights_mismatched")
def another_vocabulary_let_pass(bench: Bench):
    config = AutoConfig.from_pretrained(bench.folder("llama"))
    config.vocab_size = 80
    return loaded(bench, bench.folder("llama"), config=config, ignore_mismatched_sizes=True)


@fault("weights_prefixed")
def every_name_behind_a_word(bench: Bench):
    folder = changed(bench, "llama", lambda held: {f"word.{key}": one for key, one in held.items()})
    return loaded(bench, folder)


@fault("weights_prefixed")
def experts_behind_a_word(bench: Bench):
    folder = changed(
        bench, "mixtral", lambda held: {f"word.{key}": one for key, one in held.items()}
    )
    return loaded(bench, folder)


@fault("weights_prefixed")
def attention_under_another_name_in_each_layer(bench: Bench):
    folder = changed(
        bench,
        "llama",
        lambda held: {key.replace(".self_attn.", ".attention."): one for key, one in held.items()},
    )
    return loaded(bench, folder)


@fault("head_random")
def a_pretrained_bert_as_a_classifier(bench: Bench):
    folder = bench.new()
    BertForPreTraining(AutoConfig.from_pretrained(bench.folder("bert"))).save_pretrained(folder)
    return loaded(bench, folder, AutoModelForSequenceClassification)


def cut_in_config(bench: Bench):
    """A configuration with half of the file's layers."""
    folder = bench.copy(bench.folder("llama"))
    rewritten(folder / "config.json", lambda config: config.update(num_hidden_layers=1))
    return folder


@fault("layers_dropped")
def a_load_of_half_the_layers(bench: Bench):
    return loaded(bench, cut_in_config(bench))


@fault("layers_dropped", also=("folder_without_tokenizer",))
def a_folder_of_more_layers_than_configured(bench: Bench):
    return cut_in_config(bench)


class _Doubled(LlamaForCausalLM):
    """A class of the user's that changes a weight as its load ends."""

    def eval(self):
        with torch.no_grad():
            self.model.norm.weight.mul_(2)
        return super().eval()


@fault("weights_differ")
def a_class_that_changes_a_weight(bench: Bench):
    return loaded(bench, bench.folder("llama"), _Doubled, verify=True)


def tied_with_two_values(bench: Bench):
    """A configuration that ties, over a file with values of its own for both names."""
    folder = bench.copy(bench.folder("llama"))
    rewritten(folder / "config.json", lambda config: config.update(tie_word_embeddings=True))
    return folder


@fault("ties_undone", generations=(5,))
def two_values_for_a_tied_pair(bench: Bench):
    return loaded(bench, tied_with_two_values(bench))


@fault("tie_overwrote", also=("weights_differ",), generations=(4,))
def a_head_that_the_tie_overwrote(bench: Bench):
    return loaded(bench, tied_with_two_values(bench), verify=True)


class _Lost(LlamaForCausalLM):
    """A class of the user's that gives up a parameter's values as its load ends."""

    def eval(self):
        self.model.norm.to("meta")
        return super().eval()


@fault("left_on_meta")
def a_norm_that_lost_its_values(bench: Bench):
    return loaded(bench, bench.folder("llama"), _Lost)


@fault("left_on_meta", also=("weights_initialised",), generations=(4,))
def a_tied_pair_under_the_name_that_is_no_source(bench: Bench):
    folder = changed(bench, "qwen2", lambda held: {
        HEAD if key == EMBEDDING else key: one for key, one in held.items()
    })  # fmt: skip
    return loaded(bench, folder)


@fault("buffers_unwritten", generations=(5,))
def a_buffer_that_nobody_fills(bench: Bench):
    folder = bench.new()
    Scaled(ScaledConfig()).save_pretrained(folder)
    return loaded(bench, folder, Scaled)


@clean("buffers_unwritten")
def a_buffer_that_the_class_fills(bench: Bench):
    folder = bench.new()
    Filled(ScaledConfig()).save_pretrained(folder)
    return loaded(bench, folder, Filled)


def as_bin(bench: Bench, wrap):
    """A GPT-2 saved by `torch.save`, its state dict put into something by a function."""
    folder = bench.copy(bench.folder("gpt2"))
    path = folder / "model.safetensors"
    torch.save(wrap(load_file(path)), folder / "pytorch_model.bin")
    path.unlink()
    return folder


@fault("weights_nested")
def a_checkpoint_of_a_training_script(bench: Bench):
    return loaded(bench, as_bin(bench, lambda held: {"epoch": 3, "state_dict": held}))


@fault("weights_nested", also=("folder_without_tokenizer",))
def a_folder_with_a_checkpoint_of_a_training_script(bench: Bench):
    return as_bin(bench, lambda held: {"model": held, "step": torch.tensor(1)})


@clean("weights_nested", *ALL)
def a_state_dict_as_it_is(bench: Bench):
    return loaded(bench, as_bin(bench, dict))

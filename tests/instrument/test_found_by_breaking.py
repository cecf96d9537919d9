"""What broke once when somebody tried: each stays mended."""

import copy
import io
import pickle

import pytest
import torch
from instrument.toys import hook_count, text_inputs
from transformers import AutoTokenizer

import tracer
from tracer.demo import checkpoint_folder


def test_a_setting_with_keys_that_json_lacks_is_kept_as_text(llama):
    with tracer.record(strict=True) as recording:
        llama.generate(**text_inputs(), max_new_tokens=2, sequence_bias={(5, 6): -1.0})
    settings = recording.trace["settings"].set_index("setting")
    assert settings.loc["sequence_bias", "effective"] == '{"(5, 6)": -1.0}'
    assert recording.trace.rows("faults") == 0


def test_a_cell_that_can_not_be_stored_costs_its_row_alone(llama):
    with tracer.record() as recording:
        llama.generate(**text_inputs(), max_new_tokens=2, do_sample=False)
        recording._recorder.add_fact("inputs", -1, -1, tensor="odd", size_bytes="no number")
    trace = recording.trace
    assert trace["faults"]["target"].tolist() == ["inputs"]
    assert trace["inputs"]["tensor"].tolist() == ["input_ids", "attention_mask"]
    assert trace.rows("choices") == 2


def test_a_model_is_copied_pickled_and_saved_inside_the_block(llama):
    # The shared one carries hooks of the library's own, which no pickle takes.
    model = type(llama)(llama.config).eval()
    with tracer.record(strict=True):
        model(**text_inputs())
        twin = copy.deepcopy(model)
        torch.save(model, io.BytesIO())
        read = pickle.loads(pickle.dumps(model))
    expected = model(**text_inputs()).logits
    assert torch.equal(twin(**text_inputs()).logits, expected)
    assert torch.equal(read(**text_inputs()).logits, expected)
    assert hook_count(model) == 0


@pytest.mark.parametrize("words", ["help", "You", "s", "im", "<|im_end|>", "你", "assistant"])
def test_words_that_stand_elsewhere_in_the_prompt_are_found_where_their_author_put_them(words):
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder())
    turn = {"role": "user", "content": words}
    answer = {"role": "assistant", "content": "ok"}
    with tracer.record(strict=True) as recording:
        text = tokenizer.apply_chat_template([turn, answer, turn], tokenize=False)
    segments = recording.trace["segments"].query("origin == 'user'").sort_values("start")
    assert segments["text"].tolist() == [words, words]
    assert segments["message"].tolist() == [0, 2]
    for start in segments["start"]:
        assert text[:start].endswith("<|im_start|>user\n")


def test_positions_that_run_apart_from_the_tokens_break_the_audit(llama):
    class Wandering(type(llama)):
        def prepare_inputs_for_generation(self, *args, **kwargs):
            inputs = super().prepare_inputs_for_generation(*args, **kwargs)
            inputs["position_ids"] = inputs["position_ids"] + torch.randint(1, 9, (1,))
            return inputs

    wandering = Wandering(llama.config).eval()
    torch.manual_seed(0)
    with tracer.record(strict=True) as recording:
        wandering.generate(**text_inputs(), max_new_tokens=4, do_sample=False, eos_token_id=[])
    verdicts = recording.trace.audit().set_index("check")["verdict"]
    assert verdicts["6 positions"] == "broken"


@pytest.mark.parametrize(
    ("ids", "attended"),
    [([5, 6, 2, 7, 8, 2, 9], 0), ([2, 2, 5, 6, 7, 8, 9], 2), ([5, 6, 7, 8, 2, 2, 2], 2)],
    ids=["turn ends inside", "padded left", "padded right"],
)
def test_ends_of_turns_are_no_padding_where_pad_is_the_end_token(llama, ids, attended):
    given = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids)).long()}
    with tracer.record(strict=True) as recording:
        llama.generate(**given, max_new_tokens=1, pad_token_id=2, eos_token_id=2)
    assert recording.trace["calls"]["attended_pads"].tolist() == [attended]

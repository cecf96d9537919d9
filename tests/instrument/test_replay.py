"""The recorded chain over the recorded logits gives the run again, without torch or a model."""

import pytest
import torch
from instrument.test_beams_and_drafts import REPEATS, ROWS, STOPS, _model
from transformers import BartConfig, BartForConditionalGeneration

import tracer
from tracer.analysis.replay import Link, chain_of, replay, replayable_until
from tracer.instrument.installer import release

pytestmark = pytest.mark.generations
WITH_TOP_H = (5, 0)


@pytest.fixture(scope="module")
def model():
    return _model(0)


def _run(model, ids=ROWS, logits=True, **settings):
    torch.manual_seed(3)
    given = {"input_ids": ids, "attention_mask": (ids != 0).long(), "max_new_tokens": 8}
    with tracer.record(strict=True, logits=logits) as recording:
        model.generate(**(given | {"eos_token_id": STOPS} | settings))
    return recording.trace


CHAINS = {
    "none": {"do_sample": False},
    "repetition": {"do_sample": False, "repetition_penalty": 1.4},
    "n-grams and lengths": {
        "do_sample": False, "no_repeat_ngram_size": 2, "min_new_tokens": 4, "min_length": 9,
    },
    "suppressed": {
        "do_sample": False, "suppress_tokens": [31, 36], "begin_suppress_tokens": [12, 22],
        "forced_eos_token_id": 2, "remove_invalid_values": True,
    },
    "biased and banned": {
        "do_sample": False, "sequence_bias": [[[12], 2.0], [[31], -3.0], [[12, 14], 5.0]],
        "bad_words_ids": [[31], [22, 14], [36, 37, 38]],
    },
    "decay": {"do_sample": False, "exponential_decay_length_penalty": (1, 1.8)},
    "temperature, top k, top p": {"do_sample": True, "temperature": 0.7, "top_k": 9, "top_p": 0.8},
    "min p, renormalised": {
        "do_sample": True, "min_p": 0.05, "renormalize_logits": True, "top_k": 0,
    },
    "typical, epsilon, eta": {
        "do_sample": True, "typical_p": 0.7, "epsilon_cutoff": 0.01, "eta_cutoff": 0.02, "top_k": 0,
    },
    "beams": {"do_sample": False, "num_beams": 3, "repetition_penalty": 1.3},
    "beams, several": {"do_sample": False, "num_beams": 3, "num_return_sequences": 2},
    "sampled beams": {"do_sample": True, "num_beams": 2, "top_k": 6, "temperature": 0.8},
    "several sequences": {"do_sample": True, "num_return_sequences": 2, "top_k": 5},
}  # fmt: skip


if release() >= WITH_TOP_H:
    CHAINS["top h"] = {"do_sample": True, "top_h": 0.6, "top_k": 0}


@pytest.mark.parametrize("settings", CHAINS.values(), ids=CHAINS)
def test_the_chain_over_the_logits_gives_every_choice_again(model, settings):
    trace = _run(model, **settings)
    again = replay(trace)
    assert len(again) == trace.rows("choices") > 0
    assert set(again["basis"]) == {"measured"}
    assert again["stops_at"].isna().all()
    assert again["replayed_logprob"].tolist() == pytest.approx(again["logprob"].tolist(), abs=1e-4)
    if "num_beams" not in settings:
        scores = again["score"].astype(float).tolist()
        assert again["replayed_score"].tolist() == pytest.approx(scores, rel=1e-5, abs=1e-5)
        if not settings["do_sample"]:
            assert again["replayed_id"].tolist() == again["token_id"].tolist()


@pytest.mark.parametrize("penalty", [1.0, 1.3])
def test_places_of_drafts_are_replayed_too(model, penalty):
    settings = {"prompt_lookup_num_tokens": 3, "do_sample": False, "repetition_penalty": penalty}
    trace = _run(model, REPEATS, max_new_tokens=12, eos_token_id=2, **settings)
    again = replay(trace)
    assert len(again) == trace.rows("choices")
    assert not trace["choices"]["accepted"].all()
    scores = again["score"].astype(float).tolist()
    assert again["replayed_score"].tolist() == pytest.approx(scores, rel=1e-5, abs=1e-5)
    accepted = trace["choices"][trace["choices"]["accepted"]]
    merged = again.merge(accepted[["step", "row", "offset"]])
    assert merged["replayed_id"].tolist() == merged["token_id"].tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_half_precision_are_read_as_they_are(dtype):
    trace = _run(_model(0).to(dtype), do_sample=False, repetition_penalty=1.2)
    again = replay(trace)
    assert again["replayed_id"].tolist() == again["token_id"].tolist()


def test_a_chain_says_from_where_it_cannot_be_run_again(model):
    def own(ids, scores):
        return scores + 1

    trace = _run(model, do_sample=False, repetition_penalty=1.3, logits_processor=[own])
    chain = trace["chain"].query("kind == 'processor'").sort_values("index")
    place = chain["class_name"].tolist().index("function")
    assert chain["origin"].tolist()[place] == "call"
    assert set(chain.drop(chain.index[place])["origin"]) == {"library"}
    assert replayable_until(chain_of(trace)) == place
    assert set(replay(trace)["stops_at"]) == {place}


def test_a_class_of_the_users_with_a_name_of_the_librarys_is_not_taken_for_it(model):
    class TopKLogitsWarper:
        top_k = 1

        def __init__(self):
            self.top_k = 1

        def __call__(self, ids, scores):
            return scores

    trace = _run(model, do_sample=False, logits_processor=[TopKLogitsWarper()])
    assert replayable_until(chain_of(trace)) == 0


def test_what_if_gives_what_the_library_gives_for_other_parameters(model):
    trace = _run(model, do_sample=False, eos_token_id=[])
    penalty = [Link("RepetitionPenaltyLogitsProcessor", {"penalty": 1.5})]
    other = replay(trace, chain=penalty)
    plain = replay(trace)
    assert other["replayed_id"].tolist() != plain["replayed_id"].tolist()
    changed = _run(model, do_sample=False, eos_token_id=[], repetition_penalty=1.5)
    # Up to the first other token both runs have the same ids, and so must agree on it.
    for row, mine in other.groupby("row"):
        theirs = changed["choices"].query("row == @row").sort_values("step")["token_id"].tolist()
        base = plain[plain["row"] == row]["token_id"].tolist()
        until = next((n for n, (a, b) in enumerate(zip(theirs, base, strict=True)) if a != b), 7)
        assert mine["replayed_id"].tolist()[: until + 1] == theirs[: until + 1]


def test_banned_words_of_several_ids_act_on_the_candidates_too(model):
    first = _run(model, do_sample=False)["choices"].query("row == 0").sort_values("step")
    pair = first["token_id"].tolist()[1:3]  # in a row: with the first, the second is banned
    settings = {"do_sample": False, "bad_words_ids": [pair]}
    trace = _run(model, logits=False, **settings)
    again = replay(trace)
    assert set(again["basis"]) == {"estimated"}
    assert again["stops_at"].isna().all()
    assert again["replayed_id"].tolist() == again["token_id"].tolist()
    changed = trace["choices"].query("row == 0").sort_values("step")["token_id"].tolist()
    assert changed[:2] == first["token_id"].tolist()[:2]
    assert changed[2] != pair[1]


def test_without_logits_what_follows_from_the_candidates_is_an_estimate(model):
    trace = _run(model, logits=False, do_sample=False)
    again = replay(trace)
    assert set(again["basis"]) == {"estimated"}
    assert again["replayed_id"].tolist() == again["token_id"].tolist()


def test_an_encoder_decoder_is_replayed_from_its_decoders_ids():
    config = BartConfig(
        vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, init_std=0.5,
        forced_bos_token_id=0, forced_eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    bart = BartForConditionalGeneration(config).eval()
    trace = _run(bart, ROWS[:1], do_sample=False, num_beams=1, eos_token_id=2)
    again = replay(trace)
    assert len(again) > 1
    assert again["replayed_id"].tolist() == again["token_id"].tolist()


def test_a_trace_without_a_generate_has_nothing_to_replay(model):
    with tracer.record(strict=True) as recording:
        model(ROWS, use_cache=False)
    assert replay(recording.trace).empty

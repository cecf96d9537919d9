"""A model is asked, and any answer goes on from any of its tokens as a fresh run would."""

import json
import threading

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tracer
from tracer import keeping
from tracer.conversation import Message, Settings
from tracer.demo import checkpoint_folder, draw_scene
from tracer.errors import CheckpointError, SessionStateError, TracerError
from tracer.keeping import KEPT_CACHES, logits_bytes
from tracer.machine import Room

GREEDY = Settings(do_sample=False, max_new_tokens=24)
PICTURE = Message(
    "user",
    "Describe this image.",
    images=(draw_scene("red circle top left, blue star bottom right"),),
)


@pytest.fixture(scope="module")
def lab():
    return tracer.Lab.open()


@pytest.fixture(scope="module")
def seen(lab):
    return lab.ask([PICTURE], GREEDY)


def fresh(lab, answer, prefix, **settings):
    """Tokens of a plain `generate()` over the same ids, without a cache to begin with."""
    ids = torch.tensor([[*answer.prompt_ids, *prefix]])
    features = lab._branching._features(answer, ids)
    with torch.random.fork_rng():
        torch.manual_seed(settings.pop("seed", 0))
        output = lab.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), **features, **settings
        )
    return output[0, len(answer.prompt_ids) :].tolist()


def test_an_answer_is_told_with_everything_that_was_recorded_of_it(lab, seen):
    assert "red circle" in seen.text
    assert seen.ended == "done"
    choices = seen.trace["choices"]
    assert choices["token_id"].tolist() == seen.ids
    assert seen.trace.rows("logits") == len(seen.ids)
    assert (seen.trace.audit()["verdict"] != "broken").all()


def test_a_model_is_loaded_once_and_shared(lab):
    again = tracer.Lab.open(checkpoint_folder())
    assert tracer.Lab.open().model is lab.model
    assert again.model is tracer.Lab.open(str(checkpoint_folder())).model
    shared = tracer.Lab.open(lab.model, lab.front)
    assert shared.model is lab.model
    assert tracer.Lab.open(lab.model).opened is shared.opened


def test_two_threads_that_open_a_model_at_once_load_it_once(tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(tracer.Lab.open(checkpoint_folder())))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(lab.model) for lab in found}) == 1


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_branch_out_of_the_cache_gives_the_tokens_of_a_fresh_run(lab, seen, at):
    lab.ask("Hello", Settings(do_sample=False, max_new_tokens=2))  # leaves positions of its own
    other = int(
        seen.trace["candidates"].query("step == @at and token_rank == 1")["token_id"].iloc[0]
    )
    branch = lab.branch(seen, at, other)
    prefix = [*seen.ids[:at], other]
    assert branch.note == ""
    assert branch.ids == fresh(lab, seen, prefix, do_sample=False, max_new_tokens=24 - at - 1)
    assert branch.ids[: at + 1] == prefix
    assert (branch.parent, branch.branched_at) == (seen, at)


def test_a_sampled_branch_repeats_with_its_seed(lab):
    settings = Settings(do_sample=True, temperature=2.0, top_k=0, seed=5, max_new_tokens=12)
    answer = lab.ask([PICTURE], settings)
    assert lab.ask([PICTURE], settings).ids == answer.ids
    branch = lab.branch(answer, 4, " blue")
    added = len(lab._branching._ids(" blue"))
    expected = fresh(
        lab,
        answer,
        branch.ids[: 4 + added],
        seed=5,
        do_sample=True,
        temperature=2.0,
        top_k=0,
        max_new_tokens=12 - 4 - added,
    )
    assert branch.ids == expected


def test_a_branch_of_a_branch_keeps_its_whole_prefix(lab, seen):
    first = lab.branch(seen, 2, " blue")
    second = lab.branch(first, 5, " green")
    assert second.ids[:5] == first.ids[:5]
    assert second.ids == fresh(
        lab, seen, second.ids[: 5 + len(lab._branching._ids(" green"))], do_sample=False,
        max_new_tokens=24 - 5 - len(lab._branching._ids(" green")),
    )  # fmt: skip


def test_where_no_cache_was_kept_the_prefix_is_encoded_again_and_the_branch_says_so(lab):
    answer = lab.ask([PICTURE], Settings(do_sample=False, max_new_tokens=8, use_cache=False))
    branch = lab.branch(answer, 2, " blue")
    assert "encoded again" in branch.note
    prefix = [*answer.ids[:2], *lab._branching._ids(" blue")]
    assert branch.ids == fresh(
        lab, answer, prefix, do_sample=False, use_cache=False, max_new_tokens=8 - len(prefix)
    )


def test_where_arithmetic_differs_with_a_cache_the_prefix_is_encoded_again():
    lab = tracer.Lab.open(checkpoint_folder())  # in bfloat16, as its file is
    answer = lab.ask([PICTURE], Settings(do_sample=False, max_new_tokens=12))
    branch = lab.branch(answer, 2, " blue")
    assert "with and without a cache" in branch.note
    prefix = [*answer.ids[:2], *lab._branching._ids(" blue")]
    assert branch.ids == fresh(
        lab, answer, prefix, do_sample=False, max_new_tokens=12 - len(prefix)
    )


def test_the_first_branch_records_its_own_run_and_knows_its_tokens_texts():
    """Comparing arithmetic with and without a cache is the lab's own work, not the answer's."""
    lab = tracer.Lab.open()
    lab._branching._is_same_arithmetic = None
    answer = lab.ask([PICTURE], GREEDY)
    branch = lab.branch(answer, 2, " blue")
    assert branch.note == ""
    assert "forward" not in branch.trace["calls"]["kind"].tolist()
    assert branch.trace["steps"]["step"].is_unique
    texts = "".join(branch.trace["choices"]["text"])
    assert texts.removesuffix("<|im_end|>")
    assert branch.text.endswith(texts.removesuffix("<|im_end|>"))
    assert branch.trace["candidates"]["text"].notna().all()


def test_old_caches_are_freed_and_their_answers_can_still_be_continued():
    lab = tracer.Lab.open()
    answers = [lab.ask("Hello", Settings(max_new_tokens=2)) for _ in range(KEPT_CACHES + 1)]
    assert answers[0].cache is None
    assert answers[1].cache is not None
    assert "no longer kept" in lab.branch(answers[0], 1, "x").note


def test_logits_of_the_last_answers_are_kept_within_a_bound(monkeypatch):
    lab = tracer.Lab.open()
    one = logits_bytes(lab.ask("Hello", GREEDY))
    assert one > 1000
    monkeypatch.setattr(keeping, "KEPT_LOGITS_BYTES", round(2.5 * one))
    held = []
    for _ in range(6):
        lab.ask("Hello", GREEDY)
        held.append(sum(map(logits_bytes, lab.answers)))
    assert max(held) <= 2.5 * one
    assert [bool(logits_bytes(answer)) for answer in lab.answers] == [False] * 5 + [True] * 2
    whole, lessened = lab.answers[-1].trace, lab.answers[0].trace
    assert lessened["candidates"].shape == whole["candidates"].shape
    assert lessened["faults"]["target"].tolist() == ["logits"]
    assert lessened.manifest["dropped"] == ["logits"]
    assert (lessened.audit()["verdict"] != "broken").all()
    assert not lessened["events"].duplicated("seq").any()
    assert whole["faults"].empty


def test_the_newest_answer_keeps_its_logits_whatever_they_take(monkeypatch):
    lab = tracer.Lab.open()
    monkeypatch.setattr(keeping, "KEPT_LOGITS_BYTES", 1)
    older, newest = lab.ask("Hello", GREEDY), lab.ask("Hello", GREEDY)
    assert newest.trace.rows("logits") == len(newest.ids)
    assert older.trace.rows("logits") == 0
    assert older.cache is None
    branch = lab.branch(older, 1, "x")
    assert "no longer kept" in branch.note


def test_logits_that_lie_on_a_disk_take_no_memory(tmp_path, monkeypatch):
    lab = tracer.Lab.open()
    monkeypatch.setattr(keeping, "KEPT_LOGITS_BYTES", 1)
    answer = lab.ask("Hello", GREEDY, path=tmp_path / "answer")
    lab.ask("Hello", GREEDY)
    assert logits_bytes(answer) == 0
    assert answer.trace.rows("logits") == len(answer.ids)


def test_a_stop_keeps_what_was_made(lab):
    stop, rows = threading.Event(), []

    def told(row):
        rows.append(row)
        if len(rows) == 2:
            stop.set()

    answer = lab.ask([PICTURE], GREEDY, on_choice=told, stop=stop)
    assert answer.ended == "stopped"
    assert 2 < len(answer.ids) < 6
    assert [row["token_id"] for row in rows] == answer.ids
    assert {"text", "probability", "entropy"} <= rows[0].keys()


def test_an_answer_can_be_made_to_begin_with_a_text(lab):
    answer = lab.ask([PICTURE], GREEDY, answer_begins="A blue")
    assert answer.prompt.endswith("A blue")
    assert answer.text.startswith(" ")


def test_the_user_s_own_random_numbers_are_left_alone(lab):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    lab.ask("Hello", Settings(do_sample=True, seed=3, max_new_tokens=2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_count_needs_no_model_and_is_what_is_fed(lab, seen):
    assert lab.count([PICTURE]) == len(seen.prompt_ids)
    assert lab.context_limit is not None


def test_a_failed_answer_is_kept_with_its_trace(lab):
    with pytest.raises(ValueError, match="top_p"):
        lab.ask("Hello", Settings(do_sample=True, top_p=-0.5, max_new_tokens=3))
    assert lab.answers[-1].ended == "failed"
    assert "top_p" in lab.answers[-1].error
    assert lab.answers[-1].trace["calls"]["status"].isin(["error"]).any()
    assert lab.ask("Hello", Settings(max_new_tokens=1)).ended == "done"


def test_a_second_question_at_the_same_time_is_refused(lab):
    refused = []

    def told(row):
        if not refused:
            with pytest.raises(SessionStateError, match="answering already") as caught:
                tracer.Lab.open().ask("and you?")
            refused.append(caught.value)

    lab.ask("Hello", Settings(max_new_tokens=3), on_choice=told)
    assert refused


@pytest.mark.parametrize(
    ("question", "message"), [([], "no question"), ([Message("system", "Be kind.")], "no question")]
)
def test_a_conversation_without_a_question_is_one_sentence(lab, question, message):
    with pytest.raises(TracerError, match=message):
        lab.ask(question)


@pytest.mark.parametrize(("at", "token"), [(99, " x"), (-1, " x"), (0, "")])
def test_a_branch_that_cannot_be_is_one_sentence(lab, seen, at, token):
    with pytest.raises(TracerError, match=r"no(ne| token)"):
        lab.branch(seen, at, token)


def test_a_token_that_ends_the_answer_is_no_branch(lab, seen):
    with pytest.raises(TracerError, match="ends the answer"):
        lab.branch(seen, 2, seen.ids[-1])


def test_what_cannot_work_is_said_before_a_weight_is_read(tmp_path, monkeypatch):
    folder = tmp_path / "copy"
    folder.mkdir()
    for file in checkpoint_folder().iterdir():
        if "template" not in file.name:
            (folder / file.name).write_bytes(file.read_bytes())
    told = json.loads((folder / "tokenizer_config.json").read_text())
    told.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    with pytest.raises(CheckpointError, match="no chat template"):
        tracer.Lab.open(folder)
    monkeypatch.setattr("tracer.opening.memory_left", lambda: Room(1000, 1000, "a test"))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(CheckpointError, match=r"0\.0 GB of memory"):
        tracer.Lab.open(folder)


def test_a_model_in_memory_needs_its_processor(lab):
    bare = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=1,
        )
    )  # fmt: skip
    with pytest.raises(TracerError, match="processor"):
        tracer.Lab.open(bare)
    with pytest.raises(TracerError, match="no generate"):
        tracer.Lab.open(torch.nn.Linear(2, 2))

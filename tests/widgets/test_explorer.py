"""The explorer by its callbacks: asked, stopped, looked into, branched, compared, exported.

One embedded model for all; no browser, no kernel. What is shown is read from the widgets' traits.
"""

import io
import math
import re
import subprocess
import sys
import threading
import zipfile

import pandas as pd
import pytest
import torch
from PIL import Image

import tracer
from tracer import keeping
from tracer.conversation import Message
from tracer.errors import TracerError
from tracer.widgets import export, runs
from tracer.widgets.explorer import Explorer
from tracer.widgets.inherited import tokens_of

HOSTILE = "<script>alert('你好，世界！')</script>"
SEEDED = {"max_new_tokens": "24", "temperature": "3", "top_p": "0.99", "seed": "2"}


def begin(**options):
    explorer = Explorer(delay=0.0, **options)
    assert explorer.settle(120)
    assert explorer.state.phase == "ready", explorer.state.log
    return explorer


def ask(explorer, question="Describe this image.", **fields):
    for name, value in (SEEDED | fields).items():
        explorer.type_setting(name, value)
    explorer.type_text("question", question)
    explorer.press_run()
    assert explorer.settle(120)
    return explorer.state.run


def shown(explorer, name, trait="value"):
    return getattr(explorer.panel.named[name], trait)


@pytest.fixture(scope="module")
def explorer(tmp_path_factory):
    """One that has answered a question about a picture."""
    explorer = begin(folder=tmp_path_factory.mktemp("exports"))
    explorer.pick_scene("two shapes")
    ask(explorer)
    assert explorer.state.error == "", explorer.state.log
    return explorer


@pytest.fixture
def other(tmp_path):
    """A second explorer, which shares the model and nothing else."""
    return begin(folder=tmp_path)


def test_the_panel_is_there_before_the_model(monkeypatch):
    held = threading.Event()
    monkeypatch.setattr("tracer.lab.Lab.open", lambda *_, **__: held.wait(60))
    explorer = Explorer(delay=0.0)
    assert shown(explorer, "status") == "opening the model"
    assert shown(explorer, "run", "disabled")
    explorer.press_run()  # too early: nothing happens, nothing breaks
    assert explorer.state.runs == []
    held.set()


def test_a_second_explorer_shares_the_model(explorer, other):
    assert other.lab.model is explorer.lab.model
    assert other.state.runs == []


def test_a_model_that_cannot_be_opened_is_one_sentence(tmp_path):
    explorer = Explorer(str(tmp_path), delay=0.0)
    assert explorer.settle(120)
    assert "no config.json" in explorer.state.error
    assert "no config.json" in shown(explorer, "error")
    assert shown(explorer, "status") == "no model"
    assert shown(explorer, "run", "disabled")


def test_the_models_own_settings_stand_in_the_empty_fields(explorer):
    assert shown(explorer, "top_k", "placeholder") == "20 (model's)"
    assert shown(explorer, "min_p", "placeholder") == "none (model's)"
    assert shown(explorer, "seed", "placeholder") == "not fixed"
    assert shown(explorer, "do_sample", "options")[0] == ("sampling (model's)", "")


def test_an_answer_is_shown_with_its_probabilities(explorer):
    run = explorer.state.run
    choices = run.answer.trace["choices"]
    tokens = shown(explorer, "answer", "tokens")
    assert [one[0] for one in tokens] == choices["text"].tolist()
    assert [one[1] for one in tokens] == pytest.approx(choices["probability"].tolist(), abs=1e-4)
    assert shown(explorer, "status") == f"done · {len(tokens)} tokens"
    for words in ("perplexity", "tokens/s", "first token after", "cache"):
        assert words in shown(explorer, "metrics")


def test_mean_logprob_is_that_of_the_trace(explorer):
    logs = explorer.state.run.answer.trace["choices"]["logprob"]
    assert explorer.state.run.facts["mean_logprob"] == f"{logs.mean():.3f}"


def test_the_count_is_what_is_fed(explorer):
    assert explorer.state.prompt_tokens == len(explorer.state.run.answer.prompt_ids)
    assert "of 2,048 positions" in shown(explorer, "count")


def test_tokens_stream_in_before_the_answer_is_done(other, monkeypatch):
    pieces = []
    monkeypatch.setattr("tracer.widgets.screen._PAINT_SECONDS", 0.0)
    strip = other.panel.named["answer"]
    monkeypatch.setattr(strip, "send", lambda message, *_: pieces.append(message))
    run = ask(other, "Hello", max_new_tokens="6", temperature="5")
    streamed = [token for one in pieces if one["kind"] == "append" for token in one["tokens"]]
    starts = [one["start"] for one in pieces if one["kind"] == "append"]
    assert len(starts) > 1
    assert starts == sorted(starts)
    assert [one[0] for one in streamed] == [mark.text for mark in run.marks]


def test_stop_ends_within_one_token_and_keeps_what_was_made(other):
    progress = []

    def stop_at_second(row):
        progress.append(row)
        if len(progress) == 2:
            other.press_stop()

    ask_lab = other.lab.ask

    def told(*arguments, on_step, **named):
        def both(row):
            on_step(row)
            stop_at_second(row)

        return ask_lab(*arguments, on_step=both, **named)

    other.lab.ask = told
    ask(other, "Tell me a story.", max_new_tokens="200", temperature="9", top_k="0")
    assert other.state.run.answer.ended == "stopped"
    assert 2 <= len(other.state.run.marks) <= 3
    assert shown(other, "status").startswith("stopped · ")
    assert not shown(other, "run", "disabled")


def test_while_it_runs_the_buttons_say_so_and_a_second_run_is_refused(other):
    seen = []
    ask_lab = other.lab.ask

    def told(*arguments, on_step, **named):
        def both(row):
            on_step(row)
            other.press_run()
            other.pick_token("answer", 0)
            other.press_stop()
            seen.append((shown(other, "run", "disabled"), shown(other, "status")))

        return ask_lab(*arguments, on_step=both, **named)

    other.lab.ask = told
    ask(other, "Hello")
    assert seen[0] == (True, "stopping")
    assert len(other.state.runs) == 1


def test_a_failure_is_shown_and_loses_nothing(other, monkeypatch):
    ask(other, "Hello", max_new_tokens="2")

    def breaks(*_, **__):
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(other.lab.model.lm_head, "forward", breaks)
    run = ask(other, "Hello again", max_new_tokens="2")
    monkeypatch.undo()
    assert run.answer.ended == "failed"
    assert other.state.error == f"RuntimeError: {HOSTILE}"
    assert "<script" not in shown(other, "error")
    assert shown(other, "status") == "failed"
    assert not shown(other, "run", "disabled")
    assert other.state.question == "Hello again"
    assert "Traceback" in other.state.log[-1]
    assert ask(other, "Hello", max_new_tokens="2").answer.ended == "done"
    assert len(other.state.runs) == 3


def test_a_picked_token_tells_its_candidates_effects_and_times(explorer):
    explorer.pick_run(0)
    explorer.pick_token("answer", 3)
    trace = explorer.state.run.answer.trace
    rows = shown(explorer, "bars", "rows")
    chosen = [row for row in rows if row["chosen"]]
    assert [row["id"] for row in chosen] == [explorer.state.run.answer.ids[3]]
    candidates = trace.read("candidates", where=[("step", "==", 3)]).set_index("token_id")
    for row in rows[:-1]:
        assert row["shares"][0] == candidates.loc[row["id"], "raw_probability"]
        assert row["shares"][1] == candidates.loc[row["id"], "probability"]
    for number in (0, 1):
        assert sum(row["shares"][number] for row in rows) == pytest.approx(1, abs=1e-5)
    told = shown(explorer, "answer_details")
    for word in ("TemperatureLogitsWarper", "entropy", "rank", "forward", "unexplained", "cache"):
        assert word in told


def test_a_token_that_was_not_among_the_candidates_is_told_like_the_others(other):
    run = ask(other, "Hello", max_new_tokens="12", temperature="9", top_k="0", top_p="1")
    trace, step = run.answer.trace, None
    for step, token in enumerate(run.answer.ids):
        where = [("step", "==", step), ("token_id", "==", token)]
        if trace.read("candidates", where=where).empty:
            break
    other.pick_token("answer", step)
    (row,) = [row for row in shown(other, "bars", "rows") if row["chosen"]]
    choice = trace.read("choices", where=[("step", "==", step)]).iloc[0]
    assert row["text"] == run.marks[step].text
    assert row["shares"][1] == pytest.approx(choice["probability"], abs=1e-6)
    assert row["shares"][0] == pytest.approx(math.exp(choice["raw_logprob"]), abs=1e-6)
    rank = re.search(r"<i>rank</i> <b>(\d+)</b>", shown(other, "answer_details"))
    assert int(rank[1]) > 20


def test_a_picked_token_of_the_prompt_tells_where_it_came_from(explorer):
    marks = explorer.state.run.prompt
    place = next(number for number, mark in enumerate(marks) if mark.kind == "image")
    assert marks[place].many == 16
    explorer.pick_token("prompt", place)
    assert "image" in shown(explorer, "prompt_details")
    explorer.pick_token("answer", 0)


def test_a_prompt_longer_than_a_page_can_hold_is_folded_in_the_middle(explorer, monkeypatch):
    answer = explorer.state.runs[0].answer
    whole = runs.prompt_marks(answer)
    monkeypatch.setattr(runs, "_MOST_MARKS", 6)
    marks = runs.prompt_marks(answer)
    assert len(marks) == 7
    assert sum(mark.many for mark in marks) == len(answer.prompt_ids)
    assert marks[:3] + marks[-3:] == whole[:3] + whole[-3:]


def test_what_if_with_the_settings_of_the_run_is_the_run(explorer):
    explorer.pick_token("answer", 3)
    explorer.press_as_run()
    rows = shown(explorer, "what_if_bars", "rows")
    assert len(rows) > 3
    assert all(row["shares"][1] == row["shares"][2] for row in rows)


def test_what_if_moves_the_distribution_without_the_model(explorer, monkeypatch):
    monkeypatch.setattr(explorer.lab.model, "forward", None)
    explorer.pick_token("answer", 3)
    explorer.move("temperature", 0.2)
    rows = shown(explorer, "what_if_bars", "rows")
    assert max(row["shares"][2] for row in rows) > max(row["shares"][1] for row in rows)
    explorer.press_as_run()


def test_a_slider_reaches_as_far_as_the_run_went(other):
    ask(other, "Hello", temperature="9", top_k="400", max_new_tokens="2")
    shares = [bar["shares"] for bar in shown(other, "what_if_bars", "rows")]
    assert (shown(other, "what_if_temperature"), shown(other, "what_if_top_k")) == (9.0, 400)
    assert all(share[1] == share[2] for share in shares)
    ask(other, "Hello", temperature="0.01", top_k="5", max_new_tokens="2")
    assert (shown(other, "what_if_temperature"), shown(other, "what_if_top_k")) == (0.01, 5)
    assert shown(other, "what_if_temperature", "max") == 3.0
    assert shown(other, "what_if_top_k", "max") == 100


def test_an_older_answer_says_that_what_if_needs_another_run(other, monkeypatch):
    monkeypatch.setattr(keeping, "KEPT_LOGITS_BYTES", 1)
    for _ in range(2):
        ask(other, "Hello", max_new_tokens="4")
    other.pick_run(0)
    other.pick_token("answer", 1)
    other.move("temperature", 0.2)
    assert "no longer kept in memory" in shown(other, "what_if_details")
    # What its trace has is told as before, and what it has lost is not made up.
    assert sum(row["chosen"] for row in shown(other, "bars", "rows")) == 1
    assert all(len(row["shares"]) == 2 for row in shown(other, "what_if_bars", "rows"))
    other.open_tab("log")
    assert other.settle(120)
    assert "no longer kept in memory" in shown(other, "page_log")
    other.pick_run(1)
    other.pick_token("answer", 1)
    assert all(len(row["shares"]) == 3 for row in shown(other, "what_if_bars", "rows"))


@pytest.fixture(scope="module")
def branched(explorer):
    explorer.pick_run(0)
    explorer.pick_token("answer", 2)
    other = next(row["id"] for row in shown(explorer, "bars", "rows") if not row["chosen"])
    explorer.take_candidate(other)
    assert explorer.settle(120)
    return explorer.state.runs[-1], other


def test_a_branch_stands_beside_its_answer(explorer, branched):
    run, token = branched
    first = explorer.state.runs[0]
    assert run.answer.ids[:3] == [*first.answer.ids[:2], token]
    assert [mark.text for mark in run.marks[:2]] == [mark.text for mark in first.marks[:2]]
    assert run.marks[2].kind == "taken"
    assert explorer.state.pair[0] == 0
    assert "first difference is at token 2" in shown(explorer, "compared")


def test_a_branch_shows_its_tokens_and_when_the_first_came(explorer, branched):
    run, _ = branched
    shown_text = "".join(mark.text for mark in run.marks if mark.kind != "special")
    assert shown_text == explorer.lab.front.decode(run.answer.ids, skip_special_tokens=True)
    assert not run.facts["first_token"].startswith("-")


def test_a_token_before_the_branch_is_told_by_the_answer_that_it_came_from(explorer, branched):
    explorer.pick_run(explorer.state.runs.index(branched[0]))
    for place in (1, 2):
        explorer.pick_token("answer", place)
        assert sum(row["chosen"] for row in shown(explorer, "bars", "rows")) == 1


def test_a_branch_gives_the_tokens_of_a_fresh_run(explorer, branched):
    run, token = branched
    first = explorer.state.runs[0].answer
    ids = torch.tensor([[*first.prompt_ids, *first.ids[:2], token]])
    features = explorer.lab._branching._features(first, ids)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        output = explorer.lab.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), **features,
            max_new_tokens=24 - 3, temperature=3.0, top_p=0.99,
        )  # fmt: skip
    assert run.answer.ids == output[0, len(first.prompt_ids) :].tolist()


def test_a_branch_knows_who_wrote_its_prompt_from_the_answer_that_it_left(explorer, branched):
    run, _ = branched
    first = explorer.state.runs[0]
    explorer.pick_run(explorer.state.runs.index(run))
    explorer.open_tab("prompt")
    assert explorer.settle(120)
    page = shown(explorer, "page_prompt")
    assert "answer #1, which this one branched from" in page
    own, parents = tokens_of(run.answer), tokens_of(first.answer)
    prompt = len(first.answer.prompt_ids)
    assert own["origin"][:prompt].tolist() == parents["origin"][:prompt].tolist()
    assert {"template", "user"} <= set(own["origin"][:prompt])
    # What it kept of the answer was generated there; what was put in its place nobody wrote before.
    assert own["origin"][prompt : prompt + 3].tolist() == ["generated", "generated", "unknown"]
    assert set(own["origin"][prompt + 3 :]) == {"generated"}
    # In the trace it stays as it was observed.
    assert set(run.answer.trace["tokens"]["origin"][:prompt]) == {"unknown"}
    for origin in ("template", "user"):
        assert f'class="explorer-origin-{origin}"' in page
    assert "processor_w" in page or "pixels" in page


def test_a_prompt_of_its_own_says_nothing_of_another(explorer, branched):
    explorer.pick_run(0)
    explorer.open_tab("prompt")
    assert explorer.settle(120)
    assert "branched from" not in shown(explorer, "page_prompt")


def test_a_typed_branch_says_which_tokens_have_no_distribution(explorer):
    explorer.pick_run(0)
    explorer.pick_token("answer", 1)
    explorer.panel.named["branch_text"].value = " purple square"
    explorer.press_branch()
    assert explorer.settle(120)
    run = explorer.state.run
    assert [mark.kind for mark in run.marks[1:3]] == ["taken", "taken"]
    explorer.pick_token("answer", 2)
    assert "gave no distribution" in shown(explorer, "answer_details")


def test_an_empty_branch_is_one_sentence(explorer):
    explorer.pick_token("answer", 0)
    explorer.panel.named["branch_text"].value = ""
    explorer.press_branch()
    assert "type the text first" in explorer.state.error


@pytest.mark.parametrize(
    "name", ["tokens", "prompt", "settings", "timing", "memory", "log", "doctor"]
)
def test_a_tab_is_drawn_when_it_is_opened(explorer, name):
    explorer.pick_run(0)
    explorer.open_tab(name)
    assert explorer.settle(120)
    drawn = shown(explorer, f"page_{name}")
    assert len(drawn) > 60
    assert "<script" not in drawn
    explorer.open_tab("answer")


def test_history_has_a_row_an_answer(explorer, branched):
    explorer.open_tab("history")
    assert explorer.settle(120)
    drawn = shown(explorer, "page_history")
    assert drawn.count("<tr>") == len(explorer.state.runs) + 1
    assert "temperature=3.0" in drawn
    explorer.open_tab("answer")


def test_two_answers_are_compared(explorer, branched):
    explorer.compare(0, 0)
    assert "the same tokens" in shown(explorer, "compared")
    explorer.compare(0, explorer.state.runs.index(branched[0]))
    table = shown(explorer, "compared")
    assert table.count('class="explorer-first"') == 1


def test_csv_is_that_of_the_trace(explorer):
    explorer.pick_run(0)
    explorer.panel.named["scope"].value = "run"
    explorer.panel.named["kind"].value = "csv"
    sent = []
    explorer.panel.keys.download = lambda name, content: sent.append((name, content))
    explorer.press_download()
    ((name, content),) = sent
    assert name in explorer.state.exported
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        found = pd.read_csv(archive.open("choices.csv"))
    choices = explorer.state.run.answer.trace["choices"]
    assert found["token_id"].tolist() == choices["token_id"].tolist()


def test_a_trace_comes_back_out_of_its_zip(explorer):
    path = export.export([explorer.state.runs[0]], "trace", explorer._folder)
    again = tracer.open_trace(path)
    assert again.equals(explorer.state.runs[0].answer.trace)


def test_a_page_that_plays_the_answer_comes_out_too(explorer):
    path = export.export([explorer.state.runs[0]], "html", explorer._folder)
    with zipfile.ZipFile(path) as archive:
        (name,) = archive.namelist()
        assert 'id="tracer-replay"' in archive.read(name).decode()


def test_a_session_has_a_folder_an_answer(explorer, branched):
    path = export.export(explorer.state.runs, "csv", explorer._folder)
    with zipfile.ZipFile(path) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}
    assert folders == {f"answer-{run.answer.number}" for run in explorer.state.runs}


def test_nothing_to_export_is_one_sentence(tmp_path):
    with pytest.raises(TracerError, match="ask something first"):
        export.export([], "csv", tmp_path)


def test_a_conversation_goes_on_is_edited_and_shortened(other):
    ask(other, "Hello", max_new_tokens="4")
    other.press_continue()
    assert [turn.role for turn in other.state.turns] == ["user", "assistant"]
    assert shown(other, "question") == ""
    other.edit_turn(0, "Good morning")
    run = ask(other, "And now?", max_new_tokens="2")
    assert run.answer.messages[0].text == "Good morning"
    other.delete_turn(1)
    assert other.state.turns == [Message("user", "Good morning")]
    other.press_clear()
    assert (other.state.turns, other.state.question) == ([], "")
    assert len(other.state.runs) == 2


@pytest.mark.parametrize(
    "question", [HOSTILE, "，。？！“”（）《》", "\u202eabc\u0000", "🧩🧩", "a" * 3000]
)
def test_any_text_can_be_asked_and_none_is_run(other, question):
    run = ask(other, question, max_new_tokens="2")
    assert run.answer.ended == "done", other.state.log
    for name in ("prompt", "history", "log"):
        other.open_tab(name)
        assert other.settle()
        assert "<script" not in shown(other, f"page_{name}")
    assert "<script" not in shown(other, "compared")


def test_half_a_character_is_one_sentence(other):
    run = ask(other, "abc\ud83d")
    assert run.answer.ended == "failed"
    assert "U+D83D" in shown(other, "error")


def test_a_prompt_of_a_hundred_thousand_characters_is_counted_against_the_limit(other):
    other.type_text("question", "red circle, " * 8400)
    assert other.settle()
    assert other.state.prompt_tokens > 20_000
    assert "More than the model was made for" in shown(other, "count")
    assert not shown(other, "run", "disabled")


def test_what_the_answer_was_given_to_begin_with_stands_before_its_tokens(other):
    from tracer.widgets.report import static_copy

    other.type_text("answer_begins", "A <b>red ")
    run = ask(other, "Hello", max_new_tokens="2")
    assert shown(other, "answer", "before") == "A <b>red "
    assert len(shown(other, "answer", "tokens")) == len(run.marks)
    assert "A <b>red " in run.name
    assert "A &lt;b&gt;red " in static_copy(run)
    other.type_text("answer_begins", "")
    ask(other, "Hello", max_new_tokens="2")
    assert shown(other, "answer", "before") == ""


def test_an_empty_prompt_is_one_sentence(other):
    other.press_run()
    assert "no question yet" in shown(other, "error")
    other.type_text("question", "Hello")
    assert shown(other, "error") == ""


def test_a_wrong_setting_is_said_at_once_and_again_on_run(other):
    other.type_text("question", "Hello")
    other.type_setting("top_p", "often")
    assert "no number" in shown(other, "error")
    other.press_run()
    assert other.state.runs == []
    other.type_setting("top_p", "")
    assert shown(other, "error") == ""


def file(image, kind="PNG"):
    content = io.BytesIO()
    image.save(content, kind)
    return content.getvalue()


def test_a_file_comes_in_pieces(other):
    content = file(Image.new("RGB", (112, 112), "red"))
    middle = len(content) // 2
    other.receive("k", "a.png", 0, 2, content[:middle])
    assert other.state.pictures == []
    other.receive("k", "a.png", 1, 2, content[middle:])
    assert [one.name for one in other.state.pictures] == ["a.png"]
    other.receive("k", "b.png", 1, 2, b"late")
    assert "did not arrive whole" in other.state.error
    other.remove_picture(0)
    assert shown(other, "pictures", "items") == []


def test_a_file_that_is_no_picture_is_refused_and_nothing_lost(other):
    other.type_text("question", "Describe this image.")
    other.add_file("notes.txt", b"no picture")
    assert "no image or video" in shown(other, "error")
    assert other.state.question == "Describe this image."
    other.refuse_file("film.mp4", 900_000_000)
    assert "900 MB" in other.state.error


def test_a_demo_video_is_asked_about(other):
    other.pick_scene("a video")
    run = ask(other, "What moves?", max_new_tokens="4")
    assert run.answer.ended == "done", other.state.log
    assert any(mark.kind == "video" for mark in run.prompt)


def test_the_static_copy_has_answer_and_tables(explorer):
    from tracer.widgets.report import static_copy

    copy = static_copy(explorer.state.runs[0])
    text = re.sub(r"<[^>]+>", "", copy)
    assert "".join(mark.text for mark in explorer.state.runs[0].marks[:3]) in text
    assert copy.count("<table>") == 4
    assert "will be kept here" in static_copy(None)


def test_it_speaks_chinese():
    tracer.language("zh")
    try:
        explorer = begin()
        run = ask(explorer, "你好", max_new_tokens="2")
    finally:
        tracer.language("en")
    assert shown(explorer, "run", "description") == "运行"
    assert shown(explorer, "status") == f"完成 · {len(run.marks)} 个词元"


def test_the_panel_waits_for_no_large_library():
    code = (
        "import sys\n"
        "from tracer.widgets import job\n"
        "job.Job.start = lambda *_: True\n"  # what a thread would import is not the panel's
        "import tracer\n"
        "explorer = tracer.explore()\n"
        "print(explorer.panel.named['status'].value)\n"
        "print(*{'torch', 'transformers', 'pandas', 'matplotlib'} & {*sys.modules})"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["opening the model", ""]


def test_what_is_typed_while_an_answer_comes_is_counted_after_it(other):
    ask_lab = other.lab.ask

    def told(*arguments, on_step, **named):
        def both(row):
            on_step(row)
            other.type_text("question", "Hello, and one word more")

        return ask_lab(*arguments, on_step=both, **named)

    other.lab.ask = told
    run = ask(other, "Hello", max_new_tokens="2")
    longer = [Message("user", "Hello, and one word more")]
    assert other.state.prompt_tokens == other.lab.count(longer)
    assert len(run.answer.trace["calls"].query("kind == 'generate'")) == 1


def test_an_error_of_opening_stays_while_one_types(tmp_path):
    explorer = Explorer(str(tmp_path), delay=0.0)
    assert explorer.settle(120)
    explorer.type_text("question", "Hello")
    assert "no config.json" in shown(explorer, "error")


def test_what_a_page_tells_of_things_that_are_gone_is_let_be(explorer):
    state = explorer.state
    state.error = ""
    before = (state.shown, state.pair, list(state.turns), list(state.pictures), state.picked)
    explorer.edit_turn(9, "x")
    explorer.delete_turn(9)
    explorer.remove_picture(9)
    explorer.pick_run(99)
    explorer.pick_run(-1)
    explorer.compare(0, 99)
    explorer.pick_token("answer", 10**6)
    explorer.pick_token("prompt", -1)
    assert (state.shown, state.pair, state.turns, state.pictures, state.picked) == before
    assert state.error == ""


def test_a_model_that_reads_text_only_takes_no_picture(other):
    other.state.takes_pictures = False
    other.pick_scene("two shapes")
    other.add_file("a.png", file(Image.new("RGB", (28, 28), "red")))
    assert other.state.pictures == []
    assert "reads text only" in shown(other, "error")

"""The player in JupyterLab as a user meets it: played, broken into, guessed at, and kept."""

import re

import pytest
from playing import Playing

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = pytest.mark.browser

DARK = re.compile("tp-dark")
CELLS = [
    "import transformers\n"
    "import tracer\n"
    "from tracer.demo import checkpoint_folder, draw_scene\n"
    "transformers.logging.disable_progress_bar()\n"
    "picture = draw_scene('red circle top left, blue star bottom right', (336, 224))\n"
    "question = [{'type': 'image', 'image': picture}, {'type': 'text', 'text': 'Describe it.'}]\n"
    "messages = [{'role': 'user', 'content': question}]",
    "with tracer.record('runs/first', if_exists='replace') as recording:\n"
    "    folder = checkpoint_folder()\n"
    "    model = transformers.AutoModelForImageTextToText.from_pretrained(folder)\n"
    "    processor = transformers.AutoProcessor.from_pretrained(folder)\n"
    "    inputs = processor.apply_chat_template(messages, tokenize=True, return_dict=True,\n"
    "        add_generation_prompt=True, return_tensors='pt')\n"
    "    model.generate(**inputs, max_new_tokens=8, do_sample=False)\n"
    "trace = recording.trace\n"
    "tracer.to_html(trace, 'run.html').name",
    "player = tracer.play(trace)\nplayer",
]


@pytest.fixture
def played(walk):
    walked = walk("player.ipynb", CELLS)
    walked.open()
    walked.run_all()
    player = Playing(walked.page)
    expect(player.title).not_to_be_empty()
    yield walked, player
    assert walked.complaints == []


def cells(walked) -> int:
    return walked.page.locator(".jp-Notebook .jp-Cell").count()


def holds_in_the_kernel(page, claim) -> None:
    """Wait until a claim is true there: what a page tells takes a moment to come."""
    page.wait_for_function(
        "async code => { const kernel = jupyterapp.shell.currentWidget.sessionContext.session"
        ".kernel; const reply = await kernel.requestExecute({code}).done;"
        " return reply.content.status === 'ok'; }",
        arg=f"assert {claim}",
    )


def test_a_walk_through_the_player(played, chromium, tmp_path):
    walked, player = played
    page = walked.page
    # Each of these is a command of the notebook too: cells are added, cut and deleted by them.
    player.press("s", "b", "x", "x", "b", "d", "d", "Home", "c", "z", "z")
    assert cells(walked) == len(CELLS)

    # Down into a module: its source, its call path, its row, its neighbours in the other layers.
    player.jump("decode 2")
    player.press("s", "s", "s", "s", "s", "s")
    expect(player["code"]).to_contain_text("def forward")
    expect(player["current"].locator(".tp-number")).not_to_be_empty()
    expect(player["frames"]).to_contain_text("_call_impl")
    player["frames"].locator("button").first.click()
    expect(player["frame"].and_(page.locator(".tp-picked"))).to_have_count(1)
    player.press("s")
    expect(player["card-in-and-out"]).to_be_visible()
    player["card-row"].locator("summary").click()
    expect(player["row"]).to_contain_text("shape")
    player.jump("q_proj.weight")
    expect(player["shard-tensor"]).to_be_visible()
    expect(player["card-tensor"]).to_contain_text(".safetensors")
    player.jump("image 0")
    expect(player["grid"]).to_be_visible()

    # Broken into where a stage and a token begin; back again; guessed.
    player.add_breakpoint("stage", "prefill")
    player.press("Home", "c")
    expect(player.title).to_have_text("prefill 0")
    player.press("b", "t", "Shift+T", "u")
    player.press("Shift+C")
    expect(player.title).to_have_text("prefill 0")
    player.press("q", "t")
    expect(player.title).to_have_text("?")
    player["choices"].locator("button").first.click()
    player.press("r", "q")
    expect(player["candidates"]).to_be_visible()
    token = player.title.inner_text()
    page.screenshot(path=tmp_path / "light.png")

    # A page that is loaded again finds the kernel, and goes on where it was.
    holds_in_the_kernel(page, "player.kept['teaching'] is False")
    walked.save()
    walked.open()
    expect(player.title).to_have_text(token)
    expect(player["point"]).to_have_count(2)

    # The notebook turns dark and wide, and the player with it; letters grow, words change.
    page.evaluate(
        "() => jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    expect(player.root).to_have_class(DARK)
    page.set_viewport_size({"width": 1920, "height": 1400})
    player.press("l", "z")
    expect(player["breakpoints"]).to_contain_text("断点")
    page.screenshot(path=tmp_path / "dark.png")
    expect(page.locator(".tracer-kept")).to_be_hidden()

    # Opened again where there is no kernel, the same run stands there and plays.
    walked.save()
    walked.shut_down()
    walked.open_without_kernel(trusted=True)
    kept = Playing(page, page.frame_locator(".tracer-kept iframe"))
    kept.press("t")
    expect(kept.title).to_have_text(token)
    page.screenshot(path=tmp_path / "kept.png")

    # In a stranger's notebook, which the lab strips, it is told in words, with no empty box.
    walked.open_without_kernel()
    frame = page.locator(".tracer-kept iframe")
    expect(page.locator(".tracer-kept summary")).to_be_visible()
    assert frame.count() == 0 or frame.bounding_box()["height"] < 5

    # As a page from disk, with the network off.
    context = chromium.new_context(offline=True)
    alone = Playing(context.new_page())
    complaints = []
    alone.listen(complaints)
    alone.page.goto((walked.server.work / "run.html").as_uri())
    alone.press("t")
    expect(alone.title).to_have_text(token)
    expect(alone["candidates"]).to_be_visible()
    assert complaints == []
    context.close()

"""The explorer in JupyterLab as a user meets it: asked, stopped, looked into, taken home."""

import io
import json
import re
import zipfile

import pandas as pd
import pytest
from PIL import Image

import tracer

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = pytest.mark.browser

CELLS = [
    "import tracer\nexplorer = tracer.explore()\nexplorer",
    # So that a stop surely meets a running answer, however fast the machine.
    "import time\nexplorer.settle()\n"
    "model = explorer.lab.model\n"
    "delay = [0.0]\n"
    "hook = model.register_forward_pre_hook(lambda *_: time.sleep(delay[0]))",
]
READY = re.compile("^ready")
DONE = re.compile(r"^done · \d+ tokens")


class Panel:
    """The explorer's widgets, found by their names."""

    def __init__(self, walk):
        self.walk = walk
        self.page = walk.page

    def __getitem__(self, name):
        return self.page.locator(f".ux-{name}")

    def field(self, name):
        return self[name].locator("input, textarea").first

    def status(self, text):
        expect(self["status"]).to_have_text(text)

    def tab(self, name):
        self["tabs"].locator(".lm-TabBar-tab", has_text=name).click()

    def chips(self, strip="answer"):
        return self[strip].locator(".explorer-chip")

    def code(self, source):
        """Run code in the notebook's kernel, as another cell would."""
        self.page.evaluate(
            "async code => { const kernel = jupyterapp.shell.currentWidget.sessionContext.session"
            ".kernel; await kernel.requestExecute({code}).done; }",
            source,
        )


@pytest.fixture
def panel(walk):
    walked = walk("explorer.ipynb", CELLS)
    walked.open()
    walked.run_all()
    panel = Panel(walked)
    panel.status(READY)
    yield panel
    assert walked.complaints == []


def picture() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (112, 112), (45, 85, 220)).save(content, "PNG")
    return content.getvalue()


def upload(panel, name, kind, content):
    with panel.page.expect_file_chooser() as chosen:
        panel["pictures"].locator(".explorer-drop").click()
    chosen.value.set_files({"name": name, "mimeType": kind, "buffer": content})


def ask(panel, question):
    panel.field("question").fill(question)
    panel["run"].click()
    panel.status(DONE)


def test_a_walk_through_the_explorer(panel, tmp_path):
    page = panel.page
    # A picture comes in, and is counted before anything runs.
    upload(panel, "notes.txt", "text/plain", b"<script>alert(1)</script>")
    expect(panel["error"]).to_contain_text("notes.txt is no image or video")
    upload(panel, "blue.png", "image/png", picture())
    expect(panel["pictures"].locator(".explorer-picture-name")).to_have_text("blue.png")
    panel.field("question").fill("Describe this image.")
    expect(panel["count"]).to_contain_text("41 prompt + 200 new = 241 of 2,048")
    panel.field("answer-begins").fill("The picture: ")

    # Keys: Enter alone, or while an input method composes, asks nothing; Ctrl+Enter does.
    for name, value in {"temperature": "3", "top-p": "0.99", "seed": "2"}.items():
        panel.field(name).fill(value)
    question = panel.field("question")
    question.dispatch_event("keydown", {"key": "Enter", "ctrlKey": True, "isComposing": True})
    question.press("Enter")
    panel.status(READY)
    question.fill("Describe this image.")
    question.press("Control+Enter")
    panel.status(DONE)
    first = panel.chips().all_inner_texts()
    assert len(first) > 5
    begins = "strip => getComputedStyle(strip, '::before').content"
    assert panel["answer"].locator(".explorer-strip").evaluate(begins) == '"The picture: "'
    expect(page.locator(".jp-OutputArea-output details")).to_have_count(4)

    # A token is clicked, then walked to with an arrow key.
    panel.chips().nth(2).click()
    expect(panel["answer-details"]).to_contain_text("2 · ")
    expect(panel["bars"].locator(".explorer-candidate").last).to_contain_text("all other tokens")
    panel["answer"].locator(".explorer-strip").press("ArrowRight")
    expect(panel["answer-details"]).to_contain_text("3 · ")
    expect(panel.chips().nth(3)).to_have_class(re.compile("explorer-picked"))

    # A page keeps inside the panel, however wide its tables are.
    panel.tab("Tokens")
    chart = panel["page-tokens"].locator("img.explorer-chart")
    expect(chart).to_be_visible()
    assert right_edge(chart) <= right_edge(panel["tabs"])

    # What if: the distribution moves, and comes back.
    panel.tab("What if")
    share = panel["what-if-bars"].locator(".explorer-chosen .explorer-share2 .explorer-number")
    before = share.inner_text()
    handle = panel["what-if-temperature"].locator(".noUi-handle")
    handle.focus()
    handle.press("Home")
    expect(share).not_to_have_text(before)
    panel["as-run"].click()
    expect(share).to_have_text(before)

    # Another candidate is taken; the branch is set beside its answer.
    panel.tab("Answer")
    panel["bars"].locator(".explorer-take:enabled").first.click()
    expect(panel["shown"].locator("option:checked")).to_contain_text("#2 ← #1")
    panel.status(DONE)
    assert panel.chips().all_inner_texts()[:3] == first[:3]
    panel.tab("History")
    expect(panel["compared"]).to_contain_text("The first difference is at token 3.")
    panel["left"].locator("select").select_option(index=1)
    expect(panel["compared"]).to_contain_text("Both answers have the same tokens.")

    # An answer is stopped in the middle, with the other widgets alive.
    panel.tab("Answer")
    panel.code("delay[0] = 0.05")
    panel.field("temperature").fill("9")
    panel.field("top-k").fill("0")
    panel.field("max-new-tokens").fill("1500")
    panel["run"].click()
    expect(panel["status"]).to_have_text(re.compile(r"^running · [1-9]\d* tokens"))
    expect(panel.chips().nth(2)).to_be_visible()
    expect(panel["run"]).to_be_disabled()
    panel.field("question").press("Escape")
    expect(panel["status"]).to_have_text(re.compile(r"^stopped · \d+ tokens"))
    stopped = int(re.search(r"\d+", panel["status"].inner_text())[0])
    assert 0 < stopped < 1500
    expect(panel.chips()).to_have_count(stopped)
    expect(panel["run"]).to_be_enabled()
    panel.code("delay[0] = 0.0")

    # The first answer's tables are taken home, and are those of its trace.
    panel["shown"].locator("select").select_option(index=0)
    expect(panel.chips()).to_have_count(len(first))
    panel.tab("Export")
    with page.expect_download() as downloaded:
        panel["download"].click()
    expect(panel["exported"]).to_contain_text("answer-1-csv.zip")
    taken = zipfile.ZipFile(downloaded.value.path())
    texts = [json.loads(one) for one in pd.read_csv(taken.open("choices.csv"))["text"]]
    assert [shown(one) for one in texts] == first
    panel["kind"].locator("select").select_option(index=1)
    with page.expect_download() as downloaded:
        panel["download"].click()
    kept = tmp_path / "trace.zip"
    downloaded.value.save_as(kept)
    assert tracer.open_trace(kept)["choices"]["text"].tolist() == texts

    # Opened again without a kernel, answer and tables are still there.
    panel.walk.save()
    panel.walk.shut_down()
    panel.walk.open_without_kernel()
    static = page.locator(".jp-OutputArea-output details")
    expect(static).to_have_count(4)
    expect(page.locator(".jp-Notebook")).to_contain_text("The explorer needs a kernel")
    expect(page.locator(".jp-Notebook")).to_contain_text("The last answer, as it stays")
    expect(static.first.locator("tbody tr")).to_have_count(stopped)


def right_edge(place):
    box = place.bounding_box()
    return box["x"] + box["width"]


def shown(text):
    """A token as a strip shows it."""
    return text.replace("\n", "↵\n").replace("\t", "⇥") or "∅"


def test_hostile_text_is_shown_as_text(panel):
    hostile = (
        "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    )
    panel.field("system").fill(hostile)
    panel.field("answer-begins").fill(hostile)
    panel.field("max-new-tokens").fill("4")
    ask(panel, hostile)
    for name in ("Prompt", "History", "Log"):
        panel.tab(name)
    expect(panel["page-history"]).to_contain_text("onerror")
    assert panel.page.title() != "owned"
    assert panel.page.locator("img[src='x']").count() == 0


def test_a_failure_is_shown_and_the_next_run_works(panel):
    panel.code("def broken(*_): raise RuntimeError('no memory left')")
    panel.code("failing = model.lm_head.register_forward_pre_hook(broken)")
    panel.field("question").fill("Hello")
    panel["run"].click()
    panel.status("failed")
    expect(panel["error"]).to_have_text("RuntimeError: no memory left")
    panel.code("failing.remove()")
    ask(panel, "Hello")
    expect(panel["error"]).to_have_text("")


def test_in_chinese_and_on_dark_every_tab_stays_inside_the_panel(walk):
    walked = walk("zh.ipynb", ["import tracer\ntracer.language('zh')\ntracer.explore()"])
    walked.open()
    theme = {"theme": "JupyterLab Dark"}
    walked.page.evaluate("it => jupyterapp.commands.execute('apputils:change-theme', it)", theme)
    walked.run_all()
    panel = Panel(walked)
    panel.status("就绪")
    panel.field("max-new-tokens").fill("4")
    panel.field("question").fill("你好")
    panel["run"].click()
    panel.status(re.compile("^完成 · 4 个词元"))
    tabs = panel["tabs"].locator(".lm-TabBar-tab")
    assert tabs.count() == 11
    for number in range(tabs.count()):
        tabs.nth(number).click()
        assert right_edge(panel["tabs"]) <= right_edge(panel.page.locator(".tracer-explorer"))
    panel.tab("诊断")
    expect(panel["page-doctor"].locator("h3")).to_contain_text("诊断：记录（")
    panel.tab("导出")
    panel["kind"].locator("select").select_option(index=2)
    with panel.page.expect_download() as downloaded:
        panel["download"].click()
    (name,) = zipfile.ZipFile(downloaded.value.path()).namelist()
    assert name == "run.html"
    assert walked.complaints == []

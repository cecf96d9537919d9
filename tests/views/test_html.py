"""The static page: whole, small, and safe for whatever text a trace holds. No browser here."""

import base64
import hashlib
import html.parser
import itertools
import json
import re
import zlib

import pytest
from synthetic import coherent_rows, event, make_trace

import tracer
from tracer.errors import StorageError
from tracer.replaying.buffers import as_json
from tracer.replaying.replay import Replay
from tracer.views.budget import BLOCK, strip_places
from tracer.views.html import page, page_data, script_safe, to_html
from tracer.views.renderer import script, style

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]><img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "javascript:alert(1)",
    "</style><style>@import url(//evil.invalid)</style>",
    "</title><base href=//evil.invalid><meta http-equiv=refresh content=0>",
    "line\u2028end\u2029here",
    "half \udc80 a character",
    "{title} {0} %s $& \\u003c",
]


class Seen(html.parser.HTMLParser):
    """The elements of a page as a browser meets them, and the texts of its scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style", "pre", "title"):
            self._open = tag
            self.texts.append([tag, ""])

    def handle_endtag(self, tag):
        if tag == self._open:
            self._open = None

    def handle_data(self, data):
        if self._open:
            self.texts[-1][1] += data

    def of(self, tag):
        return [text for name, text in self.texts if name == tag]


@pytest.fixture(scope="module")
def replay():
    return Replay(make_trace(coherent_rows()))


def unpacked(text):
    return json.loads(zlib.decompress(base64.b64decode(text)))


def held(text):
    """What the page's data element holds."""
    return json.loads(Seen(text).of("script")[0])


def test_a_page_is_one_file_with_all_that_it_needs(tmp_path):
    path = to_html(make_trace(coherent_rows()), tmp_path / "new" / "run.html")
    text = path.read_text("utf-8")
    names = [name for name, _ in Seen(text).elements]
    assert names.count("script") == 2
    assert not {"link", "img", "iframe", "base", "object", "embed", "form"} & set(names)
    for _, attributes in Seen(text).elements:
        assert not {"src", "href", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]


def test_the_policy_names_script_and_style_by_their_hashes(replay):
    seen = Seen(page(replay))
    (policy,) = (
        attributes["content"]
        for name, attributes in seen.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"
    for rule, text in (("script-src", seen.of("script")[1]), ("style-src", seen.of("style")[0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_the_policy_comes_before_anything_that_it_governs(replay):
    text = page(replay)
    policy = text.index("Content-Security-Policy")
    assert policy < text.index("<style>")
    assert policy < text.index("<script")
    assert policy < text.index("<title>")


def test_script_and_style_end_no_element():
    assert not re.search(r"</(script|style)|<!--", script("page") + script("widget"), re.I)
    assert "<" not in style()


def test_a_page_holds_what_the_kernel_would_tell(replay):
    data = held(page(replay))
    assert data["header"]["count"] == len(replay.stops)
    assert zlib.decompress(base64.b64decode(data["columns"])) == replay.columns
    details = [one for block in data["details"]["blocks"] for one in unpacked(block)]
    assert details == [json.loads(as_json(replay.detail(one))) for one in range(len(replay.stops))]
    shared = unpacked(data["shared"])
    for told in details:
        for room, key in references(told):
            assert shared[room][key] == replay.shared(room, key)


def references(told):
    """What a detail refers to, as rooms and keys."""
    found = [("sources", told.get("source", {}).get("key")), ("stacks", told.get("stack"))]
    found += [("caches", told.get("cache"))]
    found += [("strips", told.get("token", {}).get("strip"))]
    found += [("strips", place["strip"]) for place in strip_places(told)]
    return [(room, key) for room, key in found if key is not None]


def hostile_rows():
    """Rows with hostile names of tokens, tensors, files, classes, and in summaries and messages."""
    rows = coherent_rows()
    safe = [text.encode("utf-8", "replace").decode() for text in HOSTILE]
    for table, name in (("choices", "text"), ("tokens", "text"), ("tensor_loads", "name")):
        for record, text in zip(rows[table], itertools.cycle(safe), strict=False):
            record[name] = text
    for table, name in (("files", "path"), ("models", "class_name"), ("modules", "path")):
        for number, record in enumerate(rows[table]):
            record[name] = f"{number} {''.join(safe)}"
    for record, text in zip(rows["spans"], itertools.cycle(safe), strict=False):
        record["name"] = text
        record["summary"] = json.dumps({text: text})
    rows["messages"] = [
        event(9_000 + number, -1, -1, "output", text, 999, 0) | {"level": text, "text": text}
        for number, text in enumerate(safe)
    ]
    return rows, safe


def test_hostile_text_stays_text(replay):
    rows, safe = hostile_rows()
    trace = make_trace(rows)
    trace.store.manifest["versions"] = {"transformers": "".join(HOSTILE)}
    whole = page(Replay(trace))
    plain, seen = Seen(page(replay)), Seen(whole)
    # Not an element, not an attribute more than without it; and the text comes out as it went in.
    assert [name for name, _ in seen.elements] == [name for name, _ in plain.elements]
    assert seen.of("script")[1] == plain.of("script")[1]
    assert set(safe) <= set(held(whole)["header"]["names"])
    whole.encode("utf-8")


def test_json_in_a_script_has_no_sign_that_could_end_it():
    text = script_safe(as_json([*HOSTILE, "a & b > c"]))
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text)[0] == HOSTILE[0]


def test_a_number_that_json_can_not_hold_is_refused_and_never_written():
    with pytest.raises(ValueError, match="JSON"):
        as_json({"share": float("nan")})


def long_run(steps=400, layers=12):
    """An answer of many forwards, each with many modules."""
    rows = {"calls": [event(0, -1, 0, "setup", "generate", 0, 1e6) | {"kind": "generate"}]}
    rows |= {"steps": [], "modules": []}
    seq = 1
    for step in range(steps):
        above = seq
        rows["steps"].append(
            event(seq, 0, 0, "decode", f"decode {step}", step, 1)
            | {"step": step, "kind": "prefill" if step == 0 else "decode"}
        )
        for layer in range(layers):
            seq += 1
            module = event(seq, above, 0, "decode", f"layers.{layer}", step + layer / 100, 0.01)
            rows["modules"].append(module | {"step": step, "path": f"layers.{layer}"})
        seq += 1
    return make_trace(rows)


def test_a_page_keeps_to_its_budget_and_says_what_it_left_out():
    replay = Replay(long_run())
    smallest = len(page(replay, most_bytes=0).encode())
    most = smallest + 30_000
    text = page(replay, most_bytes=most)
    assert len(text.encode()) <= most
    data = held(text)
    kept = [one for block in data["details"]["blocks"] if block for one in unpacked(block)]
    told = [one["stop"] for one in kept if one is not None]
    assert 0 < len(told) < len(replay.stops)
    (note,) = data["header"]["notes"]
    assert note["values"] == {"kept": f"{len(told):,}", "count": f"{len(replay.stops):,}"}
    # Forwards tell more than the modules in them, the first forward's modules more than others'.
    kinds, steps = replay.stops.columns["kind"], replay.stops.columns["step"]
    assert set(replay.stops.of_kind("step")) <= set(told)
    modules = replay.stops.of_kind("module")
    assert set(modules[steps[modules] == 0]) <= set(told)
    assert len(kinds) == data["header"]["count"]


def test_what_is_left_out_leaves_nothing_behind(replay):
    data = page_data(replay, 0)
    shared = unpacked(data["shared"])
    kept = [one for block in data["details"]["blocks"] if block for one in unpacked(block) if one]
    wanted = {pair for told in kept for pair in references(told)}
    for room in ("strips", "caches"):
        assert {key for one, key in wanted if one == room} == set(shared[room])


def test_blocks_hold_details_by_number(replay):
    data = page_data(replay)
    assert data["details"]["block"] == BLOCK
    for number, block in enumerate(data["details"]["blocks"]):
        for place, told in enumerate(unpacked(block)):
            assert told["stop"] == number * BLOCK + place


@pytest.mark.parametrize("code", ["en", "zh"])
def test_a_page_begins_in_the_language_that_holds_and_has_both(code):
    before = tracer.language()
    try:
        tracer.language(code)
        text = page(Replay(make_trace({})))
    finally:
        tracer.language(before)
    assert f'<html lang="{code}">' in text
    header = held(text)["header"]
    assert header["language"] == code
    words = unpacked(header["words"])
    assert words["en"]["stages"]["prefill"]["title"] == "Prefill"
    assert re.search("[\u4e00-\u9fff]", words["zh"]["stages"]["prefill"]["title"])


def test_without_scripts_the_summary_stands_there(replay):
    (plain,) = Seen(page(replay)).of("pre")
    assert plain.strip() == replay.trace.summary().strip()


def test_an_empty_trace_gives_a_page():
    assert held(page(Replay(make_trace({}))))["header"]["count"] == 0


def test_an_earlier_page_is_replaced_and_a_strangers_file_is_not(tmp_path):
    trace = make_trace({})
    path = to_html(trace, tmp_path / "run.html")
    assert to_html(trace, path) == path
    assert path.read_text("utf-8") == page(Replay(trace))
    (tmp_path / "notes.html").write_text("<html>mine</html>")
    with pytest.raises(StorageError, match=r"notes\.html exists and is no page of the lab"):
        to_html(trace, tmp_path / "notes.html")
    assert (tmp_path / "notes.html").read_text() == "<html>mine</html>"
    with pytest.raises(StorageError, match="is a folder"):
        to_html(trace, tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["notes.html", "run.html"]


def test_a_place_that_can_not_be_written_is_an_error_of_the_lab(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="can't be"):
        to_html(make_trace({}), tmp_path / "file" / "run.html")

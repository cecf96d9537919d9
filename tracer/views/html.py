"""A trace as one page that plays it: no kernel, no network, nothing beside the file.

Puts the player's script, its style and a replay's data into one HTML text. The page's security
policy names script and style by their hashes, so that whatever text a trace holds, nothing else can
run or be fetched. A page that would grow too large leaves out the details that tell least, and says
so.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path
from typing import Any, Final

from tracer import explain
from tracer.errors import StorageError
from tracer.explain.sentences import phrase
from tracer.replaying.buffers import as_json, packed, packed_json
from tracer.replaying.details import ROOMS
from tracer.replaying.replay import Replay
from tracer.trace import Trace
from tracer.views.budget import Kept, kept_details
from tracer.views.renderer import script, style

MOST_BYTES: Final = 5_000_000
"""What a page may weigh unless asked otherwise; a load and 200 tokens take less."""
_MARK: Final = "<!doctype html><!-- a run of Tracer Lab, to be played -->"
_ONE_OF_OURS: Final = len(_MARK)
_PAGE: Final = """{mark}
<html lang="{language}"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head><body class="tp-page">
<div id="player"><div class="tp-plain"><p>{plain}</p><pre>{summary}</pre></div></div>
<script type="application/json" id="tracer-replay">{data}</script>
<script type="module">{script}</script></body></html>
"""
# How the page looks before its script runs, and for good where none may run.
_PLAIN_STYLE: Final = (
    ".tp-plain{font:14px/1.5 system-ui,sans-serif;padding:1em;height:100vh;overflow:auto}"
    ".tp-plain pre{white-space:pre-wrap;overflow-wrap:anywhere}"
)


def to_html(trace: Trace, path: Path | str, *, most_bytes: int = MOST_BYTES) -> Path:
    """Write a trace as a page that plays it, in any browser from 2023 on, from disk.

    Args:
        trace: Any trace; what it does not hold the page does not show.
        path: The file, such as `run.html`; an earlier page of the lab there is replaced.
        most_bytes: What the page may weigh. Stops, their names and times are always in it; details
            are left out where they would make it larger, those of modules first.

    Returns:
        Where it is.

    Raises:
        StorageError: Something else is there, or the place can't be written.
    """
    target = Path(path)
    _refuse_strangers(target)
    text = page(Replay(trace), most_bytes=most_bytes)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.unfinished")
        aside.write_text(text, "utf-8", newline="\n")
        aside.replace(target)
    except OSError as error:
        raise StorageError(phrase("errors.cant_write", path=target, why=error)) from error
    return target


def page(replay: Replay, *, most_bytes: int = MOST_BYTES) -> str:
    """The text of the page."""
    code, look = script("page"), style() + _PLAIN_STYLE
    plain = explain.text("player.needs_scripts")
    parts = {
        "mark": _MARK,
        "language": explain.language(),
        "policy": policy(code, look),
        "title": html.escape(f"{replay.header['title'] or explain.text('player.title')}"),
        "style": look,
        "plain": html.escape(plain),
        "summary": html.escape(replay.trace.summary()),
        "script": code,
    }
    rest = sum(len(part.encode("utf-8", "replace")) for part in parts.values()) + len(_PAGE)
    whole = _PAGE.format(**parts, data=page_json(replay, most_bytes - rest))
    return whole.encode("utf-8", "replace").decode("utf-8")


def policy(code: str, look: str) -> str:
    """The content security policy: this script, this style, pictures that stand in the page."""
    return (
        f"default-src 'none'; script-src '{_hash_of(code)}'; style-src '{_hash_of(look)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def page_json(replay: Replay, most_bytes: int = MOST_BYTES) -> str:
    """The text of the page's data element, without a sign that could end it."""
    return script_safe(as_json(page_data(replay, most_bytes)))


def page_data(replay: Replay, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """What a page holds of a replay, as the contract of `tracer.replaying` says."""
    # The words, of both languages and all columns, are most of a header.
    words = packed_json(replay.header["words"])
    header = {**replay.header, "marks": replay.marks, "words": words}
    columns = packed(replay.columns)
    fixed = len(script_safe(as_json(header)).encode("utf-8")) + len(columns)
    # Of a run so long that its columns alone take the room, the outermost is told all the same.
    kept = kept_details(replay, max(most_bytes - fixed, most_bytes // 8))
    return {
        "header": {**header, "notes": [*replay.notes, *_notes(replay, kept)]},
        "columns": columns,
        "details": {"block": kept.block, "blocks": kept.blocks},
        "shared": packed_json({room: kept.shared[room] for room in ROOMS}),
    }


def script_safe(text: str) -> str:
    """JSON text that may stand in a `<script>`: nothing in it can end the element or begin one."""
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _notes(replay: Replay, kept: Kept) -> list[dict[str, Any]]:
    count = len(replay.stops)
    if kept.count == count:
        return []
    values = {"kept": f"{kept.count:,}", "count": f"{count:,}"}
    return [{"key": "details_left_out", "values": values}]


def _hash_of(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def _refuse_strangers(target: Path) -> None:
    """Raise unless the place is free or holds a page of ours.

    Raises:
        StorageError: It holds something else.
    """
    try:
        if target.is_dir():
            raise StorageError(phrase("errors.page_is_folder", path=target))
        if not target.exists():
            return
        with target.open("rb") as file:
            begins = file.read(_ONE_OF_OURS)
    except OSError as error:
        raise StorageError(phrase("errors.cant_read", path=target, why=error)) from error
    if begins != _MARK.encode("ascii"):
        raise StorageError(phrase("errors.page_is_other", path=target))

"""A trace as one page that plays it: no kernel, no network, nothing beside the file.

Puts the player's script, its style and a replay's data into one HTML text. The page's security
policy names the script by its hash, so that whatever text a trace holds, nothing else can run.
"""

from __future__ import annotations

from typing import Any, Final

from tracer.replaying.buffers import as_json, packed, packed_json
from tracer.replaying.replay import Replay

BLOCK: Final = 256
"""Details that are packed together: a page unpacks those near the stop that it shows."""


def page_data(replay: Replay) -> dict[str, Any]:
    """What a static page holds of a replay, as the contract of `tracer.replaying` says."""
    count = len(replay.stops)
    blocks, shared = [], _Shared(replay)
    for first in range(0, count, BLOCK):
        details = [replay.detail(stop) for stop in range(first, min(first + BLOCK, count))]
        for detail in details:
            shared.add(detail)
        blocks.append(packed_json(details))
    return {
        "header": {**replay.header, "marks": replay.marks},
        "columns": packed(replay.columns),
        "details": {"block": BLOCK, "blocks": blocks},
        "shared": packed_json(shared.rooms),
    }


class _Shared:
    """What the kept details refer to."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.rooms: dict[str, dict[str, Any]] = {
            "sources": {},
            "stacks": {},
            "strips": {},
            "caches": {},
        }

    def add(self, detail: dict[str, Any]) -> None:
        """Take in everything that a detail refers to."""
        self._take("sources", detail.get("source", {}).get("key"))
        if self._take("stacks", detail.get("stack")):
            for frame in self.rooms["stacks"][detail["stack"]]:
                self._take("sources", frame["source"])
        self._take("caches", detail.get("cache"))
        for part in ("strip", "token"):
            self._take("strips", detail.get(part, {}).get("strip"))

    def _take(self, room: str, key: str | None) -> bool:
        if key is None or key in self.rooms[room]:
            return False
        value = self._replay.shared(room, key)
        if value is not None:
            self.rooms[room][key] = value
        return value is not None


def script_safe(text: str) -> str:
    """JSON text that may stand inside a `<script>`: nothing in it can end or comment the element."""
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def page_json(replay: Replay) -> str:
    """The text of the page's data element."""
    return script_safe(as_json(page_data(replay)))

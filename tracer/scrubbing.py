"""A copy of a trace without what should not be shared: paths, names of machine and user, text.

Takes a store and gives a store in memory; kinds, counts and numbers stay. It guesses nothing
about what a text means: whole columns and whole settings go.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pyarrow as pa

from tracer.journal import Journal
from tracer.privacy import mapped, without_words
from tracer.schema import TABLES
from tracer.storage import Store

_HOST_WORDS: Final = frozenset(
    ["host", "hostname", "node", "fqdn", "user", "username", "login", "uuid", "serial", "mac", "ip"]
)
_HOST_KEYS: Final = frozenset({"machine_id", "boot_id"})

# Part of a path between two separators: no quote, bracket or control character.
_PART: Final = r"""[^/\\\x00-\x1f"'<>|:;,()\[\]{}]+"""
_PATH: Final = re.compile(
    rf"""
    (?P<folder>
      (?<![\w.~/:>\\-]) (?:~\w*)? / (?:{_PART}/+)+   # /a/b/ and ~/a/, no https://a/b
    | (?<=file:/)/ (?:/*{_PART}/+)+                    # file:///a/b/
    | (?<!\w) [A-Za-z]: [\\/]+ (?:{_PART}[\\/]+)*      # on a drive of Windows
    | (?<![\w\\]) \\{{2,}} {_PART}\\+ (?:{_PART}\\+)*   # on a server of Windows
    )
    (?P<last>[^/\\\s\x00-\x1f"'<>|;,()\[\]{{}}]*)
    """,
    re.VERBOSE,
)
_HOMES: Final = ("/home", "/users", "/documents and settings")


def scrubbed(store: Store, *, paths: bool, host: bool, text: bool) -> Store:
    """A copy in memory without paths, host names or text; `Trace.scrub` says what each one is."""
    hider = _PathHider() if paths else None
    # Paths first: a user's name that is masked inside of one would split it.
    manifest = hider.hide_all(store.manifest) if hider else dict(store.manifest)
    if host:
        manifest = _without_host(manifest)
    if text:
        manifest = _without_quotes(manifest)
    done = {"paths": paths, "host": host, "text": text}
    manifest["scrubbed"] = [name for name, is_done in done.items() if is_done]
    journal = Journal(None)
    for table in store.tables():
        for batch in store.batches(table):
            journal.append(table, _scrub_batch(table, batch, hider, text))
    copy = journal.close(manifest)
    copy.manifest["state"] = store.manifest.get("state")
    return copy


def _without_quotes(manifest: dict[str, Any]) -> dict[str, Any]:
    """The kind of an exception stays; its message may quote what it failed on."""
    plain = dict(manifest)
    if isinstance(plain.get("ended"), str):
        plain["ended"] = plain["ended"].split(":")[0]
    if isinstance(plain.get("ranks"), list):
        plain["ranks"] = [_without_quotes(rank) for rank in plain["ranks"]]
    return plain


class _PathHider:
    """Replaces absolute paths; the same folder gets the same placeholder throughout a trace."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def hide(self, text: str) -> str:
        return _PATH.sub(self._replacement, text)

    def hide_json(self, text: str) -> str:
        """JSON stays JSON: strings are changed as they are meant, not as they are written."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.hide(text)
        hidden = self.hide_all(value)
        return text if hidden == value else json.dumps(hidden, ensure_ascii=False)

    def hide_all(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, list):
            return [self.hide_all(item) for item in value]
        if isinstance(value, dict):
            return {self.hide(str(key)): self.hide_all(item) for key, item in value.items()}
        return value

    def _replacement(self, match: re.Match[str]) -> str:
        folder = re.sub(r"[\\/]+", "/", match["folder"]).rstrip("/")
        number = self._numbers.setdefault(folder, len(self._numbers) + 1)
        # The last part of a home folder is the user's name.
        is_home = re.sub("^[a-z]:", "", folder.lower()) in _HOMES
        return f"<path{number}>/{'home' if is_home else match['last']}"


def _scrub_batch(
    table: str, batch: pa.RecordBatch, paths: _PathHider | None, text: bool
) -> pa.RecordBatch:
    if text:
        batch = without_words(table, batch)
    if paths is None:
        return batch
    arrays = [
        mapped(array, paths.hide_json if column.kind == "json" else paths.hide)
        if column.kind in ("text", "json")
        else array
        for column, array in zip(TABLES[table].columns, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _without_host(manifest: dict[str, Any]) -> dict[str, Any]:
    names: set[str] = set()

    def is_host(key: str) -> bool:
        words = set(re.split(r"[^a-z]+", key.lower()))
        return key.lower() in _HOST_KEYS or not words.isdisjoint(_HOST_WORDS)

    def drop(value: Any) -> Any:
        if isinstance(value, list):
            return [drop(item) for item in value]
        if not isinstance(value, dict):
            return value
        names.update(v for k, v in value.items() if is_host(k) and isinstance(v, str) and v)
        return {k: drop(v) for k, v in value.items() if not is_host(k)}

    def mask(value: Any) -> Any:
        if isinstance(value, str):
            for name in names:
                value = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "<host>", value)
            return value
        if isinstance(value, list):
            return [mask(item) for item in value]
        return {k: mask(v) for k, v in value.items()} if isinstance(value, dict) else value

    masked: dict[str, Any] = mask(drop(manifest))
    return masked

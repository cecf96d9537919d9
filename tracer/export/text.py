"""Text that every form of a trace can hold, and its writing as one JSON string literal.

Arrow, Parquet and UTF-8 hold Unicode only, while text in Python may also hold lone surrogates
(half a character out of a partial decode, a file name that is no valid UTF-8). This is the one
place that decides what becomes of them. It knows no table.
"""

from __future__ import annotations

import json
import re
from typing import Final

LITERAL_ESCAPES: Final = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff"
"""Character class of what a literal never holds as it is: each of them ends a line, hides or
breaks the encoding in some reader. Quote and backslash are escaped by JSON itself."""

_ESCAPED: Final = re.compile(f"[{LITERAL_ESCAPES}]")


def storable_text(text: str) -> str:
    r"""Return text as it is, or with each lone surrogate written out as ``\udcxx``.

    The escape can't be told from the same six characters in the original: where text and bytes
    must be told apart, `token_id` and `bytes_hex` are the truth, not text.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def json_literal(text: str) -> str:
    """Write text as a JSON string literal on one line; CJK and emoji stay readable."""
    return _ESCAPED.sub(_escape, json.dumps(text, ensure_ascii=False))


def visible_text(text: str) -> str:
    """Write what can't be seen as escapes, for people; line feeds and tabs stay."""
    return _ESCAPED.sub(lambda match: match[0] if match[0] in "\n\t" else _escape(match), text)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"

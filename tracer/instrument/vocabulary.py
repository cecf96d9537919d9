"""Token ids as vocabulary strings, bytes and text, for tokenizers of the usual kinds.

A single id is often no text: a Chinese character is three byte-level tokens. So bytes are kept,
and a character is shown on the token that completes it. Asks the tokenizer, never guesses.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final

_BYTE_PIECE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_letters() -> dict[str, int]:
    """The byte-level table: printable bytes stand for themselves, the others for 256, 257, ..."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF_LETTER: Final = _byte_letters()


class Vocabulary:
    """Pieces of one tokenizer, each looked up once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = set(getattr(tokenizer, "all_special_ids", ()))
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self._special |= {number for number, token in added.items() if token.special}
        self._added = set(added)
        self._style = _style(tokenizer)
        self._pieces: dict[int, tuple[str | None, bytes | None]] = {}
        self._texts: dict[int, str | None] = {}

    def is_special(self, token_id: int) -> bool:
        """Whether the tokenizer calls the id special."""
        return token_id in self._special

    def piece(self, token_id: int) -> tuple[str | None, bytes | None]:
        """Vocabulary string and bytes of an id; None where the tokenizer has none."""
        known = self._pieces.get(token_id)
        if known is None:
            known = self._pieces[token_id] = self._look_up(token_id)
        return known

    def _look_up(self, token_id: int) -> tuple[str | None, bytes | None]:
        vocab = self._tokenizer.convert_ids_to_tokens(token_id)
        if vocab is None:
            return None, None
        if token_id in self._added:
            return vocab, vocab.encode("utf-8", "surrogatepass")
        if self._style == "byte-level" and all(letter in _BYTE_OF_LETTER for letter in vocab):
            return vocab, bytes(_BYTE_OF_LETTER[letter] for letter in vocab)
        byte = _BYTE_PIECE.fullmatch(vocab)
        if byte:
            return vocab, bytes([int(byte.group(1), 16)])
        if self._style == "metaspace":
            return vocab, vocab.replace("\u2581", " ").encode()
        if self._style == "wordpiece":
            text = vocab[2:] if vocab.startswith("##") else " " + vocab
            return vocab, text.encode()
        return vocab, None

    def text(self, token_id: int) -> str | None:
        """What the id alone reads as; partial characters as the replacement sign."""
        if token_id not in self._texts:
            vocab, raw = self.piece(token_id)
            if vocab is None:
                self._texts[token_id] = None
            elif raw is None:
                self._texts[token_id] = self._tokenizer.decode([token_id])
            else:
                self._texts[token_id] = raw.decode("utf-8", "replace")
        return self._texts[token_id]


def _style(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return "unknown"
    # The decoder alone: writing out a whole vocabulary of 150,000 takes a noticeable time.
    state = backend.decoder.__getstate__() if backend.decoder is not None else b""
    described = state.decode("utf-8")
    for mark, style in (
        ("ByteLevel", "byte-level"),
        ("Metaspace", "metaspace"),
        ("WordPiece", "wordpiece"),
        ("\u2581", "metaspace"),
    ):
        if mark in described:
            return style
    return "unknown"


class TextAssembler:
    """Text of a sequence, token by token; a character appears on the token that completes it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int) -> str | None:
        """Text that becomes complete with this token; None where its bytes are unknown."""
        _, raw = self._vocabulary.piece(token_id)
        if raw is None:
            return self._vocabulary.text(token_id)
        return self._decoder.decode(raw)

    def fork(self) -> TextAssembler:
        """Another one that has read the same so far."""
        other = TextAssembler(self._vocabulary)
        other._decoder.setstate(self._decoder.getstate())
        return other

    def finish(self) -> str:
        """What is left of a character that no further token completes: the replacement sign."""
        return self._decoder.decode(b"", final=True)

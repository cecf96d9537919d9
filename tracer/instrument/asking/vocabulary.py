"""Token ids as vocabulary strings, bytes and text, for tokenizers of the usual kinds.

A single id is often no text: a Chinese character is three byte-level tokens. So bytes are kept,
and a character is shown on the token that completes it. Asks the tokenizer, never guesses.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Any, Final

_CONTEXT: Final = 8
"""Ids of a prompt that the decoder is led along before an answer, so that it knows neighbours."""

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
        self._backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        self._style = _style(self._backend)
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

    def stream(self) -> Any:
        """A decoder that goes along a sequence; None where bytes are enough, or nothing decodes."""
        if self._style in ("byte-level", "unknown"):
            return None
        from tokenizers.decoders import DecodeStream  # the user's tokenizer has imported it

        return DecodeStream(skip_special_tokens=False)

    def step(self, stream: Any, token_id: int) -> str:
        """Text that a decoder can give after one more id."""
        text: str | None = stream.step(self._backend, token_id)
        return text or ""

    def whole(self, ids: Sequence[int]) -> str:
        """The text of a sequence, special ids included and nothing cleaned up."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=False)
        return text

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


def _style(backend: Any) -> str:
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
    """Text of a sequence, token by token; a character appears on the token that completes it.

    Of a byte-level tokenizer the bytes are joined. The others' decoders look at the neighbours of a
    piece (a space before a word, none at the beginning): there the tokenizer's own decoder goes
    along, so that the texts join to what it decodes.
    """

    def __init__(self, vocabulary: Vocabulary, after: Sequence[int] = ()) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stream = vocabulary.stream()
        self._ids: list[int] = []
        self._done = ""
        for token_id in after[-_CONTEXT:] if self._stream is not None else ():
            self.add(token_id)

    def add(self, token_id: int) -> str | None:
        """Text that becomes complete with this token; None where its bytes are unknown."""
        if self._stream is not None:
            self._ids.append(token_id)
            text = self._vocabulary.step(self._stream, token_id)
            self._done += text
            return text
        _, raw = self._vocabulary.piece(token_id)
        if raw is None:
            return self._vocabulary.text(token_id)
        return self._decoder.decode(raw)

    def fork(self) -> TextAssembler:
        """Another one that has read the same so far."""
        other = TextAssembler(self._vocabulary, after=self._ids)
        other._decoder.setstate(self._decoder.getstate())
        return other

    def finish(self) -> str:
        """What is left of a character that no further token completes: the replacement sign."""
        if self._stream is None:
            return self._decoder.decode(b"", final=True)
        whole = self._vocabulary.whole(self._ids)
        rest, self._done = whole[len(self._done) :], whole
        return rest

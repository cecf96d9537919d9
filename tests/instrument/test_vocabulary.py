"""Ids as vocabulary strings, bytes and text, for tokenizers of the usual kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tracer.instrument.asking.vocabulary import TextAssembler, Vocabulary


@pytest.fixture(scope="module")
def byte_level(processor):
    """The demo's own tokenizer."""
    return processor.tokenizer


@pytest.fixture(scope="module")
def metaspace():
    """Pieces with a mark for the space, and a byte piece for what no piece covers."""
    pieces = [("<unk>", 0.0), ("\u2581red", -1.0), ("\u2581", -3.0), ("dish", -2.0)]
    pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


@pytest.fixture(scope="module")
def wordpiece():
    """Pieces that go on a word bear two hashes."""
    pieces = {"[UNK]": 0, "red": 1, "##dish": 2, "blue": 3, "[CLS]": 4}
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def joined(tokenizer, ids):
    """The texts that an assembler gives, one after the other."""
    assembler = TextAssembler(Vocabulary(tokenizer))
    return "".join(assembler.add(one) for one in ids)


@given(text=st.text(max_size=20))
def test_byte_level_texts_join_to_what_the_tokenizer_decodes(byte_level, text):
    ids = byte_level(text)["input_ids"]
    vocabulary = Vocabulary(byte_level)
    assert joined(byte_level, ids) == byte_level.decode(ids)
    raw = b"".join(vocabulary.piece(one)[1] for one in ids)
    assert raw.decode() == byte_level.decode(ids)


@pytest.mark.parametrize("text", ["red", "red reddish", "reddish 你 red"])
def test_metaspace_texts_join_to_what_the_tokenizer_decodes(metaspace, text):
    ids = metaspace(text)["input_ids"]
    assert joined(metaspace, ids).removeprefix(" ") == metaspace.decode(ids) == text


@pytest.mark.parametrize("text", ["red", "reddish blue", "blue red reddish"])
def test_wordpiece_texts_join_to_what_the_tokenizer_decodes(wordpiece, text):
    ids = wordpiece(text)["input_ids"]
    assert joined(wordpiece, ids).removeprefix(" ") == wordpiece.decode(ids) == text


@pytest.mark.parametrize("name", ["byte_level", "metaspace", "wordpiece"])
def test_an_assembler_that_forks_at_every_token_reads_the_same(request, name):
    """As beams do, each of which goes on from one of the last round."""
    tokenizer = request.getfixturevalue(name)
    ids = tokenizer("red reddish red reddish red red red reddish")["input_ids"]
    assembler, texts = TextAssembler(Vocabulary(tokenizer)), []
    for one in ids:
        assembler = assembler.fork()
        texts.append(assembler.add(one))
    assert "".join(texts) + assembler.finish() == joined(tokenizer, ids)


def test_a_character_appears_on_the_token_that_completes_it(byte_level):
    ids = byte_level("\U0001f600")["input_ids"]
    assembler = TextAssembler(Vocabulary(byte_level))
    assert [assembler.add(one) for one in ids] == [""] * (len(ids) - 1) + ["\U0001f600"]
    assert len(ids) > 1


def test_special_ids_are_the_tokenizers(byte_level):
    vocabulary = Vocabulary(byte_level)
    special = {one for one in range(len(byte_level)) if vocabulary.is_special(one)}
    marked = {n for n, token in byte_level.added_tokens_decoder.items() if token.special}
    assert special == marked | set(byte_level.all_special_ids)


def test_an_id_beyond_the_vocabulary_has_no_piece_and_no_text(byte_level):
    vocabulary = Vocabulary(byte_level)
    assert vocabulary.piece(10_000) == (None, None)
    assert vocabulary.text(10_000) is None

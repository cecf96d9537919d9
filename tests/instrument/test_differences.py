"""What is said of a tensor that is not what it should be."""

import pytest
import torch

from tracer.instrument.verifying import differences
from tracer.instrument.verifying.differences import is_same, told
from tracer.instrument.verifying.numbering import Numbered, numbers

NAN = float("nan")
ROWS = torch.arange(24.0).reshape(4, 6)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN]), True),
        (torch.tensor([1.0, NAN]), torch.tensor([1.0, 2.0]), False),
        (torch.tensor([NAN]), -torch.tensor([NAN]), True),  # another NaN
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.tensor([1]), torch.tensor([1.0]), False),
        (torch.tensor([1.0]), torch.tensor([[1.0]]), False),
        (torch.tensor([]), torch.tensor([]), True),
        (torch.tensor(True), torch.tensor(True), True),
        (torch.tensor([1j]), torch.tensor([1j]), True),
        (torch.tensor([1j]), torch.tensor([2j]), False),
        (ROWS.T, ROWS.T.contiguous(), True),
        (ROWS.to(torch.float8_e4m3fn), ROWS.to(torch.float8_e4m3fn), True),
        (ROWS.to(torch.float8_e4m3fn), (ROWS + 9).to(torch.float8_e4m3fn), False),
    ],
)
def test_tensors_are_compared_bit_for_bit(one, other, same):
    assert is_same(one, other) is same


def _changed(tensor, place, value):
    changed = tensor.clone()
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("live", "expected", "words"),
    [
        (ROWS[:2], ROWS, "has shape [2, 6], its source [4, 6]"),
        (ROWS.int(), ROWS, "is int32, its source float32"),
        (ROWS * 0, ROWS, "holds nothing but zeros"),
        (ROWS * NAN, ROWS, "holds nothing but NaN"),
        (ROWS[[1, 0, 2, 3]], ROWS, "has slices of dimension 0 in other places: "
         "0 holds 1, 1 holds 0 of its source"),
        (ROWS[[2, 3, 0, 1]], ROWS, "has slices of dimension 0 in other places: "
         "0 to 1 holds 2 to 3, 2 to 3 holds 0 to 1 of its source"),
        (ROWS.roll(3, 1), ROWS, "has slices of dimension 1 in other places: "
         "0 to 2 holds 3 to 5, 3 to 5 holds 0 to 2 of its source"),
        (ROWS[:, :4].T.contiguous(), ROWS[:, :4], "holds its source transposed"),
        (_changed(ROWS, (1, 2), 7.5), ROWS,
         "differs from its source in 1 of 24 values; the first at [1, 2] is 7.5 instead of 8"),
        (torch.tensor(3), torch.tensor(4),
         "differs from its source in 1 of 1 values; the first is 3 instead of 4"),
        (torch.tensor([True, False]), torch.tensor([True, True]),
         "differs from its source in 1 of 2 values; the first at [1] is False instead of True"),
        (ROWS + 1, ROWS, "has little in common with its source (24 of 24 values differ): "
         "mean 12.5 and standard deviation 6.92 instead of 11.5 and 6.92; "
         "the first at [0, 0] is 1 instead of 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_phrase(live, expected, words):
    assert told(live, expected) == words


def test_a_value_that_was_narrower_once_is_recognised():
    source = torch.linspace(0.1, 1, 9)
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16")):
        live = source.to(dtype).float()
        assert told(live, source, stored=source) == (
            f"holds its source rounded to {name}: it was in that dtype before"
        )


def test_many_pieces_are_counted_and_not_all_named():
    rows = torch.arange(40.0).reshape(10, 4)
    words = told(rows.flip(0), rows)
    assert words.endswith("3 holds 6, and 6 more pieces of its source")


def test_large_tensors_are_looked_at_piece_by_piece(monkeypatch):
    monkeypatch.setattr(differences, "_CHUNK", 5)
    assert "0 holds 1, 1 holds 0" in told(ROWS[[1, 0, 2, 3]], ROWS)
    assert "mean 12.5 and standard deviation 6.92" in told(ROWS + 1, ROWS)


def test_equal_tensors_have_equal_digests():
    assert differences.digest(ROWS) == differences.digest(ROWS.clone())
    assert differences.digest(ROWS) != differences.digest(ROWS.reshape(6, 4))
    assert differences.digest(ROWS) != differences.digest(ROWS.bfloat16())


def test_the_number_in_which_names_differ():
    keys = ["layers.3.experts.10.w1.weight", "layers.3.experts.2.w3.weight"]
    assert numbers(keys) == dict(zip(keys, (10, 2), strict=True))
    assert numbers(["layers.3.w1.weight", "layers.3.w2.weight"]) == {}
    assert numbers(["layers.3.experts.1.w", "layers.4.experts.2.w"]) == {}
    assert numbers([]) == {}


def _numbered(*tensors):
    keys = [f"experts.{number}.w" for number in range(len(tensors))]
    found = Numbered(keys)
    for key, tensor in zip(keys, tensors, strict=True):
        found.note(key, tensor)
    return found


def test_numbered_sources_are_found_in_whatever_order_their_values_are():
    found = _numbered(ROWS, ROWS + 24, ROWS + 48)
    merged = torch.stack([ROWS, ROWS + 24, ROWS + 48])
    assert found.misplaced(merged) is None
    assert found.misplaced(merged.mT) is None
    assert found.misplaced(merged[[0, 2, 1]]) == (
        "merges its numbered sources in another order: 1 holds 2, 2 holds 1"
    )
    mixed = merged.clone()
    mixed[0], mixed[1] = merged[0].clone(), merged[1].clone()
    mixed[0, 0], mixed[1, 0] = merged[1, 0].clone(), merged[0, 0].clone()
    assert "0 holds a mixture, 1 holds a mixture" in found.misplaced(mixed)


def test_what_was_calculated_or_cut_otherwise_is_not_judged():
    found = _numbered(ROWS, ROWS + 24)
    assert found.misplaced(torch.stack([ROWS, ROWS + 24]) * 2) is None
    assert found.misplaced(torch.cat([ROWS, ROWS + 24])) is None
    assert _numbered(ROWS).misplaced(ROWS[None]) is None


def test_a_bool_of_memory_that_nobody_wrote_is_told_by_its_byte():
    live = torch.tensor([90, 0], dtype=torch.uint8).view(torch.bool)
    words = told(live, torch.tensor([True, False]))
    assert words.endswith("the first at [0] is True (as byte 90) instead of True")

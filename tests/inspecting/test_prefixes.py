"""Missing and unexpected names that are the same under another prefix, and those that are not."""

import pytest

from tracer.inspecting.prefixes import prefix_rules

NAMES = [f"layers.{layer}.mlp.{part}.weight" for layer in range(3) for part in ("up", "down")]
CASES = {
    "one to remove": ("", "base.", 6),
    "one to put before": ("model.", "", 6),
    "one to replace": ("model.language_model.", "model.", 6),
}


@pytest.mark.parametrize(("expected", "stored", "count"), CASES.values(), ids=CASES)
def test_the_rule_is_found_with_its_pairs(expected, stored, count):
    missing = [expected + name for name in NAMES]
    (rule,) = prefix_rules(missing, [stored + name for name in NAMES] + ["other.thing"])
    assert (rule.expected, rule.stored, len(rule.pairs)) == (expected, stored, count)
    assert rule.pairs == {expected + name: stored + name for name in NAMES}


def test_two_towers_are_two_rules():
    missing = [f"model.text.{name}" for name in NAMES] + [f"model.sight.b.{n}" for n in NAMES[:4]]
    extra = [f"text.{name}" for name in NAMES] + [f"old.b.{name}" for name in NAMES[:4]]
    rules = prefix_rules(missing, extra)
    assert sum(len(rule.pairs) for rule in rules) == 10
    assert len(rules) == 2


@pytest.mark.parametrize(
    ("missing", "extra"),
    [
        ([], ["a.b"]),
        (["a.weight"], ["b.weight"]),
        (
            [f"x{number}.weight" for number in range(20)],
            [f"y{number}.weight" for number in range(20)],
        ),
        (["head.weight", "head.bias"], ["layers.0.mlp.up.weight"]),
    ],
)
def test_names_that_only_end_alike_make_no_rule(missing, extra):
    assert prefix_rules(missing, extra) == []


def test_a_part_renamed_in_every_layer_is_one_rule():
    names = [f"{layer}.{{}}.{one}_proj.weight" for layer in range(40) for one in "qkv"]
    missing = ["model.layers." + name.format("attention") for name in names]
    extra = ["model.layers." + name.format("self_attn") for name in names]
    (rule,) = prefix_rules(missing, extra)
    assert (rule.stored, rule.expected) == (
        "model.layers.*.self_attn.",
        "model.layers.*.attention.",
    )
    assert rule.pairs == dict(zip(missing, extra, strict=True))


@pytest.mark.parametrize("stored", ["0.", "0.word."])
def test_a_number_before_all_names_is_no_layer(stored):
    (rule,) = prefix_rules(NAMES, [stored + name for name in NAMES])
    assert (rule.stored, rule.expected, len(rule.pairs)) == (stored, "", 6)


def test_weight_and_bias_of_one_head_prove_no_prefix():
    extra = ["cls.seq.weight", "cls.seq.bias", "lm_head.dense.weight", "lm_head.dense.bias"]
    assert prefix_rules(["classifier.weight", "classifier.bias"], extra) == []
    assert prefix_rules(["classifier.dense.weight", "classifier.dense.bias"], extra) == []


def test_names_of_two_shapes_are_no_pair():
    missing, extra = [f"a.{name}" for name in NAMES], [f"b.{name}" for name in NAMES]
    shapes = dict.fromkeys(missing, (2, 2)), dict.fromkeys(extra[1:], (3, 2))
    assert prefix_rules(missing, extra, shapes) == []

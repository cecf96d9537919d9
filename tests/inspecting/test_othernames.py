"""Missing and unexpected names that are the same under another prefix, and those that are not."""

import pytest

from tracer.inspecting.othernames import name_rules

NAMES = [f"layers.{layer}.mlp.{part}.weight" for layer in range(3) for part in ("up", "down")]
CASES = {
    "one to remove": ("", "base.", 6),
    "one to put before": ("model.", "", 6),
    "one to replace": ("model.language_model.", "model.", 6),
}


@pytest.mark.parametrize(("expected", "stored", "count"), CASES.values(), ids=CASES)
def test_the_rule_is_found_with_its_pairs(expected, stored, count):
    missing = [expected + name for name in NAMES]
    (rule,) = name_rules(missing, [stored + name for name in NAMES] + ["other.thing"])
    assert (rule.expected, rule.stored, len(rule.pairs)) == (expected, stored, count)
    assert rule.pairs == {expected + name: stored + name for name in NAMES}


def test_two_towers_are_two_rules():
    missing = [f"model.text.{name}" for name in NAMES] + [f"model.sight.b.{n}" for n in NAMES[:4]]
    extra = [f"text.{name}" for name in NAMES] + [f"old.b.{name}" for name in NAMES[:4]]
    rules = name_rules(missing, extra)
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
    assert name_rules(missing, extra) == []


def test_a_part_renamed_in_every_layer_is_one_rule():
    names = [f"{layer}.{{}}.{one}_proj.weight" for layer in range(40) for one in "qkv"]
    missing = ["model.layers." + name.format("attention") for name in names]
    extra = ["model.layers." + name.format("self_attn") for name in names]
    (rule,) = name_rules(missing, extra)
    assert (rule.stored, rule.expected) == (
        "model.layers.*.self_attn.",
        "model.layers.*.attention.",
    )
    assert rule.pairs == dict(zip(missing, extra, strict=True))


@pytest.mark.parametrize("stored", ["0.", "0.word."])
def test_a_number_before_all_names_is_no_layer(stored):
    (rule,) = name_rules(NAMES, [stored + name for name in NAMES])
    assert (rule.stored, rule.expected, len(rule.pairs)) == (stored, "", 6)


def test_weight_and_bias_of_one_head_prove_no_prefix():
    extra = ["cls.seq.weight", "cls.seq.bias", "lm_head.dense.weight", "lm_head.dense.bias"]
    assert name_rules(["classifier.weight", "classifier.bias"], extra) == []
    assert name_rules(["classifier.dense.weight", "classifier.dense.bias"], extra) == []


def test_names_of_two_shapes_are_no_pair():
    missing, extra = [f"a.{name}" for name in NAMES], [f"b.{name}" for name in NAMES]
    shapes = dict.fromkeys(missing, (2, 2)), dict.fromkeys(extra[1:], (3, 2))
    assert name_rules(missing, extra, shapes) == []


LINEAR = [f"model.layers.{layer}.attn.{one}_proj" for layer in range(3) for one in "qkvo"]
PLAIN = [f"model.layers.{layer}.norm.weight" for layer in range(3)]


@pytest.mark.parametrize(
    ("stored", "expected", "maker"),
    [
        ("base_layer.weight", "weight", "PEFT"),
        ("parametrizations.weight.original", "weight", "torch.nn.utils.parametrize"),
        ("parametrizations.weight.original1", "weight", "torch.nn.utils.parametrize"),
        ("weight_orig", "weight", "torch.nn.utils.prune"),
        ("_checkpoint_wrapped_module.weight", "weight", "checkpoint_wrapper"),
        ("inner.weight", "weight", None),
        ("kernel", "weight", None),
        ("weight", "linear.weight", None),
    ],
)
def test_words_inside_are_one_rule(stored, expected, maker):
    missing = [f"{name}.{expected}" for name in LINEAR]
    extra = [f"{name}.{stored}" for name in LINEAR]
    beside = [f"{name}.weight_mask" for name in LINEAR] if maker else []
    (rule,) = name_rules(missing, [*extra, *beside])
    assert rule.pairs == dict(zip(missing, extra, strict=True))
    assert (rule.wrapper.maker if rule.wrapper else None) == maker
    assert rule.sentence


def test_a_wrapper_within_a_wrapper_is_two_rules():
    missing = [*(f"{name}.weight" for name in LINEAR), *PLAIN]
    front = "base_model.model."
    extra = [f"{front}{name}.base_layer.weight" for name in LINEAR]
    rules = name_rules(missing, [*extra, *(front + name for name in PLAIN)])
    assert [one.wrapper.maker for one in rules] == ["PEFT", "PEFT"]
    assert {name for one in rules for name in one.pairs} == set(missing)


def test_one_part_renamed_in_each_layer_is_one_rule():
    extra = [f"model.layers.{layer}.attn.dense.weight" for layer in range(3)]
    missing = [f"model.layers.{layer}.attn.o_proj.weight" for layer in range(3)]
    (rule,) = name_rules(missing, extra)
    assert rule.pairs == dict(zip(missing, extra, strict=True))


def test_which_of_three_parts_is_which_is_not_guessed():
    names = [(layer, one) for layer in range(3) for one in ("query", "key", "value")]
    extra = [f"model.layers.{layer}.attn.{one}.weight" for layer, one in names]
    missing = [f"model.layers.{layer}.attn.{one[0]}_proj.weight" for layer, one in names]
    assert name_rules(missing, extra) == []


def test_a_layer_that_is_absent_is_not_its_neighbour():
    missing = [f"model.layers.1.mlp.{one}.weight" for one in ("up", "down", "gate")]
    extra = [f"model.layers.4.mlp.{one}.weight" for one in ("up", "down", "gate")]
    assert all(not rule.is_inside for rule in name_rules(missing, extra))

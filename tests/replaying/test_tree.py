"""The order of the walk: preorder of any forest, in whole arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.replaying.folds import folds, starred
from tracer.replaying.tree import DEEPEST, walk


def walked_one_by_one(parents: list[int]) -> list[int]:
    """Preorder as anyone would write it: a node, then its children by number."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    order, waiting = [], children.get(-1, [])[::-1]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += children.get(node, [])[::-1]
    return order


@st.composite
def forests(draw):
    """Parents of nodes that come after them, in any shape."""
    count = draw(st.integers(0, 40))
    return [draw(st.integers(-1, node - 1)) for node in range(count)]


@given(forests())
def test_the_walk_is_preorder(parents):
    found = walk(np.array(parents, np.int64))
    assert found.order.tolist() == walked_one_by_one(parents)


@given(forests())
def test_parent_depth_and_extent_agree_with_the_order(parents):
    found = walk(np.array(parents, np.int64))
    place_of = {node: place for place, node in enumerate(found.order.tolist())}
    for place, node in enumerate(found.order.tolist()):
        above = parents[node]
        assert found.parent[place] == (-1 if above < 0 else place_of[above])
        inside = [
            one for one in range(place + 1, len(parents)) if found.depth[one] > found.depth[place]
        ]
        # What lies deeper and side by side behind a stop is inside it.
        run = [one for number, one in enumerate(inside) if one == place + 1 + number]
        assert found.last[place] == (run[-1] if run else place)


@pytest.mark.parametrize("parents", [[0], [1, 0], [2, 0, 1], [5, -7, 1]])
def test_a_circle_or_a_stranger_becomes_a_root_and_every_node_is_met(parents):
    found = walk(np.array(parents, np.int64))
    assert sorted(found.order.tolist()) == list(range(len(parents)))


def test_a_chain_deeper_than_any_run_is_walked_whole():
    count = DEEPEST + 500
    found = walk(np.arange(-1, count - 1))
    assert found.order.tolist() == list(range(count))
    assert found.depth.max() == DEEPEST - 1


@pytest.mark.parametrize(
    ("name", "star"),
    [
        ("model.layers.12.mlp.weight", "model.layers.*"),
        ("decode 7", "decode *"),
        ("h.0", "h.*"),
        ("Qwen2_5_VLModel", "Qwen2_5_VLModel"),
        ("model-00001-of-00003.safetensors", "model-00001-of-00003.safetensors"),
    ],
)
def test_a_number_counts_where_it_stands_alone(name, star):
    assert starred(name) == star


def folded(names: list[str], parents: list[int] | None = None, skipped=()):
    found = walk(np.array(parents or [-1] * len(names), np.int64))
    distinct = sorted(set(names))
    name = np.array([distinct.index(names[node]) for node in found.order])
    skip = np.isin(found.order, list(skipped))
    return folds(found, np.zeros(len(names), np.int64), name, distinct, skipped=skip)


def test_siblings_that_differ_by_a_number_fold():
    found = folded(["embed", "layers.0", "layers.1", "layers.2", "norm"])
    assert found.fold.tolist() == [-1, 0, 0, 0, -1]
    assert (found.first.tolist(), found.last.tolist()) == ([1], [3])
    assert found.count.tolist() == [3]
    assert found.names[found.name[0]] == "layers.*"


def test_two_alike_do_not_fold_and_a_stranger_ends_a_fold():
    assert folded(["layers.0", "layers.1"]).fold.tolist() == [-1, -1]
    names = ["layers.0", "layers.1", "hook", "layers.2", "layers.3"]
    assert folded(names).fold.tolist() == [-1] * 5
    assert folded(names, skipped=[2]).fold.tolist() == [0, 0, -1, 0, 0]


def test_the_last_stop_of_a_fold_is_inside_its_last_sibling():
    found = folded(["layers.0", "layers.1", "layers.2", "mlp"], [-1, -1, -1, 2])
    assert found.last.tolist() == [3]


def test_children_of_two_parents_are_no_siblings():
    names = ["a", "b", "layers.0", "layers.1", "layers.2", "layers.3"]
    assert folded(names, [-1, -1, 0, 0, 1, 1]).fold.tolist() == [-1] * 6

"""Questions about a load, asked of a trace whose every number is known."""

import pytest
from synthetic import coherent_rows, make_trace

from tracer.analysis import loading


@pytest.fixture
def rows():
    return coherent_rows()


def test_length_header_and_tensors_are_all_that_a_file_holds(rows):
    (account,) = loading.shard_accounts(make_trace(rows)).to_dict("records")
    assert account["tensors"] == 6
    assert account["tensor_bytes"] + account["header_bytes"] + 8 == account["size_bytes"]
    assert account["rest_bytes"] == 0
    assert account["metadata"] == '{"format": "pt"}'


def test_bytes_that_belong_to_no_tensor_are_the_rest(rows):
    rows["files"][0]["size_bytes"] += 17
    assert loading.shard_accounts(make_trace(rows))["rest_bytes"].tolist() == [17]


def test_each_file_has_the_sum_of_its_own_tensors(rows):
    second = rows["files"][0] | {"path": "other.safetensors", "size_bytes": 8 + 400 + 64}
    rows["files"].append(second)
    moved = next(one for one in rows["checkpoint_tensors"] if one["key"] == "layers.1.weight")
    moved["file"] = "other.safetensors"
    accounts = loading.shard_accounts(make_trace(rows)).set_index("path")
    assert accounts.loc["other.safetensors", "tensor_bytes"] == 64
    assert accounts.loc["other.safetensors", "rest_bytes"] == 0
    assert accounts.loc["model.safetensors", "rest_bytes"] == 64


def test_parts_of_the_model_as_built_add_up(rows):
    parts = loading.parts_as_built(make_trace(rows), depth=1).set_index("part")
    assert parts.loc["layers", ["tensors", "values", "size_bytes"]].tolist() == [2, 32, 128]
    assert parts["tensors"].sum() == 7
    assert set(parts["device"]) == {"meta"}
    assert list(parts.index) == ["embed", "layers", "norm", "head", "rotary"]


def test_a_scalar_is_one_value(rows):
    rows["meta_params"] = [rows["meta_params"][0] | {"param": "scale", "shape": []}]
    assert loading.parts_as_built(make_trace(rows))["values"].tolist() == [1]


def test_every_parameter_of_the_file_fits_the_model(rows):
    checks = loading.shape_checks(make_trace(rows)).set_index("param")
    assert checks["fits"].sum() == 6
    assert checks["matches"].all()
    assert checks.loc["embed.weight", "stored_shape"] == "[10, 4]"


def test_a_file_of_another_model_does_not_fit(rows):
    placed = next(one for one in rows["placements"] if one["param"] == "head.weight")
    placed |= {"expected_shape": [12, 4], "shape": [12, 4]}
    checks = loading.shape_checks(make_trace(rows)).set_index("param")
    assert not checks.loc["head.weight", "fits"]
    assert checks.loc["head.weight", "matches"]
    assert checks["fits"].drop("head.weight").dropna().all()


def test_what_no_file_holds_has_nothing_to_fit(rows):
    checks = loading.shape_checks(make_trace(rows)).set_index("param")
    assert checks["fits"].isna().tolist() == [False] * 6 + [True]
    assert checks.loc["rotary.inv_freq", ["key", "stored_shape"]].isna().all()


def test_a_tensor_refused_for_its_shape_stands_beside_its_parameter(rows):
    placed = next(one for one in rows["placements"] if one["param"] == "head.weight")
    placed |= {"sources": [], "expected_shape": [12, 4], "shape": [12, 4], "origin": "initialised"}
    tensor = next(one for one in rows["checkpoint_tensors"] if one["key"] == "head.weight")
    tensor |= {"fate": "discarded", "because": "its shape does not fit head.weight"}
    checks = loading.shape_checks(make_trace(rows)).set_index("param")
    assert checks.loc["head.weight", "key"] == "head.weight"
    assert checks.index[checks["fits"].eq(False).fillna(False)].tolist() == ["head.weight"]


def test_changes_of_names_are_told_by_the_part_that_changed(rows):
    names = ["visual.a.w", "visual.b.w", "model.c.w", "head.w"]
    params = ["model.visual.a.w", "model.visual.b.w", "model.text.c.w", "head.w"]
    rows["placements"] = [
        rows["placements"][0] | {"param": param, "sources": [name]}
        for name, param in zip(names, params, strict=True)
    ]
    changes = loading.name_changes(make_trace(rows))
    assert changes.drop(columns="operations").to_numpy().tolist() == [
        ["visual", "model.visual", 2, "visual.a.w"],
        ["model", "model.text", 1, "model.c.w"],
        ["head", "head", 1, "head.w"],
    ]


@pytest.mark.parametrize(
    "change", [{"operations": ["Transpose"]}, {"sources": ["layers.0.weight", "layers.1.weight"]}]
)
def test_a_converted_parameter_has_no_one_shape_to_fit(rows, change):
    placed = next(one for one in rows["placements"] if one["param"] == "layers.0.weight")
    placed |= change
    checks = loading.shape_checks(make_trace(rows)).set_index("param")
    assert checks["fits"].isna()["layers.0.weight"]


def test_the_slowest_tensors_come_first_and_no_more_than_asked(rows):
    for number, load in enumerate(rows["tensor_loads"]):
        load["duration_ns"] = 100 * (number + 1)
    slowest = loading.slowest_tensors(make_trace(rows), count=2)
    assert slowest["key"].tolist() == ["head.weight", "norm.bias"]
    assert slowest["duration_ns"].tolist() == [600, 500]


def test_origins_are_counted_apart_for_parameters_and_buffers(rows):
    origins = loading.origins(make_trace(rows))
    assert origins[["kind", "origin", "tensors", "values"]].to_numpy().tolist() == [
        ["parameter", "checkpoint", 6, 120],
        ["buffer", "rebuilt", 1, 2],
    ]
    assert origins["example"].tolist() == ["embed.weight", "rotary.inv_freq"]


@pytest.mark.parametrize(
    "question",
    [
        loading.shard_accounts,
        loading.parts_as_built,
        loading.shape_checks,
        loading.name_changes,
        loading.slowest_tensors,
        loading.origins,
    ],
)
def test_a_trace_without_a_load_gives_an_empty_frame(question):
    full, empty = question(make_trace(coherent_rows())), question(make_trace({}))
    assert empty.empty
    assert list(empty.columns) == list(full.columns)

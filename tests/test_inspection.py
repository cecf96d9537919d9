"""What can be known of a folder before loading: the three-way check, tokenizer, memory, words."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tracer
from tracer.listing import order_of
from tracer.machine import Room, memory_left
from tracer.problems import KINDS
from tracer.survey import survey_folder

PUBLISHED = Path(__file__).resolve().parents[2] / "shared/data/folders"
INDEX = "model.safetensors.index.json"
ROWS, WIDTH = 12, 4
EMBEDDING = "model.embed_tokens.weight"


def write_shard(path, names, dtype="F32", shape=(2, 3)):
    """A safetensors file of zeros."""
    size = 4 if dtype == "F32" else 2
    header, end = {}, 0
    for name in names:
        own = (ROWS, WIDTH) if name == EMBEDDING else shape
        begin, end = end, end + size * own[0] * own[1]
        header[name] = {"dtype": dtype, "shape": own, "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(end))
    return end


def write_json(path, content):
    path.write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path):
    """Two shards, their index, a configuration and a tokenizer that fit."""
    root = tmp_path / "模型 v1.5"
    root.mkdir()
    total = write_shard(root / "one.safetensors", [EMBEDDING, "a"])
    total += write_shard(root / "two.safetensors", ["b", "c"])
    names = {EMBEDDING: "one.safetensors", "a": "one.safetensors"}
    names |= {"b": "two.safetensors", "c": "two.safetensors"}
    write_json(root / INDEX, {"metadata": {"total_size": total}, "weight_map": names})
    write_json(root / "config.json", {"vocab_size": ROWS, "eos_token_id": 2, "dtype": "float32"})
    vocabulary = {f"t{number}": number for number in range(ROWS - 1)}
    write_json(
        root / "tokenizer.json",
        {
            "model": {"vocab": vocabulary},
            "added_tokens": [{"id": ROWS - 1, "content": "<end>"}],
        },
    )
    write_json(root / "tokenizer_config.json", {"eos_token": "t2", "chat_template": "{{ x }}"})
    return root


def change_index(folder, **changes):
    content = json.loads((folder / INDEX).read_text())
    content["weight_map"] |= changes
    content["weight_map"] = {key: file for key, file in content["weight_map"].items() if file}
    write_json(folder / INDEX, content)


def found(folder):
    """Problems as kind, file and key."""
    return {(one.kind, one.file, one.key) for one in tracer.inspect(folder).problems}


def test_a_sound_folder_has_no_problem_and_its_sums_are_right(folder):
    inspection = tracer.inspect(folder)
    assert inspection.problems == []
    assert inspection.size_bytes == 4 * (ROWS * WIDTH + 3 * 6)
    assert inspection.parameters == ROWS * WIDTH + 3 * 6
    assert inspection.missing_bytes == 0
    (sums,) = inspection.frame("dtypes").to_dict("records")
    assert sums == {"dtype": "float32", "tensors": 4, "parameters": 66, "size_bytes": 264}
    tensors = inspection.frame("tensors")
    assert tensors["size_bytes"].sum() == 264
    assert tensors["in_index"].all()
    assert "No problem found" in str(inspection)


BREAKAGES = {
    "absent file": (
        lambda root: (root / "two.safetensors").unlink(),
        {("absent_file", "two.safetensors", None), ("total_size", INDEX, "total_size")},
    ),
    "stray shard": (
        lambda root: write_shard(root / "three.safetensors", ["d"]),
        {("stray_file", "three.safetensors", None)},
    ),
    "promised, not held": (
        lambda root: change_index(root, z="one.safetensors"),
        {("not_held", "one.safetensors", "z")},
    ),
    "held, not named": (
        lambda root: change_index(root, a=None),
        {("not_in_index", "one.safetensors", "a")},
    ),
    "under another file": (
        lambda root: change_index(root, a="two.safetensors"),
        {("misplaced", "two.safetensors", "a")},
    ),
    "held twice": (
        lambda root: write_shard(root / "two.safetensors", ["b", "c", "a"]),
        {("held_twice", "two.safetensors", "a"), ("total_size", INDEX, "total_size")},
    ),
    "out of the folder": (
        lambda root: change_index(root, a="../two.safetensors"),
        {("outside_folder", "../two.safetensors", None)},
    ),
}


@pytest.mark.parametrize(("breakage", "expected"), BREAKAGES.values(), ids=BREAKAGES)
def test_index_headers_and_files_are_compared_in_every_direction(folder, breakage, expected):
    breakage(folder)
    kinds = {kind for kind, *_ in expected}
    assert {one for one in found(folder) if one[0] in kinds | {"absent_file"}} >= expected
    assert {kind for kind, *_ in found(folder)} <= kinds | {"not_in_index", "total_size"}


def test_numbers_of_a_total_that_does_not_add_up(folder):
    content = json.loads((folder / INDEX).read_text())
    content["metadata"]["total_size"] += 40
    write_json(folder / INDEX, content)
    (one,) = tracer.inspect(folder).problems
    assert (one.kind, one.expected, one.found, one.missing_bytes) == ("total_size", 304, 264, None)


def test_what_a_load_reads_and_why_not_the_rest(folder):
    write_shard(folder / "three.safetensors", ["d"])
    write_shard(folder / "model.fp16.safetensors", ["d"], "F16")
    (folder / "original").mkdir()
    write_shard(folder / "original/consolidated.safetensors", ["d"])
    for name in ("pytorch_model.bin", "model.Q4.gguf", "modeling_own.py", "LICENSE"):
        (folder / name).write_bytes(b"x" * 20)
    files = tracer.inspect(folder).frame("files").set_index("path")
    assert files.index[files["read"]].tolist() == [
        "config.json", INDEX, "one.safetensors", "tokenizer.json", "tokenizer_config.json",
        "two.safetensors",
    ]  # fmt: skip
    words = {
        "three.safetensors": f"{INDEX} does not name it",
        "model.fp16.safetensors": "variant='fp16'",
        "original/consolidated.safetensors": "in a folder below",
        "pytorch_model.bin": f"{INDEX} is there and comes first",
        "model.Q4.gguf": "gguf_file='model.Q4.gguf'",
        "modeling_own.py": "trust_remote_code=True",
        "LICENSE": "no part of a model",
    }
    assert {name for name, why in words.items() if why not in files.loc[name, "why_not"]} == set()


ORDERS = {
    "plain": (
        {},
        ["model.safetensors", INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json"],
    ),
    "safetensors": ({"use_safetensors": True}, ["model.safetensors", INDEX]),
    "pickle": (
        {"use_safetensors": False},
        ["pytorch_model.bin", "pytorch_model.bin.index.json"],
    ),
    "variant": (
        {"variant": "fp16", "use_safetensors": True},
        ["model.fp16.safetensors", "model.safetensors.index.fp16.json"],
    ),
    "gguf": ({"gguf_file": "a.gguf", "variant": "x"}, ["a.gguf"]),
}


@pytest.mark.parametrize(("arguments", "expected"), ORDERS.values(), ids=ORDERS)
def test_arguments_of_a_load_decide_what_it_looks_for(arguments, expected):
    assert list(order_of(arguments)) == expected


def test_one_file_comes_before_an_index_and_that_before_a_pickle(folder):
    write_shard(folder / "model.safetensors", ["d"])
    assert survey_folder(folder).chosen == ["model.safetensors"]
    survey = survey_folder(folder, order=order_of({"use_safetensors": False}))
    assert (survey.entry, survey.chosen) == (None, [])


def test_a_vocabulary_that_outgrows_the_embedding(folder):
    write_json(folder / "added_tokens.json", {"<one>": ROWS, "<two>": ROWS + 4})
    (one,) = tracer.inspect(folder).problems
    assert (one.kind, one.expected, one.found) == ("vocabulary", ROWS, ROWS + 5)
    assert f"ids up to {ROWS + 4}, the embedding {ROWS} rows" in one.sentence


def test_a_configuration_that_counts_other_rows_than_the_file(folder):
    write_json(folder / "config.json", {"vocab_size": ROWS + 1, "eos_token_id": 2})
    (one,) = tracer.inspect(folder).problems
    assert (one.kind, one.file, one.key) == ("vocabulary", "config.json", "vocab_size")


def test_an_end_token_that_generation_does_not_stop_at(folder):
    write_json(folder / "generation_config.json", {"eos_token_id": [3, 4]})
    (one,) = tracer.inspect(folder).problems
    assert (one.kind, one.file, one.expected) == ("token_ids", "generation_config.json", 2)
    write_json(folder / "generation_config.json", {"eos_token_id": [3, 2]})
    assert tracer.inspect(folder).problems == []


TOKENIZERS = {
    "vocab.json": (json.dumps({"a": 0, "b": 1, "c": 7}), (3, 7)),
    "vocab.txt": ("[PAD]\n[UNK]\na\n", (3, 2)),
    # Three pieces of field 1, between them a field of another number.
    "tokenizer.model": (b"\x0a\x03\x0a\x01a\x12\x02\x08\x01\x0a\x02\x0a\x00\x0a\x00", (3, 2)),
}


@pytest.mark.parametrize(("name", "case"), TOKENIZERS.items(), ids=TOKENIZERS)
def test_the_size_of_a_vocabulary_in_each_form(folder, name, case):
    content, expected = case
    (folder / "tokenizer.json").unlink()
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    tokenizer = tracer.inspect(folder).tokenizer
    assert (tokenizer.vocabulary_file, tokenizer.size, tokenizer.highest_id) == (name, *expected)


def test_what_is_absent_beside_the_weights_is_a_note(folder):
    (folder / "tokenizer_config.json").unlink()
    assert found(folder) == {("no_template", None, None)}
    (folder / "tokenizer.json").unlink()
    assert found(folder) == {("no_tokenizer", None, None)}


def test_templates_are_found_wherever_they_lie(folder):
    (folder / "chat_template.jinja").write_text("{% for %}")
    write_json(folder / "chat_template.json", {"chat_template": "abc"})
    assert tracer.inspect(folder).tokenizer.templates == {
        "chat_template.jinja": 9,
        "chat_template.json": 3,
        "tokenizer_config.json": 7,
    }


def test_weights_are_set_against_memory(folder, monkeypatch):
    monkeypatch.setattr("tracer.machine.memory_left", lambda: Room(200, 1000, "a small machine"))
    inspection = tracer.inspect(folder)
    fits = inspection.frame("fit").set_index("dtype")
    assert fits["needed_bytes"].to_dict() == {
        "as stored": 264,
        "bfloat16": 132,
        "float16": 132,
        "float32": 264,
    }
    assert fits["fits"].tolist() == [False, True, True, False]
    (one,) = inspection.problems
    assert (one.kind, one.expected, one.found) == ("no_room", 264, 200)
    assert "estimate" in one.sentence


LIMITS = {
    "machine": ({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 5 kB\n"}, (5120, 9216)),
    "container": (
        {
            "proc/meminfo": "MemTotal:  9 kB\nMemAvailable:  5 kB\n",
            "cgroup/memory.max": "4000\n",
            "cgroup/memory.current": "3900\n",
            "cgroup/memory.stat": "anon 3\nactive_file 400\ninactive_file 500\n",
        },
        (1000, 4000),
    ),
    "no limit": (
        {
            "proc/meminfo": "MemTotal:  9 kB\nMemAvailable:  5 kB\n",
            "cgroup/memory.max": "max\n",
            "cgroup/memory.current": "3900\n",
        },
        (5120, 9216),
    ),
}


@pytest.mark.parametrize(("files", "expected"), LIMITS.values(), ids=LIMITS)
def test_the_narrowest_limit_counts(tmp_path, files, expected):
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    room = memory_left(tmp_path / "proc", tmp_path / "cgroup")
    assert (room.left_bytes, room.total_bytes) == expected


def test_a_system_that_tells_nothing_has_no_room_made_up(tmp_path):
    assert memory_left(tmp_path, tmp_path) is None


@pytest.fixture
def chinese():
    tracer.language("zh")
    yield
    tracer.language("en")


CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.mark.parametrize(("breakage", "expected"), BREAKAGES.values(), ids=BREAKAGES)
def test_an_inspection_speaks_the_chosen_language(folder, chinese, breakage, expected):
    breakage(folder)
    write_shard(folder / "model.fp16.safetensors", ["d"], "F16")
    inspection = tracer.inspect(folder)
    name, *lines = str(inspection).splitlines()
    settings = ("dtype：", "vocab_size：")  # named as in config.json
    silent = [line for line in lines if line and not CHINESE.search(line)]
    assert [line for line in silent if not line.strip().startswith(settings)] == []
    assert all(CHINESE.search(one.sentence) for one in inspection.problems)
    assert not any(CHINESE.search(one.english.replace(name, "")) for one in inspection.problems)
    reasons = inspection.frame("files")["why_not"].dropna()
    assert all(CHINESE.search(why) for why in reasons)
    assert {kind for kind, *_ in expected} <= set(inspection.frame("problems")["kind"])
    fit = inspection.frame("fit")
    assert all(CHINESE.search(told) for told in [*fit["limit"].dropna(), *fit["basis"]])
    assert CHINESE.search(re.sub("<[^>]*>", "", inspection._repr_html_()))


CUT = {
    "empty": (lambda path: path.write_bytes(b""), "是空的"),
    "pointer": (
        lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\nsize 77\n"),
        "Git LFS 指针",
    ),
    "web page": (lambda path: path.write_bytes(b"<!doctype html>" * 20), "网页"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-3]), "缺少 3 字节权重"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "它是文件夹"),
}


@pytest.mark.parametrize(("breakage", "words"), CUT.values(), ids=CUT)
def test_what_is_wrong_with_a_file_is_told_in_the_chosen_language(folder, chinese, breakage, words):
    breakage(folder / "two.safetensors")
    told = [one for one in tracer.inspect(folder).problems if one.file == "two.safetensors"]
    assert words in told[0].sentence
    assert not CHINESE.search(told[0].english)


HOSTILE = "\x1b[31m<script>alert('x')</script>\u202e\nnext\ud800"


def test_a_strangers_names_neither_move_the_cursor_nor_become_markup(folder):
    write_shard(folder / "two.safetensors", ["b", "c", HOSTILE])
    write_json(folder / "tokenizer_config.json", {"eos_token": HOSTILE, "chat_template": "x"})
    write_json(folder / "config.json", {"model_type": HOSTILE, "vocab_size": ROWS})
    inspection = tracer.inspect(folder)
    shown, page = str(inspection), inspection._repr_html_()
    assert "\x1b" not in shown + page
    assert "<script>" not in page
    page.encode()
    shown.encode()
    assert all("next" not in line.lstrip()[:4] for line in shown.splitlines())


ODD_FILES = {
    "config.json": ["[" * 100_000, '{"vocab_size": ' + "9" * 5000 + "}", '{"text_config": 3}'],
    "tokenizer.json": ['{"model": []}', '{"model": {"vocab": {"a": "b"}}, "added_tokens": {}}'],
    "tokenizer_config.json": ['{"added_tokens_decoder": [1], "eos_token": {"content": 3}}'],
    "generation_config.json": ['{"eos_token_id": "x"}', '{"eos_token_id": {"a": 1}}'],
    "chat_template.json": ["[]", '{"chat_template": 3}'],
    "tokenizer.model": ["\x0a" + "\xff" * 40],
    INDEX: ['{"weight_map": {"a": 3, "b": null}}', '{"weight_map": {}, "metadata": 7}'],
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, one) for name, each in ODD_FILES.items() for one in each]
)
def test_odd_files_are_told_and_never_crash(folder, name, content):
    (folder / name).write_text(content)
    inspection = tracer.inspect(folder)
    assert str(inspection)
    assert {one.kind for one in inspection.problems} <= set(KINDS)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(folder):
    (folder / "one.safetensors").unlink()
    os.mkfifo(folder / "one.safetensors")
    os.mkfifo(folder / "vocab.txt")
    assert ("unreadable", "one.safetensors", None) in found(folder)


@pytest.mark.parametrize("name", ["nowhere", "config.json"])
def test_what_is_no_folder_is_one_clear_error(folder, name):
    with pytest.raises(tracer.CheckpointError, match="give the folder that holds config"):
        tracer.inspect(folder / name)


def test_an_unknown_part_is_one_clear_error(folder):
    with pytest.raises(tracer.UnknownNameError, match="it has files, tensors"):
        tracer.inspect(folder).frame("file")


def test_an_empty_folder_is_told(tmp_path):
    kinds = {kind for kind, *_ in found(tmp_path)}
    assert kinds == {"no_weights", "no_config", "no_tokenizer"}
    for name in ("files", "tensors", "dtypes", "facts", "fit"):
        assert tracer.inspect(tmp_path).frame(name).empty


def test_no_torch_is_imported_and_nothing_of_the_folder_is_run(folder):
    (folder / "modeling_own.py").write_text("raise SystemExit('run')")
    code = (
        "import sys, tracer\n"
        f"print(tracer.inspect({str(folder)!r}))\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def published(name):
    if not (PUBLISHED / name).is_dir():
        pytest.skip(f"the published folder {name} is not here")
    return tracer.inspect(PUBLISHED / name)


def test_a_published_index_without_shards():
    inspection = published("Devstral-Small-2507")
    index = inspection.survey.index
    assert (len(index.weight_map), index.total_parameters) == (363, 23_572_403_200)
    assert inspection.missing_bytes == index.total_size == 47_144_806_400
    kinds = [one.kind for one in inspection.problems]
    assert (kinds.count("absent_file"), kinds.count("no_tokenizer")) == (10, 1)
    files = inspection.frame("files")
    assert files.loc[files["kind"] == "weights", "size_bytes"].isna().sum() == 10


def test_published_pointers_in_place_of_shards():
    inspection = published("WizardLM-2-8x22B")
    assert len(inspection.survey.index.weight_map) == 1_739
    assert inspection.missing_bytes == 281_241_268_224
    pointers = [one for one in inspection.problems if one.kind == "lfs_pointer"]
    assert len(pointers) == 60  # 59 shards and the tokenizer
    stood_for = sum(one.expected for one in pointers if one.file.endswith(".safetensors"))
    assert 0 < stood_for - 281_241_268_224 < 59 * 10_000  # the rest are headers
    assert inspection.tokenizer.size is None


def test_a_published_pointer_in_place_of_one_file():
    inspection = published("granite-3.1-1b-a400m-instruct")
    (one,) = [one for one in inspection.problems if one.level != "warning"]
    assert (one.kind, one.file, one.expected) == ("lfs_pointer", "model.safetensors", 2669283096)
    assert inspection.missing_bytes == 2_669_283_096
    assert (inspection.tokenizer.size, inspection.tokenizer.config_rows) == (49_155, 49_155)
    assert inspection.tokenizer.special["pad"] == ("<|end_of_text|>", 0)


def test_a_published_folder_without_weights():
    inspection = published("Qwen2.5-VL-7B-Instruct")
    assert [one.kind for one in inspection.problems] == ["no_weights"]
    tokenizer = inspection.tokenizer
    assert (tokenizer.size, tokenizer.config_rows) == (151_665, 152_064)
    assert tokenizer.special["eos"] == ("<|im_end|>", 151_645)
    assert tokenizer.config_ids["generation_config.json"]["eos"] == (151_645, 151_643)
    assert set(tokenizer.templates) == {"chat_template.json", "tokenizer_config.json"}

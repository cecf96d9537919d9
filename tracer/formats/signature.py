"""What a file really is, decided from its first bytes and never from its name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from tracer.errors import CheckpointError

LENGTH_BYTES: Final = 8
"""A safetensors file begins with the length of its header, in so many bytes."""
START_BYTES: Final = 512
_LFS_MARK: Final = b"version https://git-lfs"
_LONGEST_POINTER: Final = 1024  # the format's own limit
_MARKS: Final = (
    (b"GGUF", "gguf"),
    (b"PK\x03\x04", "zip"),
    (b"\x80", "pickle"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x89HDF", "hdf5"),
    (b"\x93NUMPY", "numpy"),
    (b"%PDF", "pdf"),
)
NAMES: Final = {
    "gguf": "a GGUF file",
    "zip": "a zip archive, as torch.save writes it",
    "pickle": "a pickle, as torch.save once wrote it",
    "gzip": "a gzip archive",
    "zstd": "a zstd archive",
    "hdf5": "an HDF5 file",
    "numpy": "a NumPy array",
    "pdf": "a PDF document",
    "html": "a web page",
    "json": "JSON text",
    "text": "plain text",
    "safetensors": "a safetensors file",
    "unknown": "none of the formats that the lab knows",
}
"""What to call each format in a sentence."""


def read_start(path: Path) -> tuple[bytes, int]:
    """The first bytes of a file that can hold a checkpoint, and the bytes of the whole file.

    Raises:
        CheckpointError: it can't be opened, is no plain file, is empty or a Git LFS pointer.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            # A pipe would be waited for, and a device never ends.
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no plain file"
            raise CheckpointError(f"{path.name} can't be read: it is {what}", kind="unreadable")
        with path.open("rb") as file:
            start = file.read(max(START_BYTES, _LONGEST_POINTER))
    except OSError as error:
        raise unreadable(path, error) from error
    if status.st_size == 0:
        raise CheckpointError(
            f"{path.name} is empty; download it again", kind="empty_file", found=0
        )
    if start.startswith(_LFS_MARK):
        raise _pointer(path, start, status.st_size)
    return start, status.st_size


def unreadable(path: Path, error: OSError) -> CheckpointError:
    """What the system's own number of an error says of a file."""
    kind = "unreadable"
    if error.errno == errno.ENOENT:
        kind = "broken_link" if os.path.islink(path) else "absent_file"
    elif error.errno in {errno.EACCES, errno.EPERM}:
        kind = "no_permission"
    advice = {
        "broken_link": f"; it is a link to {_target(path)}, which is not there",
        "no_permission": "; ask its owner for the right to read it",
    }
    reason = error.strerror or type(error).__name__
    sentence = f"{path.name} can't be read: {reason}{advice.get(kind, '')}"
    return CheckpointError(sentence, kind=kind)


def _target(path: Path) -> str:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return "another file"


def _pointer(path: Path, start: bytes, file_bytes: int) -> CheckpointError:
    size = pointer_size(start)
    stands_for = "unknown size" if size is None else f"{size} bytes"
    return CheckpointError(
        f"{path.name} is a Git LFS pointer of {file_bytes} bytes, not the file of {stands_for} "
        "that it stands for; run `git lfs pull`",
        kind="lfs_pointer",
        expected=size,
        found=file_bytes,
        missing_bytes=size,
    )


def pointer_size(start: bytes) -> int | None:
    """Bytes of the file that a Git LFS pointer stands for; None where it isn't one, or unsaid."""
    if not start.startswith(_LFS_MARK):
        return None
    for line in start[:_LONGEST_POINTER].splitlines():
        value = line.removeprefix(b"size ").strip()
        if line.startswith(b"size ") and value.isdigit() and len(value) <= 18:
            return int(value)
    return None


def format_of(start: bytes) -> str:
    """Name of the format that a file begins like; `unknown` where none fits."""
    for mark, name in _MARKS:
        if start.startswith(mark):
            return name
    if start[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{" and start[6:8] == b"\0\0":
        return "safetensors"
    words = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if words[:1] == b"<":
        return "html"
    if words[:1] in {b"{", b"["}:
        return "json"
    return "text" if _is_text(start) else "unknown"


def _is_text(start: bytes) -> bool:
    return bool(start) and not any(byte < 9 or 13 < byte < 32 for byte in start)

"""What a file really is, decided from its first bytes and never from its name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any, Final

from tracer.errors import CheckpointError
from tracer.explain.sentences import Sentence, phrase

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


def read_start(path: Path, most: int = START_BYTES) -> tuple[bytes, int]:
    """The first bytes of a file that can hold a checkpoint, and the bytes of the whole file.

    Args:
        path: The file.
        most: Bytes to read at least, where the file has so many.

    Raises:
        CheckpointError: it can't be opened, is no plain file, is empty or a Git LFS pointer.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            # A pipe would be waited for, and a device never ends.
            what = "is_folder" if stat.S_ISDIR(status.st_mode) else "no_plain_file"
            raise CheckpointError(phrase(f"folders.{what}", file=path.name), kind="unreadable")
        with open(path, "rb", buffering=0) as file:
            start = file.read(max(most, _LONGEST_POINTER))
    except OSError as error:
        raise unreadable(path, error) from error
    if status.st_size == 0:
        said = phrase("folders.empty_file", file=path.name)
        raise CheckpointError(said, kind="empty_file", found=0)
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
    known: dict[str, Any] = {"file": path.name, "error": error.strerror or type(error).__name__}
    if kind == "broken_link":
        known["target"] = _target(path)
    words = kind if kind in {"broken_link", "no_permission"} else "unreadable"
    return CheckpointError(phrase(f"folders.{words}", **known), kind=kind)


def _target(path: Path) -> Any:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return phrase("folders.another_file")


def _pointer(path: Path, start: bytes, file_bytes: int) -> CheckpointError:
    size = pointer_size(start)
    words = "lfs_pointer_unsaid" if size is None else "lfs_pointer"
    expected = {} if size is None else {"expected": size}
    return CheckpointError(
        phrase(f"folders.{words}", file=path.name, found=file_bytes, **expected),
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


def name_of(file_format: str) -> Sentence:
    """What to call a format in a sentence."""
    return phrase(f"formats.{file_format}")


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

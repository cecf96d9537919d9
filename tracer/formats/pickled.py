"""What a `.bin` of torch.save holds, without running its pickle: names, dtypes, shapes, places.

The pickle is read opcode by opcode and calls nothing: of what torch writes, only tensors (a storage
and how it is cut) mean something here; everything else becomes a blank. Both forms are read: the
zip archive of today and the bare pickles of torch before 1.6.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from tracer.errors import CheckpointError
from tracer.explain.sentences import phrase
from tracer.formats import signature
from tracer.formats.entries import DTYPES, Header, TensorEntry
from tracer.formats.opcodes import Rebuilt, Storage, read_pickle

NESTED: Final = "dictionaries of tensors"
"""What a header's metadata calls the names that hold tensors one level down, as a JSON list."""
STRANGE: Final = "objects besides tensors"
"""What it calls the classes and functions of other packages that the pickle wants, as a list."""
_KNOWN: Final = ("torch", "collections", "_codecs", "builtins")
_LARGEST_PICKLE: Final = 500_000_000
_MAGIC: Final = 0x1950A86A20F9469CFC6C  # what the first pickle of the old form says
_LOCAL_HEADER: Final = 30  # of a zip member; its name and an extra field follow
_STORED_LENGTH: Final = 8  # before each storage of the old form
_CODES: Final = {name: code for code, (name, _) in DTYPES.items()}
_STORAGES: Final = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8",
    "ByteStorage": "U8", "BoolStorage": "BOOL", "ComplexFloatStorage": "C64",
    "ComplexDoubleStorage": "C128", "UntypedStorage": "U8",
}  # fmt: skip


class _Place(NamedTuple):
    """Where a storage's bytes lie in the file."""

    offset_bytes: int
    size_bytes: int | None


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a file of torch.save names, whichever of its two forms it has.

    Raises:
        CheckpointError: the file can't be read, is empty, a Git LFS pointer, cut short, or no file
            of torch.save.
    """
    file_path = Path(path)
    start, file_bytes = signature.read_start(file_path)
    looks_like = signature.format_of(start)
    if looks_like not in {"zip", "pickle"}:
        raise CheckpointError(
            phrase(
                "folders.no_torch_save", file=file_path.name, format=signature.name_of(looks_like)
            ),
            kind="wrong_format",
            expected="pickle",
            found=looks_like,
        )
    try:
        with file_path.open("rb") as file:
            read = _read_zip if looks_like == "zip" else _read_old
            return read(file, file_path.name, file_bytes)
    except zipfile.BadZipFile as error:
        # The directory of an archive is its last part: without it the end is missing.
        raise CheckpointError(
            phrase("folders.no_directory", file=file_path.name, found=file_bytes),
            kind="tail_cut",
            found=file_bytes,
        ) from error
    except OSError as error:
        raise signature.unreadable(file_path, error) from error
    except (ValueError, TypeError, KeyError, IndexError, EOFError, NotImplementedError) as error:
        raise CheckpointError(
            phrase("folders.damaged_pickle", file=file_path.name, error=error),
            kind="damaged_header",
        ) from error


def _read_zip(file: BinaryIO, name: str, file_bytes: int) -> Header:
    with zipfile.ZipFile(file) as archive:
        named: set[str] = set()
        members = {member.filename: member for member in archive.infolist()}
        pickles = [path for path in members if path.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise CheckpointError(phrase("folders.no_data_pickle", file=name), kind="wrong_format")
        size = members[pickles[0]].file_size
        if size > _LARGEST_PICKLE:
            raise CheckpointError(
                phrase("folders.pickle_too_large", file=name, size=size),
                kind="damaged_header",
            )
        with archive.open(pickles[0]) as stream:
            content = read_pickle(stream, named)
    folder = pickles[0].removesuffix("data.pkl")
    places = {
        path.removeprefix(f"{folder}data/"): _Place(_data_offset(file, member), member.file_size)
        for path, member in members.items()
        if path.startswith(f"{folder}data/")
    }
    return Header(size, file_bytes, _metadata(content, named), _entries(content, places, name))


def _data_offset(file: BinaryIO, member: zipfile.ZipInfo) -> int:
    file.seek(member.header_offset + 26)
    name, extra = file.read(2), file.read(2)
    lengths = int.from_bytes(name, "little") + int.from_bytes(extra, "little")
    return member.header_offset + _LOCAL_HEADER + lengths


def _read_old(file: BinaryIO, name: str, file_bytes: int) -> Header:
    if read_pickle(file) != _MAGIC:
        raise CheckpointError(phrase("folders.strange_pickle", file=name), kind="wrong_format")
    for _ in ("protocol version", "system"):
        read_pickle(file)
    named: set[str] = set()
    content = read_pickle(file, named)
    keys = read_pickle(file)
    header_bytes = file.tell()
    used = {each.storage.key: each.storage for each in _tensors(content, name).values()}
    places, offset = {}, header_bytes
    for key in keys if isinstance(keys, list) else []:
        storage = used.get(str(key))
        if storage is None:
            break  # of a storage that no tensor uses, the length is not known
        size = storage.values * _bits(storage) // 8
        places[str(key)] = _Place(offset + _STORED_LENGTH, size)
        offset += _STORED_LENGTH + size
    if offset > file_bytes:
        raise CheckpointError(
            phrase(
                "folders.pickle_cut",
                file=name,
                found=file_bytes,
                expected=offset,
                missing=offset - file_bytes,
            ),
            kind="tail_cut",
            expected=offset,
            found=file_bytes,
            missing_bytes=offset - file_bytes,
        )
    said = _metadata(content, named)
    return Header(header_bytes, file_bytes, said, _entries(content, places, name))


def _tensors(content: Any, file: str) -> dict[str, Rebuilt]:
    """Tensors of a state dict, by name; one level down too (`{'state_dict': ...}`)."""
    if not isinstance(content, Mapping):
        raise CheckpointError(phrase("folders.no_state_dict", file=file), kind="wrong_format")
    found = {name: one for name, one in content.items() if isinstance(one, Rebuilt)}
    for name, inner in content.items():
        if isinstance(inner, Mapping):
            found |= {f"{name}.{key}": one for key, one in inner.items() if type(one) is Rebuilt}
    return {str(name): one for name, one in found.items()}


def _metadata(content: Any, named: set[str]) -> dict[str, str]:
    """Names that stand for dictionaries of tensors, where a load sees none; what else it wants."""
    inner = [
        str(name)
        for name, one in (content.items() if isinstance(content, Mapping) else ())
        if isinstance(one, Mapping) and any(type(each) is Rebuilt for each in one.values())
    ]
    strange = sorted(name for name in named if name.partition(".")[0] not in _KNOWN)
    told = {NESTED: inner, STRANGE: strange}
    return {key: json.dumps(names, ensure_ascii=False) for key, names in told.items() if names}


def _entries(content: Any, places: Mapping[str, _Place], file: str) -> dict[str, TensorEntry]:
    entries = {}
    for name, tensor in _tensors(content, file).items():
        place = places.get(tensor.storage.key)
        if place is None:
            said = phrase("folders.no_bytes", file=file, key=name)
            raise CheckpointError(said, kind="tail_cut")
        code, bits = _code(tensor), _bits(tensor.storage, tensor.dtype)
        size = math.prod(tensor.shape) * bits // 8
        start = place.offset_bytes + tensor.offset * bits // 8
        entries[name] = TensorEntry(name, code, tensor.shape, start, size)
    return entries


def _code(tensor: Rebuilt) -> str:
    if tensor.dtype is not None:
        return _CODES.get(tensor.dtype, tensor.dtype)
    return _STORAGES.get(tensor.storage.kind, tensor.storage.kind)


def _bits(storage: Storage, dtype: str | None = None) -> int:
    code = _CODES.get(dtype) if dtype is not None else _STORAGES.get(storage.kind)
    if code is None:
        raise ValueError(f"{dtype or storage.kind} is no dtype that the lab knows")
    return DTYPES[code][1]

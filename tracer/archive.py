"""A trace inside a zip: its tables are read where they lie, and nothing is ever extracted.

Only members by the names of tables are looked at, whatever else a stranger put in.
"""

from __future__ import annotations

import functools
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracer.contents import Content, ParquetContent
from tracer.explain.sentences import phrase
from tracer.folder import MANIFEST, MANIFEST_LIMIT_BYTES, damaged, no_trace, parse_manifest


def open_zip(
    path: Path, schemas: Mapping[str, pa.Schema]
) -> tuple[dict[str, Any], dict[str, Content]]:
    """The manifest of a trace in a zip, and where its tables lie.

    Raises:
        TraceFormatError: It is no zip of a trace, or is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if MANIFEST not in members:
                raise no_trace(path, phrase("errors.no_manifest_in_zip", manifest=MANIFEST))
            with archive.open(members[MANIFEST]) as opened:
                manifest = parse_manifest(opened.read(MANIFEST_LIMIT_BYTES + 1), path)
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, NotImplementedError) as error:
        raise damaged(str(path), error) from error
    contents: dict[str, Content] = {}
    for name, schema in schemas.items():
        member = members.get(f"{name}.parquet")
        if member is not None:
            where = f"{path}/{member.filename}"
            start = _member_start(path, member)
            opener = functools.partial(_map_member, path, start, member.file_size)
            contents[name] = ParquetContent.checked(where, schema, opener)
    return manifest, contents


def _member_start(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin; nothing outside the zip is ever addressed."""
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise no_trace(path, phrase("errors.packed_again", member=member.filename))
    with path.open("rb") as opened:
        opened.seek(member.header_offset)
        header = opened.read(30)
        if header[:4] != b"PK\x03\x04" or len(header) < 30:
            raise damaged(f"{path}/{member.filename}", phrase("errors.no_local_header"))
        start = member.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
        if start + member.file_size > opened.seek(0, os.SEEK_END):
            raise damaged(f"{path}/{member.filename}", phrase("errors.outside_zip"))
    return int(start)


def _map_member(path: Path, start: int, size: int) -> pa.NativeFile:
    mapped = pa.memory_map(str(path))
    mapped.seek(start)
    return pa.BufferReader(mapped.read_buffer(size))

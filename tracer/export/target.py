"""Where an export goes: which folders may be written, and the manifest that marks them as ours.

An export never touches a file that an earlier export did not write, and replaces an earlier one
only when the new one is whole: files are written aside and moved at the end, so a trace can even
be exported to the folder that it is read from. It knows no table and no format.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tracer.errors import StorageError
from tracer.explain.sentences import phrase

MANIFEST_FILE: Final = "manifest.json"
EXPORT_KEY: Final = "export"
"""Key of the manifest that only an export has: its form, and rows by file name."""
_ASIDE: Final = ".unfinished-export"
_LIKE: Final = {"csv": "csv", "excel": "csv", "parquet": "parquet"}


@contextmanager
def export_folder(
    folder: str | Path, form: str, manifest: dict[str, Any], files: Sequence[str]
) -> Iterator[tuple[Path, dict[str, int]]]:
    """Hand out a place for the files and one for their row counts; put all in place at the end.

    Args:
        folder: New, empty, or left by an earlier export of the same kind.
        form: What is written: `csv`, `excel` or `parquet`.
        manifest: The trace's own; a copy of it goes into the folder.
        files: Names of all files that will be written beside the manifest.

    Raises:
        StorageError: The folder holds something else, or can't be written.
    """
    path = Path(folder)
    aside = path / _ASIDE
    rows: dict[str, int] = {}
    try:
        earlier = _make_room(path, form, files)
        if not earlier:
            _write_manifest(path, manifest, form, [], complete=False)
        shutil.rmtree(aside, ignore_errors=True)  # left by a process that was killed
        aside.mkdir()
        try:
            yield aside, rows
            _write_manifest(path, manifest, form, [*earlier, *files], complete=False)
            for name in earlier:
                (path / name).unlink(missing_ok=True)
            for name in files:
                (aside / name).replace(path / name)
            _write_manifest(path, manifest, form, rows, complete=True)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise StorageError(phrase("errors.export_stopped", path=path, why=error)) from error


def read_seal(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return manifest and seal of an exported folder, or None when it is not one of ours."""
    manifest: Any
    try:
        manifest = json.loads((path / MANIFEST_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    seal = manifest.pop(EXPORT_KEY, None) if isinstance(manifest, dict) else None
    if not isinstance(seal, dict) or seal.get("form") not in _LIKE:
        return None
    files = seal.get("files")
    if not isinstance(files, dict | list) or not all(map(_is_ours_by_name, files)):
        return None
    return manifest, seal


def _is_ours_by_name(name: object) -> bool:
    # Names end up in paths that are deleted or read: none may lead out of the folder.
    return (
        isinstance(name, str)
        and Path(name).name == name
        and Path(name).suffix in (".csv", ".parquet")
    )


def _make_room(path: Path, form: str, files: Sequence[str]) -> list[str]:
    """Make the folder if need be; return the names of the files that may be replaced."""
    if path.exists() and not path.is_dir():
        raise StorageError(phrase("errors.export_is_file", path=path))
    path.mkdir(parents=True, exist_ok=True)
    present = {entry.name for entry in path.iterdir()}
    if not present:
        return []
    sealed = read_seal(path)
    if sealed is None:
        raise StorageError(phrase("errors.export_has_strangers", path=path, number=len(present)))
    seal = sealed[1]
    if _LIKE[seal["form"]] != _LIKE[form]:
        # A trace may be open on those files.
        raise StorageError(phrase("errors.export_of_other_form", path=path, form=seal["form"]))
    strangers = sorted((present - {*seal["files"]}) & set(files))
    if strangers:
        raise StorageError(phrase("errors.export_has_stranger", path=path, file=strangers[0]))
    return list(seal["files"])


def _write_manifest(
    path: Path,
    manifest: dict[str, Any],
    form: str,
    files: Sequence[str] | dict[str, int],
    *,
    complete: bool,
) -> None:
    seal = {"form": form, "complete": complete, "files": files}
    # A path in the manifest may hold lone surrogates; as escapes they are still valid JSON.
    text = json.dumps({**manifest, EXPORT_KEY: seal}, ensure_ascii=False, indent=1)
    (path / MANIFEST_FILE).write_bytes(text.encode("utf-8", "backslashreplace") + b"\n")

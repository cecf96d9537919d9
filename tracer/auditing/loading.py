"""Checks 1 to 4: headers, files, parameters and values of what was loaded.

Loads that failed are left out: what they left undone proves nothing about the recorder. Nothing
here opens a checkpoint; it compares what was recorded of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pandas as pd

from tracer.auditing.source import Finding, Source, counted, is_one_of, is_true, told, tuples
from tracer.explain.sentences import recorded, then

_FATES: Final = {"loaded", "converted", "unexpected", "skipped", "discarded"}
_READ: Final = {"loaded", "converted", "discarded"}
_GGUF_ALIGNMENT: Final = 32  # of each tensor's bytes, unless general.alignment says otherwise
_SIZE_OF_LENGTH: Final = 8  # a safetensors file begins with the length of its header


def check_fates(source: Source) -> Iterator[Finding]:
    """1: every tensor of every header has exactly one fate, and reads agree with it."""
    key = ["rank", "model", "file", "key"]
    tensors = source.finished("checkpoint_tensors")
    bad = tensors[~tensors["fate"].isin(_FATES) | tensors.duplicated(key, keep=False)]
    found = counted("tensors", len(tensors), len(bad))
    names = [f"{file}: {name}" for file, name in dict.fromkeys(tuples(bad, "file", "key"))]
    yield Finding("1 one fate a tensor", found, names, len(tensors))

    reads = source.finished("tensor_loads")
    reads = reads[is_one_of(reads["status"], "ok")]
    # Models of which both were seen: a pickled checkpoint is read without a header.
    models = {*tuples(reads, "rank", "model")} & {*tuples(tensors, "rank", "model")}
    fates = {row[:4]: row[4] for row in tuples(tensors, *key, "fate") if row[:2] in models}
    read = {row for row in tuples(reads, *key) if row[:2] in models}
    unused = {row[:4] for row in tuples(reads, *key, "discarded") if row[4]}
    strange = {row for row in read if fates.get(row) not in _READ}
    strange -= {row for row in unused if row in fates}
    strange |= {row for row, fate in fates.items() if fate in _READ and row not in read}
    strange -= {*tuples(bad, *key)}  # which reads would fit can't be told
    found = counted("reads", len(read), len(strange))
    names = sorted(f"{file}: {name}" for _, _, file, name in strange)
    yield Finding("1 reads = fates", found, names, len(fates))


def check_placements(source: Source) -> Iterator[Finding]:
    """2: every parameter and buffer is placed once, has values, and came from somewhere."""
    key = ("rank", "model", "param")
    placed = source.finished("placements")
    built = {*tuples(source.finished("meta_params"), *key)}
    models = {name[:2] for name in built}
    names = [
        name if name in built else (*name[:2], _as_built(name[2]))
        for name in tuples(placed, *key)
        if name[:2] in models
    ]
    twice = {name for name, times in Counter(names).items() if times > 1}
    bad = sorted(built.symmetric_difference(names) | twice)
    found = counted("built", len(built), len(bad))
    params = [f"{name[1]}: {name[2]}" for name in bad]
    yield Finding("2 one placement a parameter", found, params, len(built))
    for check, column, value, words in (
        ("2 none left on meta", "residence", "meta", "on_meta"),
        ("2 none unwritten", "origin", "unwritten", "unwritten"),
    ):
        bad = tuples(placed[is_one_of(placed[column], value)], "model", "param")
        found = counted(words, len(placed), len(bad))
        params = [f"{model}: {param}" for model, param in bad]
        yield Finding(check, found, params, len(placed))


def _as_built(param: str) -> str:
    """The name that a parameter had before an adapter was wrapped round its module."""
    return param.replace(".base_layer.", ".").replace(".original_module.", ".")


def check_files(source: Source) -> Iterator[Finding]:
    """3: tensors fill their file to the byte; index and headers name the same tensors."""
    files = source.finished("files")
    has_header = is_one_of(files["format"], "safetensors", "gguf") & files["header_bytes"].notna()
    files = files[has_header]
    tensors = source.finished("checkpoint_tensors")
    groups = tensors.groupby(["rank", "model", "file"])["size_bytes"]
    sizes, counts = groups.agg(list).to_dict(), groups.size().to_dict()
    bad = []
    columns = ("rank", "model", "path", "format", "metadata", "header_bytes", "size_bytes")
    for *key, form, metadata, header, size, named in tuples(files, *columns, "tensors"):
        place = tuple(key)
        own = sizes.get(place, [])
        if form == "gguf":
            is_whole = _fills_gguf(own, header, size, metadata)
        else:
            is_whole = sum(own) + header + _SIZE_OF_LENGTH == size
        if not is_whole or (pd.notna(named) and counts.get(place, 0) != named):
            bad.append(place[2])
    found = counted("files", len(files), len(bad))
    yield Finding("3 bytes of a file", found, bad, len(files))

    indexed = tensors[tensors["in_index"].notna()]
    strays = indexed[~is_true(indexed["in_index"])]
    names = [f"{file}: {key}" for file, key in tuples(strays, "file", "key")]
    # Of a model whose headers were not seen, the index has nothing to be compared with.
    models = set(tensors["model"])
    only = source.manifest.get("index_only", {})
    names += [
        f"index only: {key}" for model, keys in only.items() if model in models for key in keys
    ]
    found = counted("indexed", len(indexed), len(names))
    yield Finding("3 index = headers", found, names, len(indexed))


def _fills_gguf(sizes: list[int], header: int, size: int, metadata: str | None) -> bool:
    """Whether tensors, each padded to the file's alignment, end where the file does."""
    said = json.loads(metadata).get("general.alignment") if isinstance(metadata, str) else None
    step = int(said or _GGUF_ALIGNMENT)
    padded = header + sum(-(-one // step) * step for one in sizes)
    last = -sizes[-1] % step if sizes else 0  # the last tensor's padding may be left out
    return padded - last <= size <= padded


def check_values(source: Source) -> Iterator[Finding]:
    """4: live values equal their sources, as the recording itself compared them."""
    placed = source.finished("placements")
    judged = placed[is_one_of(placed["verified"], "equal", "different")]
    # Where some of a model's values were compared, a missing verdict is one that got lost.
    same_model = placed["model"].isin(judged["model"]) & placed["verified"].isna()
    bad = placed[is_one_of(placed["verified"], "different") | same_model]
    found = counted("sources", len(judged), len(bad))
    left = placed.loc[is_one_of(placed["verified"], "not compared"), "verified_because"]
    if judged.empty:
        found = told("nothing_compared")
    else:
        whys = Counter(left.dropna()).items()
        found = then(
            found, *(told("not_compared", number=times, why=recorded(why)) for why, times in whys)
        )
    columns = ("model", "param", "verified_because")
    names = [
        recorded(why, f"{model}: {param}") if why else f"{model}: {param}"
        for model, param, why in tuples(bad, *columns)
    ]
    yield Finding("4 values = sources", found, names, len(judged))

"""Rows of loads made by hand: a call with seq 2, and what happens in it, in whole milliseconds."""

from synthetic import event

MODEL, MS = "m1", 1_000_000
KINDS = {"kind": "from_pretrained", "source": "s", "stack": "k"}


def call(seq, parent, start, length, **columns):
    row = event(seq, parent, seq, "resolve", "from_pretrained", start, length)
    return row | KINDS | {"recorder_ns": 2 * MS} | columns


def span(seq, parent, stage, start, length, thread="MainThread", of=2):
    return event(seq, parent, of, stage, stage, start, length) | {"thread": thread}


def read(seq, parent, key, start, read_ms, cast_ms, thread="loader_0", queue=1):
    row = event(seq, parent, 2, "tensor_load", key, start, read_ms + cast_ms)
    row |= {"thread": thread, "worker": thread, "model": MODEL, "key": key, "param": f"model.{key}"}
    row |= {"file": f"{key}.safetensors", "size_bytes": 4_000_000, "queue_ns": queue * MS}
    return row | {"read_ns": read_ms * MS, "cast_ns": cast_ms * MS, "mapped": False}


def placement(key, wait, convert, place):
    row = {"event": 2, "call": 2, "rank": 0, "model": MODEL, "param": f"model.{key}"}
    row |= {"sources": [key], "origin": "checkpoint", "wait_ns": wait * MS}
    return row | {"convert_ns": convert * MS, "place_ns": place * MS}

"""The rows of a small coherent trace: one load of a six-tensor model, one generate of 4 tokens.

Every number fits every other, so all audits hold; a test changes the rows it is about and looks
at what breaks. Rows are dicts by table; `synthetic` makes a trace of them.

The prompt has 8 tokens, 4 of them one image of 4 x 4 patches merged two by two, so positions run
two behind the index from there on.
"""

import itertools
from typing import Any

from tracer.schema import TABLES

Rows = dict[str, list[dict[str, Any]]]

MILLISECOND = 1_000_000
MAIN = "MainThread"
MODEL = "m1"
CACHE = "c1"
HEADER_BYTES = 400
PROMPT = 8
GENERATED = [5, 6, 7, 8]
IMAGE_ID = 9
POSITION_OFFSET = -2
LAYERS = 2
SHAPES = {
    "embed.weight": [10, 4],
    "layers.0.weight": [4, 4],
    "layers.1.weight": [4, 4],
    "norm.weight": [4],
    "norm.bias": [4],
    "head.weight": [10, 4],
}
FILE = "model.safetensors"


def coherent_rows() -> Rows:
    """All rows of the trace, by table, free to be changed."""
    rows: Rows = {name: [] for name in TABLES}
    order = itertools.count()
    _add_load(rows, order)
    _add_generate(rows, order)
    rows["sources"] += [
        {"source": "transformers/modeling_utils.py:3900", "function": "from_pretrained"},
        {"source": "transformers/generation/utils.py:2100", "function": "generate"},
    ]
    for source in rows["sources"]:
        source |= {"first_line": int(source["source"].split(":")[1]), "text": "def f(): ..."}
    rows["stacks"].append({"stack": "k1", "frames": ["run.py:3 <module>"]})
    return {name: records for name, records in rows.items() if records}


def event(
    seq: int, parent: int, call: int, stage: str, name: str, start_ms: float, length_ms: float
) -> dict[str, Any]:
    """The ten common columns of a span on the main thread."""
    return {
        "seq": seq,
        "parent": parent,
        "call": call,
        "stage": stage,
        "name": name,
        "start_ns": int(start_ms * MILLISECOND),
        "duration_ns": int(length_ms * MILLISECOND),
        "thread": MAIN,
        "rank": 0,
        "status": "ok",
    }


def _fact(call: int, **columns: Any) -> dict[str, Any]:
    return {"event": call, "call": call, "rank": 0, **columns}


def _size(shape: list[int]) -> int:
    size = 4  # bytes of a float32
    for length in shape:
        size *= length
    return size


def _add_load(rows: Rows, order: "itertools.count[int]") -> None:
    call = next(order)
    rows["calls"].append(
        event(call, -1, call, "resolve", "from_pretrained", 0, 100)
        | {"kind": "from_pretrained", "model": MODEL, "recorder_ns": 50_000}
        | {"source": "transformers/modeling_utils.py:3900", "stack": "k1"}
    )
    stages = [("resolve", 10), ("config", 10), ("metadata", 5), ("meta_init", 20), ("place", 40)]
    stages += [("initialise", 5), ("tie", 2), ("dispatch", 8)]
    start = 0
    for stage, length in stages:
        span = event(next(order), call, call, stage, stage, start, length)
        rows["spans"].append(span | {"function": f"library.{stage}", "summary": {"tensors": 6}})
        if stage == "place":
            _add_tensor_loads(rows, order, call, span["seq"], start)
        start += length
    _add_files(rows, call)
    _add_parameters(rows, call)
    sample = event(next(order), call, call, "dispatch", "sample", 99, 0)
    rows["memory"].append(
        sample | {"rss_bytes": 900_000_000, "anonymous_bytes": 600_000_000, "file_bytes": 3 * 10**8}
    )


def _add_tensor_loads(
    rows: Rows, order: "itertools.count[int]", call: int, parent: int, start: float
) -> None:
    for index, (key, shape) in enumerate(SHAPES.items()):
        read = event(next(order), parent, call, "tensor_load", key, start + 2 + 5 * index, 4)
        worker = f"loader_{index % 2}"
        rows["tensor_loads"].append(
            read
            | {"thread": worker, "worker": worker, "model": MODEL, "key": key, "param": key}
            | {"file": FILE, "stored_dtype": "F32", "loaded_dtype": "float32", "shape": shape}
            | {"size_bytes": _size(shape), "queue_ns": 1_000_000, "read_ns": 3_000_000}
            | {"cast_ns": 1_000_000, "mapped": False, "discarded": False, "device": "cpu"}
        )


def _add_files(rows: Rows, call: int) -> None:
    offset = 8 + HEADER_BYTES
    for key, shape in SHAPES.items():
        rows["checkpoint_tensors"].append(
            _fact(call, model=MODEL, file=FILE, key=key, dtype="F32", shape=shape)
            | {"offset_bytes": offset, "size_bytes": _size(shape), "fate": "loaded"}
            | {"because": "a parameter has this name"}
        )
        offset += _size(shape)
    rows["files"] += [
        _fact(call, model=MODEL, path=FILE, kind="weights", format="safetensors", read=True)
        | {"size_bytes": offset, "header_bytes": HEADER_BYTES, "tensors": len(SHAPES)}
        | {"metadata": {"format": "pt"}, "access": "mmap"},
        _fact(call, model=MODEL, path="config.json", kind="config", format="json", read=True)
        | {"size_bytes": 300},
        _fact(call, model=MODEL, path="README.md", kind="text", format="text", read=False)
        | {"size_bytes": 90, "why_not": "no part of loading reads it"},
    ]
    rows["models"].append(
        _fact(call, model=MODEL, class_name="TinyForCausalLM", asked="/home/ada/models/tiny")
        | {"hub": "local", "folder": "/home/ada/models/tiny", "from_cache": True}
        | {"downloaded_bytes": 0, "dtype": "float32", "dtype_why": "dtype of the checkpoint"}
        | {"attention": "sdpa", "device_map": {"": "cpu"}, "tied": {}, "training": False}
        | {"parameters": sum(map(_size, SHAPES.values())) // 4}
        | {"size_bytes": sum(map(_size, SHAPES.values())) + 8}
    )


def _add_parameters(rows: Rows, call: int) -> None:
    kinds = {name: ("parameter", True, "checkpoint", shape) for name, shape in SHAPES.items()}
    kinds["rotary.inv_freq"] = ("buffer", False, "rebuilt", [2])
    for name, (kind, persistent, origin, shape) in kinds.items():
        from_file = origin == "checkpoint"
        rows["meta_params"].append(
            _fact(call, model=MODEL, param=name, kind=kind, persistent=persistent, shape=shape)
            | {"module_class": "Linear", "dtype": "float32", "device": "meta"}
            | {"size_bytes": _size(shape), "planned_device": "cpu"}
        )
        rows["placements"].append(
            _fact(call, model=MODEL, param=name, kind=kind, origin=origin)
            | {"because": "set during the load", "sources": [name] if from_file else []}
            | {"operations": [], "shape": shape, "expected_shape": shape, "matches": True}
            | {"stored_dtype": "F32" if from_file else None, "dtype": "float32", "device": "cpu"}
            | {"residence": "resident", "new_infinities": 0, "new_zeros": 0, "verified": "equal"}
        )


def _add_generate(rows: Rows, order: "itertools.count[int]") -> None:
    call = next(order)
    rows["calls"].append(
        event(call, -1, call, "setup", "generate", 200, 60)
        | {"kind": "generate", "model": MODEL, "mode": "greedy", "rows": 1, "beams": 1}
        | {"return_sequences": 1, "cache": CACHE, "cache_class": "DynamicCache"}
        | {"cache_why": "the default", "mask_origin": "given", "attended_pads": 0}
        | {"stop_ids": [{"id": 0, "origin": "generation_config.json"}], "grad_mode": "no_grad"}
        | {"compiled": False, "finish": ["length"], "recorder_ns": 100_000}
        | {"source": "transformers/generation/utils.py:2100", "stack": "k1"}
    )
    setup = event(next(order), call, call, "setup", "setup", 200, 10)
    rows["spans"].append(setup | {"function": "library.setup", "summary": {}})
    start = 210
    for step in range(len(GENERATED)):
        _add_step(rows, order, call, step, start)
        start += 10 if step else 20
    rows["chain"].append(
        _fact(call, model=MODEL, kind="criterion", index=0, class_name="MaxLengthCriteria")
        | {"parameters": {"max_length": PROMPT + len(GENERATED)}}
    )
    for name, asked, effective in [("max_new_tokens", 4, 4), ("max_length", None, 12)]:
        origin = "call" if asked else "derived"
        rows["settings"].append(
            _fact(call, model=MODEL, scope="generate", setting=name, asked=asked)
            | {"effective": effective, "origin": origin, "used": True}
        )
    _add_prompt(rows, call)


def _add_step(
    rows: Rows, order: "itertools.count[int]", call: int, step: int, start: float
) -> None:
    length, fed = (10, 1) if step else (20, PROMPT)
    before = PROMPT + step - 1 if step else 0
    stage = "decode" if step else "prefill"
    last = before + fed - 1 + POSITION_OFFSET
    span = event(next(order), call, call, stage, f"step {step}", start, length)
    rows["steps"].append(
        span
        | {"model": MODEL, "step": step, "kind": stage, "input_tokens": fed, "undone": False}
        | {"first_position": last if step else 0, "last_position": last}
        | {"position_offset": POSITION_OFFSET, "mask": f"bool 1 x {before + fed}", "cache": CACHE}
        | {"cache_tokens_before": before, "cache_tokens_after": before + fed}
        | {"cache_bytes": LAYERS * 64 * (before + fed), "rope_index_calls": 0 if step else 1}
        | {"rotary_calls": 1, "rotary_applications": LAYERS, "prepare_ns": MILLISECOND}
        | {"forward_ns": (length - 3) * MILLISECOND, "processors_ns": 500_000}
        | {"select_ns": MILLISECOND, "stop_ns": 500_000, "recorder_ns": 20_000}
    )
    _add_modules(rows, order, call, span, fed)
    for layer in range(LAYERS):
        rows["cache_layers"].append(
            {"event": span["seq"], "call": call, "rank": 0, "step": step, "cache": CACHE}
            | {"layer": layer, "part": "self", "class_name": "DynamicLayer", "dtype": "float32"}
            | {"tokens_seen": before + fed, "tensor_tokens": before + fed, "device": "cpu"}
            | {"size_bytes": 64 * (before + fed)}
        )
    _add_choice(rows, call, span["seq"], step)


def _add_modules(
    rows: Rows, order: "itertools.count[int]", call: int, span: dict[str, Any], fed: int
) -> None:
    start = span["start_ns"] / MILLISECOND + 1
    whole = event(next(order), span["seq"], call, span["stage"], "", start, 6)
    inner = [
        event(next(order), whole["seq"], call, span["stage"], path, start + 1 + index, 1)
        for index, path in enumerate(["layers.0", "layers.1", "head"])
    ]
    for module in (*inner, whole):
        module |= {"model": MODEL, "path": module["name"], "class_name": "Linear"}
        module |= {"step": int(span["name"].split()[1]), "input_shape": [1, fed, 4]}
        module |= {"output_shape": [1, fed, 4], "dtype": "float32", "device": "cpu"}
        rows["modules"].append(module)


def _add_choice(rows: Rows, call: int, step_seq: int, step: int) -> None:
    place = {"event": step_seq, "call": call, "rank": 0, "step": step, "row": 0, "offset": 0}
    chosen = GENERATED[step]
    rows["choices"].append(
        place
        | {"token_id": chosen, "text": f" word{chosen}", "raw_logprob": -0.5, "raw_rank": 0}
        | {"raw_entropy": 1.1, "logprob": -0.5, "probability": 0.6065, "entropy": 1.1}
        | {"margin": 0.4, "score": 2.5, "parent_row": 0, "sequence": 0, "accepted": True}
        | {"finish": "length" if step == len(GENERATED) - 1 else None}
    )
    for rank, (token, score, share) in enumerate([(chosen, 2.5, 0.6065), (1, 1.4, 0.2065)]):
        rows["candidates"].append(
            place
            | {"token_rank": rank, "token_id": token, "text": f" word{token}", "raw_logit": score}
            | {"raw_probability": share, "score": score, "probability": share}
        )
    rows["stops"].append(place | {"token_id": 0, "token_rank": 6, "probability": 0.01})


def _add_prompt(rows: Rows, call: int) -> None:
    # Image tokens share the temporal position 2 and lie on a 2 x 2 grid from there.
    grid = {2: (2, 2, 2), 3: (2, 2, 3), 4: (2, 3, 2), 5: (2, 3, 3)}
    for index, token in enumerate([1, 2, *[IMAGE_ID] * 4, 3, 4, *GENERATED]):
        text_position = index if index < 2 else index + POSITION_OFFSET
        time, down, across = grid.get(index, (text_position,) * 3)
        is_image = index in grid
        rows["tokens"].append(
            _fact(call, row=0, index=index, position=index, token_id=token)
            | {"vocab": f"w{token}", "bytes_hex": f"{token:02x}", "text": f" word{token}"}
            | {"kind": "image" if is_image else "text", "attended": True}
            | {"origin": "user" if index < PROMPT else "generated"}
            | {"image": 0 if is_image else None}
            | {"position_t": time, "position_h": down, "position_w": across}
        )
    rows["images"].append(
        _fact(call, row=0, index=0, kind="image", source_kind="path", mode="RGB", fetch_ns=10**6)
        | {"original_w": 60, "original_h": 60, "processor_w": 56, "processor_h": 56}
        | {"grid_t": 1, "grid_h": 4, "grid_w": 4, "patches": 16, "value_min": -1.5}
        | {"value_max": 1.5, "expected_tokens": 4, "found_tokens": 4, "replaced_embeddings": 4}
        | {"first_position": 2}
    )
    for name, shape in [("input_ids", [1, PROMPT]), ("pixel_values", [16, 1176])]:
        dtype, width = ("int64", 8) if name == "input_ids" else ("float32", 4)
        rows["inputs"].append(
            _fact(call, tensor=name, shape=shape, dtype=dtype, device="cpu")
            | {"size_bytes": shape[0] * shape[1] * width}
        )

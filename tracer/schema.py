"""The ground floor: stages, tables and columns, each with its meaning, unit, provenance and key.

Everything that writes, reads, exports or explains a trace asks this file what a table holds. It
imports nothing of the lab. A change that a reader of old traces would notice raises
`SCHEMA_VERSION`.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

SCHEMA_VERSION: Final = 1
"""Version written into each manifest; a reader refuses a newer one in one sentence."""
SHAPE_MISFIT: Final = "its shape does not fit "
"""How `checkpoint_tensors.because` of a tensor begins that was refused; parameters follow."""
CLASS_EXPECTS: Final = "; its class expects it in no file"
"""How `placements.because` of a parameter ends that the class computes by itself."""
NESTED_FILE: Final = " holds a dictionary within a dictionary: "
"""In `faults.reason` of a `.bin` whose tensors lie one level down, where no load looks."""
DEFAULT_DTYPE: Final = "torch.get_default_dtype"
SHARED_BY_THREADS: Final = (
    "torch.nn.Module.register_parameter",
    "transformers.PreTrainedModel.tie_weights",
    "torch.linspace",
    "transformers.modeling_utils._init_weights",
    DEFAULT_DTYPE,
)
"""`faults.target` of what loads that overlap in several threads may leave changed for all."""

Kind = Literal["integer", "real", "boolean", "text", "json", "bytes"]
Provenance = Literal["measured", "derived", "estimated"]

STAGES: Final[dict[str, str]] = {
    "import": "Python code of a model family or dependency imported on demand",
    "resolve": "from the asked name to files in a local folder",
    "config": "configuration read and turned into an object",
    "metadata": "headers and index of the checkpoint read, no weight yet",
    "meta_init": "the model built on the meta device: shapes without values",
    "tensor_load": "one tensor read out of a checkpoint file",
    "convert": "checkpoint tensors renamed, merged or split into a parameter",
    "place": "a parameter set into the model",
    "initialise": "what no file held filled with fresh values",
    "tie": "names tied to one storage",
    "dispatch": "modules given their devices and offload hooks",
    "verify": "live values compared with their sources",
    "tokenizer": "tokenizer files read",
    "processor": "processor and its parts read",
    "template": "chat messages rendered into one text",
    "vision": "images and videos fetched, decoded and resized",
    "encode": "text and images turned into tensors",
    "transfer": "tensors moved to a device",
    "setup": "generate() prepared: configuration, cache, processors, criteria",
    "prefill": "the whole prompt through the model, cache filled",
    "decode": "one more token: a forward with the cache",
    "forward": "a forward called by the user",
    "output": "token ids turned back into text",
    "recorder": "the lab's own work",
}

CALL_STATUS: Final = ("ok", "error", "interrupted")


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column: what a cell means and how its number came to be.

    Attributes:
        kind: `json` is text that holds JSON; `bytes` is base64 in CSV.
        provenance: `measured` was observed in the run, `derived` computed from observed values,
            `estimated` rests on an assumption that the meaning names.
    """

    name: str
    kind: Kind
    meaning: str
    provenance: Provenance = "measured"

    @property
    def unit(self) -> str:
        """The unit that the name ends with: ns, bytes, tokens, or nothing."""
        ending = self.name.rsplit("_", 1)[-1]
        return ending if ending in {"ns", "bytes", "tokens"} else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row is, its columns in order, and the columns that name a row."""

    name: str
    is_event: bool
    meaning: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def column_names(self) -> list[str]:
        """Names in schema order, which is the order of a CSV header."""
        return [column.name for column in self.columns]


def _integer(name: str, meaning: str, provenance: Provenance = "measured") -> Column:
    return Column(name, "integer", meaning, provenance)


def _real(name: str, meaning: str, provenance: Provenance = "measured") -> Column:
    return Column(name, "real", meaning, provenance)


def _boolean(name: str, meaning: str, provenance: Provenance = "measured") -> Column:
    return Column(name, "boolean", meaning, provenance)


def _text(name: str, meaning: str, provenance: Provenance = "measured") -> Column:
    return Column(name, "text", meaning, provenance)


def _json(name: str, meaning: str, provenance: Provenance = "measured") -> Column:
    return Column(name, "json", meaning, provenance)


EVENT_COLUMNS: Final = (
    _integer("seq", "Number of the event in order of start; rank * 2^40 + order"),
    _integer("parent", "seq of the event that encloses this one; -1 for none"),
    _integer("call", "seq of the nearest enclosing call, itself for a call; -1 for none"),
    _text("stage", "Stage of the model's life, one of schema.STAGES"),
    _text("name", "What ran: a function, a module path or a tensor's key"),
    _integer("start_ns", "Start on a monotonic clock, from the trace's start"),
    _integer("duration_ns", "Wall time from start to end; missing when it never ended"),
    _text("thread", "Name of the Python thread"),
    _integer("rank", "Process rank; 0 outside distributed runs"),
    _text("status", "ok, error (left by an exception) or interrupted (never ended)"),
)

_SOURCE = (
    _text("source", "Key into sources: the library function that ran, as file:first line"),
    _text("stack", "Key into stacks: the Python path that led here"),
)
_FACT_COLUMNS = (
    _integer("event", "seq of the event that established this fact; -1 for none"),
    _integer("call", "seq of the nearest enclosing call; -1 for none"),
    _integer("rank", "Process rank; 0 outside distributed runs"),
)
_MODEL = _text("model", "Short id of the model, the same throughout the trace")
_STEP = _integer("step", "Number of the forward inside the call; prefill is 0")
_ROW = _integer("row", "Row of the batch")
_OFFSET = _integer("offset", "n-th token of the step; in beam search 1 where a sequence ended")


def _event(name: str, meaning: str, *columns: Column, sourced: bool = True) -> Table:
    own = (*columns, *_SOURCE) if sourced else columns
    return Table(name, True, meaning, (*EVENT_COLUMNS, *own), ("seq",))


def _fact(name: str, meaning: str, key: tuple[str, ...], *columns: Column) -> Table:
    return Table(name, False, meaning, (*_FACT_COLUMNS, *columns), key)


_TABLES = (
    _event(
        "calls",
        "a call of the user or nested in one: from_pretrained, generate, a forward, a pipeline",
        _text("kind", "from_pretrained, generate, forward, encode, template, vision, decode, ..."),
        _MODEL,
        _text("mode", "Generation mode, and the library function that carries it out"),
        _integer("rows", "Rows in the batch handed in"),
        _integer("beams", "Beams a row; 1 without beam search"),
        _integer("return_sequences", "Sequences returned for each row"),
        _text("cache", "Short id of the cache object in use"),
        _text("cache_class", "Class of the cache"),
        _text("cache_why", "Why this cache: passed by the user, asked by name, or the default"),
        _text("mask_origin", "Attention mask: given, inferred from pad ids, or all ones"),
        _integer("attended_pads", "Pad positions that the mask lets attention see", "derived"),
        _json("stop_ids", "Ids that end a row, each with where it came from"),
        _text("grad_mode", "Gradient mode seen inside: grad, no_grad or inference_mode"),
        _boolean("compiled", "Whether a forward of the call ran compiled"),
        _boolean("training", "Whether any module of the model was in training mode"),
        _real("dropout", "Largest probability of a dropout that is on; missing outside training"),
        _boolean(
            "keeps_graph", "Whether the output of a user's forward holds a graph for gradients"
        ),
        _integer("position_limit", "Positions that the model's configuration provides"),
        _json("rng_state", "State of the CPU generator at the start: bytes in hex, by device"),
        _integer("cache_prefix_tokens", "Leading ids of the prompt that a passed cache holds"),
        _integer("cache_first_difference", "First position where cache and prompt differ"),
        _integer("recomputed_tokens", "Prompt tokens computed again although cached before"),
        _integer("recomputed_ns", "Estimated share of prefill for those tokens", "estimated"),
        _json("finish", "Why each row ended: eos, length, stop string, time, other (criterion)"),
        _json(
            "summary",
            "Of an encoding: modules run, placeholders, ids cut; of generate: caches alive",
        ),
        _integer("recorder_ns", "Recorder's own time inside the call"),
        _integer("waited_ns", "Time that the thread was ready and waited for a processor"),
        _integer("gap_waited_ns", "Of `waited_ns`, what fell between the spans directly below"),
    ),
    _event(
        "spans",
        "any other stage of a call",
        _text("function", "Qualified name of the library function"),
        _json("summary", "What went in and came out, in numbers"),
    ),
    _event(
        "tensor_loads",
        "one read of one checkpoint tensor",
        _MODEL,
        _text("key", "Name of the tensor in the file"),
        _text("param", "Parameter of the model that it is read for"),
        _text("file", "File that it was read from"),
        _text("stored_dtype", "dtype in the file"),
        _text("loaded_dtype", "dtype after the read and cast"),
        _json("shape", "Shape in the file, or of this rank's part of it where only that is read"),
        _integer("size_bytes", "Bytes of that in the file"),
        _integer("queue_ns", "Wait between submission to a worker and its start"),
        _integer("read_ns", "Indexing the file: a map of pages, or a real read"),
        # Generation 4 casts between two functions that are seen: there this is a difference.
        _integer("cast_ns", "Cast and copy to dtype and device; in generation 4 derived"),
        _boolean("mapped", "Still a view of the file's pages: nothing was read yet"),
        _boolean("discarded", "Read, then not used"),
        _text("device", "Device after the read"),
        _text("worker", "Thread that read it"),
        _integer("rss_bytes", "Resident memory of the process at the end of the batch of reads"),
        _integer("minor_faults", "Page faults served from memory in a read that is no view"),
        _integer("major_faults", "Page faults that needed the disk (whole thread)"),
        _integer("disk_bytes", "Bytes read from the disk (whole process)"),
    ),
    _event(
        "modules",
        "one call of one module",
        _MODEL,
        _text("path", "Dotted path of the module in the model"),
        _text("class_name", "Class of the module"),
        _STEP,
        _json("input_shape", "Shape of the first tensor that went in"),
        _json("output_shape", "Shape of the first tensor that came out"),
        _text("dtype", "dtype of that output"),
        _text("device", "Device of that output"),
        _real("mean", "Mean of the output, in float32; with values=True"),
        _real("std", "Standard deviation of the output, in float32; with values=True"),
        _real("abs_max", "Largest magnitude of the output; with values=True"),
        _integer("nonfinite", "Infinities and NaN in the output; with values=True"),
        _json("arguments", "What went in, by name; of the first call from the same place"),
        _json("returned", "What came out, part by part; of the first call from the same place"),
    ),
    _event(
        "steps",
        "one forward of the model inside generate, or of a user's loop",
        _MODEL,
        _STEP,
        _text("kind", "prefill, chunk, decode or verify"),
        _integer("input_tokens", "Tokens fed in this step, for each row"),
        _integer("drafted_tokens", "Of these, tokens that assisted decoding proposed"),
        _integer("logits_tokens", "Of the tokens fed, those that the head made logits of"),
        _integer("first_position", "Position of the first token fed (row 0, first axis)"),
        _integer("last_position", "Position of the last token fed (row 0, largest axis)"),
        _integer("position_offset", "Position of the last token less its index in the sequence"),
        _text("mask", "Kind and shape of the attention mask handed in"),
        _text("cache", "Short id of the cache object"),
        _integer("cache_tokens_before", "Tokens that the cache had seen before the step"),
        _integer("cache_tokens_after", "Tokens that the cache had seen after it"),
        _integer("cache_bytes", "Bytes of all key and value tensors after the step"),
        _integer("rope_index_calls", "Times that three-axis positions were computed"),
        _integer("rotary_calls", "Times that rotary angles were computed"),
        _integer("rotary_applications", "Times that queries and keys were rotated"),
        _integer("prepare_ns", "Preparing the inputs of the forward"),
        _integer("forward_ns", "The forward itself"),
        _integer("device_ns", "The forward on its GPU; missing on a CPU or on several devices"),
        _integer("processors_ns", "Logits processors"),
        _integer("select_ns", "Choice of the token: from processors to stopping test", "derived"),
        _integer("stop_ns", "Stopping criteria"),
        _integer("recorder_ns", "Recorder's own time inside the step"),
        _boolean("undone", "Step whose result was thrown away"),
    ),
    _event(
        "memory",
        "one sample of memory",
        _integer("rss_bytes", "Resident memory of the process"),
        _integer("anonymous_bytes", "Resident memory that no file backs"),
        _integer("file_bytes", "Resident memory that files back, mapped weights among them"),
        _integer("device_allocated_bytes", "Allocated on accelerators"),
        _integer("device_reserved_bytes", "Reserved on accelerators"),
        _integer("disk_bytes", "Bytes that the process has read from disk so far"),
        _integer("minor_faults", "Page faults of the process so far, served from memory"),
        _integer("major_faults", "Page faults of the process so far that needed the disk"),
        sourced=False,
    ),
    _event(
        "messages",
        "a Python warning or a library log line",
        _text("level", "Level of the log line, or warning"),
        _text("source", "Logger, or file:line of the warning"),
        _text("text", "The message"),
        sourced=False,
    ),
    _event(
        "faults",
        "something not observed, dropped, or failed in the recorder",
        _text("target", "What should have been observed"),
        _text("reason", "Why it was not"),
        _text("traceback", "The recorder's own traceback, where one exists"),
        sourced=False,
    ),
    _fact(
        "models",
        "a model seen",
        ("model",),
        _MODEL,
        _text("class_name", "Class of the model"),
        _text("asked", "Name or path that the user asked for"),
        _text("hub", "local, huggingface, mirror (of that hub), modelscope or unknown"),
        _text("revision", "Revision or commit, where the hub tells one"),
        _text("folder", "Local folder of the files"),
        _boolean("from_cache", "Whether all files were on this machine already"),
        _integer("downloaded_bytes", "Bytes fetched in this run"),
        _text("dtype_asked", "dtype that the user asked for"),
        _text("dtype", "dtype of the model after the load"),
        _text("dtype_why", "Where that dtype comes from"),
        _text("attention", "Attention implementation"),
        _text("experts", "Experts implementation"),
        _json("device_map", "Device map in force"),
        _json("tied", "Tied names: target to source"),
        _integer("parameters", "Number of parameter values, tied ones once"),
        _integer("size_bytes", "Bytes of parameters and buffers, tied ones once"),
        _boolean("training", "Whether the model is in training mode after the load"),
    ),
    _fact(
        "files",
        "a file of the model's folder, read or not",
        ("call", "path"),
        _MODEL,
        _text("path", "Path inside the folder"),
        _text("kind", "weights, index, config, generation_config, tokenizer, processor, ..."),
        _text("format", "safetensors, json, text, pickle, gguf, ..."),
        _integer("size_bytes", "Bytes on disk; missing for a file that is not there"),
        _integer("expected_bytes", "Bytes it should have, by its header or its pointer", "derived"),
        _integer("header_bytes", "Bytes of the safetensors header, its 8 length bytes not counted"),
        _integer("tensors", "Tensors named in the header"),
        _json("metadata", "What __metadata__ of the header holds"),
        _boolean("read", "Whether the loader opened it, or the library asked for its path"),
        _text("why_not", "Why it was not read"),
        _text("filesystem", "Type of the file system"),
        _text("access", "mmap, pread or bytes"),
    ),
    _fact(
        "checkpoint_tensors",
        "a tensor named in a header",
        ("call", "file", "key"),
        _MODEL,
        _text("file", "File whose header names it"),
        _text("key", "Name in the file"),
        _text("dtype", "dtype in the file"),
        _json("shape", "Shape in the file"),
        _integer("offset_bytes", "Where its bytes begin in the file"),
        _integer("size_bytes", "Its bytes in the file"),
        _boolean("in_index", "Whether the index names it for this file; missing without an index"),
        _text("fate", "loaded, converted, unexpected, skipped or discarded"),
        _text("because", "Why it met that fate"),
    ),
    _fact(
        "meta_params",
        "a parameter or buffer of the model as built, before any weight",
        ("model", "param"),
        _MODEL,
        _text("param", "Name in the model"),
        _text("kind", "parameter or buffer"),
        _boolean("persistent", "Whether a state dict holds it"),
        _text("module_class", "Class of the module that owns it"),
        _json("shape", "Shape"),
        _text("dtype", "dtype"),
        _text("device", "Device; meta has shapes and no values"),
        _integer("size_bytes", "Bytes it will need", "derived"),
        _text("planned_device", "Device that the device map plans for it"),
    ),
    _fact(
        "placements",
        "a parameter or buffer of the finished model",
        ("model", "param"),
        _MODEL,
        _text("param", "Name in the model"),
        _text("kind", "parameter or buffer"),
        _text("origin", "checkpoint, converted, tied, initialised, rebuilt, unwritten or unknown"),
        _text("because", "What shows that origin"),
        _json("sources", "Checkpoint keys that its values come from"),
        _text("rule", "Renaming rule that led from source to parameter"),
        _json("operations", "Conversions applied, in order"),
        _json("shape", "Shape of the live tensor"),
        _json("expected_shape", "Shape that the model was built with"),
        _boolean("matches", "Whether live and expected shapes are equal", "derived"),
        _text("stored_dtype", "dtype in the file"),
        _text("dtype", "dtype of the live tensor"),
        _text("dtype_why", "Why it has that dtype", "derived"),
        _text("device", "Device of the live tensor"),
        _text("residence", "resident, offloaded_cpu, offloaded_disk or meta"),
        _integer("wait_ns", "Main thread waiting for the read"),
        _integer("convert_ns", "Converting"),
        _integer("place_ns", "Setting it into the model"),
        _integer("new_infinities", "Infinities that the cast made"),
        _integer("new_zeros", "Zeros that the cast made"),
        _text("verified", "equal, different or not compared"),
        _text("verified_because", "What differs, what it equals, or why it was not compared"),
    ),
    _fact(
        "settings",
        "one setting in force",
        ("event", "scope", "setting"),
        _MODEL,
        _text("scope", "load, tokenizer, processor, generate or decode"),
        _text("setting", "Name"),
        _json("asked", "Value that the user gave"),
        _json("effective", "Value in force"),
        _text("origin", "call, config object, generation_config.json, config.json, library, ..."),
        _boolean("used", "Whether it has an effect in this call"),
        _text("why", "Why it is used or not"),
        _json("model_value", "What the model's own generation config has, where that differs"),
    ),
    _fact(
        "chain",
        "a logits processor or stopping criterion, in order",
        ("event", "kind", "index"),
        _MODEL,
        _text("kind", "processor or criterion"),
        _integer("index", "Position in its list"),
        _text("class_name", "Class"),
        _text("defined_in", "Module that defines the class"),
        _text("origin", "library, or call: handed over by the user"),
        _json("parameters", "Its plain attributes"),
    ),
    _fact(
        "prompts",
        "a rendered template",
        ("event", "row"),
        _ROW,
        _text("text", "The rendered text"),
        _text("template_origin", "Where the template came from"),
    ),
    _fact(
        "segments",
        "a piece of a rendered template",
        ("event", "row", "start"),
        _ROW,
        _integer("start", "First character in the prompt's text"),
        _integer("end", "Character after the last"),
        _text("role", "Role of the message"),
        _text("origin", "template, system, user, assistant, tool or unknown", "derived"),
        _integer("message", "Index of the message; missing for pure template text"),
        _text("text", "The piece"),
    ),
    _fact(
        "tokens",
        "a position of a sequence",
        ("event", "row", "index"),
        _ROW,
        _integer("index", "Running number in the row, cut tokens included"),
        _integer("position", "Index in the sequence; missing for cut tokens"),
        _integer("token_id", "Id"),
        _text("vocab", "String in the vocabulary"),
        _text("bytes_hex", "Bytes that the id stands for, in hex"),
        _text("text", "Text that becomes complete with this token"),
        _text("kind", "text, special, image, video, pad or cut"),
        _text("origin", "template, system, user, assistant, tool, tokenizer, pad, unknown, ..."),
        _text("part", "Part of the model that reads it, encoder or decoder, where it has both"),
        _integer("image", "Index of the image that the placeholder stands for"),
        _boolean("attended", "Whether the mask lets attention see it"),
        _integer("position_t", "Temporal position"),
        _integer("position_h", "Vertical position"),
        _integer("position_w", "Horizontal position"),
    ),
    _fact(
        "images",
        "an image or video on its way in, completed by helper, processor and prefill",
        ("event", "kind", "index"),
        _ROW,
        _integer("index", "Number of the image in the call"),
        _text("kind", "image or video"),
        _text("source_kind", "path, file (file://), url, base64, PIL, frames or tensor"),
        _integer("fetch_ns", "Fetching and decoding"),
        _text("mode", "Colour mode before conversion"),
        _integer("original_w", "Width as opened"),
        _integer("original_h", "Height as opened"),
        _integer("helper_w", "Width after process_vision_info"),
        _integer("helper_h", "Height after process_vision_info"),
        _integer("processor_w", "Width after the processor"),
        _integer("processor_h", "Height after the processor"),
        _text("limit", "Pixel limits of each resize as it was called, and which of them acted"),
        _text("limit_origin", "Who set the limit that acted, or else the largest, of each resize"),
        _json("resizes", "Each resize: by, before, after, min_pixels, max_pixels, acted, origin"),
        _integer("grid_t", "Patches in time"),
        _integer("grid_h", "Patches down"),
        _integer("grid_w", "Patches across"),
        _integer("patches", "Patches in all"),
        _real("value_min", "Smallest value after normalising"),
        _real("value_max", "Largest value after normalising"),
        _integer("frames", "Frames of a video"),
        _real("helper_fps", "Rate at which the helper sampled the video"),
        _real("fps", "Sampling rate of a video that the processor works with"),
        _boolean("fps_known", "Whether that rate was told to the processor, or assumed by it"),
        _real("seconds_per_grid", "Seconds between two steps of the grid"),
        _integer("expected_tokens", "Placeholders that the grid calls for", "derived"),
        _integer("found_tokens", "Placeholders found in the ids"),
        _integer("replaced_embeddings", "Rows of the embeddings equal to encoder output"),
        _integer("first_position", "Index of its first placeholder"),
    ),
    _fact(
        "inputs",
        "a tensor handed to the model",
        ("event", "tensor"),
        _text("tensor", "Name of the argument"),
        _json("shape", "Shape"),
        _text("dtype", "dtype"),
        _text("device", "Device"),
        _integer("size_bytes", "Bytes"),
    ),
    _fact(
        "choices",
        "a chosen token",
        ("call", "step", "row", "offset"),
        _STEP,
        _ROW,
        _OFFSET,
        _integer("token_id", "Id chosen"),
        _text("text", "Text that becomes complete with it"),
        _real("raw_logprob", "Log-probability before the processors, natural logarithm"),
        _integer("raw_rank", "Rank before the processors; 0 is the most likely"),
        _real("raw_entropy", "Entropy before the processors, in nats"),
        _real("logprob", "Log-probability in the distribution chosen from"),
        _real("probability", "Probability in the distribution chosen from"),
        _real("entropy", "Entropy of the distribution chosen from, in nats"),
        _real("margin", "Probability of the best less that of the second"),
        _real("score", "Processed score; accumulated in beam search"),
        _integer("parent_row", "Row of the step before that this one continues"),
        _integer("sequence", "Returned sequence that it belongs to, the first that shares it"),
        _integer("drafted_id", "Id proposed for this place in assisted decoding"),
        _boolean("accepted", "Whether it stands in what generate returned"),
        _text("finish", "Why the row ended with it: eos, length, stop string, time, other"),
    ),
    _fact(
        "candidates",
        "a top-k entry of a step",
        ("call", "step", "row", "offset", "token_rank"),
        _STEP,
        _ROW,
        _OFFSET,
        _integer("token_rank", "Rank in what was chosen from (own loop: raw); 0 is the likeliest"),
        _integer("token_id", "Id"),
        _text("text", "Text of the id alone"),
        _real("raw_logit", "Logit out of the model"),
        _real("raw_probability", "Probability before the processors"),
        _real("score", "Processed score; ids that the processors removed are no candidates"),
        _real("probability", "Probability in the distribution chosen from"),
    ),
    _fact(
        "effects",
        "what a processor did at a step",
        ("call", "step", "row", "offset", "index"),
        _STEP,
        _ROW,
        _OFFSET,
        _integer("index", "Position in the chain"),
        _text("class_name", "Class of the processor"),
        _integer("removed_tokens", "Ids that it set to -inf"),
        _real("chosen_delta", "Change that it made to the chosen id's score"),
        _integer("chosen_rank", "Rank of the chosen id after it, where greedy took no raw best"),
        _real("entropy_before", "Entropy going in, in nats"),
        _real("entropy_after", "Entropy coming out, in nats"),
    ),
    _fact(
        "stops",
        "a stop id at a step",
        ("call", "step", "row", "offset", "token_id"),
        _STEP,
        _ROW,
        _OFFSET,
        _integer("token_id", "The stop id"),
        _integer("token_rank", "Its rank in the distribution chosen from"),
        _real("probability", "Its probability there"),
    ),
    _fact(
        "cache_layers",
        "a layer's cache after a step",
        ("call", "step", "cache", "layer", "part"),
        _STEP,
        _text("cache", "Short id of the cache object"),
        _integer("layer", "Layer"),
        _text("part", "self or cross"),
        _text("class_name", "Class of the layer's cache"),
        _text("dtype", "dtype of keys and values"),
        _integer("tokens_seen", "Tokens that the layer has seen"),
        _integer("tensor_tokens", "Tokens that its tensors hold"),
        _integer("capacity_tokens", "Tokens that it can hold; missing when it grows"),
        _integer("size_bytes", "Bytes of its key and value tensors"),
        _text("device", "Device"),
    ),
    _fact(
        "logits",
        "a row of raw logits; with logits=True",
        ("call", "step", "row", "offset"),
        _STEP,
        _ROW,
        _OFFSET,
        _text("dtype", "dtype of the values"),
        Column("values", "bytes", "The row's raw bytes, vocabulary order"),
    ),
    Table(
        "stacks",
        False,
        "a distinct Python call path",
        (
            _text("stack", "Key"),
            _json("frames", "Frames from the outermost in, each file:current line function"),
        ),
        ("stack",),
    ),
    Table(
        "sources",
        False,
        "a library function that ran",
        (
            _text("source", "Key: package-relative file:first line"),
            _text("function", "Qualified name"),
            _integer("first_line", "Line on which it begins, decorators included"),
            _text("text", "Its source text, read when the recording closed"),
        ),
        ("source",),
    ),
)

TABLES: Final[dict[str, Table]] = {table.name: table for table in _TABLES}
EVENT_TABLES: Final = tuple(table.name for table in _TABLES if table.is_event)
FACT_TABLES: Final = tuple(table.name for table in _TABLES if not table.is_event)
EVENTS: Final = Table(
    "events",
    True,
    "an event of any table, by the columns that all of them have",
    (*EVENT_COLUMNS, _text("table", "Table that holds the rest of the event")),
    ("seq",),
)
"""The union of the event tables: made on reading and in exports, stored nowhere."""

PRIVATE_COLUMNS: Final[dict[str, frozenset[str]]] = {
    "prompts": frozenset({"text"}),
    "segments": frozenset({"text"}),
    "tokens": frozenset({"token_id", "vocab", "bytes_hex", "text"}),
    "choices": frozenset({"token_id", "text", "drafted_id"}),
    "candidates": frozenset({"token_id", "text"}),
    "messages": frozenset({"text"}),
    "faults": frozenset({"traceback"}),
    # The largest raw logit is the token that greedy decoding chooses.
    "logits": frozenset({"values"}),
}
"""Columns that hold what a user wrote or a model answered; redaction empties them."""

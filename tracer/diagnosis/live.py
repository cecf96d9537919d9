"""Rules that look at a live model, with its processor where one is given.

They ask the objects for plain attributes, so that torch is not imported here, and change nothing.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, Final

from tracer.diagnosis.finding import Found, Row, Untold, cells, items, rows_of
from tracer.diagnosis.rules import Answers, rule
from tracer.explain.sentences import recorded

_ACCELERATE: Final = "huggingface/accelerate#1971, openvinotoolkit/nncf#3362"
_LARGEST_AUDIT_BYTES: Final = 2**30
"""A larger model is compared only where somebody asks for it: all of it is read again."""
_LAB: Final = "tracer."
_DROPOUT: Final = ("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout")


@dataclasses.dataclass(frozen=True, slots=True)
class Live:
    """A model in this process.

    Attributes:
        model: A `PreTrainedModel`.
        processor: Its processor or tokenizer; None where none was given.
    """

    model: Any
    processor: Any = None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, bare or inside the processor; None where there is none."""
        held = getattr(self.processor, "tokenizer", self.processor)
        # What makes pictures or sounds ready is a processor too, and knows no token.
        return held if hasattr(held, "convert_tokens_to_ids") else None

    @property
    def chats(self) -> bool:
        """Whether the model goes on behind what it reads, as a conversation needs."""
        is_encoder_decoder = getattr(self.model.config, "is_encoder_decoder", False)
        return self.generation is not None and not is_encoder_decoder

    @property
    def generation(self) -> Any:
        """The generation configuration; None where the model can't generate."""
        return getattr(self.model, "generation_config", None)

    def tensors(self) -> Iterator[tuple[str, str, Any]]:
        """Kind, name and tensor of every parameter and buffer, tied ones under each name."""
        for name, tensor in self.model.named_parameters(remove_duplicate=False):
            yield "parameter", name, tensor
        for name, tensor in self.model.named_buffers(remove_duplicate=False):
            yield "buffer", name, tensor

    def offloaded(self) -> set[str]:
        """Names of tensors whose values an offload hook brings at each call."""
        found = set()
        for path, module in self.model.named_modules():
            for hook in _hooks_of(module):
                if getattr(hook, "offload", False):
                    prefix = f"{path}." if path else ""
                    below = getattr(hook, "place_submodules", False)
                    own = module.named_parameters(recurse=below)
                    found |= {prefix + name for name, _ in own}
                    found |= {prefix + name for name, _ in module.named_buffers(recurse=below)}
        return found

    def stop_ids(self) -> set[int]:
        """The ids that end a row."""
        held = getattr(self.generation, "eos_token_id", None)
        return set(held if isinstance(held, list) else [held]) - {None}


def _hooks_of(module: Any) -> Iterator[Any]:
    """The hook that accelerate hangs on a module, taken apart where it is a sequence."""
    hook = getattr(module, "_hf_hook", None)
    if hook is not None:
        yield from getattr(hook, "hooks", (hook,))


@rule("model_on_meta", "fatal", "live", "huggingface/transformers#38870")
def model_on_meta(live: Live) -> Answers:
    """Tensors without data that no offload hook will fetch."""
    away = live.offloaded()
    tensors = list(live.tensors())
    empty = [(kind, name) for kind, name, one in tensors if one.is_meta and name not in away]
    if empty:
        yield Found(
            {"count": len(empty), "whole": len(tensors), "first": empty[0][1]},
            tuple(cells("model", {"name": name}, kind=kind, device="meta") for kind, name in empty),
        )


@rule("model_offloaded", "note", "live", "huggingface/accelerate#3866, " + _ACCELERATE)
def model_offloaded(live: Live) -> Answers:
    """Parameters that are placeholders here and are fetched at each call."""
    away = live.offloaded()
    held = [(name, one) for kind, name, one in live.tensors() if name in away and one.is_meta]
    if held:
        size = sum(one.numel() * one.element_size() for _, one in held)
        yield Found(
            {"count": len(held), "away_bytes": size, "first": held[0][0]},
            tuple(cells("model", {"name": name}, device="meta", shape=list(one.shape))
                  for name, one in held),
        )  # fmt: skip


@rule("model_untied", "warning", "live", "huggingface/transformers#3799")
def model_untied(live: Live) -> Answers:
    """Input and output embeddings that the configuration ties, in two storages."""
    config = live.model.config
    inner = getattr(config, "get_text_config", lambda: config)()
    asked = getattr(inner, "tie_word_embeddings", getattr(config, "tie_word_embeddings", False))
    into, out = _embedding(live, "get_input_embeddings"), _embedding(live, "get_output_embeddings")
    if not asked or into is None or out is None or into.is_meta or out.is_meta:
        return
    if into.data_ptr() != out.data_ptr():
        names = {id(one): name for _, name, one in live.tensors()}
        yield Found(
            {"first": names.get(id(into), "-"), "second": names.get(id(out), "-")},
            tuple(
                cells("model", {"name": names.get(id(one), "-")}, data_ptr=hex(one.data_ptr()))
                for one in (into, out)
            ),
        )


def _embedding(live: Live, getter: str) -> Any:
    try:
        module = getattr(live.model, getter)()
    except (AttributeError, NotImplementedError):
        return None
    return getattr(module, "weight", None)


@rule("model_in_training", "fatal", "live")
def model_in_training(live: Live) -> Answers:
    """Modules in training mode: dropout throws activations away at random."""
    modules = [(path, one) for path, one in live.model.named_modules() if one.training]
    acting = [
        (path, one)
        for path, one in modules
        if type(one).__name__ in _DROPOUT and getattr(one, "p", 0) > 0
    ]
    # Functions read a probability too: of these only the configuration tells.
    config = live.model.config
    asked = {
        name: value
        for name, value in config.to_dict().items()
        if name.endswith(("dropout", "drop", "pdrop")) and isinstance(value, float) and value > 0
    }
    if modules:
        acts = bool(acting or asked)
        rows = [cells("model", {"name": path}, p=one.p) for path, one in acting]
        rows += [cells("config", {"name": name}, value=value) for name, value in asked.items()]
        rows = rows or [cells("model", {"name": path}, training=True) for path, _ in modules]
        yield Found(
            {"count": len(modules), "dropouts": len(acting) + len(asked)},
            tuple(rows),
            "fatal" if acts else "note",
        )


@rule("model_compiled", "note", "live", "pytorch/pytorch#117758")
def model_compiled(live: Live) -> Answers:
    """Compiled modules, on which hooks that come later never run."""
    compiled = [
        path or type(one).__name__
        for path, one in live.model.named_modules()
        if _has_stand_in(one)
        or hasattr(vars(one).get("forward"), "_torchdynamo_orig_callable")
        or type(one).__name__ == "OptimizedModule"
    ]
    if compiled:
        yield Found(
            {"count": len(compiled), "first": compiled[0]},
            tuple(cells("model", {"name": path}, compiled=True) for path in compiled),
        )


def _has_stand_in(module: Any) -> bool:
    """Whether something stands in for the module's call; a recording's own does not count."""
    stands_in = getattr(module, "_compiled_call_impl", None)
    is_ours = type(stands_in).__module__.startswith(_LAB)
    return stands_in is not None and not is_ours


@rule("model_hooked", "note", "live", "pytorch/pytorch#46386")
def model_hooked(live: Live) -> Answers:
    """Forward hooks of others, which may change what the model gives or keep what it made."""
    rows: list[Row] = []
    for path, module in live.model.named_modules():
        for kind in ("_forward_pre_hooks", "_forward_hooks"):
            for hook in getattr(module, kind, {}).values():
                owner = _owner(hook)
                if not owner.startswith((_LAB, "transformers.", "accelerate.", "torch.")):
                    rows.append(cells("model", {"name": path}, kind=kind.strip("_"), owner=owner))
    if rows:
        owners = sorted({str(row.cells["owner"]) for row in rows})
        yield Found({"count": len(rows), "owners": owners}, tuple(rows))


def _owner(hook: Any) -> str:
    """Where a hook was written: module and name of its function."""
    inner = getattr(hook, "func", hook)
    module = getattr(inner, "__module__", None) or type(inner).__module__
    return f"{module}.{getattr(inner, '__qualname__', type(inner).__name__)}"


@rule("model_mixes_dtypes", "note", "live", "huggingface/transformers#34743")
def model_mixes_dtypes(live: Live) -> Answers:
    """Float parameters of more than one dtype, where the library asks for no such exception."""
    kept = {
        name
        for held in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")
        for name in getattr(live.model, held, None) or ()
    }
    found: dict[str, list[str]] = {}
    for kind, name, one in live.tensors():
        parts = set(name.split("."))
        if kind == "parameter" and one.dtype.is_floating_point and not parts & kept:
            found.setdefault(str(one.dtype).removeprefix("torch."), []).append(name)
    if len(found) > 1 and not hasattr(live.model, "hf_quantizer"):
        fewest = min(found, key=lambda dtype: len(found[dtype]))
        yield Found(
            {"dtypes": sorted(found), "count": len(found[fewest]), "first": found[fewest][0]},
            tuple(cells("model", {"name": name}, dtype=fewest) for name in found[fewest]),
        )


@rule("model_pads_on_the_right", "note", "live", "huggingface/transformers#34658")
def model_pads_on_the_right(live: Live) -> Answers:
    """A tokenizer that pads after the prompt, for a model that writes on behind it."""
    tokenizer = live.tokenizer
    if tokenizer is None or not live.chats:
        return
    if getattr(tokenizer, "padding_side", None) == "right":
        key = {"name": type(tokenizer).__name__}
        yield Found({"name": key["name"]}, (cells("tokenizer", key, padding_side="right"),))


@rule("model_stops_elsewhere", "warning", "live", "vllm-project/vllm#4182")
def model_stops_elsewhere(live: Live) -> Answers:
    """A tokenizer's end token that is none of the ids at which generation stops."""
    end = getattr(live.tokenizer, "eos_token_id", None)
    if live.generation is None or end is None:
        return
    stops = live.stop_ids()
    if stops and end not in stops:
        rows = (
            cells("tokenizer", {"name": "eos_token"}, id=end, token=live.tokenizer.eos_token),
            cells("generation_config", {"name": "eos_token_id"}, ids=sorted(stops)),
        )
        yield Found(
            {"token": live.tokenizer.eos_token, "end_id": end, "stops": sorted(stops)}, rows
        )


@rule("model_without_pad", "note", "live", "huggingface/transformers#25790")
def model_without_pad(live: Live) -> Answers:
    """A tokenizer that can't pad."""
    tokenizer = live.tokenizer
    if tokenizer is None or live.generation is None:
        return
    pad = getattr(tokenizer, "pad_token_id", None)
    if pad is None:
        rows = (cells("tokenizer", {"name": "pad_token"}, id=None),)
        yield Found({"stops": sorted(live.stop_ids())}, rows)


@rule("model_without_template", "note", "live")
def model_without_template(live: Live) -> Answers:
    """A processor without a chat template."""
    if live.processor is None or not live.chats:
        return
    if live.tokenizer is None:
        yield Untold("tokenizer")
        return
    held = getattr(live.processor, "chat_template", None)
    if held is None and getattr(live.tokenizer, "chat_template", None) is None:
        key = {"name": type(live.processor).__name__}
        yield Found({"name": key["name"]}, (cells("processor", key, chat_template=None),))


@rule("model_differs", "warning", "live")
def model_differs(live: Live) -> Answers:
    """Values that are not those of the local folder that the model says it came from."""
    folder = str(getattr(live.model.config, "name_or_path", "") or "")
    if not os.path.isdir(folder) or not hasattr(live.model, "save_pretrained"):
        return
    size = sum(one.numel() * one.element_size() for _, _, one in live.tensors())
    if size > _LARGEST_AUDIT_BYTES:
        yield Untold("audit_model")
        return
    from tracer.instrument.verifying.verdicts import ON_META
    from tracer.verify import audit_model

    audit = audit_model(live.model, folder)
    broken = audit[audit["verdict"] == "broken"]
    names = [str(name) for text in broken["evidence"] for name in items(text)]
    on_meta = str(recorded(ON_META))
    names = [name for name in names if not name.endswith(on_meta)]  # a rule of its own
    if names:
        yield Found(
            {"count": len(names), "folder": folder, "first": names[0]},
            rows_of("audit_model", broken, "check", "expected", "found"),
        )

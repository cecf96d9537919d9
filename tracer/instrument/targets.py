"""Data: what is patched, on which owner, in which releases, and what must follow.

Read top to bottom. Names were checked in the source of transformers 5.24.0, 4.57.6 and 4.51.3; the
audit's check 8 proves that each still fires: a target with `follows` must have been seen whenever
the target that it follows was.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Final, Literal, NamedTuple

Route = Literal["root", "inner", "job"]
Version = tuple[int, int]
FIVE: Final = (5, 0)
# Releases between 4.51 and 4.57 were not looked up: what 4.57 has and 4.51 has not begins there.
LATE_FOUR: Final = (4, 57)


@dataclasses.dataclass(frozen=True)
class Target:
    """One patched attribute.

    Attributes:
        owner: `module` or `module:Class`; patched where the library looks the name up.
        observe: function of instrument/ that watches it, as `file.function`.
        stage: stage of the span that it makes, where it makes one.
        route: `root` may open a trace of its own, `inner` counts only inside one, `job` also in a
            worker thread of a load, which the load has announced.
        follows: name of the target that never runs without this one (or of what an observer found
            a call to have done); None when conditional.
        every_subclass: also patch each imported subclass that overrides the attribute.
        is_copy: the owner takes the name over from another module once it is asked for it; patched
            only where that has happened.
        is_lean: called once a tensor, so `observe` makes the wrapper itself, without a span.
        since, before: first release of transformers that has it, first that has it no more;
            None without such a bound.
    """

    owner: str
    attribute: str
    observe: str
    stage: str = ""
    route: Route = "inner"
    follows: str | None = None
    every_subclass: bool = False
    is_copy: bool = False
    is_lean: bool = False
    since: Version | None = None
    before: Version | None = None

    @functools.cached_property  # asked for at every call of it
    def name(self) -> str:
        """Owner and attribute, without the package's common beginning."""
        return f"{self.owner}.{self.attribute}".removeprefix("transformers.").replace(":", ".")

    def is_for(self, version: Version) -> bool:
        """Whether a release of transformers has it, as far as was looked up."""
        after = self.since is None or version >= self.since
        return after and (self.before is None or version < self.before)

    @property
    def module(self) -> str:
        """Module that holds the owner."""
        return self.owner.partition(":")[0]


GGUF_READER: Final = "transformers.modeling_gguf_pytorch_utils"
"""Module that unpacks GGUF files, in all releases."""

_AUTO = "transformers.models.auto"
_MODELING = "transformers.modeling_utils"
_PRETRAINED = f"{_MODELING}:PreTrainedModel"
_CONVERT = "transformers.core_model_loading"
_DISTRIBUTED = "transformers.distributed.mixin"
_OLD_CONFIG = "transformers.configuration_utils:PretrainedConfig"
_PROCESSOR = "transformers.processing_utils:ProcessorMixin"
_TOKENIZER = "transformers.tokenization_utils_base:PreTrainedTokenizerBase"
_PIPELINE = "transformers.pipelines.base:Pipeline"
_GENERATION = "transformers.generation.utils:GenerationMixin"
_PACKED = "transformers.generation.continuous_batching"
_BATCHING = f"{_PACKED}.continuous_api:ContinuousMixin"
_CACHE = "transformers.cache_utils:Cache"
_DYNAMIC_CACHE = "transformers.cache_utils:DynamicCache"
_LOAD = "modeling_utils.PreTrainedModel.from_pretrained"
_GENERATE = "generation.utils.GenerationMixin.generate"
_SAMPLE = "generation.utils.GenerationMixin._sample"
_BEAM_SEARCH = "generation.utils.GenerationMixin._beam_search"
_ASSISTED = "generation.utils.GenerationMixin._assisted_decoding"
_WEIGHTS = "modeling_utils.convert_and_load_state_dict_in_model"
HAD_A_PLACE: Final = f"{_WEIGHTS}: a tensor had a place in the model"
READ_WHOLE: Final = f"{_WEIGHTS}: a tensor had a place that is not cut between ranks"
READ_IN_PART: Final = f"{_WEIGHTS}: a tensor had a place that is cut between ranks"
WAS_SET: Final = f"{_WEIGHTS}: a parameter got values that are not offloaded to the disk"


def _load_stage(
    attribute: str,
    stage: str,
    follows: str | None = _LOAD,
    since: Version | None = None,
    before: Version | None = None,
) -> Target:
    return Target(
        _MODELING, attribute, "stages.span", stage, follows=follows, since=since, before=before
    )


def _method(
    attribute: str, stage: str, since: Version | None = None, before: Version | None = None
) -> Target:
    return Target(
        _PRETRAINED, attribute, "stages.span", stage, follows=_LOAD, since=since, before=before
    )


def _four(
    owner: str,
    attribute: str,
    observe: str,
    stage: str,
    follows: str | None = _LOAD,
    since: Version | None = None,
    before: Version = FIVE,
) -> Target:
    """A step of a load that generation 4 alone has, or does in its own way."""
    return Target(owner, attribute, observe, stage, follows=follows, since=since, before=before)


def _from_pretrained(owner: str, stage: str) -> Target:
    return Target(
        owner,
        "from_pretrained",
        "loads.loading.part_call",
        stage,
        route="root",
        every_subclass=True,
    )


def _part(
    owner: str,
    attribute: str,
    stage: str,
    since: Version | None = FIVE,
    before: Version | None = None,
) -> Target:
    """A piece of a larger call, so that its time has a name."""
    return Target(owner, attribute, "stages.span", stage, since=since, before=before)


def _once_a_tensor(
    owner: str, attribute: str, observe: str, follows: str | None = HAD_A_PLACE
) -> Target:
    return Target(owner, attribute, observe, follows=follows, is_lean=True, since=FIVE)


def _once_a_tensor_in_four(attribute: str, observe: str, follows: str | None = None) -> Target:
    return Target(_MODELING, attribute, observe, follows=follows, is_lean=True, before=FIVE)


def _setup(attribute: str, since: Version | None = None, before: Version | None = None) -> Target:
    return Target(
        _GENERATION,
        attribute,
        "answering.generation.part",
        "setup",
        every_subclass=True,
        since=since,
        before=before,
    )


def _cache_method(
    owner: str, attribute: str, since: Version | None = None, before: Version | None = None
) -> Target:
    return Target(
        owner,
        attribute,
        "answering.cache_rows.moved",
        route="root",
        every_subclass=True,
        since=since,
        before=before,
    )


def _fetch(
    owner: str, attribute: str, since: Version | None = None, before: Version | None = None
) -> Target:
    return Target(owner, attribute, "asking.images.loaded", "vision", since=since, before=before)


TARGETS: Final[tuple[Target, ...]] = (
    # A pipeline loads model, tokenizer and processor, with arguments of its own.
    Target(
        "transformers.pipelines", "pipeline", "loads.loading.pipeline_call", "resolve", route="root"
    ),
    Target(
        "transformers",
        "pipeline",
        "loads.loading.pipeline_call",
        "resolve",
        route="root",
        is_copy=True,
    ),
    # Whole loads. Each is a call; an Auto class's call holds the concrete class's.
    _from_pretrained(f"{_AUTO}.auto_factory:_BaseAutoModelClass", "resolve"),
    _from_pretrained(f"{_AUTO}.configuration_auto:AutoConfig", "config"),
    _from_pretrained(f"{_AUTO}.tokenization_auto:AutoTokenizer", "tokenizer"),
    _from_pretrained(f"{_AUTO}.processing_auto:AutoProcessor", "processor"),
    _from_pretrained(f"{_AUTO}.image_processing_auto:AutoImageProcessor", "processor"),
    _from_pretrained(f"{_AUTO}.feature_extraction_auto:AutoFeatureExtractor", "processor"),
    Target(
        f"{_AUTO}.video_processing_auto:AutoVideoProcessor",
        "from_pretrained",
        "loads.loading.part_call",
        "processor",
        route="root",
        since=LATE_FOUR,
        before=FIVE,
    ),
    _from_pretrained(_TOKENIZER, "tokenizer"),
    _from_pretrained(_PROCESSOR, "processor"),
    _from_pretrained("transformers.image_processing_base:ImageProcessingMixin", "processor"),
    _from_pretrained("transformers.feature_extraction_utils:FeatureExtractionMixin", "processor"),
    _from_pretrained("transformers.video_processing_utils:BaseVideoProcessor", "processor"),
    Target(
        _PRETRAINED,
        "from_pretrained",
        "loads.loading.model_call",
        "resolve",
        route="root",
        every_subclass=True,
    ),
    # From a name to files. `cached_files` is the one gate: `cached_file` calls it too.
    Target("transformers.utils.hub", "cached_files", "loads.resolution.resolved_files", "resolve"),
    Target(
        "transformers.configuration_utils:PreTrainedConfig",
        "get_config_dict",
        "stages.span",
        "config",
        since=FIVE,
    ),
    _part(_OLD_CONFIG, "get_config_dict", "config", None, FIVE),
    # From a class's name to the class: imports families on the way, some in vain.
    _part(f"{_AUTO}.auto_factory", "_get_model_class", "resolve", None, FIVE),
    _part(f"{_AUTO}.auto_factory:_LazyAutoMapping", "keys", "resolve", None, LATE_FOUR),
    _part(f"{_AUTO}.tokenization_auto", "tokenizer_class_from_name", "tokenizer", None),
    _part(f"{_AUTO}.tokenization_auto", "get_tokenizer_config", "tokenizer", None),
    _part(f"{_AUTO}.processing_auto", "processor_class_from_name", "processor", None),
    _part(
        f"{_AUTO}.image_processing_auto",
        "get_image_processor_class_from_name",
        "processor",
        None,
        FIVE,
    ),
    _part(
        f"{_AUTO}.video_processing_auto",
        "video_processor_class_from_name",
        "processor",
        LATE_FOUR,
        FIVE,
    ),
    _part(f"{_AUTO}.image_processing_auto", "_load_backend_class", "processor"),
    _part(f"{_AUTO}.image_processing_auto", "_load_class_with_fallback", "processor"),
    _part(_PROCESSOR, "get_processor_dict", "processor", None),
    _part(_PROCESSOR, "_get_arguments_from_pretrained", "processor", None),
    _part("transformers.configuration_utils:PreTrainedConfig", "from_dict", "config"),
    _part(_OLD_CONFIG, "from_dict", "config", None, FIVE),
    Target(
        "transformers.image_processing_base:ImageProcessingMixin",
        "from_dict",
        "asking.images.configured",
        "processor",
    ),
    Target(
        "transformers.video_processing_utils:BaseVideoProcessor",
        "from_dict",
        "asking.images.configured",
        "processor",
    ),
    _part(_PROCESSOR, "from_args_and_dict", "processor", None),
    _part(_TOKENIZER, "_from_pretrained", "tokenizer", None),
    Target(
        _MODELING,
        "_get_resolved_checkpoint_files",
        "loads.resolution.checkpoint_files",
        "resolve",
        follows=_LOAD,
    ),
    # In worker threads where several files are missing.
    Target(
        "huggingface_hub.file_download",
        "_download_to_tmp_and_move",
        "loads.resolution.downloaded",
        "resolve",
        route="root",
    ),
    Target(_MODELING, "_get_dtype", "loads.loading.dtype", "metadata", follows=_LOAD, since=FIVE),
    _four(_MODELING, "_get_dtype", "loads.shards.dtype", "metadata", since=LATE_FOUR),
    _four(_MODELING, "_get_torch_dtype", "loads.shards.dtype", "metadata", before=LATE_FOUR),
    # Two files that a local folder gives without passing that gate.
    Target(_MODELING, "get_checkpoint_shard_files", "loads.resolution.index_file", "resolve"),
    Target(
        "transformers.generation.configuration_utils:GenerationConfig",
        "from_pretrained",
        "loads.resolution.generation_file",
        "config",
    ),
    # The model on meta: from the init contexts to the first question asked of the built model
    # (sub-models pass through get_init_context's block too, but are not asked for a dtype plan).
    # In generation 4 the first question is to tie its weights.
    Target(
        _PRETRAINED, "get_init_context", "loads.loading.init_context", "meta_init", follows=_LOAD
    ),
    Target(
        _PRETRAINED,
        "_get_dtype_plan",
        "loads.loading.built",
        "meta_init",
        follows=_LOAD,
        since=FIVE,
    ),
    Target(
        _PRETRAINED,
        "tie_weights",
        "loads.shards.tied",
        "tie",
        follows=_LOAD,
        every_subclass=True,
        before=FIVE,
    ),
    Target(
        _MODELING,
        "get_model_conversion_mapping",
        "loads.quantisers.conversions",
        "convert",
        follows=_LOAD,
        since=FIVE,
    ),
    Target(_MODELING, "_get_device_map", "loads.devices.device_map", "dispatch"),
    Target(
        "transformers.integrations.accelerate",
        "infer_auto_device_map",
        "loads.devices.budget",
        "dispatch",
        since=FIVE,
    ),
    Target(_MODELING, "infer_auto_device_map", "loads.devices.budget", "dispatch", before=FIVE),
    # The first load with a tensor-parallel plan makes the group of processes: for seconds.
    _part(f"{_DISTRIBUTED}:DistributedMixin", "prepare_distribute_model", "dispatch"),
    _part(f"{_DISTRIBUTED}:DistributedMixin", "maybe_distribute_model", "dispatch"),
    _load_stage("initialize_tensor_parallelism", "dispatch", None, LATE_FOUR, FIVE),
    _load_stage("caching_allocator_warmup", "place", None),
    _method("_load_pretrained_model", "tensor_load", since=FIVE),
    # Weights: headers first, then lazy reads in worker threads, converted and set by this thread.
    Target(_MODELING, "safe_open", "loads.checkpoint_files.opened_file", "metadata", since=FIVE),
    Target(_MODELING, "load_state_dict", "loads.checkpoint_files.opened_file", "metadata"),
    Target(
        _MODELING,
        "convert_and_load_state_dict_in_model",
        "loads.loading.weights",
        "tensor_load",
        follows=_LOAD,
        since=FIVE,
    ),
    _once_a_tensor(_CONVERT, "spawn_materialize", "loads.steps.submitted"),
    # Runs in worker threads, which find their load by the tensor that they read.
    _once_a_tensor(_CONVERT, "_materialize_copy", "loads.reads.read", READ_WHOLE),
    _once_a_tensor(
        "transformers.distributed.sharding_utils:DtensorShardOperation",
        "shard_tensor",
        "loads.reads.read_part",
        READ_IN_PART,
    ),
    _once_a_tensor(f"{_CONVERT}:WeightTransform", "add_tensor", "loads.steps.planned"),
    _once_a_tensor(f"{_CONVERT}:WeightTransform", "materialize_tensors", "loads.steps.awaited"),
    _once_a_tensor(f"{_CONVERT}:WeightRenaming", "convert", "loads.steps.converted", None),
    _once_a_tensor(f"{_CONVERT}:WeightConverter", "convert", "loads.steps.converted", None),
    _once_a_tensor(_CONVERT, "set_param_for_module", "loads.steps.placed", WAS_SET),
    _once_a_tensor(_CONVERT, "offload_and_maybe_resave_param", "loads.steps.offloaded", None),
    # Weights in generation 4: names are matched and what no file holds gets its values first; then
    # each shard is opened again, and every tensor read, cast and set by the same thread.
    _four(_PRETRAINED, "_load_pretrained_model", "loads.shards.weights", "tensor_load"),
    _four(_PRETRAINED, "_get_key_renaming_mapping", "loads.shards.renamed", "convert"),
    _four(_MODELING, "_find_missing_and_unexpected_keys", "loads.shards.compared", "initialise"),
    _four(_MODELING, "_find_mismatched_keys", "stages.span", "initialise"),
    _four(
        _PRETRAINED, "_move_missing_keys_from_meta_to_cpu", "loads.shards.moved_missing", "place"
    ),
    _four(_PRETRAINED, "_initialize_missing_keys", "loads.shards.initialised", "initialise"),
    _four(
        _MODELING,
        "load_shard_files_with_threadpool",
        "loads.shards.in_parallel",
        "tensor_load",
        None,
        LATE_FOUR,
    ),
    Target(
        _MODELING,
        "load_shard_file",
        "loads.shards.shard_file",
        "tensor_load",
        route="job",
        follows=_LOAD,
        since=LATE_FOUR,
        before=FIVE,
    ),
    _four(_MODELING, "safe_open", "loads.shards.opened_file", "metadata", None),
    _four(
        _MODELING,
        "_load_state_dict_into_meta_model",
        "loads.shards.shard_weights",
        "tensor_load",
        WAS_SET,
    ),
    _once_a_tensor_in_four("_infer_parameter_dtype", "loads.shard_reads.begun", WAS_SET),
    _once_a_tensor_in_four("_load_parameter_into_model", "loads.shard_reads.placed"),
    _once_a_tensor_in_four("offload_weight", "loads.shard_reads.offloaded"),
    Target(
        "transformers.quantizers.base:HfQuantizer",
        "create_quantized_param",
        "loads.shard_reads.quantised",
        every_subclass=True,
        is_lean=True,
        before=FIVE,
    ),
    _once_a_tensor_in_four("shard_and_distribute_module", "loads.shard_reads.distributed"),
    _load_stage("load_offloaded_weights", "place", None, before=LATE_FOUR),
    # GGUF: parsed anew for configuration, tokenizer and weights. The name is imported inside
    # functions, so it is looked up on its own module; in generation 4 three modules hold copies.
    Target(
        GGUF_READER,
        "load_gguf_checkpoint",
        "loads.gguf_names.unpacked",
        "metadata",
    ),
    _part("transformers.configuration_utils", "load_gguf_checkpoint", "metadata", None, FIVE),
    _part("transformers.tokenization_utils_fast", "load_gguf_checkpoint", "metadata", None, FIVE),
    _part(f"{_AUTO}.tokenization_auto", "load_gguf_checkpoint", "metadata", None, FIVE),
    Target(
        GGUF_READER,
        "get_gguf_hf_weights_map",
        "loads.gguf_names.mapped",
        is_lean=True,
    ),
    _part("transformers.quantizers.quantizer_gguf:GgufHfQuantizer", "read_header", "metadata"),
    _part("transformers.quantizers.quantizer_gguf:GgufHfQuantizer", "get_state_dict", "convert"),
    # An adapter that is added to a model which is loaded already.
    Target(
        "transformers.integrations.peft:PeftAdapterMixin",
        "load_adapter",
        "loads.added_adapters.added",
        "tensor_load",
        route="root",
    ),
    Target(
        "peft.peft_model:PeftModel",
        "load_adapter",
        "loads.added_adapters.added",
        "tensor_load",
        route="root",
    ),
    Target("peft.peft_model", "load_peft_weights", "loads.adapters.read", "tensor_load"),
    Target("peft.peft_model", "set_peft_model_state_dict", "loads.adapters.filled", "place"),
    # An adapter in generation 4: PEFT itself reads its file and fills what it has added.
    Target("peft", "load_peft_weights", "loads.adapters.read", "tensor_load", before=FIVE),
    Target(
        "peft.utils", "set_peft_model_state_dict", "loads.adapters.filled", "place", before=FIVE
    ),
    # After the files: what they did not hold, ties, offload hooks, generation settings.
    Target(
        _PRETRAINED,
        "_finalize_model_loading",
        "loads.loading.finalized",
        "initialise",
        follows=_LOAD,
        since=FIVE,
    ),
    _method("mark_tied_weights_as_initialized", "tie", FIVE),
    Target(
        _PRETRAINED,
        "_move_missing_keys_from_meta_to_device",
        "loads.loading.moved_missing",
        "place",
        follows=_LOAD,
        since=FIVE,
    ),
    _method("_initialize_missing_keys", "initialise", FIVE),
    Target(
        _PRETRAINED,
        "tie_weights",
        "stages.span",
        "tie",
        follows=_LOAD,
        every_subclass=True,
        since=FIVE,
    ),
    _method("_adjust_missing_and_unexpected_keys", "initialise", LATE_FOUR),
    _load_stage("log_state_dict_report", "initialise", since=FIVE),
    _load_stage("accelerate_dispatch", "dispatch", None, FIVE),
    _load_stage("dispatch_model", "dispatch", None, before=FIVE),
    _method("eval", "initialise"),
    _part("peft", "inject_adapter_in_model", "meta_init"),
    _method("set_use_kernels", "dispatch", FIVE),
    # A tensor-parallel load makes the group of processes, and cuts the model that is still on meta.
    Target(_PRETRAINED, "prepare_distribute_model", "stages.span", "dispatch", since=FIVE),
    Target(_PRETRAINED, "maybe_distribute_model", "stages.span", "dispatch", since=FIVE),
    _part(_GENERATION, "adjust_generation_fn", "config"),
    _part(_GENERATION, "load_custom_generate", "config", LATE_FOUR, FIVE),
    # The prompt's way in. qwen_vl_utils is met through what process_vision_info looks up, since
    # users copy that name before a recording begins.
    Target(
        _PROCESSOR,
        "apply_chat_template",
        "asking.prompts.template",
        "template",
        route="root",
        every_subclass=True,
    ),
    Target(
        _TOKENIZER,
        "apply_chat_template",
        "asking.prompts.template",
        "template",
        route="root",
        every_subclass=True,
        since=LATE_FOUR,
    ),
    # It renders in its own body, for the processor too.
    Target(
        _TOKENIZER,
        "apply_chat_template",
        "asking.prompts.tokenizer_template",
        "template",
        route="root",
        every_subclass=True,
        before=LATE_FOUR,
    ),
    # Parses the template to tell its variables: most of a first call's time.
    _part(_PROCESSOR, "_prepare_processor_kwargs", "template"),
    Target(
        "transformers.processing_utils",
        "render_jinja_template",
        "asking.prompts.rendered",
        "template",
        since=LATE_FOUR,
    ),
    Target(
        "transformers.tokenization_utils_base",
        "render_jinja_template",
        "asking.prompts.rendered",
        "template",
        since=LATE_FOUR,
    ),
    Target(
        "qwen_vl_utils.vision_process",
        "extract_vision_info",
        "asking.images.found",
        "vision",
        "root",
    ),
    Target(
        "qwen_vl_utils.vision_process", "fetch_image", "asking.images.fetched", "vision", "root"
    ),
    Target(
        "qwen_vl_utils.vision_process", "fetch_video", "asking.images.fetched", "vision", "root"
    ),
    Target("qwen_vl_utils.vision_process", "to_rgb", "asking.images.converted"),
    Target("qwen_vl_utils.vision_process", "smart_resize", "asking.images.resized"),
    # The library's own way to fetch, by the name that it looks up.
    _fetch("transformers.processing_utils", "load_image", before=LATE_FOUR),
    _fetch("transformers.processing_utils", "load_video", before=LATE_FOUR),
    _fetch("transformers.image_processing_base", "load_image", since=LATE_FOUR),
    _fetch("transformers.image_processing_backends", "load_image_as_tensor", since=FIVE),
    _fetch("transformers.video_processing_utils", "load_video", since=LATE_FOUR),
    Target(
        _PROCESSOR,
        "__call__",
        "asking.inputs.processor_call",
        "encode",
        route="root",
        every_subclass=True,
    ),
    _part(_PROCESSOR, "prepare_inputs_layout", "encode"),
    _part(_PROCESSOR, "validate_inputs", "encode"),
    Target(
        _PROCESSOR, "_merge_kwargs", "asking.input_settings.merged", "encode", every_subclass=True
    ),
    _part(_PROCESSOR, "_process_images", "encode"),
    _part(_PROCESSOR, "_process_videos", "encode"),
    _part(_PROCESSOR, "get_text_with_replacements", "encode"),
    _part(_PROCESSOR, "create_mm_token_type_ids", "encode"),
    _part(
        "transformers.feature_extraction_utils:BatchFeature", "convert_to_tensors", "encode", None
    ),
    Target(
        _TOKENIZER,
        "__call__",
        "asking.inputs.tokenizer_call",
        "encode",
        route="root",
        every_subclass=True,
    ),
    # A way of its own to the ids, past `__call__`: often only to count them.
    Target(
        _TOKENIZER,
        "encode",
        "asking.inputs.ids_alone",
        "encode",
        route="root",
        every_subclass=True,
    ),
    Target(
        _TOKENIZER,
        "_get_padding_truncation_strategies",
        "asking.input_settings.strategies",
        every_subclass=True,
    ),
    Target(
        "transformers.image_processing_utils:BaseImageProcessor",
        "__call__",
        "asking.inputs.image_processor_call",
        "encode",
        route="root",
        every_subclass=True,
    ),
    Target(
        "transformers.feature_extraction_utils:BatchFeature",
        "to",
        "asking.outputs.transfer",
        "transfer",
        route="root",
    ),
    Target(
        "transformers.tokenization_utils_base:BatchEncoding",
        "to",
        "asking.outputs.transfer",
        "transfer",
        route="root",
    ),
    Target(
        _TOKENIZER,
        "decode",
        "asking.outputs.output",
        "output",
        route="root",
        every_subclass=True,
    ),
    Target(
        _TOKENIZER,
        "batch_decode",
        "asking.outputs.output",
        "output",
        route="root",
        every_subclass=True,
    ),
    # A pipeline is a call around the others.
    Target(
        _PIPELINE, "__call__", "answering.generation.pipeline", "setup", "root", every_subclass=True
    ),
    Target(_PIPELINE, "preprocess", "stages.span", "encode", every_subclass=True),
    Target(_PIPELINE, "forward", "stages.span", "forward", every_subclass=True),
    Target(_PIPELINE, "postprocess", "stages.span", "output", every_subclass=True),
    # generate(): the set-up, then the decoding method, whose steps are seen by their parts.
    Target(_GENERATION, "generate", "answering.generation.generate", "setup", route="root"),
    # What a class has of that name goes round the library's own; that one is met by the row above.
    Target(
        _GENERATION,
        "generate",
        "answering.generation.around",
        "setup",
        route="root",
        every_subclass=True,
    ),
    Target(
        _BATCHING, "generate_batch", "answering.batching.batch", "setup", "root", since=LATE_FOUR
    ),
    Target(
        _BATCHING,
        "init_continuous_batching",
        "answering.batching.began",
        route="root",
        since=LATE_FOUR,
    ),
    Target(
        f"{_PACKED}.cb_logits_processors:ContinuousBatchingLogitsProcessorList",
        "__call__",
        "answering.batch_choices.processed",
        route="root",
        since=FIVE,
    ),
    Target(
        f"{_PACKED}.model_runner:ModelRunner",
        "_sample",
        "answering.batch_choices.sampled",
        route="root",
        since=FIVE,
    ),
    Target(
        f"{_PACKED}.input_outputs:ContinuousBatchingIOs",
        "prepare_batch_update",
        "answering.batch_choices.updated",
        route="root",
        since=FIVE,
    ),
    _setup("_prepare_generation_config"),
    _setup("_prepare_model_inputs"),
    _setup("_prepare_special_tokens"),
    _setup("_prepare_attention_mask_for_generation"),
    _setup("_prepare_position_ids_for_generation", since=FIVE),
    _setup("_maybe_prepare_encoder_kwargs_for_generation", since=FIVE),
    _setup("_prepare_encoder_decoder_kwargs_for_generation", before=FIVE),
    _setup("_prepare_decoder_input_ids_for_generation"),
    _setup("_expand_inputs_for_generation"),
    _setup("_prepare_generated_length"),
    _setup("_prepare_cache_for_generation"),
    _setup("_get_logits_processor"),
    _setup("_get_stopping_criteria"),
    Target(
        "transformers.generation.configuration_utils:GenerationConfig",
        "from_dict",
        "answering.generation_settings.file_read",
        before=FIVE,
    ),
    Target(_GENERATION, "_sample", "answering.generation.decoding"),
    Target(_GENERATION, "_beam_search", "answering.generation.decoding"),
    Target(_GENERATION, "_assisted_decoding", "answering.generation.decoding"),
    Target(
        _GENERATION,
        "_get_running_beams_for_next_iteration",
        "answering.generation.beams_selected",
        follows=_BEAM_SEARCH,
    ),
    Target(
        _GENERATION,
        "_update_finished_beams",
        "answering.generation.beams_ended",
        follows=_BEAM_SEARCH,
    ),
    Target(
        _GENERATION,
        "_get_candidate_generator",
        "answering.generation.drafting",
        follows=_ASSISTED,
    ),
    # Later these four are code of a hub repository, which calls none of the library's names.
    Target(_GENERATION, "_contrastive_search", "answering.generation.decoding", before=LATE_FOUR),
    Target(_GENERATION, "_dola_decoding", "answering.generation.decoding", before=LATE_FOUR),
    Target(_GENERATION, "_group_beam_search", "answering.generation.decoding", before=LATE_FOUR),
    Target(
        _GENERATION, "_constrained_beam_search", "answering.generation.decoding", before=LATE_FOUR
    ),
    Target(
        _GENERATION,
        "prepare_inputs_for_generation",
        "answering.generation.prepared",
        follows=_SAMPLE,
        every_subclass=True,
    ),
    Target(
        "transformers.generation.logits_process:LogitsProcessorList",
        "__call__",
        "answering.generation.processed",
        follows=_SAMPLE,
    ),
    Target(
        "transformers.generation.stopping_criteria:StoppingCriteriaList",
        "__call__",
        "answering.generation.stopped",
        follows=_SAMPLE,
    ),
    # Between two forwards a user may arrange the rows of a cache anew.
    _cache_method(_CACHE, "reorder_cache"),
    _cache_method(_CACHE, "crop", since=LATE_FOUR),
    _cache_method(_CACHE, "batch_select_indices", since=LATE_FOUR),
    _cache_method(_CACHE, "batch_repeat_interleave", since=LATE_FOUR),
    _cache_method(_DYNAMIC_CACHE, "crop", before=LATE_FOUR),
    _cache_method(_DYNAMIC_CACHE, "batch_select_indices", before=LATE_FOUR),
    _cache_method(_DYNAMIC_CACHE, "batch_repeat_interleave", before=LATE_FOUR),
    # A model made before the recording is met at its first forward.
    Target(_PRETRAINED, "__call__", "forwards.forward_call", "forward", route="root"),
    # Compiled code is traced past every wrapper, so its calls are met from the outside.
    Target(_PRETRAINED, "get_compiled_call", "forwards.compiled_by_generate", "forward"),
    Target(
        "torch._dynamo.eval_frame:OptimizedModule",
        "__call__",
        "forwards.compiled_by_the_user",
        "forward",
        route="root",
    ),
    # A replica is its module's attributes, copied: the stand-in of a module's call would call that.
    Target(
        "torch.nn.modules.module:Module",
        "_replicate_for_data_parallel",
        "forwards.replicated",
        route="root",
    ),
    # A function of the user's that calls a model is met when it is compiled, and never again.
    Target(
        "torch._dynamo.callback:CompilationCallbackHandler",
        "run_start_callbacks",
        "forwards.compiling",
        route="root",
    ),
)

RESIZE: Final = Target(
    "transformers.image_processing_utils", "smart_resize", "asking.resizes.processed", "encode"
)
"""Function of an image processor's own file that computes a size; met where one is called."""

ROTARY_FUNCTIONS: Final = {
    "apply_rotary_pos_emb": "rotary_applications",
    "apply_multimodal_rotary_pos_emb": "rotary_applications",
    "apply_rotary_pos_emb_vision": "vision_rotary_applications",
    "apply_rotary_pos_emb_flashatt": "vision_rotary_applications",
}
"""Functions of a model's own file that rotate queries and keys, and what they count as."""

ROPE_INDEX_METHOD: Final = "get_rope_index"
"""Method that computes three-axis positions; found on the class that defines it."""

FEATURE_METHODS: Final = {"get_image_features": "image", "get_video_features": "video"}
"""Methods of a vision-language model that make the embeddings of its pictures, and of what kind;
found on the classes that define them. 4.51.3 has none for Qwen: there the vision part itself makes
them (checked on 5.24.0, 4.57.6 and 4.51.3)."""

POSITION_MEMORY: Final = "rope_deltas"
"""Attribute in which vision models keep, from one forward to the next, how far the last prompt's
positions lie behind its ids (checked on 5.24.0, 4.57.6 and 4.51.3)."""

_IGNORED = ("mirror", "_fast_init", "low_cpu_mem_usage")
IGNORED_LOAD_ARGUMENTS: Final[tuple[tuple[Version, tuple[str, ...]], ...]] = (
    (FIVE, (*_IGNORED, "from_tf", "from_flax", "offload_state_dict")),
    (LATE_FOUR, (*_IGNORED, "resume_download", "offload_state_dict")),
    ((0, 0), (*_IGNORED, "resume_download")),
)
"""Arguments that from_pretrained accepts and drops (modeling_utils.py), with the first release that
drops just these; newest first."""


class Aside(NamedTuple):
    """Something of the whole process that a load replaces while a class builds itself.

    Attributes:
        module, path: Where it is.
        stand_in: How the name of what then stands there ends; `False` for that value.
        effect: What it does to everything else that is built meanwhile.
    """

    module: str
    path: str
    stand_in: str
    effect: str


PUT_ASIDE: Final[dict[str, Aside]] = {
    "torch.nn.Module.register_parameter": Aside(
        "torch",
        "nn.Module.register_parameter",
        "register_empty_parameter",
        "every parameter that is set in this process goes to the meta device and loses its values",
    ),
    "transformers.PreTrainedModel.tie_weights": Aside(
        _MODELING,
        "PreTrainedModel.tie_weights",
        "no_tie_weights.<locals>.empty_func",
        "no model of this process is tied, so a head that is in no file stays without values",
    ),
    "torch.linspace": Aside(
        "torch",
        "linspace",
        "_safe_linspace",
        "it gives tensors on the CPU, whatever the default device",
    ),
    "transformers.modeling_utils._init_weights": Aside(
        _MODELING,
        "_init_weights",
        "False",
        "a model that is made from a configuration keeps what its memory held before",
    ),
}
"""By the name that `faults.target` bears (initialization.py and modeling_utils.py of transformers,
big_modeling.py of accelerate)."""


USED_CONVERSIONS: Final = "_weight_conversions"
"""Attribute of a model of generation 5: the conversions that its load made use of."""

QUANTISER: Final = "hf_quantizer"
"""Attribute of a model that is kept quantised; one that was unpacked has none in generation 5."""

QUANTISERS: Final = "transformers.quantizers.auto"
"""Module that makes a quantiser of what a configuration says."""

RENAMING_METHOD: Final = "_get_key_renaming_mapping"
"""Method of a model of generation 4 that gives each checkpoint name the model's name."""

CLASS_RENAMINGS: Final = "_checkpoint_conversion_mapping"
"""Attribute of a class of generation 4: its own patterns for that method."""

RENAMED_CLASSES: Final = "VLMS"
"""Name in modeling_utils (4.57): of which classes the loader looks at these patterns."""

ADAPTER_MARK: Final = "_hf_peft_config_loaded"
"""Of a model, where an adapter was loaded into it."""
STAND_IN: Final = "_compiled_call_impl"
"""Where torch looks for what stands in for a module's call (nn/modules/module.py, since 2.1)."""

HOOK_OF_MODULE: Final = "_hf_hook"
"""Attribute under which accelerate keeps what moves a module's weights (accelerate/hooks.py)."""

PASSED_OVER: Final = ("_keys_to_ignore_on_load_missing", "_keys_to_ignore_on_load_unexpected")
"""Patterns of a model class: names whose absence, or presence, it does not report."""

UNDIVIDED: Final = "_no_split_modules"
"""Classes of modules that a device map keeps in one piece."""

ENCODING: Final = "_encode_plus"
"""What a tokenizer's `__call__` hands all its arguments to (tokenization_utils_base.py)."""

IGNORED_TOKENIZER_ARGUMENTS: Final[tuple[tuple[Version, tuple[str, ...]], ...]] = (
    (FIVE, ("use_fast",)),
    ((0, 0), ()),
)
"""Arguments that AutoTokenizer accepts and drops (tokenization_auto.py), with the first release
that drops just these; newest first."""

GGUF_LAZY: Final = "transformers.integrations.gguf"
"""Package that reads those of some architectures lazily (5.24)."""

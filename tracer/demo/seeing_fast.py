"""The model's forward pass for training: the library's weights and text model, batched pictures.

The library's vision tower runs attention window by window; here all pictures of one size go
through together with a mask, several times faster. The logits equal the library's (a test
compares them). Used by `train` alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional
from transformers import Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision
from transformers.vision_utils import get_vision_position_ids

from tracer.demo.batches import IGNORED, PAD_BRANCH, Batch

MOVIE_INTERVALS = (1.0, 1 / 12)  # seconds a temporal patch: 2 frames a second, or 24


def see(visual: Any, patches: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Turn patches (frames, height x width, values) into features (frames x merged, hidden)."""
    config = visual.config
    frames, count, _ = patches.shape
    window = _window_mask(height, width, config.window_size // config.patch_size)
    places = get_vision_position_ids(torch.tensor([[1, height, width]]), config.spatial_merge_size)
    hidden = functional.linear(patches, visual.patch_embed.proj.weight.flatten(1))
    cos, sin = visual.rotary_pos_emb(hidden, places)
    for number, block in enumerate(visual.blocks):
        mask = None if number in config.fullatt_block_indexes else window
        hidden = hidden + _attend(block.attn, block.norm1(hidden), cos, sin, mask)
        hidden = hidden + block.mlp(block.norm2(hidden))
    features: torch.Tensor = visual.merger(hidden.view(frames * count, -1))
    return features


def _attend(
    attention: Any,
    hidden: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    frames, count, _ = hidden.shape
    packed = attention.qkv(hidden).view(frames, count, 3, attention.num_heads, -1)
    query, key, value = packed.unbind(2)  # each (frames, patches, heads, head size)
    query, key = apply_rotary_pos_emb_vision(query, key, cos, sin)
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    projected: torch.Tensor = attention.proj(mixed.transpose(1, 2).reshape(frames, count, -1))
    return projected


@lru_cache(maxsize=64)
def _window_mask(height: int, width: int, side: int) -> torch.Tensor:
    """Say which patches, in merge order, share a window of `side` x `side` patches."""
    places = get_vision_position_ids(torch.tensor([[1, height, width]]), 2)
    windows = (places[:, 0] // side) * width + places[:, 1] // side
    return windows[:, None] == windows[None, :]


@dataclass
class Outcome:
    """What the model made of a batch."""

    logits: torch.Tensor  # (counted positions, vocabulary)
    labels: torch.Tensor  # the right token at each of them
    features: torch.Tensor | None  # (merged patches, hidden), of pictures
    states: tuple[torch.Tensor, ...]  # (rows, length, hidden) before, between and after the layers


def answer(
    model: Qwen2_5_VLForConditionalGeneration, batch: Batch, interval: float = 1.0
) -> Outcome:
    """Run the model on a batch; `interval` is the seconds a temporal patch of a video takes."""
    core: Any = model.model
    embedded = core.language_model.embed_tokens(batch.tokens)
    features = None
    if batch.patches is not None:
        features = see(core.visual, batch.patches, *batch.grid[1:])
        pads = (model.config.image_token_id, model.config.video_token_id)
        is_pad = (batch.tokens == pads[0]) | (batch.tokens == pads[1])
        embedded = embedded.masked_scatter(is_pad[..., None], features.to(embedded.dtype))
    positions, following = beginning_positions(model, batch, interval)
    beginning = positions.shape[1]
    length = batch.tokens.shape[1]
    places = (batch.offsets + following).expand(3, *batch.tokens.shape).clone()
    places[:, :, :beginning] = positions[:, None]
    output = core.language_model(
        inputs_embeds=embedded,
        position_ids=places,
        attention_mask=_branch_mask(batch.branches, length),
        use_cache=False,
        output_hidden_states=True,
    )
    counted = batch.labels != IGNORED
    logits = model.lm_head(output.last_hidden_state[counted])
    return Outcome(logits, batch.labels[counted], features, output.hidden_states)


def _branch_mask(branches: torch.Tensor, length: int) -> torch.Tensor:
    """Let each token see the beginning and its own branch up to itself: (rows, 1, query, key)."""
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    query, key = branches[:, :, None], branches[:, None, :]
    seen = (causal & ((key == 0) | (key == query)) & (key != PAD_BRANCH)) | torch.eye(
        length, dtype=torch.bool
    )
    return seen[:, None]


def beginning_positions(
    model: Qwen2_5_VLForConditionalGeneration, batch: Batch, interval: float
) -> tuple[torch.Tensor, int]:
    """Ask the library for the rotary positions of the shared beginning: (3, tokens), next one."""
    tokens = torch.tensor([batch.beginning])
    kinds = (tokens == model.config.image_token_id) + 2 * (tokens == model.config.video_token_id)
    grids = torch.tensor([batch.grid] * batch.pictures) if batch.pictures else None
    positions, _ = model.model.get_rope_index(
        tokens,
        mm_token_type_ids=kinds.int(),
        image_grid_thw=None if batch.is_video else grids,
        video_grid_thw=grids if batch.is_video else None,
        second_per_grid_ts=torch.tensor([interval]) if batch.is_video else None,
    )
    return positions[:, 0], int(positions.max()) + 1

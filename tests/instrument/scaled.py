"""A user's model class with a buffer that no file holds, as code outside the library has them."""

from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

SCALE = (1.5, 2.5, 3.5)


class ScaledConfig(PretrainedConfig):
    """Its configuration."""

    model_type = "scaled_toy"


class Scaled(PreTrainedModel):
    """Knows nothing of its buffer once it was built on meta."""

    config_class = ScaledConfig
    base_model_prefix = "scaled"
    all_tied_weights_keys: Any = {}  # noqa: RUF012

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor(SCALE), persistent=False)
        self.register_buffer("kept", torch.tensor([7.0]))
        self.post_init()

    def _init_weights(self, module: Any) -> None:
        pass


class Filled(Scaled):
    """Fills it as the library asks."""

    def _init_weights(self, module: Any) -> None:
        if module is self:
            self.scale.copy_(torch.tensor(SCALE))

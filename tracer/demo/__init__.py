"""The embedded demo model that sees coloured shapes, and pictures to show it.

Importing it loads no torch. `train` and `check`, which make and examine the model, do.
"""

from pathlib import Path

from tracer.demo.drawing import SceneError, draw_movie, draw_scene

EXAMPLES: dict[str, str] = {
    "two shapes": "red circle top left, blue star bottom right",
    "one shape": "green triangle bottom left",
    "three shapes": "yellow square top left, purple circle top right, orange star bottom left",
    "same colour": "red circle top left, red star top right, red square bottom right",
    "same form": "blue square top right, orange square bottom left",
    "nothing": "empty",
}

__all__ = ["EXAMPLES", "SceneError", "checkpoint_folder", "draw_movie", "draw_scene"]


def checkpoint_folder() -> Path:
    """Give the folder of the embedded checkpoint, as `from_pretrained` wants it."""
    return Path(__file__).parent / "seeing"

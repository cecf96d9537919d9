"""Shared by all tests: no network, no display, no bars. Imports no torch."""

import os

import hypothesis

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TQDM_DISABLE"] = "1"

# No deadline: how long an example takes says something about the machine, not about the code.
hypothesis.settings.register_profile("lab", deadline=None)
hypothesis.settings.load_profile("lab")

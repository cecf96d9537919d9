"""The text model of the lessons, written and loaded once."""

import pytest


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory):
    from tracer.lessons.text_model import text_model

    return text_model(tmp_path_factory.mktemp("text") / "model")


@pytest.fixture(scope="session")
def speaker(text_folder):
    """Model and tokenizer, in float32: with and without a cache the same arithmetic."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(text_folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(text_folder)

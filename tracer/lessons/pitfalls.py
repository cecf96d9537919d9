"""Experiments on what is often believed about serving a model: each is run wrong, and then right.

Live halves make the runs, to be recorded; the others read traces and need no torch.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import pandas as pd

from tracer.trace import Trace

MODES: Final = ("grad", "no_grad", "inference_mode")


def forward_in_each_mode(model: Any, tokenizer: Any, *, repeats: int = 20) -> None:
    """One forward after the other with gradients on, under no_grad, and under inference_mode.

    The modes take turns, so that what else the machine does meets all three alike.
    """
    import torch

    inputs = tokenizer("Which shapes do you know? " * 8, return_tensors="pt").to(model.device)
    contexts = {
        "grad": torch.enable_grad,
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
    }
    for _ in range(repeats + 1):
        for mode in MODES:
            with contexts[mode]():
                model(**inputs)


def times_by_mode(trace: Trace) -> pd.DataFrame:
    """What the user's own forwards took in each gradient mode; the first of each warms up.

    Returns:
        A row a mode: grad_mode, forwards, fastest_ns, median_ns, slowest_ns, beside_no_grad
        (median of the ratios to the no_grad forward of the same round), lowest_ratio,
        highest_ratio.
    """
    calls = trace.read("calls", ["seq", "kind", "grad_mode", "duration_ns", "recorder_ns"])
    calls = calls[calls["kind"] == "forward"].sort_values("seq")
    own = calls["duration_ns"] - calls["recorder_ns"].fillna(0)
    rounds = own.groupby(calls["grad_mode"]).apply(lambda times: times.iloc[1:].tolist())
    frame = pd.DataFrame({mode: rounds[mode] for mode in MODES if mode in rounds}, dtype="int64")
    ratios = frame.div(frame["no_grad"], axis=0)
    return pd.DataFrame(
        {
            "grad_mode": frame.columns,
            "forwards": len(frame),
            "fastest_ns": frame.min().to_numpy(),
            "median_ns": frame.median().astype("int64").to_numpy(),
            "slowest_ns": frame.max().to_numpy(),
            "beside_no_grad": ratios.median().to_numpy(),
            "lowest_ratio": ratios.min().to_numpy(),
            "highest_ratio": ratios.max().to_numpy(),
        }
    )


def tiny(kind: Literal["gpt2", "llama"], *, positions: int = 32) -> Any:
    """A model with random weights and few positions: learned ones (gpt2) or rotary ones (llama)."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    given: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    given |= {"vocab_size": 64, "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
    model: Any
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "gpt2":
            model = GPT2LMHeadModel(GPT2Config(n_positions=positions, **given))
        else:
            given |= {"max_position_embeddings": positions, "intermediate_size": 64}
            model = LlamaForCausalLM(LlamaConfig(**given))
    return model.eval()


def continue_ids(model: Any, tokens: int, *, new_tokens: int = 4) -> list[int]:
    """Generate behind a prompt of so many ids; gives the new ones."""
    import torch

    ids = torch.arange(3, 3 + tokens).remainder(60).add(3)[None]
    output = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens,
        do_sample=False,
    )  # fmt: skip
    new: list[int] = output[0, tokens:].tolist()
    return new


def cast_losses(trace: Trace) -> pd.DataFrame:
    """What loading made of the stored values, by model; needs `verify_weights`.

    Returns:
        A row a model: model, dtype_asked, dtype, size_bytes, dtype_why, new_infinities, new_zeros
        (values that the cast could not hold).
    """
    columns = ["model", "dtype_asked", "dtype", "size_bytes", "dtype_why"]
    models = trace.read("models", columns)
    lost = trace.read("placements", ["model", "new_infinities", "new_zeros"])
    return models.merge(lost.groupby("model", as_index=False).sum(min_count=1), on="model")

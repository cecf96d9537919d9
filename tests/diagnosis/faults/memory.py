"""Faults of memory: a peak far above need, caches that are kept."""

from analysis.load_rows import call
from diagnosis.bench import Bench
from diagnosis.cases import clean, fault
from synthetic import event, make_trace

GB = 10**9


def weighed(peak: int):
    """A load of a model of two gigabytes, by rows: a test can't take that much memory."""
    samples = [(10, "before the load", 1, 0), (11, "between reads", 50, peak)]
    memory = [
        event(seq, 2, 2, "tensor_load", name, start, 0) | {"anonymous_bytes": GB + more}
        for seq, name, start, more in [*samples, (12, "after the load", 99, 2 * GB)]
    ]
    model = {"event": 2, "call": 2, "rank": 0, "model": "m1", "class_name": "Toy"}
    return make_trace(
        {
            "calls": [call(2, -1, 0, 100, model="m1")],
            "models": [model | {"size_bytes": 2 * GB}],
            "memory": memory,
        }
    )


@fault("load_peak")
def a_load_with_a_second_copy(bench: Bench):
    return weighed(5 * GB)


@clean("load_peak")
def a_load_that_needs_what_the_model_is(bench: Bench):
    return weighed(2 * GB)


def answers(bench: Bench, keep):
    """Five answers, of each of which something is kept."""
    model, tokenizer = bench.chat_model()
    inputs = tokenizer("Hello!", return_tensors="pt")
    kept = []
    given = {"max_new_tokens": 2, "do_sample": False, "return_dict_in_generate": True}
    with bench.recorded() as recording:
        for _ in range(5):
            kept.append(keep(model.generate(**inputs, **given)))
    return recording.trace


@fault("caches_kept")
def outputs_that_are_kept_whole(bench: Bench):
    return answers(bench, lambda output: output)


@clean("caches_kept")
def outputs_of_which_ids_are_kept(bench: Bench):
    return answers(bench, lambda output: output.sequences)

"""Faults of loads that overlap in several threads."""

import threading

from diagnosis.bench import Bench
from diagnosis.cases import clean, fault
from instrument.overlapping import put_right, two_at_once
from transformers import AutoModelForCausalLM


@fault("loads_at_once", "process_changed", also=("load_repeated",))
def two_threads_that_load_at_once(bench: Bench):
    with put_right(), bench.recorded() as recording:
        two_at_once(bench.folder("gpt2"))
    return recording.trace


@fault("process_changed")
def a_load_in_a_process_that_two_threads_have_changed(bench: Bench):
    with put_right():
        two_at_once(bench.folder("gpt2"))
        with bench.recorded() as recording:
            AutoModelForCausalLM.from_pretrained(bench.folder("gpt2"))
    return recording.trace


@clean("loads_at_once", "process_changed")
def two_threads_that_load_one_after_the_other(bench: Bench):
    with bench.recorded() as recording:
        for name in ("gpt2", "llama"):
            folder = bench.folder(name)
            thread = threading.Thread(target=AutoModelForCausalLM.from_pretrained, args=(folder,))
            thread.start()
            thread.join(60)
    return recording.trace

"""Faults in where the values of a model come from."""

from diagnosis.bench import Bench
from diagnosis.cases import clean, fault
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification


@fault("weights_initialised")
def a_head_that_no_file_holds(bench: Bench):
    with bench.recorded() as recording:
        AutoModelForSequenceClassification.from_pretrained(bench.folder("llama"))
    return recording.trace


@clean("weights_initialised")
def the_head_that_the_file_holds(bench: Bench):
    with bench.recorded() as recording:
        AutoModelForCausalLM.from_pretrained(bench.folder("llama"))
    return recording.trace

"""What is said of float16, in both languages: its range is the trouble, and its size is none."""

import pytest
from diagnosis import cases
from diagnosis.faults import precision

import tracer
from tracer.diagnosis.examine import doctor

CASES = {
    "dtype_of_config_differs": ("a_configuration_in_float16_over_a_bf16_file", "bfloat16"),
    "dtype_by_config": ("a_configuration_that_asks_for_float16", "float32"),
    "cast_lost_values": ("values_that_float16_can_not_hold", "bfloat16"),
}


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("rule", CASES)
def test_float16_is_named_with_what_it_loses(bench, rule):
    name, stored = CASES[rule]
    case = next(one for one in cases.all_cases() if one.name == name)
    (found,) = (one for one in case.findings(bench) if one.rule == rule)
    for code in ("en", "zh"):
        tracer.language(code)
        assert "float16" in found.sentence
        assert stored in found.sentence
        assert "float16" in found.why
        assert "dtype" in found.fix
    tracer.language("en")
    assert found.severity != "note"


def test_zeros_alone_are_a_warning_and_are_counted(bench):
    folder = precision.with_tiny_values(bench)
    trace = precision.loaded(bench, folder, verify=True, **cases.dtype_as(precision.torch.float16))
    (found,) = (one for one in doctor(trace) if one.rule == "cast_lost_values")
    assert found.severity == "warning"
    assert (found.values["infinities"], found.values["zeros"] > 0) == (0, True)

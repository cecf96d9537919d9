"""Plain numbers out of tensors and the process."""

import mmap
import sys

import pytest
import torch

from tracer.instrument import measure


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(torch.bfloat16, "bfloat16"), ("float32", "float32"), (torch.int8, "int8"), (None, None)],
)
def test_dtypes_go_by_their_short_names(dtype, name):
    assert measure.dtype_name(dtype) == name


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_shape_and_size_are_told_of_any_tensor(device, shape):
    tensor = torch.empty(shape, dtype=torch.bfloat16, device=device)
    assert measure.shape_of(tensor) == list(shape)
    assert measure.size_of(tensor) == 2 * tensor.numel()


def test_memory_is_told_where_the_system_tells_and_missing_elsewhere():
    found = measure.process_memory()
    assert set(found) == {"rss_bytes", "anonymous_bytes", "file_bytes"}
    if sys.platform == "linux":
        assert found["rss_bytes"] >= found["anonymous_bytes"] + found["file_bytes"] > 0
    else:
        assert found["anonymous_bytes"] is None


@pytest.mark.skipif(torch.cuda.is_initialized(), reason="a device is in use")
def test_without_a_device_its_memory_is_missing_and_not_zero():
    assert set(measure.device_memory().values()) == {None}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts faults of a thread")
def test_page_faults_of_a_thread_only_grow():
    before = measure.thread_faults()
    with mmap.mmap(-1, 8_000_000) as pages:  # new pages, not memory that was used before
        for start in range(0, len(pages), mmap.PAGESIZE):
            pages[start] = 1
    after = measure.thread_faults()
    assert after[0] > before[0]
    assert after[1] >= before[1]

"""Large results on the CPU are in large pages."""

import sys

import pytest
import torch

from inductor import compile_fx

MIB = 1 << 20


def mapping_flags(address):
    """The flags of the mapping of this process that holds an address."""
    with open("/proc/self/smaps", encoding="ascii") as lines:
        inside = False
        for line in lines:
            name = line.split()[0]
            if "-" in name and not name.endswith(":"):
                first, end = (int(x, 16) for x in name.split("-"))
                inside = first <= address < end
            elif inside and name == "VmFlags:":
                return line.split()[1:]
    raise AssertionError("no mapping")


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of Linux")
@pytest.mark.parametrize("size", [40 * MIB, 4 * MIB])
def test_large_results_ask_for_large_pages(size):
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    x = torch.zeros(size, dtype=torch.uint8)
    y = compile_fx(graph, (x,), options={"cache": False, "measure": False})(x)
    assert ("hg" in mapping_flags(y.data_ptr() + size // 2)) == (size > 32 * MIB)
    assert bool((y == 1).all())

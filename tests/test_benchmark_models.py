"""The benchmarks' models at small sizes: one graph each, no breaks, eager's results."""

from importlib.util import find_spec

import pytest
import torch

import pyframe
from benchmarks import decode
from benchmarks.programs import mean_error
from benchmarks.programs_gpu import GPU, SMALL, on

NEEDS = {"BERT": "transformers", "ResN": "timm", "Mobi": "timm"}


@pytest.mark.parametrize("name", GPU)
def test_model(name):
    package = NEEDS.get(name[:4])
    if package and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    torch.manual_seed(0)
    model, args = on("cpu", torch.float32, GPU[name](**SMALL[name]))
    compiled = pyframe.compile(model, fullgraph=True)
    with torch.no_grad():
        before = pyframe.counters["graphs"]
        assert mean_error(compiled(*args), model(*args)) < 1e-4
    assert pyframe.counters["graphs"] == before + 1



@pytest.mark.parametrize("name", decode.TINY)
def test_decoder(name):
    model = decode.made(decode.TINY[name], "cpu")
    with torch.no_grad():
        want = decode.logits(model, model, decode.CHECKED, "cpu")
        compiled = pyframe.compile(model, fullgraph=True, mode="reduce-overhead")
        assert mean_error(decode.logits(model, compiled, decode.CHECKED, "cpu"), want) < 0.02

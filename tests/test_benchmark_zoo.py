"""The benchmark of many models at small sizes: every program runs in one graph, and two of them get through the whole
benchmark."""

import copy
import json
from importlib.util import find_spec

import pytest
import torch

import pyframe
from benchmarks import zoo
from benchmarks.programs import mean_error
from benchmarks.programs_zoo import ZOO


def need(model):
    package = ZOO[model].package
    if package and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("model", ZOO)
def test_inference_is_one_graph(model):
    need(model)
    module, inputs = zoo.Case(model, 2, "infer", small=True).make("cpu")
    module.eval()
    reference = copy.deepcopy(module).double()
    wide = {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}
    compiled = pyframe.compile(module, fullgraph=True)
    before = pyframe.counters["graphs"]
    with torch.no_grad():
        assert mean_error(compiled(**inputs), reference(**wide)) < 1e-4
    assert pyframe.counters["graphs"] == before + 1


@pytest.mark.parametrize("model", [name for name, model in ZOO.items() if model.loss])
def test_losses(model):
    need(model)
    module, inputs = zoo.Case(model, 2, "train", small=True).make("cpu")
    loss = module(**inputs)
    loss.backward()
    assert loss.shape == () and loss.isfinite()


@pytest.mark.parametrize("train", [False, True])
def test_benchmark(tmp_path, train):
    """Two models are checked and timed; with `--resume` their rows are kept."""
    need("BERT base")
    options = ["--device", "cpu", "--small", "--large-batch", "--seconds", "0.2", "--workers", "2"]
    options += ["--output", str(tmp_path), *["--train"] * train]
    zoo.main([*options, "--only", "nanoGPT"])
    path = tmp_path / f"zoo_cpu_{'training' if train else 'inference'}_small.json"
    first = json.loads(path.read_text())
    zoo.main([*options, "--only", "nanoGPT", "DistilBERT", "--resume"])
    found = json.loads(path.read_text())
    assert len(first["rows"]) == 1 and len(found["rows"]) == 2
    assert found["rows"][0] == first["rows"][0]
    for row in found["rows"]:
        assert row["right"] == row["torch.compile right"] == "right" and row["graphs"] == 1 and row["breaks"] == 0, row
        assert row["pyframe ms"] > 0
    assert "slower than eager" in path.with_suffix(".txt").read_text()

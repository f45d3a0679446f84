"""Compiled graphs on a GPU as the disk cache stores them, without a GPU: plans are not made, kernels not compiled."""

from __future__ import annotations

import marshal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")
import inductor.assembly
import inductor.build
from inductor import compile_fx, kept_graph, kept_sizes
from inductor.cache.graph_data import graph_as_data
from inductor.runtime.triton_build import build_key


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the kernels that are built, in an empty cache."""
    found: list[str] = []

    def load_cubins(kernels: Any, device: torch.device) -> list[str]:
        found.extend(build_key(kernel, 90) for kernel in kernels)
        return found[-len(kernels) :]

    def make_plan(spec: Any, *args: Any, **settings: Any) -> Any:
        return lambda *inputs: (spec,)

    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(inductor.assembly, "load_cubins", load_cubins)
    monkeypatch.setattr(inductor.build, "make_plan", make_plan)
    monkeypatch.setattr(kept_graph, "make_plan", make_plan)
    return found


def rows(x: torch.Tensor) -> tuple[torch.Tensor]:
    return ((x.softmax(-1) * 2).sum(-1),)


def on_gpu(size: int) -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(size, 64, device="cuda:0")


def test_graphs_whose_sizes_vary_are_built_from_the_cache(keys: list[str]) -> None:
    nodes = marshal.dumps(graph_as_data(torch.fx.symbolic_trace(rows)))
    example = ("tensor", "float32", "cuda:0", (("symbol", 0), 64), (64, 1), False, True)
    for found in ("miss", "hit"):
        with_inputs = kept_sizes.rebuilt((nodes, (24,), (example,), ""))
        assert with_inputs is not None
        gm, inputs = with_inputs
        call = compile_fx(gm, inputs)
        plans = [call(on_gpu(size)) for size in (24, 40)]
        report = gm.meta["compile_report"]
        assert (report.cache, report.apart) == (found, None)
        assert [plan.inputs[0].size for (plan,) in plans] == [(24, 64), (40, 64)]
    first, again = keys
    assert first == again  # the kernel is not compiled for the sizes of the first call


def test_a_kept_graph_of_fixed_sizes_has_the_kernels_and_the_plan(keys: list[str]) -> None:
    gm, x = torch.fx.symbolic_trace(rows), on_gpu(8)
    (compiled,) = compile_fx(gm, [x])(x)
    data = kept_graph.kept(gm.meta["compile_report"].entry, [x])
    loaded = kept_graph.loaded(data)
    assert loaded is not None
    (plan,) = loaded(x)
    first, again = keys
    assert plan == compiled and plan.device == "cuda:0" and first == again

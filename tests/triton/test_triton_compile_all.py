"""Kernels of the operator samples, the benchmarks' models and training steps compile for sm_80, sm_90 and sm_100."""

from importlib.util import find_spec

import pytest
import torch

pytest.importorskip("triton")
import gpu_graphs
from op_samples import every, lowered

from inductor.cache.file_store import Cache
from inductor.runtime import triton_build

NEEDS = {"BERT": "transformers", "bert": "transformers", "ResN": "timm", "Mobi": "timm"}


def samples():
    return [kernel for fn, *args in every().values() for kernel in gpu_graphs.kernels_of(lowered(fn, *args))]


@pytest.fixture(scope="module")
def kernels():
    """All of them by where they come from."""
    torch.manual_seed(0)
    makers = {name: (gpu_graphs.inference, name) for name in gpu_graphs.programs_gpu.GPU}
    makers |= {name: (gpu_graphs.training_program, name) for name in ("gpt", "bert")}
    found = {name: make(*args) for name, (make, *args) in makers.items() if find_spec(NEEDS.get(name[:4], "torch"))}
    found |= {"samples": samples(), "convolutions": gpu_graphs.convolutions()}
    found |= {"index reductions": gpu_graphs.index_reductions()}
    return found | {"writes at indices": gpu_graphs.writes_of_a_cache(), "sorts": gpu_graphs.sorts()}


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_all_kernels_compile(kernels, arch, tmp_path):
    wanted = gpu_graphs.distinct([kernel for made in kernels.values() for kernel in made])
    assert all(kernels.values()) and len(wanted) > 250
    wanted = wanted[:: 4 if arch == 100 else 1]  # a part for sm_100, as each target takes a minute
    assert all(cubin.data for cubin in triton_build.build_all(wanted, arch, Cache(tmp_path)))


def test_batch_norm_is_made_of_shared_rows(kernels):
    names = {kernel.name.split("_")[0] for kernel in kernels["convolutions"]}
    assert {"shared", "pointwise"} <= names

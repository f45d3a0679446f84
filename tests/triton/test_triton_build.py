"""Triton kernels compiled to cubins for sm_80 and sm_90, without a GPU."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

triton = pytest.importorskip("triton")
from fake_gpu import on_gpu  # noqa: E402
from kernel_programs import cross_entropy  # noqa: E402
from op_samples import BINARY, UNARY, UNARY_POS, aten, lowered  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from inductor.cache.file_store import Cache  # noqa: E402
from inductor.codegen import codegen  # noqa: E402
from inductor.codegen.triton import TritonSource, heuristics  # noqa: E402
from inductor.dtypes import dtype_name  # noqa: E402
from inductor.ir.buffer import Buffer  # noqa: E402
from inductor.lower import lower_graph  # noqa: E402
from inductor.passes.devices import on_one_device  # noqa: E402
from inductor.runtime import triton_build, triton_worker  # noqa: E402
from inductor.runtime.cpp_build import BuildError  # noqa: E402
from inductor.runtime.plan_spec import Launch  # noqa: E402
from inductor.schedule import Group, schedule  # noqa: E402


def kernels(fn, *args):
    graph = lowered(fn, *args, prepare=on_gpu)
    buffers = [b for b in [*graph.inputs, *graph.constants, *graph.buffers] if isinstance(b, Buffer)]
    source = TritonSource()
    for group in schedule(graph):
        if isinstance(group, Group):
            source.group(group, {b.name: dtype_name(b.dtype) for b in buffers})
    return source.kernels


def texts(fn, *args):
    return [kernel.text for kernel in kernels(fn, *args)]


def meta(*size, dtype=torch.bfloat16):
    return torch.empty(size, dtype=dtype)


def every_op(dtype):
    x, y = meta(1000, dtype=dtype), meta(1000, dtype=dtype)
    names = [n for n in UNARY + UNARY_POS if n not in ("neg",)]
    return kernels(lambda x, y: [getattr(aten, n)(x) for n in names] + [getattr(aten, n)(x, y) for n in BINARY], x, y)


def integers():
    def fn(x, y, b):
        whole = x // y + x % y + torch.fmod(x, y) + (x & y) + (x | ~y) + x.abs() * x.sign()
        return whole, (x > y) ^ b, x.to(torch.uint8) + 3, (b | (x == 3)).float(), x.argmax(), b.any()

    return kernels(fn, torch.ones(4000, dtype=torch.int64), torch.ones(4000, dtype=torch.int64), torch.ones(4000).bool())


def statistics(x, running):
    var, mean = torch.var_mean(x.float(), (0, 2, 3), correction=0)
    scale = (var + 1e-5).rsqrt()
    return mean, scale, mean * 0.1 + running * 0.9, var * 0.1 + running * 0.9, var


SAMPLES = {
    "layernorm": lambda: kernels(lambda x, w: F.layer_norm(x, (768,), w, w), meta(4096, 768), meta(768)),
    "softmax": lambda: kernels(lambda x: x.softmax(-1), meta(4096, 1000, dtype=torch.float32)),
    "long_rows": lambda: kernels(lambda x: x.softmax(-1), meta(4, 1 << 20)),
    "cross_entropy": lambda: kernels(cross_entropy, meta(4096, 32000), torch.zeros(4096, dtype=torch.int64)),
    "column_sum": lambda: kernels(lambda x: x.sum(0), meta(8192, 4096)),
    "full_sum": lambda: kernels(lambda x: (x.sum(), x.amax(), x.argmax()), meta(1 << 22, dtype=torch.float32)),
    "column_softmax": lambda: kernels(lambda x: x.softmax(1), meta(8, 100, 700, dtype=torch.float16)),
    "transposed": lambda: kernels(lambda x, y: x.t() + y, meta(513, 1024), meta(1024, 513)),
    "embedding": lambda: kernels(lambda w, i: F.embedding(i, w) * 2, meta(50000, 768), torch.zeros(8, 128, dtype=torch.int64)),
    "variance": lambda: kernels(lambda x: torch.var_mean(x, (0, 2)), meta(32, 64, 900, dtype=torch.float32)),
    "statistics": lambda: kernels(statistics, meta(32, 64, 112, 112), torch.ones(64)),
    "single": lambda: every_op(torch.float32),
    "double": lambda: every_op(torch.float64),
    "integers": integers,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cubins"))


@pytest.mark.parametrize("arch", [80, 90])
def test_samples_compile(cache, arch):
    made = {kernel.name: kernel for make in SAMPLES.values() for kernel in make()}
    for kernel, cubin in zip(made.values(), triton_build.build_all(list(made.values()), arch, cache)):
        assert cubin.data.startswith(b"\x7fELF") and cubin.name == kernel.name
        assert cubin.shared <= 48 * 1024 and cubin.num_warps == kernel.num_warps


def test_only_large_memory_read_once_is_streamed_past_the_cache():
    streams = lambda fn, *args: [text.count("evict_first") for text in texts(fn, *args)]
    assert streams(lambda x: x.sum(-1), meta(8192, 4096)) == [1]
    assert streams(lambda x: x.sum(0), meta(8192, 4096)) == [1]
    # the matrix, of which a program loads its first tile and then the next ones, and not the row
    assert streams(lambda x, w: (x * w).sum(-1), meta(8192, 4096), meta(4096)) == [2]
    assert streams(lambda x: x.sum(-1), meta(512, 4096)) == [0]
    assert streams(lambda x: x * 2, meta(8192, 4096)) == [0]
    assert streams(lambda x: x - x.sum(-1, keepdim=True), meta(8192, 4096)) == [0]


def test_an_online_softmax_takes_groups_where_threads_load_neighbours():
    assert "online_groups(" in texts(lambda x: x.softmax(-1), meta(512, 32000))[0]
    assert "online_step(" in texts(lambda x: x.softmax(-1), meta(512, 50257))[0]
    assert "online_step(" in texts(lambda x: x.softmax(0), meta(32000, 512))[0]


@pytest.mark.parametrize("contiguous", ["r", "x"])
@pytest.mark.parametrize("slow", [False, True])
def test_blocks_fit_registers_and_every_program_has_work(contiguous, slow):
    for length in [1, 7, 64, 1000, 4096, 16384, 50257, 1 << 20, 1 << 25]:
        for rows in [1, 5, 128, 4096, 1 << 20]:
            for tiles in (1, 6):
                shape = heuristics.Shape(rows, length, contiguous, False, True, 2, not slow, slow, False, tiles)
                config = heuristics.reduction(shape, 132)
                block = config.block("x") * config.block("r")
                assert 1 <= config.warps <= 32 and block <= 64 * 32 * config.warps
                assert config.split == 1 or config.split * config.block("r") <= length
                assert config.split & (config.split - 1) == 0


def test_no_packed_addition_loses_its_constant(cache, tmp_path):
    # LLVM adds offsets such as `1445 * r0` in pairs of 16 bits, and ptxas of CUDA 12.8 adds zero instead
    rows = meta(5, 17, 17, 5, dtype=torch.float32).permute(0, 3, 1, 2)
    (kernel,) = kernels(lambda x: torch.where(x != x, 0.0, x).sum(), rows)
    binary = tmp_path / "kernel.cubin"
    binary.write_bytes(triton_build.build(kernel, 90, cache).data)
    disassembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    code = subprocess.run([disassembler, "-c", binary], capture_output=True, text=True, check=True).stdout
    assert "EXIT" in code and not re.search(r"VIADD\.16x2.*, (0x0|RZ) ;", code)


def test_kernels_that_may_start_early_wait_first(cache, tmp_path):
    (kernel,) = kernels(lambda x: x + 1, meta(9999))
    assert not triton_build.build(kernel, 80, cache).waits
    (large,) = kernels(lambda x: x + 1, meta(1 << 22))
    assert not triton_build.build(large, 90, cache).waits
    built = triton_build.build(kernel, 90, cache)
    assert built.waits and triton_build.build(kernel, 90, cache).waits  # from the cache, too
    binary = tmp_path / "kernel.cubin"
    binary.write_bytes(built.data)
    disassembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    code = subprocess.run([disassembler, "-c", binary], capture_output=True, text=True, check=True).stdout
    assert code.index("PREEXIT") < code.index("ACQBULK") < code.index("LDG") < code.index("STG")
    assert triton_worker.waiting(".target sm_100a\n.visible .entry k(\n.param .u64 p\n)\n.reqntid 32\n{\nret;\n}").count("griddep") == 2
    for device_function in (".target sm_90a\n.func f(\n)\n{\nret;\n}", ".target sm_89\n.entry k(\n)\n{\nret;\n}"):
        assert triton_worker.waiting(device_function) == device_function


def test_packed_additions_are_split():
    split = triton_worker.split_packed_adds("\tadd.s16x2 \t%r4, %r2, %r3;\n\tadd.u16x2 %r5, %r4, %r4;\n\tadd.s32 %r6, %r5, 1;\n")
    assert "16x2" not in split and split.count("add.s16 ") == 4 and "add.s32 %r6, %r5, 1;" in split


USUAL = """
import os, sys
from pathlib import Path
from inductor.runtime import triton_worker as worker
from triton._C.libtriton import llvm

folder, jobs = Path(sys.argv[1]), eval(sys.argv[2])
worker.load_preludes(map(Path, sys.argv[3:]))
class Texts(list):
    def pop(self):
        self.last = super().pop()
        return self.last
texts, linked, whole = Texts(), [], llvm.link_extern_libs
worker.change_ptx_of_triton(lambda: True, texts.append)
def link(module, paths):
    linked.append(paths[0])
    return whole(module, paths)
for job in jobs:
    llvm.link_extern_libs = link
    worker.compile_kernel(job, folder, texts)
    first = texts.last
    worker.link_usual_functions(folder)
    worker.compile_kernel(job, folder, texts)
    lines = [[x.split("//")[0].strip() for x in text.splitlines() if ".b8" not in x] for text in (first, texts.last)]
    print(lines[0] == lines[1], linked[-2].endswith(".bc"), linked[-1].endswith(".bc"))
"""


def test_the_usual_functions_of_libdevice_are_those_of_libdevice(tmp_path):
    """The worker links its own definitions of a few functions; the code must be the same as with the whole library."""
    x = meta(4096, dtype=torch.float32)
    made = kernels(lambda x: [x.sigmoid().rsqrt()], x) + kernels(lambda x: [x.rsqrt() + x.tan()], x)
    names = ("name", "text", "constants", "signature", "aligned", "sizes", "num_warps", "num_stages", "early")
    jobs = [{name: getattr(kernel, name) for name in names} | {"arch": 90} for kernel in made]
    line = [sys.executable, "-c", USUAL, str(tmp_path), repr(jobs), *map(str, triton_build.PRELUDES)]
    environment = {**os.environ, **triton_build._SET, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    out = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert out.stdout.splitlines() == ["True True False", "True True True"], out.stderr


def test_workers_do_what_a_kernel_needs_and_no_more(cache):
    """No hash of Triton's own files for a cache that nothing outlives, no line numbers of files that are gone."""
    (kernel,) = kernels(lambda x: x + 1, meta(99))
    check = "import triton.runtime.cache\nassert triton.runtime.cache.triton_key() == ''\n"
    checked = dataclasses.replace(kernel, text=check + kernel.text)
    assert b".debug_line" not in triton_build.build(checked, 90, cache).data


def test_a_second_build_reads_the_cache(cache, monkeypatch):
    (kernel,) = kernels(lambda x: x + 1, meta(99))
    first = triton_build.build(kernel, 90, cache)
    monkeypatch.setattr(triton_build, "_make", None)
    commented = dataclasses.replace(kernel, text="# another place in the user's code\n" + kernel.text)
    assert triton_build.build(commented, 90, Cache(cache.directory)) == first


def test_what_triton_refuses_is_an_error(cache):
    (kernel,) = kernels(lambda x: x + 1, meta(99))
    broken = dataclasses.replace(kernel, text=kernel.text.replace("tl.load", "tl.lode"))
    with pytest.raises(BuildError, match="lode"):
        triton_build.build(broken, 90, cache)
    assert triton_build.build(kernel, 80, cache).data


def test_a_worker_that_dies_is_replaced(cache):
    (kernel,) = kernels(lambda x: x + 1, meta(99))
    deadly = dataclasses.replace(kernel, text="import os\nos._exit(1)\n" + kernel.text)
    with pytest.raises(BuildError, match="died or hung"):
        triton_build.build(deadly, 90, cache)
    more = [dataclasses.replace(kernel, num_stages=n) for n in (1, 2, 3, 4)]
    assert all(cubin.data for cubin in triton_build.build_all(more, 90, cache))


def test_numbers_of_the_cpu_are_arguments():
    """Kernels for a GPU take numbers of each width; what Triton compiles has exactly the arguments that a plan passes."""
    gpu, cpu = torch.device("cuda:0"), torch.device("cpu")
    dtypes = torch.float32, torch.float64, torch.int64, torch.int32
    mode = FakeTensorMode()
    with mode, torch.no_grad():
        numbers = [torch.empty((), dtype=dtype, device=cpu) for dtype in dtypes]
        xs = [torch.empty(n, device=gpu) for n in (2000, 64, 640)]
        gm = make_fx(lambda *args: [x * args[3] + args[4] - args[5] - args[6] for x in args[:3]])(*xs, *numbers)
    on_one_device(gm)
    graph = lower_graph(gm, [None] * 3)
    source, spec = codegen(schedule(graph), graph)
    assert sorted(set(source.kernels[0].signature)) == ["*fp32", "fp32", "fp64", "i32", "i64"]
    assert [len(step.by_value) for step in spec.steps if isinstance(step, Launch)] == [4]
    (cubin,) = triton_build.build_all(source.kernels, 90)
    assert cubin.hidden == 2

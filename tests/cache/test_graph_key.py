"""Whatever can change what a graph computes changes its key in the cache, or takes it away."""

import collections
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import forked_python
import pytest
import torch
from torch import fx

import inductor.cache.graph_key
import inductor.cache.process_key
import pyframe
from inductor.cache.graph_key import graph_key, training_key
from inductor.cache.process_key import operators_are_overridden
from pyframe.metrics import counters


def module(target, *more):
    graph = fx.Graph()
    graph.output((graph.call_function(target, (graph.placeholder("x"), *more)),))
    return fx.GraphModule(torch.nn.Module(), graph)


def key(target=torch.sin, *more):
    x = torch.ones(3, 3)
    keys = graph_key(module(target, *more), [x], []), training_key(module(target, *more), [x], [], {})
    assert (keys[0] is None) == (keys[1] is None)
    return keys[0] and keys


B = torch.backends
SETTINGS = {
    "default dtype": (torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic": (torch.use_deterministic_algorithms, True, False),
    "precision": (torch.set_float32_matmul_precision, "medium", "highest"),
    "threads": (torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()),
    "default device": (torch.set_default_device, "meta", None),
    "autocast": (lambda on: torch.set_autocast_enabled("cpu", on), True, False),
    "autocast dtype": (lambda t: torch.set_autocast_dtype("cpu", t), torch.float16, torch.bfloat16),
    "flash": (B.cuda.enable_flash_sdp, False, True),
    "math": (B.cuda.enable_math_sdp, False, True),
    "half reduction": (B.cuda.allow_fp16_bf16_reduction_math_sdp, True, False),
    "fill": (lambda on: setattr(torch.utils.deterministic, "fill_uninitialized_memory", on), False, True),
}
FLAGS = [
    (B.cudnn, "enabled"), (B.cudnn, "benchmark"), (B.cudnn, "deterministic"),
    (B.cudnn, "allow_tf32"), (B.mkldnn, "enabled"), (B.mkldnn, "deterministic"),
    (B.cuda.matmul, "allow_tf32"), (B.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    (B.cuda.matmul, "allow_fp16_accumulation"),
]  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_changes_the_key(name):
    write, other, before = SETTINGS[name]
    write(before)  # torch tells what was set from what is so by default
    first = key()
    write(other)
    try:
        assert key() not in (None, first)
    finally:
        write(before)
    assert key() == first


@pytest.mark.parametrize("owner, name", FLAGS, ids=lambda x: getattr(x, "__name__", None) or str(x)[:20])
def test_a_flag_changes_the_key(owner, name):
    before = getattr(owner, name)
    assert isinstance(before, bool)
    setattr(owner, name, before)  # torch tells what was set from what is so by default
    first = key()
    setattr(owner, name, not before)
    try:
        assert key() not in (None, first)
    finally:
        setattr(owner, name, before)
    assert key() == first


def test_versions_the_processor_and_our_source_change_the_key(monkeypatch):
    first = key()
    changes = [(torch, "__version__", "9"), (torch.version, "git_version", "9"), (sys, "version_info", (3, 99, 0)),
               (torch.backends.cpu, "get_cpu_capability", lambda: "AVX1")]  # fmt: skip
    for owner, name, value in changes:
        inductor.cache.process_key._versions.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            assert key() != first, name
    inductor.cache.process_key._versions.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(inductor.cache.graph_key, "_source_hash", lambda: "another source")
        assert key() != first
    assert key() == first


def test_the_gpus_change_the_key_once_they_are_used(monkeypatch):
    keys = [key()]
    for name, count, initialized in (("A100", 108, False), ("A100", 108, True), ("H200", 132, True), ("H200", 66, True)):
        inductor.cache.process_key._visible_gpus.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "is_initialized", lambda initialized=initialized: initialized)
            patch.setattr(torch.cuda, "device_count", lambda: 1)
            found = SimpleNamespace(name=name, major=8, minor=0, multi_processor_count=count)
            patch.setattr(torch.cuda, "get_device_properties", lambda i, found=found: found)
            keys.append(key())
    inductor.cache.process_key._visible_gpus.cache_clear()
    assert keys[0] == keys[1] and len(set(keys)) == 4


def test_named_tuples_of_two_modules_have_two_keys():
    keys = set()
    for name in ("first", "second"):
        kind = collections.namedtuple("Results", "a", module=name)
        graph = fx.Graph()
        graph.output(kind(graph.call_function(torch.sin, (graph.placeholder("x"),))))
        keys.add(graph_key(fx.GraphModule(torch.nn.Module(), graph), [torch.ones(3)], []))
    assert len(keys) == 2 and None not in keys


def test_functions_of_the_program_have_no_key():
    def helper(x):
        return x.sin()

    def disguised(x):
        return x.cos()

    disguised.__module__, disguised.__qualname__ = "torch.nn.functional", "gelu"
    namesake = type(sys)("torchlike")
    exec("def f(x): return x", vars(namesake))
    namesake.f.__module__ = "torchlike"
    for function in (helper, disguised, namesake.f):
        assert key(function) is None
    assert key(torch.nn.functional.softmax) and key(torch.add, 1) != key(torch.add, 2)


# Each line defines what a program has in one version of it; what runs first is stored by a process of its own.
PROGRAM = """
import sys, torch, pyframe
from pyframe.metrics import counters

{version}

x = torch.linspace(0.1, 1, 5, requires_grad=True)
torch.set_grad_enabled({grad})
got = pyframe.compile(program)(x)
want = program(x)
torch.testing.assert_close(got, want)
if {grad}:
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x), torch.autograd.grad(want.sum(), x))
print(counters["cache_hits"])
"""
OPERATOR = """
@torch.library.custom_op("mylib::op", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x.{body}
@op.register_fake
def _(x):
    return torch.empty_like(x{fake})
op.register_autograd(lambda ctx, g: g * {gradient}, setup_context=lambda ctx, inputs, output: None)
def program(x):
    return op(x).to(torch.float32) * 2
"""
COMPOSITE = """
lib = torch.library.Library("mylib2", "FRAGMENT")
lib.define("op(Tensor x) -> Tensor")
lib.impl("op", lambda x: x.{body} + 1, "CompositeImplicitAutograd")
def program(x):
    return torch.ops.mylib2.op(x) * 2
"""
OVERRIDE = """
lib = torch.library.Library("aten", "IMPL")
lib.impl("hardswish", lambda x: x.{body}, "Autograd{device}")
def program(x):
    return torch.nn.functional.hardswish(x) * 2
"""
ALLOWED = """
factor = {factor}
def make(k):
    def helper(x):
        return x.{body} * factor * k
    return pyframe.allow_in_graph(helper)
helper = make({closure})
def program(x):
    return helper(x) + 1
"""
VERSIONS = {
    "operator": (OPERATOR, dict(body="sin()", fake="", gradient="3"), [dict(body="cos()"), dict(gradient="4")]),
    "operator's fake": (OPERATOR, dict(body="sin().double()", fake=", dtype=torch.float64", gradient="3"),
                        [dict(body="sin()", fake="")]),
    "composite": (COMPOSITE, dict(body="sin()"), [dict(body="cos()")]),
    "override": (OVERRIDE, dict(body="sin()", device="CPU"), [dict(body="cos()")]),
    "allowed": (ALLOWED, dict(body="sin()", factor=2, closure=3), [dict(body="cos()"), dict(factor=5), dict(closure=7)]),
}  # fmt: skip


@pytest.mark.parametrize("name", VERSIONS)
def test_what_the_program_defines_is_not_taken_from_another_version(name, tmp_path):
    text, first, changes = VERSIONS[name]
    grads = (True,) if name in ("operator", "composite") else (False,)
    env = {**os.environ, "PYFRAME_CACHE_DIR": str(tmp_path / "cache")}
    compiler = ("torch", "pyframe", "pyframe.driver", "inductor.compile")
    for grad in grads:
        for i, change in enumerate(({}, *changes)):
            path = tmp_path / f"program{i}.py"
            path.write_text(PROGRAM.format(version=text.format(**{**first, **change}), grad=grad))
            run = f"import runpy\nrunpy.run_path({str(path)!r}, run_name='__main__')"
            done = forked_python.run(run, compiler, environment=env, timeout=200)
            assert done.returncode == 0, done.stderr[-3000:]
            assert done.stdout.split()[-1] == "0"


def test_what_torch_defines_is_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))

    def program(x):
        return torch.nn.functional.gelu(x).softmax(-1) + torch.ops.aten.sin(x)

    for hits in (0, 1):
        pyframe.reset()
        pyframe.compile(program)(torch.randn(4))
        assert counters["cache_hits"] == hits


def test_the_hash_of_our_source_is_of_every_module(monkeypatch):
    read, read_bytes = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (read.append(path), read_bytes(path))[1])
    inductor.cache.graph_key._source_hash.__wrapped__()
    package = Path(inductor.__file__).parent
    assert {package / "compile.py", package / "cache" / "graph_key.py", package / "codegen" / "cpp" / "vec.h"} <= set(read)


def test_an_override_is_seen_when_the_number_of_registrations_stays_the_same():
    other = torch.library.Library("pyframe_key_test", "FRAGMENT")
    other.define("same(Tensor x) -> Tensor")
    other.impl("same", lambda x: x.clone(), "CPU")
    assert not operators_are_overridden()
    count = len(torch.library._impls)
    other._destroy()
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("sinc", lambda x: x.clone(), "CPU")
        assert len(torch.library._impls) == count
        assert operators_are_overridden()
    finally:
        library._destroy()
    assert not operators_are_overridden()

"""CPU tensors among those of a GPU: constants and 0-d tensors. Traced on fake tensors; no GPU is needed."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from inductor.codegen.plan import codegen
from inductor.cudagraphs.refusal import refusal
from inductor.errors import Unsupported
from inductor.lower.graph import lower_graph
from inductor.passes.devices import on_one_device
from inductor.runtime.plan_spec import Alloc, Arena, Extern, KernelCall, Launch, Slot
from inductor.schedule import schedule


def traced(fn, *devices):
    mode = FakeTensorMode()
    with mode, torch.no_grad():
        args = [torch.empty(5, 4, device=d) if d != "number" else torch.empty(()) for d in devices]
        return make_fx(lambda *a: list(fn(*a)))(*args)


def planned(gm, count):
    graph = lower_graph(gm, [None] * count)
    return codegen(schedule(graph), graph)[1]


def test_a_number_on_the_cpu_is_copied_to_the_gpu():
    gm = traced(lambda x, s: (x * s + 1, (x * s).sum().cpu()), "cuda:0", "number")
    assert on_one_device(gm)
    spec = planned(gm, 2)
    assert spec.device == "cuda:0"
    assert [i.device for i in spec.inputs] == ["", "cpu"]


def steps(spec, kind):
    return [step for step in spec.steps if isinstance(step, kind)]


def test_kernels_run_on_the_cpu_besides_the_gpu():
    gm = traced(lambda x, y: (x * 2, y * 2), "cuda:0", "cpu")
    assert not on_one_device(gm)
    spec = planned(gm, 2)
    (kernel,), (launch,) = steps(spec, KernelCall), steps(spec, Launch)
    assert [step.device for step in steps(spec, Alloc)].count("cpu") == 1
    assert (launch.kernel, kernel.kernel) == (0, 1) and spec.kernel_names[1] == "k0"
    assert refusal(spec) is not None


def test_kernels_on_two_gpus_are_refused():
    gm = traced(lambda x, y: (x * 2, y * 2), "cuda:0", "cuda:1")
    with pytest.raises(Unsupported, match="several devices"):
        planned(gm, 2)


def test_a_number_computed_on_the_cpu_is_an_argument_of_kernels():
    gm = traced(lambda x, s: (x * (1 - 0.9 ** (s + 1)), s + 1), "cuda:0", "number")
    assert on_one_device(gm)
    spec = planned(gm, 2)
    (launch,) = steps(spec, Launch)
    assert len(launch.by_value) == 1 and not steps(spec, Extern)
    assert all(step.on_host for step in (*steps(spec, Arena), *steps(spec, Slot)))
    assert refusal(spec) is not None


def test_numbers_of_other_dtypes_are_copied():
    gm = traced(lambda x, s: (x + s.to(torch.float16),), "cuda:0", "number")
    assert on_one_device(gm)
    spec = planned(gm, 1)
    assert len(steps(spec, Extern)) == 1 and not steps(spec, Launch)[0].by_value


def test_products_on_the_cpu_are_refused_in_a_graph_on_a_gpu():
    gm = traced(lambda x, y: (x * 2, y @ y.t()), "cuda:0", "cpu")
    with pytest.raises(Unsupported, match="on the CPU"):
        planned(gm, 2)


def test_a_constant_of_results_on_the_cpu_stays_there():
    gm = traced(lambda x: (torch.tensor([1.0, 2.0]), x * 2), "cuda:0")
    assert not on_one_device(gm)


def test_a_graph_of_one_device_is_left_alone():
    assert not on_one_device(traced(lambda x: (x[[1, 2]],), "cpu"))


def test_factories_make_what_the_gpu_reads_on_the_gpu():
    gm = traced(lambda x: (torch.ops.aten.index.Tensor(x, [torch.arange(3)]), x * torch.full((), 2.5)), "cuda:0")
    assert on_one_device(gm)
    assert {n.meta["val"].device.type for n in gm.graph.nodes if "val" in n.meta} == {"cuda"}
    assert planned(gm, 2).device == "cuda:0"


def test_what_is_made_for_results_on_the_cpu_stays_there():
    gm = traced(lambda x: (torch.arange(3) + 1, x * 2), "cuda:0")
    assert not on_one_device(gm)


def test_copies_to_the_cpu_are_added_on_the_gpu():
    gm = traced(lambda x: (x.sum().cpu() + (x * 2).sum().cpu(),), "cuda:0")
    assert on_one_device(gm)
    assert planned(gm, 1).device == "cuda:0"

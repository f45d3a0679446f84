"""Runs the code generator for GPUs on a machine without one: graphs on the CPU are lowered as if they were on "cuda:0",
and their Triton kernels run in Triton's interpreter on CPU tensors. Import this before anything imports triton;
`install` then changes the compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

TESTS = Path(__file__).resolve().parent.parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "triton")]
import triton_support  # noqa: E402, I001  chooses the interpreter, and adds what it lacks

import inductor.assembly  # noqa: E402
import inductor.build  # noqa: E402
import inductor.compile  # noqa: E402
import inductor.generate  # noqa: E402
from inductor.aot import rerun  # noqa: E402
from inductor.dtypes import dtype_of  # noqa: E402
from inductor.runtime.plan_py import PythonPlan, _slot  # noqa: E402
from inductor.runtime.plan_spec import COUNTERS, Alloc, Arena, Counters, Extern, Launch, PlanSpec, Slot, Status, Step  # noqa: E402
from tools.fake_gpu import on_gpu  # noqa: E402

POISON = 77  # fills memory that nothing was written to


class InterpretedPlan(PythonPlan):
    """A plan of launches, run on the CPU."""

    def __init__(
        self, spec: PlanSpec, kernels: Sequence[Any], bound: Sequence[torch.Tensor], form: str,
        fallback: Callable[..., Any] | None,
    ) -> None:
        addresses = tuple(k if isinstance(k, int) else 0 for k in kernels)
        super().__init__(spec, addresses, tuple(bound), form, fallback)
        self.triton_kernels = kernels

    def __call__(self, *args: Any) -> Any:
        inputs = (*args, *self._bound)
        if self._fallback is not None and any(inputs[i].data_ptr() % 16 for i in self._spec.aligned):
            return self._fallback(*args)
        return super().__call__(*args)

    def _run(self, buffers: dict[int, Any]) -> None:
        arenas: dict[bool, torch.Tensor] = {}
        counters = torch.zeros(COUNTERS, dtype=torch.int32)
        for step in self._spec.steps:
            if isinstance(step, Launch):
                self._launch(step, buffers)
            elif isinstance(step, Extern):
                self._run_on_cpu(replace(step, args=_on_cpu(step.args), kwargs=_on_cpu(step.kwargs)), buffers)
            elif isinstance(step, Alloc):
                buffer = torch.empty_strided(step.size, step.stride, dtype=dtype_of(step.dtype))
                buffer.untyped_storage().fill_(POISON)
                buffers[step.buf] = buffer
            elif isinstance(step, Arena):
                arenas[step.on_host] = torch.full((step.nbytes,), POISON, dtype=torch.uint8)
            elif isinstance(step, Slot):
                buffers[step.buf] = _slot(arenas[step.on_host], step)
            elif isinstance(step, Status):
                buffers[step.buf] = torch.zeros(1, dtype=torch.int64)
            elif isinstance(step, Counters):
                buffers[step.buf] = counters
            else:
                self._run_on_cpu(step, buffers)
        assert not counters.any(), "a kernel left a counter that is not 0"

    def _launch(self, step: Launch, buffers: dict[int, Any]) -> None:
        kernel = self.triton_kernels[step.kernel]
        if 0 in step.grid:
            return
        given = [torch.view_as_real(t) if (t := buffers[b]).is_complex() else t for b in step.bufs]
        for t, kind in zip(given, kernel.signature):
            assert kind.removeprefix("*") == triton_support.POINTER[t.dtype].removeprefix("*"), (kind, t.dtype)
        taken = [place for place, kind in enumerate(kernel.signature) if not kind.startswith("*")]
        assert taken == [place for place, _ in step.by_value], (taken, step)
        for place, offset in step.by_value:
            given[place] = triton_support.number(given[place], offset // given[place].element_size())
        triton_support.load(kernel)[step.grid](*given, *step.ints, **kernel.constants)

    def _run_on_cpu(self, step: Step, buffers: dict[int, Any]) -> None:
        """Runs a step that is the same for plans of the CPU."""
        whole, self._spec = self._spec, replace(self._spec, steps=(step,))
        try:
            super()._run(buffers)
        finally:
            self._spec = whole


def _on_cpu(value: Any) -> Any:
    """The argument of an operator, with each device in it replaced by the CPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_on_cpu, value))
    return value


class CpuGenerator:
    """What draws for operators that are lowered as if they were on a GPU."""

    @staticmethod
    def get_rng_state(*device: torch.device) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *device: torch.device) -> None:
        torch.set_rng_state(state)


def _make_plan(
    spec: PlanSpec, kernels: Sequence[Any], bound: Sequence[torch.Tensor] = (), form: str = "tuple",
    python: bool = False, fallback: Callable[..., Any] | None = None, label: str | None = None,
    places: Callable[[Sequence[int]], str] | None = None,
) -> InterpretedPlan:
    return InterpretedPlan(spec, kernels, bound, form, fallback)


def _traced_as_on_gpu(trace: Callable[..., Any], numbers_on_cpu: bool) -> Callable[..., Any]:
    """`trace`, whose result has an ATen graph as its attribute `graph`, with that graph moved to the GPU."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        result = trace(*args, **kwargs)
        on_gpu(result.graph, numbers_on_cpu)
        return result

    return traced


def install(numbers_on_cpu: bool = False) -> None:
    """Makes `inductor` compile every graph of this process for the GPU and interpret it. `numbers_on_cpu`: graph inputs
    of no dimensions are on the CPU."""
    inductor.generate.to_aten = _traced_as_on_gpu(inductor.generate.to_aten, numbers_on_cpu)
    inductor.generate.to_joint = _traced_as_on_gpu(inductor.generate.to_joint, numbers_on_cpu)
    inductor.build.make_plan = _make_plan
    inductor.assembly.load_cubins = lambda kernels, device: list(kernels)
    rerun._rng = lambda device: CpuGenerator  # type: ignore[assignment]
    inductor.compile.graph_key = inductor.compile.training_key = lambda *args, **kwargs: None  # nothing is kept

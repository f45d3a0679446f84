"""Runs the code generator for GPUs on a machine without one: graphs on the CPU are lowered as if they were on "cuda:0",
and their Triton kernels run in Triton's interpreter on CPU tensors. Call `install` before anything imports triton."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

TESTS = Path(__file__).resolve().parent.parent.parent / "tests"
POISON = 77  # fills memory that nothing was written to


def install() -> None:
    """Makes `inductor` compile every graph of this process for the GPU and interpret it."""
    sys.path[:0] = [str(TESTS), str(TESTS / "triton")]
    import triton_support  # chooses the interpreter, and adds what it lacks
    from fake_gpu import on_gpu

    import inductor.build
    import inductor.compile
    import inductor.generate
    from inductor.aot import rerun
    from inductor.dtypes import dtype_of
    from inductor.runtime.plan_py import PythonPlan
    from inductor.runtime.plan_spec import Alloc, Arena, Extern, Launch, PlanSpec, Status

    class InterpretedPlan(PythonPlan):
        """A plan of launches, run on the CPU."""

        def __init__(self, spec: PlanSpec, kernels: Sequence[Any], bound: Sequence[torch.Tensor], form: str,
                     fallback: Callable[..., Any] | None) -> None:
            super().__init__(spec, (), tuple(bound), form, fallback)
            self.triton_kernels = kernels

        def __call__(self, *args: Any) -> Any:
            inputs = (*args, *self._bound)
            if self._fallback is not None and any(inputs[i].data_ptr() % 16 for i in self._spec.aligned):
                return self._fallback(*args)
            return super().__call__(*args)

        def _run(self, buffers: dict[int, Any]) -> None:
            for step in self._spec.steps:
                if isinstance(step, Launch):
                    self.launch(step, buffers)
                elif isinstance(step, Extern):
                    super_run(self, [on_cpu(step)], buffers)
                elif isinstance(step, Alloc):
                    buffer = torch.empty_strided(step.size, step.stride, dtype=dtype_of(step.dtype))
                    buffer.untyped_storage().fill_(POISON)
                    buffers[step.buf] = buffer
                elif isinstance(step, Arena):
                    self.arena = torch.full((step.nbytes,), POISON, dtype=torch.uint8)
                elif type(step).__name__ == "Slot":
                    buffers[step.buf] = slot(self.arena, step)
                elif isinstance(step, Status):
                    buffers[step.buf] = torch.zeros(1, dtype=torch.int64)
                else:
                    super_run(self, [step], buffers)

        def launch(self, step: Launch, buffers: dict[int, Any]) -> None:
            kernel = self.triton_kernels[step.kernel]
            if 0 in step.grid:
                return
            given = [buffers[b] for b in step.bufs]
            for t, kind in zip(given, kernel.signature):
                assert kind == triton_support.POINTER[t.dtype], (kind, t.dtype)
            triton_support.load(kernel)[step.grid](*given, *step.ints, **kernel.constants)

    def super_run(plan: InterpretedPlan, steps: list[Any], buffers: dict[int, Any]) -> None:
        whole, plan._spec = plan._spec, Steps(steps)
        try:
            PythonPlan._run(plan, buffers)
        finally:
            plan._spec = whole

    def slot(arena: torch.Tensor, step: Any) -> torch.Tensor:
        from inductor.runtime.plan_py import _slot

        return _slot(arena, step)

    def on_cpu(step: Extern) -> Extern:
        from dataclasses import replace

        return replace(step, args=moved(step.args), kwargs=moved(step.kwargs))

    aten, joint = inductor.generate.to_aten, inductor.generate.to_joint

    def to_aten(*args: Any, **kwargs: Any) -> Any:
        graph = aten(*args, **kwargs)
        on_gpu(graph.graph)
        return graph

    def to_joint(*args: Any, **kwargs: Any) -> Any:
        graph = joint(*args, **kwargs)
        on_gpu(graph.graph)
        return graph

    def make_plan(spec: PlanSpec, kernels: Sequence[Any], bound: Sequence[torch.Tensor] = (), form: str = "tuple",
                  python: bool = False, fallback: Callable[..., Any] | None = None, label: str | None = None) -> Any:
        return InterpretedPlan(spec, kernels, bound, form, fallback)

    inductor.generate.to_aten, inductor.generate.to_joint = to_aten, to_joint
    inductor.build.make_plan = make_plan
    inductor.build.load_cubins = lambda kernels, device: list(kernels)
    rerun._rng = lambda device: CpuGenerator  # type: ignore[assignment]
    inductor.compile.graph_key = inductor.compile.training_key = lambda *args, **kwargs: None  # nothing is kept


class CpuGenerator:
    """What draws for operators that are lowered as if they were on a GPU."""

    @staticmethod
    def get_rng_state(*device: torch.device) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *device: torch.device) -> None:
        torch.set_rng_state(state)


class Steps:
    """As much of a PlanSpec as the runner of its steps looks at."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps


def moved(value: Any) -> Any:
    """Devices among the arguments of an operator, as the CPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, (list, tuple)):
        return type(value)(map(moved, value))
    return value

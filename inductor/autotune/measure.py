"""Runs products on a GPU: with ATen, and with each configuration of the template."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from ..budget import left
from ..codegen import codegen
from ..codegen.triton.gpu import gpu_of
from ..codegen.triton.source import TritonSource
from ..ir.buffer import Buffer, ExternKernel, InputBuffer
from ..ir.nodes import BufferView, GraphIR
from ..log.warnings import warn_once
from ..overlap import extent
from ..runtime import triton_build
from ..runtime.cuda import loadable
from ..runtime.plan import make_plan
from ..runtime.plan_spec import PlanSpec
from ..schedule.node import Group
from ..schedule.product import Product, ProductConfig, buffers_of
from .progress import progress

ROTATED_BYTES, MAX_SETS = 128 << 20, 64  # inputs are rotated so that they are not in the cache, as those of a model
ROUND_MICROSECONDS, ROUNDS = 2000.0, 3
MIN_CALLS, MAX_CALLS = 4, 50
SLEEP_CYCLES = 50_000  # of the GPU per call, about 30 microseconds: longer than the host takes to launch it
TOLERANCE = 0.02  # of the largest element; only a kernel that is wrong differs more
Step = Group | ExternKernel


@dataclass(frozen=True)
class Problem:
    """A product to measure. `graph` contains it; `configs` are those of the template."""

    key: str
    product: Product
    graph: GraphIR
    configs: Sequence[ProductConfig]

    def steps(self, config: ProductConfig | None) -> list[Step]:
        """The schedule of the product alone; None: with ATen."""
        before: list[Step] = [prologue.group for prologue in self.product.prologues]
        if config is not None:
            return [*(before if config.apart else ()), self.product.configured(config)]
        after = self.product.epilogue
        return [*before, self.product.kernel, *([] if after is None else [after])]

    def subgraph(self) -> GraphIR:
        """A graph of the product and its epilogue; whatever else they read or write in place is an input."""
        members = buffers_of(self.product, self.graph)
        given = (*self.graph.inputs, *self.graph.constants)
        known: dict[str, Buffer] = {b.name: b for b in given if isinstance(b, Buffer)}
        for node in self.graph.buffers:
            outs = node.outputs if isinstance(node, ExternKernel) else (node,)
            known |= {b.name: b for b in outs if b is not None}
        made = {self.product.result.name} | {b.name for b in members}
        written = {b.mutates for b in members if b.mutates is not None}
        names = sorted((self.product.read_names() | written) - made)
        inputs = [InputBuffer(name, known[name].layout, k) for k, name in enumerate(names)]
        outputs = [known[name] for name in sorted(self.product.stored - written)]
        return GraphIR(inputs, [], [self.product.kernel, *members], [BufferView(b, b.layout) for b in outputs])


class Bench:
    """Measures problems on one GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        major, minor = torch.cuda.get_device_capability(device)
        self.arch, self.gpu = 10 * major + minor, gpu_of(device)

    def __call__(self, problems: Sequence[Problem]) -> list[tuple[float, list[float | None]] | None]:
        """The times in microseconds of ATen and of each configuration; None where one cannot be used. None for a
        problem whose inputs do not fit into the device's memory. Problems for which no budget is left are left out."""
        variants = [(p, config) for p in problems for config in (None, *p.configs)]
        made = [codegen(p.steps(config), p.subgraph()) for p, config in variants]
        sources = [source for source, _ in made if isinstance(source, TritonSource)]
        kernels = {k.name: k for source in sources for k in source.kernels}
        results: list[tuple[float, list[float | None]] | None] = []
        with (
            progress("compile and measure templates", len(kernels) + len(problems)) as advance,
            torch.cuda.device(self.device),
        ):
            futures = triton_build.try_all(list(kernels.values()), self.arch, advance)
            built = dict(zip(kernels, futures, strict=True))
            for problem in problems:  # each while the kernels of those behind it are compiled
                if not left():
                    break
                own, made = made[: 1 + len(problem.configs)], made[1 + len(problem.configs) :]
                aten, *plans = [self._plan(source, spec, built) for source, spec in own]
                results.append(self._times(problem, aten, plans))
                advance()
        return results

    def _plan(
        self, source: Any, spec: PlanSpec, built: Mapping[str, Future[triton_build.Cubin | None]]
    ) -> Callable[..., Any] | None:
        """What runs a plan, once its kernels are built; None if one of them cannot be."""
        found = [built[name].result() for name in source.names]
        usable = [loadable(c) for c in found if c is not None and c.shared <= self.gpu.shared_bytes]
        return make_plan(spec, usable, form="list") if len(usable) == len(found) else None

    def _times(
        self, problem: Problem, aten: Callable[..., Any] | None, plans: Sequence[Callable[..., Any] | None]
    ) -> tuple[float, list[float | None]] | None:
        if aten is None:
            return None
        try:
            sets = self._inputs(problem)
            expected = _run(aten, sets[0])
            times: list[float | None] = []
            for plan, config in zip(plans, problem.configs, strict=True):
                right = plan is not None and _agree(_run(plan, sets[0]), expected)
                if plan is not None and not right:
                    _report_difference(problem.product, config)
                times.append(_time(plan, sets) if plan is not None and right else None)
            return _time(aten, sets), times
        except torch.OutOfMemoryError:
            return None

    def _inputs(self, problem: Problem) -> list[list[torch.Tensor]]:
        buffers = problem.subgraph().inputs
        nbytes = sum(b.layout.extent * b.dtype.itemsize for b in buffers)
        count = min(MAX_SETS, -(-ROTATED_BYTES // max(nbytes, 1)))
        generator = torch.Generator(self.device).manual_seed(0)
        sets = [[self._tensor(b, generator) for b in buffers] for _ in range(count)]
        ends = problem.product.ends
        if ends is not None:  # groups of the same size
            name, groups = getattr(ends, "buffer", ends).name, ends.layout.size[0]
            for position, buffer in enumerate(buffers):
                if buffer.name == name:
                    rows = torch.arange(1, groups + 1, device=self.device) * problem.product.sizes.rows // groups
                    for tensors in sets:
                        places = tensors[position].as_strided(ends.layout.size, ends.layout.stride, ends.layout.offset)
                        places.copy_(rows)
        return sets

    def _tensor(self, buffer: InputBuffer, generator: torch.Generator) -> torch.Tensor:
        """A tensor of random numbers, or of zeros if its dtype is not floating-point."""
        layout = buffer.layout
        if layout.device.type == "cpu":
            return torch.zeros(layout.size, dtype=layout.dtype)
        count = max(layout.extent, 1)
        if layout.dtype.is_floating_point:
            memory = torch.randn(count, device=self.device, generator=generator, dtype=torch.float32).to(layout.dtype)
        else:
            memory = torch.zeros(count, dtype=layout.dtype, device=self.device)
        return memory.as_strided(layout.size, layout.stride, layout.offset)


def _report_difference(product: Product, config: ProductConfig) -> None:
    what = f"a kernel for {product.kernel.target} {product.sizes} {config}"
    warn_once("template", f"inductor: the result of {what} differs from ATen's; it is not used")


def _run(plan: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a plan and its inputs after the call, which works on copies."""
    copies = [_copied(x) for x in inputs]
    return [*plan(*copies), *copies]


def _copied(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    memory = x.as_strided((extent(x.shape, x.stride()),), (1,)).clone()
    return memory.as_strided(x.shape, x.stride(), 0)


def _agree(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    for a, b in zip(got, expected, strict=True):
        if b.dtype.itemsize == 1 and b.dtype.is_floating_point:  # there are few operators for these
            a, b = a.float(), b.float()
        finite = a.isfinite() & b.isfinite()
        x, y = a[finite].double(), b[finite].double()
        if x.numel() < b.isfinite().sum().item() * (1 - TOLERANCE):
            return False
        if not b.dtype.is_floating_point:
            if (x != y).double().sum().item() > TOLERANCE * x.numel():
                return False
        elif x.numel() and (x - y).abs().max().item() > TOLERANCE * y.abs().max().item():
            return False
    return True


def _time(plan: Callable[..., Any], sets: Sequence[Sequence[torch.Tensor]]) -> float:
    """The shortest time per call on the GPU in microseconds."""
    estimate = gpu_microseconds(plan, sets, MIN_CALLS, SLEEP_CYCLES)
    calls = int(min(max(ROUND_MICROSECONDS / max(estimate, 1.0), MIN_CALLS), MAX_CALLS))
    return min(gpu_microseconds(plan, sets, calls, SLEEP_CYCLES) for _ in range(ROUNDS))


def gpu_microseconds(
    fn: Callable[..., Any], sets: Sequence[Sequence[torch.Tensor]], calls: int, sleep_cycles: int
) -> float:
    """The mean time of `calls` calls on the current GPU, in microseconds per call, with each set of arguments in turn.

    The calls are queued while the GPU sleeps for `calls * sleep_cycles` cycles, so that the host's time does not count.
    """
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(calls * sleep_cycles)
    begin.record()
    for k in range(calls):
        fn(*sets[k % len(sets)])
    end.record()
    end.synchronize()
    return math.ceil(begin.elapsed_time(end) * 1e6 / calls) / 1000

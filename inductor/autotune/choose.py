"""The choice for each product of a schedule: from this process, from the disk cache, or by measuring."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from ..autocast import without_autocast
from ..budget import left
from ..cache.file_store import content_key, shared_cache
from ..codegen.triton.gpu import Gpu, gpu_of
from ..codegen.triton.product_configs import configs
from ..codegen.triton.product_drafts import product_drafts
from ..compile_report import CompileReport
from ..dtypes import dtype_name
from ..errors import Unsupported
from ..ir.buffer import Buffer, ExternKernel
from ..ir.nodes import GraphIR
from ..log.stages import count, show
from ..schedule.node import Group
from ..schedule.product import Candidate, Product, ProductConfig, products, replaced
from .measure import Bench, Problem

_SUFFIX = ".product"
MARGIN = 0.97  # a template has to be faster than ATen by this factor, so that noise does not decide


@dataclass(frozen=True)
class Choice:
    """The fastest way to compute a product: a configuration, or None for ATen. Times are in microseconds."""

    config: ProductConfig | None
    aten: float
    best: float


class Measures(Protocol):
    """Measures problems on a device: the times of ATen and of each configuration (None if it cannot be used). Fewer
    than the problems if the budget is spent."""

    def __call__(self, problems: Sequence[Problem]) -> list[tuple[float, list[float | None]] | None]: ...


_chosen: dict[str, Choice] = {}


def tuned(
    steps: Sequence[Group | ExternKernel], graph: GraphIR, measure: Measures | None = None,
    report: CompileReport | None = None,
) -> list[Any]:
    """The schedule, with products in the place of ATen calls (and their epilogues) where a template is faster. The
    report counts products for which this is not known because the budget is spent.

    `measure`: instead of the GPU, for tests. Without it and without a GPU the schedule remains as it is.
    """
    found = products(steps, graph)
    if not found or (measure is None and not _can_measure()):
        return list(steps)
    device = found[0].product.result.layout.device
    problems = _problems(found, graph, gpu_of(device), _device_key(device, measure))
    missing = {p.key: p for p in problems.values() if p.key not in _chosen and not _remembered(p)}
    if missing:
        measure = measure or Bench(device)
        results = without_autocast(measure)(list(missing.values())) if left() else []
        for problem, times in zip(missing.values(), results):
            _decide(problem, times)
        if report is not None:
            report.untuned += len(missing.keys() - _chosen.keys())
    chosen = []
    for at, candidate in enumerate(found):
        choice = _chosen.get(problems[at].key) if at in problems else None
        if choice is not None and choice.config is not None:
            chosen.append((candidate, candidate.product.configured(choice.config)))
    count("templates", len(chosen))
    return replaced(steps, chosen)


def _can_measure() -> bool:
    return torch.cuda.is_available() and not torch.cuda.is_current_stream_capturing()


def _problems(found: Sequence[Candidate], graph: GraphIR, gpu: Gpu, device: str) -> dict[int, Problem]:
    """The problem of each candidate that has one, by its position."""
    buffers = [*graph.inputs, *graph.constants]
    for node in graph.buffers:
        buffers += [x for x in node.outputs if x is not None] if isinstance(node, ExternKernel) else [node]
    known = {b.name: b for b in buffers if isinstance(b, Buffer)}
    dtypes = {name: dtype_name(b.dtype) for name, b in known.items()}
    result = {}
    for at, candidate in enumerate(found):
        tried = _usable(candidate.product, configs(candidate.product, gpu), dtypes)
        if tried:
            texts = [text for _, text in tried]
            key = content_key("product", device, str(candidate.product.kernel.target), *texts)
            result[at] = Problem(key, candidate.product, graph, [config for config, _ in tried])
    return result


def _usable(
    product: Product, tried: Sequence[ProductConfig], dtypes: dict[str, str]
) -> list[tuple[ProductConfig, str]]:
    """The configurations for which there is code, each with a text that identifies its kernels."""
    result = []
    for config in tried:
        try:
            drafts, _ = product_drafts(product.configured(config), dtypes)
        except Unsupported:  # an operation or dtype that Triton lacks, or a prologue whose indices need 64 bits
            continue
        contents = [config, *((d.lines, d.constants, d.grid, d.signature, d.config) for d in drafts)]
        result.append((config, repr(contents)))
    return result


def _device_key(device: torch.device, measure: Measures | None) -> str:
    if measure is not None:
        return "test"
    return repr((torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device), *_versions()))


@functools.cache
def _versions() -> tuple[str, ...]:
    return torch.__version__, str(torch.version.cuda)


def _remembered(problem: Problem) -> bool:
    """Takes the choice for a problem from the disk cache, if it is there."""
    data = shared_cache().get(problem.key, _SUFFIX)
    if data is None:
        return False
    found = json.loads(data)
    config = None if found["config"] is None else ProductConfig(**found["config"])
    _chosen[problem.key] = Choice(config, found["aten"], found["best"])
    return True


def _decide(problem: Problem, times: tuple[float, list[float | None]] | None) -> None:
    """Keeps the choice that follows from the times; None: nothing could be measured, and nothing is kept on disk."""
    if times is None:
        _chosen[problem.key] = Choice(None, 0.0, 0.0)
        return
    aten, each = times
    best, config = min(((t, k) for k, t in enumerate(each) if t is not None), default=(aten, -1))
    won = config >= 0 and best < MARGIN * aten
    choice = _chosen[problem.key] = Choice(problem.configs[config] if won else None, aten, best)
    sizes = problem.product.sizes
    show("autotune", lambda: f"{problem.product.kernel.target} {sizes}: ATen {aten:.1f} us, template {best:.1f} us "
                             f"({problem.configs[config] if config >= 0 else 'none'})")  # fmt: skip
    shared_cache().put(problem.key, json.dumps(asdict(choice)).encode(), _SUFFIX)



"""A graph to be compiled by another process, as plain data: its nodes, the metadata of its inputs, and the settings of
the process. It holds no values of tensors.

The job also has the key of the graph in the disk cache, which describes everything that a compiled graph depends on.
The other process computes the key of what it has rebuilt: if that is the same, so is what it compiles.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx, nn

from ..aot.fake import fake_mode
from ..aot.functionalize import attributes_of
from ..aot.joint import module_tensors
from ..autocast import DEVICES, AutocastState
from ..cache.graph_data import NotData, graph_as_data, graph_of
from ..cache.graph_key import graph_key, training_key
from ..cache.process_key import fp32_precisions, set_fp32_precisions
from ..process.import_stubs import stub_torch_compiler

Kind = Literal["inference", "training"]


@dataclass(frozen=True)
class TensorData:
    """The metadata of an input. `memory`: the number of its storage among those of the inputs, and the bytes of that
    storage; `requires_grad`, `is_leaf`: as autograd has them; `is_parameter`: whether it is an nn.Parameter."""

    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    memory: tuple[int, int]
    requires_grad: bool
    is_leaf: bool
    is_parameter: bool


@dataclass(frozen=True)
class Settings:
    """What a compilation depends on besides the graph: modes of the thread, settings of torch, the environment."""

    grad: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    autocast_cache: bool
    default_dtype: torch.dtype
    threads: int
    precision: str
    precisions: tuple[tuple[str, str, str], ...]
    deterministic: tuple[bool, bool]
    environment: Mapping[str, str]

    @staticmethod
    def now() -> Settings:
        """Those of this thread and process."""
        return Settings(
            torch.is_grad_enabled(),
            tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in DEVICES),
            torch.is_autocast_cache_enabled(), torch.get_default_dtype(), torch.get_num_threads(),
            torch.get_float32_matmul_precision(), tuple(fp32_precisions()),
            (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
            dict(os.environ),
        )  # fmt: skip

    @contextmanager
    def applied(self) -> Iterator[None]:
        """A block with these modes of the thread. The settings of the process stay when it ends: each job sets all."""
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)
        torch.set_default_dtype(self.default_dtype)
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        if torch.get_float32_matmul_precision() != self.precision:  # setting it changes more than it says
            torch.set_float32_matmul_precision(self.precision)
        set_fp32_precisions(self.precisions)
        torch.use_deterministic_algorithms(self.deterministic[0], warn_only=self.deterministic[1])
        before = AutocastState()
        try:
            for device, enabled, dtype in self.autocast:
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
            torch.set_autocast_cache_enabled(self.autocast_cache)
            with torch.set_grad_enabled(self.grad):
                yield
        finally:
            before.restore()


@dataclass(frozen=True)
class Job:
    """A graph to be compiled. `key`: of the graph as `key_of` computes it; `stored_as`: the key under which the disk
    cache keeps what it is compiled to, None if it does not; `frozen`, `buckets`: as for `generate`, and the option
    `bucket_collectives`."""

    kind: Kind
    nodes: tuple[Any, ...]
    inputs: tuple[TensorData, ...]
    key: str
    stored_as: str | None
    frozen: tuple[int, ...]
    buckets: bool
    settings: Settings

    def rebuilt(self) -> tuple[fx.GraphModule, list[torch.Tensor]]:
        """The graph, and fake tensors like its inputs. NotData if this process lacks something that the graph calls."""
        return graph_of(self.nodes), _fakes(self.inputs)


def key_of(kind: Kind, gm: fx.GraphModule, inputs: Sequence[Any]) -> str | None:
    """The key of a graph without what options add to it; None if it has none."""
    if kind == "inference":
        return graph_key(gm, inputs, attributes_of(gm))
    return training_key(gm, inputs, *module_tensors(gm, inputs), inputs)


def job_of(
    kind: Kind, gm: fx.GraphModule, inputs: Sequence[Any], stored_as: str | None, frozen: Sequence[int], buckets: bool
) -> Job | None:
    """The job of compiling a graph for such inputs, under the modes of now; None if the graph cannot be compiled by
    another process: it uses something that only this one has, or tensors that are not plain memory of the CPU."""
    key = key_of(kind, gm, inputs)
    if key is None or [*gm.named_parameters(), *gm.named_buffers()]:
        return None
    try:
        nodes, described = graph_as_data(gm), _described(inputs)
    except NotData:
        return None
    return Job(kind, nodes, described, key, stored_as, tuple(frozen), buckets, Settings.now())


def _described(inputs: Sequence[Any]) -> tuple[TensorData, ...]:
    numbers: dict[int, int] = {}
    out = []
    for x in inputs:
        if not isinstance(x, torch.Tensor) or x.device.type != "cpu" or x.layout != torch.strided:
            raise NotData("an input that is not a tensor in plain memory of the CPU")
        if x.is_conj() or x.is_neg():
            raise NotData("an input with a conjugate or negative bit")
        storage = x.untyped_storage()
        number = numbers.setdefault(storage._cdata, len(numbers))
        out.append(TensorData(
            x.dtype, tuple(x.shape), x.stride(), int(x.storage_offset()), (number, storage.nbytes()), x.requires_grad,
            x.is_leaf, isinstance(x, nn.Parameter),
        ))  # fmt: skip
    return tuple(out)


def _fakes(inputs: Sequence[TensorData]) -> list[torch.Tensor]:
    """Fake tensors with this metadata, which share memory as the inputs do."""
    with stub_torch_compiler:
        mode = fake_mode()
        with mode, torch.enable_grad():
            memory = {
                number: torch.empty(size, dtype=torch.uint8).untyped_storage()
                for number, size in {each.memory for each in inputs}
            }
            return [_fake(each, memory[each.memory[0]]) for each in inputs]


def _fake(data: TensorData, memory: torch.UntypedStorage) -> torch.Tensor:
    made = torch.empty(0, dtype=data.dtype)
    made.set_(memory, data.offset, data.size, data.stride)  # unlike `as_strided`, no view
    if data.is_parameter:
        return nn.Parameter(made, data.requires_grad)
    made.requires_grad_(data.requires_grad)
    return made if data.is_leaf else made.view_as(made)

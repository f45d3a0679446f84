"""Builds the example inputs for a backend that is not pyframe's own. Such a backend gets real tensors, on which it may
run the graph; pyframe's own backends get fake tensors."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor

from inductor.aot.fake import forget_tensors
from inductor.subclasses.wrapper_tensors import Form, is_wrapper

from .emit.graph import GraphBuilder

_PLAIN = (torch.Tensor, torch.nn.Parameter)


@contextlib.contextmanager
def real_examples(graph: GraphBuilder, gm: fx.GraphModule) -> Iterator[list[Any]]:
    """Context manager for one call of a backend: the example inputs of `gm`, as torch.compile provides them.

    Tensors are real: copies of the values of this call, so that running `gm` does not change the program's tensors.
    Parameters that `gm` does not write are passed without a copy. Sizes and numbers that vary are SymInts and
    SymFloats. As with torch.compile, `meta["example_value"]` of each node holds its fake tensor, and the
    `torch._guards` context holds the fake mode with the symbolic sizes. On exit, random number generators are restored.
    """
    for node in gm.graph.nodes:
        if "val" in node.meta:
            node.meta["example_value"] = node.meta["val"]
    copies, given = _Copies(graph, gm), graph.inputs
    examples = [
        copies.of(given.originals[source], fake) if isinstance(fake, torch.Tensor) and source in given.originals
        else fake.clone_state() if isinstance(fake, torch.Generator) else fake
        for source, fake in zip(given.sources, given.examples, strict=True)
    ]  # fmt: skip
    devices = {x.device for x in examples if isinstance(x, torch.Tensor)}
    gpus = sorted(device.index for device in devices if device.type == "cuda")
    converter = graph.fake_mode.fake_tensor_converter
    for real, fake in zip(examples, given.examples, strict=True):
        if isinstance(real, torch.Tensor) and type(fake) is FakeTensor and real is not fake:
            converter.set_tensor_memo(real, fake)
    drawn = random.getstate()
    try:
        with torch.random.fork_rng(gpus), tracing(TracingContext(graph.fake_mode)):
            yield examples
    finally:
        random.setstate(drawn)
        forget_tensors(graph.fake_mode)


def _copied_parts(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor without a storage of its own, such as a wrapper subclass: its inner tensors are copied."""
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        if is_wrapper(tensor):
            form, parts = Form.of(tensor), list[torch.Tensor]()
            form.take(tensor, parts)
            copied = form.build(iter([part.detach().clone() for part in parts]))
        else:
            copied = tensor.detach().clone()
    return copied.requires_grad_(tensor.requires_grad)


class _Copies:
    """Copies of a graph's inputs; inputs that share memory have copies that share memory."""

    def __init__(self, graph: GraphBuilder, gm: fx.GraphModule) -> None:
        originals = graph.inputs.originals
        inputs = [originals[source] for source in graph.inputs.sources if source in originals]
        memories = [_memory(tensor) for tensor in inputs]
        self.shared = {key for key in memories if key is not None and memories.count(key) > 1}
        self.storages: dict[int, torch.UntypedStorage] = {}
        self.written = _written(gm)

    def of(self, tensor: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        """The example input for `tensor`, which was traced as `fake`."""
        parameter = isinstance(tensor, torch.nn.Parameter)
        if type(tensor) not in _PLAIN and torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
            return _copied_parts(tensor)
        if parameter and type(tensor) in _PLAIN and _memory(fake) not in self.written:
            return tensor
        with torch.inference_mode(tensor.is_inference()), torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
            plain = tensor.detach().as_subclass(torch.Tensor)
            copy = self._copy(plain)
            if parameter:
                return torch.nn.Parameter(copy, tensor.requires_grad)
            copy.requires_grad_(tensor.requires_grad)
            if tensor.is_leaf:
                return copy
            clone = copy.clone()  # not a view of a leaf: the graph may write it in place
            return clone if clone.stride() == copy.stride() else copy.view_as(copy)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = _memory(tensor)
        if memory is None:
            return tensor.clone()
        if memory not in self.shared:
            copy = tensor.clone()
            if copy.stride() == tensor.stride():
                return copy
        storage = self.storages.get(memory)
        if storage is None:
            storage = self.storages[memory] = tensor.untyped_storage().clone()
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def _memory(tensor: torch.Tensor) -> int | None:
    """The address of a strided tensor's StorageImpl, as its identity."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None


def _written(gm: fx.GraphModule) -> set[int | None]:
    """The storages of fake tensors that the trace has written in place; those of inference tensors, which have no
    version counter, all count as written."""
    values: Sequence[Any] = [node.meta.get("val") for node in gm.graph.nodes]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return {_memory(tensor) for tensor in tensors if tensor.is_inference() or tensor._version}

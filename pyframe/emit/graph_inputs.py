"""The inputs of a captured graph: a placeholder in the outermost graph for each source that the trace reads."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from ..core.source import Source, is_drawn


class GraphInputs:
    """`sources`: where each input comes from, in the order of the placeholders. `examples`: its fake tensor, or its
    number. `originals`: the tensors that exist before the frame, by source."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._last: fx.Node | None = None
        self.sources: list[Source] = []
        self.examples: list[Any] = []
        self.originals: dict[Source, torch.Tensor] = {}

    def add(self, source: Source, example: Any) -> fx.Node:
        """Add a placeholder after the others."""
        with self._after_placeholders():
            node = self._graph.placeholder(f"arg{len(self.sources)}")
        self._last = node
        node.meta["val"] = example
        node.meta["source"] = source.name
        self.sources.append(source)
        self.examples.append(example)
        return node

    def _after_placeholders(self) -> Any:
        if self._last is not None:
            return self._graph.inserting_after(self._last)
        return self._graph.inserting_before(next(iter(self._graph.nodes), None))

    def move_drawn_last(self) -> None:
        """Move inputs that are drawn at random after those that exist before the frame."""
        inputs = list(zip(self._graph.find_nodes(op="placeholder"), self.sources, self.examples, strict=True))
        ordered = sorted(inputs, key=lambda each: is_drawn(each[1]))
        for (before, _, _), (node, _, _) in itertools.pairwise(ordered):
            before.append(node)
        self.sources[:] = [source for _, source, _ in ordered]
        self.examples[:] = [example for _, _, example in ordered]

    def takes_subclasses(self) -> bool:
        """Whether an input's class may override operations of the graph."""
        originals = (self.originals.get(source) for source in self.sources)
        plain = (torch.Tensor, torch.nn.Parameter)
        return any(tensor is not None and type(tensor) not in plain for tensor in originals)

    def examples_before_run(self, fake_mode: FakeTensorMode) -> list[Any]:
        """The example inputs in their state before the graph runs. A write during the trace may have made one require
        gradients; such an example is detached."""
        examples = list(self.examples)
        with torch._C.DisableTorchFunctionSubclass():  # the program's classes must not override this
            for i, (source, fake) in enumerate(zip(self.sources, examples, strict=True)):
                original = self.originals.get(source)
                if original is None or type(fake) is not FakeTensor:
                    continue
                if fake.requires_grad and not original.requires_grad:
                    with fake_mode:
                        examples[i] = fake.detach()
        return examples

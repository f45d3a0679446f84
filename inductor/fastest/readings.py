"""Times of calls and of their backward passes.

On the CPU a time is wall-clock time. On a GPU it is the longer of the host's time and of the time between two events on
the current stream, which are read once the GPU has passed them: nothing waits for the GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

Reading = Callable[[], float | None]  # seconds; None while the GPU is at work


def started(device: Any) -> Callable[[], Reading]:
    """Start a measurement; the function that is returned ends it. `device`: that of `cudagraphs.device`; None: the
    CPU."""
    on_device = None if device is None else device.timer()
    start = time.perf_counter()

    def stop() -> Reading:
        host = time.perf_counter() - start
        if on_device is None:
            return lambda: host
        read = on_device()

        def seconds() -> float | None:
            gpu = read()
            return None if gpu is None else max(host, gpu)

        return seconds

    return stop


class Sample:
    """The time of one call. `backward` is the time of the first backward pass through its results, None without one."""

    def __init__(self, forward: Reading, backward: Backward | None = None) -> None:
        self._forward, self._backward = forward, backward

    @property
    def has_backward(self) -> bool:
        return self._backward is not None and self._backward.reading is not None

    def seconds(self) -> float | None:
        """The time of the call and of its backward, if there was one; None while the GPU is at work."""
        forward = self._forward()
        if forward is None or self._backward is None or self._backward.reading is None:
            return forward
        backward = self._backward.reading()
        return None if backward is None else forward + backward


class Backward:
    """Measures the first backward pass of one call: from when the gradient of a result is there until the last node of
    the call that passes a gradient on to its inputs has run. Hooks on these nodes see that; they change nothing and are
    removed by `end`. Passes of other calls in between are included only if autograd interleaves them."""

    def __init__(self, device: Any, inputs: Sequence[Any]) -> None:
        self._device = device
        # before the call, which may write inputs in place
        edges = [torch.autograd.graph.get_gradient_edge(x) for x in inputs if _requires_grad(x)]
        self._outside = [edge.node for edge in edges]
        self._handles: list[Any] = []
        self._stop: Callable[[], Reading] | None = None
        self._pass: int | None = None
        self.reading: Reading | None = None

    def watch(self, results: Sequence[Any]) -> None:
        """Measure the backward of these results of the call."""
        outside = {id(node) for node in self._outside}
        own = [x.grad_fn for x in results if isinstance(x, torch.Tensor) and x.grad_fn is not None]
        first = {id(node): node for node in own if id(node) not in outside}
        self._handles = [node.register_prehook(self._begin) for node in first.values()]
        self._handles += [node.register_hook(self._finish) for node in _last(list(first.values()), outside)]
        self._outside = []

    def end(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _begin(self, gradients: Any) -> None:
        if self._pass is None:
            self._pass = torch._C._current_graph_task_id()
            self._stop = started(self._device)

    def _finish(self, passed_on: Any, gradients: Any) -> None:
        if self._stop is not None and self._pass == torch._C._current_graph_task_id():
            self.reading = self._stop()


def _last(first: list[Any], outside: set[int]) -> list[Any]:
    """The nodes from `first` on, those with ids in `outside` excepted, that pass gradients on to nodes outside."""
    seen, found = {id(node): node for node in first}, []  # the nodes live, so that no other gets their ids
    while first:
        node = first.pop()
        following = [each for each, _ in node.next_functions if each is not None]
        if any(id(each) in outside for each in following):
            found.append(node)
        for each in following:
            if id(each) not in outside and id(each) not in seen:
                seen[id(each)] = each
                first.append(each)
    return found


def _requires_grad(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.requires_grad

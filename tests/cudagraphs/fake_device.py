"""A device for recordings on the CPU: a graph is the addresses and metadata of the recorded call, and a replay carries
out that call on whatever memory is at these addresses then."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref

import torch


class FakeGraph:
    def __init__(self, device, body, tensors):
        self.device, self.body = device, body
        self.recorded = [described(x) if isinstance(x, torch.Tensor) else x for x in tensors]

    def replay(self):
        self.device.replays += 1
        self.body([at_address(*x) if isinstance(x, tuple) else x for x in self.recorded])


def described(x):
    return x.data_ptr(), tuple(x.shape), x.stride(), x.dtype


def at_address(address, size, stride, dtype):
    """A tensor over the memory at an address, which it does not keep alive."""
    if 0 in size:
        return torch.empty_strided(size, stride, dtype=dtype)
    length = 1 + sum((n - 1) * s for n, s in zip(size, stride))
    memory = (ctypes.c_char * (length * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(size, stride)


class FakeDevice:
    def __init__(self):
        self.lock, self.memories, self.generation = threading.Lock(), weakref.WeakSet(), 0
        self.captures = self.replays = self.entered = 0
        self.user_captures = False
        self.raw = None
        self.seconds = 0.0  # that each call takes the device; None while it is at work
        self.capturing_now = self.capturing

    def current(self):
        return contextlib.nullcontext()

    def capturing(self):
        return self.user_captures

    def timer(self):
        return lambda: lambda: self.seconds

    def free_bytes(self):
        return 1 << 30

    def capture(self, body, tensors):
        """Runs `body` for the errors that it raises, but on copies, as a capture executes nothing; indices are 0, as the
        memory to which they are copied is not written yet."""

        def example(x):
            if not isinstance(x, torch.Tensor) or 0 in x.stride():
                return x
            return x.clone() if x.dtype.is_floating_point else torch.zeros_like(x)

        state = torch.get_rng_state()
        try:
            body([example(x) for x in tensors])
        finally:
            torch.set_rng_state(state)
        self.captures += 1
        return FakeGraph(self, body, tensors)

    def enter_stream(self, used):
        self.entered += 1
        self.raw = 0
        used.add(0)

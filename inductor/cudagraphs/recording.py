"""One recorded call of a plan: its graph, and the memory of its inputs and results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..dtypes import dtype_of
from ..extension import _C
from ..runtime.plan_py import view_of_input
from ..runtime.plan_spec import InputSpec
from .device import Device, Graph
from .refusal import NotCapturable
from .spec import Argument, ArgumentView, Constant, Memory, Owned, RecordedSpec, Result

# A new tensor over the memory of another, which autograd does not know as a view, with a version counter of its own.
_reinterpret: Callable[..., torch.Tensor] = torch._C._dynamo.guards._reinterpret_tensor  # type: ignore[attr-defined]
_use_count: Callable[[int], int] = torch._C._storage_Use_Count


class OwnedMemory:
    """Memory of results, and whether anything else uses it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.storage = tensor.untyped_storage()
        self.cdata = self.storage._cdata
        self.address, self.nbytes = self.storage.data_ptr(), self.storage.nbytes()
        # Python has one object for a storage, so that a reference to it held elsewhere shows in its count.
        self.uses, self.references = _use_count(self.cdata), sys.getrefcount(self.storage)

    def idle(self) -> bool:
        """Whether nothing but the recording uses the memory: no tensor over it, and no object of its storage."""
        return _use_count(self.cdata) == self.uses and sys.getrefcount(self.storage) == self.references

    def moved(self) -> bool:
        """Whether a user of the storage has resized it, so that the recorded address is not valid any more."""
        return self.storage.data_ptr() != self.address

    def holds(self, address: int) -> bool:
        """Whether the memory contains an address."""
        return self.address <= address < self.address + self.nbytes


def empty_like_spec(spec: InputSpec | Memory, device: torch.device) -> torch.Tensor:
    """An uninitialized tensor with the metadata of an input or a result."""
    return torch.empty_strided(spec.size, spec.stride, dtype=dtype_of(spec.dtype), device=device)


def distinct(x: torch.Tensor) -> torch.Tensor:
    """`x` with its expanded dimensions reduced to one element, so that it can be written."""
    if 0 not in x.stride():
        return x
    size = tuple(1 if stride == 0 else n for n, stride in zip(x.shape, x.stride()))
    return _reinterpret(x, size, x.stride(), 0)


def _copy(x: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, which need not be dense."""
    copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    return copy.copy_(x)


def encode_results(results: Sequence[Result]) -> tuple[tuple[Any, ...], ...]:
    """The results of a plan for csrc/runtime/replay.c: (kind, index, value, size, stride, offset, equal), where `equal`
    is the number of an earlier result that is the same tensor, or -1."""
    rows: list[tuple[Any, ...]] = []
    for result in results:
        match result:
            case Constant(value):
                rows.append((0, 0, value, None, None, 0, -1))
            case Argument(index):
                rows.append((1, index, None, None, None, 0, -1))
            case ArgumentView(index, size, stride, offset, tracked):
                rows.append((2, index, view_of_input if tracked else _reinterpret, size, stride, offset, -1))
            case Owned(number, size, stride, offset):
                row = 3, number, None, size, stride, offset, -1
                rows.append((*row[:-1], rows.index(row)) if row in rows else row)
    return tuple(rows)


class Recording:
    """A call of the plan of `recorded` with inputs at certain addresses, recorded by `device`.

    `copied`: the positions of inputs that each replay copies to memory of the recording. `handed_out`: for each of the
    memories whether results in it are given out; otherwise they are copied. Raises NotCapturable, or RuntimeError from
    CUDA.
    """

    def __init__(
        self, device: Device, recorded: RecordedSpec, plan: Callable[..., Any], inputs: Sequence[Any],
        copied: Sequence[int], handed_out: Sequence[bool], dtypes: Sequence[str], place: torch.device,
    ) -> None:
        self.device, self.recorded, self.handed_out = device, recorded, tuple(handed_out)
        self.generation = device.generation
        specs = recorded.spec.inputs
        self.copied = tuple(copied)
        self.statics = [empty_like_spec(specs[i], place) for i in copied]
        self.targets = [distinct(x) for x in self.statics]
        if any(torch._debug_has_internal_overlap(x) == 1 for x in self.targets):
            raise NotCapturable("an input that changes its address has elements that share memory")
        self.expanded = [x is not y for x, y in zip(self.statics, self.targets)]
        given = list(inputs)
        for i, x in zip(copied, self.statics):
            given[i] = x
        self.seeds: dict[int, torch.Tensor] = {}  # results of no meaning, see Memory.seed
        tensors = self._memories(dtypes, place)
        self.used: set[int] = set()
        self.graph: Graph = device.capture(self._body(plan, len(given)), [*given, *tensors])
        self.memories = [OwnedMemory(x) for x in tensors]
        self.bases = [self.seeds.get(number, memory.tensor) for number, memory in enumerate(self.memories)]
        device.memories.update(self.memories)
        self.for_c: Any = None

    def encode(self, addresses: bytes, inference: bool, written: Sequence[int]) -> None:
        """Make `for_c`, what replays in C need, unless that is more than they can do. To be called before results of
        the recording are given out."""
        if any(self.expanded) or not set(self.copied).isdisjoint(written):
            return
        memories = tuple(zip(self.memories, self.bases, self.handed_out, strict=True))
        self.for_c = _C.Recorded(
            self.graph, self.used, addresses, inference, self.generation, memories, self.copied, self.targets,
            _use_count,
        )  # fmt: skip

    def _memories(self, dtypes: Sequence[str], place: torch.device) -> list[torch.Tensor]:
        tensors = []
        for memory, dtype in zip(self.recorded.memories, dtypes, strict=True):
            known = memory if memory.dtype else Memory(dtype, memory.size, memory.stride, True)
            tensors.append(empty_like_spec(known, place))
        return tensors

    def _body(self, plan: Callable[..., Any], count: int) -> Callable[[Sequence[Any]], None]:
        """What is recorded: the plan, and copies of what it returns to the memory of the results."""
        taken, memories, seeds = self.recorded.taken, self.recorded.memories, self.seeds

        def body(tensors: Sequence[Any]) -> None:
            with torch.no_grad():
                returned = plan(*tensors[: count + taken])
                storages = {x.untyped_storage().data_ptr() for x in tensors if isinstance(x, torch.Tensor)}
                for number, value in enumerate(returned, taken):
                    target = tensors[count + number]
                    if memories[number].seed:
                        seeds[number] = value
                        continue
                    if not isinstance(value, torch.Tensor) or value.device != target.device:
                        raise NotCapturable("an operator returns a tensor on the CPU, or none")
                    address = value.untyped_storage().data_ptr()
                    if address in storages and value.numel():
                        raise NotCapturable("an operator returns a tensor in the memory of another")
                    storages.add(address)
                    if value.dtype != target.dtype or value.shape != target.shape:
                        raise NotCapturable("an operator returns another dtype or size than in earlier calls")
                    target.copy_(value)

        return body

    def idle(self) -> bool:
        """Whether a replay overwrites nothing that is in use."""
        for memory, handed_out in zip(self.memories, self.handed_out):
            if handed_out and not memory.idle():
                return False
        return True

    def busy(self) -> list[int]:
        """The numbers of the memories that are in use."""
        return [k for k, memory in enumerate(self.memories) if self.handed_out[k] and not memory.idle()]

    def valid(self) -> bool:
        """Whether the recorded addresses of the results are those of their memory still, and the device's generator is
        the one that was recorded."""
        return self.generation == self.device.generation and not any(memory.moved() for memory in self.memories)

    def replay(self, inputs: Sequence[Any]) -> None:
        """Queue the recorded call on the current stream, with gradients disabled."""
        stream = self.device.enter_stream(self.used)
        if stream is not None:
            for x in (*self.statics, *(memory.tensor for memory in self.memories)):
                x.record_stream(stream)
        if self.copied:
            sources = [
                distinct(inputs[i]) if expanded else inputs[i] for i, expanded in zip(self.copied, self.expanded)
            ]
            torch._foreach_copy_(self.targets, sources)
        self.graph.replay()

    def copy_back(self, inputs: Sequence[Any], written: Sequence[int]) -> None:
        """Copy those inputs back that the plan writes and that were copied for it."""
        for i, target in zip(self.copied, self.targets):
            if i in written:
                distinct(_reinterpret(inputs[i], tuple(inputs[i].shape), inputs[i].stride(), 0)).copy_(target)

    def results(self, inputs: Sequence[Any]) -> list[Any]:
        """The results of the call that was replayed last."""
        memories = [
            base if handed_out or number in self.seeds else _copy(base)
            for number, (base, handed_out) in enumerate(zip(self.bases, self.handed_out))
        ]
        made: dict[tuple[Any, ...], Any] = {}
        return [self._result(result, inputs, memories, made) for result in self.recorded.results]

    def _result(
        self, result: Result, inputs: Sequence[Any], memories: Sequence[torch.Tensor], made: dict[Any, Any]
    ) -> Any:
        match result:
            case Constant(value):
                return value
            case Argument(index):
                return inputs[index]
            case ArgumentView(index, size, stride, offset, tracked):
                make = view_of_input if tracked else _reinterpret
                return make(inputs[index], size, stride, offset)
            case Owned(number, size, stride, offset):
                key = number, size, stride, offset
                if key not in made:  # a result that is returned twice is one tensor
                    base = memories[number]
                    shape = (tuple(base.shape), base.stride()) if size is None else (size, stride)
                    made[key] = _reinterpret(base, *shape, offset)
                return made[key]

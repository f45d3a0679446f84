"""Serializes compiled graphs for the disk cache, with a restricted pickle: loading an entry runs no code from it.

Loading creates only objects of this package's data classes, plain torch values, and containers that the program itself
has registered; bytes that name anything else are rejected. The kernels in a loaded graph do run later, so the file that
holds an entry must also pass the checks of `trust`. Reading and writing files is the task of `file_store`.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import io
import pickle
import sys
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from ..ir.size import Size
from ..overlap import extent

T = TypeVar("T")

_PACKAGE = __name__.partition(".")[0] + "."
_BUILTINS = {"tuple", "list", "dict", "set", "frozenset", "slice", "complex", "int", "float", "bool", "str", "bytes",
             "range", "NoneType", "ellipsis"}  # fmt: skip
_TORCH_VALUES = (torch.dtype, torch.layout, torch.memory_format)


def dump(graph: Any) -> bytes | None:
    """The bytes of a compiled graph; None if it holds something that cannot be pickled or would not be loaded again."""
    data = io.BytesIO()
    try:
        _Pickler(data).dump(graph)
        _Unpickler(io.BytesIO(data.getvalue())).load()
    except (pickle.PickleError, TypeError, AttributeError):  # such as outputs in containers of a local class
        return None
    return data.getvalue()


def load(data: bytes, kind: type[T]) -> T | None:
    """The compiled graph in these bytes, an object of class `kind`; None if they are anything else."""
    try:
        graph = _Unpickler(io.BytesIO(data)).load()
    except MemoryError:
        raise
    except Exception:  # invalid pickles may raise any exception
        return None
    return graph if type(graph) is kind else None


class _Pickler(pickle.Pickler):
    """Pickles pytree leaves as a function call, because torch warns whenever an object of their class is created."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, pytree.TreeSpec) and value.is_leaf():
            return pytree.tree_structure, (0,)
        if type(value) is torch.Tensor:
            return tensor_of, _parts(value)
        if isinstance(value, torch.memory_format | torch.layout):  # pickle would look for them in every module
            return torch_value, (str(value).removeprefix("torch."),)
        return NotImplemented


def _parts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The arguments of `tensor_of` that rebuild `tensor`."""
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.requires_grad:
        raise pickle.PicklingError("not plain memory")
    length = extent(tensor.shape, tensor.stride())
    flat = tensor.detach().as_strided((length,), (1,)).cpu()
    data = flat.contiguous().view(torch.uint8).numpy().tobytes() if length else b""
    return data, tensor.dtype, tuple(tensor.shape), tensor.stride(), str(tensor.device)


def torch_value(name: str) -> Any:
    """The memory format or layout of this name in torch."""
    value = getattr(torch, name)
    if not isinstance(value, torch.memory_format | torch.layout):
        raise pickle.UnpicklingError(f"torch.{name} is not part of a compiled graph")
    return value


def tensor_of(
    data: bytes, dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...], device: str
) -> torch.Tensor:
    """A tensor of these sizes and strides (in elements) over a copy of `data`."""
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.to(device).as_strided(sizes, strides)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The class or function that the bytes name. UnpicklingError for one that compiled graphs do not contain."""
        if module == "builtins" and name in _BUILTINS:
            return getattr(builtins, name)
        if module == __name__ and name in (tensor_of.__name__, torch_value.__name__):
            return globals()[name]
        if module == pytree.__name__ and name in ("TreeSpec", "tree_structure"):
            return getattr(pytree, name)
        loaded: Any = super().find_class(module, name) if module.startswith(_PACKAGE) else sys.modules.get(module)
        if module.startswith(_PACKAGE):
            if _is_data(loaded):
                return loaded
        else:
            for part in name.split("."):
                loaded = getattr(loaded, part, None)
            if module == "torch" and (isinstance(loaded, _TORCH_VALUES) or loaded in (torch.device, torch.Size)):
                return loaded
            if isinstance(loaded, type) and (loaded in pytree.SUPPORTED_NODES or _is_namedtuple(loaded)):
                return loaded
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a compiled graph")


def _is_data(value: Any) -> bool:
    """Whether this is a class of plain data."""
    if not isinstance(value, type):
        return False
    return value is Size or dataclasses.is_dataclass(value) or issubclass(value, enum.Enum) or _is_namedtuple(value)


def _is_namedtuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")

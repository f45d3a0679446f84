"""Runs torch's database of modules (`common_modules.module_db`): every layer with its constructor arguments and inputs.

A case is a module that is called once. Modes: `train` (results, buffers, gradients of parameters and inputs), `eval`
(the module in eval mode, without gradients), `eval_backward` (gradients of modules that compute something else in eval
mode), `dynamic` (compiled with `dynamic=True`, and also called with another batch size), `errors` (the inputs for which
the database expects an exception).
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from op_suite_cases import Case, copy_call, dtype_name, to_double
from op_suite_compare import Outcome
from op_suite_worker import Calls, Unit, differentiable, run_cases
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
from torch.utils import _pytree as pytree

_HALF = (torch.bfloat16, torch.float16)
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.complex64)


def call_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """The function that is compiled."""
    return module(*args, **kwargs)


class _Instance:
    """A module, and the parameters and buffers that it has before each run."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.tensors = [
            (tensors, name, tensor, tensor.detach().clone())
            for part in module.modules() for tensors in (part._parameters, part._buffers)
            for name, tensor in tensors.items()
            if tensor is not None and not torch.nn.parameter.is_lazy(tensor)
        ]  # fmt: skip

    def restored(self) -> torch.nn.Module:
        """The module, with its tensors reset to their initial values."""
        with torch.no_grad():
            for tensors, name, tensor, value in self.tensors:
                tensors[name] = tensor
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
        return self.module


class ModuleCalls(Calls):
    """Calls whose input is an `_Instance`; a run replaces it by the module, always the same object."""

    def copy(self, call: Any) -> Any:
        """The module restored, and copies of its arguments."""
        instance, args, kwargs = call
        if any(map(torch.nn.parameter.is_lazy, instance.module.parameters())):
            module = copy.deepcopy(instance.module)
        else:
            module = instance.restored()
        return module, *copy_call((args, kwargs))

    def in_double(self, call: Any) -> Any:
        """A copy of the module in float64."""
        instance, args, kwargs = call
        module = copy.deepcopy(instance.restored())
        module.to(torch.complex128 if any(x.is_complex() for x in module.parameters()) else torch.float64)
        return _Instance(module), *to_double((args, kwargs))

    def leaves(self, call: Any) -> list[torch.Tensor]:
        """Parameters, and arguments that require gradients."""
        module, args, kwargs = call
        return [*(x for x in module.parameters() if x.requires_grad), *differentiable((args, kwargs))]

    def afterwards(self, call: Any) -> Any:
        """Buffers and arguments."""
        module, args, kwargs = call
        return {name: buffer.detach().clone() for name, buffer in module.named_buffers()}, args, kwargs


class ModuleUnit(Unit):
    """A module class in one mode."""

    def __init__(self, name: str, mode: str, engine: Any, device: str, tell: Callable[..., None]) -> None:
        self.name, self.mode, self.engine, self.device, self.tell = name, mode, engine, device, tell
        self.function: Callable[..., Any] = call_module
        self.backward = mode in ("train", "eval_backward")
        self.calls = ModuleCalls()
        self.values_differ = set()

    def run(self, fn: Callable[..., Any], cases: Sequence[Case], calls: Sequence[Any], seed: int = 0) -> list[Outcome]:
        """`fn` on copies of the calls; gradients are recorded where they are compared."""
        with torch.set_grad_enabled(self.backward):
            return super().run(fn, cases, calls, seed)


class Modules:
    """The database."""

    modes = ("train", "eval", "eval_backward", "dynamic", "errors")

    def __init__(self) -> None:
        self.infos = {info.name: info for info in module_db}

    def names(self) -> list[str]:
        """Names of classes, such as `nn.Linear`."""
        return list(self.infos)

    def run(self, name: str, request: dict[str, Any], engine: Any, tell: Callable[..., None]) -> None:
        """Runs a unit."""
        info, mode = self.infos[name], request["mode"]
        unit = ModuleUnit(name, mode, engine, request["device"], tell)
        wanted = [
            dtype for dtype in DTYPES
            if dtype_name(dtype) in request["dtypes"] and (dtype in info.dtypes or dtype in _HALF)
        ]  # fmt: skip
        run_cases(unit, lambda: _cases(info, mode, request["device"], wanted, request["samples"]), request, tell)


@functools.cache
def modules() -> Modules:
    """`module_db`."""
    return Modules()


def _cases(info: Any, mode: str, device: str, dtypes: Sequence[torch.dtype], most: int) -> Iterator[Case]:
    if mode == "errors":
        yield from _error_cases(info, device)
        return
    if mode == "eval_backward" and not info.train_and_eval_differ:
        return
    training = mode in ("train", "dynamic")
    backward = mode in ("train", "eval_backward")
    for dtype in dtypes:
        torch.manual_seed(0)
        listed = dtype if dtype in info.dtypes else torch.float32  # few entries list half precision
        inputs = list(info.module_inputs_func(info, device, listed, backward, training))
        for index in _chosen(len(inputs), most):
            given = inputs[index]
            module = _build(info, given, device, dtype, training)
            arguments = tuple(given.forward_input.args), dict(given.forward_input.kwargs)
            if listed is not dtype:
                arguments = _converted(arguments, dtype)
            call = (_Instance(module), *arguments)
            partner = _larger_batch(call) if mode == "dynamic" else None
            yield Case(f"{dtype_name(dtype)}:{index}", dtype, call, lambda out: out, partner)


def _converted(arguments: Any, dtype: torch.dtype) -> Any:
    """Floating tensors as leaves of that dtype."""
    def leaf(x: torch.Tensor) -> torch.Tensor:
        return x.detach().to(dtype).requires_grad_(x.requires_grad) if x.is_floating_point() else x

    return pytree.tree_map_only(torch.Tensor, leaf, arguments)


def _chosen(count: int, most: int) -> list[int]:
    """Up to `most` indices, spread evenly; all where `most` is 0."""
    most = min(most or count, count)
    return sorted({k * count // most for k in range(most)})


def _build(info: Any, given: Any, device: str, dtype: torch.dtype | None, training: bool) -> torch.nn.Module:
    torch.manual_seed(1)
    args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
    module = info.module_cls(*copy_call(args), **copy_call(kwargs))
    return module.to(device=device, dtype=dtype).train(training)


def _larger_batch(call: Any) -> Any:
    """The call with every tensor repeated along the first dimension, or None if eager rejects that."""
    instance, args, kwargs = call
    try:
        larger = pytree.tree_map_only(torch.Tensor, lambda x: torch.cat([x, x]) if x.dim() else x, (args, kwargs))
        with torch.no_grad():
            copy.deepcopy(instance.restored())(*larger[0], **larger[1])
    except Exception:  # of any type: if eager raises, there is no such call
        return None
    return instance, *larger


def _error_cases(info: Any, device: str) -> Iterator[Case]:
    if info.module_error_inputs_func is None:
        return
    listed = itertools.chain.from_iterable(
        info.module_error_inputs_func(info, device, torch.float32, False, training) for training in (True, False)
    )
    for index, error in enumerate(listed):
        if error.error_on is ModuleErrorEnum.FORWARD_ERROR:
            given = error.module_error_input
            module = _build(info, given, device, torch.float32, True)
            call = (_Instance(module), tuple(given.forward_input.args), dict(given.forward_input.kwargs))
            yield Case(f"error:{index}", None, call, lambda out: out)

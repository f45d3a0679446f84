"""Provides fake tensor modes and `make_fx` without importing torch._dynamo and torch._inductor.

torch's own FakeTensorMode and `make_fx` import both packages, which takes 1.2 s. The versions here also correct torch
where tracing differs from eager: fake FFT operators (`fake_fft`), strides (`fake_layout`) and wrong decompositions
(`torch_mistakes`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental import proxy_tensor
from torch.nested._internal.nested_int import NestedIntNode
from torch.types import py_sym_types

from .._C import FakeDispatch
from ..process.import_stubs import peers_loaded, stub_torch_compiler
from ..torch_compat import set_device_guards
from .fake_fft import mend_fft
from .fake_layout import mend_layouts
from .fake_memo import remembering
from .new_fakes import converting_plain
from .torch_mistakes import without_mistakes
from .trace_memo import remember_calls


def fake_mode(**options: Any) -> FakeTensorMode:
    """A FakeTensorMode with these options that does not import torch._dynamo and torch._inductor.

    With a `shape_env` they are imported, because symbolic sizes keep their sources.
    """
    with stub_torch_compiler:
        mend_fft()
        mend_layouts()
        mode = FakeTensorMode(**options)
    set_device_guards(mode)
    converter = mode.fake_tensor_converter
    convert = _without_value(converter.from_real_tensor)
    converter.from_real_tensor = converting_plain(convert)  # type: ignore[method-assign]
    if options.get("shape_env") is None:
        mode.create_symbolic_nested_int = nested_int  # type: ignore[method-assign]
    if options.get("shape_env") is None and not peers_loaded():
        for method in _METHODS:  # set on the instance: torch's operators look up handlers by the exact type of a mode
            setattr(mode, method.__name__, types.MethodType(method, mode))
    run = mode.__torch_dispatch__
    if not options.get("shape_env"):
        mode.cache_enabled = False  # torch's memory of calls takes longer than `remembering`, which replaces it
        run = remembering(mode, run)
    dispatch = FakeDispatch(run, torch.ops.prim.device.default, torch.device("meta"))
    mode.__torch_dispatch__ = dispatch  # type: ignore[method-assign,assignment]
    return mode


_NESTED_INTS = itertools.count(1 << 40)  # not those of tensors of the program


def nested_int(*, nt_tensor_id: int | None = None) -> Any:
    """The number that stands for the ragged size of jagged tensors with the same offsets: the one of the real offsets
    in this call, or a new one. It depends on no shape environment, as it only ever equals itself."""
    found = next(_NESTED_INTS) if nt_tensor_id is None else nt_tensor_id
    return torch.SymInt(NestedIntNode(found, 1))


def _without_value(convert: Callable[..., FakeTensor]) -> Callable[..., FakeTensor]:
    """`convert` without remembered values. Since torch 2.14, the fake tensor of a number remembers its value, and
    `.item()` would return it as a constant of the graph that no guard protects. The value of an input is not known, so
    it is forgotten; a symbol (for which `convert` gets a source) is kept."""

    @functools.wraps(convert)
    def call(*args: Any, **kwargs: Any) -> FakeTensor:
        with _warnings_are_no_errors():
            fake = convert(*args, **kwargs)
        if isinstance(fake, FakeTensor) and isinstance(fake.item_memo, int | float):  # False for wrapper subclasses
            fake.item_memo = None
        return fake

    return call


def _warnings_are_no_errors() -> contextlib.AbstractContextManager[Any]:
    """Keeps warnings of torch's conversion to fake tensors from becoming errors under `python -W error`. The conversion
    reads `.grad` of tensors that are not leaves and suppresses only the printing of the resulting warning."""
    if all(action != "error" for action, *_ in warnings.filters):
        return contextlib.nullcontext()
    return warnings.catch_warnings(action="ignore")


def forget_tensors(mode: FakeTensorMode) -> None:
    """Drop the mode's weak references to real tensors, because `torch.utils.swap_tensors` refuses tensors that have
    any. A tensor that is converted again gets a new fake tensor."""
    mode.fake_tensor_converter.meta_converter.describer.lookup_tensor.clear()


def _lightly(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with stub_torch_compiler:
            return method(*args, **kwargs)

    return call


# Methods that import torch._dynamo on every use, not only when the mode is created.
_METHODS = (_lightly(FakeTensorMode.__torch_dispatch__), _lightly(FakeTensorMode.from_tensor))


def _forget_pending_symbols(args: tuple[Any, ...]) -> None:
    """Forget unbacked symbols created before a trace by operators outside of it: no node of the trace produces them."""
    for x in args:
        if isinstance(x, FakeTensor) and x.fake_mode.shape_env is not None:
            x.fake_mode.shape_env.pending_fresh_unbacked_symbols.clear()


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x._has_symbolic_sizes_strides or isinstance(x, py_sym_types)


def _on_cpu(args: tuple[Any, ...]) -> bool:
    return all(x.device.type == "cpu" for x in args if isinstance(x, torch.Tensor))


def make_fx(function: Callable[..., Any], **options: Any) -> Callable[..., torch.fx.GraphModule]:
    """torch's `make_fx`, without importing torch._dynamo and torch._inductor, and without wrong decompositions.

    If no size is symbolic, it runs without torch's mode that notes for each node the function that the program called.
    Nothing here reads that, and the mode takes microseconds at each read of an attribute of a tensor. The Python code
    of the resulting module is generated if something runs or prints it; the compiler does not.
    """

    def trace(*args: Any) -> torch.fx.GraphModule:
        symbolic = any(map(_is_symbolic, args))
        with stub_torch_compiler, without_mistakes(not symbolic and _on_cpu(args)), _use_lazy_graph_module(True):
            # torch's tracer uses this module and relies on torch._dynamo to have imported it
            import torch._higher_order_ops.triton_kernel_wrap  # noqa: F401

            _forget_pending_symbols(args)
            options["_disable_torch_fn_metadata_mode"] = not symbolic
            return proxy_tensor.make_fx(remember_calls(function), **options)(*args)

    return trace

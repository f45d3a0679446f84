"""The public functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from . import _C, metrics
from .backends import find_backend
from .driver import FrameCompiler
from .errors import UserError
from .module import CompiledModule, compile_module, run_module
from .options import make_options
from .report.explain import Explanation
from .vars import torchfn


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or an nn.Module; signature and meaning follow torch.compile.

    fullgraph: raise `errors.Unsupported` instead of breaking the graph.  backend: "inductor", "eager", "aot_eager", a
    registered name, or a callable `(gm, example_inputs) -> callable`.  options: see `options.Options`.  disable: return
    `model` as it is.  Without `model`, returns a decorator.  Raises `errors.UserError` for anything not accepted.
    """
    settings = {
        "fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode, "options": options,
        "disable": disable,
    }  # fmt: skip
    checked = make_options(fullgraph, dynamic, mode, options)
    chosen = find_backend(backend)
    if model is None:
        return lambda fn: compile(fn, **settings)
    if not callable(model):
        raise UserError(f"compile() needs a function or an nn.Module, got {type(model).__name__}: {model!r}")
    if disable:
        return model
    compiler = FrameCompiler(chosen, checked, backend if isinstance(backend, str) else repr(backend))
    return _compile_with(model, compiler, settings)


def _compile_with(model: Any, compiler: FrameCompiler, settings: dict[str, Any]) -> Any:
    _C.bind_torch()
    if isinstance(model, CompiledModule):
        model = model._pyframe_original
    if isinstance(model, nn.Module):
        compiler.always.add(run_module.__code__)
        run = _C.CompiledFunction(run_module, compiler)
        return compile_module(model, run, functools.partial(compile, **settings), settings)
    if isinstance(model, _C.CompiledFunction | _C.DisabledFunction):
        model = model.__wrapped__
    function = getattr(model, "__func__", model)
    if not hasattr(function, "__code__"):
        def call(*args: Any, **kwargs: Any) -> Any:
            return model(*args, **kwargs)

        functools.update_wrapper(call, model, updated=())
        model = function = call
    compiler.always.add(function.__code__)
    return _C.CompiledFunction(model, compiler)


def explain(fn: Callable[..., Any], **settings: Any) -> Callable[..., Explanation]:
    """`explain(fn)(*args)` runs `fn` once under a fresh capture and tells what happened; settings as for compile."""

    def run(*args: Any, **kwargs: Any) -> Explanation:
        backend = settings.get("backend", "inductor")
        checked = make_options(
            settings.get("fullgraph", False), settings.get("dynamic"), settings.get("mode"), settings.get("options")
        )
        compiler = FrameCompiler(find_backend(backend), checked, str(backend))
        compiler.captures = []
        result = _compile_with(fn, compiler, {"backend": backend})(*args, **kwargs)
        return Explanation(compiler.captures, result)

    return run


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True) -> Any:
    """`fn` as a function that is never captured; with `recursive`, nor is anything that it calls."""
    if fn is None:
        return functools.partial(disable, recursive=recursive)
    if not callable(fn):
        raise UserError(f"disable() needs a callable, got {fn!r}")
    if isinstance(fn, _C.CompiledFunction):
        fn = fn.__wrapped__
    return _C.disable_wrapper(fn)


def graph_break() -> None:
    """Ends the graph here when captured; does nothing otherwise."""


def is_compiling() -> bool:
    """True while the caller is being captured."""
    return False


def reset() -> None:
    """Forget every capture and clear the counters."""
    _C.reset_all()
    metrics.clear()


torchfn.BREAKS[graph_break] = "explicit-break"
torchfn.COMPILING.add(is_compiling)

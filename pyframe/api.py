"""The public functions of pyframe: `compile`, `explain`, `disable`, `reset`, and the functions that force others into
the graph or keep them out of it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from inductor.budget import Budget
from inductor.compile_report import keeping_artifacts
from inductor.process.compile_lock import importing

from . import _C
from .callables import caller_of, compile_class, original, python_function, suspends
from .core.files import skipped_file
from .errors import UserError
from .lazy_compiler import LazyCompiler, import_part
from .markers import compilers
from .markers import graph_break as graph_break
from .markers import is_compiling as is_compiling
from .markers import reset as reset
from .module import CompiledModule, compile_module, run_module
from .options import Options, make_options
from .shared_captures import root_of, shared_compiler, with_siblings

if TYPE_CHECKING:
    from .backward.program import Settings
    from .backward.scope import CompiledAutograd
    from .driver import FrameCompiler
    from .report.explain import Explanation


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
) -> Any:
    """Compile an nn.Module, a function or any other callable; signature and meaning follow torch.compile.

    A class is modified in place and returned: calls of its instances are compiled.

    fullgraph: raise `errors.Unsupported` instead of breaking the graph. backend: "inductor", "eager", "aot_eager", a
    name registered here or with torch.compile, or a callable `(gm, example_inputs) -> callable`, which gets real
    tensors. options: see `options.Options`; a backend that is not pyframe's own also receives them and `mode`. name:
    has no effect. disable: return `model` unchanged. recompile_limit: as the option of that name.

    Calls of `compile` with the same model and settings share captures, and the limit of their number; modules of one
    class, and functions with the same code, share those captures whose guards hold for both. With isolate_recompiles,
    the result has captures of its own. Without `model`, returns a decorator. Raises
    `errors.UserError` for invalid arguments.
    """
    settings: dict[str, Any] = {
        "fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode, "options": options, "name": name,
        "disable": disable, "recompile_limit": recompile_limit, "isolate_recompiles": isolate_recompiles,
    }  # fmt: skip
    _check_types(name, recompile_limit, isolate_recompiles)
    checked, chosen = _checked(backend, fullgraph, dynamic, mode, options)
    if recompile_limit is not None:
        checked = dataclasses.replace(checked, limit=recompile_limit)
    if model is None:
        return lambda fn: compile(fn, **settings)
    if not callable(model) and not isinstance(model, classmethod):
        raise UserError(f"compile() needs a function or an nn.Module, got {type(model).__name__}: {model!r}")
    if disable:
        return model
    made = _compiler(chosen, checked, backend)
    compiler = made if isolate_recompiles else shared_compiler(_unwrapped(model), with_siblings(made))
    compiled = _compile_with(model, compiler, settings)
    return _with_backwards(compiled, settings) if checked.compiled_autograd else compiled


compilers.append(compile)


def _with_backwards(compiled: Any, settings: dict[str, Any]) -> Any:
    """`compiled`, whose calls also capture the backward passes that they start."""
    if not isinstance(compiled, _C.CompiledFunction):
        raise UserError("the option compiled_autograd is for functions; for modules and classes, use "
                        "pyframe.compiled_autograd() around the call of backward()")  # fmt: skip
    options = {name: value for name, value in settings["options"].items() if name != "compiled_autograd"}
    shared = {name: settings[name] for name in ("dynamic", "backend", "mode")}
    return compiled_autograd(**shared, options=options)(compiled)


def _compiler(chosen: Any, options: Options, backend: Any) -> FrameCompiler | LazyCompiler:
    """A compiler with this backend: a dict of settings for pyframe's own."""
    if isinstance(chosen, dict):
        lazy = LazyCompiler(options, chosen)
        if options.background:  # `compile` may take its time, which calls may not
            lazy.compiler()
            importing(lambda: importlib.import_module("inductor.compile")).prepare()
        return lazy
    made: FrameCompiler = import_part("driver").FrameCompiler(
        chosen, options, backend if isinstance(backend, str) else repr(backend)
    )
    return made


def compiled_autograd(
    enabled: bool = True,
    *,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> CompiledAutograd:
    """A context manager and decorator: backward passes that this thread starts inside are captured and compiled.

        with pyframe.compiled_autograd():
            loss.backward()

    For programs whose forward runs eagerly, as a whole or in parts. Derivatives of operators, hooks, backwards of
    `torch.autograd.Function`s and the accumulation into `.grad` become one function, which is compiled as by `compile`
    with these settings; hooks that cannot be traced break its graph. It serves all backward passes with the same
    structure; sizes that vary are symbols. The backward of a graph that is compiled already is called as it is.

    enabled: if False, backward passes inside run eagerly. Passes with `create_graph=True`, under anomaly detection, a
    dispatch mode or a transform run eagerly, and so does, after one warning, a pass that torch cannot describe. Raises
    `errors.UserError` for invalid arguments.
    """
    if not isinstance(enabled, bool):
        raise UserError(f"enabled must be True or False, not {enabled!r}")
    settings: dict[str, Any] = {"dynamic": dynamic, "backend": backend, "mode": mode, "options": options}
    _checked(backend, False, dynamic, mode, options)
    scope: CompiledAutograd = import_part("backward.scope").CompiledAutograd(
        _backward_settings(settings) if enabled else None
    )
    return scope


def _backward_settings(settings: dict[str, Any]) -> Settings:
    compile_program = functools.partial(compile, isolate_recompiles=True, **settings)
    made: Settings = import_part("backward.program").Settings(compile_program)
    return made


def capture_all_backwards(wanted: bool) -> None:
    """Called when `config.compiled_autograd` is set."""
    if not wanted and f"{__package__}.backward.engine" not in sys.modules:
        return
    engine = import_part("backward.engine")
    if wanted != engine.is_on_for_process():
        engine.set_of_process(_backward_settings({}) if wanted else None)


def _check_types(name: Any, recompile_limit: Any, isolate_recompiles: Any) -> None:
    if not (name is None or isinstance(name, str)):
        raise UserError(f"name must be a string or None, not {name!r}")
    if not (recompile_limit is None or type(recompile_limit) is int and recompile_limit > 0):
        raise UserError(f"recompile_limit must be a positive int or None, not {recompile_limit!r}")
    if not isinstance(isolate_recompiles, bool):
        raise UserError(f"isolate_recompiles must be True or False, not {isolate_recompiles!r}")


def _unwrapped(model: Any) -> Any:
    """What `model` compiles: the model itself, or what an earlier `compile` or `disable` got."""
    model = original(model)
    return model._pyframe_original if isinstance(model, CompiledModule) else model


def _checked(
    backend: Any, fullgraph: bool, dynamic: bool | None, mode: str | None, options: Mapping[str, Any] | None
) -> tuple[Options, Any]:
    """The validated options, and the backend with the keyword arguments that it needs bound to it; for the default one
    these arguments."""
    if backend == "inductor" and isinstance(backend, str) and _is_own_inductor():
        checked = make_options(fullgraph, dynamic, mode, options)
        return checked, {"strict": checked.strict, "verify": checked.verify, **_other_options(checked)}
    backends = import_part("backends")
    mode, options, passed = backends.split_settings(backend, mode, options)
    checked = make_options(fullgraph, dynamic, mode, options)
    chosen = backends.find_backend(backend, checked.strict, checked.verify, **_other_options(checked))
    checked = dataclasses.replace(checked, float_inputs=backends.takes_fake_tensors(chosen))
    return checked, functools.partial(chosen, **passed) if passed else chosen


def _is_own_inductor() -> bool:
    """Whether the program has not registered another backend as "inductor"."""
    backends = sys.modules.get(f"{__package__}.backends")
    return backends is None or backends.is_own("inductor")


def _other_options(checked: Options) -> dict[str, Any]:
    """The options of pyframe's own backends that are not as by default."""
    defaults = Options()
    names = (
        "cudagraphs", "max_autotune", "bucket_collectives", "background", "cache", "measure", "transforms", "freezing",
    )  # fmt: skip
    other = {name: getattr(checked, name) for name in names if getattr(checked, name) != getattr(defaults, name)}
    if checked.budget_s is not None:
        other["budget_s"] = Budget(checked.budget_s)
    return other


def _compile_with(model: Any, compiler: FrameCompiler | LazyCompiler, settings: dict[str, Any]) -> Any:
    with _disable_current_modes():
        _C.bind_torch()
    model = _unwrapped(model)
    if isinstance(model, nn.Module):
        root = root_of(compiler, model)
        compiler.always.add(root.__code__)
        run = _C.CompiledFunction(root, compiler)
        return compile_module(model, run, functools.partial(compile, **settings), compile_again, settings)
    if isinstance(model, staticmethod | classmethod):
        return type(model)(_compile_with(model.__func__, compiler, settings))
    if isinstance(model, type):
        return compile_class(model, functools.partial(_compile_with, compiler=compiler, settings=settings))
    function = python_function(model)
    reported = compiler.options.fullgraph or compiler.captures is not None
    # CPython alone runs the frame of a generator. The capture of its caller raises, or reports that it runs eagerly.
    if function is None or _is_modelled(function) or (reported and suspends(function)):
        function = caller = caller_of(model)
    else:
        caller = model
    compiler.always.add(function.__code__)
    compiled = _C.CompiledFunction(caller, compiler)
    compiled.__wrapped__ = model
    vars(compiled)["_pyframe_reduced"] = compile_again, (model, settings)  # read by __reduce__
    return compiled


def _is_modelled(function: types.FunctionType) -> bool:
    """Whether a call of `function` is modelled, not traced through, so that a frame of its own cannot be captured. The
    models are those of functions of libraries; nothing else has any before the compiler is imported."""
    unmarked = f"{__package__}.vars.registry" not in sys.modules and "torch._dynamo" not in sys.modules
    if unmarked and not skipped_file(function.__code__.co_filename) and not vars(function):
        return False
    call_model = import_part("vars.registry").call_model
    torch_functions = import_part("vars.torch_objects.torch_functions")
    import_part("driver")  # registers the models
    models = call_model(function), call_model(function.__code__)
    return models != (None, None) or torch_functions.is_torch_function(function)


def compile_again(model: Any, settings: dict[str, Any]) -> Any:
    """Called by unpickling: `compile(model, **settings)`."""
    return compile(model, **settings)


def explain(fn: Callable[..., Any], **settings: Any) -> Callable[..., Explanation]:
    """`explain(fn)(*args)` runs `fn` once under a fresh capture and returns a report; settings as for `compile`.

    Where compiled autograd is on, the report includes the backward passes that `fn` starts.
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        backend = settings.get("backend", "inductor")
        given = (settings.get(name) for name in ("dynamic", "mode", "options"))
        checked, chosen = _checked(backend, settings.get("fullgraph", False), *given)
        made = _compiler(chosen, checked, backend)
        compiler = made.compiler() if isinstance(made, LazyCompiler) else made
        compiler.captures = []
        reported = import_part("backward.program").Settings(
            lambda program: _compile_with(program, compiler, {"backend": backend})
        )
        wanted = reported if checked.compiled_autograd or import_part("backward.engine").is_on() else None
        with keeping_artifacts(), import_part("backward.scope").CompiledAutograd(wanted):
            result = _compile_with(fn, compiler, {"backend": backend})(*args, **kwargs)
        found: Explanation = import_part("report.explain").Explanation(compiler.captures, result)
        return found

    return run


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True) -> Any:
    """Return `fn` as a function (or nn.Module) that is never captured; with `recursive`, neither is anything that it
    calls.

    Without `recursive`, `fn` itself is marked and returned: it runs uncompiled, but functions that it calls are
    captured.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive)
    if not callable(fn):
        raise UserError(f"disable() needs a callable, got {fn!r}")
    if isinstance(fn, CompiledModule):
        fn = fn._pyframe_original
    if isinstance(fn, _C.CompiledFunction):
        fn = fn.__wrapped__
    if not recursive:
        return _disable_alone(fn)
    if isinstance(fn, nn.Module):
        return compile_module(fn, _C.disable_wrapper(run_module), disable, compile_again, {"disable": True})
    disabled = _C.disable_wrapper(fn)
    vars(disabled)["_pyframe_reduced"] = disable, (fn,)
    return disabled


def _disable_alone(fn: Any) -> Any:
    function = type(fn).forward if isinstance(fn, nn.Module) else getattr(fn, "__func__", fn)
    if not isinstance(function, types.FunctionType):
        raise UserError(f"disable(recursive=False) needs a function or a module written in Python, got {fn!r}")
    _C.skip_code(function.__code__)
    _directives().SKIPPED.add(function)
    return fn


def _directives() -> Any:
    """The module that knows which functions the program has marked."""
    import_part("driver")  # in the order in which its parts are always imported
    return import_part("vars.torch_objects.user_directives")


def _torch_functions() -> Any:
    import_part("driver")
    return import_part("vars.torch_objects.torch_functions")


def allow_in_graph(fn: Any) -> Any:
    """Put calls of `fn` into the graph as single nodes, without tracing into it; returns `fn`.

    `fn` runs once on fake tensors during capture, and the backend sees the call. Only for functions of tensors and
    constants without side effects: globals, closures and attributes that `fn` reads are not guarded. Given a list or
    tuple, marks each item.
    """
    if isinstance(fn, list | tuple):
        return [allow_in_graph(each) for each in fn]
    if not callable(fn):
        raise UserError(f"allow_in_graph() needs a callable, got {fn!r}")
    torch_functions = _torch_functions()
    torch_functions.BREAKS.pop(fn, None)
    torch_functions.IN_GRAPH.add(fn)
    return fn


def disallow_in_graph(fn: Any) -> Any:
    """Break the graph at calls of `fn`, a torch function or one given to `allow_in_graph`; returns `fn`.

    For functions that a backend cannot handle. Given a list or tuple, marks each item.
    """
    if isinstance(fn, list | tuple):
        return [disallow_in_graph(each) for each in fn]
    torch_functions = _torch_functions()
    if not torch_functions.is_torch_function(fn):
        raise UserError(f"disallow_in_graph() needs a function that would be put into a graph, got {fn!r}")
    torch_functions.IN_GRAPH.discard(fn)
    torch_functions.BREAKS[fn] = "disallowed-function"
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Call `fn` once during capture and treat its result as a constant afterwards; returns `fn`.

    The result is not guarded: if `fn` would later return something else, compiled code still uses the first result. Its
    arguments must be constants or objects that exist before the compiled function is called.
    """
    function = getattr(fn, "__func__", fn)
    if not isinstance(function, types.FunctionType):
        raise UserError(f"assume_constant_result() needs a function written in Python, got {fn!r}")
    _directives().CONSTANT_RESULTS.add(function)
    return fn


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: where the program calls `original_fn` (for example a function written in C), trace the decorated
    function.

    can_constant_fold_through: `original_fn` is pure and is called during capture when all arguments are constants.
    skip_signature_check: do not compare the parameters of the two functions. Calling the decorated function directly
    calls `original_fn`.
    """
    kinds = (
        types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, type,
    )  # fmt: skip
    if not isinstance(original_fn, kinds):
        raise UserError(f"substitute_in_graph() replaces functions and classes, not {original_fn!r}")

    def substitute(replacement: Callable[..., Any]) -> Callable[..., Any]:
        if not isinstance(replacement, types.FunctionType):
            raise UserError(f"substitute_in_graph() needs a replacement written in Python, got {replacement!r}")
        _directives().substitute(original_fn, replacement, can_constant_fold_through, not skip_signature_check)

        @functools.wraps(replacement)
        def call(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        return call

    return substitute

"""The points at which an exception can be raised, and the counter that raises it at the k-th of them.

`interrupt` and `memory` points are the places where CPython handles a signal: after a call has returned and before its
result is used, and at the start of a function. They are inserted by rewriting the sources of pyframe and inductor when
these are imported, so that neither a trace function nor a tool of `sys.monitoring` is needed (pyframe is inactive under
both). `exit` points follow the exit of each context manager of a `with` statement in these sources, and the exit of
torch's modes everywhere; context manager classes that programs use are not changed, because a capture would see it. The
other kinds wrap functions: imports of modules that are not loaded, taking locks, calls of the backend and of the
function that it returns.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
POINT, CONTEXT = "_fault_point", "_fault_context"
STATEMENTS = ("interrupt", "memory")
_TRACED = ("pyframe.vars.polyfills", "pyframe.module")  # functions that captures inline
KINDS = (*STATEMENTS, "import", "exit", "lock", "callback", "alloc", "signal")


class Injected(Exception):
    """The exception that only this tool raises."""


class Counter:
    """Counts the points of one kind from `arm` to `disarm`, and raises at number `at` (0: never)."""

    def __init__(self) -> None:
        self.kind = ""
        self.at = self.seen = 0
        self.error: type[BaseException] = Injected
        self.where = ""

    def arm(self, kind: str, at: int) -> None:
        self.error = {"interrupt": KeyboardInterrupt, "memory": MemoryError}.get(kind, Injected)
        self.where, self.seen, self.at = "", 0, at
        self.kind = "statement" if kind in STATEMENTS else kind

    def disarm(self) -> None:
        self.kind = ""

    def hit(self, kind: str, frame: int = 2) -> None:
        if self.kind != kind:
            return
        self.seen += 1
        if 0 < self.at <= self.seen and not (self.error is KeyboardInterrupt and _importing()):
            caller = sys._getframe(frame)
            self.where = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno} {caller.f_code.co_qualname}"
            self.disarm()
            raise self.error("injected")


def _importing() -> bool:
    """Whether an import is in progress: during a capture, signal handlers wait for its end."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals is not vars(importlib._bootstrap):  # type: ignore[attr-defined]
        frame = frame.f_back
    return frame is not None


counter = Counter()


def point(value: Any = None) -> Any:
    """Called by the rewritten sources: returns `value` or raises."""
    if counter.kind == "statement":
        counter.hit("statement")
    return value


class context:
    """Wrapped by the rewritten sources around the context manager of a `with` statement."""

    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __enter__(self) -> Any:
        return type(self.inner).__enter__(self.inner)

    def __exit__(self, *error: Any) -> Any:
        handled = type(self.inner).__exit__(self.inner, *error)
        counter.hit("exit")
        return handled


class _AddPoints(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.Call(ast.Name(POINT, ast.Load()), [node], []), node)

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        for item in node.items:
            inner = item.context_expr
            item.context_expr = ast.copy_location(ast.Call(ast.Name(CONTEXT, ast.Load()), [inner], []), inner)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(child) for child in node.body]  # decorators run when modules load
        starts = ast.Expr(ast.Call(ast.Name(POINT, ast.Load()), [], []))
        documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
        node.body.insert(1 if documented else 0, ast.copy_location(starts, node.body[0]))
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        tree = _AddPoints().visit(ast.parse(Path(path).read_bytes(), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        setattr(module, POINT, point)
        setattr(module, CONTEXT, context)
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the two packages and inserts points into them, except into modules that are themselves
    traced."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] not in ("pyframe", "inductor") or name.startswith(_TRACED):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader) and spec.origin:
            spec.loader = _Loader(name, spec.origin)
        return spec


def rewrite_imports() -> None:
    """From now on, modules of pyframe and inductor are imported with points in them."""
    sys.meta_path.insert(0, _Finder())


class _ImportPoints(importlib.abc.MetaPathFinder):
    """A finder that is called for each import of a module that is not loaded, and finds nothing."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> Any:
        counter.hit("import")
        return None


def _after(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        counter.hit(kind)
        return result

    return call


def wrap_functions() -> None:
    """Adds the points of the kinds `import` and `lock`, and those of torch's modes. Call it after pyframe and inductor
    are imported."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

    from inductor.cache import claims
    from inductor.process.import_stubs import stub_torch_compiler
    from pyframe import _C

    for function in (point, counter.hit, context.__enter__, context.__exit__):  # parts of our own sources
        _C.skip_code(function.__code__)

    sys.meta_path.insert(0, _ImportPoints())
    for cls in (FakeTensorMode, FunctionalTensorMode, ProxyTorchDispatchMode):
        cls.__exit__ = _after(cls.__exit__, "exit")  # type: ignore[method-assign]
    claims._create = _after(claims._create, "lock")
    type(stub_torch_compiler).__enter__ = _after(type(stub_torch_compiler).__enter__, "lock")  # type: ignore[method-assign]


def calling_back(backend: Callable[..., Any]) -> Callable[..., Any]:
    """A backend that is a point before and after it compiles."""

    def compile_graph(gm: Any, inputs: Any) -> Any:
        counter.hit("callback")
        compiled = backend(gm, inputs)
        counter.hit("callback")
        return compiled

    return compile_graph

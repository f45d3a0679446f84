"""The points at which an exception can be raised, and the counter that raises it at the k-th of them.

`interrupt` and `memory` points are the places where CPython handles a signal: after each call returns and before its
result is used, and where a function starts.  They are made by rewriting the sources of pyframe and inductor as they are
imported, so that neither a trace function nor a tool of `sys.monitoring` is needed (under those, pyframe stands aside).
The other kinds are made by wrapping functions: imports of modules that are not loaded, exits of torch's modes, taking
locks, calls of the backend and of what it returns.
"""

from __future__ import annotations

import ast
import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
POINT = "_fault_point"
STATEMENTS = ("interrupt", "memory")
_TRACED = ("pyframe.vars.polyfills", "pyframe.module")  # functions that captures inline
KINDS = (*STATEMENTS, "import", "exit", "lock", "callback", "alloc")


class Injected(Exception):
    """Raised by the tool alone."""


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
        if self.seen == self.at:
            caller = sys._getframe(frame)
            self.where = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno} {caller.f_code.co_qualname}"
            self.disarm()
            raise self.error("injected")


counter = Counter()


def point(value: Any = None) -> Any:
    """What the rewritten sources call: `value`, or an exception."""
    if counter.kind == "statement":
        counter.hit("statement")
    return value


class _AddPoints(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return ast.copy_location(ast.Call(ast.Name(POINT, ast.Load()), [node], []), node)

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
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the two packages with points in them; those that are traced themselves stay as they are."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> Any:
        if name.split(".")[0] not in ("pyframe", "inductor") or name.startswith(_TRACED):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader) and spec.origin:
            spec.loader = _Loader(name, spec.origin)
        return spec


def rewrite_imports() -> None:
    """From now on pyframe and inductor are imported with points in them."""
    sys.meta_path.insert(0, _Finder())


class _ImportPoints(importlib.abc.MetaPathFinder):
    """Sees each import of a module that is not loaded, and finds none."""

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
    """Makes the points of the kinds `import`, `exit` and `lock`; after pyframe and inductor are imported."""
    import filelock
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

    from inductor.aot.standins import light_torch

    sys.meta_path.insert(0, _ImportPoints())
    grads = (torch.no_grad, torch.enable_grad, torch.autograd.grad_mode.set_grad_enabled)
    modes = (FakeTensorMode, FunctionalTensorMode, ProxyTorchDispatchMode, torch.autocast, type(light_torch))
    for cls in (*grads, *modes):
        cls.__exit__ = _after(cls.__exit__, "exit")  # type: ignore[method-assign]
    filelock.FileLock.acquire = _after(filelock.FileLock.acquire, "lock")  # type: ignore[method-assign]
    type(light_torch).__enter__ = _after(type(light_torch).__enter__, "lock")  # type: ignore[method-assign]


def calling_back(backend: Callable[..., Any]) -> Callable[..., Any]:
    """A backend that is a point before and after it compiles."""

    def compile_graph(gm: Any, inputs: Any) -> Any:
        counter.hit("callback")
        compiled = backend(gm, inputs)
        counter.hit("callback")
        return compiled

    return compile_graph

"""Models `RemovableHandle`, the result of registering a hook. Its number (`id`) is taken from a global counter when the
real handle is created, so it is unknown while tracing."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.hooks import RemovableHandle

from ..codegen import Codegen
from ..containers.sequence import ListVar, TupleVar
from ..objects.functions import FunctionVar
from ..objects.instances import InstanceVar
from ..protocol.base import Var
from ..protocol.const import ConstVar
from ..registry import register
from ..tracer import Tracer

_REMOVE: Any = RemovableHandle.remove


class HookIdVar(Var):
    """The number of a handle and key of its hook, assigned when the real handle is created."""

    __slots__ = ()

    def describe(self) -> str:
        return "the id of a hook"

    def compare(self, tx: Tracer, op: str, other: Var) -> Var | None:
        if op not in ("==", "!=") or not isinstance(other, HookIdVar):
            return self.unsupported(tx, op)
        return ConstVar((other is self) == (op == "=="))

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_call(_next_id)


def _next_id() -> int:
    number = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    return number


class HooksRefVar(Var):
    """A weak reference to a dict of hooks, which the module or tensor owns."""

    __slots__ = ("hooks",)

    def __init__(self, hooks: Var) -> None:
        super().__init__()
        self.hooks = hooks

    def python_type(self) -> type:
        return weakref.ReferenceType

    def describe(self) -> str:
        return f"a weak reference to {self.hooks.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        return self.hooks

    def reconstruct(self, cg: Codegen) -> None:
        cg.load_const(weakref.ref)
        cg.call_top(lambda: cg.load(self.hooks))


@register(RemovableHandle)
def _handle(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    hooks = args[0] if args else kwargs["hooks_dict"]
    extra = kwargs.get("extra_dict", ConstVar(None))
    more = extra.items if isinstance(extra, ListVar) else [] if extra.is_constant() else [extra]
    handle = InstanceVar.fresh(RemovableHandle)
    handle.setattr_(tx, "hooks_dict_ref", HooksRefVar(hooks))
    handle.setattr_(tx, "id", HookIdVar())
    handle.setattr_(tx, "extra_dict_ref", TupleVar([HooksRefVar(each) for each in more]))
    return handle


@register(RemovableHandle.remove)
def _remove(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`remove()` of a handle that existed before the frame changes the dict of hooks after the graph. A hook that the
    graph registers would be lost if it is in the same dict."""
    if tx.graph.registered_hooks:
        return args[0].unsupported(tx, "remove() after a hook was registered")
    tx.graph.removes_hooks = True
    return tx.inline(FunctionVar(_REMOVE), args, kwargs)

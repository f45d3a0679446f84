"""Vars for instances of subclasses of `property` that the traced program creates.

torch.distributions creates one whenever it asks the class of a distribution for a lazy property.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..codegen import Codegen
from ..protocol.base import Var
from ..protocol.class_reads import lookup
from ..protocol.const import ConstVar
from ..tracer import Tracer
from .descriptors import ACCESSORS, PropertyVar
from .instance_dict import has_dict
from .instances import InstanceVar


class PropertyInstanceVar(InstanceVar):
    """A new instance of a subclass of `property`; `base` is the property that its C part describes.

    Its accessors and attributes can be read. Everything else that `property` implements in C breaks the graph.
    """

    __slots__ = ("base",)

    def __init__(self, value: Any, source: Any = None, cls: type | None = None) -> None:
        super().__init__(value, source, cls)
        self.base = PropertyVar((None, None, None))

    def c_method(self, tx: Tracer, name: str, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        """`property.__init__` of one getter; other methods of `property` break the graph."""
        if name != "__init__":
            if name in property.__dict__ and name != "__getattribute__":
                return self.unsupported(tx, f"property.{name}")
            return super().c_method(tx, name, args, kwargs)
        plain = lookup(self.cls, "__setattr__") is object.__setattr__
        text = lookup(self.cls, "__doc__")
        known = plain and has_dict(self.cls) and (text is None or isinstance(text, str))
        if not known or len(args) != 1 or kwargs or not tx.has_attribute(args[0], "__doc__"):
            return self.unsupported(tx, "property.__init__ with anything but a getter")
        self.base = PropertyVar((args[0], None, None))
        # CPython stores the getter's text in the instance, because the class has an attribute of that name
        self.setattr_(tx, "__doc__", args[0].getattr_(tx, "__doc__"))
        return ConstVar(None)

    def _found(self, tx: Tracer, name: str) -> Var:
        if name in ACCESSORS and lookup(self.cls, name) is property.__dict__[name]:
            return self.base.getattr_(tx, name)
        return super()._found(tx, name)

    def rebuild_empty(self, cg: Codegen) -> None:
        cg.load_call(property.__new__, self.cls)

    def refill(self, cg: Codegen) -> None:
        fget, temp = self.base.accessors[0], cg.temps[id(self)]
        if fget is not None:
            cg.load_const(initialize)
            cg.call_top(lambda: cg.asm.load_fast(temp), lambda: cg.load(fget))
            cg.emit("POP_TOP")


def initialize(obj: Any, fget: Any) -> None:
    """Give a new instance of a subclass of `property` its getter; its attributes, `__doc__` too, are set afterwards."""
    property.__init__(obj, fget)
    vars(obj).clear()

"""The interface through which `Var.reconstruct` emits the instructions that rebuild a value at run time.

It is a ``typing.Protocol``, implemented by ``emit.reconstruct.ValueEmitter``, so that ``vars`` does not import
``emit``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..core.source import Source

if TYPE_CHECKING:
    from .protocol.base import Var

Load = Callable[[], object]  # emits instructions that push one value


class Locals(Protocol):
    """Access to local variables of the new code (`emit.assemble.Assembler`)."""

    def load_fast(self, name: str) -> None:
        """Push the local `name`."""

    def store_fast(self, name: str | None = None) -> str:
        """Pop into local `name` (default: a new temporary); returns the name."""
        ...

    def load_closure(self, name: str) -> None:
        """Push the cell of the variable `name`."""


class Codegen(Protocol):
    """Emits instructions; each `load` method leaves one more value on the stack.

    The emitter runs twice: the first run, which is dry, finds which values are used more than once.
    """

    dry: bool  # whether this is the first run, whose instructions are discarded
    entered: str | None  # local with the `Entered` that tracks modes entered at run time
    temps: dict[int, str]  # by id of a Var that was built, the local that holds its value

    @property
    def asm(self) -> Locals: ...

    def emit(self, op: str, arg: Any = None) -> None:
        """Append one canonical instruction (see `bytecode.isa`)."""

    def load(self, var: Var) -> None:
        """Push the value of `var`, which is built at most once."""

    def load_const(self, value: Any) -> None:
        """Push a Python object."""

    def load_call(self, fn: Any, *args: Any) -> None:
        """Push the result of calling a Python object with constants: `fn(*args)`."""

    def load_key(self, key: Any) -> None:
        """Push the key of an item of a `DictVar` or `SetVar`."""

    def load_source(self, source: Source) -> None:
        """Push the value that `source` refers to."""

    def load_globals(self, globals_: dict[str, Any]) -> None:
        """Push a dict of global variables."""

    def has_cell(self, name: str) -> bool:
        """Whether the new code has a cell for the variable `name`."""
        ...

    def call_top(self, *loads: Load, names: tuple[str, ...] = ()) -> None:
        """Call the object on top of the stack with arguments; the last `len(names)` by keyword."""

    def sequence(self, build: str, items: Sequence[Var]) -> None:
        """Push the values of `items` and combine them with the instruction `build` (BUILD_LIST ...)."""

    def remember(self, var: Var) -> None:
        """Store the object on top of the stack in a local, as the value of `var`."""

    def set_attr_of_top(self, name: str, value: Var, setter: Any = None) -> None:
        """`top.name = value`, keeping `top`; by `setter(top, name, value)` if there is one."""

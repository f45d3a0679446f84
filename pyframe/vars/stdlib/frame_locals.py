"""`locals()`, `vars()` and `dir()` without arguments: the variables of the frame that calls them.

If the graph breaks in such a frame, the whole frame runs eagerly, because a resume function has other variables.
"""

from __future__ import annotations

from ...core.python_compat import LOCALS_ARE_COPIES
from ..containers.mapping import DictVar
from ..protocol.base import Var
from ..protocol.const import ConstVar, make
from ..registry import Args, Kwargs, register
from ..tracer import Tracer


@register(locals)
def _locals(tx: Tracer, args: Args, kwargs: Kwargs) -> Var:
    return variables_of_caller(tx, "locals()")


def variables_of_caller(tx: Tracer, what: str) -> Var:
    """A dict of the variables of the innermost frame."""
    frame = tx.frames[-1]
    variables = frame.variables()
    if variables is None:
        return tx.graph_break("builtin-side-effect", f"{what} of the frame")
    found = DictVar({name: var for name, var in variables.items() if var is not None})
    if LOCALS_ARE_COPIES:
        return found
    given = frame.given_variables
    if given is None:
        frame.given_variables = found
        return found
    given.call_method(tx, "update", [found], {})
    for name in variables.keys() - found.items.keys():
        given.call_method(tx, "pop", [ConstVar(name), ConstVar(None)], {})
    return given


def names_of_caller(tx: Tracer) -> Var:
    """The sorted names of the variables of the innermost frame."""
    variables = tx.frames[-1].variables()
    if variables is None:
        return tx.graph_break("builtin-side-effect", "dir() of the frame")
    return make(sorted(name for name, var in variables.items() if var is not None))

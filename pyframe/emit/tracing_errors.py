"""Distinguishes errors of the traced program from bugs of this project, when an operator raises on fake tensors.

An error of the program (wrong arguments, for example) ends the graph, and the operator raises it again when the program
runs. A bug has to surface as one: treated alike, it would only cost speed and never be noticed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from torch._library.custom_ops import CustomOpDef, _maybe_get_opdef
from torch._ops import OpOverload, OpOverloadPacket

from inductor.aot.in_place import call_operator
from inductor.log.warnings import warn_once

from ..core.files import our_file
from ..errors import InternalError

# What a bug in Python code raises. Operators raise the first two as well, for arguments of a wrong type.
_BUGS = (TypeError, AttributeError, AssertionError)


def call_method_of(receiver: Any, name: str, args: Any, kwargs: Any) -> Any:
    """`receiver.name(*args, **kwargs)`."""
    return getattr(receiver, name)(*args, **kwargs)


# Functions of this project that only call an operator: what is raised in them, the operator raised.
_CALLERS = {call_operator.__code__, call_method_of.__code__}


def check_not_ours(error: Exception, target: Callable[..., Any] | str, label: str) -> None:
    """InternalError if code of this project raised `error` while it ran the operator `target`, by a mistake of its own,
    and PYFRAME_STRICT=internal is set; without that, one warning."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = None if traceback is None else traceback.tb_frame.f_code
    if not isinstance(error, _BUGS) or code is None or not our_file(code.co_filename):
        return
    if code in _CALLERS or code is getattr(target, "__code__", None):
        return
    what = f"tracing {label} failed in {code.co_qualname}: {type(error).__name__}: {error}"
    if os.environ.get("PYFRAME_STRICT") == "internal":
        raise InternalError(what) from error
    warn_once(f"tracing {label}", f"pyframe: {what}; the operator runs outside of the graph")


def lacks_fake(target: Callable[..., Any] | str) -> bool:
    """Whether `target` is a `torch.library.custom_op` without a fake implementation."""
    if isinstance(target, OpOverloadPacket):
        overloads = [getattr(target, name) for name in target.overloads()]
    else:
        overloads = [target] if isinstance(target, OpOverload | CustomOpDef) else []
    definitions = map(_maybe_get_opdef, overloads)
    return any(found is not None and found._abstract_fn is None for found in definitions)

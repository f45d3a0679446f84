"""`torch.compiler.reset` and `torch._dynamo.reset` discard the captures of pyframe, too.

torch calls `reset` of every backend in its list of backends in use. `follow_resets` enters one there that discards
captures, each time a function is captured: a reset empties the list.
"""

from __future__ import annotations

import sys

from . import _C


class _Captures:
    def reset(self) -> None:
        _C.reset_all()


_captures = _Captures()


def follow_resets() -> None:
    """Have later resets discard what has been captured, if the program has imported torch._dynamo."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(eval_frame, "cached_backends", None)
    if backends is not None:
        backends[id(_captures)] = _captures

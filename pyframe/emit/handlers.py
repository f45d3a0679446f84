"""Where the handling of an exception ends: from there on a frame that broke inside of a `try` can be captured again."""

from __future__ import annotations

from collections.abc import Iterator

from ..bytecode import OPS
from ..bytecode.flow import FlowGraph, reachable
from ..bytecode.isa import CanonicalCode

# Where none of these is left to run there is nothing to capture.
_WORTH = ("BINARY_OP", "BINARY_SUBSCR", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "COMPARE_OP", "LOAD_ATTR")


def ends_of_handling(cc: CanonicalCode, flow: FlowGraph, handler: int) -> Iterator[int]:
    """The ordinals of instructions behind which the exception that the handler at `handler` takes is dealt with, where
    what follows is worth a capture.  Only the values that the block around the `try` keeps are on the stack there."""
    for at in _last_pops(flow, handler):
        while flow.instrs[at + 1].op == "POP_TOP":
            at += 1
        follows = reachable(cc, at + 1, flow)
        if any(flow.instrs[index].op in _WORTH for index in follows):
            yield at


def _last_pops(flow: FlowGraph, handler: int) -> list[int]:
    """The POP_EXCEPTs after which nothing is being handled, but for those that raise the exception again."""
    found = []
    seen = {handler}
    todo = [(handler, 0)]
    while todo:
        at, handled = todo.pop()
        op = flow.instrs[at].op
        handled += (op == "PUSH_EXC_INFO") - (op == "POP_EXCEPT")
        if op == "POP_EXCEPT" and handled == 0 and flow.instrs[at + 1].op != "RERAISE":
            found.append(at)
            continue
        region = flow.region[at] if OPS[op].may_raise else None
        after = [follower for follower, _ in flow.normal_successors(at)]
        after += [] if region is None else [flow.place[region.handler]]
        fresh = [each for each in after if each not in seen]
        seen.update(fresh)
        todo += [(each, handled) for each in fresh]
    return sorted(found)

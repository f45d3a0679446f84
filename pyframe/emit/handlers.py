"""Exception handlers that are entered at run time because the instruction at a graph break raised. The rest of such a
handler runs in a resume function, which is captured like any other; this module finds where these handlers start."""

from __future__ import annotations

from ..bytecode import OPS
from ..bytecode.flow import FlowGraph, reachable
from ..bytecode.isa import CanonicalCode

# Code without any of these instructions has nothing to capture.
_WORTH = ("BINARY_OP", "BINARY_SUBSCR", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "COMPARE_OP", "LOAD_ATTR")


def worth_capturing(cc: CanonicalCode, at: int, flow: FlowGraph) -> bool:
    """Whether any instruction reachable from the ordinal `at` is worth a capture."""
    return any(flow.instrs[i].op in _WORTH for i in reachable(cc, at, flow))


def starts_of_handling(cc: CanonicalCode, flow: FlowGraph, handler: int, handled: int) -> dict[int, int]:
    """The PUSH_EXC_INFO instructions that an exception going to `handler` may reach first.

    Maps each ordinal to the number of exceptions being handled before it; `handled` is that number where the exception
    was raised. Handlers with nothing worth a capture are left out, and the code after them is searched instead.
    """
    found: dict[int, int] = {}
    seen = {handler}
    todo = [(handler, handled)]
    while todo:
        at, count = todo.pop()
        op = flow.instrs[at].op
        if op == "PUSH_EXC_INFO" and worth_capturing(cc, at, flow):
            found[at] = count
            continue
        count += (op == "PUSH_EXC_INFO") - (op == "POP_EXCEPT")
        region = flow.region[at] if OPS[op].may_raise else None
        after = [follower for follower, _ in flow.normal_successors(at)]
        after += [] if region is None else [flow.place[region.handler]]
        fresh = [each for each in after if each not in seen]
        seen.update(fresh)
        todo += [(each, count) for each in fresh]
    return found

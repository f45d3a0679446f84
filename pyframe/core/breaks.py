"""The catalogue of graph breaks.

Every graph break has the ``id`` of an entry here (stable, documented), with a one-sentence explanation and hints on
what the user can do.  ``docs/graph_breaks.md`` is generated from this table.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from .guard import UserLine


@dataclass(frozen=True, slots=True)
class BreakKind:
    """A row of the catalogue: the id, one sentence on what happened, and hints on what the user can do."""

    id: str
    explanation: str
    hints: tuple[str, ...]


CATALOGUE: dict[str, BreakKind] = {}


def _row(id: str, explanation: str, *hints: str) -> None:
    if id in CATALOGUE:
        raise ValueError(f"graph break {id!r} declared twice")
    if not hints:
        raise ValueError(f"graph break {id!r} needs at least one hint")
    CATALOGUE[id] = BreakKind(id, explanation, hints)


def describe(kind: str, detail: str, stack: Sequence[UserLine]) -> str:
    """The message of a break: its id and detail, the user's stack (innermost line first), the explanation and the
    hints."""
    row = CATALOGUE[kind]
    out = [f"[{kind}] {detail}"]
    out += describe_place(stack)
    out.append(f"  why: {row.explanation}")
    out += [f"  hint: {hint}" for hint in row.hints]
    return "\n".join(out)


def describe_place(stack: Sequence[UserLine]) -> list[str]:
    """The user's stack, innermost line first."""
    out = []
    for i, (line, same) in enumerate(itertools.groupby(reversed(stack))):
        times = len(list(same))
        out.append(f"  {'called from' if i else 'at'} {line}" + (f" ({times} times)" if times > 1 else ""))
    return out


_row(
    "data-dependent-branch",
    "Python control flow needs the value of a tensor, or a number computed from one, which is known only at run time.",
    "Use torch.where(cond, a, b) or torch.cond instead of `if`.",
    "If the value never changes, compute it outside the compiled function.",
)
_row(
    "tensor-to-python",
    "A tensor was converted to a Python value that the graph cannot hold: a long list, a memory address, or a number "
    "in a loop that contains a graph break.",
    "Keep the value as a 0-d tensor and compute with that.",
    "Move the conversion out of the compiled function.",
)
_row(
    "data-dependent-shape",
    "The size of an operator's result depends on the values of its inputs.",
    "State with torch._check what is known about these sizes: which of them are equal, and their bounds; name the "
    "dimensions that `squeeze` drops.",
    "Use an operator whose result has a fixed size (torch.where with three arguments, multiplication by a mask).",
)
_row(
    "control-flow-operator",
    "A branch or body of torch.cond, torch.while_loop or scan does something that a nested graph cannot hold.",
    "Write branches that depend only on their arguments: no writes to outer objects or tensors, and results of the "
    "same structure, dtype and size in each branch.",
)
_row(
    "builtin-side-effect",
    "A builtin with an effect outside the program (print, input, open ...) was called.",
    "Remove the call from the compiled function, or keep it: the code before and after it is compiled as two graphs.",
)
_row(
    "unknown-c-function",
    "A C function that the tracer has no model of was called.",
    "Compute its result outside the compiled function, or rewrite the call with Python or torch operations.",
    "Mark a Python function that calls it with pyframe.assume_constant_result, to call it once, while tracing.",
    "Give it a Python implementation with pyframe.substitute_in_graph.",
)
_row(
    "explicit-break",
    "pyframe.graph_break() (or torch._dynamo.graph_break()) was called.",
    "Remove the call.",
)
_row(
    "disabled-function",
    "A function marked pyframe.disable (or torch.compiler.disable) was called.",
    "Remove the mark, or call the function outside the compiled region.",
)
_row(
    "disallowed-function",
    "A function marked pyframe.disallow_in_graph (or torch._dynamo.disallow_in_graph) was called.",
    "Undo the mark with pyframe.allow_in_graph, or call the function outside the compiled region.",
)
_row(
    "compiler-switch",
    "A function of pyframe or torch.compiler that changes how code is compiled was called in compiled code.",
    "Call it outside the compiled function.",
)
_row(
    "unsupported-object",
    "An operation on an object whose type, or state, the tracer does not model.",
    "Pass the value in as a tensor, a number or a container of these, or do this step outside the compiled function.",
)
_row(
    "unsupported-instruction",
    "A statement compiles to bytecode that the tracer does not model.",
    "Rewrite the statement in a simpler form, or mark the function pyframe.disable.",
)
_row(
    "unsupported-torch-op",
    "A torch operator could not be run on fake tensors (tensors without data).",
    "If the operator is custom, register a fake implementation (torch.library.register_fake).",
)
_row(
    "generator-frame",
    "A generator or coroutine is used outside of the traced code: a suspended frame cannot be captured.",
    "Use a list, or create and exhaust the generator inside one compiled function, where it is traced inline.",
)
_row(
    "unsupported-context-manager",
    "A context manager that is written in C, or that changes a torch mode that the tracer does not model, was entered.",
    "Enter the context manager outside the compiled function.",
)
_row(
    "exception-in-traced-code",
    "An operation raises an exception, or an exception leaves the function: the instruction runs eagerly, and raises.",
    "If the exception is unexpected, run the function eagerly to see it.",
    "If it is expected, test for its cause beforehand: an exception handler is not part of the graph.",
)
_row(
    "instruction-limit",
    "A loop or call took more bytecode instructions than pyframe.config.instruction_limit while the graph hardly grew.",
    "Do its work with torch operations, or move it out of the compiled function: it is not traced and runs in Python.",
    "Raise pyframe.config.instruction_limit to trace it anyway.",
)
_row(
    "size-limit",
    "A number, string or container that is constant while tracing would be larger than pyframe.config.size_limit.",
    "Create it outside the compiled function and pass it in, or use a tensor.",
    "Raise pyframe.config.size_limit to allow larger constants.",
)
_row(
    "inline-depth",
    "Calls nest deeper than the tracer inlines them (recursion).",
    "Rewrite the recursion as a loop.",
)

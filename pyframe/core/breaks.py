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
    for i, (line, same) in enumerate(itertools.groupby(reversed(stack))):
        times = len(list(same))
        out.append(f"  {'called from' if i else 'at'} {line}" + (f" ({times} times)" if times > 1 else ""))
    out.append(f"  why: {row.explanation}")
    out += [f"  hint: {hint}" for hint in row.hints]
    return "\n".join(out)


_row(
    "data-dependent-branch",
    "Python control flow asked for the truth of a tensor, or for a number computed of one, known only at run time.",
    "Use torch.where(cond, a, b) in place of `if`, or torch.cond.",
    "If the value never changes, compute it outside the compiled function.",
)
_row(
    "tensor-to-python",
    "A tensor was converted to a Python value that the graph cannot make: a long list, an address, a number in a loop.",
    "Keep the value as a 0-d tensor and compute with it as such.",
    "Move the conversion out of the compiled function.",
)
_row(
    "data-dependent-shape",
    "The size of an operator's result depends on the values of its inputs.",
    "Say what is known of such sizes with torch._check: which of them are equal, what bounds them.",
    "Use a form with a fixed size (torch.where with three arguments, a mask multiplication).",
)
_row(
    "control-flow-operator",
    "A branch or body of torch.cond, torch.while_loop or scan does something that a graph of its own cannot hold.",
    "Let branches be functions of their arguments: no writes to objects or tensors of outside, results alike in both.",
)
_row(
    "builtin-side-effect",
    "A builtin with an effect outside the program (print, input, open ...) was called.",
    "Remove the call from the compiled function, or leave it: the code round it is compiled in two parts.",
)
_row(
    "unknown-c-function",
    "A function written in C was called that the tracer has no model of.",
    "Compute its result outside the compiled function, or rewrite the call in Python or torch operations.",
    "pyframe.assume_constant_result calls it once; pyframe.substitute_in_graph gives it a version in Python.",
)
_row(
    "explicit-break",
    "pyframe.graph_break() was called.",
    "Remove the call.",
)
_row(
    "disabled-function",
    "A function marked pyframe.disable (or torch.compiler.disable) was called.",
    "Remove the mark, or call the function outside the compiled region.",
)
_row(
    "disallowed-function",
    "A function marked pyframe.disallow_in_graph was called.",
    "Undo the mark with pyframe.allow_in_graph, or call the function outside the compiled region.",
)
_row(
    "compiler-switch",
    "A function of pyframe that changes how code is compiled was called in compiled code.",
    "Call it outside the compiled function.",
)
_row(
    "unsupported-object",
    "An operation on an object of a type that the tracer does not model.",
    "Pass the value in as a tensor, number, or container of these, or do this step outside the compiled function.",
)
_row(
    "unsupported-instruction",
    "A statement whose bytecode the tracer does not model.",
    "Rewrite the statement in a simpler form, or mark the function pyframe.disable.",
)
_row(
    "unsupported-torch-op",
    "An operator of torch could not be run on fake tensors, which have no data.",
    "If the operator is custom, register a fake implementation (torch.library.register_fake).",
)
_row(
    "generator-frame",
    "A generator or coroutine that runs outside of what is traced: its frame cannot be captured halfway.",
    "Use a list, or make and use up the generator inside one compiled function, where it is traced inline.",
)
_row(
    "unsupported-context-manager",
    "A context manager written in C, or one that switches a mode of torch that the tracer does not model.",
    "Enter the context manager outside the compiled function.",
)
_row(
    "exception-in-traced-code",
    "An operation that raises an exception, or an exception that leaves the function: it is run for real, and raises.",
    "If the error is unexpected, run the function eagerly to see it.",
    "If it is expected, test for it beforehand: what handles it is not part of the graph.",
)
_row(
    "instruction-limit",
    "A loop or call took more instructions of Python than config.instruction_limit while the graph hardly grew.",
    "Move the loop out of the compiled function, or do its work with torch operations: it runs as it is.",
    "Raise pyframe.config.instruction_limit to trace it all the same.",
)
_row(
    "size-limit",
    "A number, text or container known while tracing would be larger than config.size_limit.",
    "Make it outside the compiled function and pass it in, or use a tensor.",
    "Raise pyframe.config.size_limit to have it among the constants of the graph.",
)
_row(
    "inline-depth",
    "Calls nest deeper than the tracer follows (recursion).",
    "Rewrite the recursion as a loop.",
)

"""Whether torch's symbolic expression of a number computes floats as the program does.

torch simplifies expressions as if floats were real numbers: `n * 0.1 * 2.8` becomes `0.28 * n`, which is less than 7
for n = 25. An int or bool that is computed from such floats would differ for some sizes.
"""

from __future__ import annotations

from ...core.expr import Expr, Number, Tree

_TO_INT = frozenset("int floor ceil bool == != < <= > >= and or not".split())
_EXACT = frozenset("neg pos abs min max float".split())
_SYMMETRIC = ("+", "*")


def is_kept(program: Tree, of_torch: Tree | None) -> bool:
    """Whether torch's tree has the value of the program's tree, whose sources are ints: it applies the same operators
    to the same operands, or the program rounds floats only once."""
    if _roundings(program)[1] <= 1:
        return True
    return of_torch is not None and _canonical(program) == _canonical(of_torch)


def _roundings(tree: Tree) -> tuple[bool, int]:
    """Whether a tree is a float, and how many of its operators round one."""
    if not isinstance(tree, Expr):
        return isinstance(tree, Number) and type(tree.value) is float, 0
    parts = [_roundings(arg) for arg in tree.args]
    count = sum(part[1] for part in parts)
    if tree.op in _TO_INT or tree.op == "round" and len(tree.args) == 1:
        return False, count
    is_float = tree.op in ("/", "sqrt", "float") or any(part[0] for part in parts)
    return is_float, count + (is_float and tree.op not in _EXACT)


def _canonical(tree: Tree) -> Tree:
    """A tree without conversions of ints to floats, with the operands of sums and products in one order."""
    if isinstance(tree, Number):
        return Number.of(float(tree.value)) if type(tree.value) is int else tree
    if not isinstance(tree, Expr):
        return tree
    args = tuple(map(_canonical, tree.args))
    if tree.op == "float":
        return args[0]
    return Expr(tree.op, tuple(sorted(args, key=repr)) if tree.op in _SYMMETRIC else args)

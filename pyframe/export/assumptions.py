"""What a whole graph assumes about its inputs, as `Condition`s and `InputSpec`s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..core.expr import Expr, Holds, Number, Tree, leaves
from ..core.files import our_file
from ..core.guard import Guard, TensorMeta
from ..core.source import SizeSource, Source, StrideSource
from ..errors import UserError
from ..signature.conditions import OPS, Condition, InputSpec, Size, Term, Value, text_of
from .capture import place_of, sources_of
from .whole_graph import InputLeaf, WholeGraph

_OF_LAYOUT = frozenset({"stride", "is_contiguous"})


def input_specs(whole: WholeGraph) -> list[InputSpec]:
    """The specification of each flat input of a call."""
    metas = {place_of(g.source): g.payload for g in whole.guards if g.kind == "TENSOR" and g.source is not None}
    fixed = dict(_fixed(whole.guards))
    return [_spec(leaf, metas.get((leaf.parameter, leaf.path)), fixed, whole.metadata_read) for leaf in whole.leaves]


def _spec(leaf: InputLeaf, meta: TensorMeta | None, fixed: dict[Any, int], reads: frozenset[str]) -> InputSpec:
    value = leaf.example
    if not isinstance(value, torch.Tensor):
        kind = "constant" if leaf.node is None else "number"
        return InputSpec(leaf.name, kind, example=value, checked=leaf.guarded or kind == "number")
    sizes = tuple(value.shape) if meta is None else meta.sizes
    place = leaf.parameter, leaf.path
    sizes = tuple(fixed.get((place, dim)) if size is None else size for dim, size in enumerate(sizes))
    return InputSpec(
        leaf.name, "tensor", value.dtype, value.device, sizes,
        meta.strides if meta is not None and reads & _OF_LAYOUT else None,
        value.requires_grad if "requires_grad" in reads else None, tuple(value.shape), meta is not None,
    )  # fmt: skip


def _fixed(guards: Sequence[Guard]) -> Iterator[tuple[Any, int]]:
    """The sizes that relations fix, by place and dimension."""
    for guard in guards:
        tree = guard.payload
        if guard.kind == "RELATION" and isinstance(tree, Expr) and tree.op == "==":
            size, number = tree.args
            if isinstance(size, SizeSource) and isinstance(number, Number):
                yield (place_of(size.parent), size.dim), number.value


def conditions(whole: WholeGraph, specs: Sequence[InputSpec]) -> list[Condition]:
    """The relations between sizes, strides and numbers that a program assumes. What is said by `specs` is left out, and
    so are relations between strides if the program does not read them: then only layouts of results depend on them."""
    indices = {(leaf.parameter, leaf.path): index for index, leaf in enumerate(whole.leaves)}
    found: dict[str, Condition] = {}
    names = [spec.name for spec in specs]
    for term in _identities(whole, indices):
        found.setdefault(text_of(term, names), Condition(term, text_of(term, names)))
    for guard in whole.guards:
        if guard.kind != "RELATION":
            continue
        tree = guard.payload.tree if isinstance(guard.payload, Holds) else guard.payload
        strided = any(isinstance(leaf, StrideSource) for leaf in leaves(tree))
        if strided and not whole.metadata_read & _OF_LAYOUT:
            continue
        term = _term(tree, indices, specs)
        if isinstance(term, bool | int | float):
            continue
        line = guard.line
        why = "" if line is None or our_file(line.filename) else str(line)
        text = text_of(term, names)
        found.setdefault(text, Condition(term, text, why))
    return list(found.values())


def _identities(whole: WholeGraph, indices: dict[Any, int]) -> Iterator[Term]:
    """Which inputs must be the same tensor, or different ones."""
    for guard in whole.guards:
        if guard.kind not in ("SAME", "DISTINCT"):
            continue
        places = map(place_of, sources_of(guard))
        found = [indices[place] for place in places if place in indices]
        if len(found) == 2:
            yield ("is" if guard.kind == "SAME" else "is not", *map(Value, found))


def _term(tree: Tree, indices: dict[Any, int], specs: Sequence[InputSpec]) -> Term:
    """A tree as a term, with sizes that are fixed as numbers; what has no inputs is computed."""
    if isinstance(tree, Number):
        return tree.value
    if isinstance(tree, Source):
        return _leaf_term(tree, indices, specs)
    args = [_term(arg, indices, specs) for arg in tree.args]
    if all(isinstance(arg, bool | int | float) for arg in args):
        return OPS[tree.op](*args)
    return (tree.op, *args)


def _leaf_term(source: Source, indices: dict[Any, int], specs: Sequence[InputSpec]) -> Term:
    if isinstance(source, SizeSource):
        index = indices.get(place_of(source.parent))
        if index is not None:
            size = specs[index].sizes[source.dim]
            return Size(index, source.dim) if size is None else size
    if isinstance(source, StrideSource) and (index := indices.get(place_of(source.parent))) is not None:
        return Size(index, source.dim, "stride")
    index = indices.get(place_of(source))
    if index is None:
        raise UserError(f"export: the program depends on {source}, which is no input")
    return Value(index) if specs[index].kind == "number" else specs[index].example

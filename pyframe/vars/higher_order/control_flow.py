"""Models `torch.cond`, `torch.while_loop`, `scan` and `map`: one graph node that takes its branches or bodies as
subgraphs.

Values that a branch reads from outside become operands. A branch may have no side effects visible outside: both
branches are traced, and loop bodies only once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.associative_scan import associative_scan_op, generic_associative_scan
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan

from inductor.overlap import memory_of

from ... import _C
from ...core import symbolic
from ..containers.deque import DequeVar
from ..containers.mapping import DictVar
from ..containers.sequence import ListVar, SequenceVar, TupleVar
from ..containers.sets import SetVar
from ..numbers.symint import NumberVar
from ..objects.functions import BoundMethodVar, CellVar, FunctionVar, PartialVar
from ..objects.instances import InstanceVar
from ..protocol.base import Raised, Var
from ..protocol.const import ConstVar
from ..registry import Handler, register
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer
from .nested_graphs import leaves_of

KIND = "control-flow-operator"


class Branch:
    """A function traced into a subgraph; `outputs` are the leaves of its result."""

    def __init__(self, tx: Tracer, what: str, fn: Var, args: Sequence[Var], inputs: Sequence[Any]) -> None:
        """`inputs`: what `fn` gets for each leaf of `args`: a fake tensor, None for an unbacked int, or the leaf
        itself."""
        self.tx, self.what = tx, what
        _, restore, _ = leaves_of(tx, TupleVar(args), f"arguments of {what}")
        self.graph = tx.graph.stack.enter(transform=False)
        inside: list[Var] = []
        for value in inputs:
            if isinstance(value, Var):
                inside.append(value)
            elif value is None:
                inside.append(tx.graph.numbers.unbacked_argument())
            else:
                inside.append(tx.graph.stack.tensor_argument(value))
        self.given = [value for value in inputs if isinstance(value, torch.Tensor)]
        before, versions = state_of(tx, [fn, *args]), [value._version for value in self.given]
        effects = len(tx.effects)
        grad = torch.is_grad_enabled()
        try:
            self.result = tx.call(fn, restore(inside).unpack(tx), {})
        except Raised as raised:
            tx.graph_break(KIND, f"{what} raises {raised.exc.describe()}")
        same = len(tx.effects) == effects and unchanged(before, state_of(tx, [fn, *args]))
        if not same or torch.is_grad_enabled() != grad:
            tx.graph_break(KIND, f"{what} changes an object that exists outside of it")
        if versions != [value._version for value in self.given] or tx.graph.stack.changes_lifted():
            tx.graph_break(KIND, f"{what} changes a tensor that exists outside of it in place")
        self.outputs, self.restore, self.structure = leaves_of(tx, self.result, f"result of {what}")

    def close(self, places: Sequence[int], contiguous: bool = False, single: bool = False) -> Branch:
        """Finish the graph. It returns the leaves at `places`, and its tensors do not share memory with each other or
        with inputs. `single`: the graph returns the only leaf itself, not a tuple."""
        tx = self.tx
        known = {_storage(value) for value in self.given} | {_storage(fake) for fake in tx.graph.stack.lifted_fakes()}
        for place in places:
            leaf = self.outputs[place]
            if not isinstance(leaf, TensorVar):
                continue
            if contiguous and not _is_contiguous(leaf.fake):
                leaf = _tensor(tx.graph.call_method("contiguous", [leaf], {}))
            if leaf.node.graph is not self.graph or _storage(leaf.fake) in known:
                leaf = _tensor(tx.graph.call_method("clone", [leaf], {}))
            known.add(_storage(leaf.fake))
            self.outputs[place] = leaf
        outputs = [self.outputs[i] for i in places]
        self.gm, self.lifted = tx.graph.end_nested(self.graph, outputs, transform=False, single=single)
        return self

    def taking(self, lifted: Sequence[Var]) -> fx.GraphModule:
        """The graph with all of `lifted` as arguments after its own; `lifted` includes the values that this graph
        reads."""
        if [id(var) for var in lifted] == [id(var) for var in self.lifted]:
            return self.gm
        graph = fx.Graph()
        env: dict[fx.Node, fx.Node] = {}
        inputs = self.gm.graph.find_nodes(op="placeholder")
        first = len(inputs) - len(self.lifted)
        for node in inputs[:first]:
            env[node] = graph.node_copy(node)
        own = {id(var): node for var, node in zip(self.lifted, inputs[first:], strict=True)}
        for index, var in enumerate(lifted):
            node = graph.placeholder(f"lifted{index}")
            node.meta["val"] = var.fake if isinstance(var, TensorVar) else var.sym  # type: ignore[attr-defined]
            if id(var) in own:
                env[own[id(var)]] = node
        graph.output(graph.graph_copy(self.gm.graph, env))
        return fx.GraphModule(self.gm, graph)


def _tensor(var: Var) -> TensorVar:
    """A Var that is known to be a tensor."""
    assert isinstance(var, TensorVar)
    return var


def _storage(fake: torch.Tensor) -> Any:
    return memory_of(fake)


State = dict[int, tuple[bool, list[int]]]


def state_of(tx: Tracer, roots: Sequence[Var], kept: list[Any] | None = None) -> State:
    """A snapshot of everything reachable from `roots` that the program created: for each object, by id, what it holds,
    and whether that is all it holds (False: not yet read). Changes of objects that existed before the frame are logged
    as side effects instead. `kept` gets the objects: others may have the ids of freed ones."""
    found: State = {}
    stack = list(roots)
    while stack:
        var = stack.pop()
        if id(var) in found:
            continue
        held = list(_held(tx, var))
        if kept is not None:
            kept += (var, *held)
        found[id(var)] = not _is_unread(var), [id(each) for each in held]
        stack.extend(each for each in held if isinstance(each, Var))
    return found


def unchanged(before: State, after: State) -> bool:
    """Whether the objects of the first snapshot hold in the second what they held then. What was read in between
    existed before."""
    return all(
        key in after and (after[key][1] == held if whole else set(held) <= set(after[key][1]))
        for key, (whole, held) in before.items()
    )


def _is_unread(var: Var) -> bool:
    """Whether a function's cells, or the content of a cell, are not yet read."""
    return var.closure is None if isinstance(var, FunctionVar) else isinstance(var, CellVar) and not var.is_read


def _held(tx: Tracer, var: Var) -> Iterator[Any]:
    if isinstance(var, FunctionVar) and var.fn is not None:
        defaults = map(tx.traced, (*(var.fn.__defaults__ or ()), *(var.fn.__kwdefaults__ or {}).values()))
        yield from (default for default in defaults if default is not None)
    elif isinstance(var, FunctionVar):
        yield from filter(None, (var.defaults, var.kwdefaults))
    if isinstance(var, FunctionVar) and var.closure is None:  # the program may have written a cell by another function
        cells = map(tx.known_cell, (var.fn and var.fn.__closure__) or ())
        yield from (cell for cell in cells if cell is not None)
    elif isinstance(var, FunctionVar):
        yield from var.closure or ()
    elif isinstance(var, CellVar):
        yield from (var.content,) if var.is_read else ()
    elif isinstance(var, BoundMethodVar):
        yield from (var.fn, var.obj)
    elif isinstance(var, PartialVar):
        yield from (var.fn, *var.args, *var.kwargs.values())
    elif isinstance(var, SequenceVar | DequeVar):
        yield from var.items
    elif isinstance(var, DictVar | SetVar):
        yield from var.items.values() if isinstance(var, DictVar) else map(str, var.items)
    elif isinstance(var, InstanceVar) and var.source is None:
        yield from var.attrs.values()


def _fakes(tx: Tracer, leaves: Sequence[Var]) -> list[Any]:
    """What a branch gets for each leaf: a new fake tensor, or the number itself."""
    found: list[Any] = []
    with tx.graph.fake_mode:
        for leaf in leaves:
            if isinstance(leaf, TensorVar):
                fake = leaf.fake.detach().requires_grad_(leaf.fake.requires_grad)
                fake.constant = None  # type: ignore[attr-defined]  # holds in a loop's first iteration only
                found.append(fake)
            else:
                found.append(leaf)
    return found


def _differentiable(fake: torch.Tensor) -> bool:
    return fake.is_floating_point() or fake.is_complex()


def _union(*branches: Branch) -> list[Var]:
    return list({id(var): var for branch in branches for var in branch.lifted}.values())


def _records(*groups: Sequence[Var]) -> bool:
    """Whether the results of the operator require gradients: if any of its operands does."""
    tensors = [var for group in groups for var in group if isinstance(var, TensorVar)]
    return torch.is_grad_enabled() and any(var.fake.requires_grad for var in tensors)


def _result(tx: Tracer, like: torch.Tensor, recorded: bool, rows: Any = None) -> torch.Tensor:
    """A new fake tensor with the metadata of `like`; with `rows`, a stack of that many."""
    with tx.graph.fake_mode, torch.enable_grad():
        if rows is None:
            fake = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
        else:
            fake = torch.empty((rows, *like.shape), dtype=like.dtype, device=like.device)
        return fake.requires_grad_().clone() if recorded and _differentiable(fake) else fake


def _same_metadata(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two fake tensors certainly have the same metadata."""
    sizes = lambda x: [str(n) for n in (*x.shape, *x.stride())]  # noqa: E731
    return (a.dtype, a.device) == (b.dtype, b.device) and sizes(a) == sizes(b)


def _described(var: Var) -> str:
    if isinstance(var, TensorVar):
        return f"{var.fake.dtype} {list(var.fake.shape)} with strides {list(var.fake.stride())} on {var.fake.device}"
    return var.describe()


def _is_contiguous(fake: torch.Tensor) -> bool:
    try:
        return fake.is_contiguous()
    except symbolic.data_dependent():
        return False


def _contiguous(tx: Tracer, leaves: Sequence[Var]) -> list[Var]:
    """The leaves, made contiguous, so that each iteration of a loop gets the same layout."""
    return [
        tx.graph.call_method("contiguous", [leaf], {})
        if isinstance(leaf, TensorVar) and not _is_contiguous(leaf.fake)
        else leaf
        for leaf in leaves
    ]


def _is_int(var: Var) -> bool:
    return isinstance(var, NumberVar | ConstVar) and var.python_type() is int


def _refuse_transforms(tx: Tracer, name: str) -> None:
    if tx.graph.stack.in_transform:
        tx.graph_break(KIND, f"{name} in a function that torch.func transforms")


# ---- cond ----
def _cond(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    arguments = dict(zip(("pred", "true_fn", "false_fn", "operands"), args), **kwargs)
    if not {"pred", "true_fn", "false_fn"} <= set(arguments):
        return tx.raise_(TypeError, "cond() takes a predicate and two functions")
    pred, operands = arguments["pred"], arguments.get("operands", TupleVar([]))
    if isinstance(pred, ConstVar):
        chosen = arguments["true_fn" if pred.constant() else "false_fn"]
        return tx.call(chosen, operands.unpack(tx), {})
    _refuse_transforms(tx, "torch.cond")
    if not isinstance(pred, TensorVar | NumberVar) or (isinstance(pred, TensorVar) and pred.fake.numel() != 1):
        return tx.graph_break(
            KIND, f"torch.cond of {pred.describe()}, which is neither a bool nor a one-element tensor"
        )
    items = operands.unpack(tx)
    leaves, _, _ = leaves_of(tx, TupleVar(items), "operands of torch.cond")
    first, second = (_cond_branch(tx, name, arguments[name], items, leaves) for name in ("true_fn", "false_fn"))
    if first.structure != second.structure:
        return tx.graph_break(KIND, "the branches of torch.cond return results of different structure")
    results: list[Any] = []
    tensors = [leaf for leaf in leaves if isinstance(leaf, TensorVar)]
    lifted = _union(first, second)
    recorded = _records(tensors, lifted)
    for a, b in zip(first.outputs, second.outputs, strict=True):
        if isinstance(a, TensorVar) and isinstance(b, TensorVar) and _same_metadata(a.fake, b.fake):
            results.append(_result(tx, a.fake, recorded))
        elif _is_int(a) and _is_int(b):
            results.append(None)
        elif not (a.is_constant() and b.is_constant() and _same(a.constant(), b.constant())):
            return tx.graph_break(KIND, f"the branches of torch.cond return {_described(a)} and {_described(b)}")
    taken = [
        tx.graph.stack.attach(f"cond_{name}", branch.taking(lifted))
        for name, branch in (("true", first), ("false", second))
    ]
    output_vars = tx.graph.record(torch.ops.higher_order.cond, [pred, *taken, TupleVar([*tensors, *lifted])], results)
    each = iter(output_vars)
    return first.restore([_chosen(a, b, each) for a, b in zip(first.outputs, second.outputs, strict=True)])


def _cond_branch(tx: Tracer, name: str, fn: Var, items: Sequence[Var], leaves: Sequence[Var]) -> Branch:
    branch = Branch(tx, f"the {name} of torch.cond", fn, items, _fakes(tx, leaves))
    return branch.close([i for i, leaf in enumerate(branch.outputs) if isinstance(leaf, TensorVar) or _is_int(leaf)])


def _chosen(a: Var, b: Var, output_vars: Iterator[Var]) -> Var:
    """The result for a pair of branch outputs `a` and `b`."""
    if not isinstance(a, TensorVar) and not _is_int(a):
        return a
    found = next(output_vars)
    known = isinstance(a, ConstVar) and isinstance(b, ConstVar) and _same(a.constant(), b.constant())
    return a if known else found


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


# ---- loops ----
def _while_loop(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    arguments = dict(zip(("cond_fn", "body_fn", "carried_inputs"), args), **kwargs)
    if set(arguments) != {"cond_fn", "body_fn", "carried_inputs"}:
        return tx.raise_(TypeError, "while_loop() takes two functions and what they carry")
    _refuse_transforms(tx, "torch.while_loop")
    leaves, restore, structure = leaves_of(tx, arguments["carried_inputs"], "carried inputs of torch.while_loop")
    for leaf in leaves:
        if not isinstance(leaf, TensorVar) and not _is_int(leaf):
            return tx.graph_break(KIND, f"torch.while_loop carries {leaf.describe()}, neither a tensor nor an int")
    leaves = _contiguous(tx, leaves)
    items = restore(leaves).unpack(tx)
    unknown = lambda: [x if isinstance(x, torch.Tensor) else None for x in _fakes(tx, leaves)]  # noqa: E731
    test = Branch(tx, "the cond_fn of torch.while_loop", arguments["cond_fn"], items, unknown())
    answer = test.outputs[0] if len(test.outputs) == 1 else None
    fits = isinstance(answer, TensorVar) and answer.fake.dtype is torch.bool and answer.fake.dim() == 0
    if not fits and not (isinstance(answer, NumberVar) and answer.python_type() is bool):
        return tx.graph_break(KIND, "the cond_fn of torch.while_loop returns neither a bool nor a bool tensor")
    test.close([0], single=True)
    body = Branch(tx, "the body_fn of torch.while_loop", arguments["body_fn"], items, unknown())
    body.close(range(len(body.outputs)), contiguous=True)
    lifted = _union(test, body)
    recorded = _records(leaves, lifted)
    results = _carried(tx, "torch.while_loop", leaves, body.outputs, recorded)
    if _as_tuple(body.structure) != _as_tuple(structure):
        return tx.graph_break(KIND, "the body_fn of torch.while_loop returns another structure than it takes")
    named = (("cond", test), ("body", body))
    graphs = [tx.graph.stack.attach(f"while_loop_{name}", branch.taking(lifted)) for name, branch in named]
    operands = [*graphs, TupleVar(leaves), TupleVar(lifted)]
    output_vars = tx.graph.record(torch.ops.higher_order.while_loop, operands, results)
    return body.restore(output_vars)


def _as_tuple(structure: Any) -> Any:
    """A structure without the type of its outermost container: a tuple and a list are equivalent there."""
    return structure if structure is None else (None, structure[1])


def _carried(tx: Tracer, name: str, leaves: Sequence[Var], outputs: Sequence[Var], recorded: bool) -> list[Any]:
    """The metadata of the values that a loop carries; breaks the graph if its body changes it."""
    if len(leaves) != len(outputs):
        tx.graph_break(KIND, f"the body of {name} takes {len(leaves)} values and returns {len(outputs)}")
    results: list[Any] = []
    for leaf, output in zip(leaves, outputs, strict=True):
        if isinstance(leaf, TensorVar) and isinstance(output, TensorVar) and _same_metadata(leaf.fake, output.fake):
            results.append(_result(tx, leaf.fake, recorded))
        elif _is_int(leaf) and _is_int(output):
            results.append(None)
        else:
            tx.graph_break(KIND, f"the body of {name} takes {_described(leaf)} and returns {_described(output)} for it")
    return results


def _scan(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    arguments = dict(zip(("combine_fn", "init", "xs"), args), **kwargs)
    if not {"combine_fn", "init", "xs"} <= set(arguments):
        return tx.raise_(TypeError, "scan() takes a function, initial values and inputs")
    _refuse_transforms(tx, "scan")
    dim = arguments["dim"].constant() if "dim" in arguments else 0
    backwards = "reverse" in arguments and arguments["reverse"].truth(tx)
    init, restore_init, structure = leaves_of(tx, arguments["init"], "init of scan")
    xs, restore_xs, _ = leaves_of(tx, arguments["xs"], "xs of scan")
    if not init or not xs or not all(isinstance(leaf, TensorVar) for leaf in (*init, *xs)):
        return tx.graph_break(KIND, "scan needs tensors, at least one in init and one in xs")
    if any(not -x.fake.dim() <= dim < x.fake.dim() for x in map(_tensor, xs)):
        return tx.graph_break(KIND, f"scan along dimension {dim} of {_described(xs[0])}")
    dim %= _tensor(xs[0]).fake.dim()
    if dim:
        xs = [tx.graph.call(torch.movedim, [x, dim, 0], {}) for x in xs]
    if backwards:
        xs = [tx.graph.call(torch.flip, [x, [0]], {}) for x in xs]
    init = _contiguous(tx, init)
    with tx.graph.fake_mode:
        fakes = [_tensor(x).fake for x in xs]
        rows = [fake.detach().select(0, 0).requires_grad_(fake.requires_grad) for fake in fakes]
    items = [restore_init(init), restore_xs(xs)]
    body = Branch(tx, "the combine_fn of scan", arguments["combine_fn"], items, [*_fakes(tx, init), *rows])
    if not isinstance(body.result, SequenceVar) or len(body.result.items) != 2:
        return tx.graph_break(KIND, "the combine_fn of scan does not return a pair of carry and output")
    carry, _, found = leaves_of(tx, body.result.items[0], "carry of scan")
    if found != structure or not all(isinstance(leaf, TensorVar) for leaf in body.outputs):
        return tx.graph_break(
            KIND,
            "the combine_fn of scan returns a carry of another structure than init, or results that are not tensors",
        )
    body.close(range(len(body.outputs)), contiguous=True)
    recorded = _records(init, xs, body.lifted)
    results = _carried(tx, "scan", init, body.outputs[: len(carry)], recorded)
    length = fakes[0].shape[0]
    results += [_result(tx, _tensor(y).fake, recorded, length) for y in body.outputs[len(carry) :]]
    graph = tx.graph.stack.attach("scan_combine", body.gm)
    operands = [ListVar(init), ListVar(xs), TupleVar(body.lifted)]
    output_vars = tx.graph.record(torch.ops.higher_order.scan, [graph, *operands], results)
    ys = output_vars[len(carry) :]
    if backwards:
        ys = [tx.graph.call_method("flip", [y, [0]], {}) for y in ys]
    if dim:
        ys = [tx.graph.call(torch.movedim, [y, 0, dim], {}) if dim < _tensor(y).fake.dim() else y for y in ys]
    return TupleVar(body.restore([*output_vars[: len(carry)], *ys]).unpack(tx))


@register(associative_scan_op)
def _associative_scan(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """Traced inline, computing what eager mode computes. It is not a graph node, because torch's gradient of the
    operator (2.11 to 2.15) is wrong for the first of two operands, such as the states of a linear recurrence."""
    arguments = dict(zip(("combine_fn", "xs", "additional_inputs"), args)) | kwargs
    operands = [arguments["combine_fn"], arguments["xs"]]
    return tx.inline(generic_associative_scan, operands, {"additional_inputs": arguments["additional_inputs"]})


def _model(function: Any, model: Handler) -> Handler:
    """`model` for `function`. If the call runs after a graph break instead, torch captures the branches itself, so
    pyframe must not capture anything below it."""

    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        _C.skip_code(function.__code__, recursive=True)
        return model(tx, args, kwargs)

    return run


def _mapped(fn: Any, xs: Any, *args: Any) -> Any:
    """`map(fn, xs, *args)` as a scan whose carried value is unused."""
    return scan(lambda carry, x: (carry.clone(), fn(x, *args)), torch.zeros(()), xs)[1]


def _map(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    return tx.inline(_mapped, args, kwargs)


for _function, _handler in ((torch.cond, _cond), (torch.while_loop, _while_loop), (scan, _scan), (map_over, _map)):
    register(_function)(_model(_function, _handler))

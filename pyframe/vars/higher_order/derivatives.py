"""Models `torch.func.vjp`, `jvp`, `jacrev`, `jacfwd` (and so `hessian`), and `torch.autograd.grad`. The function to
differentiate is traced into a subgraph that one graph node differentiates."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch._functorch import eager_transforms

from ..codegen import Codegen
from ..containers.iterator import NotRebuilt
from ..containers.sequence import SequenceVar, TupleVar
from ..objects.functions import FunctionVar
from ..protocol.base import NotConstant, Var
from ..registry import Handler, register
from ..torch_objects.tensor import TensorVar
from ..tracer import Tracer
from .module_hooks import make_backward_hook
from .nested_graphs import Body, Restored, check_auxiliary, code_of, leaves_of, tensors_of


class FunctionResultVar(Var):
    """A function that one graph node returns and others use; it exists only inside the graph."""

    __slots__ = ("held", "node", "step")

    def __init__(self, node: Any, held: Any, step: int) -> None:
        super().__init__()
        self.node, self.held, self.step = node, held, step


class PullbackVar(Var):
    """The function that `torch.func.vjp` returns: from gradients of the outputs it computes gradients of the inputs."""

    __slots__ = ("held", "inputs", "outputs")

    def __init__(self, held: FunctionResultVar, outputs: Any, inputs: Restored) -> None:
        """`outputs`: the structure of the gradients that it takes. `inputs`: builds its result from a flat list of
        gradients."""
        super().__init__()
        self.held, self.outputs, self.inputs = held, outputs, inputs

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return "the function that torch.func.vjp returns"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        given: Var = args[0] if len(args) == 1 else TupleVar(args)
        gradients, _, structure = leaves_of(tx, given, "gradients")
        fits = structure == self.outputs and all(isinstance(leaf, TensorVar) for leaf in gradients)
        if not fits or any(not value.is_constant() for value in kwargs.values()):
            return tx.graph_break(
                "unsupported-object", "gradients of another structure than the outputs of torch.func.vjp"
            )
        options = {name: value.constant() for name, value in kwargs.items()}

        def pull(function: Callable[..., Any], *values: torch.Tensor) -> Any:
            return function(values, **options)

        pull.__name__ = pull.__qualname__ = "vjp_function"
        pull.__module__ = __name__
        pull.gives_function = True  # type: ignore[attr-defined]
        found = tx.graph.call(pull, [self.held, *gradients], {})
        assert isinstance(found, SequenceVar)
        return self.inputs(found.items)

    def reconstruct(self, cg: Codegen) -> None:
        raise NotRebuilt("a function that torch.func.vjp returns", self.held.step)


def _aux_parts(tx: Tracer, body: Body, has_aux: bool) -> tuple[int, Any, Restored, Var | None]:
    """Of a traced function: the number of tensors to differentiate, their structure, the function that rebuilds that
    structure, and the auxiliary output."""
    result, aux = body.result, None
    if has_aux:
        if not isinstance(result, TupleVar) or len(result.items) != 2:
            tx.graph_break("exception-in-traced-code", "has_aux=True with a function that does not return a pair")
        result, aux = result.items
        check_auxiliary(tx, aux)
    leaves, restore, structure = leaves_of(tx, result, "result")
    if not leaves or not all(isinstance(leaf, TensorVar) for leaf in leaves):
        tx.graph_break(
            "exception-in-traced-code", "a derivative of a function that returns something other than tensors"
        )
    return len(leaves), structure, restore, aux


def _aux(tx: Tracer, aux: Var, found: Sequence[Var]) -> Var:
    return tensors_of(tx, aux, "result")[1](found)


def _fakes(tx: Tracer, tensors: Sequence[TensorVar], recorded: bool) -> list[Any]:
    with tx.graph.fake_mode:
        return [
            t.fake.detach().requires_grad_((recorded or t.fake.requires_grad) and t.fake.is_floating_point())
            for t in tensors
        ]


def _split(body: Body, count: int) -> Callable[..., Any]:
    """The traced function in the form that `torch.func` takes with has_aux: it returns (tensors to differentiate,
    others)."""

    def parts(*values: Any) -> Any:
        found = body.gm(*values)
        return tuple(found[:count]), tuple(found[count:])

    return parts


@register(torch.func.vjp)
def _vjp(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    fn, *primals = args
    has_aux = bool(kwargs) and kwargs["has_aux"].truth(tx)
    tensors, restore = tensors_of(tx, TupleVar(primals), "arguments")
    if not torch.is_grad_enabled() or not tensors:
        return tx.graph_break("unsupported-object", "torch.func.vjp with gradients disabled")
    body = Body(tx, fn, primals, {}, _fakes(tx, tensors, True))
    count, structure, outputs, aux = _aux_parts(tx, body, has_aux)
    width, step = len(tensors), tx.steps
    parts = _split(body, count)

    def apply(*values: Any) -> Any:
        lifted = values[width:]
        found, function, more = cast(
            tuple[Any, ...],  # torch's annotation lacks the third item
            torch.func.vjp(lambda *inner: parts(*inner, *lifted), *values[:width], has_aux=True),
        )
        return (*found, *more, function)

    apply.gives_function = True  # type: ignore[attr-defined]

    def output(found: Sequence[Var]) -> Var:
        *values, function = found
        assert isinstance(function, FunctionResultVar)
        function.step = step
        pullback = PullbackVar(function, structure, lambda items: TupleVar(restore(items).items))  # type: ignore[attr-defined]
        result = [outputs(values[:count]), pullback]
        return TupleVar(result if aux is None else [*result, _aux(tx, aux, values[count:])])

    return body.node(tx, apply, "vjp", output)


@register(torch.func.jvp)
def _jvp(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    arguments = dict(zip(("func", "primals", "tangents"), args), **kwargs)
    if not {"func", "primals", "tangents"} <= set(arguments):
        return tx.raise_(TypeError, "jvp() takes a function, primals and tangents")
    strict, has_aux = (name in arguments and arguments[name].truth(tx) for name in ("strict", "has_aux"))
    primals, tangents = arguments["primals"], arguments["tangents"]
    places, _, structure = leaves_of(tx, primals, "arguments")
    along, _, other = leaves_of(tx, tangents, "tangents")
    if not isinstance(primals, TupleVar) or structure != other or not all(
        isinstance(leaf, TensorVar) for leaf in (*places, *along)
    ):
        return tx.graph_break("exception-in-traced-code", "torch.func.jvp of primals and tangents that do not agree")
    body = Body(tx, arguments["func"], primals.items, {}, _fakes(tx, places, False))  # type: ignore[arg-type]
    count, _, outputs, aux = _aux_parts(tx, body, has_aux)
    width, lifted = len(places), len(body.lifted)
    parts = _split(body, count)

    def apply(*values: Any) -> Any:
        outside, directions = values[width : width + lifted], values[width + lifted :]
        found, along, more = cast(
            tuple[Any, ...],  # torch's annotation lacks the third item
            torch.func.jvp(
                lambda *inner: parts(*inner, *outside), values[:width], directions, strict=strict, has_aux=True
            ),
        )
        return (*found, *along, *more)

    def output(found: Sequence[Var]) -> Var:
        result = [outputs(found[:count]), outputs(found[count : 2 * count])]
        return TupleVar(result if aux is None else [*result, _aux(tx, aux, found[2 * count :])])

    return body.node(tx, apply, "jvp", output, along)


class LinearVar(Var):
    """The function that `torch.func.linearize` returns: the derivative of the traced function `body` at its arguments,
    in the direction that it takes."""

    __slots__ = ("body", "count", "outputs", "step", "structure", "versions")

    def __init__(self, tx: Tracer, body: Body, count: int, outputs: Restored, structure: Any) -> None:
        """`count`: the number of results of `body`. `outputs`: builds their structure. `structure`: that of the
        arguments, a tuple."""
        super().__init__()
        self.body, self.count, self.outputs, self.structure, self.step = body, count, outputs, structure, tx.steps
        self.versions = self._versions()

    def _versions(self) -> list[int]:
        return [var.fake._version for var in (*self.body.inputs, *self.body.lifted) if isinstance(var, TensorVar)]

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return "the function that torch.func.linearize returns"

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[Var], kwargs: Mapping[str, Var]) -> Var:
        along, _, structure = leaves_of(tx, TupleVar(args), "tangents")
        width, body = len(self.body.inputs), self.body
        fits = not kwargs and structure == self.structure and all(
            isinstance(leaf, TensorVar) and leaf.fake.shape == place.fake.shape and leaf.fake.dtype == place.fake.dtype
            for leaf, place in zip(along, body.inputs, strict=True)
        )
        if not fits:
            return tx.graph_break("exception-in-traced-code", "tangents that differ from the arguments of linearize")
        if self._versions() != self.versions:
            return tx.graph_break("unsupported-object", "torch.func.linearize at arguments that were written since")
        lifted = len(body.lifted)

        def apply(*values: Any) -> Any:
            outside, directions = values[width : width + lifted], values[width + lifted :]
            return torch.func.jvp(lambda *inner: body.gm(*inner, *outside), values[:width], directions)[1]

        return body.node(tx, apply, "jvp", self.outputs, along)

    def reconstruct(self, cg: Codegen) -> None:
        raise NotRebuilt("a function that torch.func.linearize returns", self.step)


@register(torch.func.linearize)
def _linearize(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    if not args or kwargs:
        return tx.graph_break("unsupported-object", "torch.func.linearize with keyword arguments")
    fn, *primals = args
    places, _, structure = leaves_of(tx, TupleVar(primals), "arguments")
    if not all(isinstance(leaf, TensorVar) for leaf in places):
        return tx.graph_break("unsupported-object", "torch.func.linearize at something other than tensors")
    body = Body(tx, fn, primals, {}, _fakes(tx, places, False))  # type: ignore[arg-type]
    tensors = [var for var in (*body.inputs, *body.lifted) if isinstance(var, TensorVar)]
    if torch.is_grad_enabled() and any(tensor.fake.requires_grad for tensor in tensors):
        return tx.graph_break("unsupported-object", "torch.func.linearize of something that requires a gradient")
    count, _, outputs, _ = _aux_parts(tx, body, False)

    def apply(*values: Any) -> Any:
        return body.gm(*values)

    linear = LinearVar(tx, body, count, outputs, structure)
    return body.node(tx, apply, "linearized", lambda found: TupleVar([outputs(found), linear]))


def _jacobian(transform: Callable[..., Any], options: Sequence[str]) -> Handler:
    """The model of the function that `transform` (jacrev or jacfwd) returns; `options`: which of its arguments to pass
    on."""

    def run(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
        closure, *args = args
        assert isinstance(closure, FunctionVar)
        content = {name: cell.content for name, cell in zip(closure.code.co_freevars, closure.cells(tx), strict=True)}
        try:
            numbers = content["argnums"].constant()  # type: ignore[union-attr]
            passed = {name: content[name].constant() for name in options if name in content}  # type: ignore[union-attr]
        except NotConstant:
            return tx.graph_break(
                "unsupported-object", f"torch.func.{transform.__name__} with options known only at run time"
            )
        has_aux = content["has_aux"].truth(tx)  # type: ignore[union-attr]
        wanted = (numbers,) if isinstance(numbers, int) else numbers
        fits = isinstance(wanted, tuple) and wanted and all(-len(args) <= n < len(args) for n in wanted)
        if kwargs or not fits or not torch.is_grad_enabled():
            what = f"torch.func.{transform.__name__} with these arguments, or with gradients disabled"
            return tx.graph_break("unsupported-object", what)
        wanted = tuple(n % len(args) for n in wanted)
        places: list[int] = []
        counts: dict[int, tuple[int, Restored]] = {}
        tensors: list[TensorVar] = []
        for number, arg in enumerate(args):
            found, restore = tensors_of(tx, arg, "arguments")
            counts[number] = len(found), restore
            if number in wanted:
                places += range(len(tensors), len(tensors) + len(found))
            tensors += found
        body = Body(tx, content["func"], args, {}, _fakes(tx, tensors, transform is torch.func.jacrev))  # type: ignore[arg-type]
        count, _, outputs, aux = _aux_parts(tx, body, has_aux)
        parts = _split(body, count)

        def apply(*values: Any) -> Any:
            jacobians, more = transform(parts, argnums=tuple(places), has_aux=True, **passed)(*values)
            return (*(jacobian for row in jacobians for jacobian in row), *more)

        def output(found: Sequence[Var]) -> Var:
            each = iter(found)
            rows = []
            for _ in range(count):
                row = {n: counts[n][1]([next(each) for _ in range(counts[n][0])]) for n in sorted(set(wanted))}
                rows.append(row[wanted[0]] if isinstance(numbers, int) else TupleVar([row[n] for n in wanted]))
            result = outputs(rows)
            return result if aux is None else TupleVar([result, _aux(tx, aux, list(each))])

        return body.node(tx, apply, transform.__name__, output)

    return run


@register(torch.autograd.grad)
def _autograd_grad(tx: Tracer, args: list[Var], kwargs: dict[str, Var]) -> Var:
    """`torch.autograd.grad` as a node, for tensors that the graph computes."""
    arguments = dict(zip(_GRAD_PARAMETERS, args), **kwargs)
    fits = {"outputs", "inputs"} <= set(arguments) <= set(_GRAD_PARAMETERS)
    if not torch.is_grad_enabled() or not fits:
        return tx.graph_break("unsupported-object", "torch.autograd.grad with gradients disabled")
    outputs = tensors_of(tx, arguments["outputs"], "outputs")[0]
    if any(output.source is not None for output in outputs):
        return tx.graph_break("unsupported-object", "torch.autograd.grad of a tensor that was computed outside")
    if any(node.target is make_backward_hook for node in tx.graph.graph.nodes):  # they may change objects
        return tx.graph_break("unsupported-object", "torch.autograd.grad, which runs backward hooks of modules")
    return tx.graph.call(torch.autograd.grad, [], arguments)


_GRAD_PARAMETERS = (
    "outputs", "inputs", "grad_outputs", "retain_graph", "create_graph", "only_inputs", "allow_unused",
    "is_grads_batched", "materialize_grads",
)  # fmt: skip

register(code_of(eager_transforms.jacrev, "wrapper_fn"))(_jacobian(torch.func.jacrev, ("chunk_size",)))
register(code_of(eager_transforms.jacfwd, "wrapper_fn"))(_jacobian(torch.func.jacfwd, ("randomness",)))

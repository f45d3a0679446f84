"""Captures a function as one graph, without running it: `capture` traces a frame that calls it with the arguments of an
example, and returns the finished trace as data."""

from __future__ import annotations

import contextlib
import inspect
import keyword
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from inductor.process.compile_lock import compile_lock

from .. import _C
from ..backends import eager
from ..core.expr import leaves
from ..core.guard import Guard
from ..core.source import AttrSource, DictItemSource, InstanceDictSource, LocalSource, SeqItemSource, Source
from ..driver import FrameCompiler, observed
from ..emit.output import TraceResult
from ..errors import SkipFrame, Unsupported
from ..interp.trace import Trace
from ..options import Options
from ..signature.structure import Path
from ..torch_resets import follow_resets
from ..vars.numbers.dynamic import CaptureHistory
from ..vars.torch_objects import user_directives
from .results import ProgramOutput, ProgramResult


@dataclass
class Program:
    """A traced program. `graph_module` returns a tuple; for each placeholder, in order, `sources` says what it is,
    `examples` has its fake tensor or symbolic number and `originals` the tensor of the example call, or None."""

    graph_module: fx.GraphModule
    sources: list[Source]
    examples: list[Any]
    originals: list[torch.Tensor | None]
    result: ProgramResult
    guards: list[Guard]
    fake_mode: Any
    metadata_read: frozenset[str]  # what the program read of tensors, such as "stride"


class _ProgramCompiler(FrameCompiler):
    """Traces frames as `Program`s instead of cache entries."""

    output = ProgramOutput

    def _finish(
        self, func: types.FunctionType, result: TraceResult, trace: Trace, state: _C.GlobalState, captures: int
    ) -> Program:
        assert isinstance(result, ProgramResult)
        for guard in trace.graph.numbers.relations():
            trace.guards.add(guard)
        inputs = trace.graph.inputs
        originals = [inputs.originals.get(source) for source in inputs.sources]
        mode = trace.graph.fake_mode
        return Program(
            result.gms[0], list(inputs.sources), inputs.examples_before_run(mode), originals, result,
            list(trace.guards), mode, frozenset(trace.graph.metadata_read),
        )  # fmt: skip


def capture(
    target: Callable[..., Any], signature: inspect.Signature, arguments: Mapping[str, Any], by_keyword: frozenset[str],
    varying: set[Source],
) -> Program:
    """The program of the call of `target` with `arguments`, by parameter of its `signature`; those in `by_keyword` are
    passed by keyword. `varying`: sources of ints that are not constants. Raises Unsupported, with the user's line, for
    what is not one graph."""
    root = _root(target, signature, arguments, by_keyword)
    compiler = _ProgramCompiler(eager, Options(fullgraph=True, float_inputs=False, whole_program=True), "export")
    compiler.always.add(root.__code__)
    compiler.history[root.__code__] = CaptureHistory(varied={(source, None) for source in varying})
    _C.bind_torch()
    if (observer := observed()) is not None:
        raise Unsupported(f"export: {root.__name__} cannot be captured: {observer} has to see every operator")
    with compile_lock, _convolutions_by_example():
        follow_resets()
        user_directives.follow_substitutes()
        try:
            program: Program = compiler._capture(root, tuple(arguments.values()), 0)  # type: ignore[assignment]
        except SkipFrame as skip:
            raise Unsupported(f"export: {root.__name__} cannot be captured: {skip}") from skip
    return program


@contextlib.contextmanager
def _convolutions_by_example() -> Iterator[None]:
    """Within the block, the layout of a fake convolution's result is that for the sizes of the example. torch chooses
    the library that computes it by bounds on sizes (a batch of 16 or more), which would become conditions; a program's
    convolutions choose again in each call."""
    select = torch._C._select_conv_backend  # type: ignore[attr-defined, unused-ignore]  # not in all of torch's stubs

    def select_for_example(input: torch.Tensor, weight: torch.Tensor, **settings: Any) -> Any:
        return select(_at_example(input), _at_example(weight), **settings)

    torch._C._select_conv_backend = select_for_example  # type: ignore[attr-defined, unused-ignore]
    try:
        yield
    finally:
        torch._C._select_conv_backend = select  # type: ignore[attr-defined, unused-ignore]


def _at_example(tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor with the sizes and strides of the example instead of symbols."""
    layout = (*tensor.shape, *tensor.stride())
    if not any(isinstance(number, torch.SymInt) for number in layout):
        return tensor
    numbers = [number.node.hint if isinstance(number, torch.SymInt) else number for number in layout]
    sizes, strides = numbers[: tensor.dim()], numbers[tensor.dim() :]
    return torch.empty_strided(
        sizes, strides, dtype=tensor.dtype, device=tensor.device, requires_grad=tensor.requires_grad
    )


def _root(
    target: Callable[..., Any], signature: inspect.Signature, arguments: Mapping[str, Any], by_keyword: frozenset[str]
) -> types.FunctionType:
    """A function with the parameters in `arguments` that calls `target` with them."""
    parameters: list[str] = []
    passed: list[str] = []
    kinds = inspect.Parameter
    ordered = [signature.parameters[name] for name in arguments]
    starred = any(each.kind is kinds.VAR_POSITIONAL for each in ordered)
    for each in ordered:
        stars = "*" if each.kind is kinds.VAR_POSITIONAL else "**" if each.kind is kinds.VAR_KEYWORD else ""
        if each.kind is kinds.KEYWORD_ONLY and not starred:
            parameters.append("*")
            starred = True
        parameters.append(stars + each.name)
        named = not stars and each.name in by_keyword
        passed.append(f"{each.name}={each.name}" if named else stars + each.name)
    name = getattr(target, "__name__", type(target).__name__)
    variable = "self" if isinstance(target, nn.Module) else name  # as errors name what it holds
    while not variable.isidentifier() or keyword.iskeyword(variable) or variable in arguments:
        variable = "_" + re.sub(r"\W", "_", variable)
    scope: dict[str, Any] = {}
    text = (
        f"def make({variable}):\n def call({', '.join(parameters)}):\n"
        f"  return {variable}({', '.join(passed)})\n return call\n"
    )
    exec(compile(text, __file__, "exec"), scope)
    root: types.FunctionType = scope["make"](target)
    root.__name__ = root.__qualname__ = name
    root.__code__ = root.__code__.replace(co_name=name, co_qualname=name)
    return root


def arguments_in_order(root_arguments: Mapping[str, Any], signature: inspect.Signature) -> dict[str, Any]:
    """The arguments in the order in which a frame's locals hold them: positional and keyword ones, then those of
    `*args` and `**kwargs`."""
    kinds = inspect.Parameter
    starred = [kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD]
    rank = {name: starred.index(each.kind) + 1 for name, each in signature.parameters.items() if each.kind in starred}
    names = sorted(root_arguments, key=lambda name: rank.get(name, 0))
    return {name: root_arguments[name] for name in names}


def place_of(source: Source) -> tuple[str, Path] | None:
    """The parameter and the path within it that a source reads; None if it is no part of an argument."""
    path: list[Any] = []
    while not isinstance(source, LocalSource):
        if isinstance(source, SeqItemSource):
            path.append(("item", source.index))
        elif isinstance(source, AttrSource):
            path.append(("attr", source.attr))
        elif isinstance(source, DictItemSource) and isinstance(source.parent, InstanceDictSource):
            path.append(("attr", source.key))
            source = source.parent
        elif isinstance(source, DictItemSource):
            path.append(("item", source.key))
        else:
            return None
        source = source.parent
    return source.local, tuple(reversed(path))


def reads_argument(source: Source) -> bool:
    """Whether a source starts at an argument."""
    while source.base is not None:
        source = source.base
    return isinstance(source, LocalSource)


def sources_of(guard: Guard) -> list[Source]:
    """The sources that a guard reads."""
    found = [] if guard.source is None else [guard.source]
    if guard.kind == "RELATION":
        found += leaves(getattr(guard.payload, "tree", guard.payload))
    elif guard.kind in ("SAME", "DISTINCT"):
        found += [guard.payload] if isinstance(guard.payload, Source) else list(guard.payload)
    elif guard.kind == "PREDICATE":
        found += guard.payload[1]
    return found


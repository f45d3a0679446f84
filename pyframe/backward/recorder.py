"""Writes down a backward pass as the source of a Python function.

`Recorder` is the compiler object of torch's autograd engine (`torch._C._dynamo.compiled_autograd`): the engine calls
its methods, which have the names that torch gives them, from C++. Tensors of the pass are represented by empty tensors;
nothing is computed. The methods of torch 2.11 to 2.15 differ in the arguments of `accumulate_grad` only.

While a node is described, the engine has put the representatives in the place of the node's saved tensors, and does not
take them out again after an exception. So a reason why the pass cannot be captured is kept until the next node begins.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import steps
from .errors import Uncapturable
from .operations import bind, operation
from .program import Program, run_program
from .values import symbol

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.layout, torch.memory_format)
ARGUMENTS = ("inputs", "sizes", "scalars", "hooks", "packed")


class _Creations(TorchDispatchMode):
    """Records the tensors that the engine itself creates, such as zeros in the place of undefined gradients."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [*args, *(kwargs or {}).values()]
        if any(isinstance(x, torch.Tensor | list) and not _is_size(x) for x in given) or len(func._schema.returns) != 1:
            self.recorder.refuse(f"the engine computes with tensors ({func}) while it describes the pass")
            return func(*args, **(kwargs or {}))
        return self.recorder.created(func, args, kwargs or {})


def _is_size(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(n, int | torch.SymInt) for n in x)


_RESULT = re.compile(r"\bv\d+\b")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a program. by_user: it runs code of the user, which may look at gradients; late: it may wait for the
    next line of that kind."""

    text: str
    by_user: bool = False
    late: bool = False


@dataclass(slots=True)
class NodeSteps:
    """The lines of one node of the autograd graph."""

    name: str
    steps: list[Step] = field(default_factory=list)


class Recorder:
    """Records one backward pass. order: the order in which the engine would run nodes with these names, which it
    describes in another one. finished: called with the program."""

    def __init__(
        self, order: Callable[[Sequence[str]], Sequence[int]], finished: Callable[[Program], None]
    ) -> None:
        self.order, self.finished = order, finished
        self.nodes: list[NodeSteps] = []
        self.sums: dict[str, Step] = {}  # by the name of the result; each is computed where it is first used
        self.namespace: dict[str, Any] = {"torch": torch}
        self.texts: dict[int, str] = {}
        self.kept: list[torch.Tensor] = []  # so that no id is used twice
        self.numbers = itertools.count()
        self.creations: _Creations | None = None
        self.reason: str | None = None

    def refuse(self, reason: str) -> None:
        """Do not capture this pass."""
        self.reason = self.reason or reason

    def check(self) -> None:
        """Uncapturable if the pass is not to be captured. To be called between two nodes only."""
        if self.reason is not None:
            raise Uncapturable(self.reason)

    # ---- the source

    def tensor(self, text: str) -> torch.Tensor:
        """A representative of the tensor that the expression `text` has in the program."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            made = torch.empty(0, device="cpu")
        self.kept.append(made)
        self.texts[id(made)] = text
        return made

    def text(self, value: Any) -> str:
        """The expression of a value that the engine passes."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self.texts:
                self.refuse("the backward pass uses a tensor that the engine creates while it is described")
            return self.texts.get(id(value), "None")
        if isinstance(value, torch.SymInt | torch.SymFloat):
            found: str = value.node.text
            return found
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, tuple):
            return f"({''.join(f'{self.text(each)}, ' for each in value)})"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, _PLAIN) and not (isinstance(value, float) and value - value != 0):
            return repr(value)
        return self.constant(value)

    def constant(self, value: Any) -> str:
        """The name of a value that has no source text, in the namespace of the program."""
        name = f"constant_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def assign(self, function: Callable[..., Any], *args: str, by_user: bool = False) -> str:
        """Add a call; returns the name of its result."""
        name = f"v{next(self.numbers)}"
        self.nodes[-1].steps.append(Step(f"{name} = {self.called(function, args)}", by_user))
        return name

    def derivative(self, name: str, args: Sequence[str]) -> str:
        """Add a call of a function of the engine; returns the name of its result."""
        function = operation(name)
        if function is None:
            self.refuse(f"torch hands out {name} only once in a process, and something else has got it")
            return "None"
        return self.assign(function, *args)

    def called(self, function: Callable[..., Any], args: Sequence[str]) -> str:
        self.namespace[function.__name__] = function
        return f"{function.__name__}({', '.join(args)})"

    def created(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        """A tensor that the engine creates by calling an operator."""
        given = [*map(self.text, args), *(f"{name}={self.text(value)}" for name, value in kwargs.items())]
        name = f"v{next(self.numbers)}"
        self.nodes[-1].steps.append(Step(f"{name} = {self.constant(function)}({', '.join(given)})"))
        return self.tensor(name)

    def items(self, name: str, count: int) -> list[torch.Tensor]:
        return [self.tensor(f"{name}[{k}]") for k in range(count)]

    # ---- called by the engine

    def begin_capture(
        self, inputs: list[torch.Tensor], sizes: Sequence[int], scalars: Sequence[int | float], *_: Any
    ) -> tuple[str, list[torch.Tensor], list[Any], list[Any]]:
        """Returns an id and the representatives of the tensors and numbers that are arguments of the program."""
        self.creations = _Creations(self)
        self.creations.__enter__()
        tensors = self.items("inputs", len(inputs))
        asked = functools.partial(self.refuse, "the structure of the backward pass depends on a size")
        ints = [symbol(f"sizes[{k}]", value, asked) for k, value in enumerate(sizes)]
        return "", tensors, ints, [symbol(f"scalars[{k}]", value, asked) for k, value in enumerate(scalars)]

    def log_compile_reasons(self, reasons: Sequence[str]) -> None:
        """Called only if torch's own logging is on."""

    def set_node_origin(self, name: str, position: int, context: Any) -> None:
        """The calls that follow belong to the node with this name; `context`: the `ctx` of an autograd function."""
        self.check()
        self.nodes.append(NodeSteps(name))

    def bind_function(self, name: str, function: Callable[..., Any], is_custom: bool, is_traceable: bool) -> str:
        return bind(name, function, is_custom, is_traceable)

    def apply_functional(
        self, name: str, gradients: Sequence[Any], args: Sequence[Any], described: Sequence[Any]
    ) -> list[torch.Tensor]:
        """A derivative; `described`: the metadata of each result, None where it is undefined."""
        found = self.derivative(name, [self.text(list(gradients)), *map(self.text, args)])
        return self.items(found, len(described))

    def validate_outputs(
        self, name: str, outputs: Sequence[Any], args: Sequence[Any], described: Sequence[Any]
    ) -> Sequence[Any]:
        """Gradients are summed over broadcast dimensions and converted to the dtype of what they belong to."""
        if all(x is None for x in outputs):
            return outputs
        found = self.derivative(name, [self.text(list(outputs)), *map(self.text, args)])
        return [None if x is None else made for x, made in zip(outputs, self.items(found, len(outputs)))]

    def accumulate(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        name = f"v{next(self.numbers)}"
        self.sums[name] = Step(f"{name} = {self.called(steps.added, (self.text(old), self.text(new)))}")
        return self.tensor(name)

    def accumulate_grad(self, variable: torch.Tensor, *args: Any) -> torch.Tensor | None:
        """`args`: the gradient and whether there are hooks; from torch 2.13 on, `variable.grad` first."""
        with_held = len(args) == 3
        gradient = args[1] if with_held else args[0]
        held = args[0] if with_held else variable.grad
        text = self.called(steps.accumulate_grad, (self.text(variable), self.text(gradient)))
        self.nodes[-1].steps.append(Step(text, late=held is None))
        return self.tensor(f"{self.text(variable)}.grad") if with_held else None

    def tensor_pre_hook(self, inputs: Sequence[Any], hook: int, place: int) -> list[Any]:
        changed = list(inputs)
        name = self.assign(steps.after_tensor_hook, f"hooks[{hook}]", self.text(inputs[place]), by_user=True)
        changed[place] = self.tensor(name)
        return changed

    def cpp_tensor_pre_hook(self, inputs: Sequence[Any], hook: int, place: int) -> list[Any]:
        changed = list(inputs)
        call = torch._C._dynamo.compiled_autograd.call_cpp_tensor_pre_hooks
        changed[place] = self.tensor(self.assign(call, str(hook), self.text(inputs[place]), by_user=True))
        return changed

    def pre_hook(self, inputs: Sequence[Any], hook: int) -> list[Any]:
        name = self.assign(steps.after_pre_hook, f"hooks[{hook}]", self.text(list(inputs)), by_user=True)
        return list(self.items(name, len(inputs)))

    def post_hook(self, outputs: Sequence[Any], inputs: Sequence[Any], hook: int) -> list[Any]:
        given = self.text(list(outputs)), self.text(list(inputs))
        name = self.assign(steps.after_post_hook, f"hooks[{hook}]", *given, by_user=True)
        return list(self.items(name, len(outputs)))

    def post_acc_grad_hook(self, variable: torch.Tensor, hook: int) -> list[torch.Tensor]:
        self.assign(steps.accumulated, f"hooks[{hook}]", self.text(variable), by_user=True)
        return [variable]

    def unpack_hook(self, hook: int, data: int) -> torch.Tensor:
        """A saved tensor that the user's `saved_tensors_hooks` have packed."""
        return self.tensor(self.assign(steps.unpacked, f"hooks[{hook}]", f"packed[{data}]", by_user=True))

    def proxy_call_backward(
        self, gradients: Sequence[Any], described: Sequence[Any], saved: Sequence[Any], place: int, context: Any,
        state: int | None = None, opaque: Sequence[int] = (),
    ) -> tuple[Any, ...]:
        """The backward of a `torch.autograd.Function`, whose `ctx` is hook `place`."""
        if state is not None or opaque or hasattr(context._forward_cls, "_aot_id"):
            self.refuse("the backward pass contains a function that was compiled by torch.compile")
        real = f"hooks[{place}]"
        wanted = [each is not None for each in described]
        args = real, self.text(list(saved)), self.text(list(gradients)), self.text(wanted)
        name = self.assign(steps.call_backward, *args, by_user=True)
        return tuple(self.tensor(f"{name}[{k}]") if is_tensor else None for k, is_tensor in enumerate(wanted))

    def call_copy_slices_prologue(self, gradients: Sequence[Any], *geometry: Any) -> list[torch.Tensor]:
        name = self.assign(steps.copied_slice, self.text(list(gradients)), *map(self.text, geometry))
        return self.items(name, 3)

    def call_copy_slices_epilogue(
        self, needed: Sequence[bool], whole: torch.Tensor, found: Sequence[Any], part: torch.Tensor
    ) -> list[torch.Tensor]:
        args = map(self.text, (list(needed), whole, list(found), part))
        return self.items(self.assign(steps.with_slice, *args), len(needed))

    def end_capture(self, outputs: Sequence[Any]) -> tuple[Callable[..., Any], Program]:
        """Returns what the engine calls in this backward pass and in all later ones with the same autograd graph."""
        self.stop_creations()
        self.check()
        returned = Step(f"return {self.text(list(outputs))}", by_user=True)
        body = "".join(f"    {line}\n" for line in self.in_order(returned))
        program = Program(f"def backward({', '.join(ARGUMENTS)}):\n{body}", self.namespace)
        self.finished(program)
        return run_program, program

    def in_order(self, returned: Step) -> Iterator[str]:
        """The lines of the program: nodes as the engine would run them, sums of gradients before their first use, and
        first accumulations where code of the user may see them."""
        late: list[Step] = []
        for k in self.order([node.name for node in self.nodes]):
            yield f"# {self.nodes[k].name}"
            for step in self.nodes[k].steps:
                if step.late:
                    late.append(step)
                    continue
                if step.by_user:
                    yield from self.with_sums(late)
                    late.clear()
                yield from self.with_sums([step])
        yield from self.with_sums([*late, returned])

    def with_sums(self, steps: Sequence[Step]) -> Iterator[str]:
        for step in steps:
            for name in _RESULT.findall(step.text):
                total = self.sums.pop(name, None)
                if total is not None:
                    yield from self.with_sums([total])
            yield step.text

    def stop_creations(self) -> None:
        if self.creations is not None:
            creations, self.creations = self.creations, None
            creations.__exit__(None, None, None)

    def close(self) -> None:
        """Called last, also after an error. Keeps nothing: torch 2.11 never frees the recorder itself."""
        self.stop_creations()
        self.__dict__.clear()

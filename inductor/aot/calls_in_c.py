"""The parts of a compiled graph with gradients that are in C if the extension is built: its calls, and the backward of
its autograd node. What they do not do is done by the Python code of `autograd`, which they call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..autocast import is_autocast_enabled, without_autocast
from ..extension import _C
from ..runtime.plan import shape_code
from .gradient_buckets import DDP
from .input_fallback import Refused
from .results import Computed
from .training_spec import TrainingSpec


def taking(backward: Callable[..., list[torch.Tensor]]) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """`backward` as a function of a list of arguments; if possible, it empties the list to free arguments early."""
    take = getattr(backward, "take", None) or (lambda given: backward(*given))
    return without_autocast(take) if is_autocast_enabled() else take


def call_in_c(
    apply: Callable[..., Any], attributes: tuple[torch.Tensor, ...], spec: TrainingSpec, finish: Callable[..., Any],
    eager: Callable[..., Any], otherwise: Callable[..., Any],
) -> Callable[..., Any]:
    """`otherwise`, which is called where a call is under a function transform or from DDP. Other calls return what
    `finish` makes of the inputs and of the tensors that `apply` returns, or `eager` where that raises Refused."""
    if _C is None:
        return otherwise
    flat = spec.structure.type is tuple and all(child.is_leaf() for child in spec.structure.children())
    in_order = flat and not spec.related and spec.results == tuple(map(Computed, range(len(spec.results))))
    first = len(spec.results) if in_order else -1
    transformed = torch._C._are_functorch_transforms_active
    return _C.TrainingCall(apply, attributes, first, finish, Refused, eager, transformed, DDP, otherwise)


def backward_in_c(
    function: type[torch.autograd.Function], gradients_of: Callable[..., Any], spec: TrainingSpec,
    backward: Callable[..., Any],
) -> None:
    """Let the nodes of `function` call `backward`, the compiled one, from C if all tangents are plain tensors, and
    `gradients_of(ctx, tangents, True, error)` otherwise: unless that has more to do in each call."""
    if _C is None or spec.nested or any(gradient.conjugated for gradient in spec.gradients):
        return
    plain = _plain_tensors([layout.device for layout in spec.tangents])
    if plain is None:
        return

    def in_python(ctx: Any, tangents: tuple[torch.Tensor | None, ...], error: RuntimeError | None) -> Any:
        return gradients_of(ctx, tangents, True, error)

    layouts = tuple(shape_code(layout.dtype, layout.size, layout.stride) for layout in spec.tangents)
    places = tuple(gradient.place for gradient in spec.gradients)
    keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph if spec.conflicts else None
    apply = _C.NodeBackward(taking(backward), in_python, layouts, plain, places, spec.primals, keeps_graph)
    node: Any = function._backward_cls  # slots spare each node a dict
    parts = {"__module__": node.__module__, "__slots__": ("held", "freed"), "apply": apply}
    function._backward_cls = type(node.__name__, (node,), parts)


def _plain_tensors(devices: Sequence[torch.device]) -> tuple[torch.Tensor, ...] | None:
    """A tensor without elements on each of the devices; None if one is a GPU that has not been used."""
    if any(device.type not in ("cpu", "cuda") for device in devices):
        return None
    if any(device.type == "cuda" for device in devices) and not torch.cuda.is_initialized():
        return None
    with torch.inference_mode(False):
        return tuple(torch.empty(0, device=device) for device in devices)

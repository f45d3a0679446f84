"""Calls of equal modules are traced once: the graph and the guards are those of a trace of each call, and modules that
differ in anything that was read are not taken for equal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import pyframe
from pyframe.interp import repeated_calls

LAYERS = 5
seen: list[int] = []  # a layer of `Collects` appends to it
offset = 0  # `ReadsGlobal` adds it


class Mlp(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.up, self.down, self.scale = nn.Linear(8, width), nn.Linear(width, 8), 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x))) * self.scale


class Layer(nn.Module):
    """`number` is read by nothing here."""

    def __init__(self, number: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.number, self.flag = number, True
        self.norm, self.mlp, self.drop = nn.LayerNorm(8), Mlp(), nn.Dropout(dropout)
        self.gate, self.more = nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()), Mlp()

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norm(x)
        if mask is not None:
            y = y * mask
        if not self.flag:
            y = y + 1
        y = self.drop(self.mlp(y)) * self.gate(y)
        return x + y + self.more(x)


class Network(nn.Module):
    layer: type[nn.Module] = Layer

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([type(self).layer(k, **options) for k in range(LAYERS)])

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def network(of: type[nn.Module] = Layer, cls: type[Network] = Network, **options: Any) -> Network:
    torch.manual_seed(0)
    kind = type("Kind", (cls,), {"layer": of})
    found: Network = kind(**options)
    return found


@pytest.fixture(autouse=True)
def _short_calls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_calls, "LEAST", 0)


@contextlib.contextmanager
def repeating(value: bool) -> Iterator[None]:
    before, repeated_calls.enabled = repeated_calls.enabled, value
    try:
        yield
    finally:
        repeated_calls.enabled = before


def captured(fn: Callable[..., Any], args: tuple[Any, ...], repeat: bool) -> tuple[list[Any], set[Any], int]:
    """The nodes of the graphs that are captured of `fn`, its guards, and how many calls of modules were not traced."""
    pyframe.reset()
    nodes: list[Any] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        for node in gm.graph.nodes:
            value = node.meta.get("val")
            layout = None
            if isinstance(value, torch.Tensor):
                layout = value.shape, value.stride(), value.dtype, value.requires_grad, value.is_leaf
            meta = {name: node.meta.get(name) for name in ("stack_trace", "nn_module_stack", "source", "parameter")}
            nodes.append((node.op, node.name, str(node.target), str(node.args), str(node.kwargs), layout, meta))
        return gm.forward

    before = repeated_calls.replayed_calls
    with repeating(repeat):
        found = pyframe.explain(fn, backend=backend)(*args)
    guards = {
        (guard.kind, str(guard.source), str(guard.payload) if guard.kind in ("EQUALS", "SAME", "LEN") else None)
        for capture in found.captures
        for guard in capture.guards
    }
    return nodes, guards, repeated_calls.replayed_calls - before


def check(fn: Any, *args: Any, repeats: int | None = None, before: Callable[[], Any] = lambda: None) -> None:
    """Compare what is captured with and without repeating; `repeats`: how many calls are not traced. `before` is called
    before each capture."""
    with torch.random.fork_rng():
        before()
        nodes, guards, none = captured(fn, args, False)
        before()
        again, known, count = captured(fn, args, True)
    assert none == 0
    assert again == nodes
    assert known == guards
    assert repeats is None or count == repeats


def same_as_eager(net: nn.Module, *args: Any, change: Callable[[nn.Module], None] | None = None) -> None:
    """Compare results and gradients, then once more after `change`."""
    pyframe.reset()
    compiled = pyframe.compile(net, backend="eager")
    for turn in range(2 if change is not None else 1):
        if turn and change is not None:
            change(net)
        results = []
        for each in (net, compiled):
            torch.manual_seed(1)
            x = [arg.clone().requires_grad_(arg.is_floating_point()) for arg in args]
            net.zero_grad()
            result = each(*x)
            result.sum().backward()
            gradients = [p.grad.clone() if p.grad is not None else None for p in net.parameters()]
            results.append((result.detach(), [each.grad for each in x], gradients))
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


def test_equal_layers() -> None:
    """The first layer gets an input; of the second one, the parts are those of the first; the others are not traced."""
    net = network()
    check(net, X, repeats=3 + LAYERS - 2)
    same_as_eager(net, X)


def test_one_line_for_each_layer() -> None:
    """What nodes record of the program is that of their own call."""

    class Unrolled(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layers[0](x)
            x = self.layers[1](x, None)
            y = self.layers[2](x)
            z = self.layers[3](x)
            return self.layers[4](y + z)

    net = network(cls=Unrolled)
    check(net, X, repeats=3 + 3 + 2)  # the second one has other arguments
    same_as_eager(net, X)


def _set_flag(net: Any) -> None:
    net.layers[2].flag = False


def _scale(net: Any) -> None:
    net.layers[3].mlp.scale = 0.25


def _dropout(net: Any) -> None:
    net.layers[1].drop.p = 0.5


def _freeze(net: Any) -> None:
    net.layers[2].mlp.up.weight.requires_grad_(False)


def _evaluate(net: Any) -> None:
    net.layers[2].eval()


def _double(net: Any) -> None:
    net.layers[4].mlp.up.weight.data = net.layers[4].mlp.up.weight.data.t().contiguous().t()


def _share(net: Any) -> None:
    net.layers[3].mlp.up.weight = net.layers[1].mlp.up.weight


def _share_module(net: Any) -> None:
    net.layers[3].mlp = net.layers[1].mlp


def _same_layer(net: Any) -> None:
    net.layers[3] = net.layers[1]


def _tie(net: Any) -> None:
    net.layers[2].more = net.layers[2].mlp


def _tie_weights(net: Any) -> None:
    net.layers[2].more.up.weight = net.layers[2].mlp.up.weight


def _hook(net: Any) -> None:
    net.layers[2].mlp.register_forward_hook(lambda module, args, result: result * 2)


def _hook_all(net: Any) -> None:
    for layer in net.layers:
        layer.mlp.register_forward_hook(_doubled)


def _doubled(module: Any, args: Any, result: Any) -> Any:
    return result * 2


def _own_forward(net: Any) -> None:
    net.layers[2].mlp.forward = lambda x: x * 3


def _no_bias(net: Any) -> None:
    net.layers[2].mlp.up.bias = None


def _wider(net: Any) -> None:
    torch.manual_seed(3)
    net.layers[2].mlp = Mlp(24)


def _another_class(net: Any) -> None:
    net.layers[2].mlp.__class__ = type("Other", (Mlp,), {"forward": lambda self, x: self.down(self.up(x))})


def _no_affine(net: Any) -> None:
    net.layers[2].norm = nn.LayerNorm(8, elementwise_affine=False)


def _views(net: Any) -> None:
    """The weights of one layer are views of one memory."""
    memory = torch.randn(256, generator=torch.Generator().manual_seed(2))
    net.layers[2].mlp.up.weight = nn.Parameter(memory[:128].view(16, 8))
    net.layers[2].more.up.weight = nn.Parameter(memory[128:].view(16, 8))


CHANGES = [
    _set_flag, _scale, _dropout, _freeze, _evaluate, _double, _share, _share_module, _same_layer, _tie, _tie_weights, _hook,
    _hook_all, _own_forward, _no_bias, _wider, _another_class, _no_affine, _views,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_one_layer_differs(change: Callable[[Any], None]) -> None:
    """Before the capture, and after it: the guards on a module whose call was not traced fail."""
    net = network()
    change(net)
    check(net, X)
    same_as_eager(net, X)
    same_as_eager(network(), X, change=change)


class SharesSettings(Layer):
    """All layers have one dict of settings."""

    settings: dict[str, float]

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
        return super().forward(x) * self.settings["scale"]


def test_shared_object_while_another_of_its_type_changes() -> None:
    """The guard that the changed dict is no dict of a layer does not say that the layers have a dict each: a second
    call fits the first one's capture."""

    class Notes(Network):
        def __init__(self) -> None:
            super().__init__()
            self.notes = {"calls": 1.0}

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = super().forward(x * 2)
            self.notes["calls"] = 1.0
            return result

    net, x = network(SharesSettings, Notes), X.clone().requires_grad_()
    settings = {"scale": 0.5}
    for layer in net.layers:
        layer.settings = settings
    check(net, x, repeats=1 + LAYERS - 1)
    pyframe.reset()
    compiled = pyframe.compile(net, backend="eager")
    before = repeated_calls.replayed_calls
    for _ in range(2):
        torch.testing.assert_close(compiled(x), net(x), rtol=0, atol=0)
    assert (pyframe.counters["graphs"], repeated_calls.replayed_calls - before > 0) == (1, True)
    net.layers[2].settings = net.notes  # then the change is of the settings of a layer
    net.notes["scale"] = 0.5
    torch.testing.assert_close(compiled(x), net(x), rtol=0, atol=0)


def test_another_dtype() -> None:
    class Casts(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
            return super().forward(x.to(self.norm.weight.dtype)).float()

    net = network(Casts)
    net.layers[2].double()
    check(net, X)
    same_as_eager(net, X)


def test_mask_that_all_layers_get() -> None:
    class Masked(Network):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            mask = mask * 2
            for layer in self.layers:
                x = layer(x, mask=mask)
            return x

    net = network(cls=Masked)
    check(net, X, torch.ones(3, 1), repeats=3 + LAYERS - 2)
    same_as_eager(net, X, torch.ones(3, 1))


class ReadsNumber(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
        return super().forward(x) + self.number


class Collects(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
        seen.append(len(seen))
        return super().forward(x) * len(seen)


class Counts(Layer):
    """Stores its result, which the next layer does not see."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.calls, self.last = 0, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
        self.calls += 1
        self.last = super().forward(x)
        return self.last


class ReadsGlobal(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
        return super().forward(x) + offset


class ReadsBuffer(Layer):
    """Branches on the value of a buffer."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.register_buffer("count", torch.tensor(number // 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
        x = super().forward(x)
        return x.sin() if self.count > 0 else x.cos()


class InPlace(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
        y = super().forward(x)
        y += 1
        return y.mul_(2)


class Norms(nn.Module):
    """Writes to its buffers."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()) for _ in range(8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = x + part(x)
        return x


class Closes(Layer):
    """Calls a function that captures its variables, and makes lists and dicts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
        parts = []
        options = {"weight": self.norm.weight, "bias": self.norm.bias}

        def add(y: torch.Tensor) -> None:
            parts.append(y + x)

        for mlp in (self.mlp, self.more):
            add(mlp(x))
        x = nn.functional.layer_norm(torch.cat(parts, 0).view(2, 3, 8).sum(0), [8], **options)
        return torch.stack([x, *(each * 2 for each in parts)]).mean(0)


@pytest.mark.parametrize(
    ("layer", "repeats"),
    [
        # within the layers, parts are equal
        (ReadsNumber, 12), (Collects, 4), (Counts, 4), (ReadsGlobal, 3 + LAYERS - 2), (ReadsBuffer, 3 + 1 + 3 + 1),
        (InPlace, 2 + LAYERS - 2), (Norms, 6 + 8 + LAYERS - 2), (Closes, 2 + LAYERS - 2),
    ],
)  # fmt: skip
def test_layers_that_do_more(layer: type[nn.Module], repeats: int) -> None:
    def before() -> None:
        seen.clear()
        for each in net.layers if layer is Counts else ():
            each.calls = 0

    net = network(layer)
    check(net, X, repeats=repeats, before=before)
    if layer not in (Collects, Norms):  # each call has another result
        same_as_eager(net, X)


class ReadsPositions(nn.Module):
    """Branches on a value of a tensor that is known while tracing, and uses another as a size."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) + positions[:, None]
        if positions[-1] == 3:
            y = y * 2
        return x + y[: int(positions[1])].sum(0)


class KnownPositions(Network):
    """All layers get one tensor, whose value is known; `change`: it is written before the fourth layer. `new`: each
    layer gets a tensor of its own."""

    layer = ReadsPositions

    def __init__(self, change: bool = False, new: bool = False) -> None:
        super().__init__()
        self.change, self.new = change, new

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(4)
        for k, layer in enumerate(self.layers):
            if self.change and k == 3:
                positions.add_(1)
            x = layer(x, torch.arange(4) if self.new else positions)
        return x


@pytest.mark.parametrize(("options", "repeats"), [({}, LAYERS - 2), ({"change": True}, LAYERS - 3), ({"new": True}, 0)])
def test_a_tensor_with_a_known_value_that_all_layers_get(options: dict[str, bool], repeats: int) -> None:
    torch.manual_seed(0)
    net = KnownPositions(**options)
    check(net, torch.randn(4, 8), repeats=repeats)
    same_as_eager(net, torch.randn(4, 8))


def test_the_program_changes_a_global_between_calls() -> None:
    class Changes(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            global offset
            for k, layer in enumerate(self.layers):
                x = layer(x)
                if k == 2:
                    offset = 7
            offset = 0
            return x

    net = network(ReadsGlobal, Changes)
    check(net, X)
    same_as_eager(net, X)


def test_the_program_changes_a_layer_before_its_call() -> None:
    class Changes(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.layers[3].mlp.scale = 3.0
            for layer in self.layers:
                x = layer(x)
            self.layers[3].mlp.scale = 0.5
            return x

    net = network(cls=Changes)
    check(net, X)
    same_as_eager(net, X)


def test_an_object_that_the_program_changed_may_be_one_of_a_later_layer() -> None:
    class Box:
        value = 1

    class HasBox(Layer):
        def __init__(self, number: int) -> None:
            super().__init__(number)
            self.box = Box()

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
            return super().forward(x) * self.box.value

    class Changes(Network):
        def __init__(self) -> None:
            super().__init__()
            self.box = Box()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.box.value = 5
            for layer in self.layers:
                x = layer(x)
            self.box.value = 1
            return x

    def change(net: Any) -> None:
        net.layers[3].box = net.box

    net = network(HasBox, Changes)
    check(net, X)
    same_as_eager(net, X, change=change)
    net = network(HasBox, Changes)
    change(net)
    check(net, X)
    same_as_eager(net, X)


def test_a_list_that_layers_get() -> None:
    class Appends(Layer):
        def forward(self, x: torch.Tensor, found: list[Any]) -> torch.Tensor:  # type: ignore[override]  # no mask
            found.append(x)
            return super().forward(x) * len(found)

    class Lists(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: list[Any] = []
            for layer in self.layers:
                x = layer(x, found)
            return x + found[-1]

    net = network(Appends, Lists)
    check(net, X)
    same_as_eager(net, X)


def test_a_new_list_in_an_object_from_before() -> None:
    """The layers reach it through an object that existed before the frame."""

    class Appends(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # no mask
            box["found"].append(x)
            return super().forward(x) * len(box["found"])

    class Lists(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            box["found"] = []
            for layer in self.layers:
                x = layer(x)
            return x + box["found"].pop()

    box: dict[str, Any] = {"found": []}
    net = network(Appends, Lists)
    check(net, X, before=lambda: box["found"].clear())
    same_as_eager(net, X)


@pytest.mark.parametrize("kind", ["no_grad", "autocast", "try"])
def test_another_state_around_a_call(kind: str) -> None:
    class Around(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for k, layer in enumerate(self.layers):
                if k != 3:
                    x = layer(x)
                elif kind == "no_grad":
                    with torch.no_grad():
                        y = layer(x)
                    x = x + y
                elif kind == "autocast":
                    with torch.autocast("cpu", torch.bfloat16):
                        y = layer(x)
                    x = x + y.float()
                else:
                    try:
                        x = layer(x)
                    except ValueError:
                        x = x * 2
            return x

    net = network(cls=Around)
    check(net, X)
    same_as_eager(net, X)


def test_inference_without_gradients() -> None:
    net = network().eval().requires_grad_(False)
    check(net, X, repeats=3 + LAYERS - 2)


def test_results_of_several_kinds() -> None:
    class Several(Layer):
        def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]  # no mask
            return super().forward(x), [x, self.norm.weight], None, self.flag, (x,)

    class Sums(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                y, (same, weight), nothing, flag, _ = layer(x)
                assert nothing is None and flag is True and same is x
                x = y * weight
            return x

    net = network(Several, Sums)
    check(net, X, repeats=3 + LAYERS - 2)
    same_as_eager(net, X)


def test_arguments_that_are_one_object() -> None:
    """Attention computes its projections in another way if query, key and value are the same."""

    class Attends(Layer):
        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return super().forward(q) + (self.more(q) if q is k else self.mlp(k))

    class Decoder(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = y = x + 1
            for number, layer in enumerate(self.layers):
                x = layer(x, x if number % 2 else y + 1)
            return x

    net = network(Attends, Decoder)
    check(net, X)
    same_as_eager(net, X)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.of = nn.Transformer(8, 2, 3, 3, 16, dropout=0.0, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.of(x, x)

    check(Attention(), X[None])


def test_a_layer_gets_a_tensor_of_a_layer() -> None:
    class Takes(Layer):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return super().forward(x) * weight + self.norm.weight

    class Gives(Network):
        def forward(self, x: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
            weight: Any = self.layers[len(number)].norm.weight
            for layer in self.layers:
                x = layer(x, weight)
            return x

    net = network(Takes, Gives)
    for number in (0, 1, 3):
        check(net, X, torch.ones(number))
        same_as_eager(net, X, torch.ones(number))


def test_a_weight_that_was_read_before() -> None:
    class Reads(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.layers[1].mlp.up.weight.sum() + self.layers[3].norm.bias.sum()
            for layer in self.layers:
                x = layer(x)
            return x

    net = network(cls=Reads)
    check(net, X)
    same_as_eager(net, X)


def test_a_break_between_layers() -> None:
    class Breaks(Network):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layers[1](self.layers[0](x))
            pyframe.graph_break()
            for layer in self.layers[2:]:
                x = layer(x)
            return x

    net = network(cls=Breaks)
    check(net, X)
    same_as_eager(net, X)


def test_layers_of_layers() -> None:
    class Outer(nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.first, self.second = Layer(0), Layer(1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    net = network(Outer)
    check(net, X, repeats=3 + 1 + 1 + LAYERS - 2)
    same_as_eager(net, X)
    for part in ("first", "second"):  # once the layer that was repeated for its layer, once the one that was traced
        net = network(Outer)
        getattr(net.layers[2], part).flag = False
        check(net, X)
        same_as_eager(net, X)
        net = network(Outer)
        net.layers[2].second = net.layers[2].first
        check(net, X)
        same_as_eager(net, X)


def test_sizes_that_vary() -> None:
    net = network()
    compiled = pyframe.compile(net, backend="eager")
    for rows in (3, 4, 5, 6):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), net(x), rtol=0, atol=0)


def test_a_number_of_a_repeated_layer_varies_later() -> None:
    net = network()
    compiled = pyframe.compile(net, backend="eager")
    for scale in (0.5, 1.0, 2.0, 3.0):
        net.layers[3].mlp.scale = scale
        torch.testing.assert_close(compiled(X), net(X), rtol=0, atol=0)

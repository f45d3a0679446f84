"""Backward passes under `pyframe.compiled_autograd` compared with eager: gradients with their strides, hooks with their
order, errors and lifetimes."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pyframe
from pyframe import counters

Log = list[Any]
Scenario = Callable[[Log], list[Any]]


def describe(x: Any) -> Any:
    return None if x is None else (x.layout, x.stride() if x.layout == torch.strided else x.is_coalesced(), x.dtype)


def run(scenario: Scenario) -> tuple[list[Any], Log]:
    torch.manual_seed(0)
    log: Log = []
    return scenario(log), log


def check(scenario: Scenario, programs: int | None = 1, breaks: int | None = None, **settings: Any) -> None:
    """Compare `scenario`, which returns gradients and writes a log, with and without compiled autograd."""
    settings.setdefault("backend", "eager")
    wanted, wanted_log = run(scenario)
    before, breaks_before = counters["backward_programs"], counters["graph_breaks"].total()
    with warnings.catch_warnings(), pyframe.compiled_autograd(**settings):
        warnings.simplefilter("error")
        found, log = run(scenario)
    torch.testing.assert_close(found, wanted)
    assert list(map(describe, found)) == list(map(describe, wanted))
    assert log == wanted_log
    assert counters["backward_fallbacks"] == 0
    if programs is not None:
        assert counters["backward_programs"] - before == programs
    if breaks is not None:
        assert counters["graph_breaks"].total() - breaks_before == breaks


@pytest.fixture(autouse=True)
def fresh() -> Any:
    torch._C._dynamo.compiled_autograd.clear_cache()
    pyframe.reset()
    yield
    pyframe.config.compiled_autograd = False


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))


def gradients(model: nn.Module) -> list[Any]:
    return [p.grad for p in model.parameters()]


# ---- gradients


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_accumulate(backend: str) -> None:
    def scenario(log: Log) -> list[Any]:
        model = network()
        held: list[Any] = []
        for _ in range(3):
            model(torch.randn(5, 3)).square().sum().backward()
            before, held = held, gradients(model)
            log.append([x is y for x, y in zip(held, before)])
        return gradients(model)

    # the first pass finds no gradients, so it is another program than the second
    check(scenario, programs=2, breaks=0, backend=backend, options={"cache": False} if backend == "inductor" else None)


def test_gradients_set_to_none() -> None:
    def scenario(log: Log) -> list[Any]:
        model = network()
        for _ in range(3):
            model.zero_grad()
            model(torch.randn(5, 3)).square().sum().backward()
        return gradients(model)

    check(scenario, breaks=0)
    assert counters["graphs"] == 1


def test_sizes_become_symbols() -> None:
    def scenario(log: Log) -> list[Any]:
        model, found = network(), []
        for n in (5, 7, 8, 9, 11):
            model.zero_grad()
            model(torch.randn(n, 3)).view(-1).square().sum().backward()
            found += gradients(model)
        return found

    check(scenario)
    assert counters["graphs"] == 2


def test_shared_and_transposed_parameters() -> None:
    def scenario(log: Log) -> list[Any]:
        w = nn.Parameter(torch.randn(4, 4))
        t = nn.Parameter(torch.randn(4, 6).t())
        s = nn.Parameter(torch.randn(4, 6)[:, ::2])
        x = torch.randn(3, 4)
        for _ in range(2):
            y = (x @ w @ w) @ t.t()
            (y.sum() + (x[:, :3].t() @ x @ s).sum() + w.sum()).backward()
        return [w.grad, t.grad, s.grad]

    check(scenario, programs=2)


def test_one_gradient_for_two_leaves() -> None:
    def scenario(log: Log) -> list[Any]:
        a, b, c = (torch.randn(3, requires_grad=True) for _ in range(3))
        seed = torch.ones(3)
        (a + b + c.view(3)).backward(seed)
        a.grad.add_(1)
        return [a.grad, b.grad, c.grad, seed]

    check(scenario)


def test_broadcast_and_mixed_dtypes() -> None:
    def scenario(log: Log) -> list[Any]:
        a = torch.randn(3, 1, requires_grad=True)
        b = torch.randn(4, dtype=torch.float64, requires_grad=True)
        c = torch.randn(3, 4, dtype=torch.complex64, requires_grad=True)
        (a * b + c).abs().sum().backward()
        return [a.grad, b.grad, c.grad]

    check(scenario)


def test_in_place_writes_to_views() -> None:
    def scenario(log: Log) -> list[Any]:
        found = []
        for n in (4, 5, 6):
            x = torch.randn(n, 3, requires_grad=True)
            y = torch.randn(3, requires_grad=True)
            z = x * 2
            z[1] = y
            z.square().sum().backward()
            found += [x.grad, y.grad]
        return found

    check(scenario)


def test_sparse_gradients() -> None:
    def scenario(log: Log) -> list[Any]:
        embedding = nn.Embedding(10, 3, sparse=True)
        head = nn.Linear(3, 1)
        for k in range(3):
            loss = head(embedding(torch.tensor([1, 4, 4, k]))).sum()
            if k == 1:
                loss = loss + embedding.weight.sum()
            loss.backward()
        return [embedding.weight.grad, *gradients(head)]

    check(scenario, programs=None)


def test_operators_of_many_kinds() -> None:
    def scenario(log: Log) -> list[Any]:
        conv, norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        x = torch.randn(2, 2, 8, 8, requires_grad=True)
        y = torch.relu(norm(conv(x)))
        y = nn.functional.max_pool2d(y, 2).flatten(1)
        y = torch.cat([y, y.flip(1)], 1).unfold(1, 4, 4).sum(-1)
        q = nn.functional.scaled_dot_product_attention(*[y.view(2, 1, 8, 4)] * 3).flatten(1)
        q = torch.stack(q.split(8, 1)).permute(1, 0, 2).reshape(2, -1).cumsum(1)
        loss = nn.functional.cross_entropy(q.index_select(1, torch.tensor([0, 3, 5])), torch.tensor([0, 2]))
        (loss + q.pow(2).mean() + q.norm() + torch.linalg.det(q[:, :2])).backward()
        return [x.grad, *gradients(conv), *gradients(norm)]

    check(scenario)


def test_inputs_and_grad() -> None:
    def scenario(log: Log) -> list[Any]:
        a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        m = a * b
        y = m.sin().sum()
        y.backward(inputs=[a], retain_graph=True)
        log.append(b.grad is None)
        y.backward(inputs=[m], retain_graph=True)
        found = torch.autograd.grad(y, [a, m, b], retain_graph=True)
        unused = torch.autograd.grad(y, [a, torch.ones(1, requires_grad=True)], allow_unused=True, retain_graph=True)
        log.append(unused[1] is None)
        both = torch.autograd.grad([y, m], [b], [torch.tensor(2.0), torch.ones(3)])
        return [a.grad, m.grad, *found, unused[0], *both]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of `m.grad`
        wanted = run(scenario)
        with pyframe.compiled_autograd(backend="eager"):
            found = run(scenario)
    torch.testing.assert_close(found, wanted)
    assert counters["backward_fallbacks"] == 0 and counters["backward_programs"] == 5


def test_undefined_gradients() -> None:
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, y * 3

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor, h: torch.Tensor) -> Any:
            return g * 2, None

    def scenario(log: Log) -> list[Any]:
        a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        b.register_hook(lambda g: log.append(g is None))
        b.register_post_accumulate_grad_hook(lambda p: log.append("accumulated"))
        u, v = Half.apply(a, b.sin())
        (u.sum() + v.sum()).backward()
        u, v = Half.apply(a, b)
        u.sum().backward()  # the gradient of `v` is undefined: the function gets zeros
        return [a.grad, b.grad]

    check(scenario, programs=2)


# ---- hooks


def test_hooks_in_order() -> None:
    def scenario(log: Log) -> list[Any]:
        model = network()
        for name, p in model.named_parameters():
            p.register_hook(lambda g, name=name: log.append(("tensor", name)))
            p.register_post_accumulate_grad_hook(lambda p, name=name: log.append(("after", name, p.grad is not None)))
        x = torch.randn(5, 3)
        for _ in range(2):
            y = model[0](x)
            y.register_hook(lambda g: g * 2)
            y.register_hook(lambda g: log.append(tuple(g.shape)))
            y.grad_fn.register_prehook(lambda gs: log.append(("pre", len(gs))))
            y.grad_fn.register_hook(lambda gi, go: log.append(("post", [g is None for g in gi], len(go))))
            y.retain_grad()
            model[3](model[2](model[1](y))).sum().backward()
            log.append(y.grad.tolist())
        return gradients(model)

    check(scenario, programs=2)


def test_hooks_that_compute_stay_in_the_graph() -> None:
    def halve(p: nn.Parameter) -> None:
        p.grad.mul_(0.5)

    def scenario(log: Log) -> list[Any]:
        model = network()
        for p in model.parameters():
            p.register_hook(lambda g: g.clamp(-0.5, 0.5))
            p.register_post_accumulate_grad_hook(halve)
        model(torch.randn(5, 3)).sum().backward()
        return gradients(model)

    check(scenario, breaks=0)
    assert counters["graphs"] == 1


def test_hooks_that_change_gradients_and_parameters() -> None:
    """The optimizer step happens in the hook, as in training with little memory."""

    def scenario(log: Log) -> list[Any]:
        model = network()

        def step(p: nn.Parameter) -> None:
            with torch.no_grad():
                p.add_(p.grad, alpha=-0.1)
            p.grad = None

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(step)
        for _ in range(3):
            model(torch.randn(5, 3)).square().sum().backward()
        return [*gradients(model), *(p.detach() for p in model.parameters())]

    check(scenario)


@pytest.mark.parametrize("result", ["text", "size", "tuple"])
def test_errors_of_hooks(result: str) -> None:
    def scenario(log: Log) -> list[Any]:
        x = torch.randn(3, requires_grad=True)
        y = x.sin()
        if result == "tuple":
            y.grad_fn.register_hook(lambda gi, go: (gi[0], gi[0]))
        else:
            y.register_hook(lambda g: {"text": "no", "size": g[:1]}[result])
        try:
            y.sum().backward()
        except (RuntimeError, TypeError) as error:
            log.append((type(error), str(error).partition("(")[0].replace("<lambda>", "")))
        return [x.grad]

    check(scenario)


def test_an_error_in_a_hook_leaves_what_eager_leaves() -> None:
    def scenario(log: Log) -> list[Any]:
        model = network()

        def fail(g: torch.Tensor) -> None:
            raise ValueError("stop")

        model[1].weight.register_hook(fail)
        with pytest.raises(ValueError, match="stop"):
            model(torch.randn(5, 3)).sum().backward()
        return gradients(model)

    check(scenario)


def test_module_hooks() -> None:
    def scenario(log: Log) -> list[Any]:
        model = network()
        model[0].register_full_backward_hook(lambda m, gi, go: log.append(("full", len(gi), len(go))))
        model[3].register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
        x = torch.randn(5, 3, requires_grad=True)
        model(x).sum().backward()
        return [x.grad, *gradients(model)]

    check(scenario)


def test_multi_grad_hooks_and_callbacks() -> None:
    def scenario(log: Log) -> list[Any]:
        a, b, c = (torch.randn(3, requires_grad=True) for _ in range(3))
        torch.autograd.graph.register_multi_grad_hook((a, b, c), lambda gs: log.append([g is None for g in gs]))
        torch.autograd.graph.register_multi_grad_hook((a, b), lambda g: log.append("any"), mode="any")
        a.register_hook(
            lambda g: torch.autograd.Variable._execution_engine.queue_callback(lambda: log.append("finished"))
        )
        (a * b).sum().backward()
        (a * b * c).sum().backward()
        return [a.grad, b.grad, c.grad]

    check(scenario, programs=2)


# ---- functions, checkpoints, random numbers


def test_autograd_functions() -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, factor: float, w: torch.Tensor, log: Log) -> Any:
            ctx.save_for_backward(x, w)
            ctx.factor, ctx.log = factor, log
            return x * w * factor, "text", x > 0

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, g: torch.Tensor, *_: Any) -> Any:
            x, w = ctx.saved_tensors
            ctx.log.append((ctx.factor, ctx.needs_input_grad, len(ctx.saved_tensors)))
            return g * w * ctx.factor, None, (g * x * ctx.factor).sum(0), None

    def scenario(log: Log) -> list[Any]:
        w = torch.randn(3, requires_grad=True)
        found = []
        for n, factor in ((2, 2.0), (3, 5.0), (4, 2.0)):
            x = torch.randn(n, 3, requires_grad=True)
            y, text, mask = Scaled.apply(x.sin(), factor, w, log)
            log.append(text)
            (y * mask).sum().backward()
            found += [x.grad, w.grad.clone()]
        return found

    check(scenario, programs=2)


def test_wrong_number_of_gradients() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            return g, g

    def scenario(log: Log) -> list[Any]:
        x = torch.randn(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="incorrect number of gradients"):
            Wrong.apply(x).sum().backward()
        return [x.grad]

    check(scenario)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_with_dropout(reentrant: bool) -> None:
    def scenario(log: Log) -> list[Any]:
        model, x = network(), torch.randn(5, 3, requires_grad=True)

        def part(x: torch.Tensor) -> torch.Tensor:
            log.append("forward")
            return nn.functional.dropout(model(x).sin().cos(), 0.5)

        for _ in range(2):
            checkpoint(part, x.sin(), use_reentrant=reentrant).sum().backward()
            log.append(torch.rand(1).item())
        return [x.grad, *gradients(model)]

    check(scenario, programs=None)


def test_saved_tensors_hooks() -> None:
    def scenario(log: Log) -> list[Any]:
        model = network()
        with torch.autograd.graph.save_on_cpu():
            y = model(torch.randn(5, 3))
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x.numpy(), lambda a: torch.from_numpy(a)):
            z = y.detach().requires_grad_().exp()
        y.sum().backward()
        z.sum().backward()
        return gradients(model)

    check(scenario, programs=2)


def test_compiled_forward_with_breaks() -> None:
    def scenario(log: Log) -> list[Any]:
        model = network()

        @pyframe.compile(backend=forward)
        def f(x: torch.Tensor) -> torch.Tensor:
            y = model[1](model[0](x))
            pyframe.graph_break()
            return model[3](model[2](y))

        for n in (5, 6, 7):
            f(torch.randn(n, 3)).square().sum().backward()
        return gradients(model)

    for forward in ("eager", "inductor"):
        check(scenario, programs=None)


# ---- what is not captured


def test_higher_order_runs_eagerly() -> None:
    def scenario(log: Log) -> list[Any]:
        x = torch.randn(3, requires_grad=True)
        (g,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        g.square().sum().backward()
        return [x.grad]

    check(scenario)


def test_a_second_backward_raises() -> None:
    def scenario(log: Log) -> list[Any]:
        x = torch.randn(3, requires_grad=True)
        y = x.sin().exp().sum()
        y.backward(retain_graph=True)
        y.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            y.backward()
        return [x.grad]

    check(scenario, programs=2)


def test_writes_to_saved_tensors_raise() -> None:
    def scenario(log: Log) -> list[Any]:
        x = torch.randn(3, requires_grad=True)
        y = x.exp()
        with torch.no_grad():
            y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
        return [x.grad]

    check(scenario, programs=0)


def test_anomaly_mode() -> None:
    def scenario(log: Log) -> list[Any]:
        x = torch.zeros(3, requires_grad=True)
        with torch.autograd.set_detect_anomaly(True, check_nan=True), pytest.raises(RuntimeError, match="nan values"):
            (x.sqrt() * 0).sum().backward()
        return [x.grad]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pyframe.compiled_autograd(backend="eager"):
            run(scenario)
    assert counters["backward_programs"] == 0


def test_transforms_run_eagerly() -> None:
    def scenario(log: Log) -> list[Any]:
        x = torch.randn(3)
        return [torch.func.grad(lambda x: x.sin().sum())(x), torch.func.jacrev(torch.sin)(x)]

    check(scenario, programs=0)


def test_batched_gradients() -> None:
    def scenario(log: Log) -> list[Any]:
        x = torch.randn(3, requires_grad=True)
        return list(torch.autograd.grad(x.sin(), x, torch.eye(3), is_grads_batched=True))

    check(scenario, programs=0)


# ---- memory, threads, scope


class _Watched(torch.autograd.Function):
    """Saves a tensor of its own, whose memory the test watches."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, alive: list[Any]) -> torch.Tensor:
        saved = x * 2
        alive.append(weakref.ref(saved))
        ctx.save_for_backward(saved)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g * 2, None


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_saved_tensors_are_freed(backend: str) -> None:
    x = torch.randn(3, requires_grad=True)
    with pyframe.compiled_autograd(backend=backend):
        for retain in (False, True):
            alive: list[Any] = []
            packed = weakref.WeakSet[Any]()

            class Packed:
                def __init__(self, x: torch.Tensor) -> None:
                    self.x = x
                    packed.add(self)

            with torch.autograd.graph.saved_tensors_hooks(Packed, lambda p: p.x):
                y = x.sin().exp()
            y = _Watched.apply(y, alive).sum()
            y.backward(retain_graph=retain)
            gc.collect()
            assert (alive[0]() is not None) == retain
            assert len(packed) == (2 if retain else 0)
            if retain:
                y.backward()
                assert len(packed) == 0


def test_scopes() -> None:
    x = torch.randn(3, requires_grad=True)
    original = torch.autograd._engine_run_backward

    def programs(work: Callable[[], Any]) -> int:
        before = counters["backward_programs"]
        torch._C._dynamo.compiled_autograd.clear_cache()
        work()
        return counters["backward_programs"] - before

    def backward() -> None:
        x.sin().sum().backward()

    assert programs(backward) == 0
    assert programs(pyframe.compiled_autograd(backend="eager")(backward)) == 1
    with pyframe.compiled_autograd(backend="eager"):
        with pyframe.compiled_autograd(False):
            assert programs(backward) == 0
        assert programs(backward) == 1
        other = threading.Thread(target=backward)
        assert programs(lambda: (other.start(), other.join())) == 0
    with pyframe.config.patch(compiled_autograd=True):
        other = threading.Thread(target=backward)
        assert programs(lambda: (other.start(), other.join())) == 1
    assert programs(backward) == 0
    assert torch.autograd._engine_run_backward is original


def test_option() -> None:
    x = torch.randn(3, requires_grad=True)

    def step(k: float) -> torch.Tensor:
        loss = (x.sin() * k).sum()
        loss.backward()
        return loss

    compiled = pyframe.compile(step, backend="eager", options={"compiled_autograd": True})
    compiled(2.0)
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    assert counters["backward_programs"] == 1
    with pytest.raises(pyframe.UserError, match="for functions"):
        pyframe.compile(nn.Linear(2, 2), options={"compiled_autograd": True})
    with pytest.raises(pyframe.UserError, match="enabled"):
        pyframe.compiled_autograd("eager")


def test_two_settings_do_not_share_programs() -> None:
    seen: list[str] = []

    def backend(name: str) -> Any:
        def compile_graph(gm: Any, inputs: Any) -> Any:
            seen.append(name)
            return gm.forward

        return compile_graph

    x = torch.randn(3, requires_grad=True)
    for scope in [pyframe.compiled_autograd(backend=backend(name)) for name in "ab"] * 2:
        x.grad = None
        with scope:
            x.sin().sum().backward()
    assert seen == ["a", "b"]
    assert counters["backward_programs"] == 1

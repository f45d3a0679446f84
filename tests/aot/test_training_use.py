"""What a caller does after the forward: writes, partial and repeated backwards, gradients of gradients."""

import warnings

import pytest
import torch
from test_training_aliasing import FUNCTIONS
from torch import fx
from training_support import check, plain, set_grad

from inductor.aot.autograd import compile_training


def compiled(fn, *inputs):
    return compile_training(fx.symbolic_trace(fn), inputs, plain)


def write_result(inputs, results):
    results[0].mul_(2)
    return results


def no_grad_write_result(inputs, results):
    with torch.no_grad():
        results[0].add_(2)
    return results


def no_grad_write_last_result(inputs, results):
    with torch.no_grad():
        results[-1].add_(2)
    return results


def no_grad_write_input(inputs, results):
    with torch.no_grad():
        inputs[0].add_(2)
    return results


def no_grad_write_other_input(inputs, results):
    with torch.no_grad():
        inputs[1].mul_(2)
    return results


AFTER = [
    write_result,
    no_grad_write_result,
    no_grad_write_last_result,
    no_grad_write_input,
    no_grad_write_other_input,
]


@pytest.mark.parametrize("after", AFTER, ids=lambda x: x.__name__)
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda x: x.__name__)
@pytest.mark.parametrize("kinds", [("mid", "leaf"), ("data", "leaf"), ("leaf", "data")], ids="-".join)
def test_writes_after_the_forward_are_seen_or_refused_as_in_eager(fn, kinds, after):
    check(fn, kinds, after)


def leaf(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def body(x, w):
    h = (x @ w).tanh()
    return (h * h).sum(), h.exp(), (w * 2).sin()


def test_backward_twice_needs_retain_graph():
    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(body, x, w)
    loss = call(x, w)[0]
    loss.backward(retain_graph=True)
    once = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * once)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_gradients_accumulate_over_calls():
    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(body, x, w)
    for _ in range(3):
        (call(x, w)[0] + call(x, w)[1].sum()).backward()
    got = x.grad.clone(), w.grad.clone()
    x.grad = w.grad = None
    for _ in range(3):
        (body(x, w)[0] + body(x, w)[1].sum()).backward()
    torch.testing.assert_close(got, (x.grad, w.grad))


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_results_not_used_give_no_gradient(used):
    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(body, x, w)
    got = torch.autograd.grad(sum(call(x, w)[k].sum() for k in used), [x, w], allow_unused=True)
    want = torch.autograd.grad(sum(body(x, w)[k].sum() for k in used), [x, w], allow_unused=True)
    assert [g is None for g in got] == [g is None for g in want]
    torch.testing.assert_close(got, want)


def test_gradient_of_one_input_and_of_an_inner_value():
    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(body, x, w)
    h = x * 2
    torch.testing.assert_close(torch.autograd.grad(call(h, w)[1].sum(), h), torch.autograd.grad(body(h, w)[1].sum(), h))


def test_a_gradient_of_another_layout():
    x, w = leaf(3, 4), leaf(4, 4)
    fn = lambda x, w: (x @ w).relu() * x
    call = compiled(fn, x, w)
    for turn in (lambda z: z.t().contiguous().view(-1)[:5].sum(), lambda z: z.expand(2, 3, 4).sum(), torch.sum):
        torch.testing.assert_close(
            torch.autograd.grad(turn(call(x, w)), [x, w]), torch.autograd.grad(turn(fn(x, w)), [x, w])
        )


def test_hooks_and_saved_tensor_hooks_run():
    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(body, x, w)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        out = call(x, w)
    assert packed
    seen = []
    x.register_hook(seen.append)
    out[0].backward()
    assert len(seen) == 1


def test_under_no_grad_nothing_is_recorded():
    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(body, x, w)
    with torch.no_grad():
        out = call(x, w)
    assert not any(y.requires_grad for y in out)
    torch.testing.assert_close(out, body(x.detach(), w.detach()))


def test_memory_goes_with_the_backward():
    import gc
    import weakref

    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(body, x, w)
    gc.disable()
    try:
        out = call(x, w)
        node = weakref.ref(out[0].grad_fn)
        result = weakref.ref(out[1])
        out[0].backward()
        del out
        assert result() is None and node() is None
    finally:
        gc.enable()


def test_under_a_function_transform_the_graph_itself_runs():
    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(body, x, w)
    total = lambda fn: lambda x: fn(x, w.detach())[0]
    torch.testing.assert_close(torch.func.hessian(total(call))(x.detach()), torch.func.hessian(total(body))(x.detach()))


# ---- second derivatives


def smooth(x, w):
    h = (x @ w).tanh()
    return (h * h).sum(), h.exp()


def views(x, w):
    z = (x @ w).exp()
    return z, z.t(), z[0]


def with_constant(x, w):
    set_grad(x, False)
    m = (x @ w).mean()
    set_grad(x, True)
    return ((x @ w).sin() * m,)


def penalty(call, x, w):
    grads = torch.autograd.grad(sum((y * y).sum() for y in call(x, w)), [x, w], create_graph=True)
    return torch.autograd.grad(sum((g * g).sum() for g in grads), [x, w])


@pytest.mark.filterwarnings("ignore:inductor")
@pytest.mark.parametrize("fn", [smooth, views, with_constant], ids=lambda fn: fn.__name__)
def test_second_derivatives_are_eagers(fn):
    x, w = (y.detach().double().requires_grad_() for y in (leaf(3, 4), leaf(4, 2)))
    call = compiled(fn, x, w)
    torch.testing.assert_close(penalty(call, x, w), penalty(fn, x, w))
    h, k = x * 2, w.sin()
    torch.testing.assert_close(penalty(call, h, k), penalty(fn, h, k))


@pytest.mark.filterwarnings("ignore:inductor")
def test_gradient_of_a_tangent():
    x, w, v = leaf(3, 4), leaf(4, 2), leaf(3, 2, seed=5)

    def product(fn):
        (g,) = torch.autograd.grad(fn(x, w)[1], x, v, create_graph=True)
        return torch.autograd.grad(g.sum(), [v, x])

    torch.testing.assert_close(product(compiled(smooth, x, w)), product(smooth))


def test_a_second_derivative_warns_once():
    x, w = leaf(3, 4), leaf(4, 2)
    call = compiled(smooth, x, w)
    with pytest.warns(UserWarning, match="second derivative"):
        penalty(call, x, w)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        penalty(call, x, w)


def random_part(x, w):
    return (torch.nn.functional.dropout(x @ w, 0.5) ** 3,)


@pytest.mark.filterwarnings("ignore:inductor")
def test_second_derivatives_draw_the_same_numbers():
    x, w = leaf(30, 4), leaf(4, 2)
    call = compiled(random_part, x, w)
    seen = []
    for fn in (call, random_part):
        torch.manual_seed(5)
        seen.append((penalty(fn, x, w), torch.get_rng_state()))
    torch.testing.assert_close(*seen)


def bias(x, b):
    return ((x + b).exp().sin(),)


def test_a_second_derivative_after_a_write_is_an_error():
    x, b = leaf(3, 4), leaf(4)
    call = compiled(bias, x, b)
    (y,) = call(x, b)
    with torch.no_grad():
        b.add_(1)
    torch.autograd.grad(y.sum(), x, retain_graph=True)  # the first derivative does not need b
    with pytest.raises(RuntimeError, match="mutated after the call"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


HISTORY = {"unused": lambda x, old: x.sin(), "detached": lambda x, old: x.sin() + old.detach()}


@pytest.mark.parametrize("fn", HISTORY.values(), ids=HISTORY)
def test_the_backward_does_not_go_on_into_what_the_results_do_not_depend_on(fn):
    x, w = (torch.randn(3, requires_grad=True) for _ in range(2))
    ran = []
    old = w.exp()
    old.register_hook(lambda grad: ran.append("hook"))
    old.sum().backward()  # frees what the backward of `old` needs
    ran.clear()
    w.grad = None
    compiled(fn, x, old)(x, old).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
    assert w.grad is None and not ran

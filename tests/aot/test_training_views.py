"""Views of inputs that a training graph returns: where they lie, and whether they require a gradient."""

import pytest
import torch

import pyframe

LAYOUTS = {"middle": lambda b: b[2:8], "every second": lambda b: b[::2][:6], "first": lambda b: b[:6]}
VIEWS = {
    "expand": lambda x: x.expand(6),
    "slice": lambda x: x[1:4],
    "view": lambda x: x.view(2, 3),
    "every second": lambda x: x[1::2],
}
DETACHED = {
    "unbind": lambda x: x.detach().unbind(0)[1],
    "view, then detach": lambda x: x.reshape(-1).detach()[1:],
    "no_grad": torch.no_grad()(lambda x: x[1]),
    "detach of a view": lambda x: x[1].detach(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("through_view", [False, True])
def test_view_of_a_written_input_lies_where_it_lies_in_eager(layout, view, through_view):
    def f(x, w):
        v = VIEWS[view](x)
        (v if through_view else x).mul_(2)
        return x[:3] * w, v

    seen = []
    for fn in (f, pyframe.compile(f)):
        b, w = torch.arange(12.0), torch.ones(3, requires_grad=True)
        y, v = fn(LAYOUTS[layout](b), w)
        y.sum().backward()
        values, place = v.tolist(), (v.storage_offset(), v.stride())
        v.zero_()
        seen.append((values, place, b.tolist(), w.grad.tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("kind", DETACHED)
@pytest.mark.parametrize("leaf", [False, True])
def test_view_of_a_detached_tensor_requires_no_gradient(kind, leaf):
    def f(x):
        return x * 2, DETACHED[kind](x)

    seen = []
    for fn in (f, pyframe.compile(f)):
        x = torch.ones(7, 2, requires_grad=True)
        v = fn(x if leaf else x[:, 1:])[1]
        seen.append((v.requires_grad, v.grad_fn, v.tolist()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("view", [lambda x: x.mT, lambda x: x[:, 1::2]])
def test_gradient_of_a_view_of_an_input_whose_elements_share_memory(view):
    grads = []
    for f in (view, pyframe.compile(view)):
        x = torch.ones(1, 1).expand(5, 4).detach().requires_grad_()
        y = f(x)
        y.backward(torch.arange(float(y.numel())).reshape(y.shape))
        grads.append(x.grad)
    assert torch.equal(*grads)


@pytest.mark.parametrize("second", [lambda v: v[..., 0:1], lambda v: v.unsqueeze(0), lambda v: v.view(-1)])
@pytest.mark.parametrize("of", [lambda x: x, lambda x: x.sin()])
def test_gradients_do_not_pass_a_view_created_under_no_grad(second, of):
    x = torch.ones(2, 3, requires_grad=True)

    def f(x):
        x = of(x)
        with torch.no_grad():
            view = x[:1]
        return second(view)

    result, expected = pyframe.compile(f)(x), f(x)
    assert result.requires_grad == expected.requires_grad
    grad = [torch.autograd.grad(y.sum(), x, allow_unused=True)[0] for y in (expected, result) if y.requires_grad]
    assert all(g is None for g in grad)

"""Results of graphs without gradients that are views of inputs: autograd knows them as such, as it does in eager."""

import pytest
import torch

import pyframe

VIEWS = {
    "index": lambda x: x[0],
    "reshape": lambda x: x.view(-1),
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x[:1].expand(4, 3),
    "with another": lambda x: (x + 1, x[:, 1]),
    "twice": lambda x: (x[0], x[0]),
    "detached": lambda x: x.detach()[None],
    "of a new tensor": lambda x: (x * 2)[None],
    "sorted": lambda x: (x.sort().values, x[1:]),  # ATen's operator, before which gradients are switched off
}


def seen_by_autograd(results, x):
    results = results if isinstance(results, tuple) else (results,)
    return [
        (y.requires_grad, y.is_leaf, y._is_view() and y._base is x, y.storage_offset(), y.stride(), y.is_inference())
        for y in results
    ]


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_as_in_eager(name, requires_grad, mode):
    if requires_grad and mode is torch.enable_grad:
        pytest.skip("graphs with gradients: test_training_views.py")
    x = torch.randn(2, 3, requires_grad=requires_grad)
    f = VIEWS[name]
    with mode():
        want, fast = f(x), pyframe.compile(f)
        for _ in range(2):
            got = fast(x)
            if name != "of a new tensor":
                assert seen_by_autograd(got, x) == seen_by_autograd(want, x)
            torch.testing.assert_close(got, want)


def test_of_a_part_of_an_input():
    base = torch.arange(12.0).view(3, 4).clone()
    (got,) = pyframe.compile(lambda x: (x[1:],))(base[:, 1:])
    assert got._base is base and got.storage_offset() == 5 and torch.equal(got, base[1:, 1:])


def test_a_later_write_with_gradients_reaches_the_input():
    def f(x):
        return x[0], x.sum()

    gradients = []
    for call in (f, pyframe.compile(f)):
        x, w = torch.zeros(2, 3), torch.ones(3, requires_grad=True)
        view, _ = call(x)
        view.add_(w * 3)
        gradients.append(torch.autograd.grad(x.sum(), w)[0])
    assert torch.equal(*gradients)


def test_a_write_counts_as_one_to_the_input():
    x = torch.zeros(2, 3)
    view, _ = pyframe.compile(lambda x: (x[0], x.sum()))(x)
    version = x._version
    view.add_(1)
    assert x._version == version + 1


def test_under_no_grad_inside_of_a_graph_that_is_cut():
    def f(x, i):
        with torch.no_grad():
            view = x[None]
        return torch.bincount(i, minlength=5), view

    x, i = torch.tensor(2.0, requires_grad=True), torch.tensor([0, 0])
    assert seen_by_autograd(pyframe.compile(f)(x, i)[1], x) == seen_by_autograd(f(x, i)[1], x)


def test_the_size_of_what_unique_gives_of_nothing():
    def f(x):
        return torch.unique(x.sum().item() + x, return_counts=True)

    for got, want in zip(pyframe.compile(f)(torch.zeros(0, 0)), f(torch.zeros(0, 0))):
        assert got.dtype == want.dtype and got.shape == want.shape


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("at", [0, -1])
def test_a_write_to_some_elements_of_an_input_whose_elements_share_memory(at, dynamic, grad):
    def f(x, w):
        part = x[..., at]
        part.mul_(2)
        return part * w, x + 1

    for c in (f, pyframe.compile(f, dynamic=dynamic)):
        base = torch.arange(1.0, 4.0)[:, None]
        w = torch.full((3,), 2.0, requires_grad=grad)
        product, shifted = c(base.expand(3, 2), w)
        assert base.flatten().tolist() == [2, 4, 6]
        assert product.tolist() == [4, 8, 12]
        assert shifted.tolist() == [[3, 3], [5, 5], [7, 7]]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("view", [False, True])
def test_an_offset_from_the_start_of_the_memory_of_an_input_that_was_written(view, grad):
    def f(x, w):
        x.mul_(3)
        seen = x.as_strided([3], [0], 0)
        return (seen if view else seen + 1), w * 2

    for c in (f, pyframe.compile(f)):
        base = torch.arange(4, 7)
        result, _ = c(base[2:], torch.ones(2, requires_grad=grad))
        assert result.tolist() == [4 + (not view)] * 3
        assert base.tolist() == [4, 5, 18]

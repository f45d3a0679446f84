"""Small programs in the style of users' that once differed from eager, each in its smallest form."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import pyframe
from inductor.aot.functionalize import to_aten


def test_gradients_switched_on_where_none_are_recorded():
    """The graph of a call under no_grad records gradients inside `enable_grad` as eager does."""

    @torch.enable_grad()
    def whole(x):
        return x * 2

    def part(x):
        before = x * 3
        with torch.enable_grad():
            inside = x * x
        return before, inside, inside + 1

    x = torch.randn(3, requires_grad=True)
    for backend in ("eager", "inductor"):
        with torch.no_grad():
            doubled = pyframe.compile(whole, backend=backend)(x)
            results = pyframe.compile(part, backend=backend)(x)
        assert doubled.requires_grad
        assert [r.requires_grad for r in results] == [False, True, False]
        (gradient,) = torch.autograd.grad(results[1].sum() + doubled.sum(), x)
        torch.testing.assert_close(gradient, 2 * x.detach() + 2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_around_a_compiled_module(reentrant):
    """The hooks of the checkpoint see what runs, not what is traced at the first call."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4))
    x = torch.randn(3, 4)
    gradients = []
    for run in (model, pyframe.compile(model)):
        given = x.clone().requires_grad_()
        checkpoint(run, given, use_reentrant=reentrant).sum().backward()
        gradients.append((given.grad, *(p.grad.clone() for p in model.parameters())))
        model.zero_grad()
    torch.testing.assert_close(gradients[1], gradients[0])


def test_hooks_of_saved_tensors_see_real_tensors():
    saved = []

    def pack(tensor):
        saved.append(type(tensor))
        return tensor

    x = torch.randn(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = pyframe.compile(lambda x: x.sin().exp())(x)
    y.sum().backward()
    assert saved
    assert {cls for cls in saved if cls is not torch.Tensor} == set()


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: F.cross_entropy(x, torch.zeros(0, dtype=torch.long)),
        lambda x: F.cross_entropy(x, torch.zeros(0, dtype=torch.long), reduction="sum"),
        lambda x: x[torch.zeros(0, dtype=torch.long)].sum(0),
        lambda x: x.gather(1, torch.zeros(0, 2, dtype=torch.long)).prod(),
        lambda x: (x.gather(1, torch.zeros(0, 2, dtype=torch.long)) > 0).all(0),
        lambda x: x.t().logsumexp(1),
    ],
)
def test_reductions_of_no_elements_read_no_memory(f, recorded):
    """What a loop that runs no times would read is not read before it either."""
    x = torch.zeros(0, 4, requires_grad=recorded)
    torch.testing.assert_close(pyframe.compile(f)(x), f(x), equal_nan=True)


def test_dispatch_modes_of_a_trace_are_not_the_programs():
    """nn.MultiheadAttention asks for them to choose its path."""

    def f(x):
        return x + 1, len(torch.utils._python_dispatch._get_current_dispatch_mode_stack())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pyframe.compile(f, backend="eager")(torch.ones(2))[1] == 0


def test_functions_made_by_pybind11_are_no_methods():
    def f(x):
        return x + 1, torch._C._autograd._saved_tensors_hooks_is_enabled

    assert pyframe.compile(f, backend="eager")(torch.ones(2))[1]() is True


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_of_torch_compile(mode):
    f = pyframe.compile(lambda x: x.sin() + 1, mode=mode)
    torch.testing.assert_close(f(torch.ones(3)), torch.ones(3).sin() + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_multilabel_margin_loss_ends_at_the_first_hole(dynamic):
    """torch's decomposition counts the places behind it as targets of class 0."""
    x = torch.randn(5, 4)
    target = torch.tensor([[0, 2, -1, 1]] * 5)
    found = []
    for loss in (F.multilabel_margin_loss, pyframe.compile(F.multilabel_margin_loss, dynamic=dynamic)):
        given = x.clone().requires_grad_()
        recorded = loss(given, target)
        recorded.backward()
        found.append((recorded.detach(), given.grad, loss(x, target)))
    torch.testing.assert_close(found[1], found[0])


def test_the_sign_of_zero_that_clamp_keeps():
    """1 / sqrt(-0.0) is -inf: the sign is seen."""
    x = -torch.zeros(16)
    for f in (torch.relu, lambda x: x.clamp_min(0), lambda x: x.clamp(0, 1), lambda x: x.clamp_max(0.0)):
        assert torch.equal(pyframe.compile(f)(x).signbit(), f(x).signbit())


@pytest.mark.parametrize("dynamic", [None, True])
def test_new_of_a_size_is_of_that_size(dynamic):
    """`x.new(x.shape)`, by which torch.distributions makes memory for its draws; a tuple would be the items."""

    def f(x):
        return (
            x.new(x.shape).fill_(1),
            x.new(x.shape[:1]).fill_(2),
            x.new(tuple(x.shape)),
            x.new(torch.Size([])).fill_(3),
        )

    c = pyframe.compile(f, dynamic=dynamic, backend="eager")
    for n in (3, 4):
        for got, want in zip(c(torch.ones(n, 2)), f(torch.ones(n, 2))):
            assert torch.equal(got, want)


def test_draws_of_an_exponential_distribution():
    def f(rate):
        return torch.distributions.Exponential(rate).rsample(), torch.rand(2)

    rate = torch.rand(3) + 0.5
    torch.manual_seed(1)
    want = f(rate)
    torch.manual_seed(1)
    torch.testing.assert_close(pyframe.compile(f)(rate), want)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_max_unpool_keeps_channels_last(dynamic, requires_grad):
    def f(x):
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)

    compiled = pyframe.compile(f, dynamic=dynamic)
    for size in ((2, 3, 8, 8), (2, 3, 6, 10)):
        x = torch.randn(size).to(memory_format=torch.channels_last).requires_grad_(requires_grad)
        want, got = f(x), compiled(x)
        assert torch.equal(want, got) and want.stride() == got.stride()


UNUSED = {
    "index": lambda x, i: x[i],
    "gather": lambda x, i: x.gather(0, i[None]),
    "embedding": lambda x, i: F.embedding(i, x),
    "division": lambda x, i: i // (i - 9),
    "one_hot": lambda x, i: F.one_hot(i, 3),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", UNUSED)
def test_an_unused_result_that_cannot_be_computed_is_an_error(name, requires_grad):
    def f(x, i):
        UNUSED[name](x, i)
        return x + 1

    x = torch.randn(3, 4, requires_grad=requires_grad)
    wrong, right = torch.tensor([0, 1, 2, 9]), torch.tensor([0, 1, 2, 0])
    with pytest.raises(Exception) as expected:
        f(x, wrong)
    compiled = pyframe.compile(f, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x, right), x + 1)
        with pytest.raises(type(expected.value)):
            compiled(x, wrong)


def test_a_write_by_position_needs_no_check_of_its_result():
    seen = []

    def f(x, i, v):
        y = x * 2
        y.index_add_(0, i, v)
        y[i] = v
        return y

    def backend(gm, inputs):
        with torch.no_grad():
            seen.extend(str(node.target) for node in to_aten(gm, inputs).graph.graph.nodes)
        return gm

    args = torch.randn(3, 4), torch.tensor([0, 2]), torch.randn(2, 4)
    assert torch.equal(pyframe.compile(f, backend=backend)(*args), f(*args))
    assert seen and not any("assert" in target for target in seen)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_number_that_varies_in_inference_mode(dtype):
    """The dtype in which the number is passed to the graph is found from fake tensors, in inference mode too."""
    compiled = pyframe.compile(lambda x, k: x * k + 1)
    x = torch.ones(3, dtype=dtype)
    with torch.inference_mode():
        for k in (1.5, 2.5, 3.5):
            torch.testing.assert_close(compiled(x, k), x * k + 1)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_gradients_of_a_mean_loss_of_no_elements(loss, shape):
    gradients = []
    for run in (loss, pyframe.compile(lambda x, y: loss(x, y))):
        x = torch.zeros(shape, requires_grad=True)
        run(x, torch.ones(shape)).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("shape", [(2, 4, 0), (0, 4, 3)])
def test_gradients_of_a_group_norm_of_no_elements(shape):
    norm = nn.GroupNorm(2, 4)
    gradients = []
    for run in (norm, pyframe.compile(norm)):
        norm.zero_grad()
        x = torch.zeros(shape, requires_grad=True)
        run(x).sum().backward()
        gradients.append([x.grad, *(p.grad for p in norm.parameters())])
    torch.testing.assert_close(gradients[1], gradients[0], equal_nan=True)


def _shifted(x):
    return (x.sum().item() + 1) << 1


def _shifting(x):
    return 1 << x.sum().item()


def _matrix_product(x):
    return x.sum().item() @ 2


@pytest.mark.parametrize("program", [_shifted, _shifting, _matrix_product])
def test_operators_that_floats_lack(program):
    """torch's symbolic floats can be shifted, Python's floats cannot."""
    messages = []
    for run in (program, pyframe.compile(program)):
        with pytest.raises(TypeError) as raised:
            run(torch.ones(3))
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("name", ["__dict__", "__name__", "__mro__"])
def test_attributes_of_a_class_that_instances_lack(name):
    def program(array, x):
        found = [getattr(value, name, ()) for value in (array, [x], (x,), {"a": x}.keys())]
        return len(found), found, x + 1

    array, x = torch.ones(2).numpy(), torch.ones(3)
    got, wanted = pyframe.compile(program)(array, x), program(array, x)
    assert got[:2] == wanted[:2]

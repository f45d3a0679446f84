"""Programs like those of torch's own tests of its compiler that were wrong here at first, each cut to what was."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.ao import quantization

import pyframe

aten = torch.ops.aten


@pytest.mark.parametrize("dynamic", [False, True])
def test_variance_with_a_fractional_correction_for_sizes_that_vary(dynamic):
    def spread(x):
        return torch.var(x, dim=-1, correction=1.5), torch.std(x, dim=-1, correction=2.5)

    compiled = pyframe.compile(spread, dynamic=True if dynamic else None)
    for n in (8, 5, 3, 1):  # fewer elements than the correction: nothing to divide by
        x = torch.arange(3.0 * n).reshape(3, n).sin()
        for got, want in zip(compiled(x), spread(x)):
            torch.testing.assert_close(got, want, equal_nan=True)


def test_aten_operators_of_numbers_give_tensors_that_can_be_written():
    def fn(x, y):
        total, product = aten.add(4, 3.5), aten.mul(2, 5)
        total.add_(x)
        product += 1
        return total * y, product, aten.div(7, 2, rounding_mode="floor")

    x, y = torch.tensor(0.25), torch.tensor([1.0, 2.0])
    for got, want in zip(pyframe.compile(fn)(x, y), fn(x, y)):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)


@pytest.mark.parametrize("gather", [torch.gather, torch.Tensor.gather, aten.gather])
def test_sparse_gradient_of_gather(gather):
    def fn(x, index):
        return gather(x, 1, index, sparse_grad=True)

    index = torch.tensor([[0, 2], [1, 1]])
    x = torch.randn(2, 3, requires_grad=True)
    pyframe.compile(fn)(x, index).sum().backward()
    got, x.grad = x.grad, None
    fn(x, index).sum().backward()
    assert got.layout == x.grad.layout == torch.sparse_coo
    assert torch.equal(got.to_dense(), x.grad.to_dense())


def test_a_check_of_a_number_that_is_read_fails_at_a_later_call():
    def fn(x, n):
        k = n.item()
        torch._check(k // 2 == 3)
        return x + x.new_ones(k)

    compiled = pyframe.compile(fn)
    for k in (6, 7):
        assert torch.equal(compiled(torch.zeros(k), torch.tensor(k)), torch.ones(k))
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        compiled(torch.zeros(8), torch.tensor(8))


@pytest.mark.parametrize(
    ("op", "dtype"),
    [*((op, torch.int64) for op in (torch.ceil, torch.floor, torch.round, torch.trunc)), (torch.sign, torch.bool)],
)
def test_what_an_operator_leaves_as_it_is_does_not_share_memory_with_its_argument(op, dtype):
    def fn(x):
        before = op(x)
        x.logical_not_()
        return before, op(x)

    x, y = (torch.tensor([0, 1, 1, 0]).to(dtype) for _ in range(2))
    got, want = pyframe.compile(fn)(x), fn(y)
    for a, b in zip((*got, x), (*want, y)):
        assert torch.equal(a, b)
    assert got[1].data_ptr() != x.data_ptr()


def test_a_graph_is_cut_at_an_operator_of_a_library_that_writes_to_its_arguments(recwarn):
    @torch.library.custom_op("foreign_programs::scaled_into", mutates_args=("out",))
    def scaled_into(x: torch.Tensor, factor: int, out: torch.Tensor) -> None:
        out.copy_(x * factor)

    def fn(x, out):
        doubled = x * 2
        scaled_into(doubled, 3, out)
        total = out.sum() + doubled.sum()
        scaled_into(out, 2, doubled)
        return total, doubled + 1

    compiled = pyframe.compile(fn)
    for n in (4, 6):
        x, out, expected = torch.arange(float(n)), torch.zeros(n), torch.zeros(n)
        for got, want in zip(compiled(x, out), fn(x, expected)):
            assert torch.equal(got, want)
        assert torch.equal(out, expected)
    assert not any("ATen" in str(warning.message) for warning in recwarn)


def test_operators_of_a_library_write_to_views_in_a_graph_without_gradients(recwarn):
    @torch.library.custom_op("foreign_programs::rotated", mutates_args=("a", "b"))
    def rotated(a: torch.Tensor, b: torch.Tensor) -> None:
        a.sin_()
        b.cos_()

    @torch.library.custom_op("foreign_programs::normalized_into", mutates_args=("out",))
    def normalized_into(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
        out.copy_(x / x.norm() * weight)

    class Attention(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(8.0))
            self.inner = torch.nn.Linear(8, 24)

        def forward(self, x, cache):
            h = torch.empty_like(x)
            normalized_into(h, x, self.weight)
            q, k, v = self.inner(h).split(8, -1)
            rotated(q.view(-1, 2, 4), k.view(-1, 2, 4))
            rotated(cache[0], cache[1])
            return (q @ k.t()).softmax(-1) @ v + x, q, k, cache[1:]

    module = Attention()
    compiled = pyframe.compile(module)
    for mode, n in ((torch.no_grad, 3), (torch.no_grad, 5), (torch.inference_mode, 5)):
        with mode():
            x, cache, expected = torch.arange(8.0 * n).reshape(n, 8).sin(), torch.ones(2, 3), torch.ones(2, 3)
            got, want = compiled(x, cache), module(x, expected)
            for a, b in zip((*got, cache), (*want, expected)):
                torch.testing.assert_close(a, b)
            assert got[1].untyped_storage().data_ptr() == got[2].untyped_storage().data_ptr()
            assert got[3].data_ptr() == cache[1].data_ptr()
    assert not any("ATen" in str(warning.message) for warning in recwarn)


@pytest.mark.parametrize(
    "read",
    [
        lambda x, i: x[i],
        lambda x, i: x[[0]],
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.gather(0, i[:, None]),
        lambda x, i: torch.nn.functional.embedding(i, x),
        lambda x, i: aten._unsafe_index(x, [i]),
    ],
)
def test_an_index_into_a_tensor_without_elements_is_an_error(read):
    compiled, index = pyframe.compile(read), torch.tensor([0])
    for rows in (0, 3, 0):
        x = torch.ones(rows, 2)
        if rows:
            assert torch.equal(compiled(x, index), read(x, index))
            continue
        with pytest.raises((IndexError, RuntimeError)) as wanted:
            read(x, index)
        with pytest.raises(wanted.type):
            compiled(x, index)


@pytest.mark.parametrize("dynamic", [None, True])
def test_results_of_a_library_whose_fake_tensors_have_other_strides(dynamic):
    @torch.library.custom_op("foreign_programs::nonzero", mutates_args=())
    def nonzero(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero()  # columns are contiguous

    @nonzero.register_fake
    def _(x):
        return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64)  # rows are

    def fn(x):
        return nonzero(x) * 2

    compiled = pyframe.compile(fn, dynamic=dynamic)
    for n in (5, 6, 0, 1, 9):
        x = (torch.arange(12) < n).float().reshape(4, 3)
        assert torch.equal(compiled(x), fn(x))


@pytest.mark.parametrize(
    "write",
    [
        lambda a, b: torch._foreach_add_([a, a], 1),
        lambda a, b: torch._foreach_add_([a, b], [b, a], alpha=2),
        lambda a, b: torch._foreach_copy_([a[1:], b], [a[:-1] + 1, a]),
        lambda a, b: torch._foreach_addcmul_([a, b], [b, a], [a, a], value=0.5),
    ],
)
def test_lists_of_tensors_that_share_memory_are_written_in_order(write):
    def fn(x, y):
        a, b = x * 1, y * 1
        write(a, b)
        write(x, y)
        return a, b

    def run(call):
        x, y = torch.arange(4.0) + 1, torch.arange(4.0) * 10 + 1
        return *call(x, y), x, y

    for got, want in zip(run(pyframe.compile(fn, options={"strict": True})), run(fn)):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "read",
    [
        lambda x, i: x[:1][i] + 1,
        lambda x, i: x[:, :1].expand(-1, 5)[0, i].sum(),
        lambda x, i: x[:1, :3][i * 0, i],
        lambda x, i: torch.zeros(4)[i] + x[0, 0],
        lambda x, i: x[:1].index_select(0, i.abs()).bool(),
        lambda x, i: x[:1].gather(0, i.abs()[:, None]),
        lambda x, i: torch.nn.functional.embedding(i.abs(), x[:1]),
        lambda x, i: torch.cat([x[0, :1].expand(5)[i], x[0]]),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_an_index_is_checked_though_the_element_does_not_depend_on_it(read, dynamic):
    compiled, x = pyframe.compile(read, dynamic=dynamic, options={"strict": True}), torch.randn(3, 4)
    for values in ([0, 0], [0, 7], [0, -9], [0, -1]):
        index = torch.tensor(values)
        try:
            want = read(x, index)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(type(error)):
                compiled(x, index)
        else:
            assert torch.equal(compiled(x, index), want)


_INTS, _FLOATS = torch.ones(2, 3, 6, dtype=torch.int64), torch.randn(3, 4)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: F.celu(_INTS),
        lambda: F.logsigmoid(_INTS),
        lambda: F.hardshrink(_INTS),
        lambda: F.glu(_INTS),
        lambda: F.smooth_l1_loss(_INTS, _INTS),
        lambda: F.huber_loss(_INTS, _INTS),
        lambda: F.soft_margin_loss(_INTS, _INTS),
        lambda: F.max_pool1d(_INTS, 2),
        lambda: F.cross_entropy(_FLOATS, torch.tensor([0, 1, 2], dtype=torch.int32)),
        lambda: F.layer_norm(_FLOATS, (4,), torch.ones(4, dtype=torch.bfloat16)),
        lambda: F.group_norm(_FLOATS, 2, torch.ones(4, dtype=torch.bfloat16)),
        lambda: F.binary_cross_entropy(_FLOATS * 0 + 1.5, torch.zeros(3, 4)),
        lambda: F.binary_cross_entropy(_FLOATS * float("nan"), torch.zeros(3, 4)),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_arguments_that_eager_has_no_kernel_for_or_checks(refused):
    with pytest.raises(Exception) as wanted:
        refused()
    with pytest.raises(wanted.type):
        pyframe.compile(refused)()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [lambda e, r: e * 2 + r.sum(), lambda e, r: 2 / e**2, lambda e, r: e // 2])
def test_numbers_that_nested_vmap_converts(fn, dynamic):
    """torch's rule of batching converts the number itself: `aten._to_copy(2, dtype=float32)`."""

    def nested(x):
        return torch.vmap(lambda row: torch.vmap(lambda element: fn(element, row))(row))(x)

    compiled = pyframe.compile(nested, options={"strict": True}, dynamic=dynamic)
    torch.testing.assert_close(compiled(_FLOATS), nested(_FLOATS))


@pytest.mark.parametrize("x", [_FLOATS, _FLOATS.T, _FLOATS.half(), _INTS, _FLOATS[::2]])
def test_random_integers_in_place(x):
    """The overload `aten::random.from` has the name of a keyword, which generated code must not contain."""

    def drawn(x):
        return x.clone().random_(0, 9)

    compiled = pyframe.compile(drawn, options={"strict": True}, fullgraph=True)
    found = []
    for run in (drawn, compiled):
        torch.manual_seed(0)
        found.append((run(x), torch.rand(2)))
    torch.testing.assert_close(found[1], found[0])
    assert found[1][0].stride() == found[0][0].stride()


@pytest.mark.parametrize("fn", [lambda x: x.round(decimals=0), lambda x: torch.round(x, decimals=0) + 1])
def test_rounding_integers_to_decimals_is_an_error(fn):
    for run in (fn, pyframe.compile(fn)):
        with pytest.raises(NotImplementedError):
            run(torch.arange(5))
    assert torch.equal(pyframe.compile(lambda x: x.round())(torch.arange(5)), torch.arange(5))


LIBRARY = torch.library.Library("foreign_programs_raw", "DEF")
LIBRARY.define("total(Tensor x, int power=1) -> Tensor")
for key in ("CPU", "Meta"):
    LIBRARY.impl("total", lambda x, power=1: x.pow(power).sum(), key)


@pytest.mark.parametrize("target", [torch.ops.foreign_programs_raw.total, torch.ops.foreign_programs_raw.total.default])
@pytest.mark.filterwarnings("ignore:foreign_programs_raw..total. an autograd kernel was not registered")
def test_autograd_records_what_a_kernel_without_an_autograd_kernel_calls(target):
    def fn(x):
        y = x.sin()
        return target(y, power=2) * 3 + y.sum()

    gradients = []
    for run in (fn, pyframe.compile(fn)):
        x = torch.arange(6.0).requires_grad_()
        run(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("gradients", [False, True])
def test_inputs_that_are_not_used_may_be_on_any_device(gradients):
    """`functional_call` reads the parameters that it replaces, here those of a model on the device meta."""
    models = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def of_one(parameters, buffers, x):
        return torch.func.functional_call(base, (parameters, buffers), (x,))

    def fn(x):
        return torch.vmap(of_one, in_dims=(0, 0, None))(parameters, buffers, x)

    compiled = pyframe.compile(fn, options={"strict": True})
    with torch.set_grad_enabled(gradients):
        for n in (5, 6):
            x = torch.arange(3.0 * n).reshape(n, 3).sin()
            torch.testing.assert_close(compiled(x), fn(x))


def test_an_observer_of_channels_resizes_its_buffers_in_the_first_call():
    def made():
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).train()
        fused = quantization.fuse_modules_qat(layers, [["0", "1"]])
        fused.qconfig = quantization.get_default_qat_qconfig("fbgemm")
        return quantization.prepare_qat(fused)

    eager, model = made(), made()
    compiled = pyframe.compile(model)
    for rows in (2, 2, 3):
        x = torch.randn(rows, 3, 8, 8)
        want, got = eager(x), compiled(x)
        torch.testing.assert_close(got, want)
        want.square().mean().backward()
        got.square().mean().backward()
    for (name, want), got in zip(eager.state_dict().items(), model.state_dict().values()):
        torch.testing.assert_close(got, want, msg=name)
    for want, got in zip(eager.parameters(), model.parameters()):
        torch.testing.assert_close(got.grad, want.grad)

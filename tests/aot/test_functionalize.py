"""Purity and the effects put back: eager is the oracle, on copies of the same inputs."""


import forked_python
import pytest
import torch
from torch import fx
from torch.utils import _pytree as pytree
from writing_programs import inplace, view_written

from inductor.aot.functionalize import NotFunctional, to_aten
from inductor.fx_utils.writes import has_functional_form


def runner(aten):
    def call(*inputs):
        with torch.no_grad():
            return pytree.tree_unflatten(list(aten.graph(*inputs, *aten.attributes)), aten.structure)

    return call


def returns_input(x, y):
    x.relu_()
    return {"a": x, "b": (y.sin(), 3)}


def pure(x, y):
    z = (x @ y).clone()
    z += 1
    return torch.nn.functional.gelu(z).softmax(-1)


@pytest.mark.parametrize("offset", [0, 9])
@pytest.mark.parametrize("fn", [inplace, view_written, returns_input, pure])
def test_results_and_effects_are_eagers(fn, offset):
    gm = fx.symbolic_trace(fn)
    fresh = lambda: [torch.randn(3, 3, generator=g.manual_seed(i)) for i in (1, 2)]  # noqa
    g = torch.Generator()

    def args():
        made = []
        for x in fresh():
            base = torch.zeros(30)
            made.append(base.as_strided((3, 3), (3, 1), offset).copy_(x))
        return made

    mine, theirs = args(), args()
    aten = to_aten(gm, mine)
    written = [n for n in aten.graph.graph.nodes if n.op == "call_function" and n.target._schema.is_mutable]
    assert len(written) == len(aten.mutated) and all(n.target is torch.ops.aten.copy_.default for n in written)
    before = [x._version for x in mine]
    got, want = runner(aten)(*mine), fn(*theirs)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(mine, theirs)
    for i, x in enumerate(mine):
        assert (x._version > before[i]) == (i in aten.mutated)
    if fn is returns_input:
        assert got["a"] is mine[0]
    if fn is view_written:
        assert got[0].data_ptr() == mine[1].data_ptr() and got[0].stride() == (1, 3)
        assert got[1].data_ptr() == mine[0][1:].data_ptr()


def test_results_that_share_memory_are_marked():
    aten = to_aten(fx.symbolic_trace(lambda x, y: ((z := x + y), z[0], x * 2, y)), [torch.randn(3, 3), torch.randn(3, 3)])
    assert aten.shared == (0, 0, 1, None)


def test_inputs_that_share_memory_may_be_read():
    x = torch.randn(3, 3)
    aten = to_aten(fx.symbolic_trace(pure), [x, x])
    torch.testing.assert_close(runner(aten)(x, x), pure(x, x))


def test_parameters_become_inputs():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).requires_grad_(False)
    x = torch.randn(2, 4)
    aten = to_aten(fx.symbolic_trace(model), [x])
    call = runner(aten)
    torch.testing.assert_close(call(x), model(x))
    model[0].weight.zero_()
    torch.testing.assert_close(call(x), model(x))


LIBRARY = torch.library.Library("pyframe_functionalize", "FRAGMENT")
LIBRARY.define("first_row(Tensor(a) x) -> Tensor(a)")
LIBRARY.impl("first_row", lambda x: x[0], "CPU")
LIBRARY.impl("first_row", lambda x: x[0], "Meta")


@pytest.mark.parametrize("word, fn, make", [
    ("gradients", pure, lambda: [torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)]),
    ("shares memory", inplace, lambda: [torch.randn(3, 3)] * 2),
    ("metadata", lambda x, y: x.t_(), lambda: [torch.randn(3, 3), torch.randn(3, 3)]),
    ("not a tensor", pure, lambda: [torch.randn(3, 3), 3]),
    ("cannot functionalize polygamma_", lambda x, y: x.polygamma_(1) + y,
     lambda: [torch.randn(3, 3), torch.randn(3, 3)]),
    ("cannot functionalize .*first_row", lambda x, y: torch.ops.pyframe_functionalize.first_row(x) + y,
     lambda: [torch.randn(3, 3), torch.randn(3, 3)]),
])
def test_refusals_say_why(word, fn, make):
    class Module(torch.nn.Module):
        def forward(self, x, y):
            return fn(x, y)

    inputs = make()
    copies = [x.detach().clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    with pytest.raises(NotFunctional, match=word):
        to_aten(fx.symbolic_trace(Module()), inputs)
    torch.testing.assert_close([x.detach() if isinstance(x, torch.Tensor) else x for x in inputs], copies)


def test_the_peers_are_not_imported():
    code = ("import torch, sys\nfrom torch import fx\nfrom inductor.aot.functionalize import to_aten\n"
            "to_aten(fx.symbolic_trace(lambda x: x.relu_().sum()), [torch.randn(3)])\n"
            "bad = [m for m in sys.modules if m.startswith(('torch._dynamo', 'torch._inductor', 'torch._functorch.aot'))]\n"
            "assert not bad, bad")
    done = forked_python.run(code)
    assert done.returncode == 0, done.stderr


def test_methods_named_as_operators_on_lists():
    """TorchScript has `aten::mul_.t` and others, on lists, which the dispatcher does not know."""
    without = {name for name in dir(torch.Tensor) if not has_functional_form(name)}
    assert "polygamma_" in without
    assert without.isdisjoint({"add_", "mul_", "copy_", "index_put_", "select", "sort", "split", "to", "values"})


def test_operators_without_a_functional_form():
    def diagonal(x):
        return x.clone().fill_diagonal_(1.0)

    x = torch.randn(3, 3)
    aten = to_aten(torch.fx.symbolic_trace(diagonal), [x])  # made of those that have one
    assert not aten.mutated
    torch.testing.assert_close(aten.graph(x.clone()), [diagonal(x)])

"""Backends that users write: what example inputs they get, and the keyword arguments of compile that they take."""


import forked_python
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import inductor
import pyframe

X = torch.randn(4, 4)


def matrix(x, y):
    return (x @ y).relu() + x.shape[0]


def written(x):
    x.add_(1)
    return x * 2


def running(gm, example_inputs):
    """Runs the graph in each way that the inputs allow."""
    gm(*example_inputs)
    make_fx(gm)(*example_inputs)
    if all(isinstance(x, torch.Tensor) for x in example_inputs):
        torch.jit.trace(gm, tuple(example_inputs), check_trace=not gm.training)
    return gm.forward


def lowered(gm, example_inputs):
    """A backend of users that lowers the graph with AOTAutograd."""
    from functorch.compile import aot_module_simplified, make_boxed_func

    return aot_module_simplified(gm, example_inputs, fw_compiler=lambda graph, _: make_boxed_func(graph.forward))


def ours(gm, example_inputs):
    return inductor.compile_fx(gm, example_inputs)


def recorded(examples):
    def backend(gm, example_inputs):
        examples.append(list(example_inputs))
        return running(gm, example_inputs)

    return backend


@pytest.mark.parametrize("dynamic", [None, True])
def test_the_graph_runs_on_the_example_inputs(dynamic):
    examples = []
    fast = pyframe.compile(matrix, backend=recorded(examples), dynamic=dynamic)
    for n in (4, 6, 9):
        x, y = torch.randn(n, 5), torch.randn(5, n)
        assert torch.equal(fast(x, y), matrix(x, y))
    assert {type(x) for x in examples[0]} == ({torch.Tensor} if dynamic is None else {torch.Tensor, torch.SymInt})
    assert torch.equal(examples[0][0], examples[0][0] + 0)  # real values
    assert len(examples) == (2 if dynamic is None else 1)


@pytest.mark.parametrize("backend", [running, lowered, ours, "aot_eager_decomp_partition", "eager_noexcept"])
def test_results_and_gradients(backend):
    def weighted(x, n):
        return (x.sin() + x.shape[0] // 2) * n

    for dynamic in (None, True):
        fast = pyframe.compile(weighted, backend=backend, dynamic=dynamic)
        for n in (4, 6, 8, 2):
            x = torch.randn(n, requires_grad=True)
            got, expected = fast(x, n + 0.5), weighted(x, n + 0.5)
            assert torch.allclose(got, expected)
            gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (got, expected)]
            assert torch.allclose(*gradients)


def test_running_the_graph_changes_nothing():
    x = torch.zeros(3)
    assert torch.equal(pyframe.compile(written, backend=running)(x), torch.full((3,), 2.0))
    assert torch.equal(x, torch.ones(3))
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout())
    examples = []
    torch.manual_seed(0)
    result = pyframe.compile(net, backend=recorded(examples))(X)
    assert net[1].num_batches_tracked == 1
    torch.manual_seed(0)
    assert torch.equal(result, net(X))  # the random numbers are those of the call
    assert any(x is net[0].weight for x in examples[0])


def test_a_parameter_that_the_graph_writes_is_copied():
    net = torch.nn.Linear(2, 2)
    before = net.weight.detach().clone()

    def step():
        with torch.no_grad():
            net.weight.data.add_(1)
            net.bias.mul_(2)
        return net.weight + 0

    assert torch.equal(pyframe.compile(step, backend=running)(), before + 1)
    assert torch.equal(net.weight, before + 1)


def test_inputs_that_share_memory_or_are_no_leaves():
    def fn(x, y):
        x.add_(1)
        return y * 2

    examples = []
    base = torch.zeros(6)
    fast = pyframe.compile(fn, backend=recorded(examples))
    assert torch.equal(fast(base, base[1:3]), torch.full((2,), 2.0))
    made = (torch.ones(3, requires_grad=True) * 1).expand(2, 3)
    frozen = torch.ones(2, 3).t().conj()
    pyframe.compile(lambda x, y: (x * 2, y.sin()), backend=recorded(examples))(made, frozen)
    assert examples[-1][0].requires_grad and examples[-1][0].stride() == (0, 1)
    leaf = torch.ones(3, requires_grad=True)
    fast(leaf * 1, leaf)  # in place on a tensor with a gradient, which is no leaf


def test_options_and_mode_are_passed_on():
    taken = []

    def backend(gm, example_inputs, **settings):
        taken.append(settings)
        return gm.forward

    for given in ({"options": {"a": 1}}, {"mode": "reduce-overhead"}, {"mode": "default"}, {"options": {}}, {}):
        pyframe.compile(matrix, backend=backend, **given)(X, X)
    assert taken == [{"options": {"a": 1}}, {"mode": "reduce-overhead"}, {}, {}, {}]
    pyframe.compile(matrix, backend=backend, options={"recompile_limit": 2})(X, X)  # of the capture
    assert taken[-1] == {}
    with pytest.raises(pyframe.exc.BackendCompilerFailed, match="unexpected keyword argument 'mode'") as caught:
        pyframe.compile(matrix, backend=running, mode="reduce-overhead")(X, X)
    assert isinstance(caught.value.__cause__, TypeError)


def test_backends_of_torch_are_loaded_when_they_are_asked_for():
    program = (
        "import sys, torch, pyframe\n"
        "def loaded(): return 'torch._dynamo' in sys.modules\n"
        "f = lambda x: x + 1\n"
        "pyframe.compile(f, backend='aot_eager')(torch.ones(2))\n"
        "pyframe.compile(f, backend=lambda gm, inputs: gm(*inputs) and gm.forward)(torch.ones(2))\n"
        "assert not loaded()\n"
        "assert pyframe.compile(f, backend='eager_noexcept')(torch.ones(2)).tolist() == [2, 2]\n"
        "assert loaded()\n"
    )
    done = forked_python.run(program)
    assert done.returncode == 0, done.stderr

"""Programs captured end to end with backend "eager": the result, the effects and the number of graphs."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pyframe

SCALE = 3.0
LOG: list[int] = []


def check(fn, *args, graphs=None, breaks=None):
    pyframe.reset()
    want_args, got_args = copy.deepcopy(args), copy.deepcopy(args)
    want = fn(*want_args)
    fast = pyframe.compile(fn, backend="eager")
    for _ in range(2):  # the call that compiles, and a hit
        got_args = copy.deepcopy(args)
        got = fast(*got_args)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        torch.testing.assert_close(got_args, want_args, rtol=0, atol=0)
    if graphs is not None:
        assert pyframe.counters["graphs"] == graphs, pyframe.counters
    if breaks is not None:
        assert sum(pyframe.counters["graph_breaks"].values()) == breaks, pyframe.counters


X = torch.arange(6.0).reshape(2, 3)


def straight(x):
    return torch.sin(x) + 1


def control_flow(x, flag):
    y = x
    for i in range(3):
        y = y * (i + 1) if flag else y - i
    while y.dim() < 3:
        y = y.unsqueeze(0)
    return y


def containers(x):
    d = {"a": x, "b": [x + 1, x + 2]}
    d["b"].append(x * 2)
    (first, *rest), last = d["b"], d["a"]
    return {"sum": sum(rest) + first, "last": last, "n": len(d["b"])}


def comprehension(x):
    return torch.stack([x * i for i in range(4) if i % 2]), tuple(x + j for j in (1, 2))


def calls(x, *args, scale=2.0, **kwargs):
    def inner(a, b=1, *, c=0):
        return a * scale + b + c

    return inner(x, *args, **kwargs)


def closure(x):
    total = x

    def add(y):
        nonlocal total
        total = total + y

    add(1)
    add(2)
    return total


def global_read(x):
    return x * SCALE


def strings(x):
    name = f"{x.shape[0]}-{x.dtype}"
    return x + len(name.split("-"))


def try_except(x):
    try:
        if x.shape[0] == 2:
            raise ValueError("two")
        return x
    except ValueError as e:
        return x + len(str(e))


def with_no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y + 1


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (straight, (X,)),
        (control_flow, (X, True)),
        (control_flow, (X, False)),
        (containers, (X,)),
        (comprehension, (X,)),
        (calls, (X,)),
        (calls, (X, 5)),
        (closure, (X,)),
        (global_read, (X,)),
        (strings, (X,)),
        (try_except, (X,)),
        (with_no_grad, (X,)),
    ],
)
def test_one_graph(fn, args):
    check(fn, *args, graphs=1, breaks=0)


def branch(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y - 1


def item(x):
    y = x * 2
    n = int(y.sum().item())
    return y + n


def inplace(x, y):
    x.add_(1)
    y[0] = x[1]
    return x * y


def list_mutation(xs):
    xs.append(xs[0] + 1)
    xs[0] = xs[0] * 2
    return len(xs)


def dict_mutation(d):
    d["new"] = d["x"] * 2
    del d["x"]
    return d["new"] + 1


def break_in_callee(x):
    return item(x) * 2


def explicit(x):
    x = x + 1
    pyframe.graph_break()
    return x * 2


@pytest.mark.parametrize("fn", [branch, item, explicit])
@pyframe.config.patch(capture_scalar_outputs=False)
def test_break_and_resume(fn):
    check(fn, X, graphs=2, breaks=1)
    check(fn, -X - 5)


def test_break_in_callee():
    check(break_in_callee, X)


def test_effects():
    check(inplace, X.clone(), X.clone() + 1, graphs=1)
    check(list_mutation, [X])
    check(dict_mutation, {"x": X})


def test_print_breaks(capsys):
    def fn(x):
        y = x + 1
        print("seen", tuple(y.shape))
        return y * 2

    fast = pyframe.compile(fn, backend="eager")
    assert torch.equal(fast(X), (X + 1) * 2)
    assert capsys.readouterr().out == "seen (2, 3)\n"


def test_guards_shape_dtype_constant_global(monkeypatch):
    fast = pyframe.compile(global_read, backend="eager")
    for x in (X, X.double(), torch.ones(5), X):
        assert torch.equal(fast(x), x * SCALE)
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    assert torch.equal(fast(X), X * 7.0)
    flagged = pyframe.compile(control_flow, backend="eager")
    for flag in (True, False, True):
        assert torch.equal(flagged(X, flag), control_flow(X, flag))


def test_grad_mode_is_guarded():
    fast = pyframe.compile(lambda x: x * 2, backend="eager")
    w = torch.ones(2, requires_grad=True)
    assert fast(w).requires_grad
    with torch.no_grad():
        assert not fast(w).requires_grad
    assert fast(w).requires_grad


@pyframe.config.patch(capture_scalar_outputs=False)
def test_fullgraph_error_names_break_and_line():
    with pytest.raises(pyframe.Unsupported) as error:
        pyframe.compile(item, backend="eager", fullgraph=True)(X)
    assert "tensor-to-python" in str(error.value)
    assert "test_end_to_end.py" in str(error.value)


def test_exception_as_in_eager():
    def fn(x):
        x + 1
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        pyframe.compile(fn, backend="eager")(X)


def test_recompile_limit_warns_once_and_stays_right():
    fast = pyframe.compile(straight, backend="eager", dynamic=False, options={"recompile_limit": 2})
    with pytest.warns(UserWarning, match="recompile limit"):
        for n in range(1, 7):
            x = torch.randn(n)
            assert torch.equal(fast(x), straight(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5))
        self.scale = nn.Parameter(torch.ones(4))
        self.n = 2

    def forward(self, x):
        return F.softmax(self.layers(x) * self.scale, -1) + self.n


def test_module_object():
    torch.manual_seed(0)
    net = Net().eval()
    fast = pyframe.compile(net, backend="eager")
    assert isinstance(fast, Net)
    assert fast is not net
    assert list(fast.state_dict()) == list(net.state_dict())
    assert torch.equal(fast(X), net(X))
    assert pyframe.counters["graphs"] >= 1
    with torch.no_grad():
        net.scale.mul_(2)
    assert torch.equal(fast(X), net(X))
    net.n = 5
    assert torch.equal(fast(X), net(X))
    fast.train()
    assert net.training
    torch.manual_seed(1)
    want = net(X)
    torch.manual_seed(1)
    assert torch.equal(fast(X), want)
    fast.eval()
    assert torch.equal(copy.deepcopy(fast)(X), net(X))
    assert torch.equal(pickle.loads(pickle.dumps(fast))(X), net(X))


def test_module_hooks_run():
    net = Net().eval()
    fast = pyframe.compile(net, backend="eager")
    fast(X)
    calls = []
    net.register_forward_hook(lambda m, a, out: calls.append(1) or out + 1)
    assert torch.equal(fast(X), net(X))
    assert len(calls) == 2


def test_disable_and_is_compiling():
    @pyframe.disable
    def eager_only(x):
        assert not pyframe.is_compiling()
        return x + 1

    def fn(x):
        return eager_only(x * 2) * (3 if pyframe.is_compiling() else 0)

    assert torch.equal(pyframe.compile(fn, backend="eager")(X), (X * 2 + 1) * 3)
    assert not pyframe.is_compiling()


@pyframe.config.patch(capture_scalar_outputs=False)
def test_explain_report():
    report = pyframe.explain(item)(X)
    text = str(report)
    assert report.graph_count == 2
    assert report.graph_break_count == 1
    assert "tensor-to-python" in text and "n = int(y.sum().item())" in text and "hint" in text


def test_custom_backend_sees_graph_and_fakes():
    seen = []

    def backend(gm, example_inputs):
        seen.append((gm, example_inputs))
        return gm.forward

    assert torch.equal(pyframe.compile(straight, backend=backend)(X), straight(X))
    gm, inputs = seen[0]
    assert isinstance(gm, torch.fx.GraphModule)
    assert [tuple(i.shape) for i in inputs] == [(2, 3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "nonsense"}, "unknown backend"),
        ({"backend": 3}, "backend must be"),
        ({"mode": "warp"}, "unknown mode"),
        ({"options": {"speed": 1}}, "unknown option"),
        ({"fullgraph": "yes"}, "fullgraph"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(pyframe.UserError, match=message):
        pyframe.compile(straight, **{"backend": "eager", **arguments})
    with pytest.raises(pyframe.UserError, match="needs a function"):
        pyframe.compile(7, backend="eager")


def test_backend_failure_is_named():
    def broken(gm, example_inputs):
        raise ZeroDivisionError("oops")

    with pytest.raises(pyframe.BackendCompilerFailed, match="oops"):
        pyframe.compile(straight, backend=broken)(X)


def test_demo_models_are_one_graph():
    from benchmarks.programs import make_bert, make_gpt, relative_error

    for make in (make_gpt, make_bert):
        model, args = make()
        pyframe.reset()
        with torch.no_grad():
            got = pyframe.compile(model, backend="eager")(*args)
            assert relative_error(got, model(*args)) == 0
        assert pyframe.counters["graphs"] == 1
        assert not pyframe.counters["graph_breaks"]


def break_in_with(x):
    with torch.no_grad():
        y = x * 2
        n = y.sum().item()
        z = y + n
    return z, torch.is_grad_enabled()


def break_in_try(x):
    try:
        y = x * 2
        n = int(y.sum().item())
        return torch.ones(3)[n + 100]
    except IndexError:
        return y + 1
    finally:
        x = x + 1


def break_in_loop(x):
    for i in range(3):
        x = x + i
        if x.sum() > 4:
            x = x * 2
    return x


def break_with_closure(x):
    y = x + 1

    def scale(z):
        return z * y

    n = y.max().item()
    y = y + n
    return scale(x)


@pytest.mark.parametrize("fn", [break_in_with, break_in_try, break_in_loop, break_with_closure])
def test_break_inside_blocks(fn):
    check(fn, X)
    assert torch.is_grad_enabled()


def test_method_put_on_the_instance_is_seen():
    net = Net().eval()
    fast = pyframe.compile(net, backend="eager")
    fast(X)
    net.forward = lambda x: x - 1
    assert torch.equal(fast(X), X - 1)


def test_default_backend_gives_eager_results():
    fast = pyframe.compile(straight)
    assert torch.allclose(fast(X), straight(X))


def test_torch_compile_entry_point_is_registered():
    from importlib.metadata import entry_points

    found = {e.name: e.value for e in entry_points(group="torch_dynamo_backends")}
    assert found.get("pyframe_inductor", "").startswith(("inductor", "pyframe"))


def break_in_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        n = int(y.shape[0] + x.sum().item() * 0)
        z = y @ y
    return z.float() + n


def test_modes_do_not_leak():
    check(break_in_autocast, X)
    assert not torch.is_autocast_enabled("cpu")
    assert torch.equal(X @ X.t(), (X.double() @ X.t().double()).float())


def test_bound_builtin_method_across_a_break_is_not_recompiled():
    def fn(x, out):
        y = x * 2
        out.append(y.sum().item())  # the break comes between the read of `append` and its call
        return y + 1

    pyframe.reset()
    fast = pyframe.compile(fn, backend="eager")
    for _ in range(4):
        got, want = [], []
        assert torch.equal(fast(X, got), fn(X, want))
        assert got == want
    assert pyframe.counters["recompiles"] == 0

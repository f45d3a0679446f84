"""`transform` and `stages`: functions of graphs between stages, their keys in the graph cache, and stages as programs."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

import pyframe

aten = torch.ops.aten
EXAMPLES = Path(__file__).parents[2] / "examples" / "transforms"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scaled_results(factor):
    def multiply(gm):
        (output,) = gm.graph.find_nodes(op="output")
        with gm.graph.inserting_before(output):
            results = [gm.graph.call_function(torch.mul, (each, factor)) for each in output.args[0]]
        output.args = (tuple(results),)

    return multiply


def compiled(function, *transforms, cache=False):
    return pyframe.compile(function, options={"transforms": list(transforms), "cache": cache, "strict": True})


def test_the_examples():
    assert 0 < example("cast").main() < 0.03
    error, size = example("int8_weights").main()
    assert 0 < error < 0.03 and size < 0.3
    error, graphs = example("attention").main()
    assert error < 1e-4 and graphs == 1


def test_captured_transforms_with_and_without_gradients_in_order():
    @pyframe.transform
    def plus_one(gm):
        (output,) = gm.graph.find_nodes(op="output")
        with gm.graph.inserting_before(output):
            output.args = (tuple(gm.graph.call_function(torch.add, (each, 1)) for each in output.args[0]),)

    doubled = pyframe.transform(scaled_results(2))
    x = torch.randn(3)
    torch.testing.assert_close(compiled(torch.sin, plus_one, doubled)(x), (x.sin() + 1) * 2)
    torch.testing.assert_close(compiled(torch.sin, doubled, plus_one)(x), x.sin() * 2 + 1)
    y = x.clone().requires_grad_()
    compiled(lambda x: x.sin(), doubled)(y).sum().backward()
    torch.testing.assert_close(y.grad, 2 * x.cos())


@pytest.mark.parametrize("dynamic", [False, True])
def test_aten_transforms(dynamic):
    @pyframe.transform(at="aten")
    def cosine_for_sine(gm):
        for node in gm.graph.nodes:
            if node.target is aten.sin.default:
                node.target = aten.cos.default

    options = {"transforms": [cosine_for_sine], "cache": False, "strict": True}
    fast = pyframe.compile(lambda x: x.sin() * 2, dynamic=dynamic, options=options)
    for size in (3, 5):
        x = torch.randn(size)
        torch.testing.assert_close(fast(x), x.cos() * 2)


def test_joint_forward_and_backward_transforms():
    seen = []

    @pyframe.transform(at=("joint", "forward", "backward"))
    def watch(gm):
        seen.append([node.target for node in gm.graph.nodes if node.op == "call_function"])

    @pyframe.transform(at="joint")
    def double_gradients(gm):
        (output,) = gm.graph.find_nodes(op="output")
        returned, written, gradients = output.args[0]
        with gm.graph.inserting_before(output):
            gradients = [g and gm.graph.call_function(aten.mul.Tensor, (g, 2.0)) for g in gradients]
        output.args = ([returned, written, gradients],)

    x = torch.randn(3, requires_grad=True)
    compiled(lambda x: x.sin(), watch, double_gradients)(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    joint, forward, backward = seen
    assert aten.sin.default in joint and aten.cos.default in joint
    assert aten.sin.default in forward and aten.sin.default not in backward


def test_errors_reach_the_user():
    @pyframe.transform
    def fails(gm):
        raise ZeroDivisionError("no")

    with pytest.raises(pyframe.BackendCompilerFailed, match="transform 'fails' raised at 'captured': no"):
        pyframe.compile(torch.sin, options={"transforms": [fails], "cache": False})(torch.ones(2))

    @pyframe.transform(at="aten")
    def shrinks(gm):
        (output,) = gm.graph.find_nodes(op="output")
        with gm.graph.inserting_before(output):
            output.args = ([gm.graph.call_function(aten.sum.default, (each,)) for each in output.args[0]],)

    with pytest.raises(pyframe.BackendCompilerFailed, match="changed sizes, dtypes or number of the results"):
        pyframe.compile(torch.sin, options={"transforms": [shrinks], "cache": False})(torch.ones(2))
    with pytest.raises(pyframe.UserError, match="unknown stage 'lowered'; accepted: captured"):
        pyframe.transform(fails, at="lowered")
    with pytest.raises(pyframe.UserError, match="must be a list of what transform"):
        pyframe.compile(torch.sin, options={"transforms": [print]})
    with pytest.raises(pyframe.UserError, match="'transforms' is of the backend 'inductor'"):
        pyframe.compile(torch.sin, backend="eager", options={"transforms": [fails]})


def test_keys_depend_on_code_and_what_it_reads():
    def made(factor, name="multiply"):
        return pyframe.transform(scaled_results(factor))

    assert made(2).key == made(2).key is not None
    assert made(2).key != made(3).key and made(2.0).key != made(2).key
    assert pyframe.transform(lambda gm: None).key != pyframe.transform(lambda gm: gm).key
    for value, why in ((torch.ones(1), "it reads a tensor"), (object(), "an object of the class object")):
        transform = made(value)
        assert transform.key is None and why in transform.why_no_key

    def helper(gm, n):
        return n

    def calls(n):
        return lambda gm: helper(gm, n) and None

    assert pyframe.transform(calls(1)).key != pyframe.transform(calls(2)).key


def test_the_graph_cache_tells_transforms_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))

    def with_factor(factor):
        @pyframe.transform(at="aten")
        def multiply(gm):
            (output,) = gm.graph.find_nodes(op="output")
            with gm.graph.inserting_before(output):
                output.args = ([gm.graph.call_function(aten.mul.Tensor, (each, factor)) for each in output.args[0]],)

        return multiply

    x = torch.randn(7)
    pyframe.counters.clear()
    for factor in (2.0, 3.0, 2.0):
        found = compiled(lambda x: x.sin(), with_factor(factor), cache=True)(x)
        torch.testing.assert_close(found, x.sin() * factor)
    assert pyframe.counters["cache_hits"] == 1 and pyframe.counters["cache_misses"] == 2
    scale = torch.tensor(2.0)

    @pyframe.transform(at="aten")
    def unkeyed(gm):
        assert scale is not None

    for _ in range(2):
        compiled(lambda x: x.sin(), unkeyed, cache=True)(x)
    assert pyframe.counters["cache_hits"] == 1 and pyframe.counters["transforms_not_cached"] == 2


def test_stages_are_programs_that_run():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).eval()
    x = torch.randn(3, 4)
    parameters = [model[0].weight, model[0].bias, model[2].weight, model[2].bias, model[3].weight, model[3].bias]
    with torch.no_grad():
        stages = pyframe.stages(model)(x)
        expected = model(x)
        assert list(stages)[:2] == ["captured", "aten"] and "linear(" in stages["captured"].text
        for name, program in stages.items():
            torch.testing.assert_close(program(x, *parameters)[0], expected, msg=name)
    torch.testing.assert_close(stages.result, expected)
    stages = pyframe.stages(model)(x)
    assert list(stages)[:4] == ["captured", "joint", "forward", "backward"]
    returned, _, gradients = stages["joint"](x, *parameters, torch.ones(3, 2))
    model(x).sum().backward()
    torch.testing.assert_close(returned[0], expected)
    for gradient, parameter in zip(gradients[1:], parameters, strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_passes_that_change_a_graph_are_stages():
    model = nn.Linear(4, 4)
    with torch.no_grad():
        stages = pyframe.stages(lambda x: model(x) + x.sin() + x.sin())(torch.randn(3, 4))
    assert "without_duplicates" in stages
    assert stages["aten"].text.count("sin.default") == 2 and stages["without_duplicates"].text.count("sin.default") == 1
    assert "def without_duplicates(constants" in str(stages)


@pyframe.transform(at=("aten", "joint"))
def cosine_for_sine(gm):
    for node in gm.graph.nodes:
        if node.target is aten.sin.default:
            node.target = aten.cos.default


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{"background": True}, {"budget_s": 1000}])
def test_no_call_runs_without_the_transforms(monkeypatch, options, training):
    """Calls that do not wait for kernels would run the captured graph with ATen."""
    monkeypatch.setattr("inductor.background.Building.ready", lambda building: False)
    options = {"transforms": [cosine_for_sine], "cache": False, "strict": True, **options}
    x = torch.randn(3, requires_grad=training)
    found = pyframe.compile(lambda x: x.sin() * 2, options=options)(x)
    torch.testing.assert_close(found, x.cos() * 2)


def missing_argument(gm):
    for node in gm.graph.find_nodes(op="call_function", target=aten.sin.default):
        node.target = aten.mul.Tensor


def used_before_it_is_computed(gm):
    (sin,) = gm.graph.find_nodes(op="call_function", target=aten.sin.default)
    (output,) = gm.graph.find_nodes(op="output")
    output.append(sin)


@pytest.mark.parametrize("changed", [missing_argument, used_before_it_is_computed])
def test_a_transform_that_leaves_an_invalid_graph(changed):
    fast = pyframe.compile(lambda x: x.sin() + 1, options={"transforms": [pyframe.transform(changed, at="aten")]})
    with pytest.raises(pyframe.errors.BackendCompilerFailed, match=f"{changed.__name__}.*'aten'|'aten'.*{changed.__name__}"):
        fast(torch.randn(3))


def test_a_fallback_says_which_transforms_are_left_out():
    def python_function(gm):
        for node in gm.graph.find_nodes(op="call_function", target=aten.sin.default):
            node.target = torch.nn.functional.relu

    options = {"transforms": [pyframe.transform(python_function, at="aten")], "cache": False}
    with pytest.warns(UserWarning, match="without the transforms python_function, not compiled"):
        pyframe.compile(lambda x: x.sin() + 1, options=options)(torch.randn(3))

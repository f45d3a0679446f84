"""compile_fx: effects, aliasing, structure, modes, caches and bad luck, with eager as the oracle."""

import os
import warnings

import forked_python
import pytest
import torch
import torch.nn.functional as F
from torch import fx
from writing_programs import inplace, view_written

import inductor


def compiled(fn, *args, **options):
    gm = fx.symbolic_trace(fn)
    with torch.no_grad():
        call = inductor.compile_fx(gm, list(args), options={"strict": True, **options})
    return call, gm.meta["compile_report"]


def check(fn, *args):
    mine = [a.clone() for a in args]
    theirs = [a.clone() for a in args]
    call, report = compiled(fn, *mine)
    before = [x._version for x in mine]
    with torch.no_grad():
        got, want = call(*mine), fn(*theirs)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(mine, theirs)
    assert [x._version > b for x, b in zip(mine, before)] == [x._version > 0 for x in theirs]
    return got, mine, report


def swapped(x, y):
    t = x + 0
    x.copy_(y)
    y.copy_(t)
    return (x + y,)


def nested(x, y):
    x.relu_()
    return {"a": x, "b": (y.sin(), 3), "c": [None, x @ y]}


@pytest.mark.parametrize("fn", [inplace, view_written, swapped, nested])
def test_effects_and_results_are_eagers(fn):
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    got, mine, _ = check(fn, x, y)
    if fn is nested:
        assert got["a"] is mine[0]
    if fn is view_written:
        assert got[0].data_ptr() == mine[1].data_ptr() and got[0].stride() == (1, 3)
        assert got[1].data_ptr() == mine[0][1:].data_ptr()


def test_results_share_memory_exactly_where_they_do_in_eager():
    (z, row, again, copy), _, _ = check(lambda x: ((z := x.exp()), z[1], z, z.clone()), torch.randn(3, 3))
    assert row.data_ptr() == z[1].data_ptr() and again.data_ptr() == z.data_ptr() != copy.data_ptr()
    row.zero_()
    assert z[1].sum() == 0 and copy[1].sum() != 0


def test_an_input_that_is_written_and_shares_memory_is_left_to_eager():
    base = torch.randn(4, 3)

    def fn(x, y):
        x.mul_(2)
        return x + y

    call, _ = compiled(fn, base[:3].clone(), torch.randn(3, 3))
    theirs = base.clone()
    got = call(base[:3], base[1:])
    torch.testing.assert_close(got, fn(theirs[:3], theirs[1:]))
    torch.testing.assert_close(base, theirs)


def test_parameters_are_read_at_each_call():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).requires_grad_(False)
    x = torch.randn(2, 4)
    call, report = compiled(model, x)
    torch.testing.assert_close(call(x), model(x))
    model[0].weight.zero_()
    torch.testing.assert_close(call(x), model(x))
    assert report.kernels == 1 and report.fallback is None


def test_results_that_are_constants():
    """Also of a graph that computes nothing, as a part of a split graph may."""
    for fn in (lambda x: (1.5,), lambda x: (x.sin(), 1.5, 2, True, None)):
        check(fn, torch.randn(3))


def test_gradients():
    model = torch.nn.Sequential(torch.nn.Linear(9, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3))
    x, target = torch.randn(4, 9, requires_grad=True), torch.tensor([0, 2, 1, 1])
    gm = fx.symbolic_trace(model)
    call = inductor.compile_fx(gm, [x], options={"strict": True})
    grads = []
    for fn in (model, call):
        F.cross_entropy(fn(x), target).backward()
        grads.append([p.grad for p in (x, *model.parameters())])
        x.grad = None
        model.zero_grad()
    torch.testing.assert_close(grads[0], grads[1])
    assert gm.meta["compile_report"].kernels >= 2


def test_autocast_is_compiled_in():
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    fn = lambda x, w: (x @ w).exp() + 1  # noqa: E731
    with torch.autocast("cpu", torch.bfloat16):
        call, _ = compiled(fn, x, w)
        got, want = call(x, w), fn(x, w)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_random_numbers_come_in_the_programs_order():
    fn = lambda x: (F.dropout(x, 0.5), torch.rand_like(x), F.dropout(x + 1, 0.3) * torch.randn_like(x))  # noqa: E731
    x = torch.ones(5)
    call, _ = compiled(fn, x)
    torch.manual_seed(3)
    got = call(x)
    torch.manual_seed(3)
    torch.testing.assert_close(got, fn(x))


def test_zero_sizes_and_scalars():
    check(lambda x: (x + 1, x.sum(0), x.sum(1), x.sum()), torch.randn(0, 3))
    check(lambda x: (x + 1, x.exp().sum()), torch.tensor(2.0))


def write_part(x):
    x[:, :1].add_(1)
    return x * 2


def test_writes_into_nothing():
    check(write_part, torch.randn(0, 3))
    check(write_part, torch.randn(3, 0))


def test_views_of_inputs_with_an_offset_reach_operators():
    base = torch.arange(24.0).view(6, 4)
    fn = lambda x, y: (x[1:].cumsum(0), torch.ops.aten.copy.default(x[1:], y), x[:, 1:].cumprod(1) + 1)  # noqa: E731
    call, _ = compiled(fn, base[2:], torch.randn(3, 4))
    torch.testing.assert_close(call(base[2:], base[:3]), fn(base[2:], base[:3]))


def test_operators_that_return_none_among_their_results():
    def fn(g, x, w, mean, scale):
        mask = [False, True, False]
        return torch.ops.aten.native_group_norm_backward.default(g, x, mean, scale, w, 2, 4, 9, 2, mask)[1]

    call, _ = compiled(fn, *(args := (torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3, 3), *torch.randn(3, 4).view(3, 4)[:1],
                                      torch.randn(2, 2), torch.rand(2, 2) + 1)))
    torch.testing.assert_close(call(*args), fn(*args))


def test_operators_that_only_check_something():
    x = torch.randn(5, 5) + 5 * torch.eye(5)
    call, _ = compiled(lambda x: torch.linalg.inv(x) * 2, x)
    torch.testing.assert_close(call(x), torch.linalg.inv(x) * 2)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        call(torch.zeros(5, 5))


def test_unknown_options_are_named():
    with pytest.raises(ValueError, match=r"unknown option 'nothing'.*cache, cudagraphs, freezing, max_autotune, measure, strict"):
        inductor.compile_fx(fx.symbolic_trace(inplace), [], options={"nothing": True})


def test_what_cannot_be_compiled_is_one_warning_and_eager():
    gm = fx.symbolic_trace(lambda x: torch.fft.fft(x).to_sparse().coalesce().indices())
    x = torch.randn(4)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call = inductor.compile_fx(gm, [x])
        inductor.compile_fx(gm, [x])
    assert torch.equal(call(x), gm(x)) and gm.meta["compile_report"].fallback
    assert len([w for w in caught if "not compiled" in str(w.message)]) == 1


PROGRAM = """
import sys, torch, warnings
from torch import fx
import inductor
warnings.simplefilter("always")
gm = fx.symbolic_trace(lambda x: (x.sin() * %s).softmax(-1))
x = torch.randn(4, 9)
with torch.no_grad():
    call = inductor.compile_fx(gm, [x])
    again = inductor.compile_fx(gm, [x])
torch.testing.assert_close(call(x), gm(x))
torch.testing.assert_close(again(x), gm(x))
print(gm.meta["compile_report"].cache, gm.meta["compile_report"].fallback)
"""


def process(number, **env):
    done = forked_python.run(PROGRAM % number, environment={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_a_second_process_builds_nothing(tmp_path):
    env = {"PYFRAME_CACHE_DIR": str(tmp_path)}
    process(1.5, **env)
    out, _ = process(1.5, **env, CXX="/nonexistent/c++")
    # without a compiler there is no build; what another process built still serves if it was found by its content
    assert out.endswith("None") or "nonexistent" in out


def test_damaged_entries_are_made_again(tmp_path):
    env = {"PYFRAME_CACHE_DIR": str(tmp_path)}
    process(2.5, **env)
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    out, err = process(2.5, **env)
    assert out == "hit None", (out, err)


def test_no_compiler_is_one_warning(tmp_path):
    out, err = process(3.5, PYFRAME_CACHE_DIR=str(tmp_path), CXX="/nonexistent/c++")
    assert "nonexistent" in out and err.count("not compiled") == 1


def test_a_failing_compiler_is_one_warning(tmp_path):
    out, err = process(4.5, PYFRAME_CACHE_DIR=str(tmp_path), CXX="/bin/false", PYFRAME_STRICT="")
    assert "compiler failed" in out and err.count("not compiled") == 1


def test_a_cache_that_cannot_be_written_is_one_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    out, err = process(5.5, PYFRAME_CACHE_DIR=str(blocked / "cache"))
    assert out.endswith("None") and err.count("cannot write") == 1


def test_torch_compile_finds_the_backend_and_sizes_may_vary(tmp_path):
    program = """
import torch, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0", RuntimeWarning)  # torch's own, of that CPython
f = torch.compile(lambda x, n: (x * n).softmax(-1) + x.shape[0], backend="pyframe_inductor")
for n in (4, 8, 16, 32):
    x = torch.randn(n, 5)
    torch.testing.assert_close(f(x, n + 1), (x * (n + 1)).softmax(-1) + n)
model = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.GELU())
fast = torch.compile(model, backend="pyframe_inductor")
torch.testing.assert_close(fast(x), model(x))
fast(x).sum().backward()
assert model[0].weight.grad is not None
"""
    env = {**os.environ, "PYFRAME_CACHE_DIR": str(tmp_path)}
    done = forked_python.run(program, environment=env)
    assert done.returncode == 0, done.stderr


def test_sparse_results_are_made_by_the_captured_graph():
    x = torch.eye(3)
    gm = fx.symbolic_trace(lambda x: x.to_sparse() * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = inductor.compile_fx(gm, [x])
    assert "sparse_coo" in gm.meta["compile_report"].fallback
    torch.testing.assert_close(call(x).to_dense(), 2 * x)

"""Sizes, ints and floats that vary between calls: how often they are captured, and that the results are eager's."""

from __future__ import annotations

import gc
import math

import forked_python
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from util import alike

import inductor.compile
import pyframe
from pyframe.metrics import counters

BACKENDS = ["eager", "inductor"]


def compare(fn, calls, graphs=None, **settings):
    """Every call gives what eager gives; `graphs` captures in all."""
    settings.setdefault("backend", "eager")
    fast = pyframe.compile(fn, **settings)
    for args in calls:
        alike(fast(*args), fn(*args))
    if graphs is not None:
        assert counters["graphs"] == graphs, counters
    return fast


def sized(*sizes):
    return [(torch.randn(*size if isinstance(size, tuple) else (size,)),) for size in sizes]


# ---- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_size_makes_a_dimension_symbolic(backend):
    compare(lambda x: x.sin() + x.shape[0], sized(4, 5, 6, 7, 100), 2, backend=backend)
    assert counters["recompiles"] == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_sizes_vary_in_inference_mode_too(mode, backend):
    def fn(x, out):
        out[: x.shape[0]] = x.cos()
        return x.t() * x.shape[0]

    fast = pyframe.compile(fn, backend=backend)
    with mode():
        for n in (4, 5, 6, 7):
            x = torch.randn(n, 3)
            outs = torch.zeros(9, 3), torch.zeros(9, 3)
            got, want = fast(x, outs[0]), fn(x, outs[1])
            alike((got, outs[0]), (want, outs[1]))
            assert got.is_inference() == want.is_inference()
    assert counters["graphs"] == 2


def test_marks_hold_in_inference_mode():
    fast = pyframe.compile(lambda x: x.sin(), backend="eager")
    with torch.inference_mode():
        for n in (4, 5, 6):
            x = torch.randn(n, 3)
            pyframe.mark_dynamic(x, 0)
            assert fast(x).is_inference()
    assert counters["graphs"] == 1


@pytest.mark.parametrize("make", [
    lambda n: torch.randn(1, n), lambda n: torch.randn(1, 1, n, n), lambda n: torch.randn(n, n).unsqueeze(1),
    lambda n: torch.randn(1, 20)[:, :n], lambda n: torch.empty_strided((1, n), (7, 1)).fill_(1),
])  # fmt: skip
def test_the_stride_of_a_dimension_of_size_1_costs_no_capture(make):
    compare(lambda x: (x.sin() * 2, x.stride()), [(make(n),) for n in (5, 6, 7, 9, 12)], 2)


def test_dynamic_true_is_symbolic_from_the_start_but_0_and_1():
    def fn(x, n):
        return x.cos() * x.shape[0] + n

    compare(fn, [(torch.randn(n, 3), n) for n in (4, 5, 9)], 1, dynamic=True)
    compare(fn, [(torch.randn(n, 3), 5) for n in (1, 0)], 3, dynamic=True)


def test_dynamic_false_never_is():
    compare(lambda x: x + 1, sized(2, 3, 4, 5), 4, dynamic=False)


def test_0_and_1_are_captures_of_their_own():
    compare(lambda x: x + torch.ones(3, 1), sized((3, 4), (3, 5), (3, 1), (3, 0), (3, 1), (3, 9)), 4)


class Block(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            part.view(b, t, self.heads, d // self.heads).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))).masked_fill(~mask, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(128, 32)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return x @ self.tokens.weight.T


@pytest.fixture
def one_thread():
    """Tiny operators wait for threads longer than they run, on a busy machine."""
    torch.set_num_threads(1)


def test_a_hundred_sizes_of_a_transformer_are_three_captures_at_most(one_thread):
    model = Transformer().eval()
    fast = pyframe.compile(model, backend="eager")
    sizes = [(b, t) for b in range(2, 12) for t in range(3, 63, 6)]
    assert len(sizes) == 100
    with torch.no_grad():
        for i, (b, t) in enumerate(sizes):
            tokens = torch.randint(0, 50, (b, t))
            got = fast(tokens)
            if i % 9 == 0:
                torch.testing.assert_close(got, model(tokens))
    assert counters["graphs"] <= 3


def test_a_transformer_is_trained_at_several_sizes(one_thread, monkeypatch):
    made = []
    compile_sizes = inductor.compile._compile_sizes
    monkeypatch.setattr(inductor.compile, "_compile_sizes", lambda *a, **k: made.append(compile_sizes(*a, **k)) or made[0])
    model = Transformer()
    fast = pyframe.compile(model, backend="inductor")
    for b, t in [(2, 5), (3, 6), (4, 7), (7, 4), (6, 6), (2, 31), (9, 2)]:
        tokens = torch.randint(0, 50, (b, t))
        grads = []
        for run in (model, fast):
            model.zero_grad()
            run(tokens).square().mean().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-5)
    assert counters["graphs"] == 2 and len(made) == 1


def arithmetic(x):
    b, n = x.shape
    half = n // 2
    rest = n - half
    parts = x[:, :half], x[:, half:], x[:, -rest:]
    rows = torch.arange(b * 2 + 1).sum() + torch.full((n % 3 + 1,), b**2).sum()
    scale = math.ceil(n / 2) + math.floor(n * 0.3) + int(b * 1.5) + abs(-b) + math.sqrt(n)
    return [part.sum() for part in parts], x.view(-1, 1).repeat(1, b), rows, x.new_zeros(n + 1, half), x * scale, n / b


@pytest.mark.parametrize("backend", BACKENDS)
def test_arithmetic_on_sizes(backend):
    compare(arithmetic, sized((3, 8), (4, 9), (5, 10), (6, 7), (7, 31)), backend=backend)
    assert counters["graphs"] == 2


def branching(x):
    n = x.shape[0]
    if n > 8 and n % 2 == 0:
        return x + 1, "even"
    return x - 1, "other"


def test_comparisons_guard():
    compare(branching, sized(4, 5, 10, 12, 6, 14, 9))
    assert counters["graphs"] == 4  # 4; below 9; even; odd


def test_what_needs_the_value_is_for_that_value_alone():
    def fn(x):
        total = x
        for i in range(x.shape[0]):
            total = total + i
        return total, f"{x.shape[0]}", {3: "three"}.get(x.shape[0], "more"), [1, 2, 3, 4, 5, 6][x.shape[0]]

    compare(fn, sized(2, 3, 4, 3, 2), 3)


def test_sizes_that_must_agree_are_one_relation(capfd):
    def fn(x, y):
        return x + y

    pyframe.set_logs("recompiles")
    try:
        fast = compare(fn, [(torch.randn(n), torch.randn(n)) for n in (4, 5, 6)], 2)
        torch.testing.assert_close(fast(torch.ones(7), torch.ones(1)), torch.full((7,), 2.0))
    finally:
        pyframe.set_logs()
    assert "y.size(0)" in capfd.readouterr().err
    with pytest.raises(RuntimeError, match="must match"):
        fast(torch.ones(8), torch.ones(9))


def test_the_log_of_a_recompile_names_guard_values_and_line(capfd):
    def fn(x):
        return x.reshape(x.shape[0] // 2, -1) if x.shape[0] % 2 == 0 else x * 2  # the line

    pyframe.set_logs("recompiles")
    try:
        compare(fn, sized(4, 6, 8, 7), 3)
    finally:
        pyframe.set_logs()
    first, second = [line for line in capfd.readouterr().err.splitlines() if "recompiles" in line]
    assert "x.size(0): expected 4, got 6" in first and __file__ in first
    assert "x.size(0) % 2" in second and "x.size(0) = 7" in second
    assert f"{__file__}:{fn.__code__.co_firstlineno + 1}" in second


def test_the_log_of_a_recompile_has_the_reason_of_each_capture(capfd):
    def fn(x):
        return x + 1

    pyframe.set_logs("recompiles")
    try:
        compare(fn, [(torch.ones(2),), (torch.ones(2, dtype=torch.float64),), (torch.ones(3),)], 3)
    finally:
        pyframe.set_logs()
    *_, first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("[recompiles] ") and "x.dtype: expected torch.float64, got torch.float32" in first
    assert second.startswith("    another capture: x.size(0): expected 2, got 3")


def test_layouts_that_vary():
    def fn(x):
        return x * 2 + x.shape[1], x.stride(0)

    calls = [(torch.randn(n, 3),) for n in (4, 5)] + [(torch.randn(3, n).t(),) for n in (6, 7, 8)]
    calls += [(torch.randn(n, 9)[:, :3],) for n in (4, 5)] + [(torch.randn(5, n)[:, :3],) for n in (10, 11, 12)]
    compare(fn, calls)
    assert counters["graphs"] <= 7


def test_views_and_gradients_of_inputs():
    def fn(x):
        return (x * x).sum(0), x.is_leaf

    fast = pyframe.compile(fn, backend="eager")
    for n in (3, 4, 5):
        leaf = torch.randn(n, 2, requires_grad=True)
        for x in (leaf, leaf * 2):
            got, want = fast(x), fn(x)
            torch.testing.assert_close(got[0], want[0])
            assert got[1] == want[1]
            torch.testing.assert_close(*(torch.autograd.grad(out[0].sum(), leaf, retain_graph=True) for out in (got, want)))


def test_mutation_of_inputs_of_any_size():
    def fn(x, out):
        x.add_(1)
        out[: x.shape[0]] = x
        return x.view(-1)

    fast = pyframe.compile(fn)
    for n in (3, 4, 5):
        x, out = torch.zeros(n, 2), torch.zeros(n + 2, 2)
        y = fast(x, out)
        assert y.data_ptr() == x.data_ptr() and (x == 1).all() and (out[:n] == 1).all() and (out[n:] == 0).all()


def test_after_a_break_sizes_are_ordinary_ints():
    def fn(x):
        n, m = x.shape[0] * 2, x.shape[1]
        y = x + n
        pyframe.graph_break()
        return y.view(-1, n // 2) * m, n

    compare(fn, sized((3, 4), (4, 5), (5, 6), (6, 9), (7, 8)))
    assert counters["graphs"] <= 6


def test_shapes_are_containers():
    def fn(x):
        shape = x.shape
        assert isinstance(shape[0], int) and shape[:-1] + (3,) == (shape[0], 3) and shape == x.size()
        return torch.zeros(shape), shape.numel(), tuple(shape), list(shape), {"n": shape[0]}, max(shape), len(x), x.numel()

    compare(fn, sized((3, 8), (4, 9), (5, 10), (6, 11)), 2)


def test_torch_check_is_a_guard():
    def fn(x):
        torch._check(x.shape[0] >= 4)
        torch._check(x.shape[0] < 100, lambda: "too long")
        return x + 1

    compare(fn, sized(4, 5, 6), 2, fullgraph=True)
    with pytest.raises(RuntimeError):
        pyframe.compile(fn, backend="eager")(torch.randn(3))


def test_operators_with_kernels_in_python():
    def fn(x):
        return F.pad(x, (0, 8 - x.shape[-1] % 8)), F.interpolate(x[None], scale_factor=2.0), x.unfold(1, 2, 1), x.diff()

    compare(fn, sized((2, 5), (3, 6), (4, 11), (5, 20)), 2)


def test_operators_that_do_not_know_symbols_are_captured_for_one_size():
    library = torch.library.Library("pyframe_dynamic_test", "DEF")
    library.define("doubled(Tensor x) -> Tensor")
    library.impl("doubled", lambda x: x * 2, "CPU")

    def doubled(x):
        if any(type(size) is not int for size in x.shape):
            raise RuntimeError("only for concrete sizes")
        return torch.empty_like(x)

    library.impl("doubled", doubled, "Meta")
    op = torch.ops.pyframe_dynamic_test.doubled
    compare(lambda x: op(x + 1) + 1, sized(4, 5, 6), 3)
    assert not counters["graph_breaks"]


def test_a_call_that_fails_does_not_end_symbols():
    def fn(x, y):
        return x @ y

    fast = compare(fn, [(torch.randn(n, 3), torch.randn(3, n)) for n in (4, 5)], 2)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        fast(torch.randn(6, 3), torch.randn(4, 6))
    before = counters["graphs"]
    for n in (7, 8, 9):
        alike(fast(torch.randn(n, 3) * 0, torch.randn(3, n)), torch.zeros(n, n))
    assert counters["graphs"] == before


# ---- marks ------------------------------------------------------------------------------------------------


def test_mark_dynamic():
    def fn(x):
        return x * x.shape[0]

    fast = pyframe.compile(fn, backend="eager")
    for n in (4, 5, 6):
        x = torch.randn(n, 3)
        pyframe.mark_dynamic(x, 0, min=2, max=10)
        torch.testing.assert_close(fast(x), fn(x))
    assert counters["graphs"] == 1
    fast(torch.randn(11, 3))
    assert counters["graphs"] == 2


def test_mark_dynamic_holds_the_program_to_it():
    def fn(x):
        return x.view(4, -1) if x.shape[0] == 8 else x

    x = torch.randn(8, 3)
    pyframe.mark_dynamic(x, 0)
    with pytest.raises(pyframe.UserError, match=r"x.size\(0\) was marked as dynamic.* to be 8: "):
        pyframe.compile(fn, backend="eager")(x)
    pyframe.maybe_mark_dynamic(x, 0)
    torch.testing.assert_close(pyframe.compile(fn, backend="eager")(x), fn(x))


def test_mark_static():
    fast = pyframe.compile(lambda x: x + 1, backend="eager")
    for n in (3, 4, 5):
        x = torch.randn(n)
        pyframe.mark_static(x)
        fast(x)
    assert counters["graphs"] == 3


def test_mark_unbacked():
    fast = pyframe.compile(lambda x: x * 2 + x.shape[0], backend="eager")
    for n in (3, 1, 0, 7):
        x = torch.randn(n)
        pyframe.mark_unbacked(x, 0)
        torch.testing.assert_close(fast(x), x * 2 + n)
    assert counters["graphs"] == 1
    x = torch.randn(3)
    pyframe.mark_unbacked(x, 0)
    torch.testing.assert_close(pyframe.compile(branching, backend="eager")(x)[0], x - 1)
    assert counters["graph_breaks"]["data-dependent-branch"]


def test_marks_are_checked():
    x = torch.randn(3, 4)
    for wrong in (
        lambda: pyframe.mark_dynamic(x, 2),
        lambda: pyframe.mark_dynamic([1], 0),
        lambda: pyframe.mark_dynamic(x, 0, min=5, max=4),
        lambda: pyframe.mark_dynamic(x, 0, min=-1),
    ):
        with pytest.raises(pyframe.UserError):
            wrong()
    pyframe.mark_dynamic(x, 0, min=4)
    with pytest.raises(pyframe.UserError, match="is 3, but was marked"):
        pyframe.compile(lambda x: x + 1, backend="eager")(x)


# ---- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_ints_vary_from_the_second_value_on(backend):
    def fn(x, n):
        return x * n + (n // 2) - n % 3, n + 1, x.repeat(n)

    compare(fn, [(torch.randn(3), n) for n in (3, 4, 5, 60, 7)], 2, backend=backend)


def test_ints_that_are_0_and_1_or_divide():
    def fn(x, n):
        return x * (12 // n), x + n

    fast = compare(fn, [(torch.randn(3), n) for n in (5, 6, 7, 1, -4)], 2)
    with pytest.raises(ZeroDivisionError):
        fast(torch.randn(3), 0)


def test_an_int_attribute_that_counts():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 3

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    module, plain = Counting(), Counting()
    fast = pyframe.compile(module, backend="eager")
    for _ in range(6):
        x = torch.randn(3)
        torch.testing.assert_close(fast(x), plain(x))
    assert module.calls == plain.calls and counters["graphs"] == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_thousand_learning_rates_are_one_compilation(backend):
    def step(p, g, lr, decay):
        p = p * (1 - lr * decay)
        return p.sub_(g, alpha=lr), torch.addcmul(p, g, g, value=-lr), p.half() * lr, p.long() * lr, p.sum() / lr, p > lr

    others = _dispatchers()
    fast = pyframe.compile(step, backend=backend)
    p, g = torch.randn(5), torch.randn(5)
    for i in range(1000):
        lr = 0.1 / (i + 1)
        if i % 100 and i > 3:
            fast(p, g, lr, 0.01)
            continue
        got, want = fast(p, g, lr, 0.01), step(p, g, lr, 0.01)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
    assert counters["graphs"] == 1
    if backend == "inductor":
        assert _compilations(others) == 1


def _dispatchers():
    """Those of this process, of other tests too."""
    from inductor.dynamic.dispatch import DynamicShapeDispatcher

    return [x for x in gc.get_objects() if type(x) is DynamicShapeDispatcher]  # isinstance() asks dead proxies


def _compilations(others):
    """How often inductor compiled the only graph of this test. `others`: the dispatchers that were there before it."""
    made = [x for x in _dispatchers() if all(x is not other for other in others)]
    return max(x.compiled + sum(map(len, x.templates.values())) for x in made)


def test_floats_that_decide_are_guarded():
    def fn(x, f):
        if f > 0.5:
            x = x + 1
        return x * f

    compare(fn, [(torch.randn(3), f) for f in (0.1, 0.2, 0.7, 0.9, 0.3, -0.0)], 2)


def test_floats_whose_value_is_needed_are_constants():
    def fn(x, f):
        return x * int(f), f"{f:.2f}", x.new_full((2,), f), f.is_integer(), F.dropout(x, f / 10, training=False)

    compare(fn, [(torch.randn(3), f) for f in (2.5, 3.5, 2.5)], 2)


def test_floats_are_computed_with_as_in_python():
    def fn(x, f, n):
        beta = f**n
        return x * (1 - beta) / (f + n), f // 0.25, -f, abs(f) % 0.3, (f, [f * 2]), math.sqrt(f), f > 3, n / 4

    compare(fn, [(torch.randn(3), f, n) for f, n in ((0.9, 2), (0.8, 3), (0.99, 4), (0.5, 5))], 2)
    fast = pyframe.compile(lambda x, f: (x + 1, 1.0 / f), backend="eager")
    fast(torch.ones(2), 2.0)
    with pytest.raises(ZeroDivisionError):
        fast(torch.ones(2), 0.0)


def test_floats_nested_in_arguments_and_across_breaks():
    def fn(x, group):
        y = x * group["lr"]
        pyframe.graph_break()
        return y + group["betas"][1]

    compare(fn, [(torch.randn(3), {"lr": 0.1 * i, "betas": (0.9, 0.1 * i)}) for i in range(1, 6)], 2)


def test_a_float_attribute_is_constant_until_it_varies():
    class Scaled(nn.Module):
        scale = 0.5

        def forward(self, x):
            return x * self.scale

    module = Scaled()
    fast = pyframe.compile(module, backend="eager")
    for i in range(5):
        module.scale = 0.5 + i
        x = torch.randn(3)
        torch.testing.assert_close(fast(x), x * module.scale)
    assert counters["graphs"] == 2


def test_zeros_of_both_signs_differ():
    def fn(x, f):
        return 1 / x.clamp(max=f).abs().copysign(torch.full((), f)), 1 / (x * 0 + f).clamp(f, 1.0)

    fast = pyframe.compile(fn, backend="inductor")
    x = torch.ones(2)
    for f in (-0.0, 0.0, -1.0):
        alike(fast(x, f), fn(x, f))


def test_backends_see_numbers_as_inputs():
    seen = []

    def backend(gm, example_inputs):
        seen.append((gm, example_inputs))
        return gm.forward

    compare(lambda x, f: x.view(-1, x.shape[0] // 2) * f, [(torch.randn(n), 0.5) for n in (4, 6, 8)], 2, backend=backend)
    gm, inputs = seen[1]
    assert [type(x).__name__ for x in inputs] == ["Tensor", "SymInt"]  # floats are constants there
    assert len(gm.graph.find_nodes(op="placeholder")) == 2


def test_aot_eager_with_symbols():
    compare(arithmetic, sized((3, 8), (4, 9), (5, 10)), 2, backend="aot_eager")
    compare(lambda x, f: x * f, [(torch.randn(3), f) for f in (0.5, 0.25)], backend="aot_eager")


def test_symbols_do_not_load_torch_compile():
    program = """
import sys, torch, pyframe
def fn(x, n, f):
    return x.view(-1, x.shape[0]) * n * f if x.shape[0] > 2 else x
fast = pyframe.compile(fn)
for n in (4, 5, 6):
    fast(torch.randn(n), n, 0.5)
for n in (4, 5, 6):
    fast(torch.randn(n, requires_grad=True), n, 0.5).sum().backward()
loaded = [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
assert not loaded, loaded
"""
    done = forked_python.run(program)
    assert done.returncode == 0, done.stderr


def test_an_operator_that_breaks_leaves_no_size_behind():
    def fn(x, i):
        return x.sin(), torch.bincount(i, minlength=5)

    i = torch.tensor([0, 3])
    compare(fn, [(torch.ones(3), i), (torch.zeros(3), i)], backend="inductor")


# ---- ints as indices ----
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: x[i] * 2,
        lambda x, i: x[i],
        lambda x, i: x[:, i] + x[i, None, ..., i],
        lambda x, i: x.clone().index_fill_(1, torch.tensor([1]), 0.0).mul_(x[i]),
    ],
)
def test_an_index_that_varies_is_one_capture(fn, backend):
    calls = [(torch.randn(9, 9), i) for i in (1, 2, 5, 0, 3, -1, -2, 8, -9)]
    compare(fn, calls, graphs=2, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_at_an_index_that_varies(backend):
    def fn(x, i):
        y = x.clone()
        y[i] = 0
        y[:, i] += x[i]
        y[i, ..., i] = x[0, 0]
        return y

    compare(fn, [(torch.randn(9, 9), i) for i in (1, 2, 5, 0, 3, -1, -2)], graphs=2, backend=backend)


def test_the_last_row_of_a_batch_that_varies():
    compare(lambda x: x[x.size(0) - 1] * 2, [(torch.randn(n, 3),) for n in (9, 8, 7, 6)], graphs=2)


def test_an_index_out_of_range_is_the_error_of_eager():
    fast = pyframe.compile(lambda x, i: x[i] + 1, backend="eager")
    for i in (1, 2):
        fast(torch.randn(4), i)
    with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 4"):
        fast(torch.randn(4), 7)


def written_at(x, i):
    y = x.clone()
    y[i] = 7.0
    y[:, i] += 1
    return y


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "program",
    [lambda x, i: x[i] * 2, lambda x, i: x[:, i] + x[i, i], lambda x, i: x[None, i, ..., 1:] + 1, written_at],
    ids=["row", "column", "more", "written"],
)
def test_an_index_of_either_sign_is_one_capture(program, backend):
    x, y = torch.randn(6, 6), torch.randn(6, 6, requires_grad=True)
    places = (2, 3, -2, 4, -6, 5, -5)
    compare(program, [(x, i) for i in places], graphs=2, backend=backend)
    if backend == "eager":
        return
    fast = pyframe.compile(program)
    for i in places[:4]:
        found, wanted = (torch.autograd.grad(fn(y, i).sin().sum(), y) for fn in (fast, program))
        torch.testing.assert_close(found, wanted)


def test_an_index_of_either_sign_into_a_size_that_varies():
    calls = [(torch.randn(n, 3), i) for n, i in ((6, 3), (7, 4), (8, -2), (9, 5), (10, -3), (11, -11))]
    compare(lambda x, i: x[i] * 2, calls, graphs=2)


def test_an_index_out_of_range_raises():
    program = lambda x, i: x[i] * 2  # noqa: E731
    fast, x = pyframe.compile(program, backend="eager"), torch.randn(6)
    for i in (2, 3, -3, 6, -7, 4):
        if -6 <= i < 6:
            alike(fast(x, i), program(x, i))
        else:
            with pytest.raises(IndexError, match="out of bounds"):
                fast(x, i)

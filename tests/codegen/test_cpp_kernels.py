"""Generated C++ against torch, from hand-made loop bodies: fusion shape, values, tails, strides, dtypes."""

import pytest
import torch
from loops import Graph, compile_graph, flat


def layernorm(rows, cols, eps=1e-5):
    g = Graph()
    x = torch.randn(rows, cols)
    w, b = torch.randn(cols), torch.randn(cols)
    nx, nw, nb = g.input(x), g.input(w), g.input(b)
    at = lambda v, r: flat([*v, *r], (cols, 1))
    mean = g.node((rows,), (cols,), torch.float32, lambda o, v, r: o.op(
        "mul", o.op("reduction", "sum", o.op("load", nx, at(v, r))), o.c(1 / cols)))

    def square(o, v, r):
        d = o.op("sub", o.op("load", nx, at(v, r)), o.op("load", mean, v[0]))
        return o.op("mul", o.op("reduction", "sum", o.op("mul", d, d)), o.c(1 / cols))

    var = g.node((rows,), (cols,), torch.float32, square)

    def norm(o, v, r):
        d = o.op("sub", o.op("load", nx, at(v, ())), o.op("load", mean, v[0]))
        s = o.op("rsqrt", o.op("add", o.op("load", var, v[0]), o.c(eps)))
        y = o.op("mul", o.op("mul", d, s), o.op("load", nw, v[1]))
        return o.op("add", y, o.op("load", nb, v[1]))

    g.node((rows, cols), (), torch.float32, norm, out=True)
    return g, (x, w, b), torch.nn.functional.layer_norm(x, (cols,), w, b, eps)


def softmax(shape, dim):
    g = Graph()
    x = torch.randn(shape)
    nx = g.input(x)
    strides = x.stride()
    outer = [s for k, s in enumerate(shape) if k != dim]

    def place(v, r):
        full = list(v)
        full.insert(dim, r[0])
        return flat(full, strides)

    def rows_of(v):
        kept = [n for k, n in enumerate(v) if k != dim]
        steps, n = [], 1
        for s in reversed(outer):
            steps.insert(0, n)
            n *= s
        return flat(kept, steps)

    m = g.node(outer, (shape[dim],), torch.float32,
               lambda o, v, r: o.op("reduction", "max", o.op("load", nx, place(v, r))))
    e = g.node(shape, (), torch.float32, lambda o, v, r: o.op(
        "exp", o.op("sub", o.op("load", nx, flat(v, strides)), o.op("load", m, rows_of(v)))))
    s = g.node(outer, (shape[dim],), torch.float32,
               lambda o, v, r: o.op("reduction", "sum", o.op("load", e, place(v, r))))
    g.node(shape, (), torch.float32, lambda o, v, r: o.op(
        "truediv", o.op("load", e, flat(v, strides)), o.op("load", s, rows_of(v))), out=True)
    return g, (x,), torch.softmax(x, dim)


@pytest.mark.parametrize("rows,cols", [(4, 16), (3, 37), (64, 768), (2, 5), (1, 40000)])
def test_layernorm_is_one_kernel(rows, cols):
    g, args, want = layernorm(rows, cols)
    groups, source, call = compile_graph(g)
    assert len(groups) == 1
    assert "Slot" not in source and groups[0].stored == {g.outputs[0]}
    torch.testing.assert_close(call(*args)[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape,dim", [((8, 100), 1), ((8, 20, 100), 1), ((100, 33), 0), ((4, 8, 8), 2), ((2, 20000), 1)])
def test_softmax_is_one_kernel(shape, dim):
    g, args, want = softmax(shape, dim)
    groups, _, call = compile_graph(g)
    assert len(groups) == 1
    torch.testing.assert_close(call(*args)[0], want, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", "exp tanh erf sin cos log sqrt rsqrt sigmoid neg abs floor round log1p expm1 atan".split())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unary(name, dtype):
    x = torch.cat([torch.randn(1003, dtype=dtype) * 3, torch.tensor([0.0, -0.0, 1e30, -1e30, float("inf"), -float("inf"), float("nan"), -103.5, 88.7, 0.625], dtype=dtype)])
    g = Graph()
    n = g.input(x)
    g.node(tuple(x.shape), (), dtype, lambda o, v, r: o.op(name, o.op("load", n, v[0], dtype=dtype), dtype=dtype), out=True)
    got, want = compile_graph(g)[2](x)[0], getattr(torch, name)(x)
    if name in ("sin", "cos"):
        got, want = got[:1003], want[:1003]
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.int8, torch.bool])
def test_copy_to_float_and_back(dtype):
    x = torch.randint(0, 2 if dtype == torch.bool else 100, (517,)).to(dtype)
    g = Graph()
    n = g.input(x)
    g.node((517,), (), torch.float32, lambda o, v, r: o.op("to_dtype", o.op("load", n, v[0], dtype=dtype), torch.float32), out=True)
    g.node((517,), (), dtype, lambda o, v, r: o.op("to_dtype", o.op("load", "buf0", v[0]), dtype, dtype=dtype), out=True)
    groups, _, call = compile_graph(g)
    assert len(groups) == 1
    a, b = call(x)
    assert torch.equal(a, x.float()) and torch.equal(b, x)


def test_bf16_rounding_matches():
    x = torch.randn(4099)
    g = Graph()
    n = g.input(x)
    g.node((4099,), (), torch.bfloat16, lambda o, v, r: o.op("to_dtype", o.op("load", n, v[0]), torch.bfloat16, dtype=torch.bfloat16), out=True)
    g.node((4099,), (), torch.float16, lambda o, v, r: o.op("to_dtype", o.op("load", n, v[0]), torch.float16, dtype=torch.float16), out=True)
    a, b = compile_graph(g)[2](x)
    assert torch.equal(a, x.bfloat16()) and torch.equal(b, x.half())


@pytest.mark.parametrize("kind,torch_fn", [("sum", torch.sum), ("max", torch.amax), ("min", torch.amin), ("argmax", torch.argmax), ("argmin", torch.argmin), ("prod", torch.prod)])
@pytest.mark.parametrize("shape,dim", [((33, 100), 1), ((100, 33), 0), ((3, 70000), 1), ((5, 7), 1)])
def test_reductions(kind, torch_fn, shape, dim):
    x = torch.randint(-5, 6, shape).float() if kind.startswith("arg") else torch.rand(shape) + 0.5
    if kind == "prod":
        x = 1 + (x - 1) * 1e-3
    dtype = torch.int64 if kind.startswith("arg") else torch.float32
    g = Graph()
    n = g.input(x)
    keep, gone = shape[1 - dim], shape[dim]
    at = lambda v, r: flat([v[0], r[0]] if dim == 1 else [r[0], v[0]], x.stride())
    g.node((keep,), (gone,), dtype, lambda o, v, r: o.op("reduction", kind, o.op("load", n, at(v, r)), dtype=dtype), out=True)
    torch.testing.assert_close(compile_graph(g)[2](x)[0], torch_fn(x, dim), rtol=1e-4 if kind == "prod" else 1e-5, atol=1e-6)


def test_full_sum_is_accurate():
    x = torch.rand(3_000_001)
    g = Graph()
    n = g.input(x)
    g.node((), (3_000_001,), torch.float32, lambda o, v, r: o.op("reduction", "sum", o.op("load", n, r[0])), out=True)
    got = compile_graph(g)[2](x)[0].item()
    assert abs(got - x.double().sum().item()) / got < 2e-7


def test_transpose_add_and_index():
    x, y = torch.randn(37, 53), torch.randn(53, 37)
    g = Graph()
    nx, ny = g.input(x), g.input(y)

    def write(o, v, r):
        s = o.op("add", o.op("load", nx, flat(v[::-1], (53, 1))), o.op("load", ny, flat(v, (37, 1))))
        i = o.op("to_dtype", o.op("index_expr", f"({v[1]}) % 5 + {v[0]}", dtype=torch.int64), torch.float32)
        return o.op("where", o.op("gt", i, o.c(20.0), dtype=torch.bool), s, i)

    g.node((53, 37), (), torch.float32, write, out=True)
    i = (torch.arange(37)[None] % 5 + torch.arange(53)[:, None]).float()
    torch.testing.assert_close(compile_graph(g)[2](x, y)[0], torch.where(i > 20, x.t() + y, i))


def test_embedding_gather():
    table, ids = torch.randn(50, 24), torch.randint(0, 50, (7,))
    g = Graph()
    nt, ni = g.input(table), g.input(ids)

    def write(o, v, r):
        o.op("indirect", o.op("load", ni, v[0], dtype=torch.int64), "tmp0", dtype=torch.int64)
        return o.op("load", nt, f"24*tmp0 + {v[1]}")

    g.node((7, 24), (), torch.float32, write, out=True)
    assert torch.equal(compile_graph(g)[2](table, ids)[0], table[ids])


def test_equal_kernels_are_emitted_once():
    g = Graph()
    a, b = g.input(torch.randn(64)), g.input(torch.randn(64))
    for n in (a, b):
        g.node((64,), (), torch.float32, lambda o, v, r, n=n: o.op("sin", o.op("load", n, v[0])), out=True)
    groups, source, call = compile_graph(g)
    assert len(groups) == 2 and source.count('extern "C"') == 1
    x, y = torch.randn(64), torch.randn(64)
    got = call(x, y)
    torch.testing.assert_close(got[0], x.sin())
    torch.testing.assert_close(got[1], y.sin())


def test_read_at_another_index_is_not_fused():
    g = Graph()
    n = g.input(torch.randn(64))
    m = g.node((64,), (), torch.float32, lambda o, v, r: o.op("exp", o.op("load", n, v[0])))
    g.node((64,), (), torch.float32, lambda o, v, r: o.op("load", m, f"63 - {v[0]}"), out=True)
    groups, _, call = compile_graph(g)
    assert len(groups) == 2
    x = torch.randn(64)
    torch.testing.assert_close(call(x)[0], x.exp().flip(0))

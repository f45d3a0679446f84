"""Calls of ATen operators with small arguments, and how to lower them: shared by the tests of lowering and codegen."""

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from inductor.lower import lower_graph

aten = torch.ops.aten


def lowered(fn, *args, prepare=lambda gm: gm, **options):
    """The loop IR of `fn`, whose ATen graph goes through `prepare` first. `options` are those of `lower_graph`."""

    def flat(*xs):
        out = fn(*xs)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(a) for a in args]
        gm = make_fx(flat)(*fakes)
    return lower_graph(prepare(gm), **options)


def f32(*size):
    return torch.randn(*size)


def pos(*size):
    return torch.rand(*size) + 0.1


def i64(high, *size):
    return torch.randint(0, high, size)


UNARY = (
    "neg abs exp exp2 expm1 sin cos tanh atan sinh cosh asinh sigmoid erf erfc relu sign floor ceil round trunc isnan isinf "
    "logical_not square silu gelu hardtanh hardswish hardsigmoid leaky_relu elu softplus"
).split()
UNARY_POS = "log log2 log10 log1p sqrt rsqrt reciprocal tan".split()
BINARY = "add sub mul div maximum minimum fmod remainder atan2 eq ne lt le gt ge logical_and logical_or".split()

CASES = {
    "promote_int_float": (lambda a, b: a + b, i64(9, 3), f32(3)),
    "promote_scalar": (lambda a: (a + 1, a * 2.5, 3 - a, a / 2), i64(9, 3)),
    "compare_int_float": (lambda a: a > 1.5, i64(4, 5)),
    "alpha": (lambda a, b: (torch.add(a, b, alpha=3), torch.sub(a, b, alpha=2), torch.rsub(a, b)), f32(3), f32(3)),
    "bool_arithmetic": (lambda a, b: ((a > 0) + (b > 0), (a > 0) * (b > 0), ~(a > 0), (a > 0) & (b > 0)), f32(9), f32(9)),
    "bf16": (lambda a, b: torch.sigmoid(a) * b + 1, f32(4, 8).bfloat16(), f32(8).bfloat16()),
    "bf16_f32": (lambda a, b: a * b, f32(4, 8).bfloat16(), f32(8)),
    "pow": (lambda a: (a**2, a**3, a**4, a**0.5, a**-1, a**1.7, a ** a), pos(5)),
    "shifts": (lambda a, b: (a << 3, a >> 2, (a - 500) >> 4, b >> 1, b << 7, a >> 63), i64(1000, 7), i64(255, 9).to(torch.uint8)),
    "shifts_of_32_bits": (lambda a: (a >> 8 & 0xFFFFFF, a << 31, a >> 31), torch.randint(-(2**31), 2**31, (9,), dtype=torch.int32)),
    "pow_int": (lambda a: a**3, i64(5, 5)),
    "clamp": (lambda a, b: (a.clamp(-0.5, 0.5), a.clamp(min=0), torch.clamp(a, b)), f32(5), f32(5)),
    "where": (lambda a, b: (torch.where(a > 0, a, b), a.masked_fill(b > 0, 7.0), torch.where(a > 0, 1.0, 0.0)), f32(5), f32(5)),
    "to": (lambda a: (a.to(torch.int32), a.to(torch.float64), a.bool(), a.half(), a.long().float()), f32(7) * 3),
    "gelu_tanh": (lambda a: F.gelu(a, approximate="tanh"), f32(9)),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), f32(4), f32(4)),
    "addcmul": (lambda a, b, c: (torch.addcmul(a, b, c, value=2), torch.addcdiv(a, b, c)), f32(4), f32(4), pos(4)),
    "backward_ops": (lambda g, y: (aten.tanh_backward(g, y), aten.sigmoid_backward(g, y), aten.threshold_backward(g, y, 0)), f32(4), f32(4)),
    # creation
    "full": (lambda a: (a + torch.full((3, 2), 2.0), torch.zeros(2, dtype=torch.int64), torch.ones_like(a)), f32(3, 2)),
    "arange": (lambda a: (a + torch.arange(6), torch.arange(2, 11, 3), torch.arange(0, 1, 0.25)), f32(6)),
    "triangle": (lambda a: (a.tril(), a.triu(1), a.tril(-1)), f32(2, 4, 5)),
    "eye": (lambda a: a @ a.new_zeros(4, 4) if False else a + torch.eye(4), f32(4, 4)),
    "pad": (lambda a: (F.pad(a, (1, 2, 0, 3), value=5.0), F.pad(a, (-1, 2))), f32(3, 4)),
    "pad_expr": (lambda a: F.pad(a.sin() * 2, (1, 2)).exp(), f32(3, 4)),
    # views
    "reshape": (lambda a: ((a + 1).reshape(6, 4).permute(1, 0) * 2, a.view(24).view(2, 12) + 1), f32(2, 3, 4)),
    "reshape_copy": (lambda a: (a.t().reshape(-1), (a + 1).t().reshape(2, 6) * 2), f32(3, 4)),
    "expand": (lambda a, b: ((a + 1).expand(3, 4) * b, a.unsqueeze(0).expand(2, 3, 4) + b), f32(3, 1), f32(3, 4)),
    "slice": (lambda a: (a[1:, ::2] + 1, (a * 2)[:, -2:], a[:, 1], (a + 1)[2], a[..., None].squeeze(-1) + 1), f32(4, 6)),
    "split": (lambda a: [x + 1 for x in a.split(2, 1)] + [x * 2 for x in (a + 1).chunk(3, 1)], f32(4, 6)),
    "unbind": (lambda a: sum(a.unbind(0)), f32(3, 4)),
    "rotate_half": (lambda a: torch.cat([-a[..., 2:], a[..., :2]], -1) * a, f32(3, 4)),
    "roll": (lambda a: (a.roll(1, -1) + 1, torch.roll(a, (-1, 4), (0, 1)) * 2), f32(3, 5)),
    "cat3": (lambda a, b: torch.cat([a + 1, b * 2, a.sin()], 1), f32(2, 3), f32(2, 5)),
    "cat_nested": (lambda a: torch.cat([torch.cat([a + 1, a], 0).exp(), a * 2], 0), f32(2, 3)),
    "stack": (lambda a, b: torch.stack([a + 1, b * 2], 1), f32(2, 3), f32(2, 3)),
    "flip_repeat": (lambda a: (a.flip(1) + 1, a.repeat(2, 3) * 2), f32(2, 3)),
    "clone_strided": (lambda a: a.t().clone() + 1, f32(3, 4)),
    "contiguous": (lambda a: (a + 1).t().contiguous(), f32(3, 4)),
    "view_outputs": (lambda a: ((a + 1).t(), a.t()), f32(3, 4)),
    # indexing
    "embedding": (lambda w, i: F.embedding(i, w) * 2, f32(10, 4), i64(10, 2, 3)),
    "index_select": (lambda a, i: a.index_select(1, i) + 1, f32(3, 5), i64(5, 4)),
    "gather": (lambda a, i: a.gather(1, i) + 1, f32(3, 5), i64(5, 3, 2)),
    "index": (lambda a, i: (a[i] + 1, a[:, i % 4], a[i, i % 4], a[i[:, None], i % 4]), f32(5, 4, 3), i64(5, 6)),
    "index_apart": (lambda a, i: a[i % 2, :, i] + 1, f32(2, 4, 3), i64(3, 6)),
    "index_negative": (lambda a, i: a[i - 3] * 2, f32(5, 2), i64(3, 4)),
    # reductions
    "sum": (lambda a: (a.sum(), a.sum(1), a.sum((0, 2), keepdim=True), a.int().sum(-1), (a > 0).sum()), f32(3, 4, 5)),
    "mean": (lambda a: (a.mean(), (a * 2).mean(-1, keepdim=True)), f32(3, 4)),
    "mean_bf16": (lambda a: a.mean(-1), f32(3, 40).bfloat16()),
    "extremes": (lambda a: (a.amax(1), a.amin((0, 1)), a.max(), a.min(), *a.max(1), *a.min(0, keepdim=True)), f32(3, 4)),
    "arg": (lambda a: (a.argmax(), a.argmax(1), a.argmin(0, keepdim=True)), f32(3, 4)),
    "prod": (lambda a: (a.prod(1), a.prod()), pos(3, 4)),
    "sum_of_one": (lambda a: (a.sum(1), a.sum((0, 1)) * 2, a.argmax(1), a.amax(1) + 1, (a > 0).all(1)), f32(3, 1, 5)),
    "truth": (lambda a: ((a > 0).any(), (a > 0).all(1), a.any(0)), f32(3, 4)),
    "var": (lambda a: (a.var(1), a.std(), a.var(1, unbiased=False, keepdim=True), *torch.var_mean(a, 0, correction=2)), f32(5, 4)),
    "softmax": (lambda a: (a.softmax(-1), (a * 3).log_softmax(0)), f32(3, 4)),
    "softmax_bf16": (lambda a: a.softmax(-1), f32(3, 40).bfloat16()),
    "softmax_float": (lambda a: F.softmax(a, -1, dtype=torch.float32), f32(3, 40).bfloat16()),
    "layer_norm": (lambda a, w, b: F.layer_norm(a + 1, (5,), w, b), f32(3, 4, 5), f32(5), f32(5)),
    "layer_norm_bf16": (lambda a: F.layer_norm(a, (4, 5)), f32(3, 4, 5).bfloat16()),
    "native_layer_norm": (lambda a: aten.native_layer_norm(a, [5], None, None, 1e-5), f32(3, 5)),
    "group_norm": (lambda a, w: F.group_norm(a, 2, w, w), f32(2, 4, 3, 3), f32(4)),
    "rms_norm": (lambda a, w: a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-6) * w, f32(3, 8), f32(8)),
    # windows and channels
    "batch_norm": (lambda a, m, v: (F.batch_norm(a, m, v, m, v).relu(), F.batch_norm(a, m, v)), f32(2, 3, 4, 4), f32(3), pos(3)),
    "batch_norm_bf16": (lambda a, m, v: F.batch_norm(a, m, v, m, v), f32(2, 3, 4).bfloat16(), f32(3), pos(3)),
    "batch_norm_last": (lambda a, m, v: F.batch_norm(a.permute(0, 3, 1, 2), m, v) + 1, f32(2, 4, 4, 3), f32(3), pos(3)),
    "max_pool": (lambda a: (F.max_pool2d(a, 3, 2, 1), F.max_pool2d(a.relu(), 2)), f32(2, 3, 7, 6)),
    "max_pool_odd": (lambda a: (F.max_pool2d(a, (2, 3), 2, ceil_mode=True), F.max_pool2d(a[0], 2, 1, 0, 2)), f32(1, 2, 7, 8)),
    "avg_pool": (lambda a: (F.avg_pool2d(a, 3, 2, 1), F.avg_pool2d(a + 1, 2, divisor_override=3)), f32(2, 3, 7, 6)),
    "global_pool": (lambda a: (F.adaptive_avg_pool2d(a, 1), a.mean((2, 3))), f32(2, 3, 5, 4)),
    "sign_of_odd_numbers": (lambda a: (a.sign(), 1 / a.sign()), torch.tensor([float("nan"), -0.0, 0.0, -2.0, 3.0] * 2)),
    "numbers_that_wrap": (
        lambda a: (a > -3, a // -1, a.fmod(-3), torch.where(a > 0, a, -1) > 1,
                   torch.full_like(a, -1) // 2, torch.add(a, a, alpha=-1) > 3),
        torch.tensor([0, 1, 5, 200, 255] * 4, dtype=torch.uint8)),
    "copy_of_columns": (lambda a: aten.copy(a.t()[1], a.t()[0]) + 1, f32(4, 5)),
    "copy_converts": (lambda a: aten.copy(a.long(), a[:1]) + 1, f32(4, 5) * 9),
    "empty_reshaped": (lambda a, b: ((a + 1).flatten(1).softmax(-1), (b + 1).reshape(4, 0).sum(1)), f32(0, 4, 5), f32(4, 0, 5)),
    "empty": (lambda a: (a + 1, a.sum(0), a.sum()), f32(0, 3)),
    "zero_dim": (lambda a: (a + 1, a.sum(), a.reshape(1, 1) * 2), f32(())),
}

EXTERN = {
    "addmm": (1, lambda x, w, b: torch.addmm(b, x, w.t()).relu(), f32(3, 4), f32(5, 4), f32(5)),
    "mm_of_view": (1, lambda x, y: (x + 1).t() @ y, f32(4, 3), f32(4, 5)),
    "bmm_heads": (1, lambda q: (q * 2).view(2, 3, 2, 4).transpose(1, 2).reshape(4, 3, 4) @ torch.ones(4, 4, 2), f32(2, 3, 8)),
    "topk": (1, lambda a: [x + 1 for x in (a * 2).topk(2)], f32(3, 5)),
    "cumsum": (1, lambda a: (a + 1).cumsum(1) * 2, f32(3, 5)),
    "conv": (1, lambda x, w: F.conv2d(x + 1, w, padding=1).relu(), f32(1, 2, 5, 5), f32(3, 2, 3, 3)),
    "cat_inputs": (1, lambda a, b: torch.cat([a, b]) + 1, f32(2, 3), f32(2, 3)),
    "scatter": (1, lambda a, i: a.scatter(1, i, 0.5) + 1, f32(3, 5), i64(5, 3, 2)),
    "avg_pool_odd": (2, lambda a: (F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), F.avg_pool2d(a, 2, 2, ceil_mode=True)), f32(1, 2, 7, 6)),
    "max_pool_indices": (0, lambda a: F.max_pool2d(a, 2, return_indices=True), f32(1, 2, 7, 6)),
    "unknown_view": (0, lambda a: (a + 1).unfold(1, 2, 1) * 2, f32(3, 5)),
    "diagonal": (0, lambda a: a.diagonal() * 2, f32(4, 4)),
}


def every():
    """All samples by name: (fn, *args)."""
    cases = {name: (getattr(aten, name), f32(3, 5)) for name in UNARY}
    cases |= {name: (getattr(aten, name), pos(3, 5)) for name in UNARY_POS}
    cases |= {f"{name}_broadcast": (getattr(aten, name), f32(3, 1, 4), f32(5, 1)) for name in BINARY}
    cases |= {name: sample for name, sample in CASES.items()}
    return cases | {name: sample[1:] for name, sample in EXTERN.items()}

"""Products, convolutions, pools, layers and losses, linear algebra, special functions, complex numbers, results whose
size depends on data, `out=`, and regions (no_grad, autocast) around a statement."""

from __future__ import annotations

from ..generate import Grammar, Reject
from .expressions import adding_to, axis_mask, dtype_of, floating, parts

ROWS: Grammar = []
op = adding_to(ROWS)


# ---- products, convolutions, pools


@op(2, "nn")
def product(g):
    x = g.pick(lambda t: t.is_floating_point() and 1 <= t.dim() <= 4 and t.numel() > 0)
    shape, dtype = tuple(g.of(x).shape), str(g.of(x).dtype)[6:]
    n = g.rng.randint(1, 6)
    kind = g.rng.randrange(6)
    if kind == 0:
        return f"F.linear({x}, {g.new_input((n, shape[-1]), dtype)}, {g.new_input((n,), dtype)})"
    if kind == 1 and len(shape) >= 2:
        return f"{x} @ {x}.mT"
    if kind == 2 and len(shape) == 3:
        return f"torch.bmm({x}, {g.new_input((shape[0], shape[2], n), dtype)})"
    if kind == 3 and len(shape) == 2:
        return f"torch.addmm({g.new_input((n,), dtype)}, {x}, {g.new_input((shape[1], n), dtype)})"
    if kind == 4 and len(shape) == 3:
        return f"torch.einsum('bij,bkj->bik', {x}, {x})"
    return f"{x} @ {g.new_input((shape[-1], n), dtype)}"


@op(2, "nn")
def spatial(g):
    x = g.pick(lambda t: t.is_floating_point() and t.dim() in (3, 4) and t.numel() > 0)
    shape, dtype = tuple(g.of(x).shape), str(g.of(x).dtype)[6:]
    two = len(shape) == 4
    kind = g.rng.randrange(10)
    if kind == 0 and dtype in ("float32", "float64"):
        k = g.rng.randint(1, 3)
        weight = g.new_input((g.rng.randint(1, 4), shape[1], *([k] * (len(shape) - 2))), dtype)
        return f"F.conv{len(shape) - 2}d({x}, {weight}, None, {g.rng.choice((1, 1, 2))}, {g.rng.choice((0, 1))})"
    if kind == 1:
        how = f"{g.rng.choice((1, 2))}, {g.rng.choice((0, 1))}, ceil_mode={g.chance(0.3)}"
        return f"F.max_pool{len(shape) - 2}d({x}, 2, {how})"
    if kind == 2:
        how = f"{g.rng.choice((1, 2))}, {g.rng.choice((0, 1))}, count_include_pad={g.chance(0.5)}"
        return f"F.avg_pool{len(shape) - 2}d({x}, 2, {how})"
    if kind == 3:
        return f"F.adaptive_avg_pool{len(shape) - 2}d({x}, {g.rng.randint(1, 3)})"
    if kind == 4:
        return f"F.interpolate({x}, scale_factor={g.rng.choice((2, 1.5, 0.5))}, mode='nearest')"
    if kind == 5:
        size, mode = [g.rng.randint(1, 6) for _ in shape[2:]], "bilinear" if two else "linear"
        return f"F.interpolate({x}, size={size}, mode={mode!r}, align_corners={g.chance(0.5)})"
    if kind == 6 and two:
        return f"F.unfold({x}, 2, padding={g.rng.choice((0, 1))})"
    if kind == 7:
        return f"F.group_norm({x}, 1)"
    if kind == 8:
        return f"F.batch_norm({x}, None, None, training=True)"
    if kind == 9:
        return f"F.adaptive_max_pool{len(shape) - 2}d({x}, {g.rng.randint(1, 3)})"
    return None


@op(2, "nn")
def normalization(g):
    x = g.pick(lambda t: t.is_floating_point() and t.dim() >= 2)
    n = g.of(x).shape[-1]
    dtype = str(g.of(x).dtype)[6:]
    kind = g.rng.randrange(5)
    if kind == 0:
        return f"F.layer_norm({x}, [{n}], {g.new_input((n,), dtype)})"
    if kind == 1:
        return f"F.layer_norm({x}, [{n}])"
    if kind == 2:
        return f"F.rms_norm({x}, [{n}])"
    if kind == 3 and g.of(x).dim() == 2:
        index, reduction = g.index(n, (g.of(x).shape[0],)), g.rng.choice(("mean", "none", "sum"))
        return f"F.cross_entropy({x}, {index}, reduction={reduction!r})"
    if n % 2 == 0:
        return f"F.glu({x}, -1)"
    return f"F.instance_norm({x})"


# ---- layers


@op(2, "nn")
def attention(g):
    x = floating(g, 3, 4)
    shape = tuple(g.of(x).shape)
    length = g.rng.randint(1, 6)
    key = g.new_input((*shape[:-2], length, shape[-1]), dtype_of(g, x)) if g.chance(0.6) else x
    how = g.rng.choice(("", "", ", is_causal=True", ", scale=0.5", "mask"))
    if how == "mask":
        width = length if key != x else shape[-2]
        if g.chance(0.5):
            how = f", attn_mask={g.new_input((shape[-2], width), dtype_of(g, x))}"
        else:
            rows = f"torch.arange({shape[-2]}, device=DEVICE)[:, None]"
            how = f", attn_mask=torch.arange({width}, device=DEVICE) <= {rows}"
    return f"F.scaled_dot_product_attention({x}, {key}, {key}{how})"


@op(2, "nn")
def convolution(g):
    x = floating(g, 3, 4)
    shape, dtype = tuple(g.of(x).shape), dtype_of(g, x)
    rank = len(shape) - 2
    if dtype not in ("float32", "float64", "bfloat16"):
        raise Reject
    groups = g.rng.choice([n for n in (1, 1, 2, 3, shape[1]) if n and shape[1] % n == 0])
    kernel = [g.rng.randint(1, 3) for _ in range(rank)]
    stride, padding = g.rng.choice((1, 1, 2)), g.rng.choice((0, 1, 1))
    if g.chance(0.35):
        outs = g.rng.randint(1, 3)
        weight = g.new_input((shape[1], outs, *kernel), dtype)
        bias = g.new_input((outs * groups,), dtype) if g.chance(0.5) else None
        more = f"{stride}, {padding}, {g.rng.randint(0, stride - 1)}, {groups}"
        return f"F.conv_transpose{rank}d({x}, {weight}, {bias}, {more})"
    outs = groups * g.rng.randint(1, 3)
    weight = g.new_input((outs, shape[1] // groups, *kernel), dtype)
    bias = g.new_input((outs,), dtype) if g.chance(0.6) else None
    return f"F.conv{rank}d({x}, {weight}, {bias}, {stride}, {padding}, {g.rng.choice((1, 1, 2))}, {groups})"


IMAGES = parts("""
    F.interpolate({x}, scale_factor=2, mode='bicubic'); F.interpolate({x}, size=(3, 5), mode='area');
    F.interpolate({x}, size=(5, 4), mode='nearest-exact'); F.max_pool2d({x}, 2, 1, 0, 1, False, True)[1];
    F.max_pool2d({x}, 3, 2, 1, ceil_mode=True); F.lp_pool2d({x}, 2, 2); F.pixel_unshuffle({x}, 2);
    F.local_response_norm({x}, 2); F.avg_pool2d({x}, (1, 2), (2, 1), divisor_override=3);
    F.fold(F.unfold({x}, 2), {x}.shape[2:], 2); F.grid_sample({x}, {x}[:, :1].mT.flatten(2)[:, None, :, :2].tanh());
    F.affine_grid({x}[:, 0, :2, :3], [{x}.shape[0], 1, 3, 4]); {x}.mean((2, 3), keepdim=True) * {x};
    F.batch_norm({x}, {x}.mean((0, 2, 3)).detach(), {x}.var((0, 2, 3), correction=0).detach() + 1);
    {x}.to(memory_format=torch.channels_last); {x}.contiguous(memory_format=torch.channels_last);
    F.instance_norm({x}); F.dropout2d({x}, 0.0); F.max_pool2d({x}, 2, dilation=2)
""")


@op(2, "nn")
def image(g):
    return g.rng.choice(IMAGES).format(x=floating(g, 4, 4))


LAYERS = parts("""
    F.dropout({x}, 0.0); F.dropout({x}, 0.5, training=False); F.alpha_dropout({x}, 0.0);
    F.prelu({x}, {x}.mean().reshape(1));
    F.gelu({x}) * {y}; F.softmax({x} * 0.5, -1) @ {x}.mT.softmax(-1); F.cosine_similarity({x}, {y}, -1);
    F.pairwise_distance({x}, {y}); F.l1_loss({x}, {y}); F.huber_loss({x}, {y}); F.mse_loss({x}, {y});
    F.binary_cross_entropy_with_logits({x}, {y}.sigmoid()); F.binary_cross_entropy({x}.sigmoid(), {y}.sigmoid());
    F.kl_div({x}.log_softmax(-1), {y}.softmax(-1), reduction='batchmean'); F.poisson_nll_loss({x}, {y}.abs());
    F.gaussian_nll_loss({x}, {y}, {y}.square() + 1); F.soft_margin_loss({x}, {y}.sign()); F.celu({x}); F.selu({x});
    F.hinge_embedding_loss({x}, {y}.sign()); F.margin_ranking_loss({x}, {y}, ({x} - {y}).sign()); F.softsign({x});
    F.smooth_l1_loss({x}, {y}, beta=0.5); F.rrelu({x}); F.hardshrink({x}); F.softshrink({x});
    F.normalize({x}, p=1, dim=0);
    torch.renorm({x}, 2, 0, 1.0); F.feature_alpha_dropout({x}, 0.0); {x} - {x}.mean(-1, keepdim=True);
    {x} * ({x}.square().mean(-1, keepdim=True) + 1e-5).rsqrt(); ({x} - {x}.amax(-1, keepdim=True)).exp().sum(-1).log()
""")


@op(4, "nn")
def layer(g):
    x = floating(g)
    y = g.pick(lambda t: t.dtype == g.of(x).dtype and t.shape == g.of(x).shape)
    return g.rng.choice(LAYERS).format(x=x, y=y)


# ---- linear algebra

PRODUCTS = parts("""
    torch.outer({x}.flatten()[:6], {x}.flatten()[:5]); torch.einsum('...i,...j->...ij', {x}, {x});
    torch.einsum('...ij,...kj->...ik', {m}, {m}); torch.einsum('...ii->...i', {m} @ {m}.mT);
    torch.tensordot({m}, {m}.mT, 1);
    torch.kron({m}.flatten(0, -2)[:2], {m}.flatten(0, -2)[:2]); {m}.mT @ {m}; ({m} @ {m}.mT).diagonal(dim1=-2, dim2=-1);
    torch.linalg.matrix_norm({m}); torch.linalg.vector_norm({m}, 3, -1); torch.cdist({m}, {m}); ({m} @ {m}.mT).tril().sum(-1);
    torch.linalg.det({m} @ {m}.mT + 4 * torch.eye({r}, dtype={m}.dtype, device=DEVICE));
    torch.linalg.inv({m} @ {m}.mT + 4 * torch.eye({r}, dtype={m}.dtype, device=DEVICE));
    torch.linalg.cholesky({m} @ {m}.mT + 4 * torch.eye({r}, dtype={m}.dtype, device=DEVICE));
    torch.linalg.solve({m} @ {m}.mT + 4 * torch.eye({r}, dtype={m}.dtype, device=DEVICE), {m});
    torch.baddbmm({m}[None].flatten(0, -3) @ {m}[None].flatten(0, -3).mT, {m}[None].flatten(0, -3), {m}[None].flatten(0, -3).mT, beta=0.5);
    torch.addmv({m}.flatten(0, -2)[:, 0], {m}.flatten(0, -2), {m}.flatten(0, -2)[0], alpha=2); torch.inner({m}, {m});
    torch.cov({m}.flatten(0, -2)); torch.linalg.cross({m}[..., :3], {m}[..., :3].flip(-1)); torch.trace({m}.flatten(0, -2));
    torch.block_diag({m}.flatten(0, -2), {m}.flatten(0, -2)[:1]); torch.vander({x}.flatten()[:4].tanh(), 3)
""")  # noqa: E501


@op(3, "nn")
def linear_algebra(g):
    m = floating(g, 2, 4)
    return g.rng.choice(PRODUCTS).format(m=m, x=m, r=g.size(m, g.of(m).dim() - 2))


# ---- special functions, and operators over whole tensors

SPECIAL = parts("""
    {x}.clamp(-0.9, 0.9).erfinv(); ({x}.abs() + 0.5).digamma(); torch.special.i0({x}); torch.special.ndtr({x});
    torch.special.entr({x}.abs()); torch.special.erfcx({x}.abs()); torch.special.log_ndtr({x}); torch.special.i1e({x});
    torch.special.xlog1py({x}, {x}.abs()); ({x}.abs() + 0.5).polygamma(1); ({x}.abs() + 0.5).mvlgamma(1);
    torch.frexp({x})[0]; torch.frexp({x})[1]; torch.ldexp({x}, {x}.abs().floor()); torch.nextafter({x}, {x} + 1);
    {x}.quantile(0.5); {x}.nanmedian(); {x}.msort(); torch.trapezoid({x}, dim=-1); torch.cumulative_trapezoid({x}, dim=0);
    torch.gradient({x}, dim=-1)[0]; {x}.histc(4, -2, 2); torch.bucketize({x}, torch.linspace(-2, 2, 5, device=DEVICE));
    torch.searchsorted({x}.sort(-1)[0], {x}); {x}.ravel(); {x}.swapaxes(0, -1); torch.atleast_3d({x}); {x}.fliplr();
    torch.meshgrid({x}.flatten()[:3], {x}.flatten()[:2], indexing='ij')[1]; torch.cartesian_prod({x}.flatten()[:3], {x}.flatten()[:2]);
    torch.isin({x}, {x}.flatten()[:2]); torch.isclose({x}, {x} + 1e-9); torch.tril_indices(3, 3, device=DEVICE) + {x}.shape[0];
    {x}.masked_scatter({x} > 0, {x}.flip(0)); {x}.put(torch.arange(1, device=DEVICE), {x}.flatten()[:1] * 2);
    {x}.index_reduce(0, torch.arange({x}.shape[0], device=DEVICE) // 2, {x}, 'amax'); {x}.bernoulli(1.0); {x}.var(); {x}.std(-1);
    torch.polar({x}.abs(), {x}).real; torch.complex({x}, {x} + 1).angle(); torch.view_as_real(torch.complex({x}, {x}) * 1j);
    torch.fft.fft({x}).real; torch.fft.rfft({x}).abs(); torch.fft.irfft(torch.fft.rfft({x}), {x}.shape[-1]);
    torch.complex({x}, {x} * 2).conj().imag; (torch.complex({x}, {x}).conj() * torch.complex({x}, {x} + 1)).real;
    torch.fft.ifft(torch.fft.fft({x}) * 2j).imag; torch.view_as_complex(torch.stack([{x}, {x} + 1], -1)).abs()
""")  # noqa: E501


@op(5, "pointwise")
def special(g):
    return g.rng.choice(SPECIAL).format(x=floating(g))


# ---- sizes that depend on data

MASKED = parts("""
    {x}[{m}].sum(); {x}[{x} > 0].sum(); {x}.masked_select({x} <= 0).exp().sum(); ({x} > 0).nonzero().sum(0);
    {x}[{x} != 0]; {x}.nonzero(); torch.where({x} > 0)[0].sum(); {x}[{x}.flatten(1).amax(1) > 0]; {x}[:, {x}[0] > 0];
    {x}.unique().sum(); torch.unique({x}, return_counts=True)[1]; {x}.sum().item() + {x}; {x} * {x}.shape[0];
    len({x}) * {x};
    {x}.abs().clamp(0, 5).long().flatten().bincount(minlength=6)
""")


@op(2, "index")
def data_dependent(g):
    x = g.ranked(1, 4)
    return g.rng.choice(MASKED).format(x=x, m=axis_mask(g, x) + f".expand_as({x})")


# ---- writes with out=, and regions


@op(1, "write")
def into(g):
    x = g.pick(lambda t: not t.requires_grad)
    out = g.pick(lambda t: t.shape == g.of(x).shape and not t.requires_grad and t.dtype == g.of(x).dtype)
    calls = ("mul({x}, 2, out={o})", "add({x}, {x}, out={o})", "neg({x}, out={o})", "clamp({x}, 0, 1, out={o})")
    expression = g.rng.choice(calls)
    if g.of(x).dim() and g.chance(0.3):
        expression = f"cumsum({{x}}, {g.dim(x)}, out={{o}})"
    return "torch." + expression.format(x=x, o=out)

"""More families of operators: contractions, sampling of images, windows and pools in one to three dimensions, sorting
without ties, searches, accumulating writes, complex numbers, matrix functions, losses, normalizations, embeddings.

They accept tensors of any rank, and slice or reshape them to what the operator needs.
"""

from __future__ import annotations

from ..generate import Generator, Grammar, Reject
from .expressions import adding_to, dtype_of, floating, parts

ROWS: Grammar = []
op = adding_to(ROWS)

EINSUMS = parts("""
    torch.einsum('...i,...i->...', {x}, {y}); torch.einsum('...i,...i->...i', {x}, {y});
    torch.einsum('ij,kj->ik', {a}, {a}); torch.einsum('ij,ij->j', {a}, {a}); torch.einsum('ij->ji', {a});
    torch.einsum('ij,kl->ijkl', {a}[:3, :3], {a}[:2, :2]); torch.einsum('ij,j,i->', {a}, {a}[0], {a}[:, 0]);
    torch.einsum('ij,ik,il->jkl', {a}[:, :2], {a}[:, :3], {a}[:, :2]); torch.einsum('i,i', {a}[0], {a}[0]);
    torch.einsum('bi,ci->bc', {a}, {a}.flip(0)); {a}.mT.contiguous() @ {a}; torch.mm({a}, {a}.t());
    torch.mv({a}, {a}[0]); torch.addbmm({a} @ {a}.mT, {a}[None], {a}.mT[None]); torch.chain_matmul({a}, {a}.mT, {a});
    torch.linalg.multi_dot([{a}, {a}.mT, {a}]); torch.tensordot({x}, {y}, dims=([0], [0])); F.bilinear({a}, {a}, {w})
""")


@op(2, "nn")
def contraction(g: Generator) -> str:
    x = floating(g)
    y = g.pick(lambda t: t.dtype == g.of(x).dtype and t.shape == g.of(x).shape)
    width = g.of(x).shape[-1]
    text = g.rng.choice(EINSUMS)
    w = g.new_input((g.rng.randint(1, 3), width, width), dtype_of(g, x)) if "{w}" in text else ""
    return text.format(x=x, y=y, a=f"{x}.flatten(0, -2)" if g.of(x).dim() > 1 else f"{x}[None]", w=w)


# `v`: (batch, channels, length); `p`: (batch, channels, height, width); `b`: (batch, channels, depth, height, width)
WINDOWS = parts("""
    F.interpolate({v}, scale_factor=2, mode='linear'); F.interpolate({v}, size=5); F.interpolate({b}, scale_factor=2);
    F.interpolate({b}, size=(2, 3, 4), mode='trilinear'); F.interpolate({p}, size=(4, 3), mode='bilinear', antialias=True);
    F.interpolate({p}, size=(3, 5), mode='bicubic', align_corners=True); F.interpolate({p}, scale_factor=(1.5, 0.5));
    F.grid_sample({p}, {grid}); F.grid_sample({p}, {grid}, mode='nearest'); F.grid_sample({p}, {grid}, mode='bicubic');
    F.grid_sample({p}, {grid}, padding_mode='border', align_corners=True); F.grid_sample({p}, {grid}, padding_mode='reflection');
    F.max_pool1d({v}, 2, 1); F.avg_pool1d({v}, 3, 2, 1); F.adaptive_avg_pool1d({v}, 3); F.adaptive_max_pool1d({v}, 2);
    F.max_pool3d({b}, 2, 1, 1); F.avg_pool3d({b}, (1, 2, 2), 1, (0, 1, 1), count_include_pad=False); F.adaptive_avg_pool3d({b}, 2);
    F.max_pool2d({p}, (2, 1), (1, 2), (1, 0)); F.avg_pool2d({p}, 2, 1, 1, count_include_pad=False);
    F.adaptive_avg_pool2d({p}, (None, 2)); F.adaptive_avg_pool2d({p}, 1); F.adaptive_max_pool2d({p}, (2, 3));
    F.max_pool2d({p}, 2, 2, return_indices=True)[1]; F.max_unpool2d(*F.max_pool2d({p}, 2, 2, return_indices=True), 2);
    F.lp_pool1d({v}, 2, 2); F.unfold({p}, (2, 1), dilation=1, stride=(1, 2)); F.fold(F.unfold({p}, 2, padding=1), {p}.shape[2:], 2, padding=1);
    F.pad({p}, (1, 1, 0, 1), mode='reflect'); F.pad({v}, (1, 2), mode='circular'); F.pad({b}, (1, 0, 1, 1, 0, 1), mode='replicate');
    F.pixel_shuffle({p}.repeat(1, 4, 1, 1), 2); F.channel_shuffle({p}.repeat(1, 2, 1, 1), 2); {p}.unfold(2, 2, 1).unfold(3, 2, 1).amax((-1, -2));
    F.instance_norm({v}.repeat(1, 1, 2)); F.group_norm({p}.repeat(1, 2, 1, 1), 2); F.local_response_norm({v}, 3);
    F.batch_norm({p}.repeat(2, 1, 1, 1), None, None, training=True); F.dropout1d({v}, 0.0); F.conv1d({v}, {w}, padding='same');
    F.conv1d({v}, {w}, stride=2, padding=1); F.conv_transpose1d({v}, {w}, stride=2, padding=1); F.conv1d({v}.to(torch.float32), {v}[:1].to(torch.float32), padding={v}.shape[2])
""")  # noqa: E501


@op(3, "nn")
def windows(g: Generator) -> str:
    x = floating(g, 2, 5)
    if g.of(x).numel() > 1500 or g.dynamic:
        raise Reject
    text = g.rng.choice(WINDOWS)
    flat = f"{x}.flatten(2)" if g.of(x).dim() > 3 else f"{x}[None]" if g.of(x).dim() == 2 else x
    image = {2: f"{x}[None, None]", 3: f"{x}[None]", 4: x, 5: f"{x}.flatten(3)"}[g.of(x).dim()]
    shape = (1, *g.of(x).shape) if g.of(x).dim() == 2 else tuple(g.of(x).shape)
    batch = g.of(x).shape[0] if g.of(x).dim() >= 4 else 1
    grid = w = ""
    if "{grid}" in text:
        grid = f"{g.new_input((batch, 3, 2, 2), dtype_of(g, x), 'normal')}.clamp(-1.1, 1.1)"
    if "{w}" in text:
        w = g.new_input((shape[1], shape[1], g.rng.randint(1, 3)), dtype_of(g, x))
    return text.format(v=flat, p=image, b=f"{image}[:, :, None]", grid=grid, w=w)


# `d`: numbers that are all different, so that the order is determined
ORDERS = parts("""
    {d}.sort(-1)[0]; {d}.sort(0, descending=True)[1]; {d}.argsort(-1); {d}.topk(2, -1)[1]; {d}.topk(1, 0)[0];
    {d}.topk(2, -1, largest=False, sorted=True)[0]; {d}.kthvalue(1, 0)[1]; {d}.median(-1)[1]; {d}.mode(0)[0];
    {x}.gather(0, {d}.argsort(0)); {x}.take_along_dim({d}.argsort(-1), -1); {d}.max(-1)[1]; {d}.cummax(0)[1];
    {d}.cummin(-1)[0]; {d}.argmax(0); {x}.cumsum(0).flip(0).cumsum(-1); {x}.cumprod(-1).cumsum(0); {x}.logcumsumexp(0);
    torch.cumulative_trapezoid({x}, dim=-1); {x}.diff(n=2, dim=0); {x}.diff(dim=-1, prepend={x}[..., :1]);
    torch.quantile({d}.float(), 0.3, dim=-1); torch.unique_consecutive({d}.flatten().sort()[0]).sum();
    torch.bucketize({x}, torch.tensor([-1.0, 0.0, 0.5, 2.0], dtype={x}.dtype, device=DEVICE), right=True);
    torch.searchsorted({d}.sort(-1)[0], {x}.contiguous(), right=True); torch.searchsorted({d}.flatten().sort()[0], {x}, side='left');
    torch.histogram({x}.float().cpu(), 4, range=(-2.0, 2.0))[0].to(DEVICE); torch.combinations({d}.flatten()[:4]); {x}.aminmax(dim=0)[1];
    torch.renorm({x}, 1, 0, 2.0); {x}.nanquantile(0.5); {x}.nansum(-1); {x}.logsumexp((0, -1)); {x}.std(0, correction=0)
""")  # noqa: E501


@op(2, "reduce")
def order(g: Generator) -> str:
    x = g.pick(lambda t: t.is_floating_point() and 2 <= t.dim() <= 4 and min(t.shape) >= 2)
    n = g.of(x).numel()
    different = f"(torch.arange({n}, device=DEVICE) * 7 % {n if n % 7 else n + 1}).reshape({x}.shape).to({x}.dtype)"
    if dtype_of(g, x) in ("bfloat16", "float16") and n > 250 or g.dynamic:
        raise Reject
    return g.rng.choice(ORDERS).format(x=x, d=f"({different})")


ACCUMULATED = parts("""
    {x}.index_add(0, {i}, {s}); {x}.index_add(0, {i}, {s}, alpha=-2); {x}.index_copy(0, {i}.unique(), {s}[:1].expand({i}.unique().shape[0], *{s}.shape[1:]));
    {x}.index_put(({i},), {s}, accumulate=True); {x}.index_reduce(0, {i}, {s}, 'amin'); {x}.index_reduce(0, {i}, {s}, 'mean', include_self=False);
    {x}.masked_scatter({x} > 0, {x}.flip(0)); {x}.masked_scatter({x} < 0.5, {x} * 2); {x}.masked_fill({x} > 0, {x}.sum());
    {x}.scatter_reduce(0, {i}[:, None].expand(-1, {x}.flatten(1).shape[1]).reshape({s}.shape), {s}, 'amax'); {x}.put({i}, {s}.flatten()[:{m}], accumulate=True);
    torch.where({x}.isnan(), 0, {x}).index_select(0, {i}); {x}[{i}].sum(0); {x}[{i}, ..., 0] * 2; {x}.take({i}); torch.gather({x}, 0, {i}.reshape({m}, *[1] * ({x}.dim() - 1)).expand_as({s}));
    F.embedding({i}, {x}.flatten(1)); F.embedding({i}, {x}.flatten(1), padding_idx=0); F.embedding({i}, {x}.flatten(1), scale_grad_by_freq=True);
    F.embedding_bag({i}[None], {x}.flatten(1), mode='sum'); F.embedding_bag({i}[None], {x}.flatten(1), mode='mean'); F.embedding_bag({i}, {x}.flatten(1), {i}[:1] * 0, mode='max');
    F.embedding_bag({i}[None], {x}.flatten(1), mode='sum', per_sample_weights={s}.flatten(1)[:, 0][None]); F.one_hot({i}, 9).to({x}.dtype) @ torch.ones(9, 2, dtype={x}.dtype, device=DEVICE);
    torch.bincount({i}, minlength=5); torch.zeros_like({x}).index_add_(0, {i}, {s}); {x}.new_zeros(9).scatter_add(0, {i}, {s}.flatten()[:{m}])
""")  # noqa: E501


@op(3, "index")
def accumulated(g: Generator) -> str:
    x = floating(g, 2, 4)
    shape, m = tuple(g.of(x).shape), g.rng.randint(1, 4)
    text = g.rng.choice(ACCUMULATED)
    i = g.index(min(shape[0], 9), (m,))
    s = g.new_input((m, *shape[1:]), dtype_of(g, x)) if "{s}" in text else ""
    return text.format(x=x, i=i, s=s, m=m)


# `z`: complex
COMPLEX = parts("""
    {z}.abs(); {z}.angle(); {z}.real + {z}.imag; ({z} * {z}.conj()).real; {z}.exp().real; ({z} / (2 + 1j)).imag; {z}.sum(0).abs();
    {z}.mean().imag; torch.view_as_real({z} * {z}); {z}.conj().real * 2; ({z} @ {z}.mH).real; {z}.mT.contiguous().imag; {z}.reshape(-1).real;
    torch.view_as_real({z}).sum(-1); torch.cat([{z}, {z}.conj()], 0).imag; {z}.cumsum(-1).abs(); torch.where({x} > 0, {z}, 1j).real;
    torch.fft.fft2({x}.float()).abs(); torch.fft.ifft({z}).real; torch.fft.fftshift({x}); torch.fft.rfft({x}.float(), dim=0).real; torch.fft.hfft({z}, dim=-1);
    torch.polar({x}.abs() + 0.5, {x}).imag; {z}.roll(1, 0).real; {z}.square().imag; torch.stack([{z}, {z}]).real; {z}.sgn().real; ({z} == {z}.conj()).sum(); {z}.flip(-1)[0].real
""")  # noqa: E501


@op(1, "pointwise")
def complex_numbers(g: Generator) -> str:
    x = g.pick(lambda t: str(t.dtype)[6:] in ("float32", "float64") and 2 <= t.dim() <= 4 and t.numel() > 0)
    return g.rng.choice(COMPLEX).format(x=x, z=f"torch.complex({x}, {x} * 0.5 + 1)")


# `s`: symmetric and positive definite, `a`: (n, m)
MATRICES = parts("""
    torch.linalg.cholesky({s}); torch.linalg.inv({s}); torch.linalg.det({s}); torch.linalg.slogdet({s})[1]; torch.logdet({s});
    torch.linalg.solve({s}, {a}); torch.linalg.eigvalsh({s}); torch.linalg.svdvals({a}); torch.linalg.matrix_norm({a}, 'nuc'); torch.linalg.pinv({s});
    torch.linalg.solve_triangular({s}.tril(), {a}, upper=False); torch.cholesky_solve({a}, torch.linalg.cholesky({s})); torch.linalg.matrix_power({s} / 8, 3);
    torch.linalg.norm({a}, 1); torch.linalg.vector_norm({a}, 1, -1); torch.linalg.matrix_exp({s} / 16); torch.cdist({a}, {a} + 1, p=1.0); torch.linalg.diagonal({s}) * 2;
    torch.diag_embed({a}); torch.diag({s}.diagonal()); torch.trace({s}); torch.corrcoef({a}); torch.linalg.qr({s})[1].abs(); torch.linalg.lu_factor({s})[0]; torch.linalg.matrix_rank({s})
""")  # noqa: E501


@op(1, "nn")
def matrices(g: Generator) -> str:
    x = g.pick(lambda t: str(t.dtype)[6:] in ("float32", "float64") and t.dim() >= 2 and 0 < t.numel() < 600)
    a = f"{x}.flatten(0, -2)"
    rows = g.of(x).flatten(0, -2).shape[0]
    size = f"{a}.shape[0]" if g.dynamic else rows
    return g.rng.choice(MATRICES).format(
        a=a, s=f"({a}.tanh() @ {a}.tanh().mT + 4 * torch.eye({size}, dtype={x}.dtype, device=DEVICE))"
    )


# `l`: logits of (batch, classes), `c`: class numbers of (batch,)
LOSSES = parts("""
    F.cross_entropy({l}, {c}); F.cross_entropy({l}, {c}, label_smoothing=0.1); F.cross_entropy({l}, {c}, ignore_index=0, reduction='sum'); F.cross_entropy({l}, {l}.softmax(-1));
    F.nll_loss({l}.log_softmax(-1), {c}); F.nll_loss({l}.log_softmax(-1), {c}, reduction='none'); F.multi_margin_loss({l}, {c}); F.multilabel_soft_margin_loss({l}, ({l} > 0).to({l}.dtype));
    F.cross_entropy({l}, {c}, weight=torch.ones_like({l}[0]) * 0.5); F.triplet_margin_loss({l}, {l}.flip(0), {l}.roll(1, 0)); F.cosine_embedding_loss({l}, {l}.flip(0), torch.ones_like({l}[:, 0]));
    F.kl_div({l}.log_softmax(-1), {l}.flip(0).log_softmax(-1), log_target=True, reduction='sum'); F.poisson_nll_loss({l}, {l}.abs(), full=True); F.huber_loss({l}, {l}.flip(0), delta=0.5);
    F.binary_cross_entropy_with_logits({l}, {l}.sigmoid(), pos_weight=torch.ones_like({l}[0]) * 2); F.softmin({l}, 0); F.mse_loss({l}, {l}.flip(0), reduction='sum');
    F.layer_norm({l}, {l}.shape[1:], {l}[0], {l}[0]); F.rms_norm({l}, {l}.shape[1:], {l}[0]); F.normalize({l}, dim=-1) @ F.normalize({l}, dim=-1).mT; F.pairwise_distance({l}, {l}.flip(0), keepdim=True);
    F.batch_norm({l}.repeat(2, 1), {l}.mean(0).detach(), {l}.var(0, correction=0).detach() + 1, {l}[0], {l}[0], training=False); F.batch_norm({l}.repeat(2, 1), None, None, {l}[0], training=True)
""")  # noqa: E501


@op(3, "nn")
def losses(g: Generator) -> str:
    x = floating(g, 2, 4)
    if g.dynamic:
        raise Reject
    flat = g.of(x).flatten(1).shape
    text = g.rng.choice(LOSSES)
    c = g.index(flat[1], (flat[0],)) if "{c}" in text else ""
    return text.format(l=f"{x}.flatten(1)", c=c)

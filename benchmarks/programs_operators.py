"""The programs of `benchmarks.operators_cpu`: single operators and modules, each with its arguments in two sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

SIZES = ("small", "large")
_ROWS = ((64, 256), (512, 2048))
_SIGNALS = ((4, 32, 256), (16, 64, 1024))
_IMAGES = ((2, 32, 28, 28), (4, 32, 56, 56))
_VOLUMES = ((1, 8, 8, 16, 16), (2, 16, 16, 32, 32))
Args = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Operator:
    """`make(size)` returns the arguments, `size` being 0 or 1; `trains`: whether it is timed with its backward, too.
    Floating-point arguments require gradients then."""

    fn: Callable[..., Any]
    make: Callable[[int], Args]
    trains: bool = True

    def args(self, size: str) -> Args:
        """The arguments of one size, the same in each call."""
        torch.manual_seed(0)
        return self.make(SIZES.index(size))


OPERATORS: dict[str, Operator] = {}


def _add(name: str, fn: Callable[..., Any], make: Callable[[int], Args], trains: bool = True) -> None:
    assert name not in OPERATORS, name
    OPERATORS[name] = Operator(fn, make, trains)


def _add_all(functions: dict[str, Callable[..., Any]], make: Callable[[int], Args]) -> None:
    for name, fn in functions.items():
        _add(name, fn, make)


# ---- arguments


def _rows(s: int) -> Args:
    return (torch.randn(_ROWS[s]),)


def _two_rows(s: int) -> Args:
    return torch.randn(_ROWS[s]), torch.randn(_ROWS[s])


def _positive(s: int) -> Args:
    return (torch.rand(_ROWS[s]) + 0.5,)


def _signals(s: int) -> Args:
    return (torch.randn(_SIGNALS[s]),)


def _images(s: int) -> Args:
    return (torch.randn(_IMAGES[s]),)


def _volumes(s: int) -> Args:
    return (torch.randn(_VOLUMES[s]),)


def _ints(s: int) -> Args:
    return torch.randint(-1000, 1000, _ROWS[s]), torch.randint(1, 100, _ROWS[s])


def _complex(s: int) -> Args:
    return torch.randn(_ROWS[s], dtype=torch.complex64), torch.randn(_ROWS[s], dtype=torch.complex64)


def _with_targets(s: int) -> Args:
    rows, columns = _ROWS[s]
    return torch.randn(rows, columns), torch.randint(columns, (rows,))


def _with_places(s: int) -> Args:
    return torch.randn(_ROWS[s]), torch.randint(_ROWS[s][1], _ROWS[s])


def _with_rows_of_table(s: int) -> Args:
    rows, columns = _ROWS[s]
    return torch.randn(rows, columns), torch.randint(rows, (2 * rows,))


def _with_new_rows(s: int) -> Args:
    rows, columns = _ROWS[s]
    return torch.randn(rows, columns), torch.randperm(rows)[: rows // 2], torch.randn(rows // 2, columns)


def _with_repeated_rows(s: int) -> Args:
    rows, columns = _ROWS[s]
    return torch.randn(rows, columns), torch.randint(rows, (2 * rows,)), torch.randn(2 * rows, columns)


def _vocabulary(s: int) -> Args:
    return torch.randn(1000 * (1 + 9 * s), 128 * (1 + s)), torch.randint(1000, (16 * (1 + 3 * s), 32 * (1 + 3 * s)))


def _grid(s: int) -> Args:
    n, channels, height, width = _IMAGES[s]
    return torch.randn(n, channels, height, width), torch.rand(n, height, width, 2) * 2 - 1


# ---- activations and elementwise

_add_all({
    "gelu": F.gelu,
    "gelu, tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "leaky_relu": F.leaky_relu,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "glu": F.glu,
    "softmax": lambda x: x.softmax(-1),
    "softmax of columns": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
}, _rows)  # fmt: skip
_add("prelu", F.prelu, lambda s: (*_images(s), torch.rand(_IMAGES[s][1])))
_add("pow 2.5", lambda x: x.pow(2.5), _positive)
_add("lgamma", torch.lgamma, _positive, trains=False)
_add("atan2", torch.atan2, _two_rows)
_add("where", lambda x, y: torch.where(x > 0, x, y), _two_rows)
_add("clamp", lambda x: x.clamp(-0.5, 0.5), _rows)
_add("complex multiply", torch.mul, _complex, trains=False)
_add("polar, view_as_real", lambda x, y: torch.view_as_real(torch.polar(x.abs(), y)), _two_rows, trains=False)
_add("spectral mask", lambda x, y: x * torch.fft.ifftshift(y.abs() < 1), _complex, trains=False)
_add("int64 arithmetic", lambda x, y: x * y + (x >> 2), _ints, trains=False)
_add("int64 division", lambda x, y: x // y + x % y, _ints, trains=False)
_add("bool logic", lambda x, y: (x > 0) & ~(y > 0.5) | (x == y), _two_rows, trains=False)
_add("to uint8", lambda x: (x.clamp(0, 1) * 255).to(torch.uint8), _rows, trains=False)

# ---- norms

_add("layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b),
     lambda s: (*_rows(s), torch.randn(_ROWS[s][1]), torch.randn(_ROWS[s][1])))  # fmt: skip
_add("rms_norm", lambda x, w: F.rms_norm(x, w.shape, w), lambda s: (*_rows(s), torch.randn(_ROWS[s][1])))
_add("group_norm", lambda x, w, b: F.group_norm(x, 8, w, b),
     lambda s: (*_images(s), torch.randn(_IMAGES[s][1]), torch.randn(_IMAGES[s][1])))  # fmt: skip
_add("batch_norm, training", lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
     lambda s: (*_images(s), torch.randn(_IMAGES[s][1]), torch.randn(_IMAGES[s][1])))  # fmt: skip
_add("instance_norm", F.instance_norm, _images)
_add("local_response_norm", lambda x: F.local_response_norm(x, 5), _images)
_add("normalize", F.normalize, _rows)
_add("vector norm of columns", lambda x: torch.linalg.vector_norm(x, dim=0), _rows)

# ---- pooling

_add("max_pool1d", lambda x: F.max_pool1d(x, 3, 2), _signals)
_add("avg_pool1d", lambda x: F.avg_pool1d(x, 4), _signals)
_add("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1), _images)
_add("avg_pool2d", lambda x: F.avg_pool2d(x, 2), _images)
_add("avg_pool2d, overlapping", lambda x: F.avg_pool2d(x, 3, 2, 1), _images)
_add("max_pool3d", lambda x: F.max_pool3d(x, 2), _volumes)
_add("max_pool3d, overlapping", lambda x: F.max_pool3d(x, 3, 2, 1), _volumes)
_add("avg_pool3d", lambda x: F.avg_pool3d(x, 2), _volumes)
_add("avg_pool3d, overlapping", lambda x: F.avg_pool3d(x, 3, 2, 1), _volumes)
_add("adaptive_avg_pool2d, equal", lambda x: F.adaptive_avg_pool2d(x, 7), _images)
_add("adaptive_avg_pool2d, unequal", lambda x: F.adaptive_avg_pool2d(x, 5), _images)
_add("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 8), _signals)
_add("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 4), _volumes)
_add("lp_pool2d", lambda x: F.lp_pool2d(x, 2, 2), _images)

# ---- sizes of images

_add("nearest, up", lambda x: F.interpolate(x, scale_factor=2), _images)
_add("nearest, down", lambda x: F.interpolate(x, scale_factor=0.5), _images)
_add("nearest 3d, up", lambda x: F.interpolate(x, scale_factor=2), _volumes)
_add("linear, up", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), _signals)
_add("bilinear, up", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), _images)
_add("bilinear, up, corners", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), _images)
_add("bilinear, down", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), _images)
_add("bilinear, antialias", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True), _images)
_add("bicubic, up", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), _images)
_add("bicubic, down", lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic"), _images)
_add("trilinear, up", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), _volumes)
_add("trilinear, down", lambda x: F.interpolate(x, scale_factor=0.5, mode="trilinear"), _volumes)
_add("area", lambda x: F.interpolate(x, scale_factor=0.5, mode="area"), _images)
_add("grid_sample", lambda x, at: F.grid_sample(x, at, align_corners=False), _grid)
_add("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), _images)
_add("unfold", lambda x: F.unfold(x, 3, padding=1), _images)
_add("fold", lambda x: F.fold(x, (28 * 2, 28 * 2), 2, stride=2), lambda s: (torch.randn(2 + 6 * s, 32 * 4, 28 * 28),))
_add("fold, overlapping", lambda x: F.fold(x, (28, 28), 3, padding=1), lambda s: (torch.randn(1 + s, 32 * 9, 784),))

# ---- padding and moving

_add("pad, constant", lambda x: F.pad(x, (1, 2, 3, 1)), _images)
_add("pad, reflect", lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), _images)
_add("pad, reflect 1d", lambda x: F.pad(x, (3, 3), mode="reflect"), _signals)
_add("pad, replicate", lambda x: F.pad(x, (2, 2, 2, 2), mode="replicate"), _images)
_add("pad, circular", lambda x: F.pad(x, (2, 2, 2, 2), mode="circular"), _images)
_add("cat of columns", lambda x, y: torch.cat((x, y), 1), _two_rows)
_add("stack at the end", lambda x, y: torch.stack((x, y), -1), _two_rows)
_add("roll", lambda x: x.roll((3, 5), (-2, -1)), _images)
_add("flip", lambda x: x.flip(-1), _images)
_add("transpose, copied", lambda x: x.t().contiguous(), _rows)
_add("to channels_last", lambda x: x.contiguous(memory_format=torch.channels_last), _images)
_add("tril", lambda x: x.tril(), _rows)
_add("repeat_interleave", lambda x: x.repeat_interleave(4, 1), lambda s: (torch.randn(2 + 6 * s, 8, 64, 64),))
_add("Tensor.unfold", lambda x: x.unfold(-1, 16, 8).contiguous(), _signals)
_add("strided slice", lambda x: x[:, ::2] + 1, _rows)

# ---- indices

_add("embedding", lambda w, at: F.embedding(at, w), _vocabulary)
_add("embedding_bag, mean", lambda w, at: F.embedding_bag(at, w, mode="mean"), _vocabulary)
_add("embedding_bag, sum", lambda w, at: F.embedding_bag(at, w, mode="sum"), _vocabulary)
_add("gather", lambda x, at: x.gather(1, at), _with_places)
_add("index_select, rows", lambda x, at: x.index_select(0, at), _with_rows_of_table)
_add("index_select, columns", lambda x, at: x.index_select(1, at % x.shape[1]), _with_rows_of_table)
_add("index by two tensors", lambda x, at: x[at, at % x.shape[1]] * 2, _with_rows_of_table)
_add("masked_fill", lambda x, y: x.masked_fill(y > 0, -1.0), _two_rows)
_add("scatter", lambda x, at: torch.zeros_like(x).scatter(1, at, x), _with_places, trains=False)
_add("scatter_add", lambda x, at: torch.zeros_like(x).scatter_add(1, at, x), _with_places)
_add("scatter_reduce, mean", lambda x, at: torch.zeros_like(x).scatter_reduce(1, at, x, "mean"), _with_places, False)
_add("index_add", lambda x, at, y: x.index_add(0, at, y), _with_repeated_rows)
_add("index_copy", lambda x, at, y: x.index_copy(0, at, y), _with_new_rows)
_add("index_put", lambda x, at, y: x.index_put((at,), y), _with_new_rows)
_add("index_put, accumulate", lambda x, at, y: x.index_put((at,), y, accumulate=True), _with_repeated_rows)
_add("index_reduce, mean", lambda x, at, y: x.index_reduce(0, at, y, "mean"), _with_repeated_rows, trains=False)
_add("index_reduce, amax", lambda x, at, y: x.index_reduce(0, at, y, "amax"), _with_repeated_rows, trains=False)
_add("one_hot", lambda at: F.one_hot(at, 128).float(), lambda s: (torch.randint(128, (64 + 1984 * s,)),), trains=False)
_add("bucketize", torch.bucketize, lambda s: (*_rows(s), torch.linspace(-3, 3, 64)), trains=False)
_add("searchsorted", lambda x, y: torch.searchsorted(x.sort(-1).values, y), lambda s: (
    torch.randn(64, 64 * (1 + 3 * s)), torch.randn(64, 256)), trains=False)  # fmt: skip

# ---- cumulative, sorting, reductions

_add_all({
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum of columns": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(-1),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "sum of rows": lambda x: x.sum(-1),
    "var": lambda x: x.var(-1),
    "std of columns": lambda x: x.std(0),
    "var_mean": lambda x: torch.var_mean(x, -1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "prod": lambda x: x.prod(-1),
    "amax": lambda x: x.amax(-1),
    "max with position": lambda x: x.max(-1),
    "median": lambda x: x.median(-1),
    "sort": lambda x: x.sort(-1),
    "topk": lambda x: x.topk(8),
}, _rows)  # fmt: skip
_add("cummax", lambda x: x.cummax(-1), _rows, trains=False)
_add("argmax", lambda x: x.argmax(-1), _rows, trains=False)
_add("any", lambda x: (x > 3).any(-1), _rows, trains=False)
_add("sum of int64", lambda x, y: x.sum(-1), _ints, trains=False)
_add("kthvalue", lambda x: x.kthvalue(8), _rows, trains=False)

# ---- losses and distances

_add_all({
    "mse_loss": F.mse_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "bce with logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "kl_div": lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    "cosine_similarity": F.cosine_similarity,
    "pairwise_distance": F.pairwise_distance,
}, _two_rows)  # fmt: skip
_add("cross_entropy", F.cross_entropy, _with_targets)
_add("cross_entropy, smoothed", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), _with_targets)
_add("cross_entropy of images", F.cross_entropy, lambda s: (*_images(s), torch.randint(
    _IMAGES[s][1], (_IMAGES[s][0], *_IMAGES[s][2:]))))  # fmt: skip
_add("multi_margin_loss", F.multi_margin_loss, _with_targets)
_add("cdist", torch.cdist, lambda s: (torch.randn(64 * (1 + 3 * s), 32), torch.randn(64 * (1 + 3 * s), 32)))
_add("cdist, p=1", lambda x, y: torch.cdist(x, y, p=1.0), lambda s: (
    torch.randn(64 * (1 + 3 * s), 32), torch.randn(64 * (1 + 3 * s), 32)))  # fmt: skip

# ---- convolutions, products, recurrence, attention


def _module(name: str, make_module: Callable[[], nn.Module], make: Callable[[int], Args], trains: bool = True) -> None:
    """Adds a module; its parameters are arguments, so that their gradients are compared, too."""
    torch.manual_seed(0)
    module = make_module()
    names = [n for n, _ in module.named_parameters()]
    weights = [p.detach() for p in module.parameters()]

    def fn(x: torch.Tensor, *parameters: torch.Tensor) -> Any:
        return torch.func.functional_call(module, dict(zip(names, parameters)), (x,))

    _add(name, fn, lambda s: (*make(s), *(w.clone() for w in weights)), trains)


def _conv(s: int, taps: int, groups: int = 1) -> Args:
    channels = _IMAGES[s][1]
    return *_images(s), torch.randn(channels, channels // groups, taps, taps) / taps, torch.randn(channels)


_add("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), lambda s: _conv(s, 3))
_add("conv2d, depthwise", lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=x.shape[1]),
     lambda s: _conv(s, 3, _IMAGES[s][1]))  # fmt: skip
_add("conv1d", lambda x, w: F.conv1d(x, w, padding=1), lambda s: (
    *_signals(s), torch.randn(_SIGNALS[s][1], _SIGNALS[s][1], 3)))  # fmt: skip
_add("conv3d", lambda x, w: F.conv3d(x, w, padding=1), lambda s: (
    *_volumes(s), torch.randn(_VOLUMES[s][1], _VOLUMES[s][1], 3, 3, 3)))  # fmt: skip
_add("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), lambda s: (
    *_images(s), torch.randn(_IMAGES[s][1], 16, 2, 2)))  # fmt: skip
_module("lstm", lambda: nn.LSTM(32, 64, batch_first=True), lambda s: (torch.randn(4 + 12 * s, 8 + 24 * s, 32),))
_module("gru", lambda: nn.GRU(32, 64, batch_first=True), lambda s: (torch.randn(4 + 12 * s, 8 + 24 * s, 32),))
_module("linear, gelu", lambda: nn.Sequential(nn.Linear(256, 256), nn.GELU()),
        lambda s: (torch.randn(8 + 504 * s, 256),))  # fmt: skip
_module("encoder layer", lambda: nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True),
        lambda s: (torch.randn(2 + 6 * s, 32 + 96 * s, 64),))  # fmt: skip
_add("attention", F.scaled_dot_product_attention, lambda s: tuple(
    torch.randn(1 + s, 4, 64 * (1 + 3 * s), 32) for _ in range(3)))  # fmt: skip
_add("attention, causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), lambda s: tuple(
    torch.randn(1 + s, 4, 64 * (1 + 3 * s), 32) for _ in range(3)))  # fmt: skip
_add("bmm, small", torch.bmm, lambda s: (torch.randn(32 * (1 + 7 * s), 8, 16), torch.randn(32 * (1 + 7 * s), 16, 8)))
_add("bmm, 3x3", torch.bmm, lambda s: (torch.randn(512 * (1 + 7 * s), 3, 3), torch.randn(512 * (1 + 7 * s), 3, 3)))
_add("matrix by vector", torch.mv, lambda s: (*_rows(s), torch.randn(_ROWS[s][1])))
_add("einsum bij,bj->bi", lambda x, y: torch.einsum("bij,bj->bi", x, y), lambda s: (
    torch.randn(16, 32 * (1 + 3 * s), 64), torch.randn(16, 64)))  # fmt: skip

"""The programs of ``tensor_kinds``: for each kind of tensor, small programs that take, create and return tensors of it.

``PROGRAMS[kind][name]`` is ``(function, make)``; ``make()`` returns the arguments, new tensors for each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensor_kinds_complex
import tensor_kinds_layouts
import tensor_kinds_wrappers
import torch
import torch.nn.functional as F
from tensor_kinds_classes import Int8Linear, Int8Weight, Packed4, TrainableInt8
from torch.testing._internal.two_tensor import TwoTensor

Program = tuple[Callable[..., Any], Callable[[], list[Any]]]


# ---- arguments


def _dense() -> list[Any]:
    return [torch.randn(4, 6)]


def _two() -> list[Any]:
    return [torch.randn(4, 6), torch.randn(4, 6)]


def _dense_and_counts() -> list[Any]:
    return [torch.randn(4, 6), torch.tensor([2, 0, 1])]


def _classes() -> list[Any]:
    return [torch.tensor([3, 1, 3, 0, 2])]


def _sparse() -> list[Any]:
    return [torch.randn(4, 6).relu().to_sparse(), torch.randn(6, 3)]


def _sparse_and_dense() -> list[Any]:
    return [torch.randn(4, 6).relu().to_sparse(), torch.randn(4, 6)]


def _csr() -> list[Any]:
    return [torch.randn(4, 6).relu().to_sparse_csr(), torch.randn(6, 3)]


def _nested() -> list[Any]:
    return [torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])]


def _jagged() -> list[Any]:
    return [torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)]


def _meta() -> list[Any]:
    return [torch.randn(4, 6, device="meta")]


def _quantized() -> list[Any]:
    return [torch.quantize_per_tensor(torch.randn(4, 6), 0.1, 10, torch.quint8)]


def _quantized_per_channel() -> list[Any]:
    scales, zeros = torch.full((6,), 0.1, dtype=torch.float64), torch.zeros(6, dtype=torch.int64)
    return [torch.quantize_per_channel(torch.randn(4, 6), scales, zeros, 1, torch.qint8)]


def _mkldnn() -> list[Any]:
    return [torch.randn(4, 6).to_mkldnn()]


def _zero() -> list[Any]:
    return [torch._efficientzerotensor(4, 6), torch.randn(4, 6)]


def _expanded() -> list[Any]:
    return [torch.randn(4, 1).expand(4, 6)]


def _overlapping() -> list[Any]:
    return [torch.randn(12).as_strided((4, 6), (2, 1))]


def _at_offset() -> list[Any]:
    return [torch.randn(40)[3:27].view(4, 6)]


def _empty() -> list[Any]:
    return [torch.randn(0, 6)]


def _aliases() -> list[Any]:
    memory = torch.randn(30)
    return [memory[:24].view(4, 6), memory[6:].view(4, 6)]


def _twice_the_same() -> list[Any]:
    x = torch.randn(4, 6)
    return [x, x]


def _pair() -> list[Any]:
    return [TwoTensor(torch.randn(4, 6), torch.randn(4, 6))]


def _pair_and_dense() -> list[Any]:
    return [*_pair(), torch.randn(4, 6)]


def _layers(cls: Any) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4, bias=False))
        for layer in (model[0], model[2]):
            layer.weight = torch.nn.Parameter(cls.of(layer.weight.detach()), requires_grad=False)
        return [model.requires_grad_(False), torch.randn(3, 8)]

    return make


def _swapped(model: Any, x: torch.Tensor) -> Any:
    return model(x), [type(p).__name__ for p in model.parameters()]


def _after_swap(cls: Any) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        model = torch.nn.Linear(8, 4).requires_grad_(False)
        torch.utils.swap_tensors(model.weight, torch.nn.Parameter(cls.of(model.weight), requires_grad=False))
        return [model, torch.randn(3, 8)]

    return make


def _trainable() -> list[Any]:
    return [torch.randn(4, 6), TrainableInt8.of(torch.randn(3, 6)), torch.randn(3)]


def _pair_of_pairs() -> list[Any]:
    return [TwoTensor(*_pair(), *_pair()), torch.randn(4, 6)]


def _int8(cls: type[Int8Weight]) -> Callable[[], list[Any]]:
    return lambda: [torch.randn(4, 6), cls.of(torch.randn(3, 6))]


def _cast(dtype: torch.dtype) -> Callable[[], list[Any]]:
    return lambda: [torch.randn(4, 6).to(dtype)]


def _scaled_weight(dtype: torch.dtype) -> Callable[[], list[Any]]:
    return lambda: [torch.randn(5, 6).to(dtype), torch.rand(5), torch.randn(4, 6)]


def _counted(dtype: torch.dtype) -> Callable[[], list[Any]]:
    return lambda: [torch.arange(24).view(4, 6).to(dtype)]


# ---- programs of more than an expression


def _parameter(x: torch.Tensor) -> Any:
    made = torch.nn.Parameter(torch.ones(6))
    return x * made, made


def _leaf(x: torch.Tensor) -> Any:
    made = torch.zeros(6, requires_grad=True)
    return x * made, made


def _leaf_of_data(x: torch.Tensor) -> Any:
    made = torch.tensor([1.0, 2, 3, 4, 5, 6], requires_grad=True)
    return x * made, made


def _leaf_like(x: torch.Tensor) -> Any:
    made = torch.ones_like(x, requires_grad=True)
    return x * made, made


def _new_leaf(x: torch.Tensor) -> Any:
    made = x.new_zeros(6, requires_grad=True)
    return x + made, made


def _gradient_of_leaf(x: torch.Tensor) -> Any:
    made = torch.ones(6, requires_grad=True)
    (found,) = torch.autograd.grad((x * made).sum(), made)
    return found * 2


def _leaf_without_grad_mode(x: torch.Tensor) -> Any:
    with torch.no_grad():
        made = torch.ones(6, requires_grad=True)
        return x * made, made


def _tolist(x: torch.Tensor) -> Any:
    numbers = x.sum(0).long().tolist()
    return x * numbers[0] + len(numbers)


def _set_mask(x: torch.Tensor) -> Any:
    made = x.clone()
    made[made > 0] = 1.5
    return made * 2


def _set_mask_to_tensor(x: torch.Tensor) -> Any:
    made = x.clone()
    mask = made > 0
    made[mask] = made[mask] * 3
    return made * 2


def _set_indices(x: torch.Tensor) -> Any:
    made = x.clone()
    made[[0, 2]] = 7.0
    made[:, [1, 0]] += 1
    return made


def _set_expanded(x: torch.Tensor) -> Any:
    made = (x * 2)[:, :1].expand(4, 6)
    made[0] = 1.0
    return made


def _add_to_expanded(x: torch.Tensor) -> Any:
    made = (x * 2)[:, :1].expand(4, 6)
    made.add_(1)
    return made


def _add_to_input(x: torch.Tensor) -> Any:
    x.add_(1)
    return x * 2


def _write_one_read_other(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.mul_(2)
    return b + 1


def _views_of_one(x: torch.Tensor) -> Any:
    made = x * 2
    return made, made[1:], made.t()


def _classes_of_types(x: torch.Tensor) -> Any:
    made = x * 2
    told = (
        isinstance(made, torch.FloatTensor), isinstance(x.long(), torch.LongTensor), isinstance(x, torch.FloatTensor),
        isinstance(made, torch.DoubleTensor), isinstance(x, (torch.cuda.FloatTensor, torch.HalfTensor)),
    )  # fmt: skip
    return *told, made


def _sparse_made(x: torch.Tensor) -> Any:
    places = torch.tensor([[0, 1], [1, 0]])
    return torch.sparse_coo_tensor(places, x[0, :2] * 2, (3, 3)).to_dense() + 1


class _NestedBlock(torch.nn.Module):
    """The part of a layer of a transformer after its attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(3), torch.nn.Linear(3, 6), torch.nn.Linear(6, 3)

    def forward(self, n: torch.Tensor) -> Any:
        return n + self.down(F.gelu(self.up(self.norm(n))))


def _sparse_of_parts(x: torch.Tensor) -> Any:
    made = x.relu().to_sparse()
    return torch.sparse_coo_tensor(made.indices(), made.values() * 2, made.shape).to_dense() + 1


def _pack(x: torch.Tensor) -> Any:
    lengths = torch.tensor([6, 4, 2, 1])
    return torch.nn.utils.rnn.pack_padded_sequence(x[..., None], lengths, batch_first=True).data * 2


# Programs that eager ends on a GPU by an assertion in a kernel, after which the process cannot use the GPU any more.
DEVICE_ASSERTIONS = {"one_hot of too few", "one_hot of negative", "list out of range", "indices out of range"}

PROGRAMS: dict[str, dict[str, Program]] = {
    "data-dependent": {
        "one_hot": (lambda i: F.one_hot(i).float() * 2, _classes),
        "one_hot of five": (lambda i: F.one_hot(i, 5).float() * 2, _classes),
        "one_hot of too few": (lambda i: F.one_hot(i, 3) * 2, _classes),
        "one_hot of negative": (lambda i: F.one_hot(i - 1, 5), _classes),
        "one_hot of a matrix": (lambda i: F.one_hot(i[None], 5) * 2, _classes),
        "nonzero": (lambda x: (x > 0).nonzero() + 1, _dense),
        "nonzero as indices": (lambda x: x[(x > 0).nonzero(as_tuple=True)] * 2, _dense),
        "unique": (lambda i: torch.unique(i) * 2, _classes),
        "unique with more": (lambda i: torch.unique(i, return_inverse=True, return_counts=True), _classes),
        "unique_consecutive": (lambda i: torch.unique_consecutive(i) + 1, _classes),
        "masked_select": (lambda x: torch.masked_select(x, x > 0) * 2, _dense),
        "mask": (lambda x: x[x > 0] * 2, _dense),
        "mask of rows": (lambda x: x[x[:, 0] > 0].sum(0) * 2, _dense),
        "mask that selects nothing": (lambda x: x[x > 100].sum() + x[x > 100].numel(), _dense),
        "mask of another size": (lambda x: x[torch.ones(3, dtype=torch.bool)], _dense),
        "mask and a product": (lambda x: x[(x > 0).any(1)].cumsum(0) @ torch.ones(6, 2), _dense),
        "list of bools": (lambda x: x[[True, False, True, True]] * 2, _dense),
        "list": (lambda x: x[[0, 2]] * 2, _dense),
        "list of columns": (lambda x: x[:, [1, 0]] * 2, _dense),
        "ranges": (lambda x: x[list(range(3))] * 2 + x[range(3)], _dense),
        "list of lists": (lambda x: x[[[0, 1], [2, 3]]] * 2, _dense),
        "two lists": (lambda x: x[[0, 1], [2, 3]] * 2, _dense),
        "list among others": (lambda x: x[[-1, 0], None, ...] * 2, _dense),
        "list out of range": (lambda x: x[[0, 7]] * 2, _dense),
        "indices out of range": (lambda x, i: x[i + 4] * 2, _dense_and_counts),
        "bincount": (lambda i: torch.bincount(i) * 2, _classes),
        "bincount, minlength": (lambda i: torch.bincount(i, minlength=6) * 2, _classes),
        "repeat_interleave": (lambda x, i: torch.repeat_interleave(x[:3], i, 0) * 2, _dense_and_counts),
        "repeat_interleave, known size": (
            lambda x, i: torch.repeat_interleave(x[:3], i, 0, output_size=3) * 2, _dense_and_counts
        ),
        "repeat_interleave of an int": (lambda x: torch.repeat_interleave(x, 2, 1) * 2, _dense),
        "assignment by mask": (_set_mask, _dense),
        "assignment by mask of a tensor": (_set_mask_to_tensor, _dense),
        "assignment by lists": (_set_indices, _dense),
        "where": (lambda x: torch.where(x > 0)[0] * 2, _dense),
        "argwhere": (lambda x: torch.argwhere(x > 0) * 2, _dense),
        "tolist": (_tolist, _dense),
        "item": (lambda x: x * x.sum().item() + 1, _dense),
        "item as a slice": (lambda x, i: x[: i[0].item()] * 2, _dense_and_counts),
        "item as a size": (lambda x, i: torch.zeros(i[0].item(), 3) + 1, _dense_and_counts),
        "item in a branch": (lambda x: x * 2 if x.sum().item() > 0 else x * 3, _dense),
        "float and int": (lambda x: x * float(x.sum()) + int(x.abs().sum()), _dense),
        "loop over nonzero": (lambda x: sum(x[j] for j in (x[:, 0] > 0).nonzero().flatten()), _dense),
        "combinations": (lambda i: torch.combinations(i), _classes),
        "tensor_split by a tensor": (
            lambda x, i: torch.tensor_split(x, i.sort()[0][1:])[0] * 2, _dense_and_counts
        ),
        "packed sequence": (_pack, _dense),
        "padded sequence": (lambda x: torch.nn.utils.rnn.pad_sequence([x[0, :3], x[1]]) * 2, _dense),
    },
    "leaves made": {
        "Parameter": (_parameter, _dense),
        "zeros": (_leaf, _dense),
        "tensor": (_leaf_of_data, _dense),
        "ones_like": (_leaf_like, _dense),
        "new_zeros": (_new_leaf, _dense),
        "only used": (lambda x: x * torch.full((6,), 2.0, requires_grad=True), _dense),
        "its gradient": (_gradient_of_leaf, _dense),
        "under no_grad": (_leaf_without_grad_mode, _dense),
    },
    "typed classes": {
        "isinstance": (_classes_of_types, _dense),
        "isinstance in a branch": (lambda x: x * 2 if isinstance(x + 1, torch.FloatTensor) else x * 3, _dense),
        "type": (lambda x: ((x * 2).type(), x.type(torch.DoubleTensor), x.type("torch.IntTensor")), _dense),
        "constructor": (lambda x: torch.FloatTensor([1, 2, 3]) + x[0, :3] + torch.Tensor([1, 2, 3]), _dense),
    },
    "sparse": {
        "product": (lambda s, w: torch.sparse.mm(s, w) * 2, _sparse),
        "matmul": (lambda s, w: (s @ w).relu(), _sparse),
        "to dense": (lambda s, w: s.to_dense() * 2 + w.sum(), _sparse),
        "times two": (lambda s, d: (s * 2, d + 1), _sparse_and_dense),
        "added": (lambda s, d: d + s, _sparse_and_dense),
        "result": (lambda x: x.relu().to_sparse(), _dense),
        "intermediate": (lambda x: x.relu().to_sparse().to_dense() * 2, _dense),
        "intermediate in a product": (lambda x: torch.sparse.mm((x.relu() * 1).to_sparse(), x.t()) + 1, _dense),
        "made": (_sparse_made, _dense),
        "values": (lambda s, w: s.coalesce().values() * 2, _sparse),
        "entries of an intermediate": (
            lambda x: (x.relu().to_sparse()._nnz(), x.to_sparse_csr().values().shape), _dense
        ),
        "size of an intermediate's values": (lambda x: torch.arange(len(x.relu().to_sparse().values())), _dense),
        "branch on an intermediate": (lambda x: x * 2 if x.relu().to_sparse()._nnz() > 3 else x * 3, _dense),
        "made of parts": (_sparse_of_parts, _dense),
        "passed through": (lambda s, w: (s, w * 2), _sparse),
        "rows": (lambda s, w: (s @ w) * 2, _csr),
        "rows as result": (lambda x: x.to_sparse_csr(), _dense),
        "rows as intermediate": (lambda x: x.to_sparse_csr().to_dense() * 2, _dense),
    },
    "nested": {
        "times two": (lambda n: n * 2, _nested),
        "padded": (lambda n: (n, n.to_padded_tensor(0.0) * 2), _nested),
        "made": (lambda x: torch.nested.as_nested_tensor([x[:2] * 2, x[1:]]), _dense),
        "linear": (lambda n: F.linear(n, torch.ones(5, 3)), _nested),
        "jagged times two": (lambda n: n * 2 + 1, _jagged),
        "jagged sin": (lambda n: n.sin().cos(), _jagged),
        "jagged values": (lambda n: n.values() * 2, _jagged),
        "jagged made": (
            lambda x: torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 4])) * 2, _dense
        ),
        "jagged sum": (lambda n: n.sum(), _jagged),
        "jagged linear": (lambda n: F.linear(n, torch.ones(5, 3)), _jagged),
        "jagged parts": (lambda n: n.unbind()[0] * 2, _jagged),
        "jagged layer norm": (lambda n: F.layer_norm(n, (3,)), _jagged),
        "jagged softmax": (lambda n: F.softmax(n, -1), _jagged),
        "jagged padded": (lambda n: torch.nested.to_padded_tensor(n * 2, 0.0) + 1, _jagged),
        "jagged offsets": (lambda n: n.offsets() + 1, _jagged),
        "jagged product": (lambda n: n @ torch.ones(3, 4), _jagged),
        "jagged among dense": (lambda n: ((torch.ones(3, 3) @ torch.ones(3)).relu(), n * 2), _jagged),
        "jagged written": (lambda n: n.clone().mul_(2), _jagged),
        "jagged of results": (
            lambda x: torch.nested.as_nested_tensor([x[:2] * 2, x[1:]], layout=torch.jagged) * 3, _dense
        ),
        "jagged as a module's argument": (lambda m, n: m(n), lambda: [_NestedBlock(), *_jagged()]),
    },
    "meta": {
        "input": (lambda x: x * 2 + 1, _meta),
        "product": (lambda x: x @ x.t(), _meta),
        "made": (lambda x: (x * 2, torch.empty(3, device="meta") + 1), _dense),
        "moved there": (lambda x: (x.to("meta") * 2, x * 2), _dense),
        "asked for its size": (lambda x: torch.zeros_like(x.to("meta"), device="cpu") + 1, _dense),
    },
    "quantized": {
        "dequantized": (lambda q: q.dequantize() * 2, _quantized),
        "passed through": (lambda q: (q, q.int_repr() + 1), _quantized),
        "made": (lambda x: torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8), _dense),
        "intermediate": (
            lambda x: torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8).dequantize() * 2, _dense
        ),
        "relu": (lambda q: torch.relu(q), _quantized),
        "per channel": (lambda q: q.dequantize() + q.q_per_channel_scales(), _quantized_per_channel),
        "fake": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127) * 2, _dense),
        "scale": (lambda q: q.dequantize() * q.q_scale(), _quantized),
    },
    "oneDNN": {
        "to dense": (lambda x: x.to_dense() * 2, _mkldnn),
        "added": (lambda x: x + x, _mkldnn),
        "intermediate": (lambda x: (x * 2).to_mkldnn().to_dense() + 1, _dense),
        "result": (lambda x: (x * 2).to_mkldnn(), _dense),
        "relu": (lambda x: torch.relu(x), _mkldnn),
    },
    "zero tensor": {
        "added": (lambda z, x: z * 2 + x, _zero),
        "result": (lambda z, x: (z * 2, x + 1), _zero),
        "factor": (lambda z, x: z * x, _zero),
        "cloned": (lambda z, x: (z.clone() + 1).sum() + x, _zero),
        "made": (lambda x: torch._efficientzerotensor(4, 6) * x + x, _dense),
        "made and given": (lambda x: (torch._efficientzerotensor(4, 6), x * 2), _dense),
    },
    "memory": {
        "expanded": (lambda x: x * 2 + 1, _expanded),
        "expanded, written": (_add_to_input, _expanded),
        "expanded, summed": (lambda x: x.sum(0), _expanded),
        "expanded, a view": (lambda x: x[1:], _expanded),
        "expanded as result": (lambda x: (x * 2)[:, :1].expand(4, 6), _dense),
        "expanded inside, written": (_add_to_expanded, _dense),
        "expanded inside, assigned": (_set_expanded, _dense),
        "expanded inside, copied": (lambda x: (x * 2)[:, :1].expand(4, 6).contiguous().add_(1), _dense),
        "overlapping": (lambda x: (x * 2).sum(1), _overlapping),
        "overlapping, written": (_add_to_input, _overlapping),
        "offset": (lambda x: x * 2 + 1, _at_offset),
        "offset, a view": (lambda x: x[1:, 2:], _at_offset),
        "offset, read": (lambda x: x * x.storage_offset(), _at_offset),
        "offset, as_strided": (lambda x: x.as_strided((3,), (2,)) * 2, _at_offset),
        "offset, as_strided from the start": (lambda x: x.as_strided((3,), (2,), 1) * 2, _at_offset),
        "as_strided of a view": (lambda x: (x * 2)[1:].as_strided((3,), (2,), 1) * 2, _dense),
        "as_strided of a transpose": (lambda x: (x * 2).t().as_strided((3,), (2,), 1) * 2, _dense),
        "empty": (lambda x: (x * 2, x.sum(), x.sum(0), x @ x.t(), x.t() @ x), _empty),
        "empty, cat": (lambda x: torch.cat([x, torch.ones(2, 6)]), _empty),
        "empty, mean": (lambda x: x.mean(), _empty),
        "empty, max": (lambda x: x.max(), _empty),
        "empty, argmin": (lambda x: x.argmin(), _empty),
        "empty, max of rows": (lambda x: x.max(1), _empty),
        "empty, max of columns": (lambda x: x.amax(0), _empty),
        "empty, softmax": (lambda x: x.softmax(0), _empty),
        "empty, reshaped": (lambda x: x.reshape(6, 0) * 2, _empty),
        "aliases": (lambda a, b: a * 2 + b, _aliases),
        "aliases, written": (_write_one_read_other, _aliases),
        "aliases, a view": (lambda a, b: (a[1:], b * 2), _aliases),
        "the same twice": (lambda a, b: a * b, _twice_the_same),
        "the same twice, written": (_write_one_read_other, _twice_the_same),
        "views of one": (_views_of_one, _dense),
        "flips": (lambda x: x.flip(0, 1) * 2 + x.fliplr(), _dense),
        "bytes of floats": (lambda x: (x * 2).view(torch.int32) + 1, _dense),
    },
    "subclass": {
        "times two": (lambda t: t * 2, _pair),
        "with a tensor": (lambda t, x: t + x, _pair_and_dense),
        "its part": (lambda t, x: t.a * 2 + x, _pair_and_dense),
        "passed through": (lambda t, x: (t, x * 2), _pair_and_dense),
        "product": (lambda t, x: (t @ x.t()).relu(), _pair_and_dense),
        "made": (lambda x: TwoTensor(x * 2, x + 1) * 3, _dense),
        "views": (lambda t: t.t()[1:], _pair),
        "written": (lambda t: t.clone().mul_(2), _pair),
        "input written": (lambda t: t.mul_(2) + 0, _pair),
        "size": (lambda t: t * t.shape[0], _pair),
        "sum": (lambda t: t.sum(), _pair),
        "class": (lambda t: (isinstance(t, TwoTensor), type(t) is TwoTensor, t * 2), _pair),
        "chunks": (lambda t: t.chunk(2)[0] + 1, _pair),
        "int8 linear": (lambda x, w: F.linear(x, w).relu(), _int8(Int8Weight)),
        "int8 linear with bias": (lambda x, w: F.linear(x, w, torch.ones(3)).relu() * 2, _int8(Int8Weight)),
        "int8 linear of its own": (lambda x, w: F.linear(x, w, torch.ones(3)).relu(), _int8(Int8Linear)),
        "int8 dequantized": (lambda x, w: x @ w.dequantize().t(), _int8(Int8Weight)),
        "int8 passed through": (lambda x, w: (w, x + 1), _int8(Int8Weight)),
        "int8 layers": (lambda model, x: model(x), _layers(Int8Weight)),
        "int4 layers": (lambda model, x: model(x), _layers(Packed4)),
        "int4 product": (lambda x, w: x @ w, lambda: [torch.randn(4, 6), Packed4.of(torch.randn(6, 8))]),
        "int4 its parts": (lambda w: (w.packed + 1, w.group, w.shape), lambda: [Packed4.of(torch.randn(6, 8))]),
        "int4 written": (
            lambda w, v, x: (w.copy_(v), x @ w),
            lambda: [Packed4.of(torch.randn(6, 8)), Packed4.of(torch.randn(6, 8)), torch.randn(4, 6)],
        ),
        "int8 swapped in": (_swapped, _after_swap(Int8Weight)),
        "int8 trained": (lambda x, w, b: F.linear(x, w, b).relu(), _trainable),
        "int8 made": (lambda x: F.linear(x, Int8Weight.of(x)), _dense),
        "pair of pairs": (lambda t, x: (t * x).sum(0), _pair_of_pairs),
        "two results": (lambda t, x: (t * x, t.sum(1), x + 1), _pair_and_dense),
        "softmax": (lambda t, x: torch.softmax(t @ x.t(), -1) @ t, _pair_and_dense),
        "dropout": (lambda t: F.dropout(t, 0.5) * 2, _pair),
        "nothing requires": (lambda t, x: (t.detach() * x, x.detach() * 2), _pair_and_dense),
        "cat": (lambda t, x: torch.cat([t, t * 2], 1).t(), _pair_and_dense),
    },
}
PROGRAMS["wrapper"] = tensor_kinds_wrappers.PROGRAMS
PROGRAMS["complex"] = tensor_kinds_complex.PROGRAMS
PROGRAMS["channels last"] = tensor_kinds_layouts.PROGRAMS

for _dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e8m0fnu):
    PROGRAMS[str(_dtype).removeprefix("torch.")] = {
        "input": (lambda x: x.float() * 2, _cast(_dtype)),
        "result": (lambda x, d=_dtype: (x * 2).to(d), _dense),
        "intermediate": (lambda x, d=_dtype: (x * 2).to(d).float() + 1, _dense),
        "scaled": (lambda x, d=_dtype: (x / (x.abs().amax() / 448)).to(d), _dense),
        "view": (lambda x: x.t()[1:], _cast(_dtype)),
        "cat": (lambda x: torch.cat([x, x]).to(torch.bfloat16) + 1, _cast(_dtype)),
        "bytes": (lambda x: x.view(torch.uint8) + 1, _cast(_dtype)),
        "weight": (lambda w, s, x: x @ (w.t().float() * s), _scaled_weight(_dtype)),
        "copy": (lambda x: x.clone().t().contiguous(), _cast(_dtype)),
        "rows": (lambda x: x[[1, 0]], _cast(_dtype)),
        "zeros": (lambda x, d=_dtype: torch.zeros(3, dtype=d), _dense),
    }
for _dtype in (torch.uint16, torch.uint32, torch.uint64):
    PROGRAMS[str(_dtype).removeprefix("torch.")] = {
        "input": (lambda x: x.float() * 2, _counted(_dtype)),
        "result": (lambda x, d=_dtype: (x.abs() * 20).to(d), _dense),
        "intermediate": (lambda x, d=_dtype: (x.abs() * 20).to(d).float() + 1, _dense),
        "sum of two": (lambda x: x + x, _counted(_dtype)),
        "product": (lambda x: x * 3, _counted(_dtype)),
        "bits": (lambda x: (x >> 1) & 3, _counted(_dtype)),
        "comparison": (lambda x: (x == 3, x < 5), _counted(_dtype)),
        "sum": (lambda x: x.sum(), _counted(_dtype)),
        "view": (lambda x: x.t()[1:], _counted(_dtype)),
        "cat": (lambda x: torch.cat([x, x]), _counted(_dtype)),
        "bytes": (lambda x: x.view(torch.uint8) + 1, _counted(_dtype)),
        "copy": (lambda x: x.clone().t().contiguous(), _counted(_dtype)),
        "as int64": (lambda x: x.to(torch.int64) * 2 - 5, _counted(_dtype)),
        "of negative": (lambda x, d=_dtype: (x * 100).to(torch.int64).to(d), _dense),
        "range": (lambda x, d=_dtype: torch.arange(5, dtype=d), _dense),
        "largest": (lambda x, d=_dtype: torch.full((3,), 2 ** (8 * d.itemsize) - 1, dtype=d).float(), _dense),
    }

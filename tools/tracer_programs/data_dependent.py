"""Programs with data-dependent sizes and numbers."""

from __future__ import annotations

from typing import Any

import torch

from .programs import program, x


@program
def split_with_unbacked_sizes() -> Any:
    def f(a: Any, sizes: Any) -> Any:
        first, second = sizes.tolist()
        one, two = torch.split(a, [first, second])
        return one.sum(), two * 2

    return f, [(x(6), torch.tensor([2, 4])), (x(6), torch.tensor([3, 3]))]


@program
def arange_of_an_item() -> Any:
    def f(a: Any, n: Any) -> Any:
        k = n.item()
        return torch.arange(k) * 2, torch.zeros(k, 3) + 1

    return f, [(x(), torch.tensor(4)), (x(), torch.tensor(5))]


@program
def arange_between_items() -> Any:
    def f(lo: Any, hi: Any) -> Any:
        return torch.arange(lo.item(), hi.item()) + 1

    return f, [(torch.tensor(2), torch.tensor(6)), (torch.tensor(1), torch.tensor(4))]


@program
def repeat_by_an_item() -> Any:
    def f(a: Any, n: Any) -> Any:
        return a.repeat(n.item(), 1) + 1, a.expand(n.item(), -1) * 2

    return f, [(x(3), torch.tensor(4)), (x(3), torch.tensor(5))]


@program
def repeat_interleave() -> Any:
    def f(a: Any, n: Any) -> Any:
        return torch.repeat_interleave(a, n) * 2

    return f, [(x(3), torch.tensor([1, 2, 3])), (x(3), torch.tensor([2, 2, 1]))]


@program
def nonzero_and_masks() -> Any:
    def f(a: Any) -> Any:
        picked = a[a > 0]
        return picked * 2, torch.nonzero(a > 0).shape[1], torch.masked_select(a, a < 0) + 1

    return f, [(x(6),), (x(6),)]


@program
def size_of_nonzero_in_views() -> Any:
    def f(a: Any) -> Any:
        idx = a.nonzero()
        n = idx.size(0)
        return idx.view(n, 1).float().reshape(-1) + 1, torch.ones(n).sum()

    return f, [(torch.tensor([1.0, 0.0, 2.0]),), (torch.tensor([1.0, 3.0, 2.0]),)]


@program
def unique() -> Any:
    def f(a: Any) -> Any:
        values, inverse = torch.unique(a, return_inverse=True)
        return values * 2, inverse + 1

    return f, [(torch.tensor([3, 1, 3, 2]),)]


@program
def item_in_arithmetic() -> Any:
    def f(a: Any, n: Any) -> Any:
        k = n.item()
        return a * k + k // 2 - float(k) ** 2

    return f, [(x(), torch.tensor(3)), (x(), torch.tensor(5))]


@program
def item_returned() -> Any:
    def f(a: Any) -> Any:
        return a.sum().item(), int(a[0]), float(a[1]), bool(a[2] > 0), (a + 1)

    return f, [(x(),)]


@program
def tolist_of_a_tensor() -> Any:
    def f(a: Any) -> Any:
        p, q = a.tolist()
        return torch.ones(3) * p + q, a.tolist()

    return f, [(torch.tensor([2, 3]),), (torch.tensor([4.0, 5.0]),)]


@program
def item_as_a_loop_bound() -> Any:
    def f(a: Any, n: Any) -> Any:
        for _ in range(n.item()):
            a = a * 2
        return a

    return f, [(x(), torch.tensor(3))]


@program
def check_and_slice() -> Any:
    def f(a: Any, n: Any) -> Any:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= a.shape[0])
        return a[:k] * 2, a[k:].sum()

    return f, [(x(8), torch.tensor(3)), (x(8), torch.tensor(4))]


@program
def masked_reductions() -> Any:
    def f(a: Any, m: Any) -> Any:
        masked = torch.masked
        return masked.sum(a, 1, mask=m), masked.mean(a, 1, mask=m), masked.amax(a, 0, mask=m), masked.prod(a, 1, mask=m)

    return f, [(x(3, 4), x(3, 4) > 0)]


@program
def masked_softmax() -> Any:
    def f(a: Any, m: Any) -> Any:
        masked = torch.masked
        return masked.softmax(a, 1, mask=m), masked.log_softmax(a, 1), masked.norm(a, 2, dim=1, mask=m)

    return f, [(x(3, 4), x(3, 4) > -9)]


@program
def masked_variance_and_others() -> Any:
    def f(a: Any, m: Any) -> Any:
        masked = torch.masked
        return masked.var(a, 1, mask=m), masked.std(a, 1, mask=m), masked.median(a, 1, mask=m), masked.argmax(a, 1)

    return f, [(x(3, 4), x(3, 4) > -9)]


@program
def masked_tensors() -> Any:
    def f(a: Any, m: Any) -> Any:
        return torch.masked.masked_tensor(a, m).sum(1).to_tensor(0)

    return f, [(x(3, 4), x(3, 4) > 0)]


@program
def shapes_in_python() -> Any:
    def f(a: Any) -> Any:
        b, *rest = a.shape
        shape = (*a.shape[:-1], -1)
        return a.view(shape) + len(rest) + a.numel() // b, a.size()[-1], torch.Size([b]) + a.shape, a.shape.numel()

    return f, [(x(2, 6),), (x(3, 6),), (x(4, 6),)]


@program
def size_branches() -> Any:
    def f(a: Any) -> Any:
        return a * 2 if a.shape[0] % 2 == 0 and a.size(0) > 3 else a + 1

    return f, [(x(n),) for n in (4, 6, 5, 7, 8)]


@program
def index_with_everything() -> Any:
    def f(a: Any, i: Any) -> Any:
        return a[..., None, 1:], a[i], a[:, i, None], a[[0, 1], [1, 2]], a[a[:, 0] > -9][:, 1], a[True].shape

    return f, [(x(3, 4), torch.tensor([0, 2]))]


@program
def item_assignment() -> Any:
    def f(a: Any, m: Any) -> Any:
        b = a.clone()
        b[m] = 0
        b[0, :2] = torch.tensor([5.0, 6.0])
        b[[1], ...] += 1
        a[1] = 7
        return b

    a = x(3, 4)
    return f, [(a, x(3, 4) > 0)], lambda: a


@program
def unpacked_tensors() -> Any:
    def f(a: Any) -> Any:
        p, q, *r = a
        return p + q, r, [*a.unbind(0)][0]

    return f, [(x(4, 2),)]


@program
def augmented_assignment_of_inputs() -> Any:
    def f(a: Any, b: Any) -> Any:
        a += b
        a *= 2
        b = b + 1
        return a + b

    a = x()
    return f, [(a, x())], lambda: a


@program
def bool_of_one_element() -> Any:
    def f(a: Any) -> Any:
        return a + 1 if a.any() else a - 1

    return f, [(torch.ones(3),), (torch.zeros(3),)]


@program
def is_properties() -> Any:
    def f(a: Any) -> Any:
        flags = (a.is_contiguous(), a.is_floating_point(), a.requires_grad, a.is_leaf, a.is_cuda, a.is_sparse)
        return a.t() + 1 if not a.t().is_contiguous() else a, flags, a.t().stride(), a.storage_offset()

    return f, [(x(2, 3),)]


@program
def storage_of_tensors() -> Any:
    def f(a: Any) -> Any:
        return a + 1, a.element_size() * a.nelement(), a.nbytes, a.untyped_storage().size()

    return f, [(x(2, 3),)]


@program
def attributes_of_tensors() -> Any:
    def f(a: Any) -> Any:
        b = a + 1
        b.tag = "made here"
        a.note = 5
        return b, b.tag, a.note

    a = x()
    return f, [(a,)], lambda: vars(a)

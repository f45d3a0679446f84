"""Kernels of convolutional networks through Triton's interpreter: run by test_triton_windows."""

import torch
import torch.nn.functional as F
from triton_support import check

import inductor.lower.convolution as convolution
from inductor.ir.buffer import ExternKernel
from inductor.lower import patches, pooling

aten = torch.ops.aten
torch.manual_seed(0)


def blocks(x):
    """As the pass for image stems makes them."""
    x = aten.constant_pad_nd(x, [3, 4, 3, 4, 0, 1], 0.0).clone(memory_format=torch.contiguous_format)
    n, c, h, w = x.shape
    x = x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).clone(memory_format=torch.contiguous_format)
    return x.view(n, h // 2, w // 2, 4 * c).permute(0, 3, 1, 2)


def last(*size):
    return torch.randn(*size).to(memory_format=torch.channels_last)


def gradients(stride, padding, dilation):
    """All gradients of a depthwise convolution of 16 channels."""

    def fn(grad, x, w):
        numbers = [stride, stride], [padding, padding], [dilation, dilation], False, [0, 0], 16
        return torch.ops.aten.convolution_backward(grad, x, w, [16], *numbers, [True] * 3)

    return fn


NORM = torch.randn(16), torch.rand(16) + 0.1
CASES = {
    "blocks": (blocks, torch.randn(2, 3, 17, 19)),
    "depthwise": (lambda x, w, m, v: F.hardswish(F.batch_norm(F.conv2d(x, w, None, 2, 2, 1, 16), m, v)),
                  last(2, 16, 9, 8), torch.randn(16, 1, 5, 5), *NORM),
    "two_filters": (lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 16).relu(),
                    last(2, 16, 9, 8), torch.randn(32, 1, 3, 3), torch.randn(32)),
    "depthwise_mean": (lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 16).relu().mean((2, 3)),
                       last(2, 16, 9, 8), torch.randn(16, 1, 3, 3)),
    "gradients": (gradients(1, 1, 1), last(2, 16, 7, 8), last(2, 16, 7, 8), torch.randn(16, 1, 3, 3)),
    "gradients, stride 2": (gradients(2, 2, 1), last(2, 16, 4, 4), last(2, 16, 7, 8), torch.randn(16, 1, 5, 5)),
    "gradients, images apart": (gradients(2, 1, 2), torch.randn(3, 16, 3, 3), torch.randn(3, 16, 7, 8),
                                torch.randn(16, 1, 3, 3)),
    "filters": (lambda *ws: torch.cat([w.permute(2, 3, 0, 1).reshape(-1) for w in ws]),
                torch.randn(16, 1, 3, 3), torch.randn(24, 1, 5, 5), torch.randn(8, 1, 3, 3)),
    "greatest": (lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1]), last(2, 16, 9, 8)),
    "greatest, gradient": (lambda g, x: aten.max_pool2d_with_indices_backward(
        g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])[1]),
        last(2, 16, 5, 4), last(2, 16, 9, 8)),
    "mean, gradient": (lambda g, x: aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, None),
                       last(2, 16, 4, 4), last(2, 16, 9, 8)),
    "mean, ends cut off": (lambda x: aten.avg_pool2d(x, [3, 3], [2, 2], [1, 1], True, True), last(2, 16, 10, 8)),
    "mean without padding": (lambda g, x: aten.avg_pool2d_backward(g, x, [3, 3], [2, 2], [1, 1], True, False, None),
                             last(2, 16, 6, 5), last(2, 16, 10, 8)),
    "patches": (lambda x: aten.im2col(x.sin(), [3, 3], [1, 1], [1, 1], [2, 2]), last(2, 16, 9, 8)),
    "patches, gradient": (lambda g: aten.col2im(g, [9, 8], [3, 3], [1, 1], [1, 1], [2, 2]) * 2, torch.randn(2, 144, 20)),
    "pool": (lambda x, m, v: F.max_pool2d(F.batch_norm(x, m, v).relu(), 3, 2, 1), last(2, 16, 9, 8), *NORM),
}  # fmt: skip


if __name__ == "__main__":
    pooling.on_gpu = patches.on_gpu = lambda val: True
    convolution.loops_pay = lambda val, weight, groups: weight[1] == 1
    for dtype in (torch.float32, torch.bfloat16):
        for name, (fn, *args) in CASES.items():
            print(name, dtype, flush=True)
            runner = check(fn, *(a.to(dtype) for a in args), rtol=1e-4, atol=1e-4)
            assert not any(isinstance(step, ExternKernel) for step in runner.steps)

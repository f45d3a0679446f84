"""Names of attributes of `torch.Tensor` that captures rely on."""

from __future__ import annotations

METADATA = {
    "dtype", "device", "ndim", "is_cuda", "is_sparse", "is_quantized", "is_mps", "is_meta", "is_mkldnn", "is_nested",
    "is_xpu", "is_cpu", "layout", "itemsize", "nbytes", "requires_grad", "is_leaf", "is_inference",
}  # fmt: skip
METADATA_METHODS = {
    "dim", "ndimension", "numel", "nelement", "is_contiguous", "is_floating_point", "is_complex", "is_signed",
    "element_size", "storage_offset", "get_device", "is_conj", "is_neg", "is_inference",
}  # fmt: skip
TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "real", "imag"}
_ARITHMETIC = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split()
_SPECIAL = (
    "eq ne lt le gt ge hash bool len getitem setitem delitem contains iter next reversed getattr getattribute setattr "
    "delattr call get set delete set_name enter exit neg pos invert abs index int float complex round trunc floor ceil "
    "new init del class torch_function torch_dispatch array array_wrap array_priority array_ufunc array_function"
).split()
# Special methods that CPython and NumPy look up for operators, calls, attributes and conversions.
SPECIAL_NAMES = tuple(
    f"__{name}__" for name in (*_SPECIAL, *(prefix + name for name in _ARITHMETIC for prefix in ("", "r", "i")))
)
# Methods that fake tensors, the tracer and the compiler call.
CALLED = {
    "size", "stride", "detach", "untyped_storage", "as_subclass", "requires_grad_", "as_strided", "new_empty",
    "_is_view", "_make_subclass", "_make_wrapper_subclass", "is_set_to", "view", "reshape", "expand", "to", "clone",
}  # fmt: skip

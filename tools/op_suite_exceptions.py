"""Lists what the operator suite does not compare, and the known failures, each with the reason."""

from __future__ import annotations

# Operators whose results have uninitialized elements: everything else about the results is compared.
UNINITIALISED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_",
    *(f"_refs.{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")),
}  # fmt: skip

# Of these operators only some results: which ones. Without dropout the kernel writes no state of the generator.
UNINITIALISED_RESULTS = {"torch.ops.aten._flash_attention_forward": frozenset({2, 3})}

# Operators, or an operator in one mode ("name mode"), that are not run, with the reason.
LEFT_OUT: dict[str, str] = {"linalg.eigvals special": "LAPACK ends in a segmentation fault, in eager too"}

# "operator mode", "operator mode dtype" or "operator mode case": (verdict, why that is so and stays so).
_MEAN = "ATen updates the mean element by element, so that an infinity makes it NaN unless it is last; here it is a sum"
_POSITION = "ATen's kernels for vectors and for single elements differ, so that its result depends on the position"
KNOWN: dict[str, tuple[str, str]] = {
    "var_mean special_backward": ("wrong", _MEAN),
    "std_mean special_backward": ("wrong", _MEAN),
    "nn.functional.softshrink special_backward float32": ("wrong", _POSITION),
    "logit special_backward": ("wrong", _POSITION),
    "nn.functional.soft_margin_loss special_backward": ("wrong", "ATen divides infinities; the quotient is 0 or 1"),
    "_softmax_backward_data special_backward": ("wrong", "a second derivative adds infinities in another order"),
    "prod special_backward": (
        "wrong", "ATen divides the product by the element, which gives NaN for NaN and infinities; here the gradient is"
        " the product of the other elements, as in ATen for tensors with zeros"
    ),
}

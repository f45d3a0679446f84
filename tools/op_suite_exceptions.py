"""Lists what the operator suite does not compare, and the known failures, each with the reason."""

from __future__ import annotations

# Operators whose results have uninitialized elements: everything else about the results is compared.
UNINITIALISED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip

# Of these operators only some results: which ones. Without dropout the kernel writes no state of the generator.
UNINITIALISED_RESULTS = {"torch.ops.aten._flash_attention_forward": frozenset({2, 3})}

# Operators, or an operator in one mode ("name mode"), that are not run, with the reason.
LEFT_OUT: dict[str, str] = {}

# "operator mode", "operator mode dtype" or "operator mode case": (verdict, why that is so and stays so).
KNOWN: dict[str, tuple[str, str]] = {}

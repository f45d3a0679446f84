"""Lists what the database suite does not run, and the known failures, each with the reason."""

from __future__ import annotations

from op_suite_report import Tables

_BY_TORCH_COMPILE = (
    "without a compiler, torch runs this operator by torch.compile, which refuses a carry whose strides change; "
    "compiled code computes it"
)
# "entry mode", "entry mode dtype" or "entry mode case": (verdict, why that is so and stays so).
KNOWN: dict[str, tuple[str, str]] = {
    "higher_order:scan.simple forward": ("no error", _BY_TORCH_COMPILE),
    "higher_order:while_loop.simple forward": ("no error", _BY_TORCH_COMPILE),
    "functions:linearize call": ("not reused", "torch makes a class of its own for the graph of each call"),
}

# Entries, or an entry in one mode ("entry mode"), that are not run, with the reason.
LEFT_OUT: dict[str, str] = {}

TABLES = Tables("Databases", KNOWN, LEFT_OUT, compared="every k-th entry and mode, the same samples")

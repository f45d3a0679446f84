"""Lists what the database suite does not run, and the known failures, each with the reason."""

from __future__ import annotations

from op_suite_report import Tables

_BY_TORCH_COMPILE = (
    "without a compiler, torch runs this operator by torch.compile, which refuses a carry whose strides change; "
    "compiled code computes it"
)
_FAKE_PRIMS = "a fake operator of torch, prims.fft_*, which only torch._refs calls, predicts contiguous results"
_FIRST_CALL = "each call is the first one of a copy of the module, whose parameters are created while it is captured"
_LAZY = [f"nn.Lazy{kind}{n}d" for kind in ("Conv", "ConvTranspose") for n in (1, 2, 3)]
_FFTS = ("fft", "rfft", "irfft", "hfft", "fftn", "ifftn", "rfftn", "irfftn", "hfftn")
# "entry mode", "entry mode dtype" or "entry mode case": (verdict, why that is so and stays so).
KNOWN: dict[str, tuple[str, str]] = {
    "higher_order:scan.simple forward": ("no error", _BY_TORCH_COMPILE),
    "higher_order:while_loop.simple forward": ("no error", _BY_TORCH_COMPILE),
    "modules:nn.Transformer train bfloat16:16": (
        "wrong", "a gradient behind some forty roundings to half precision: over forty such models the geometric mean"
        " of the error in units of eager's is 1.003, and as many gradients are nearer by a factor of 3 as are farther"
    ),
    "refs:_refs.as_strided.partial_views forward": ("error", "an offset from the start of the input's storage"),
    **{f"refs:_refs.fft.{name} forward": ("wrong", _FAKE_PRIMS) for name in _FFTS},
    **{f"modules:{name} {mode}": ("not reused", _FIRST_CALL) for name in _LAZY for mode in ("train", "eval")},
    "functions:linearize call": ("not reused", "torch makes a class of its own for the graph of each call"),
}

# Entries, or an entry in one mode ("entry mode"), that are not run, with the reason.
LEFT_OUT: dict[str, str] = {}

TABLES = Tables("Databases", KNOWN, LEFT_OUT, compared="every k-th entry and mode, the same samples")

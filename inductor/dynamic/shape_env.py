"""A ShapeEnv that does not import torch._dynamo and torch._inductor."""

from __future__ import annotations

from typing import Any

from torch._guards import Source
from torch._logging import trace_structured
from torch.fx.experimental.symbolic_shapes import ShapeEnv, SLoc

from ..process.import_stubs import stub_torch_compiler


class Named(Source):
    """A source of a symbol; ShapeEnv only needs its name."""

    _text: str

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_text", name)  # the class is a frozen dataclass

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other._text == self._text

    @property
    def name(self) -> str:
        return self._text


class LightShapeEnv(ShapeEnv):
    """Does not unify symbols with equal values (no duck shaping). `numbers`, `sizes`: whether operators may create
    unbacked symbols, for numbers and for sizes."""

    def __init__(self, numbers: bool = False, sizes: bool = False) -> None:
        # torch's structured log turns itself off at its first record if nothing listens; records of symbols import its
        # compiler
        trace_structured("pyframe_shapes", suppress_context=True, expect_trace_id=False)
        with stub_torch_compiler:
            super().__init__(duck_shape=False, allow_scalar_outputs=numbers, allow_dynamic_output_shape_ops=sizes)

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> tuple[SLoc, str]:
        return SLoc(None, None), ""  # torch's own search for the user's line imports its compiler

    def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
        with stub_torch_compiler:
            return super().evaluate_expr(*args, **kwargs)

"""Every canonical instruction has a handler."""

from __future__ import annotations

import pytest

import pyframe.interp.trace  # noqa: F401  registers the handlers
from pyframe.bytecode import OPS, SUPPORTED_VERSIONS, canonical_ops
from pyframe.core.breaks import CATALOGUE
from pyframe.interp.frame import HANDLERS
from pyframe.interp.ops_match import BREAKS


@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_every_op_has_a_handler(version: tuple[int, int]) -> None:
    assert not canonical_ops(version) - set(HANDLERS)


def test_handlers_name_real_ops() -> None:
    assert set(HANDLERS) - set(OPS) <= {"POP_ITER"}


def test_ops_that_break_name_a_catalogued_kind() -> None:
    assert set(BREAKS.values()) <= set(CATALOGUE)

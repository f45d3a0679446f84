"""The programs in C++ that run packages, built once for all processes of a test run."""

from __future__ import annotations

from pathlib import Path

import pytest
from package_util import build_once


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory)

"""The programs in C++ that run packages, built once for all processes of a test run."""

from __future__ import annotations

from pathlib import Path

import pytest
from package_util import build


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.getbasetemp()
    if root.name.startswith("popen-"):  # of a process of pytest-xdist
        root = root.parent
    return build(root / "serve_cpp")

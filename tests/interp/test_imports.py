"""Imports inside of traced functions."""

from __future__ import annotations

import sys

import pytest

import pyframe
from pyframe.metrics import counters


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `traced_package` with modules that are not loaded yet."""
    folder = tmp_path / "traced_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 1\n")
    for name in ("first", "second"):
        (folder / f"{name}.py").write_text(f"value = '{name}'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "traced_package"]:
        del sys.modules[name]


def test_a_module_of_a_loaded_package(package):
    import traced_package

    def fn(x):
        from traced_package import first, value

        return x + value, first.value

    compiled = pyframe.compile(fn, backend="eager")
    assert compiled(2) == (3, "first")
    assert counters["graph_breaks"]["builtin-side-effect"] == 1
    pyframe.reset()
    assert compiled(2) == (3, "first")
    assert not counters["graph_breaks"]
    assert traced_package.first.value == "first"


def test_what_a_package_lacks(package):
    import traced_package  # noqa: F401

    def fn(x):
        try:
            from traced_package import absent  # noqa: F401
        except ImportError as error:
            return x, str(error)[:30]

    assert pyframe.compile(fn, backend="eager")(2) == fn(2)

"""Imports inside of traced functions."""

from __future__ import annotations

import importlib
import sys
import types

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
    assert not counters["graph_breaks"]
    assert traced_package.first.value == "first"


def test_a_module_that_sees_what_the_function_has_changed(package, tmp_path):
    import traced_package

    (tmp_path / "traced_package" / "reader.py").write_text("import traced_package\nseen = traced_package.value\n")

    def fn(x):
        traced_package.value = 5
        from traced_package import reader

        return x + 1, reader.seen

    compiled = pyframe.compile(fn, backend="eager")
    assert compiled(2) == (3, 5)
    assert counters["graph_breaks"]["builtin-side-effect"] == 1


def test_a_module_whose_import_fails(package, tmp_path):
    (tmp_path / "traced_package" / "failing.py").write_text("raise ValueError('not today')\n")

    def fn(x):
        try:
            import traced_package.failing  # noqa: F401
        except ValueError as error:
            return x + 1, str(error)

    compiled = pyframe.compile(fn, backend="eager")
    assert compiled(2) == (3, "not today")


def test_a_module_that_is_not_loaded(package):
    def fn(x):
        import traced_package.second

        return x + 1, traced_package.second.value

    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    assert compiled(2) == (3, "second")


def test_what_a_package_lacks(package):
    import traced_package  # noqa: F401

    def fn(x):
        try:
            from traced_package import absent  # noqa: F401
        except ImportError as error:
            return x, str(error)[:30]

    assert pyframe.compile(fn, backend="eager")(2) == fn(2)


def test_imports_by_functions(package, monkeypatch):
    import traced_package
    import traced_package.first

    def fn(x):
        found = __import__("sys").displayhook, importlib.import_module(".first", "traced_package").value
        return x + 1, found, __import__("traced_package.first").value, importlib.import_module("traced_package").value

    compiled = pyframe.compile(fn, backend="eager", fullgraph=True)
    assert compiled(2) == fn(2)
    monkeypatch.setattr(sys, "displayhook", print)
    assert compiled(2) == fn(2)
    monkeypatch.setattr(traced_package, "value", 7)
    assert compiled(2) == fn(2)
    monkeypatch.setitem(sys.modules, "traced_package", types.SimpleNamespace(value=8))
    monkeypatch.setitem(sys.modules, "traced_package.first", types.SimpleNamespace(value=9))
    assert compiled(2) == fn(2) == (3, (print, 9), 8, 8)


def test_a_function_that_loads_a_module(package):
    def fn(x):
        return x + 1, importlib.import_module("traced_package.second").value

    compiled = pyframe.compile(fn, backend="eager")
    assert compiled(2) == (3, "second")
    assert counters["graph_breaks"]["builtin-side-effect"] == 1

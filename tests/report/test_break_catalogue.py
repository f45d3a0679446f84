"""The catalogue of graph breaks: every entry can be made, is reported at the user's line, and can be avoided."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator
from typing import Any

import gen_break_docs
import pytest
from break_examples import EXAMPLES, explained, load

import pyframe
import pyframe.api  # marks functions of its own, once
from pyframe.core.breaks import CATALOGUE
from pyframe.testing import CompileCounter, same
from pyframe.vars.torch_objects import torch_functions

MARK = "# breaks here"
# The program's own exception is raised where breaks are errors, too: what an instruction raises, it raises for real.
RAISED_FOR_REAL = "exception-in-traced-code"


@pytest.fixture(autouse=True)
def marks_undone() -> Iterator[None]:
    """What examples mark for the whole process."""
    before = dict(torch_functions.BREAKS), set(torch_functions.IN_GRAPH)
    yield
    torch_functions.BREAKS.clear()
    torch_functions.BREAKS.update(before[0])
    torch_functions.IN_GRAPH.clear()
    torch_functions.IN_GRAPH.update(before[1])


def result_of(source: str, **settings: Any) -> Any:
    """What the program gives; settings: of compile."""
    names = load(source)
    fn = pyframe.compile(names["f"], **settings) if settings else names["f"]
    with contextlib.redirect_stdout(io.StringIO()):
        result = fn(copy.deepcopy(names["x"]))
    if isinstance(result, tuple):  # an iterator by what it gives
        return [list(item) if hasattr(item, "__next__") else item for item in result]
    return result


def line_of(source: str) -> int:
    return next(i for i, line in enumerate(source.lstrip().splitlines(), 1) if MARK in line)


def test_every_entry_has_an_example():
    assert list(EXAMPLES) == list(CATALOGUE)


@pytest.mark.parametrize("kind", CATALOGUE)
def test_the_break_is_made_and_reported_at_its_line(kind):
    source = EXAMPLES[kind].code
    explanation = explained(source)
    assert {brk.kind for brk in explanation.breaks} == {kind}
    where = explanation.breaks[0].stack[-1]
    assert (where.filename, where.lineno) == ("example.py", line_of(source))
    text = str(explanation)
    assert f"[{kind}]" in text and MARK in text and CATALOGUE[kind].explanation in text
    assert all(hint in text for hint in CATALOGUE[kind].hints)
    assert same(result_of(source, backend="eager"), result_of(source))


@pytest.mark.parametrize("kind", [kind for kind in CATALOGUE if kind != RAISED_FOR_REAL])
def test_where_breaks_are_errors_the_error_tells_the_same(kind):
    with pytest.raises(pyframe.Unsupported) as raised:
        result_of(EXAMPLES[kind].code, backend="eager", fullgraph=True)
    text = str(raised.value)
    assert f"[{kind}]" in text and "example.py:" in text and CATALOGUE[kind].explanation in text
    assert all(hint in text for hint in CATALOGUE[kind].hints)


def test_an_exception_is_the_programs_own_where_breaks_are_errors():
    source = EXAMPLES[RAISED_FOR_REAL].code
    assert same(result_of(source, backend="eager", fullgraph=True), result_of(source))


@pytest.mark.parametrize("kind", CATALOGUE)
def test_the_program_without_the_break_is_one_graph(kind):
    example = EXAMPLES[kind]
    counter = CompileCounter()
    got = result_of(example.fixed, backend=counter, fullgraph=True)
    assert counter.frame_count == 1
    assert same(got, result_of(example.fixed))
    if example.same:
        assert same(got, result_of(example.code))


def test_the_page_is_up_to_date():
    assert gen_break_docs.PAGE.read_text() == gen_break_docs.render(), "run tools/gen_break_docs.py"


def test_code_that_an_import_runs_is_not_captured(tmp_path, monkeypatch):
    (tmp_path / "imported_late.py").write_text("def double(n):\n    return n * 2\n\nNUMBERS = [double(n) for n in range(3)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = load(
        "import importlib, torch\ndef f(x):\n    late = importlib.import_module('imported_late')\n    return x + late.NUMBERS[2]\n"
    )
    explanation = pyframe.explain(names["f"], backend="eager")(names["torch"].ones(2))
    assert explanation.result.tolist() == [5.0, 5.0]
    functions = {capture.function.partition("__")[0] for capture in explanation.captures}
    assert functions <= {"f", "import_module"}

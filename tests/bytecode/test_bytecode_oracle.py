"""Our bytecode codec agrees with the `bytecode` package (tools/bytecode_oracle.py), on every CPython present.

The whole corpus: `python tools/bytecode_oracle.py`, and with `--captures` what pyframe emits for tests/programs.
"""

from __future__ import annotations

import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

import bytecode  # noqa: E402
import bytecode_oracle as oracle  # noqa: E402
from conftest_pythons import VERSIONS, run_worker  # noqa: E402

from pyframe.bytecode import CanonicalCode, Instr, canonicalize, materialize  # noqa: E402


@pytest.mark.parametrize("version", VERSIONS)
def test_compiled_code(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bytecode").symlink_to(Path(bytecode.__file__).parent)  # pure Python; other interpreters may lack it
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run_worker(version, ROOT / "tools" / "bytecode_oracle.py", "--files", "15", "--json")
    assert not result["failures"], next(iter(result["failures"].items()))
    assert result["counts"]["code objects"] > 200


def test_emitted_code() -> None:
    import torch

    import pyframe

    class Manager:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    def breaks(x: torch.Tensor, *rest: int, key: int = 1) -> torch.Tensor:
        total = x.sin()
        for value in rest:
            with Manager():
                print(value, end="")
                total = total + value if key else total - [value for _ in rest][0]
            try:
                pyframe.graph_break()
                if total.sum() > 3:
                    raise ValueError(f"{total.sum().item():>4}")
            except ValueError as error:
                total = total + len(str(error))
        return (lambda: total.cos() + key)()

    tally = oracle.Tally()
    with oracle.checked_emission(tally):
        expected = breaks(torch.ones(3), 1, 2, 5)
        torch.testing.assert_close(pyframe.compile(breaks, backend="eager")(torch.ones(3), 1, 2, 5), expected)
    assert not tally.failures, next(iter(tally.failures.items()))
    assert tally.counts["code objects"] >= 4


def sample(values):
    total = 0
    try:
        for value in values:
            total += value if value else len(
                values)
    except TypeError:
        return None
    return total


def _other_column(code: types.CodeType) -> types.CodeType:
    canonical = canonicalize(code)
    instr = next(instr for instr in canonical.real_instrs() if instr.op == "BINARY_OP")
    instr.pos = instr.pos._replace(end_col=instr.pos.end_col + 1)
    return materialize(canonical)


def _other_name(code: types.CodeType) -> types.CodeType:
    return code.replace(co_names=tuple("max" if name == "len" else name for name in code.co_names))


def _no_handler(code: types.CodeType) -> types.CodeType:
    return code.replace(co_exceptiontable=b"")


def _small_stack(code: types.CodeType) -> types.CodeType:
    return code.replace(co_stacksize=2)


@pytest.mark.parametrize("fault", [_other_column, _other_name, _no_handler, _small_stack])
def test_a_fault_is_found(fault) -> None:
    canonical = canonicalize(sample.__code__)
    oracle.check_emitted(canonical, materialize(canonical))
    with pytest.raises(oracle.Mismatch):
        oracle.check_emitted(canonical, fault(sample.__code__))


# Why the package does not write our code (docs/decisions/0001-bytecode-codec.md). A test that fails here says that a newer
# package has changed what the decision rests on.


def test_package_writes_a_wrong_line_table_for_wide_columns() -> None:
    """A column of 128 or more looks like the start of the next entry to `co_lines` and to tracebacks."""
    source = "def f(x):\n    a = [x,\n" + " " * 130 + "x.missing]\n    return a\n"
    (code,) = (const for const in compile(source, "<test>", "exec").co_consts if isinstance(const, types.CodeType))
    theirs = bytecode.ConcreteBytecode.from_code(code).to_code(stacksize=9, compute_exception_stack_depths=False)
    oracle.check_lines(materialize(canonicalize(code)))
    with pytest.raises(oracle.Mismatch, match="co_lines"):
        oracle.check_lines(theirs)


def test_package_merges_equal_constants() -> None:
    """Constants of emitted code are objects of the program: two equal lists must stay two."""
    first, second = [1], [1]
    operations = (("RESUME", 0), ("LOAD_CONST", first), ("LOAD_CONST", second), ("BUILD_TUPLE", 2))
    ours = CanonicalCode([*(Instr(*operation) for operation in operations), Instr("RETURN_VALUE")], flags=3)
    left, right = types.FunctionType(materialize(ours), {})()
    assert left is first and right is second
    theirs = bytecode.Bytecode([*(bytecode.Instr(*operation) for operation in operations), bytecode.Instr("RETURN_VALUE")])
    left, right = types.FunctionType(theirs.to_code(), {})()
    assert left is right

"""`python -m pyframe`: what its commands print, and their exit status."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from inductor.cache.file_store import Cache, content_key
from pyframe.__main__ import main
from pyframe.cli import compiler_checks, doctor
from pyframe.cli.finding import size_text

SCRIPT = """
    import os, sys
    import pyframe, torch
    import beside  # a module beside the script

    @pyframe.compile
    def f(x):
        y = x.sin()
        pyframe.graph_break()
        return y * 2

    print(__name__, sys.argv[1:], f(torch.ones(1)).item() > 1, flush=True)
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path / "cache"))


def explain(tmp_path, ending, *arguments):
    (tmp_path / "beside.py").write_text("")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT) + ending)
    command = [sys.executable, "-m", "pyframe", "explain", str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_doctor_finds_all_well(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert torch.__version__ in out and "C++ compiler: " in out and "pyframe._C: " in out
    assert "compilation for cpu: 1 kernel in " in out and "result is that of eager" in out
    assert "WRONG" not in out and out.endswith("all is well\n")


def test_doctor_says_what_to_do_about_a_missing_compiler(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "WRONG C++ compiler: the C++ compiler $CXX='/nonexistent/c++' does not exist\n      to do: install g++" in out
    assert "WRONG compilation for cpu" in out and "\nwrong: C++ compiler, compilation for cpu" in out


def test_doctor_finds_a_wrong_result(monkeypatch):
    results = iter([torch.zeros(8, 64), torch.ones(8, 64)])
    monkeypatch.setattr(compiler_checks, "explain", lambda *_, **__: lambda x, y: type("Explained", (), {"result": next(results)}))
    found = compiler_checks.small_compilation("cpu")
    assert found.remedy and "differs" in found.found


def test_doctor_finds_what_was_not_compiled():
    sys.setprofile(lambda *_: None)  # compiled functions stand aside
    try:
        found = compiler_checks.small_compilation("cpu")
    finally:
        sys.setprofile(None)
    assert found.remedy and "nothing was compiled" in found.found


def test_doctor_finds_parts_that_are_missing_or_too_old(monkeypatch):
    assert "cannot be imported" in doctor.extension("pyframe._missing").found
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    assert doctor.torch_version().remedy == "install torch 2.11 or newer"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "cannot be imported" in doctor.torch_version().found
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    assert doctor.python().remedy == "use CPython 3.11 to 3.14"


@pytest.mark.skipif(torch.cuda.is_available(), reason="about a driver without a usable GPU")
def test_doctor_finds_a_gpu_that_torch_cannot_use(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(compiler_checks, "_DRIVER", tmp_path / "version")
    assert [found.remedy for found in compiler_checks.gpus()] == [None]
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu\n")
    (found,) = compiler_checks.gpus()
    assert found.remedy and "570.86.15" in found.found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [found.remedy for found in compiler_checks.gpus()] == [None]


def test_cache_counts_prunes_and_clears(monkeypatch, capsys, tmp_path):
    assert main(["cache"]) == 0
    assert "entries: 0" in capsys.readouterr().out
    paths = [Cache().put_file(content_key(suffix), suffix, bytes(2000)) for suffix in (".graph", ".so")]
    assert main(["cache"]) == 0
    out = capsys.readouterr().out
    assert f"directory: {tmp_path / 'cache'}\n" in out and "entries: 2 (1 C++ kernel, 1 graph)" in out
    monkeypatch.setenv("PYFRAME_CACHE_MAX_BYTES", "3000")
    os.utime(paths[0], (0, 0))
    assert main(["cache", "--prune"]) == 0
    assert "removed: 2.0 KiB" in capsys.readouterr().out and [path.exists() for path in paths] == [False, True]
    assert main(["cache", "--clear"]) == 0
    assert "entries: 0" in capsys.readouterr().out and not paths[1].exists()


def test_cache_lists_and_verifies_entries(capsys):
    paths = [Cache().put_file(content_key(suffix), suffix, bytes(2000)) for suffix in (".graph", ".so")]
    assert main(["cache", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split("  ")[0].strip() for line in lines[:2]} == {"graph", "C++ kernel"}
    assert all(path.name in "".join(lines) for path in paths)
    assert main(["cache", "verify"]) == 0 and "all entries are intact" in capsys.readouterr().out
    data = bytearray(paths[0].read_bytes())
    data[100] ^= 1
    paths[0].write_bytes(data)
    assert main(["cache", "verify"]) == 1
    assert f"damaged, removed: {paths[0]}" in capsys.readouterr().out
    assert [path.exists() for path in paths] == [False, True]
    assert main(["cache", "clear"]) == 0 and "entries: 0" in capsys.readouterr().out


def test_a_cache_that_others_may_write_to_is_wrong(capsys, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert main(["cache", "--clear"]) == 1
    assert "others may write to" in capsys.readouterr().out
    assert main(["doctor"]) == 1
    assert "\nwrong: cache\n" in capsys.readouterr().out


def test_a_cache_that_will_be_created_where_everybody_may_create_files_is_right(monkeypatch, capsys, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)  # as /tmp
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path / "shared" / "cache"))
    assert main(["cache"]) == 0 and "made when it is first needed" in capsys.readouterr().out
    (tmp_path / "shared").chmod(0o777)  # others may replace the directory
    assert main(["cache"]) == 1 and "others may replace what is in" in capsys.readouterr().out
    assert not list((tmp_path / "shared").iterdir())


def test_explain_runs_the_script_as_python_does(tmp_path):
    done = explain(tmp_path, "", "--guards", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("__main__ ['--guards', '1'] True\n2 graphs, 1 graph break, ")
    assert "[explicit-break]" in done.stdout and "script.py" in done.stdout and "\nguards:" not in done.stdout


@pytest.mark.parametrize("ending, status", [("sys.exit(3)", 3), ("raise ValueError('of the script')", 1)])
def test_explain_reports_scripts_that_end_early(tmp_path, ending, status):
    done = explain(tmp_path, ending)
    assert done.returncode == status and "2 graphs, 1 graph break," in done.stdout
    assert ("of the script" in done.stderr) == (status == 1)


def test_explain_of_a_script_without_compiled_functions(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text("print('ran')")
    command = [sys.executable, "-m", "pyframe", "explain"]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("ran\nnothing was captured")
    done = subprocess.run([*command, str(tmp_path / "absent.py")], capture_output=True, text=True)
    assert done.returncode == 2 and "there is no file" in done.stderr


def test_help_does_not_import_torch():
    program = "import sys; from pyframe.__main__ import parser; parser().format_help(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_sizes_are_readable():
    assert [size_text(n) for n in (0, 1023, 1536, 5 << 20, 3 << 40)] == ["0 bytes", "1023 bytes", "1.5 KiB", "5.0 MiB", "3072.0 GiB"]


def run_script(tmp_path, program, *before):
    script = tmp_path / "script.py"
    script.write_text(program)
    command = [sys.executable, "-m", "pyframe", "explain", *before, str(script)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("program, error", [("def f(:\n", "SyntaxError"), ("def f():\n    1 / 0\nf()\n", "ZeroDivisionError")])
def test_the_traceback_of_a_script_is_its_own(tmp_path, program, error):
    done = run_script(tmp_path, program)
    plain = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr) and error in done.stderr


def test_a_script_that_is_interrupted_has_the_status_of_an_interrupt(tmp_path):
    done = run_script(tmp_path, "raise KeyboardInterrupt\n")
    assert done.returncode == 130 and "KeyboardInterrupt" in done.stderr and "nothing was captured" in done.stdout


def test_a_page_that_cannot_be_written_is_said_before_the_script_runs(tmp_path):
    done = run_script(tmp_path, "print('ran')\n", "--html", str(tmp_path / "missing" / "page.html"))
    assert done.returncode == 2 and "there is no directory" in done.stderr and "ran" not in done.stdout


def test_options_after_the_script_are_said_to_be_the_script_s(tmp_path):
    done = explain(tmp_path, "", "--html", "page.html")
    assert done.returncode == 0 and "--html stands after the script, and is given to the script" in done.stderr


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 2
    out = capsys.readouterr().out
    assert all(name in out for name in ("doctor", "cache", "explain"))


@pytest.mark.parametrize("place, words", [("/proc/self/pyframe", "cannot be written"), ("{file}/cache", "is not a directory")])
def test_a_cache_that_cannot_be_written_is_wrong(place, words, monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PYFRAME_CACHE_DIR", place.format(file=tmp_path / "file"))
    assert main(["cache"]) == 1
    out = capsys.readouterr().out
    assert words in out and "set PYFRAME_CACHE_DIR to another directory" in out

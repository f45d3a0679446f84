"""The progress line of long compilations, and `config.verbose`."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
import types

import pytest
import torch

import pyframe
from inductor.log import progress

SCRIPT = """
import torch, pyframe
from inductor.log import progress
progress.DELAY_SECONDS = 0.0
def slow(x):
    return (x.sin() + 1).sum(-1)
with torch.no_grad():
    pyframe.compile(slow)(torch.ones(3, 4))
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=terminal))  # pytest sets sys.stderr again
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    return terminal


def compile_one():
    def slow(x):
        return x.sin() + 1

    return pyframe.compile(slow, options={"cache": False})(torch.ones(3))


def test_the_line_names_function_phase_and_count(terminal):
    compile_one()
    text = terminal.getvalue()
    assert "pyframe: test" not in text and "slow: capture" in text and "slow: lower" in text
    assert text.endswith("\r")  # the line is removed at the end


def test_kernels_are_counted(terminal):
    with progress.compiling("f"):
        progress.enter_phase("build C++ kernels", 3)
        progress.advance()
        progress.advance()
    assert "f: build C++ kernels:  67%" in terminal.getvalue() and "2/3" in terminal.getvalue()


def test_phases_without_a_known_number_of_parts_show_no_rate(terminal):
    with progress.compiling("f"):
        progress.enter_phase("capture", unit="operators")
        progress.advance()
        progress.enter_phase("lower")
    text = terminal.getvalue()
    assert "pyframe: f: capture: 1 operators, 00:00" in text and "pyframe: f: lower, 00:00" in text and "?" not in text


def test_short_compilations_show_nothing(terminal, monkeypatch):
    monkeypatch.setattr(progress, "DELAY_SECONDS", 3600.0)
    compile_one()
    assert terminal.getvalue() == ""


def test_the_setting_turns_it_off(terminal):
    with pyframe.config.patch(progress=False):
        compile_one()
    assert terminal.getvalue() == ""
    compile_one()
    assert terminal.getvalue() != ""


def test_a_compilation_that_fails_removes_the_line(terminal):
    with pytest.raises(ValueError), progress.compiling("f"):
        progress.enter_phase("capture")
        raise ValueError
    assert terminal.getvalue().endswith("\r")
    length = len(terminal.getvalue())
    progress.advance()
    assert len(terminal.getvalue()) == length


def run_script(variable, tmp_path, terminal):
    """What the script prints to stderr, a terminal or a pipe, with PYFRAME_PROGRESS set to `variable`."""
    environment = {**os.environ, "PYFRAME_PROGRESS": variable, "PYFRAME_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", SCRIPT]
    if not terminal:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))  # tqdm draws nothing on 0 lines
    try:
        subprocess.run(command, env=environment, stderr=theirs, check=True)
        os.set_blocking(ours, False)
        try:
            return os.read(ours, 1 << 16).decode()
        except BlockingIOError:
            return ""
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("terminal, variable, shown", [(True, "1", True), (True, "0", False), (False, "1", False)])
def test_on_a_real_terminal_only(tmp_path, terminal, variable, shown):
    text = run_script(variable, tmp_path, terminal)
    assert ("pyframe: slow: " in text) is shown, text


def test_verbose_prints_captures_and_breaks(capsys):
    def broken(x):
        x = x + 1
        pyframe.graph_break()
        return x * 2

    with pyframe.config.patch(verbose=True):
        pyframe.compile(broken, backend="eager")(torch.ones(2))
    text = capsys.readouterr().err
    assert "pyframe: captured " in text and "broken" in text and "pyframe: graph break in " in text and " s\n" in text

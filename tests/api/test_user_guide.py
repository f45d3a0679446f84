"""The user guide: its programs run, and it names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import torch

import pyframe
from pyframe.config import SETTINGS

GUIDE = (Path(__file__).parents[2] / "docs" / "user_guide.md").read_text()


def test_its_programs_run():
    before = pyframe.config.recompile_limit
    names: dict[str, object] = {"__name__": "guide"}
    torch.manual_seed(0)
    try:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)):
            exec(compile(block, f"guide_{number}.py", "exec"), names)
    finally:
        pyframe.config.recompile_limit = before


def test_it_names_every_public_name():
    assert [name for name in pyframe.__all__ if not re.search(rf"\b{name}\b", GUIDE)] == []


def test_it_lists_every_setting_as_it_is():
    rows = [f"| `{name}` | `{row.default!r}` | {row.doc} |" for name, row in SETTINGS.items()]
    assert [row for row in rows if row not in GUIDE] == []


def test_settings_are_declared_for_type_checkers():
    source = Path(pyframe.config.__file__).read_text()
    declared = re.search(r"if TYPE_CHECKING:.*?\n((?:    \w+: .*\n)+)", source)
    assert declared and re.findall(r"^    (\w+):", declared[1], re.MULTILINE) == list(SETTINGS)

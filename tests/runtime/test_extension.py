"""inductor without its C extension, and with one that cannot be loaded."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import inductor

PACKAGE = Path(inductor.__file__).parent
RUN = """
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]  # no finder of an editable installation
import torch
from inductor.runtime.plan import make_plan
from inductor.runtime.plan_spec import Alloc, InputSpec, OutputRef, PlanSpec
spec = PlanSpec(inputs=(), constants=(), steps=(Alloc(0, "float32", (2,), (1,)),), outputs=(OutputRef("buf", 0),))
print(type(make_plan(spec, ())).__name__)
"""


def run(tmp_path: Path, extension: bytes | None) -> subprocess.CompletedProcess[str]:
    """Run a plan with a copy of inductor (links to its files) that has this extension, or none."""
    package = tmp_path / "inductor"
    package.mkdir()
    for entry in PACKAGE.iterdir():
        if not entry.name.startswith("_C.") or entry.suffix == ".pyi":
            (package / entry.name).symlink_to(entry)
    if extension is not None:
        (package / f"_C{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(extension)
    return subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)},
                          capture_output=True, text=True)  # fmt: skip


def test_not_built(tmp_path):
    assert run(tmp_path, None).stdout.strip() == "PythonPlan"


def test_broken(tmp_path):
    done = run(tmp_path, b"not a library")
    assert done.returncode != 0
    assert "ImportError" in done.stderr

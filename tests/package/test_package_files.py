"""What the files are: signed or refused, damaged ones refused, chosen by machine; loaded without any compiler."""

from __future__ import annotations

import hashlib
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from package_programs import Mlp
from package_util import ROOT, is_x86, run_cpp, with_as_many_threads

import pyframe
from inductor.package import cbor, container, targets
from inductor.package.container import Container

KEY = b"a key of the one who ships"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "model.pyframe"
    torch.manual_seed(0)
    pyframe.package(Mlp().eval(), (torch.rand(4, 24),), path, dynamic={0: 0}, key=KEY)
    return path


def rewritten(path: Path, to: Path, change: object) -> Path:
    """A copy of a package with a changed description, whose checksums are right."""
    file = Container(path)
    about = dict(file.description)
    sections = [bytes(file.section(k)) for k in range(len(about.pop("sections")))]
    change(about)  # type: ignore[operator]
    container.write(to, about, sections)
    return to


LOADS = """
import os, sys
import torch
import pyframe
before = set(sys.modules)
os.environ["PATH"] = "/nowhere"
os.environ.pop("CXX", None)
package = pyframe.load(sys.argv[1])
x = torch.rand(7, 24, generator=torch.Generator().manual_seed(3))
torch.save(package(x), sys.argv[2])
traced = ("pyframe.interp", "pyframe.vars", "pyframe.emit", "pyframe.driver", "pyframe.api", "inductor.compile",
          "inductor.codegen", "inductor.lower", "inductor.generate", "triton", "sympy", "torch._inductor", "torch._dynamo")
print([name for name in sys.modules if name.startswith(traced)])
"""


def test_loading_needs_no_tracer_and_no_compiler(made: Path, tmp_path: Path) -> None:
    code, result = tmp_path / "loads.py", tmp_path / "result.pt"
    code.write_text(LOADS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYFRAME_CACHE_DIR": str(tmp_path / "nothing")}
    environment |= with_as_many_threads()
    line = [sys.executable, str(code), str(made), str(result)]
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    x = torch.rand(7, 24, generator=torch.Generator().manual_seed(3))
    assert torch.load(result).equal(pyframe.load(made)(x))


def test_import_of_pyframe_loads_no_part_of_packages() -> None:
    code = "import pyframe, sys; print([m for m in sys.modules if 'packag' in m and 'pyframe' in m or 'inductor.p' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_signed_or_refused(made: Path, tmp_path: Path, programs: Path) -> None:
    x = torch.rand(3, 24)
    assert pyframe.load(made)(x).equal(pyframe.load(made, key=KEY)(x))
    run_cpp(programs, tmp_path, made, (x,), PYFRAME_TEST_KEY=KEY.decode())
    unsigned = rewritten(made, tmp_path / "unsigned.pyframe", lambda about: None)
    long = b"k" * 100
    for path, key, why in (
        (unsigned, KEY, "not signed"), (made, b"another", "not one by the given key"), (made, long, "not one by"),
    ):  # fmt: skip
        with pytest.raises(pyframe.PackageError, match=why):
            pyframe.load(path, key=key)
        with pytest.raises(AssertionError, match=why):
            run_cpp(programs, tmp_path, path, (x,), PYFRAME_TEST_KEY=key.decode())
    pyframe.package(torch.sin, (x,), tmp_path / "long.pyframe", key=long)
    pyframe.load(tmp_path / "long.pyframe", key=long)
    run_cpp(programs, tmp_path, tmp_path / "long.pyframe", (x,), PYFRAME_TEST_KEY=long.decode())
    for key in (b"", "text"):
        with pytest.raises(pyframe.UserError, match="key"):
            pyframe.package(torch.sin, (x,), tmp_path / "bad.pyframe", key=key)  # type: ignore[arg-type]


def test_damaged_files_are_refused(made: Path, tmp_path: Path, programs: Path) -> None:
    """Bytes flipped and cut off anywhere: an error of ours, or, where nothing reads the byte, the same result."""
    data, rng = made.read_bytes(), random.Random(5)
    x = torch.rand(3, 24)
    want = pyframe.load(made)(x)
    size = len(data)
    lengths = [0, 1, 7, 64, 127, 128, 129, size // 2, size - 1, *(rng.randrange(size) for _ in range(10))]
    header = [*range(0, 48, 3), 64, 95, 128, 130]
    flips = [*header, *(rng.randrange(size) for _ in range(80))]
    variants = [data[:n] for n in lengths]
    variants += [data[:n] + bytes([data[n] ^ 1 << rng.randrange(8)]) + data[n + 1 :] for n in flips]
    variants += [data + b"more", b"\0" * 4096, b"\x89PYFRAME" + b"\xff" * 4096]
    path, refused = tmp_path / "damaged.pyframe", 0
    for k, variant in enumerate(variants):
        path.write_bytes(variant)
        try:
            assert pyframe.load(path)(x).equal(want)
        except pyframe.PackageError as error:
            assert str(path) in str(error)
            refused += 1
            if k % 9 == 0:
                with pytest.raises(AssertionError, match="damaged.pyframe: "):
                    run_cpp(programs, tmp_path, path, (x,))
    assert refused > 0.5 * len(variants)  # the kernels for one of two machines are not read


def test_edited_descriptions_raise_our_error(made: Path, tmp_path: Path, programs: Path) -> None:
    """A description with right checksums and wrong contents, as an edited or newer file has."""
    rng, x = random.Random(7), torch.rand(3, 24)
    failed = 0

    def places(value: object) -> list[tuple[object, object]]:
        keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        return [(value, key) for key in keys] + [p for key in keys for p in places(value[key])]  # type: ignore[index]

    def change(about: object) -> None:
        where, key = rng.choice([p for p in places(about) if p[1] != "sections"])
        where[key] = rng.choice([None, -1, 1 << 40, "x", [], {}, 2.5, True])  # type: ignore[index]

    for k in range(60):
        path = rewritten(made, tmp_path / "edited.pyframe", change)
        try:
            pyframe.load(path)
        except (pyframe.PackageError, ValueError):
            failed += 1
            if k % 4 == 0:
                try:
                    run_cpp(programs, tmp_path, path, (x,))
                except AssertionError as error:
                    assert "exit status -" not in str(error), error
    assert failed > 20


def test_another_version_of_the_format(made: Path, tmp_path: Path, programs: Path) -> None:
    data = bytearray(made.read_bytes())
    data[8:12] = struct.pack("<I", container.VERSION + 1)
    path = tmp_path / "newer.pyframe"
    path.write_bytes(data)
    for load in (pyframe.load, lambda path: run_cpp(programs, tmp_path, path, (torch.rand(3, 24),))):
        with pytest.raises((pyframe.PackageError, AssertionError), match=r"version 3 .* reads version 2"):
            load(path)


def test_another_torch_without_an_operator(made: Path, tmp_path: Path, programs: Path) -> None:
    def change(about: dict) -> None:
        about["operators"] = {name: schema.replace("Tensor self", "Tensor me") for name, schema in about["operators"].items()}
        about["torch"] = "9.9"

    path = rewritten(made, tmp_path / "other.pyframe", change)
    with pytest.raises(pyframe.PackageError, match=r"made with torch 9\.9, where aten\.\w+\.out is .*Tensor me"):
        pyframe.load(path)
    with pytest.raises(AssertionError, match=r"Tensor me.*this libtorch has"):
        run_cpp(programs, tmp_path, path, (torch.rand(3, 24),))


@pytest.mark.skipif(not is_x86(), reason="the targets are of x86-64")
def test_kernels_for_the_machine(made: Path, tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, x = tmp_path / "model.pyframe", torch.rand(3, 24)
    every = ["generic", "avx2", "avx512"]
    pyframe.package(Mlp().eval(), (torch.rand(3, 24),), path, targets=every)
    here = targets.LEVELS.index(torch.backends.cpu.get_cpu_capability())
    want = pyframe.load(path)(x)
    for level, name in list(zip(targets.LEVELS, every))[: here + 1]:
        with monkeypatch.context() as patch:
            patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda level=level: level)
            package = pyframe.load(path)
        assert package.target == name
        torch.testing.assert_close(package(x), want)
    run_cpp(programs, tmp_path, path, (x,), ATEN_CPU_CAPABILITY="avx2")
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
        with pytest.raises(pyframe.PackageError, match=r"no kernels for this machine \(x86_64 with DEFAULT.*avx2"):
            pyframe.load(made)
    with pytest.raises(AssertionError, match=r"no kernels for this machine \(x86_64 with DEFAULT.*avx2"):
        run_cpp(programs, tmp_path, made, (x,), ATEN_CPU_CAPABILITY="default")
    other = rewritten(made, tmp_path / "arm.pyframe", lambda about: [t.update(machine="aarch64") for t in about["targets"]])
    with pytest.raises(pyframe.PackageError, match=r"no kernels for this machine.*avx2 \(aarch64\)"):
        pyframe.load(other)
    with pytest.raises(AssertionError, match=r"no kernels for this machine.*avx2 \(aarch64\)"):
        run_cpp(programs, tmp_path, other, (x,))


def test_a_gpu_that_the_kernels_were_not_made_for() -> None:
    gpu = {name: targets.Target(name, "x86_64", "DEFAULT", int(name[3:])) for name in ("sm_80", "sm_90")}
    for arch, runs in ((80, ["sm_80"]), (86, ["sm_80"]), (90, ["sm_90"]), (100, []), (75, []), (0, [])):
        machine = targets.Machine("x86_64", "AVX2", arch)
        assert [name for name, target in gpu.items() if machine.runs(target)] == runs


@pytest.mark.parametrize("value", [
    None, True, False, 0, 23, 24, 255, 256, 65536, -1, -25, (1 << 63) - 1, -(1 << 63), 0.5, float("inf"), "", "text é", b"",
    b"\0\xff", [], [1, [2, []]], {}, {"a": {"b": [None]}}, "x" * 70000, list(range(300)),
])  # fmt: skip
def test_encoding(value: object) -> None:
    assert cbor.loads(cbor.dumps(value)) == value


def test_encoding_refuses_what_it_cannot_hold() -> None:
    for value in (object(), {1: 2}, 1j):
        with pytest.raises(TypeError):
            cbor.dumps(value)
    with pytest.raises(OverflowError):
        cbor.dumps(1 << 63)
    good = cbor.dumps({"a": [1, "x", b"yy", 2.5, None]})
    for n in range(len(good)):
        with pytest.raises(cbor.Malformed):
            cbor.loads(good[:n])
    for bad in (b"\xff", b"\x1c", b"\xc0\x00", b"\xa1\x01\x02", b"\xa2\x61a\x01\x61a\x02", b"\x61\xff", b"\x01\x01",
                b"\x1b" + b"\xff" * 8, b"\x9b" + b"\xff" * 8, b"\x81" * 100 + b"\x00"):  # fmt: skip
        with pytest.raises(cbor.Malformed):
            cbor.loads(bad)


def test_the_file_appears_as_a_whole(made: Path, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        pyframe.package(torch.sin, (torch.rand(3),), tmp_path / "missing" / "model.pyframe")
    path = tmp_path / "model.pyframe"
    pyframe.package(torch.sin, (torch.rand(3),), path)
    before = hashlib.sha256(path.read_bytes()).digest()
    package = pyframe.load(path)
    pyframe.package(torch.cos, (torch.rand(3),), path)
    assert hashlib.sha256(path.read_bytes()).digest() != before
    x = torch.rand(3)
    torch.testing.assert_close(package(x), x.sin())
    torch.testing.assert_close(pyframe.load(path)(x), x.cos())
    assert [each.name for each in tmp_path.iterdir()] == ["model.pyframe"]


def test_the_example(tmp_path: Path, programs: Path) -> None:
    path = tmp_path / "model.pyframe"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    made = subprocess.run([sys.executable, str(ROOT / "examples/serve_cpp/make_model.py"), str(path)],
                          capture_output=True, text=True, env=environment)  # fmt: skip
    assert made.returncode == 0, made.stderr
    done = subprocess.run([str(programs / "serve_program"), str(path), "3"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = made.stdout.strip().removeprefix("first result of a row of ones: ").split()
    printed = next(line for line in done.stdout.splitlines() if line.startswith("first result: ")).split()[2:]
    assert all(abs(float(a) - float(b)) < 2e-6 for a, b in zip(printed, expected, strict=True))
    linked = subprocess.run(["ldd", str(programs / "serve_program")], capture_output=True, text=True).stdout
    assert "libpython" not in linked and "torch_python" not in linked

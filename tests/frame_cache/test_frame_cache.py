"""Captures that one process keeps on disk and another loads: nothing is traced, and whatever has changed in between is
noticed."""

from __future__ import annotations

import abc
import dataclasses
import functools
import json
import logging
import math
import os
import subprocess
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked_python
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import pyframe
from inductor import kept_graph
from inductor.cache import process_key
from inductor.cache.graph_data import NotData
from inductor.errors import CompileError
from inductor.fastest.choice import Choice, Choices
from inductor.kept_graph import kept_nodes
from pyframe.core.guard_reference import found_along
from pyframe.errors import InternalError
from pyframe.frame_cache import record as records
from pyframe.frame_cache import store
from pyframe.frame_cache.code_hash import code_hash
from pyframe.frame_cache.described import NotKept, describe, has_name, resolve
from pyframe.vars import wrap
from pyframe.vars.objects.lru_cache import _call_of
from pyframe.vars.protocol.class_reads import reads_of_classes
from pyframe.vars.torch_objects import torch_functions, user_directives

ROOT = Path(__file__).parent.parent.parent
# Programs whose capture also serves after the change, and those whose captures are not kept.
UNAFFECTED = {"dict", "module", "module weights", "handled error", "alignment", "write views"}


def run_programs(mode: str, cache: Path, output: Path) -> dict[str, Any]:
    env = {**os.environ, "PYFRAME_CACHE_DIR": str(cache), "PYFRAME_FRAME_CACHE": "on"}
    command = [sys.executable, "-m", "tests.frame_cache.attacked", mode, str(output)]
    subprocess.run(command, env=env, check=True, cwd=ROOT)
    found: dict[str, Any] = json.loads(output.read_text())
    return found


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the programs of `attacked` gave in three processes with one cache."""
    folder = tmp_path_factory.mktemp("frames")
    return {mode: run_programs(mode, folder / "cache", folder / f"{mode}.json") for mode in ("cold", "same", "changed")}


def test_a_warm_process_traces_nothing(outcomes: dict[str, dict[str, Any]]) -> None:
    kept = [name for name, outcome in outcomes["cold"].items() if not outcome["reasons"]]
    assert len(kept) > 35
    for name in kept:
        outcome = outcomes["same"][name]
        assert (outcome["right"], outcome["loaded"], outcome["traced"]) == (True, 1, 0), name


def test_a_warm_process_imports_no_compiler(outcomes: dict[str, dict[str, Any]]) -> None:
    first, *_ = outcomes["same"].values()
    assert first["imported"] == []
    assert "pyframe.interp" in next(iter(outcomes["cold"].values()))["imported"]


def test_what_is_not_kept_says_why(outcomes: dict[str, dict[str, Any]]) -> None:
    for name, outcome in outcomes["cold"].items():
        assert outcome["right"], name
        assert outcome["kept"] or outcome["loaded"] or outcome["reasons"], name


def test_what_another_process_changes_is_noticed(outcomes: dict[str, dict[str, Any]]) -> None:
    for name, outcome in outcomes["changed"].items():
        assert outcome["right"], name
        assert outcome["loaded"] == (name in UNAFFECTED), name


# ---- within one process


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache in which captures are kept."""
    monkeypatch.setenv("PYFRAME_CACHE_DIR", str(tmp_path))
    for name in ("_substituted", "SKIPPED", "CONSTANT_RESULTS"):  # what tests that ran before have marked
        monkeypatch.setattr(user_directives, name, type(getattr(user_directives, name))())
    monkeypatch.setattr(torch_functions, "IN_GRAPH", set())
    monkeypatch.setattr(torch_functions, "_breaks_of_torch", torch_functions.breaks_of_torch())
    pyframe.config.frame_cache = "on"
    return tmp_path


def counts(fn: Callable[..., Any], *args: Any, **settings: Any) -> tuple[int, int, list[str]]:
    """How many captures were loaded and kept by one call after a reset, and why others were not kept."""
    pyframe.reset()
    pyframe.compile(fn, **settings)(*args)
    found = pyframe.counters
    return found["frames_loaded"], found["frames_kept"], list(found["frames_not_kept"])


def test_a_capture_is_kept_and_loaded(frames: Path) -> None:
    assert counts(scaled, torch.ones(3)) == (0, 1, [])
    assert counts(scaled, torch.ones(3)) == (1, 0, [])
    assert pyframe.counters["instructions_traced"] == 0


@pytest.mark.parametrize("settings", [
    {"options": {"cache": False}}, {"backend": "eager"}, {"options": {"verify": "first"}},
    {"options": {"freezing": True}}, {"options": {"background": True}}, {"options": {"budget_s": 60}},
    {"options": {"transforms": [pyframe.transform(lambda gm: None)]}}, {"options": {"compiled_autograd": True}},
])  # fmt: skip
def test_settings_under_which_nothing_is_kept(frames: Path, settings: Any) -> None:
    assert counts(scaled, torch.ones(3), **settings) == (0, 0, [])
    assert counts(scaled, torch.ones(3), **settings) == (0, 0, [])


def test_which_is_faster_is_measured_in_a_loaded_capture_too(frames: Path) -> None:
    def measured() -> tuple[int, int, int]:
        pyframe.reset()
        compiled, x = pyframe.compile(scaled, options={"measure": True}), torch.linspace(0, 1, 4096)
        for _ in range(80):
            assert torch.allclose(compiled(x), scaled(x))
        found = pyframe.counters
        return found["frames_loaded"], found["graphs_measured"], found["instructions_traced"]

    counts(scaled, torch.linspace(0, 1, 4096), options={"measure": True})
    assert measured() == (1, 1, 0)
    assert measured() == (1, 0, 0)  # the choice is remembered


def test_a_graph_for_which_aten_was_kept_runs_with_aten(frames: Path) -> None:
    x = torch.linspace(0, 1, 64)
    counts(scaled, x, options={"measure": True})
    (entry,) = frames.glob("*/*.frame")
    record = records.load(entry.read_bytes())
    assert record is not None
    Choices(record.graph[1]).keep({}, Choice(2.0, 1.0, True))
    assert counts(scaled, x, options={"measure": True}) == (1, 0, [])
    assert (pyframe.counters["graphs_with_aten"], pyframe.counters["kernels"]) == (1, 0)
    entry.unlink()
    assert counts(scaled, x, options={"measure": True}) == (0, 1, [])  # kept although nothing was compiled
    assert counts(scaled, x, options={"measure": True}) == (1, 0, [])


def test_functions_of_one_code_and_models_of_one_class_have_entries_of_their_own(frames: Path) -> None:
    def by(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x * factor

    with torch.no_grad():
        models = [nn.Sequential(nn.Linear(3, size), nn.ReLU()).eval() for size in (2, 3)]
        for expected in ((0, 1, []), (1, 0, [])):
            for each in (by(2.0), by(3.0), *models):
                assert counts(each, torch.ones(3)) == expected


def test_tensors_with_marks_have_entries_of_their_own(frames: Path) -> None:
    counts(scaled, torch.ones(3))
    marked = torch.ones(3)
    pyframe.mark_dynamic(marked, 0)
    assert counts(scaled, marked)[0] == 0
    assert counts(scaled, torch.ones(3)) == (1, 0, [])


def test_tensors_without_sizes_are_arguments(frames: Path) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    sparse = torch.eye(2).to_sparse()

    def program(x: torch.Tensor, nested: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        return x + 1

    counts(program, torch.ones(3), nested, sparse)


def test_keys_run_nothing_of_the_program(frames: Path) -> None:
    class Watched:
        def __init__(self) -> None:
            self.factor = 2.0

        def __getattribute__(self, name: str) -> Any:
            seen.append(name)
            return object.__getattribute__(self, name)

    def program(x: torch.Tensor, watched: Watched) -> torch.Tensor:
        return x + 1

    seen: list[str] = []
    counts(program, torch.ones(3), Watched())
    assert seen == ["factor"] or not seen


def test_it_can_be_turned_off(frames: Path) -> None:
    counts(scaled, torch.ones(3))
    with pyframe.config.patch(frame_cache="off"):
        assert counts(scaled, torch.ones(3)) == (0, 0, [])
    with pytest.raises(pyframe.UserError, match="must be one of"):
        pyframe.config.frame_cache = "maybe"


def test_a_damaged_entry_is_a_miss(frames: Path) -> None:
    counts(scaled, torch.ones(3))
    (entry,) = frames.glob("*/*.frame")
    data = bytearray(entry.read_bytes())
    data[40] ^= 1
    entry.write_bytes(data)
    assert counts(scaled, torch.ones(3)) == (0, 1, [])


def test_an_entry_of_a_lost_graph_is_a_miss(frames: Path) -> None:
    counts(scaled, torch.ones(3))
    for graph in frames.glob("*/*.graph"):
        graph.unlink()
    assert counts(scaled, torch.ones(3)) == (0, 1, [])


def test_a_later_capture_knows_the_sizes_of_the_loaded_one(frames: Path) -> None:
    counts(scaled, torch.ones(3))
    pyframe.reset()
    compiled = pyframe.compile(scaled)
    for size in (3, 5, 7, 9):
        compiled(torch.ones(size))
    assert (pyframe.counters["frames_loaded"], pyframe.counters["recompiles"]) == (1, 1)


def in_containers(*args: torch.Tensor, **more: list[torch.Tensor]) -> torch.Tensor:
    return args[0].sin() + more["y"][0]


def test_it_knows_the_sizes_of_tensors_in_containers_too(frames: Path) -> None:
    compiled = pyframe.compile(in_containers)
    compiled(torch.ones(3), y=[torch.ones(3)])
    pyframe.reset()
    compiled = pyframe.compile(in_containers)
    for size in (3, 5, 7, 9):
        compiled(torch.ones(size), y=[torch.ones(size)])
    assert (pyframe.counters["frames_loaded"], pyframe.counters["recompiles"]) == (1, 1)


def draws_order(x: torch.Tensor) -> torch.Tensor:
    for name in {"sin", "cos", "exp"}:
        x = getattr(torch, name)(x)
    return x


def hashes(x: torch.Tensor) -> torch.Tensor:
    return x + hash("text") % 7


def asks_devices(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.cuda.is_available() else x - 1


@pytest.mark.parametrize(("fn", "reason"), [
    (draws_order, "the order of a set"), (hashes, "the result of hash"), (asks_devices, "the result of is_available"),
])  # fmt: skip
def test_what_depends_on_the_process_is_not_kept(frames: Path, fn: Callable[..., Any], reason: str) -> None:
    _, _, reasons = counts(fn, torch.ones(3))
    assert reason in reasons
    loaded, kept, _ = counts(fn, torch.ones(3))
    assert loaded == 0


def code_of_traceback(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    try:
        [1 // (i - 1) for i in range(3)]
    except ZeroDivisionError as error:
        return x + 1, error.__traceback__.tb_frame.f_code.co_firstlineno


def test_code_of_replaced_frames_is_not_kept(frames: Path) -> None:
    x = torch.ones(2)
    assert repr(pyframe.compile(code_of_traceback)(x)) == repr(code_of_traceback(x))


def test_nothing_is_kept_while_a_function_has_a_directive(frames: Path) -> None:
    def constant() -> float:
        return 2.0

    marked = pyframe.assume_constant_result(constant)
    assert counts(scaled, torch.ones(3))[:2] == (0, 0)
    del marked


def test_check_traces_and_compares(frames: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts(scaled, torch.ones(3))
    pyframe.config.frame_cache = "check"
    assert counts(scaled, torch.ones(3)) == (1, 1, [])  # looked up, and traced
    load = records.load
    monkeypatch.setattr(records, "load", lambda data: _with_other_facts(load(data)))
    with pytest.raises(InternalError, match="facts"):
        counts(scaled, torch.ones(3))


def test_what_a_trace_has_read_does_not_depend_on_earlier_traces() -> None:
    class Fresh:
        pass

    for _ in range(2):
        reads: dict[type, dict[str, Any]] = {}
        with reads_of_classes(reads):
            wrap._hides_its_class(Fresh)
        assert reads == {Fresh: {"__class__": object.__dict__["__class__"]}}


def _with_other_facts(record: Any) -> Any:
    return dataclasses.replace(record, facts=(("fields", next(
        at for at, each in enumerate(record.objects) if each[0] == "class"), ()),))  # fmt: skip


def test_an_explanation_traces(frames: Path) -> None:
    counts(scaled, torch.ones(3))
    explained = pyframe.explain(scaled)(torch.ones(3))
    assert explained.graph_count == 1
    assert "kept on disk" in str(explained)
    assert "not kept on disk: the result of hash" in str(pyframe.explain(hashes)(torch.ones(3)))


# ---- descriptions


@pytest.mark.parametrize("value", [
    None, 1, True, 1.0, -0.0, float("nan"), 2j, "text", b"data", ..., (1, (2.0, None)), slice(1, None),
    frozenset((1, 2)), torch.float32, torch.device("cpu"), torch.channels_last, torch.Size((2, 3)), torch, math,
    torch.nn.functional.linear,
    torch.relu, torch.Tensor, torch.Tensor.relu, torch.ops.aten.relu.default, len, dict.fromkeys, type(None),
    types.FunctionType, sys.modules, vars(math), describe, Path, code_hash, typing.Optional, typing.Literal,
    logging.getLogger("torch"), _call_of,
])  # fmt: skip
def test_descriptions_find_their_object(value: Any) -> None:
    described = describe(value)
    assert has_name(described)
    assert describe(resolve(described)) == described


@pytest.mark.parametrize(("one", "other"), [
    (1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), ((1,), (True,)), (len, abs), (torch.relu, torch.tanh),
    (found_along, describe), (slice(1), slice(2)),
])  # fmt: skip
def test_descriptions_tell_objects_apart(one: Any, other: Any) -> None:
    assert describe(one) != describe(other)


def test_functions_of_equal_code_have_equal_hashes() -> None:
    source = "def f(x, y={1: 2}):\n    return lambda: x in {'a', 'b', 'c'}\n"
    same, other = ({}, {})  # type: ignore[var-annotated]
    exec(compile(source, "a.py", "exec"), same)
    exec(compile(source, "a.py", "exec"), other)
    assert code_hash(same["f"].__code__) == code_hash(other["f"].__code__)
    exec(compile(source.replace("'c'", "'d'"), "a.py", "exec"), other)
    assert code_hash(same["f"].__code__) != code_hash(other["f"].__code__)


@pytest.mark.parametrize("value", [
    object.__new__(type("Local", (), {})), torch.ones(1), [1], torch.Generator(), logging.Logger("of nobody"),
    functools.lru_cache(lambda: 1), functools.lru_cache(len),
    # As the code that replaces a frame, which tracebacks show.
    (lambda: 1).__code__.replace(co_consts=(len,)),
])  # fmt: skip
def test_other_objects_have_no_description(value: Any) -> None:
    with pytest.raises(NotKept):
        describe(value)


# ---- what is kept of other graphs


def test_a_graph_with_gradients_is_compiled_again_from_its_nodes(frames: Path) -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y.sin()).sum()

    def gradients() -> list[torch.Tensor]:
        x, y = (torch.linspace(0, 1, 5).requires_grad_() for _ in range(2))
        pyframe.reset()
        pyframe.compile(loss)(x, y).backward()
        assert x.grad is not None and y.grad is not None
        return [x.grad, y.grad]

    cold = gradients()
    assert (pyframe.counters["frames_kept"], pyframe.counters["cache_misses"]) == (1, 1)
    warm = gradients()
    found = pyframe.counters
    assert (found["frames_loaded"], found["instructions_traced"], found["cache_hits"]) == (1, 0, 1)
    assert all(map(torch.equal, cold, warm))
    assert all(map(torch.allclose, cold, [torch.linspace(0, 1, 5).sin(),
                                         torch.linspace(0, 1, 5) * torch.linspace(0, 1, 5).cos()]))  # fmt: skip
    assert counts(loss, torch.ones(5), torch.ones(5)) == (0, 1, [])  # another graph: nothing requires a gradient


def test_a_training_step_is_loaded(frames: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))

    def step(x: torch.Tensor) -> torch.Tensor:
        return model(x).square().mean()

    def trained() -> list[torch.Tensor]:
        pyframe.reset()
        compiled, copy_ = pyframe.compile(step), [p.detach().clone() for p in model.parameters()]
        for _ in range(3):
            compiled(torch.ones(2, 3)).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad  # type: ignore[operator]
                    p.grad = None
        found = [p.detach().clone() for p in model.parameters()]
        with torch.no_grad():
            for p, before in zip(model.parameters(), copy_, strict=True):
                p.copy_(before)
        return found

    cold = trained()
    assert pyframe.counters["frames_kept"] == 1
    assert all(map(torch.equal, cold, trained()))
    assert (pyframe.counters["frames_loaded"], pyframe.counters["instructions_traced"]) == (1, 0)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adamax", "NAdam", "RMSprop", "Adagrad"])
def test_the_step_of_an_optimizer_is_loaded(frames: Path, name: str) -> None:
    def trained() -> torch.Tensor:
        pyframe.reset()
        weight = nn.Parameter(torch.linspace(-1, 1, 6))
        optimizer = getattr(torch.optim, name)([weight], lr=0.1)
        step = pyframe.compile(optimizer.step)
        for number in range(3):
            weight.grad = torch.linspace(number, 2, 6)
            step()
        return weight.detach()

    cold = trained()
    assert pyframe.counters["frames_kept"] and not pyframe.counters["frames_not_kept"]
    assert torch.equal(cold, trained())
    assert pyframe.counters["instructions_traced"] == 0


@functools.lru_cache
def remembered(number: int) -> int:
    return number + len(REMEMBERED)


REMEMBERED: list[int] = []


def asks_a_cached_function(x: torch.Tensor) -> torch.Tensor:
    return x * remembered(3)


def test_the_result_of_a_cached_function_is_asked_again(frames: Path) -> None:
    assert counts(asks_a_cached_function, torch.ones(3)) == (0, 1, [])
    assert counts(asks_a_cached_function, torch.ones(3)) == (1, 0, [])
    REMEMBERED.append(1)
    try:
        remembered.cache_clear()
        assert counts(asks_a_cached_function, torch.ones(3)) == (0, 1, [])
        assert torch.equal(pyframe.compile(asks_a_cached_function)(torch.ones(3)), torch.full((3,), 4.0))
    finally:
        REMEMBERED.clear()
        remembered.cache_clear()


def test_a_loaded_graph_that_cannot_be_compiled_strictly_is_a_miss(
    frames: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(3, requires_grad=True)
    counts(scaled, x)

    def fails(*_: Any, **settings: Any) -> Any:
        raise CompileError("no")

    monkeypatch.setattr(store, "restored_on_error", fails)
    assert counts(scaled, x) == (0, 1, [])


def test_a_graph_that_runs_with_aten_is_not_kept(frames: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYFRAME_STRICT", "")

    def fails(*_: Any, **settings: Any) -> Any:
        raise NotImplementedError("no lowering")

    monkeypatch.setattr("inductor.compile.generate", fails)
    with pytest.warns(UserWarning, match="no lowering"):
        assert counts(scaled, torch.ones(3)) == (0, 0, ["a graph that runs with ATen"])


NAMES = frozenset(("sin", "cos", "exp"))


@pytest.mark.parametrize("text", [
    lambda: f"{NAMES}", lambda: "%s" % NAMES, lambda: "%s" % (NAMES,), lambda: str(scaled),  # noqa: UP031
    lambda: f"{torch.sin}",
    lambda: f"{len}", lambda: str((scaled,)), lambda: f"{torch}",
])  # fmt: skip
def test_texts_with_addresses_and_sets_are_not_kept(frames: Path, text: Callable[[], str]) -> None:
    def program(x: torch.Tensor) -> Any:
        return x.mm(x), text()

    (reason,) = counts(program, torch.eye(2))[2]
    assert reason in ("the text of an object", "the order of a set")


@pytest.mark.parametrize("value", [
    lambda: f"{1} {2.5} {None} {torch.float32} {torch.Size((1,))} {torch.Tensor} {int}", lambda: len(NAMES),
    lambda: "sin" in NAMES, lambda: NAMES == set(("sin", "cos", "exp")), lambda: 2 in set((1, 2)),
])  # fmt: skip
def test_texts_of_values_and_sets_without_their_order_are_kept(frames: Path, value: Callable[[], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        return x.mm(x), value()

    assert counts(program, torch.eye(2)) == (0, 1, [])
    assert counts(program, torch.eye(2)) == (1, 0, [])


def test_a_hook_of_a_module_is_kept(frames: Path) -> None:
    layer = nn.ReLU()
    layer.register_forward_hook(lambda module, inputs, result: result + 1)
    for expected in ((0, 1, []), (1, 0, [])):
        assert counts(layer, torch.ones(3)) == expected


def test_descriptions_of_classes_say_which_special_methods_they_have() -> None:
    def made(**attributes: Any) -> Any:
        return describe(type("Same", (), {"__module__": "program", "__qualname__": "Same", **attributes}))

    assert made() == made() == made(value=1)
    assert made() != made(__len__=lambda self: 1)
    assert describe(type("Same", (), {})) != describe(type("Same", (int,), {}))


def test_edited_files_of_torch_have_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = process_key._library()
    assert len(before) > 1
    for source in process_key._SOURCES:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_bytes(Path(process_key._TORCH, source).read_bytes())
    monkeypatch.setattr(process_key, "_TORCH", f"{tmp_path}{os.sep}")
    assert process_key._library()[0] == before[0]
    with open(tmp_path / "_decomp" / "decompositions.py", "a") as file:
        file.write("# edited\n")
    assert process_key._library()[0] != before[0]


def test_captures_are_kept_by_default(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYFRAME_FRAME_CACHE"}
    program = (
        "import torch, pyframe, sys\n"
        "exec(compile('def program(x):\\n    return x.mm(x)', 'a.py', 'exec'))\n"
        "assert torch.equal(pyframe.compile(program)(torch.eye(2)), torch.eye(2))\n"
        "print(pyframe.config.frame_cache, pyframe.counters['instructions_traced'] > 0, 'pyframe.driver' in sys.modules)"
    )
    env |= {"PYFRAME_CACHE_DIR": str(tmp_path)}
    runs = [forked_python.run(program, environment=env, folder=ROOT) for _ in range(2)]
    assert [run.stdout for run in runs] == ["on True True\n", "on False False\n"], [run.stderr for run in runs]


def test_graphs_on_other_devices_are_not_kept(frames: Path) -> None:
    gm = torch.fx.symbolic_trace(torch.nn.ReLU())
    with pytest.raises(NotData, match="a graph on a device of type meta"):
        kept_nodes(gm, [torch.ones(3, device="meta")])


def test_a_graph_of_other_gpus_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = torch.fx.symbolic_trace(torch.nn.ReLU())
    with FakeTensorMode():
        x = torch.empty(3, device="cuda")
    monkeypatch.setattr(kept_graph, "gpus_present", lambda: "one")
    assert kept_graph.rebuilt(data := kept_nodes(gm, [x])) is not None
    monkeypatch.setattr(kept_graph, "gpus_present", lambda: "another")
    assert kept_graph.rebuilt(data) is None
    assert kept_graph.rebuilt(kept_nodes(gm, [torch.ones(3)])) is not None


class Shape(abc.ABC):
    pass


def asks_an_abstract_class(x: torch.Tensor, shape: object) -> torch.Tensor:
    return x + 1 if isinstance(shape, Shape) else x - 1


def test_answers_of_abstract_classes_are_asked_again(frames: Path) -> None:
    class Round:
        pass

    for expected in ((0, 1, []), (1, 0, [])):
        assert counts(asks_an_abstract_class, torch.ones(3), Round()) == expected
    Shape.register(Round)
    loaded, kept, _ = counts(asks_an_abstract_class, torch.ones(3), Round())
    assert (loaded, kept) == (0, 1)
    assert torch.equal(pyframe.compile(asks_an_abstract_class)(torch.ones(3), Round()), torch.full((3,), 2.0))


def test_a_loaded_graph_that_raises_leaves_modes_as_they_were(frames: Path) -> None:
    def reads(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x[at]
        return x * y

    x = torch.ones(3, requires_grad=True)
    for expected in ((0, 1, []), (1, 0, [])):
        assert counts(reads, x, torch.tensor([2, 1, 0])) == expected
        with pytest.raises(IndexError):
            pyframe.compile(reads)(x, torch.tensor([9, 9, 9]))
        assert torch.is_grad_enabled()


def test_an_assignment_to_a_gradient_is_kept(frames: Path) -> None:
    def clears(x: torch.Tensor) -> torch.Tensor:
        y = x.detach() * 2
        x.grad = None
        return y

    x = torch.ones(3, requires_grad=True)
    for expected in ((0, 1, []), (1, 0, [])):
        x.grad = torch.ones(3)
        assert counts(clears, x) == expected
        assert x.grad is None

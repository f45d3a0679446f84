"""The stages of a compilation as Python programs (`stages`), and functions of graphs between them (`transform`)."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from inductor import transforms
from inductor.log.programs import noted_in

from .api import compile
from .errors import UserError
from .export.printing import graph_text


def transform(
    function: Callable[[fx.GraphModule], fx.GraphModule | None] | None = None, *, at: str | Sequence[str] = "captured"
) -> Any:
    """A transform of graphs, to be applied by `compile(f, options={"transforms": [...]})` in the order of the list.

        @pyframe.transform(at="aten")
        def in_half(gm): ...

    `function(gm)` changes an fx.GraphModule in place, or returns another one with the same placeholders and results.
    at: the stage, or several, after which it is applied: "captured" (torch's functions as the program calls them; with
    or without gradients), "aten" (ATen operators without mutation, of a graph without gradients), "joint" (forward and
    backward in one graph), "forward", "backward" (its parts). Nodes after "captured" carry fake tensors in
    `meta["val"]`, which are computed again after the transform; sizes and dtypes of the results must stay the same.

    The graph cache knows a transform by its code and by the constants, functions and operators that it reads. A graph
    with a transform that reads something else (a tensor, an object) is not kept on disk, and
    `counters["transforms_not_cached"]` counts it. A transform that raises is an error, not a fallback. Raises UserError
    for an unknown stage.
    """
    try:
        return transforms.transform(function, at=at)
    except ValueError as error:
        raise UserError(str(error)) from None


@dataclass(frozen=True)
class StageProgram:
    """One graph after a stage or a pass. `text`: a Python program with the function `name(constants, *inputs)`;
    `constants`: the tensors and other values that it reads by name. Calling it executes the text and runs it."""

    stage: str
    name: str
    text: str
    constants: Mapping[str, Any]

    def __str__(self) -> str:
        return self.text

    def __call__(self, *inputs: Any) -> Any:
        scope: dict[str, Any] = {}
        exec(builtins.compile(self.text, f"<stage {self.stage}>", "exec"), scope)
        return scope[self.name](self.constants, *inputs)


class Stages(Mapping[str, StageProgram]):
    """The programs of one compilation, by stage and pass, in order. Passes that changed nothing are left out. A second
    graph's have names like "captured 2". `result`: what the call returned."""

    def __init__(self) -> None:
        self._programs: dict[str, StageProgram] = {}
        self._last: dict[str, str] = {}
        self.result: Any = None

    def __getitem__(self, stage: str) -> StageProgram:
        return self._programs[stage]

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)

    def __str__(self) -> str:
        return "\n\n".join(f"# ==== {stage}\n{program}" for stage, program in self._programs.items())

    def note(self, stage: str, gm: fx.GraphModule) -> None:
        """Add the program of a graph, unless the last one with such a body is the same."""
        name = re.sub(r"\W", "_", stage)
        text, constants = graph_text(gm, name)
        body = text.replace(f"def {name}(", "def graph(")
        if body == self._last.get("body") and stage not in transforms.STAGES:
            return
        self._last["body"] = body
        known, count = stage, 1
        while known in self._programs:
            count += 1
            known = f"{stage} {count}"
        self._programs[known] = StageProgram(known, name, text, constants)


def stages(function: Callable[..., Any], **settings: Any) -> Callable[..., Stages]:
    """`stages(f)(*args)` compiles `f` and runs it once; the result has the graphs after each stage and each pass that
    changed something, as Python programs. settings: as for `compile`; the graph cache is not used."""

    def run(*args: Any, **kwargs: Any) -> Stages:
        found = Stages()
        options = {**(settings.get("options") or {}), "cache": False}
        compiled = compile(function, **{**settings, "options": options, "isolate_recompiles": True})
        with noted_in(found.note):
            found.result = compiled(*args, **kwargs)
        return found

    return run

from typing import Any

def has_cuda_products() -> bool: ...
def unchanged(tensors: list[Any], refs: tuple[Any, ...], facts: bytes, /) -> bool: ...
def open_file(path: str | bytes, flags: int, /) -> int: ...

class Plan:
    n_inputs: int
    n_steps: int
    labels: tuple[str, ...] | None
    n_buffers: int
    arena_bytes: int
    def __new__(
        cls,
        inputs: tuple[Any, ...],
        fixed: tuple[Any, ...],
        steps: tuple[Any, ...],
        outputs: tuple[Any, ...],
        kernels: tuple[Any, ...],
        n_buffers: int,
        form: int,
        mutated: tuple[int, ...],
        aligned: tuple[int, ...],
        fallback: Any,
        written: Any,
        device: tuple[int, int],
        /,
    ) -> Plan: ...
    def __call__(self, *args: Any) -> Any: ...
    def take(self, list: list[Any], /) -> Any: ...
    def addresses(self, inputs: tuple[Any, ...], skip: bytes, /) -> bytes: ...
    def label(self, names: tuple[str, ...], /) -> None: ...

class NodeForward:
    """The forward of a compiled graph's autograd node, see csrc/runtime/node_forward.c."""

    def __new__(
        cls, run: Any, hold: Any, simple: bool, separable: bool, counts_freed: bool, watched: tuple[int, ...],
        loose: tuple[int, ...], inputs: tuple[int, ...], returned: tuple[int, ...], count: int, differentiable: int,
    ) -> NodeForward: ...  # fmt: skip
    def __call__(self, ctx: Any, *primals: Any) -> tuple[Any, ...]: ...

class NodeBackward:
    """The backward of a compiled graph's autograd node, see csrc/runtime/node_backward.c."""

    def __new__(
        cls, take: Any, slow: Any, layouts: tuple[Any, ...], plain: tuple[Any, ...], places: tuple[int, ...],
        primals: int, keeps_graph: Any,
    ) -> NodeBackward: ...  # fmt: skip
    def __call__(self, ctx: Any, *tangents: Any) -> tuple[Any, ...]: ...

class TrainingCall:
    """Calls of a compiled graph with gradients, see csrc/runtime/training_call.c."""

    def __new__(
        cls, apply: Any, attributes: tuple[Any, ...], first: int, finish: Any, refused: type[Exception], eager: Any,
        transformed: Any, ddp: Any, otherwise: Any,
    ) -> TrainingCall: ...  # fmt: skip
    def __call__(self, *inputs: Any) -> Any: ...

class Sampler:
    target: Any
    check: Any
    countdown: int
    def __new__(cls, target: Any, check: Any, countdown: int) -> Sampler: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class FakeDispatch:
    """`dispatch(op, types, args, kwargs)`, but the device of a fake tensor, for which torch calls `device_op` where no
    exception may be raised, is given without running Python code; `meta` inside of kernels."""

    def __new__(cls, dispatch: Any, device_op: Any, meta: Any) -> FakeDispatch: ...
    def __call__(self, *args: Any) -> Any: ...

class Recorded:
    """One recording of a plan, see csrc/runtime/recorded.c."""

    def __new__(
        cls, graph: Any, used: set[int], addresses: bytes, inference: bool, generation: int,
        memories: tuple[tuple[Any, Any, bool], ...], copied: tuple[int, ...], targets: list[Any], use_count: Any, /,
    ) -> Recorded: ...  # fmt: skip

class Replay:
    """Replays recordings of `target`, and calls `otherwise` where none fits. See csrc/runtime/replay.c."""

    def __new__(
        cls, target: Any, otherwise: Any, device: Any, count: int, bound: tuple[Any, ...], form: int,
        mutated: tuple[int, ...], results: tuple[tuple[Any, ...], ...], modes: tuple[Any, ...],
        functions: tuple[Any, ...], /,
    ) -> Replay: ...  # fmt: skip
    def __call__(self, *args: Any) -> Any: ...
    def take(self, list: list[Any], /) -> Any: ...

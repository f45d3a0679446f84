from typing import Any

def has_cuda_products() -> bool: ...

class Plan:
    n_inputs: int
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

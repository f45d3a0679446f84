from typing import Any

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
        kernels: tuple[int, ...],
        n_buffers: int,
        form: int,
        /,
    ) -> Plan: ...
    def __call__(self, *args: Any) -> Any: ...

"""Types of the C extension `pyframe._C` (sources: csrc/frame). Importing it needs no torch.

A guard program is a list of tuples `(name, *operands)`; csrc/frame/guard_ops.def describes each row,
`op_table()` returns them. Operand letters: d destination register, r source register, R tuple of registers,
i int, o object.

    accessors                                   checks
    ("LOCAL", d, i)      ("GLOBALS", d)         ("IS", r, object)        ("IS_NOT", r, object)
    ("BUILTINS", d)      ("FUNC", d)            ("TYPE_IS", r, type)     ("EQUALS", r, constant)
    ("CLOSURE", d, i)    ("CONST", d, object)   ("LEN_EQ", r, i)         ("DICT_KEYS", r, tuple)
    ("GLOBAL", d, name)  ("ATTR", d, r, name)   ("DICT_LEN", r, i)       ("NO_KEY", r, key)
    ("INSTANCE_DICT", d, r)                     ("HAS_KEY", r, key)      ("HAS_ATTR", r, name)
    ("DICT_GET", d, r, key)                     ("NO_ATTR", r, name)     ("TENSOR", r, payload)
    ("SEQ_ITEM", d, r, i)                       ("SAME", r, r)           ("DISTINCT", R)
    ("TYPE", d, r)       ("CELL_CONTENTS", d, r)  ("GLOBAL_STATE", state)  ("PREDICATE", callable, R)
    ("FUNC_CODE", d, r) and _DEFAULTS, _KWDEFAULTS, _CLOSURE, _GLOBALS     ("INT_TYPE", r)
    ("WEAKREF", d, r)    ("DICT_KEY_AT", d, r, i)  ("INT_RANGE", r, low, high)
    ("GETITEM", d, r, key)                      ("TRUTH", r, 0 or 1)     ("VERSION", cell, i)
    ("LEN", d, r)        ("CALL", d, callable, R)
    ("TENSOR_SIZE", d, r, i)  ("TENSOR_STRIDE", d, r, i)  ("TENSOR_OFFSET", d, r)

IS, IS_NOT and TYPE_IS hold their object weakly where its type allows: a guard does not keep a user's object
alive, and one whose object died fails for good.
"""

from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType, MethodDescriptorType
from typing import Any, Literal, TypeAlias

# (type, dtype, device_type, device_index, ndim, sizes, strides, requires_grad, dispatch_keys). A None item is
# not checked, nor is a None inside sizes or strides. dtype is a torch.dtype; device_type is c10::DeviceType's
# number (cpu 0, cuda 1), device_index -1 on the CPU; dispatch_keys is
# `torch._C._dispatch_keys(t).raw_repr()`.
TensorPayload: TypeAlias = tuple[
    type | None,
    Any,
    int | None,
    int | None,
    int | None,
    tuple[int | None, ...] | None,
    tuple[int | None, ...] | None,
    bool | None,
    int | None,
]

# ('out', i) | ('reg', r) | ('const', o) | ('tuple', [...]) | ('list', [...]) | ('dict', keys, [...])
OutputTemplate: TypeAlias = tuple[Any, ...]

# Called as callback(function, fast_local_arguments, code_state); an exception reaches the frame's caller.
FrameCallback: TypeAlias = Callable[[FunctionType, tuple[Any, ...], "CodeState"], "Entry | str | None"]

def move_args(function: Callable[..., Any], arguments: list[Any], names: tuple[str, ...] = ...) -> Any:
    """Call `function` with the items of a list, which is emptied: while it runs, only its frame holds them."""

def raise_in(function: FunctionType, arguments: list[Any], exception: BaseException) -> Any:
    """Call `function`, whose code `handles_errors`, so that it raises the exception at its RESUME; empties the list."""

class SuspendedFrame:
    """Stands in a call for the function that the program called there: calling it, with any arguments, continues the
    frame of that function, by calling the resume `function` with the items of a list, which is emptied. `reason`: the
    graph break."""

    def __init__(self, function: FunctionType, arguments: list[Any], reason: Any, /) -> None: ...
    @property
    def reason(self) -> Any: ...
    def __call__(self, *ignored: Any, **also_ignored: Any) -> Any: ...

SKIP: str
"""What a callback returns for: never ask this callback's owner about this code again."""

class VersionCell:
    """A counter that VERSION guards compare with."""

    @property
    def value(self) -> int: ...
    def bump(self) -> int: ...

class GlobalState:
    """Torch's modes: grad, inference, autocast, default dtype, deterministic, threads, mode stacks."""

    @classmethod
    def capture(cls) -> GlobalState:
        """This thread's state now. RuntimeError before bind_torch()."""
    def matches(self) -> bool: ...
    def as_dict(self) -> dict[str, Any]:
        """Mode name -> number; "modes" -> tuple of the active torch function modes."""

class GuardProgram:
    """Accessors and checks, validated: every register written exactly once, and before it is read."""

    def __init__(self, ops: Iterable[tuple[Any, ...]], n_registers: int, n_results: int = -1) -> None:
        """The first `n_results` registers (default: all) are those that are read after a pass."""
    @property
    def n_ops(self) -> int: ...
    @property
    def n_memos(self) -> int:
        """Times that the program took down a call that passed."""
    @property
    def n_live(self) -> int:
        """Operations that the next call runs: all of them, or those that memory words do not tell."""
    @property
    def n_registers(self) -> int: ...
    def check(
        self, function: FunctionType, locals: tuple[Any, ...], remember: bool = True
    ) -> tuple[int, tuple[Any, ...]]:
        """(-1, results) where everything holds, else (index of the failing operation, ()). remember: it is a call."""
    def copy(self) -> GuardProgram:
        """The same operations, with no memory of earlier calls."""

class DirectCall:
    """A compiled graph called straight from guard registers, with no Python frame.

    `output`: 'tuple' (the graph's result as it is), 'single' (its first item), 'none', or a template; 'code': the code
    of the entry is run, with an argument after all others that it calls, without arguments, to run the graph.
    """

    def __init__(
        self,
        callable: Callable[..., Any],
        input_registers: tuple[int, ...],
        output: Literal["tuple", "single", "none", "code"] | OutputTemplate,
    ) -> None: ...
    @property
    def callable(self) -> Callable[..., Any]: ...
    @property
    def input_registers(self) -> tuple[int, ...]: ...

class Entry:
    """One compiled version of a code object.

    `code` takes all fast locals of the original (positional, keyword-only, *args tuple, **kwargs dict) as
    plain positionals, and has the original's free variables or none. `owner` should be a small token: the
    entry, and so the code object, keeps it alive. Nothing held here should lead back to the function, or
    neither is ever freed.
    """

    tag: Any
    def __init__(
        self,
        owner: object,
        guards: GuardProgram,
        code: CodeType | None,
        direct: DirectCall | None = None,
        tag: Any = None,
    ) -> None: ...
    @property
    def owner(self) -> object: ...
    @property
    def guards(self) -> GuardProgram: ...
    @property
    def code(self) -> CodeType | None: ...
    @property
    def direct(self) -> DirectCall | None: ...
    @property
    def hits(self) -> int: ...
    @property
    def last_failed(self) -> int:
        """Index of the guard operation that failed last, or -1."""
    @property
    def valid(self) -> bool: ...
    def invalidate(self) -> None: ...

class CodeState:
    """What is known about one code object."""

    data: Any
    """The driver's own object; None at first and after a reset."""
    @property
    def code(self) -> CodeType | None: ...
    @property
    def entries(self) -> list[Entry]: ...
    @property
    def skipped(self) -> bool: ...
    @property
    def misses(self) -> int: ...

class CompiledFunction:
    """A callable that runs `fn` through its compiled entries; attributes as functools.wraps sets them."""

    __wrapped__: Callable[..., Any]
    callback: FrameCallback | Literal[False] | None
    def __init__(self, fn: Callable[..., Any], callback: FrameCallback | Literal[False] | None) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

class DisabledFunction:
    """A callable that runs `fn` with the hook off."""

    __wrapped__: Callable[..., Any]
    def __init__(self, fn: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

def set_callback(callback: FrameCallback | Literal[False] | None) -> FrameCallback | Literal[False] | None:
    """Set this thread's callback and return the previous one.

    None: off. False: run installed entries, ask nobody. The callback's `owner` attribute (else the callback
    itself) decides whose entries count. Where the hook is disabled (inside a callback, a guard, a compiled
    graph or `disable_wrapper`) the new callback takes effect once that ends.
    """

def get_callback() -> FrameCallback | Literal[False] | None: ...
def is_hook_installed() -> bool: ...
def skip_code(code: CodeType | FunctionType, recursive: bool = False) -> None:
    """Never ask about this code; `recursive`: nor about anything that it calls."""

def handles_errors(code: CodeType | FunctionType) -> None:
    """An exception that comes before the first instruction, from the callback, a guard or a compiled graph that stands
    for the whole frame, is raised at its RESUME, where the exception table has a handler, instead of in the caller."""

def entries(code: CodeType | FunctionType) -> list[Entry]: ...
def code_state(code: CodeType | FunctionType) -> CodeState: ...
def install(code: CodeType | FunctionType, entry: Entry) -> None:
    """Put an entry first. ValueError where its code does not fit."""

def evict(code: CodeType | FunctionType, entry: Entry) -> bool: ...
def reset_code(code: CodeType | FunctionType) -> None: ...
def reset_all() -> None: ...
def op_table() -> Sequence[tuple[str, Literal["accessor", "check"], str, str]]: ...
def const_equal(a: object, b: object) -> bool:
    """The EQUALS check: exact type, floats by their bits, tuples, complex and slices item by item."""

def disable_wrapper(fn: Callable[..., Any]) -> DisabledFunction: ...
def run_disabled(callable: Callable[..., Any]) -> DisabledFunction: ...
def set_stands_aside(flag: bool) -> bool:
    """Whether threads that are traced, profiled or monitored run the program's own frames only, and nothing of theirs
    is captured (the default); returns what was set."""

def set_eager(flag: bool) -> bool:
    """Whether every CompiledFunction calls what it wraps with the hook off, in all threads; returns what was set."""

def bind_torch() -> dict[str, Any]:
    """Look up torch's C functions, importing torch if need be. RuntimeError where it has neither route."""

def has_items(dict: dict[Any, Any], items: dict[str, Any]) -> bool:
    """Whether the dict has these items, by identity of the values; runs no code of keys."""

def takes_keywords(method: MethodDescriptorType) -> bool:
    """Whether the C function of a method of a type can get keyword arguments (METH_KEYWORDS)."""

def runs_its_code(function: FunctionType) -> bool:
    """Whether a call of the function runs its code: C code may have set another function to be called instead."""

def tensor_payload(tensor: Any) -> TensorPayload:
    """The TENSOR payload that `tensor` satisfies. It must be a strided, non-fake tensor."""

def tensor_route(route: Literal["handle", "dlpack"]) -> None: ...
def dtype_code(dtype: Any) -> int: ...
def data_pointer(tensor: Any) -> int: ...
def empty_strided(
    sizes: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: Any,
    device_type: int = 0,
    device_index: int = -1,
) -> Any: ...

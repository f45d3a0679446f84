"""Programs after tests of torch's own tracer that differed from eager here once, each in its smallest form."""

from __future__ import annotations

import collections
import enum
import itertools
import re
import warnings
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree
from util import check

import pyframe
from pyframe.core.python_compat import CLASSMETHODS_CHAIN
from pyframe.testing import CompileCounter

BACKENDS = pytest.mark.parametrize("backend", ["eager", "inductor"])
X = torch.tensor([2.0, 0.5])


# ---- tensors ----
@BACKENDS
def test_data_has_a_version_of_its_own(backend):
    """A write to `x.data` is none that autograd checks: backward takes the value of after it, as in eager."""

    def double_data(x):
        result = x.sin()
        x.data.mul_(2)
        return result

    gradients = []
    for run in (double_data, pyframe.compile(double_data, backend=backend)):
        x = X.clone().requires_grad_()
        run(x).sum().backward()
        gradients.append((x.detach().clone(), x.grad))
    torch.testing.assert_close(gradients[1], gradients[0])


@BACKENDS
def test_forward_of_a_function_that_converts_an_argument_to_its_own_dtype(backend):
    """`mask.to(torch.bool)` gives the mask itself; the node is that of `apply`, and what its forward did is not kept."""

    class Masked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, mask):
            mask = mask.to(torch.bool)
            ctx.save_for_backward(mask)
            return x.masked_fill(mask, 0)

        @staticmethod
        def backward(ctx, gradient):
            return gradient.masked_fill(ctx.saved_tensors[0], 0), None

    def masked(x, mask):
        return Masked.apply(x, mask) * 2, mask.sum()

    mask = torch.tensor([True, False])
    found = []
    for run in (masked, pyframe.compile(masked, backend=backend, fullgraph=True)):
        x = X.clone().requires_grad_()
        result, count = run(x, mask)
        result.sum().backward()
        found.append((result.detach(), count, x.grad))
    torch.testing.assert_close(found[1], found[0])


def test_what_gives_back_a_tensor_of_outside_in_a_nested_function():
    def scaled(x, w):
        return torch.vmap(lambda row: row * w.to(torch.float32).contiguous())(x)

    check(scaled, torch.ones(3, 2), X, graphs=1, breaks=0)


def test_views_in_place_of_an_intermediate_with_a_gradient():
    def unsqueezed(x):
        doubled = x * 2
        other = doubled
        doubled.unsqueeze_(1)
        return doubled, other is doubled, other.shape

    check(unsqueezed, X, graphs=1, breaks=0)
    x = X.clone().requires_grad_()
    result, same, shape = pyframe.compile(unsqueezed, fullgraph=True)(x)
    (result * torch.tensor([[1.0], [2.0]])).sum().backward()
    assert same and shape == (2, 1)
    torch.testing.assert_close(x.grad, torch.tensor([2.0, 4.0]))


def test_an_argument_named_by_a_keyword_of_python():
    def drawn(x):
        return x.uniform_(to=2, **{"from": 1})

    torch.manual_seed(0)
    want = drawn(X.clone())
    torch.manual_seed(0)
    torch.testing.assert_close(pyframe.compile(drawn, backend="eager", fullgraph=True)(X.clone()), want)


def test_the_other_name_of_a_gradient():
    def written(x):
        x._grad = x.detach() + 1
        return x.grad * 2, x._grad is x.grad

    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    (got, same), (want, _) = pyframe.compile(written, backend="eager", fullgraph=True)(x), written(y)
    assert same
    torch.testing.assert_close((got, x.grad), (want, y.grad))


# ---- objects and containers ----
class Adds:
    """A data descriptor without `__get__`."""

    def __set__(self, obj, value):
        obj.__dict__["field"] += value * 2


class HasField:
    field = Adds()

    def __init__(self):
        self.__dict__["field"] = 1


def test_a_descriptor_that_only_sets_does_not_hide_the_field():
    def read(x, obj):
        return x + obj.field

    def write(x, obj):
        obj.field = 10
        return x + obj.field

    check(read, X, HasField(), breaks=0)
    check(write, X, HasField())


def test_an_iterator_that_looks_at_the_deque_it_extends():
    def extended(x, given):
        made = collections.deque([1])
        made.extendleft(made[0] + i for i in range(3))
        made += (made[0] + i for i in range(2))
        given.extend(given[-1] + i for i in range(3))
        return x + 1, made

    check(extended, X, collections.deque([1, 2], maxlen=4), breaks=0)


def test_super_in_a_function_without_arguments():
    class Static:
        @staticmethod
        def call():
            return super().__init__()

    def handled(x):
        try:
            Static.call()
        except RuntimeError as error:
            return x + 1, str(error)

    check(handled, X, breaks=0)


class Incremented(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value + 1)


def test_a_dict_made_of_keywords_does_not_run_setitem():
    def made(x):
        found = Incremented(x=x)
        found["y"] = 10
        found.update(z=3)
        return found

    check(made, X, breaks=0)


class Dotted(dict):
    """Attributes are items, by methods written in C."""

    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


def test_special_methods_of_attributes_that_are_methods_in_c():
    def used(x, given):
        made = Dotted(a=1)
        made.b = x
        del made.a
        given.c = x + 1
        return made, made.b, made.lacking, made["b"], given.old, vars(made)

    check(used, X, Dotted(old=2), breaks=0)


def test_a_mapping_whose_keys_are_an_attribute_of_the_object():
    class Mapping:
        def __init__(self, value):
            self.value = value
            self.keys = lambda: ["a", "b"]

        def __getitem__(self, key):
            return self.value

    def unpacked(x):
        try:
            return {**Mapping(x)}, (lambda **given: sorted(given))(**Mapping(x))
        except TypeError:
            return "no mapping"

    check(unpacked, X, breaks=0)


def test_what_a_type_in_c_has_that_is_no_method():
    """`mapping` of the views of a dict, `__hash__` of what has none, `__doc__`."""

    def read(x):
        made = {"a": 1}
        view = made.keys().mapping
        made["b"] = x
        hashes = [].__hash__, {}.__hash__, {1}.__hash__
        return type(view).__name__, dict(view), hashes, made.__doc__ == dict.__doc__

    check(read, X, breaks=0)


def test_exceptions_in_a_ring():
    """An exception that is its own context: raising while it is handled ends, as in C."""

    def ring():
        try:
            raise ValueError(1)
        except ValueError as error:
            error.__context__ = error
            raise TypeError(2) from None

    def handled(x):
        try:
            ring()
        except TypeError as error:
            return x + 1, type(error.__context__).__name__, error.__context__.__context__ is error.__context__

    check(handled, X, breaks=0)


def test_attributes_of_functions_between_calls():
    """An attribute that a function lacked, and its name, are looked at again."""

    def plain():
        pass

    class HasMethod:
        def method(self):
            pass

    def lacking(x):
        return x + getattr(plain, "extra", 0), hasattr(HasMethod().method, "extra"), plain.__name__

    compiled = pyframe.compile(lacking, backend="eager", fullgraph=True)
    assert compiled(X)[1:] == lacking(X)[1:] == (False, "plain")
    plain.extra, HasMethod.method.extra, plain.__name__ = 3, 4, "other"
    torch.testing.assert_close(compiled(X)[0], X + 3)
    assert compiled(X)[1:] == (True, "other")


def test_a_function_that_counts_its_calls():
    def counted(x):
        counted.calls = getattr(counted, "calls", 0) + 1
        return x * counted.calls

    compiled = pyframe.compile(counted)
    for call in (1, 2, 3):
        torch.testing.assert_close(compiled(X), X * call)
    assert counted.calls == 3


class AsIndex:
    def __index__(self):
        return 2


def test_an_index_object_as_a_count():
    def counted(x):
        try:
            taken = list(itertools.islice([5, 6, 7], AsIndex()))
            return x + 1, (1, 2) * AsIndex(), AsIndex() * "ab", [x] * AsIndex(), taken, list(
                itertools.combinations("abc", AsIndex())
            )
        except TypeError as error:
            return "wrong", str(error)

    check(counted, X, breaks=0)


def test_formatting_of_more_than_text():
    """Numbers and attributes of objects that a template asks for."""

    class Number:
        def __init__(self, value):
            self.var = value

        def __int__(self):
            return self.var

        def __repr__(self):
            return "number"

    def formatted(x):
        try:
            return x + 1, "%d|%r" % (Number(7), Number(1)), "{0.var}|{0!r}".format(Number(3))  # noqa: UP031
        except (TypeError, AttributeError) as error:
            return "wrong", str(error)

    check(formatted, X)


def test_super_outside_of_a_class():
    def handled(x):
        try:
            super().method
        except RuntimeError as error:
            return x + 1, str(error)

    check(handled, X, breaks=0)


def test_writes_to_parts_of_a_tensor_that_has_a_gradient():
    """Parts of `split`, written with gradients disabled: autograd refuses to say whether such a view is a leaf."""

    def add_to_each(*parts):
        for part in parts:
            part.add_(1)

    compiled, x = pyframe.compile(add_to_each, backend="eager", fullgraph=True), torch.ones(6, requires_grad=True)
    parts = x.split(2)
    with torch.no_grad():
        compiled(*parts)
        compiled(*parts)
    torch.testing.assert_close(x.detach(), torch.full((6,), 3.0))


# ---- attributes and iteration ----
def test_reversed_of_a_tensor_is_a_tensor():
    check(lambda x: (reversed(x), reversed(x.sum())), X, graphs=1, breaks=0)


@pytest.mark.parametrize("dynamic", [None, True])
def test_bytes_of_a_tensor_whose_sizes_vary(dynamic):
    def scaled(x):
        return x * x.nbytes

    compiled = pyframe.compile(scaled, dynamic=dynamic, fullgraph=True, backend="eager")
    for size in (3, 4, 5):
        torch.testing.assert_close(compiled(torch.ones(size)), scaled(torch.ones(size)))


Pair = collections.namedtuple("Pair", "a b")


@pytest.mark.parametrize("items", [[X, X], (X,), {"a": X}, Pair(X, X)])
def test_calling_the_class_of_an_argument(items):
    def doubled(x):
        if isinstance(x, dict):
            return x.__class__({key: value * 2 for key, value in x.items()})
        return x.__class__(*[v * 2 for v in x]) if hasattr(x, "_fields") else x.__class__([v * 2 for v in x])

    check(doubled, items, graphs=1, breaks=0)


def test_annotations_of_a_local_function():
    def mapped(x):
        def apply(f: collections.abc.Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            return f(x)

        return apply(torch.sin), pytree.tree_map_only(torch.Tensor, torch.cos, [x, 1])

    exec_globals = {"collections": collections, "torch": torch}
    body = "def local(x):\n  def g(f: collections.abc.Callable[[int], int]): return f(x)\n  return g(torch.sin)"
    exec(body, exec_globals)  # annotations are evaluated: this file postpones them
    check(mapped, X, graphs=1, breaks=0)
    check(exec_globals["local"], X, graphs=1, breaks=0)


def test_patterns_read_instances_of_subclasses_of_str():
    class Version(str):
        pass

    version = Version("2.13.0")
    pattern = re.compile(r"(\d+)\.(\d+)")

    def major(x):
        return x * int(pattern.match(version).group(1)), pattern.sub("z", version)

    check(major, X, graphs=1, breaks=0)

    def by_functions(x):
        found = re.match(r"(\d+)\.(\d+)", version), next(pattern.finditer(version)), re.fullmatch(".*", string=version)
        kinds = [type(match.string) is Version and type(match.group(0)) is str for match in found]
        parts = re.split(r"\.", version), re.findall(r"\d", version), re.search("x", version)
        return x * int(found[0].group(1)), kinds, parts, re.search("2", torch.__version__) is None

    check(by_functions, X, graphs=1, breaks=0)

    def returned(x):
        return x + 1, re.match("2", version)

    got, want = pyframe.compile(returned, backend="eager")(X)[1], returned(X)[1]
    assert got.span() == want.span() and type(got.string) is Version


# ---- sizes known only at run time ----
@BACKENDS
def test_operators_that_reject_bad_sizes_themselves_take_sizes_read_from_tensors(backend):
    def made(sizes, x):
        first, second = sizes.tolist()
        parts = x.split([first, second])
        return [part * 2 for part in parts], torch.arange(first), torch.zeros(second, 2), x.repeat(first)

    compiled = pyframe.compile(made, backend=backend, fullgraph=True)
    for sizes in ([1, 3], [4, 0], [2, 2]):
        torch.testing.assert_close(compiled(torch.tensor(sizes), torch.ones(4)), made(torch.tensor(sizes), torch.ones(4)))
    for bad in ([1, 1], [-1, 5]):
        with pytest.raises(RuntimeError):
            compiled(torch.tensor(bad), torch.ones(4))


def test_a_handler_sees_the_error_of_a_size_read_from_a_tensor():
    def made(size, log):
        log.append("tries")
        try:
            return torch.zeros(size.item()).sum()
        except RuntimeError:
            log.append("fails")
            return size

    compiled = pyframe.compile(made, backend="eager")
    for size in (2, 0, -1, 3, -1):
        log, expected = [], []
        assert compiled(torch.tensor(size), log) == made(torch.tensor(size), expected)
        assert log == expected


def test_repeating_an_empty_tensor_takes_any_number():
    def repeated(count, x):
        return x.repeat(count.item()) + 1

    compiled = pyframe.compile(repeated, backend="eager")
    assert compiled(torch.tensor(2), torch.ones(0)).shape == compiled(torch.tensor(-1), torch.ones(0)).shape == (0,)


# ---- generators ----
def test_a_generator_suspended_in_a_handler_that_passes_its_end_on():
    def thrown(x):
        def values():
            try:
                yield x
            except ValueError as error:
                yield x + len(error.args)

        values_of_x = values()
        return next(values_of_x), values_of_x.throw(ValueError("text"))

    check(thrown, X, graphs=1, breaks=0)


def test_a_generator_suspended_in_a_handler_inside_of_a_try():
    """The end of the function ends the generator, which runs the outer `finally`."""

    def first(values):
        return next(values())

    def counted(x):
        log = []

        def values():
            try:
                try:
                    yield x
                except ValueError:
                    yield x + 1
            finally:
                log.append("ended")

        return first(values) + len(log), log

    check(counted, X)


# ---- objects ----
class Operation(NamedTuple):
    function: Callable[[torch.Tensor], torch.Tensor]
    x: torch.Tensor


def test_a_function_in_a_field_of_a_named_tuple():
    def applied(x):
        operation = Operation(torch.sin, x)
        return operation.function(operation.x)

    check(applied, X, graphs=1, breaks=0)


def doubled(x):
    return x * 2


KNOWN = frozenset({doubled, torch.sin, 1})


def test_functions_in_a_frozenset():
    def applied(x):
        return doubled(x) if doubled in KNOWN and torch.cos not in KNOWN and len(KNOWN) == 3 else x

    check(applied, X, graphs=1, breaks=0)


class Columns(enum.IntEnum):
    FIRST = 0
    SECOND = 1

    @classmethod
    @property
    def every(cls):
        return slice(cls.FIRST, cls.SECOND + 1)


@pytest.mark.skipif(not CLASSMETHODS_CHAIN, reason="not a property of the class from CPython 3.13 on")
def test_a_property_of_a_class():
    check(lambda x: x[Columns.every] * 2, X, graphs=1, breaks=0)


@torch.jit.script
def scripted(x):
    return x.sin() + 1


def branching(x):
    return x + 1 if x.sum() > 0 else x - 1


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    recorded = torch.jit.trace(branching, torch.ones(2))


def test_a_scripted_function_is_traced_and_a_recorded_one_keeps_its_branch():
    check(lambda x: scripted(x) * 2, X, graphs=1, breaks=0)
    check(lambda x: recorded(x - 10), X)


@torch.compiler.nested_compile_region
def region(x):
    return x.sin()


def test_a_nested_compile_region_is_traced():
    check(lambda x: region(x) + region(x + 1), X, graphs=1, breaks=0)


def test_a_constant_result_of_a_tensor():
    @pyframe.assume_constant_result
    def size_class(x):
        return 3 if x.sum() > 0 else 4

    check(lambda x: x + size_class(x), X, graphs=1, breaks=0)

    def written_before(x):
        x.sub_(10)
        return x + size_class(x)

    given = X.clone()
    torch.testing.assert_close(pyframe.compile(written_before)(given), X - 10 + 4)


def test_torch_compile_inside_of_a_traced_function():
    module = torch.nn.Tanh()

    def compiled_inside(x):
        @torch.compile(dynamic=True)
        def added(y):
            return y + x

        return torch.compile(doubled, fullgraph=True)(x), added(x), torch.compile(module)(x)

    found = pyframe.compile(compiled_inside, backend="eager", fullgraph=True)(X)
    torch.testing.assert_close(found, (X * 2, X + X, X.tanh()))


def test_a_result_of_torch_compile_that_the_program_keeps():
    kept, x = pyframe.compile(lambda x: (torch.compile(doubled, backend="eager"), x + 1), backend="eager")(X)
    assert kept is not doubled and kept.__name__ == "doubled"
    torch.testing.assert_close(x, X + 1)


def test_what_torch_compile_returned_before_is_traced():
    linear = torch.nn.Linear(2, 2)
    in_place = torch.nn.Linear(2, 2)
    in_place.compile(backend="eager")
    module, function = torch.compile(linear, backend="eager"), torch.compile(doubled, backend="eager")

    class Holder:
        @torch.compile(backend="eager", fullgraph=True)
        def method(self, x, scale=1):
            return x * scale

    holder = Holder()

    def program(x):
        return module(x) + in_place(x), function(x) + 1, holder.method(x, scale=3), module.weight.sum(), function

    expected = (linear(X) + in_place._call_impl(X), X * 2 + 1, X * 3, linear.weight.sum())
    *found, kept = pyframe.compile(program, backend="eager", fullgraph=True)(X)
    torch.testing.assert_close(tuple(found), expected)
    assert kept is function


@torch.jit.script
def _scripted(x: torch.Tensor, limit: float) -> torch.Tensor:
    return (x / limit).tanh() * limit


class _Clamps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.clamp = _scripted

    def forward(self, x):
        return _scripted(x, 50.0)


def test_scripted_functions_that_are_read_twice():
    """Their second use was guarded to be the function that torch had scripted, a guard that fails."""
    layers = torch.nn.ModuleList([_Clamps(), _Clamps()])

    def program(x):
        for layer in layers:
            x = layer(x).sin()
        return layers[0].clamp(x, 2.0) + layers[1].clamp(x, 3.0)

    counter = CompileCounter()
    compiled = pyframe.compile(program, backend=counter)
    x = torch.randn(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), program(x))
    assert counter.frame_count == 1

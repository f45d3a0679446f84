"""Functions that the changes of `tools/fuzz_guards.py` call. A printed failure includes their source."""

import copy
import functools
import sys
import types

import torch


def twist(value):
    """A value that differs from `value`; of the same type where that type is a plain one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, torch.Tensor):
        return value + 1 if value.dtype != torch.bool else ~value
    if isinstance(value, (int, float, complex)):
        return value + 1
    if isinstance(value, str):
        return value + "_"
    if type(value) in (tuple, list):
        return type(value)(reversed(value))
    return 17 if value is None else value


def changed(fn):
    """A function that returns a changed result of `fn`."""

    def changed_function(*args, **kwargs):
        return twist(fn(*args, **kwargs))

    return changed_function


def changed_for(fn, namespace):
    """`fn`, with a twisted result where the code of `namespace` calls it; the rest of the process is left alone."""

    def changed_for_program(*args, **kwargs):
        found = fn(*args, **kwargs)
        return twist(found) if sys._getframe(1).f_globals is namespace else found

    return changed_for_program


class Callable:
    """An object that replaces a function and is called instead."""

    def __init__(self, fn):
        self.fn = fn

    def __call__(self, *args, **kwargs):
        return twist(self.fn(*args, **kwargs))


class Data:
    """A data descriptor: wins over what an instance holds."""

    def __init__(self, value):
        self.value = value

    def __get__(self, obj, owner=None):
        return self.value

    def __set__(self, obj, value):
        pass


def constants_changed(fn):
    """The code of `fn` with other numeric constants; if it has none, code that returns 7."""
    code = fn.__code__
    consts = tuple(c + 1 if type(c) in (int, float) else c for c in code.co_consts)
    if consts != code.co_consts:
        return code.replace(co_consts=consts)
    free = code.co_freevars
    lines = ["def outer():", *(f"    {name} = None" for name in free), "    def inner(*args, **kwargs):"]
    lines += [f"        {name}" for name in free]
    scope = {}
    exec("\n".join([*lines, "        return 7", "    return inner"]), scope)
    return scope["outer"]().__code__


def names_changed(fn):
    """The code of `fn` with one attribute name replaced."""
    other = {"sin": "cos", "relu": "gelu", "linear": "bilinear", "value": "n", "n": "value", "limit": "value"}
    return fn.__code__.replace(co_names=tuple(other.get(name, name) for name in fn.__code__.co_names))


def reordered(held):
    """Puts the first item of a dict last, in place."""
    for key in list(held)[:1]:
        held[key] = held.pop(key)


def subclass(cls, **attributes):
    """A class derived from `cls`."""
    return types.new_class("Sub" + cls.__name__, (cls,), {}, lambda body: body.update(attributes))


def as_subclass(value, **attributes):
    """A copy of `value` whose class is derived from the class of `value`."""
    copied = copy.copy(value)
    copied.__class__ = subclass(type(value), **attributes)
    return copied


def derived_container(value):
    """`value`, a built-in container or scalar, as an instance of a subclass."""
    return types.new_class("Derived", (type(value),))(value)


def rename_key(held, key):
    """Moves the item at `key` of a dict to another key, in its place."""
    items = [(twist(k) if k == key else k, v) for k, v in held.items()]
    held.clear()
    held.update(items)


def cache_of(fn):
    """The same function in a new `functools.lru_cache` that changes its results."""
    return functools.lru_cache(changed(fn.__wrapped__))


def hook_output(module, args, output):
    return twist(output)


def hook_input(module, args):
    return tuple(twist(arg) for arg in args)


def added_to_results(self, fn, classes, args=(), kwargs=None):
    """`__torch_function__` of a mode that adds one to the results of multiplications."""
    found = fn(*args, **(kwargs or {}))
    return found + 1 if getattr(fn, "__name__", "") in ("mul", "__mul__", "linear") else found


def swapped(tensor):
    """`tensor`, which has traded places with another one."""
    torch.utils.swap_tensors(tensor, (tensor.detach() * 3).double())
    return tensor


class Doubled(torch.nn.Module):
    """A parametrization, or a module that replaces another one."""

    def forward(self, x):
        return x * 2

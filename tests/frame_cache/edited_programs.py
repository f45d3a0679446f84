"""Source files that are edited between two processes: the capture of the first must not serve in the second.

Each program is a module with a function `program(x)`, which returns `x.mm(x)` and something that Python computes from
what the module `{name}_lib` defines. An edit changes one text in that library and none in the program, so that the key
of the capture stays the same. Texts are replaced without changing the number of lines, so that a function which is not
edited has the same hash.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edited:
    """`library`: the text of the library. `result`: the expression that the program returns beside its tensor; the
    library is `lib`. `old`, `new`: the edit."""

    library: str
    result: str
    old: str
    new: str


FUNCTIONS = {
    "body": Edited("def f():\n    return 1", "lib.f()", "1", "2"),
    "body of a function called by one": Edited(
        "def g():\n    return 1\ndef f():\n    return g()", "lib.f()", "1", "2"),
    "body in a third file": Edited("from os.path import join as f", "lib.f('a', 'b')", "join", "commonprefix") ,
    "default": Edited("def f(n=1):\n    return n", "lib.f()", "=1", "=2"),
    "keyword default": Edited("def f(*, n=1):\n    return n", "lib.f()", "=1", "=2"),
    "default that is a function": Edited(
        "def made(n):\n    return lambda: n\ndef f(g=made(1)):\n    return g()", "lib.f()", "made(1)", "made(2)"),
    "closure": Edited("def made(n):\n    return lambda: n\nf = made(1)", "lib.f()", "(1)", "(2)"),
    "closure of a closure": Edited(
        "def made(n):\n    g = lambda: n\n    return lambda: g()\nf = made(1)", "lib.f()", "made(1)", "made(2)"),
    "lambdas of one line": Edited(
        "fs = [lambda: 1, lambda: 2]\nf = fs[0]", "lib.f()", "fs[0]", "fs[1]"),
    "decorator": Edited(
        "import functools\ndef add(n):\n    def wrap(f):\n        @functools.wraps(f)\n        def g():\n"
        "            return f() + n\n        return g\n    return wrap\n@add(1)\ndef f():\n    return 1",
        "lib.f()", "@add(1)", "@add(2)"),
    "decorator that is left out": Edited(
        "def add(f):\n    def g():\n        return f() + 1\n    g.__qualname__ = f.__qualname__\n    return g\n@add\n"
        "def f():\n    return 1", "lib.f()", "@add", "#"),
    "what is wrapped": Edited(
        "import functools\ndef wrap(f):\n    @functools.wraps(f)\n    def g():\n        return f()\n    return g\n"
        "def a():\n    return 1\ndef b():\n    return 2\nf = wrap(a)", "lib.f()", "wrap(a)", "wrap(b)"),
    "tuple of closures": Edited(
        "def made(n):\n    return lambda: n\nfs = (made(1), made(2))", "lib.fs[0]()", "(made(1)", "(made(3)"),
    "dict of closures": Edited(
        "def made(n):\n    return lambda: n\nfs = {'a': made(1)}", "lib.fs['a']()", "made(1)", "made(3)"),
    "partial": Edited("import functools\nf = functools.partial(pow, 2, 3)", "lib.f()", "2, 3", "3, 3"),
    "partial of a closure": Edited(
        "import functools\ndef made(n):\n    return lambda m: n + m\nf = functools.partial(made(1), 2)", "lib.f()",
        "made(1)", "made(5)"),
    "partial of a dict": Edited(
        "import functools\ndef g(d):\n    return d['a']\nf = functools.partial(g, {'a': 1})", "lib.f()", ": 1", ": 2"),
    "globals of a function": Edited(
        "import types\ndef g():\n    return N\nf = types.FunctionType(g.__code__, {'N': 1})", "lib.f()", "1}", "2}"),
    "exec": Edited("space = {}\nexec('def f():\\n    return 1', space)\nf = space['f']", "lib.f()", "1'", "2'"),
    "global of exec": Edited(
        "space = {'N': 1}\nexec('def f():\\n    return N', space)\nf = space['f']", "lib.f()", "1}", "2}"),
    "lru_cache": Edited("import functools\n@functools.lru_cache\ndef f():\n    return 1", "lib.f()", "1", "2"),
    "singledispatch": Edited(
        "import functools\n@functools.singledispatch\ndef f(x):\n    return 1\nf.register(int, lambda x: 2)\n", "lib.f(3)",
        "int", "str"),
    "generator": Edited("def f():\n    yield 1\n", "list(lib.f())", "1", "2"),
    "context manager": Edited(
        "import contextlib\nn = 0\n@contextlib.contextmanager\ndef f():\n    yield 1\ndef g():\n    with f() as a:\n"
        "        return a", "lib.g()", "yield 1", "yield 2"),
    "name": Edited("def f():\n    return 1\nf.__name__ = 'a'", "lib.f.__name__", "'a'", "'b'"),
    "docstring": Edited("def f():\n    'a'", "lib.f.__doc__", "'a'", "'b'"),
    "annotation": Edited("def f(a: int): pass", "str(lib.f.__annotations__['a'])", "int", "str"),
    "attribute of a function": Edited("def f(): pass\nf.n = 1", "lib.f.n", "1", "2"),
    "signature": Edited(
        "import inspect\ndef f(a, b): pass", "tuple(lib.inspect.signature(lib.f).parameters)", "b", "c"),
    "number of arguments": Edited("def f(a, b=1): pass", "lib.f.__code__.co_argcount", ", b=1", ""),
    "recursion": Edited("def f(n):\n    return 1 if n == 0 else f(n - 1) + 1", "lib.f(3)", "+ 1", "+ 2"),
    "module attribute": Edited("import math\nN = math.pi", "lib.N", "pi", "e"),
    "module __getattr__": Edited("def __getattr__(name):\n    return 1", "lib.anything", "1", "2"),
    "module name": Edited("", "lib.__doc__", "", "'b'"),
    "a builtin that is shadowed": Edited("len_ = len\n", "lib.len_([1, 2])", "= len", "= sum"),
    "sort key": Edited("def key(a):\n    return a\n", "sorted([1, 2, 3], key=lib.key)", "return a", "return -a"),
}  # fmt: skip

CLASSES = {
    "class attribute": Edited("class A:\n    n = 1", "lib.A.n", "1", "2"),
    "class attribute of an instance": Edited("class A:\n    n = 1\na = A()", "lib.a.n", "1", "2"),
    "attribute of a base": Edited("class B:\n    n = 1\nclass A(B): pass\na = A()", "lib.a.n", "1", "2"),
    "attribute that hides one": Edited("class B:\n    n = 1\nclass A(B):\n    m = 2\na = A()", "lib.a.n", "m", "n"),
    "instance attribute": Edited("class A:\n    pass\na = A()\na.n = 1", "lib.a.n", "1", "2"),
    "method": Edited("class A:\n    def f(self):\n        return 1\na = A()", "lib.a.f()", "1", "2"),
    "static method that becomes a class method": Edited(
        "class A:\n    @staticmethod\n    def f(a=1):\n        return a == 1", "lib.A.f()", "staticmethod", "classmethod"),
    "property": Edited("class A:\n    @property\n    def f(self):\n        return 1\na = A()", "lib.a.f", "1", "2"),
    "property of a closure": Edited(
        "def made(n):\n    return property(lambda self: n)\nclass A:\n    f = made(1)\na = A()", "lib.a.f", "(1)", "(2)"),
    "method of a closure": Edited(
        "def made(n):\n    def f(self):\n        return n\n    f.__qualname__ = 'A.f'\n    return f\n"
        "class A:\n    f = made(1)\na = A()", "lib.a.f()", "(1)", "(2)"),
    "cached property": Edited(
        "import functools\nclass A:\n    @functools.cached_property\n    def f(self):\n        return 1\na = A()", "lib.a.f",
        "1", "2"),
    "partial method": Edited(
        "import functools\nclass A:\n    def g(self, n):\n        return n\n    f = functools.partialmethod(g, 1)\na = A()",
        "lib.a.f()", "g, 1", "g, 2"),
    "descriptor": Edited(
        "class D:\n    def __init__(self, n):\n        self.n = n\n    def __get__(self, a, b):\n        return self.n\n"
        "class A:\n    f = D(1)\na = A()", "lib.a.f", "D(1)", "D(2)"),
    "descriptor that becomes data": Edited(
        "class D:\n    def __get__(self, a, b):\n        return 1\n    def set(self, a, b): pass\n"
        "class A:\n    f = D()\na = A()\na.__dict__['f'] = 2", "lib.a.f", "def set", "def __set__"),
    "__getattr__": Edited("class A:\n    def __getattr__(self, n):\n        return 1\na = A()", "lib.a.f", "1", "2"),
    "__getattribute__": Edited(
        "class A:\n    n = 1\n    def get(self, n):\n        return 2\na = A()", "lib.a.n", "get", "__getattribute__"),
    "slots": Edited("class A:\n    __slots__ = ('n', 'm')\na = A()\na.n = a.m = 1", "lib.A.__slots__", "'m'", "'m', 'k'"),
    "value in a slot": Edited("class A:\n    __slots__ = ('n',)\na = A()\na.n = 1", "lib.a.n", "= 1", "= 2"),
    "base": Edited("class B: pass\nclass C: pass\nclass A(B): pass\na = A()", "isinstance(lib.a, lib.B)", "(B)", "(C)"),
    "issubclass": Edited("class B: pass\nclass C: pass\nclass A(B): pass", "issubclass(lib.A, lib.B)", "(B)", "(C)"),
    "classes in isinstance": Edited("class B: pass\nK = (int, B)\na = 1", "isinstance(lib.a, lib.K)", "int", "str"),
    "union in isinstance": Edited("K = int | float\na = 1", "isinstance(lib.a, lib.K)", "int", "str"),
    "order of bases": Edited(
        "class B:\n    n = 1\nclass C:\n    n = 2\nclass A(B, C): pass", "lib.A.n", "B, C)", "C, B)"),
    "super": Edited(
        "class B:\n    def f(self):\n        return 1\nclass C:\n    def f(self):\n        return 2\nclass A(B):\n"
        "    def f(self):\n        return super().f()\na = A()", "lib.a.f()", "A(B)", "A(C)"),
    "length of the MRO": Edited("class B: pass\nclass A(B): pass", "len(lib.A.__mro__)", "A(B)", "A"),
    "bases": Edited("class B: pass\nclass A(B): pass", "lib.A.__bases__[0].__name__", "A(B)", "A"),
    "subclasses": Edited("class B: pass\nclass A(B): pass", "len(lib.B.__subclasses__())", "A(B)", "A"),
    "metaclass attribute": Edited("class M(type):\n    n = 1\nclass A(metaclass=M): pass", "lib.A.n", "1", "2"),
    "metaclass call": Edited(
        "class M(type):\n    def __call__(cls):\n        return 1\nclass A(metaclass=M): pass", "lib.A()", "1", "2"),
    "metaclass instancecheck": Edited(
        "class M(type):\n    def __instancecheck__(cls, a):\n        return True\nclass A(metaclass=M): pass",
        "isinstance(1, lib.A)", "True", "False"),
    "abstract base": Edited(
        "import abc\nclass A(abc.ABC): pass\nclass B: pass\nclass C: pass\nA.register(B)\nb = B()", "isinstance(lib.b, lib.A)",
        "register(B)", "register(C)"),
    "abstract base of lists": Edited(
        "import collections.abc\nclass B:\n    def __len__(self):\n        return 1\nb = B()",
        "isinstance(lib.b, lib.collections.abc.Sized)", "__len__", "length"),
    "protocol": Edited(
        "import typing\n@typing.runtime_checkable\nclass A(typing.Protocol):\n    def f(self): pass\nclass B:\n"
        "    def f(self): pass\nb = B()", "isinstance(lib.b, lib.A)", "class B:\n    def f", "class B:\n    def g"),
    "__init_subclass__": Edited(
        "class B:\n    def __init_subclass__(cls):\n        cls.n = 1\nclass A(B): pass", "lib.A.n", "= 1", "= 2"),
    "__class_getitem__": Edited(
        "class A:\n    def __class_getitem__(cls, n):\n        return 1\n", "lib.A[0]", "1", "2"),
    "__init__": Edited("class A:\n    def __init__(self):\n        self.n = 1\n", "lib.A().n", "1", "2"),
    "__new__": Edited(
        "class A:\n    def __new__(cls):\n        a = object.__new__(cls)\n        a.n = 1\n        return a\n", "lib.A().n",
        "1", "2"),
    "__eq__": Edited("class A:\n    def __eq__(self, b):\n        return 1\na = A()", "lib.a == 3", "1", "2"),
    "__eq__ that is added": Edited(
        "class A:\n    def eq(self, b):\n        return True\na, b = A(), A()", "lib.a == lib.b", "eq", "__eq__"),
    "__bool__": Edited("class A:\n    def __bool__(self):\n        return True\na = A()", "bool(lib.a)", "True", "False"),
    "__len__": Edited("class A:\n    def __len__(self):\n        return 1\na = A()", "len(lib.a)", "1", "2"),
    "__bool__ by __len__": Edited("class A:\n    def length(self):\n        return 0\na = A()", "bool(lib.a)", "length", "__len__"),
    "__iter__": Edited("class A:\n    def __iter__(self):\n        yield 1\na = A()", "list(lib.a)", "1", "2"),
    "__contains__": Edited("class A:\n    def __contains__(self, n):\n        return True\na = A()", "1 in lib.a", "True", "False"),
    "__call__": Edited("class A:\n    def __call__(self):\n        return 1\na = A()", "lib.a()", "1", "2"),
    "__getitem__": Edited("class A:\n    def __getitem__(self, n):\n        return 1\na = A()", "lib.a[0]", "1", "2"),
    "__radd__": Edited("class A:\n    def __radd__(self, n):\n        return 1\na = A()", "1 + lib.a", "return 1", "return 2"),
    "__add__ of a subclass first": Edited(
        "class B:\n    def __add__(self, n):\n        return 1\nclass A(B):\n    def radd(self, n):\n        return 2\na, b = A(), B()",
        "lib.b + lib.a", "radd", "__radd__"),
    "__enter__": Edited(
        "class A:\n    def __enter__(self):\n        return 1\n    def __exit__(self, *a): pass\na = A()\ndef f():\n"
        "    with a as b:\n        return b", "lib.f()", "return 1", "return 2"),
    "__exit__ that swallows": Edited(
        "class A:\n    def __enter__(self): pass\n    def __exit__(self, *a):\n        return True\na = A()\ndef f():\n"
        "    try:\n        with a:\n            raise ValueError\n        return 1\n    except ValueError:\n        return 2",
        "lib.f()", "True", "False"),
    "__str__": Edited("class A:\n    def __str__(self):\n        return 'a'\na = A()", "str(lib.a)", "'a'", "'b'"),
    "__format__": Edited("class A:\n    def __format__(self, s):\n        return 'a'\na = A()", "f'{lib.a}'", "'a'", "'b'"),
    "__index__": Edited("class A:\n    def __index__(self):\n        return 0\na = A()", "[1, 2][lib.a]", "0", "1"),
    "__missing__": Edited("class A(dict):\n    def __missing__(self, k):\n        return 1\na = A()", "lib.a['k']", "1", "2"),
    "__hash__": Edited("class A:\n    def __hash__(self):\n        return 1\na = A()", "hash(lib.a)", "1", "2"),
    "__match_args__": Edited(
        "class A:\n    __match_args__ = ('n',)\n    n = 1\n    m = 2\na = A()\ndef f():\n    match a:\n        case A(v):\n"
        "            return v", "lib.f()", "('n',)", "('m',)"),
    "exception class": Edited(
        "class E(ValueError): pass\ndef f():\n    try:\n        raise E\n    except ValueError:\n        return 1\n"
        "    except Exception:\n        return 2", "lib.f()", "(ValueError): pass", "(TypeError): pass"),
    "name of a class": Edited("class A: pass\nA.__name__ = 'a'", "lib.A.__name__", "'a'", "'b'"),
    "module of a class": Edited("class A: pass\nA.__module__ = 'a'", "lib.A.__module__", "'a'", "'b'"),
    "repr of a class": Edited("class A: pass\n", "'B' in repr(lib.A)", "pass", "__qualname__ = 'B'"),
    "dict of a class": Edited("class A:\n    n = 1", "'m' in vars(lib.A)", "n =", "m ="),
    "hasattr": Edited("class A:\n    n = 1\na = A()", "hasattr(lib.a, 'm')", "n =", "m ="),
    "getattr with a default": Edited("class A:\n    n = 1\na = A()", "getattr(lib.a, 'm', 0)", "n =", "m ="),
    "local class": Edited("def made(k):\n    class A:\n        n = k\n    return A\nA = made(1)", "lib.A.n", "made(1)", "made(2)"),
    "class made by type": Edited("A = type('A', (), {'n': 1})", "lib.A.n", "1", "2"),
    "local class with another base": Edited(
        "def made(b):\n    class A(b): pass\n    return A\nA = made(int)", "isinstance(lib.A(), int)", "made(int)", "made(str)"),
    "dataclass default": Edited(
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int = 1", "lib.A().n", "1", "2"),
    "dataclass default factory": Edited(
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int = dataclasses.field(default_factory=lambda: 1)",
        "lib.A().n", "1", "2"),
    "dataclass fields": Edited(
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int = 1",
        "[f.name for f in lib.dataclasses.fields(lib.A)]", "n:", "m:"),
    "default of a dataclass field": Edited(
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int = 1",
        "[f.default for f in lib.dataclasses.fields(lib.A)]", "1", "2"),
    "metadata of a dataclass field": Edited(
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int = dataclasses.field(default=1, metadata={'k': 1})",
        "[f.metadata['k'] for f in lib.dataclasses.fields(lib.A)]", "': 1", "': 2"),
    "dataclass order of arguments": Edited(
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int = 0; m: int = 0", "lib.A(1).n",
        "n: int = 0; m: int = 0", "m: int = 0; n: int = 0"),
    "dataclass eq": Edited(
        "import dataclasses\n@dataclasses.dataclass(eq=True)\nclass A:\n    n: int = 1", "lib.A() == lib.A()", "=True", "=False"),
    "dataclass frozen": Edited(
        "import dataclasses\n@dataclasses.dataclass(frozen=False)\nclass A:\n    n: int = 1\ndef f():\n    a = A()\n    try:\n"
        "        a.n = 2\n    except Exception:\n        pass\n    return a.n", "lib.f()", "=False", "=True"),
    "post init": Edited(
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int = 1\n    def __post_init__(self):\n        self.m = 1",
        "lib.A().m", "m = 1", "m = 2"),
    "named tuple": Edited(
        "import collections\nA = collections.namedtuple('A', 'n m')\na = A(1, 2)", "lib.a.n", "'n m'", "'m n'"),
    "named tuple default": Edited(
        "import typing\nclass A(typing.NamedTuple):\n    n: int = 1", "lib.A().n", "1", "2"),
    "named tuple fields": Edited("import collections\nA = collections.namedtuple('A', 'n m')", "lib.A._fields", "'n m'", "'n k'"),
    "enum value": Edited("import enum\nclass A(enum.Enum):\n    n = 1", "lib.A.n.value", "1", "2"),
    "enum members": Edited("import enum\nclass A(enum.Enum):\n    n = 1; m = 2", "len(lib.A)", "m = 2", "pass"),
    "enum iteration": Edited("import enum\nclass A(enum.Enum):\n    n = 1; m = 2", "[a.name for a in lib.A]", "n = 1; m = 2", "m = 1; n = 2"),
    "enum by value": Edited("import enum\nclass A(enum.Enum):\n    n = 1; m = 2", "lib.A(1).name", "n = 1; m = 2", "m = 1; n = 2"),
    "enum by name": Edited("import enum\nclass A(enum.Enum):\n    n = 1; m = 2", "lib.A['n'].value", "n = 1; m = 2", "m = 1; n = 2"),
    "enum alias": Edited("import enum\nclass A(enum.Enum):\n    n = 1; m = 1", "lib.A.n is lib.A.m", "m = 1", "m = 2"),
    "enum has a value": Edited("import enum\nclass A(enum.Enum):\n    n = 1; m = 2", "'m' in lib.A.__members__", "m =", "k ="),
    "flag": Edited("import enum\nclass A(enum.Flag):\n    n = 1; m = 2\na = A.n | A.m", "lib.A.m in lib.a", "A.n | A.m", "A.n | A.n"),
    "method of an enum": Edited("import enum\nclass A(enum.Enum):\n    n = 1\n    def f(self):\n        return 1", "lib.A.n.f()", "return 1", "return 2"),
    "__str__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __str__(self):\n        return 'a'", "str(lib.A.n)", "return 'a'", "return 'b'"),
    "__repr__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __repr__(self):\n        return 'a'", "f'{lib.A.n!r}'", "return 'a'", "return 'b'"),
    "__format__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __format__(self, s):\n        return 'a'", "f'{lib.A.n}'", "return 'a'", "return 'b'"),
    "__lt__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __lt__(self, o):\n        return True", "lib.A.n < lib.A.m", "return True", "return False"),
    "__eq__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __eq__(self, o):\n        return True", "lib.A.n == lib.A.m", "return True", "return False"),
    "__add__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __add__(self, o):\n        return 1", "lib.A.n + lib.A.m", "return 1", "return 7"),
    "__bool__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __bool__(self):\n        return True", "bool(lib.A.n)", "return True", "return False"),
    "__neg__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __neg__(self):\n        return 1", "-lib.A.n", "return 1", "return 7"),
    "__len__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __len__(self):\n        return 1", "len(lib.A.n)", "return 1", "return 7"),
    "__contains__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __contains__(self, o):\n        return True", "1 in lib.A.n", "return True", "return False"),
    "__getitem__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __getitem__(self, o):\n        return 1", "lib.A.n[0]", "return 1", "return 7"),
    "__call__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __call__(self):\n        return 1", "lib.A.n()", "return 1", "return 7"),
    "__iter__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __iter__(self):\n        return iter('a')", "list(lib.A.n)", "return iter('a')", "return iter('b')"),
    "__index__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __index__(self):\n        return 1", "[5, 6][lib.A.n]", "return 1", "return 0"),
    "__getattr__ of an enum": Edited(
        "import enum\nclass A(enum.Enum):\n    n = 11; m = 12\n    def __getattr__(self, k):\n        return 1", "lib.A.n.zzz", "return 1", "return 7"),
    "int subclass": Edited("class A(int): pass\na = A(1)\n", "lib.a + 0", "A(1)", "A(2)"),
    "attribute of an int": Edited("class A(int): pass\na = A(1)\na.n = 1", "lib.a.n", "n = 1", "n = 2"),
    "str subclass": Edited("class A(str): pass\na = A('a')\n", "lib.a + ''", "'a'", "'b'"),
    "list subclass": Edited("class A(list):\n    def __len__(self):\n        return 7\na = A([1])", "len(lib.a)", "7", "8"),
    "dict subclass": Edited("class A(dict):\n    def __getitem__(self, k):\n        return 7\na = A(k=1)", "lib.a['k']", "7", "8"),
    "tuple subclass": Edited("class A(tuple): pass\na = A((1, 2))", "lib.a[0]", "1", "3"),
    "weak reference": Edited("import weakref\nclass A: pass\na = A()\nr = weakref.ref(a)", "lib.r() is None", "ref(a)", "ref(A())"),
}  # fmt: skip

VALUES = {
    "int and bool": Edited("N = 1", "lib.N", "1", "True"),
    "int and float": Edited("N = 1", "lib.N", "1", "1.0"),
    "signed zero": Edited("N = 0.0", "str(lib.N)", "0.0", "-0.0"),
    "nan": Edited("N = float('nan')", "lib.N != lib.N", "nan", "inf"),
    "complex": Edited("N = 1j", "lib.N", "1j", "2j"),
    "large int": Edited("N = 2 ** 70", "lib.N", "70", "71"),
    "bytes": Edited("N = b'a'", "lib.N", "'a'", "'b'"),
    "tuple": Edited("N = (1, (2, 3))", "lib.N", "3", "4"),
    "tuple of bools": Edited("N = (1, 0)", "lib.N", "(1, 0)", "(True, 0)"),
    "list": Edited("N = [1, [2, 3]]", "lib.N[1][1]", "3", "4"),
    "dict order": Edited("N = {'a': 1, 'b': 2}", "list(lib.N)", "'a': 1, 'b': 2", "'b': 2, 'a': 1"),
    "dict value": Edited("N = {'a': 1, 'b': 2}", "lib.N['a']", "1", "3"),
    "dict keys": Edited("N = {'a': 1, 'b': 2}", "'b' in lib.N", "'b'", "'c'"),
    "set": Edited("N = {1, 2}", "2 in lib.N", "2", "3"),
    "frozen set": Edited("N = frozenset((1, 2))", "2 in lib.N", "2", "3"),
    "length of a set": Edited("N = {1, 2}", "len(lib.N)", "2", "2, 3"),
    "range": Edited("N = range(3)", "list(lib.N)", "3", "4"),
    "slice": Edited("N = slice(1)", "[1, 2, 3][lib.N]", "1", "2"),
    "deque": Edited("import collections\nN = collections.deque([1, 2], 2)", "lib.N.maxlen", ", 2)", ", 3)"),
    "items of a deque": Edited("import collections\nN = collections.deque([1, 2])", "lib.N[0]", "[1", "[3"),
    "default factory": Edited("import collections\nN = collections.defaultdict(int)", "lib.N['a']", "int", "float"),
    "counter": Edited("import collections\nN = collections.Counter('aab')", "lib.N['a']", "aab", "abb"),
    "ordered dict": Edited("import collections\nN = collections.OrderedDict(a=1, b=2)", "list(lib.N)", "a=1, b=2", "b=2, a=1"),
    "chain map": Edited("import collections\nN = collections.ChainMap({'a': 1})", "lib.N['a']", "1", "2"),
    "mapping proxy": Edited("import types\nN = types.MappingProxyType({'a': 1})", "lib.N['a']", "1", "2"),
    "namespace": Edited("import types\nN = types.SimpleNamespace(a=1)", "lib.N.a", "1", "2"),
    "itertools": Edited("import itertools\nN = itertools.count(1)", "next(lib.N)", "1", "2"),
    "decimal": Edited("import decimal\nN = decimal.Decimal(1)", "float(lib.N)", "1", "2"),
    "fraction": Edited("import fractions\nN = fractions.Fraction(1, 2)", "lib.N.numerator", "1, 2", "3, 2"),
    "date": Edited("import datetime\nN = datetime.date(2020, 1, 1)", "lib.N.year", "2020", "2021"),
    "pattern": Edited("import re\nN = re.compile('a+')", "lib.N.match('aab').group()", "a+", "a"),
    "path": Edited("import pathlib\nN = pathlib.Path('a')", "str(lib.N)", "'a'", "'b'"),
    "generic alias": Edited("N = list[int]", "lib.N == list[int]", "int", "str"),
    "typing": Edited("import typing\nN = typing.Optional[int]", "lib.N == lib.typing.Optional[int]", "int", "str"),
    "sentinel": Edited("A = object()\nB = object()", "lib.A is lib.B", "B = object()", "B = A"),
    "thread local": Edited("import threading\nN = threading.local()\nN.a = 1", "lib.N.a", "1", "2"),
    "random generator": Edited("import random\nN = random.Random(1)", "lib.N.random()", "(1)", "(2)"),
    "logger": Edited("import logging\nN = logging.getLogger('a')\nN.setLevel(10)", "lib.N.isEnabledFor(10)", "(10)", "(20)"),
}  # fmt: skip

PROCESS = {
    "environment": Edited("import os\nos.environ['FRAMES_A'] = '1'", "lib.os.environ.get('FRAMES_A')", "'1'", "'2'"),
    "getenv": Edited("import os\nos.environ['FRAMES_B'] = '1'", "lib.os.getenv('FRAMES_B')", "'1'", "'2'"),
    "in environment": Edited("import os\nos.environ['FRAMES_C'] = '1'", "'FRAMES_C' in lib.os.environ", "_C", "_D"),
    "arguments": Edited("import sys\nsys.argv.append('1')", "lib.sys.argv[-1]", "'1'", "'2'"),
    "random seed": Edited("import random\nrandom.seed(1)", "lib.random.random()", "1", "2"),
    "module that is imported": Edited("import sys\nsys.modules['frames_x'] = sys", "'frames_x' in lib.sys.modules", "_x", "_y"),
    "warning filters": Edited("import warnings\nwarnings.simplefilter('ignore')", "lib.warnings.filters[0][0]", "ignore", "always"),
    "hook": Edited("import sys\nsys.displayhook = abs", "lib.sys.displayhook is abs", "abs", "len"),
}  # fmt: skip

TORCH = {
    "global tensor's size": Edited("import torch\nN = torch.ones(3)", "lib.N.shape[0]", "3", "4"),
    "global tensor's dtype": Edited("import torch\nN = torch.ones(3, dtype=torch.float32)", "str(lib.N.dtype)", "float32", "float64"),
    "global tensor's grad": Edited("import torch\nN = torch.ones(3, requires_grad=False)", "lib.N.requires_grad", "False", "True"),
    "global tensor's leaf": Edited("import torch\nN = torch.ones(3, requires_grad=True)\nM = N", "lib.M.is_leaf", "M = N", "torch.set_grad_enabled(True); M = N * 2; torch.set_grad_enabled(False)"),
    "global tensor's stride": Edited("import torch\nN = torch.ones(3, 3)", "lib.N.t().is_contiguous()", ")", ").t()"),
    "global tensor's class": Edited("import torch\nN = torch.ones(3)", "type(lib.N).__name__", "torch.ones(3)", "torch.nn.Parameter(torch.ones(3), False)"),
    "attribute of a tensor": Edited("import torch\nN = torch.ones(3)\nN.n = 1", "lib.N.n", "n = 1", "n = 2"),
    "value of a tensor": Edited("import torch\nN = torch.full((), 1)", "int(lib.N)", "1", "2"),
    "value of a tensor as a list": Edited("import torch\nN = torch.tensor([1])", "lib.N.tolist()", "1", "2"),
    "gradient of a tensor": Edited("import torch\nN = torch.ones(3)\nM = N", "lib.N.grad is None", "M = N", "N.grad = N + 1"),
    "size": Edited("import torch\nN = torch.Size((1,))", "tuple(lib.N)", "1", "2"),
    "dtype": Edited("import torch\nN = torch.float32", "lib.N.itemsize", "float32", "float64"),
    "device": Edited("import torch\nN = torch.device('cpu')", "lib.N.type", "cpu", "meta"),
    "finfo": Edited("import torch\nN = torch.finfo(torch.float32)", "lib.N.bits", "float32", "float64"),
    "seed": Edited("import torch\ntorch.manual_seed(1)", "torch.initial_seed()", "1", "2"),
    "module attribute": Edited("import torch\nm = torch.nn.ReLU()\nm.n = 1", "lib.m.n", "n = 1", "n = 2"),
    "module training": Edited("import torch\nm = torch.nn.Dropout().train()", "lib.m.training", "train", "eval"),
    "module names": Edited("import torch\nm = torch.nn.Module()\nm.a = torch.nn.ReLU()", "[n for n, _ in lib.m.named_modules()]", "m.a", "m.b"),
    "parameter names": Edited("import torch\nm = torch.nn.Module()\nm.a = torch.nn.Parameter(torch.ones(1))", "[n for n, _ in lib.m.named_parameters()]", "m.a", "m.b"),
    "module order": Edited(
        "import torch\nm = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())", "[type(n).__name__ for n in lib.m]",
        "torch.nn.ReLU(), torch.nn.Tanh()", "torch.nn.Tanh(), torch.nn.ReLU()"),
    "module dict": Edited("import torch\nm = torch.nn.ModuleDict({'a': torch.nn.ReLU()})", "list(lib.m)", "'a'", "'b'"),
    "parameter dict": Edited("import torch\nm = torch.nn.ParameterDict({'a': torch.ones(1)})", "list(lib.m)", "'a'", "'b'"),
    "persistent buffer": Edited(
        "import torch\nm = torch.nn.Module()\nm.register_buffer('a', torch.ones(1), persistent=True)",
        "'a' in lib.m._non_persistent_buffers_set", "=True", "=False"),
    "forward hook": Edited(
        "import torch\nm = torch.nn.Identity()\nm.register_forward_hook(lambda m, i, o: 1)", "lib.m(3)", "1", "2"),
    "forward hook that is added": Edited(
        "import torch\nm = torch.nn.Identity()\nm.x = lambda m, i, o: 1\n", "lib.m(3)", "m.x = lambda m, i, o: 1",
        "m.register_forward_hook(lambda m, i, o: 1)"),
    "forward pre-hook": Edited(
        "import torch\nm = torch.nn.Identity()\nm.register_forward_pre_hook(lambda m, i: (1,))", "lib.m(3)", "(1,)", "(2,)"),
    "parametrization": Edited(
        "import torch\nclass P(torch.nn.Module):\n    n = 1\n    def forward(self, x):\n        return x[:self.n]\n"
        "m = torch.nn.Linear(4, 4)\ntorch.nn.utils.parametrize.register_parametrization(m, 'weight', P(), unsafe=True)",
        "lib.m.weight.shape[0]", "n = 1", "n = 2"),
    "autograd function": Edited(
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x[:1]\n",
        "lib.F.apply(x).shape[0]", ":1", ":2"),
    "tensor subclass": Edited(
        "import torch\nclass A(torch.Tensor):\n    n = 1\nN = torch.ones(2).as_subclass(A)", "lib.N.n", "n = 1", "n = 2"),
    "__torch_function__": Edited(
        "import torch\nclass A:\n    @classmethod\n    def __torch_function__(cls, f, t, a=(), k=None):\n        return 1\na = A()",
        "torch.sin(lib.a)", "return 1", "return 2"),
}  # fmt: skip

NUMPY = {
    "numpy number": Edited("import numpy\nN = numpy.float64(1)", "float(lib.N)", "(1)", "(2)"),
    "numpy integer": Edited("import numpy\nN = numpy.int64(1)", "int(lib.N)", "(1)", "(2)"),
    "numpy array's shape": Edited("import numpy\nN = numpy.ones(1)", "lib.N.shape[0]", "(1)", "(2)"),
    "numpy array": Edited("import numpy\nN = numpy.ones(2)", "float(lib.N[0])", "ones", "zeros"),
    "numpy dtype": Edited("import numpy\nN = numpy.dtype('int32')", "lib.N.itemsize", "32", "64"),
    "numpy seed": Edited("import numpy\nnumpy.random.seed(1)", "float(lib.numpy.random.rand())", "(1)", "(2)"),
    "numpy function": Edited("import numpy\nf = numpy.sqrt", "float(lib.f(4.0))", "sqrt", "square"),
}  # fmt: skip

# The last ones, because what they import and set is part of the keys of captures.
LIBRARIES = {
    "einsum path": Edited("import torch\ntorch.backends.opt_einsum.strategy = 'auto'", "torch.backends.opt_einsum.strategy", "auto", "greedy"),
    "custom operator": Edited(
        "import torch\n@torch.library.custom_op(__name__ + '::op', mutates_args=())\ndef f(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x + 1\n@f.register_fake\ndef _(x):\n    return torch.empty_like(x)", "float(lib.f(x).sum())", "x + 1", "x + 2"),
    "size of a custom operator": Edited(
        "import torch\nlibrary = torch.library.Library(__name__, 'DEF')\nlibrary.define('op(Tensor x) -> Tensor')\n"
        "@torch.library.impl(library, 'op', 'CompositeImplicitAutograd')\ndef f(x):\n    return x[:1].clone()\n"
        "op = getattr(torch.ops, __name__).op", "lib.op(x).shape[0]", ":1", ":2"),
    "pytree": Edited(
        "import torch\nfrom torch.utils import _pytree\nclass A: pass\n"
        "_pytree.register_pytree_node(A, lambda a: ([1], None), lambda c, n: A())", "torch.utils._pytree.tree_leaves(lib.A())"
        " if False else torch.utils._pytree.tree_flatten(lib.A())[0]", "[1]", "[2]"),
}  # fmt: skip

EDITED: dict[str, Edited] = {
    f"{name} ({group})": each
    for group, table in (("functions", FUNCTIONS), ("classes", CLASSES), ("values", VALUES), ("process", PROCESS),
                         ("torch", TORCH), ("numpy", NUMPY), ("libraries", LIBRARIES))
    for name, each in table.items()
}  # fmt: skip

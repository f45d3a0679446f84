"""Programs about descriptors, metaclasses, contexts, operators and inheritance of classes."""
# ruff: noqa: B904, E501, UP008  (some programs are about super(A, self))

from __future__ import annotations

import contextlib
import copy
import functools
import typing
import weakref
from typing import Any

from .programs import program, x


@program
def descriptors_with_names() -> Any:
    class Scaled:
        def __set_name__(self, owner: Any, name: str) -> None:
            self.name = "_" + name
            owner.registered = (*getattr(owner, "registered", ()), name)

        def __get__(self, obj: Any, owner: Any = None) -> Any:
            return self if obj is None else getattr(obj, self.name) * 2

        def __set__(self, obj: Any, value: Any) -> None:
            if isinstance(value, str):
                raise TypeError("no text")
            setattr(obj, self.name, value + 1)

        def __delete__(self, obj: Any) -> None:
            delattr(obj, self.name)

    class Holder:
        a = Scaled()
        b = Scaled()

    def f(a: Any) -> Any:
        h = Holder()
        h.a, h.b = a, 3
        before = h.a
        del h.b
        try:
            h.a = "s"
        except TypeError as e:
            text = str(e)
        return before, hasattr(h, "b"), Holder.registered, type(Holder.a).__name__, text, vars(h)

    return f, [(x(),)]


@program
def properties_with_setters() -> Any:
    class Holder:
        def __init__(self) -> None:
            self._v = None
            self.log: list[str] = []

        @property
        def v(self) -> Any:
            self.log.append("get")
            return self._v

        @v.setter
        def v(self, value: Any) -> None:
            self.log.append("set")
            self._v = value

        @v.deleter
        def v(self) -> None:
            self.log.append("del")
            self._v = None

    h = Holder()

    def f(a: Any) -> Any:
        h.v = a
        h.v += 1
        r = h.v
        del h.v
        try:
            Holder.v.fget(3)
        except AttributeError as e:
            return r, str(e)

    return f, [(x(),), (x(),)], lambda: h.log


@program
def metaclasses() -> Any:
    class Meta(type):
        registry: dict[str, Any] = {}

        def __new__(mcs, name: str, bases: Any, ns: Any, **kwargs: Any) -> Any:
            cls = super().__new__(mcs, name, bases, ns)
            mcs.registry[name] = kwargs.get("tag")
            return cls

        def __call__(cls, *args: Any) -> Any:
            made = super().__call__(*args)
            made.made_by = cls.__name__
            return made

        def __len__(cls) -> int:
            return 3

        def __getitem__(cls, k: int) -> int:
            return k * 2

        def __contains__(cls, k: int) -> bool:
            return k == 5

        def __iter__(cls) -> Any:
            return iter((1, 2))

    class A(metaclass=Meta, tag="t"):
        def __init__(self, k: int) -> None:
            self.k = k

    def f(a: Any) -> Any:
        v = A(4)
        return a * v.k + len(A) + A[3], v.made_by, 5 in A, list(A), Meta.registry

    return f, [(x(),)]


@program
def class_getitem_and_init_subclass() -> Any:
    class Base:
        names: list[str] = []

        def __init_subclass__(cls, /, tag: str = "", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.names.append(cls.__name__ + tag)

        def __class_getitem__(cls, k: Any) -> Any:
            return (cls.__name__, k)

    def f(a: Any) -> Any:
        class C(Base, tag="!"):
            pass

        return a + len(Base.names), C[3], Base[int, 2], list(Base.names)

    return f, [(x(),), (x(),)], lambda: Base.names


@program
def attribute_hooks() -> Any:
    class Lazy:
        def __init__(self) -> None:
            self.known = 1

        def __getattr__(self, name: str) -> Any:
            if name.startswith("no"):
                raise AttributeError(name + "?")
            return len(name)

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name.upper() if name == "up" else name, value)

        def __delattr__(self, name: str) -> None:
            object.__delattr__(self, name.upper())

        def __dir__(self) -> Any:
            return ["p", "q"]

    class Always:
        def __getattribute__(self, name: str) -> Any:
            if name == "k":
                return 5
            return object.__getattribute__(self, name)

    def f(a: Any) -> Any:
        v = Lazy()
        v.up = a
        r = v.UP * v.four + Always().k
        del v.up
        return r, getattr(v, "no", "default"), hasattr(v, "none"), dir(v), v.known, vars(v)

    return f, [(x(),)]


@program
def slots_and_errors() -> Any:
    class P:
        __slots__ = ("a", "b")

        def __init__(self, a: Any) -> None:
            self.a = a

    class Q(P):
        __slots__ = ("c",)

    def f(a: Any) -> Any:
        q = Q(a)
        texts = []
        for name in ("b", "d"):
            try:
                getattr(q, name)
            except AttributeError as e:
                texts.append(str(e))
        try:
            q.d = 4
        except AttributeError as e:
            texts.append(str(e))
        q.c = q.a + 1
        return q.c, texts, hasattr(q, "__dict__")

    return f, [(x(),)]


@program
def weak_references_and_proxies() -> Any:
    class Node:
        def __init__(self, v: Any) -> None:
            self.v = v

    kept = Node(3)
    ref = weakref.ref(kept)

    def f(a: Any) -> Any:
        n = Node(a)
        r = weakref.ref(n)
        p = weakref.proxy(n)
        return r().v * ref().v, r() is n, p.v + 1

    return f, [(x(),)]


@program
def copies_of_objects() -> Any:
    class Node:
        def __init__(self, v: Any, other: Any = None) -> None:
            self.v, self.other = v, other

        def __copy__(self) -> Any:
            return Node(self.v, "copied")

    class Tree:
        def __init__(self, items: Any) -> None:
            self.items = items

        def __deepcopy__(self, memo: Any) -> Any:
            return Tree(copy.deepcopy(self.items, memo) + [0])

    def f(a: Any) -> Any:
        shared = [1]
        n = Node(shared, shared)
        deep = copy.deepcopy([n, n, shared, {"a": (a, shared)}])
        loop: list[Any] = [1]
        loop.append(loop)
        same = copy.deepcopy(loop)
        return (
            copy.copy(n).other, deep[0] is deep[1], deep[0].v is deep[2], deep[3]["a"][1] is deep[2], same[1] is same,
            copy.deepcopy(Tree([3])).items, deep[3]["a"][0] + 1, deep[3]["a"][0] is a, copy.copy(a) * 2,
        )  # fmt: skip

    return f, [(x(),)]


@program
def context_managers_with_exceptions() -> Any:
    log: list[str] = []

    @contextlib.contextmanager
    def managed(name: str, swallow: bool = False) -> Any:
        log.append("enter " + name)
        try:
            yield name
        except ValueError as e:
            log.append(f"{name} saw {e}")
            if not swallow:
                raise
        finally:
            log.append("exit " + name)

    def f(a: Any) -> Any:
        with managed("p", swallow=True) as p, managed("q"):
            a = a + 1
            raise ValueError("v")
        with contextlib.suppress(KeyError, IndexError):
            [][1]
        with contextlib.ExitStack() as stack:
            stack.callback(log.append, "callback")
            stack.enter_context(managed("r"))
            stack.push(lambda *e: log.append(str(e[0])) or True)
            raise KeyError(p)
        with contextlib.closing(contextlib.nullcontext(3)) if False else contextlib.nullcontext(3) as three:
            a = a * three
        return a

    return f, [(x(),), (x(),)], lambda: log


@program
def context_manager_errors() -> Any:
    @contextlib.contextmanager
    def twice() -> Any:
        yield 1
        yield 2

    @contextlib.contextmanager
    def never() -> Any:
        return
        yield

    def f(a: Any) -> Any:
        texts = []
        try:
            with twice():
                a = a + 1
        except RuntimeError as e:
            texts.append(str(e))
        try:
            with never():
                a = a + 1
        except RuntimeError as e:
            texts.append(str(e))
        return a, texts

    return f, [(x(),)]


@program
def context_decorators() -> Any:
    class Count(contextlib.ContextDecorator):
        n = 0

        def __enter__(self) -> Any:
            Count.n += 1
            return self

        def __exit__(self, *exc: Any) -> bool:
            Count.n += 10
            return False

    @Count()
    def g(a: Any) -> Any:
        return a * Count.n

    def f(a: Any) -> Any:
        return g(g(a))

    return f, [(x(),), (x(),)], lambda: Count.n


@program
def operators_of_classes() -> Any:
    class V:
        def __init__(self, *v: Any) -> None:
            self.v = v

        def __add__(self, o: Any) -> Any:
            return V(*self.v, *o.v) if isinstance(o, V) else NotImplemented

        def __radd__(self, o: Any) -> Any:
            return V(o, *self.v)

        def __iadd__(self, o: Any) -> Any:
            self.v += (o,)
            return self

        def __matmul__(self, o: Any) -> Any:
            return "@"

        def __neg__(self) -> Any:
            return V(*self.v[::-1])

        def __bool__(self) -> bool:
            return len(self.v) > 2

        def __len__(self) -> int:
            return len(self.v)

        def __getitem__(self, k: Any) -> Any:
            return self.v[k]

        def __eq__(self, o: Any) -> bool:
            return isinstance(o, V) and len(self) == len(o)

        __hash__ = None  # type: ignore[assignment]

        def __index__(self) -> int:
            return len(self.v)

        def __call__(self, *a: Any, **k: Any) -> Any:
            return a, k

        def __format__(self, spec: str) -> str:
            return f"<{spec}>"

        def __reversed__(self) -> Any:
            return iter("rev")

        def __contains__(self, k: Any) -> bool:
            return k == 9

        def __divmod__(self, o: Any) -> Any:
            return (o, 1)

        def __pow__(self, o: Any, m: Any = None) -> Any:
            return (o, m)

    def f(a: Any) -> Any:
        v = V(1, 2) + V(a)
        v += 4
        u = 5 + v
        try:
            hash(v)
        except TypeError as e:
            text = str(e)
        try:
            v + 3
        except TypeError as e:
            text += str(e)
        return (
            u.v, v @ 1, (-v)[0], bool(V(1)), v == V(1, 2, 3, 4), [10, 20, 30][V(1, 2)], v(1, k=2), f"{v:abc}",
            list(reversed(v)), 9 in v, list(v), divmod(v, 3), pow(v, 2, 3), text, a[V(1)],
        )  # fmt: skip

    return f, [(x(),)]


@program
def class_attributes_written() -> Any:
    class Counter:
        n = 0
        names: list[str] = []

        @classmethod
        def up(cls, k: int = 1) -> int:
            cls.n += k
            return cls.n

        @staticmethod
        def half(a: Any) -> Any:
            return a / 2

    class Sub(Counter):
        pass

    def f(a: Any) -> Any:
        Sub.up(3)
        Counter.up()
        Sub.names.append("s")
        return Counter.half(a) * Sub.n + Counter.n, "n" in vars(Sub), Counter.names is Sub.names

    return f, [(x(),), (x(),)], lambda: (Counter.n, Sub.n, Counter.names)


@program
def super_and_mro() -> Any:
    class A:
        def go(self, a: Any) -> Any:
            return [("A", a)]

    class B(A):
        def go(self, a: Any) -> Any:
            return [("B", a), *super().go(a + 1)]

    class C(A):
        def go(self, a: Any) -> Any:
            return [("C", a), *super().go(a * 2)]

    class D(B, C):
        def go(self, a: Any) -> Any:
            return [("D", a), *super(D, self).go(a)]

    def f(a: Any) -> Any:
        d = D()
        return (
            d.go(a),
            [k.__name__ for k in D.__mro__],
            B.go(d, a),
            super(B, d).go(a),
            issubclass(D, C),
            D.__bases__ == (B, C),
        )

    return f, [(x(),)]


@program
def abstract_and_protocols() -> Any:
    import abc

    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self) -> Any: ...

        @property
        @abc.abstractmethod
        def name(self) -> str: ...

    class Square(Shape):
        name = "square"

        def area(self) -> Any:
            return 4

    @typing.runtime_checkable
    class HasArea(typing.Protocol):
        def area(self) -> Any: ...

    def f(a: Any) -> Any:
        try:
            Shape()
        except TypeError as e:
            text = str(e)
        s = Square()
        return a * s.area(), isinstance(s, HasArea), isinstance(3, HasArea), text, isinstance(s, Shape), s.name

    return f, [(x(),)]


@program
def cached_properties() -> Any:
    log: list[str] = []

    class Lazy:
        def __init__(self, a: Any) -> None:
            self.a = a

        @functools.cached_property
        def double(self) -> Any:
            log.append("computed")
            return self.a * 2

    kept = Lazy(3)

    def f(a: Any) -> Any:
        v = Lazy(a)
        r = v.double + v.double + kept.double
        del v.double
        return r + v.double, sorted(vars(v)), "double" in vars(kept)

    return f, [(x(),), (x(),)], lambda: (log, vars(kept))


@program
def total_ordering_and_keys() -> Any:
    @functools.total_ordering
    class V:
        def __init__(self, k: int) -> None:
            self.k = k

        def __eq__(self, o: Any) -> Any:
            return self.k == o.k

        def __lt__(self, o: Any) -> Any:
            return self.k < o.k

    def f(a: Any) -> Any:
        v = [V(3), V(1), V(2)]
        by = functools.cmp_to_key(lambda p, q: q.k - p.k)
        return (
            a,
            V(1) >= V(0),
            max(v).k,
            [p.k for p in sorted(v)],
            [p.k for p in sorted(v, key=by)],
            min(v, key=lambda p: -p.k).k,
        )

    return f, [(x(),)]

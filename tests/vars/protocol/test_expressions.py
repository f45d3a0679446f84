"""Expressions over objects of the program's own classes, and builtins with odd arguments: what each gives or raises.

Several expressions make one program, each within a `try` of its own: an error raised while tracing that eager does not
raise would be handled by the program, and so show as another result.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import operator
import re
from typing import Any

import pytest
import torch

import pyframe


class AsIndex:
    def __index__(self):
        return 1


class AsFloat:
    def __float__(self):
        return 2.5


class AsComplex:
    def __complex__(self):
        return 1j


class AsBytes:
    def __bytes__(self):
        return b"zz"


class Rounded:
    def __trunc__(self):
        return 3

    def __floor__(self):
        return 4

    def __ceil__(self):
        return 5

    def __round__(self, digits=None):
        return 6


class Items:
    def __iter__(self):
        return iter([1, 2])


class ByIndex:
    def __len__(self):
        return 2

    def __getitem__(self, at):
        if at > 1:
            raise IndexError
        return at


class KeysOnly:
    def keys(self):
        return ["a"]

    def __getitem__(self, key):
        return 5


class Less:
    def __init__(self, v):
        self.v = v

    def __lt__(self, other):
        return self.v < other.v


class Called:
    def __call__(self, *args):
        return len(args)


class Descriptor:
    def __get__(self, obj, owner):
        return lambda *args: 42


class Described:
    m = Descriptor()


class Rep:
    def __repr__(self):
        return "R"


class Number:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Number(self.v + (other.v if isinstance(other, Number) else other))

    __radd__ = __add__

    def __mul__(self, other):
        return NotImplemented

    def __rmul__(self, other):
        return "rmul"

    def __eq__(self, other):
        return self.v == getattr(other, "v", other)

    def __hash__(self):
        return hash(self.v)

    def __lt__(self, other):
        return NotImplemented

    def __gt__(self, other):
        return True

    def __bool__(self):
        return self.v != 0

    def __int__(self):
        return self.v

    def __pow__(self, other, modulus=None):
        return self.v, other, modulus

    def __rpow__(self, other):
        return "rpow", other

    def __getitem__(self, key):
        return key

    def __iter__(self):
        yield self.v

    def __call__(self, *args, **kwargs):
        return args, kwargs

    def __abs__(self):
        return "abs"

    def __invert__(self):
        return "invert"

    def __divmod__(self, other):
        return "divmod"

    def __rdivmod__(self, other):
        return "rdivmod"

    def __format__(self, spec):
        return f"<{spec}>"

    def __contains__(self, item):
        return "yes"


class Derived(Number):
    def __radd__(self, other):
        return "derived"


EXPRESSIONS = r"""
[1,2,3][AsIndex()]
list(range(5))[AsIndex():]
(1,2)*AsIndex()
"ab"*AsIndex()
range(AsIndex(),4)
bytes(AsIndex())
chr(AsIndex())
bin(AsIndex())
hex(AsIndex())
float(AsFloat())
math.sqrt(AsFloat())
int(AsIndex())
float(AsIndex())
complex(AsIndex())
complex(AsComplex())
complex(AsFloat())
math.floor(Rounded())
math.ceil(Rounded())
math.trunc(Rounded())
round(Rounded())
sum(Items())
sorted(Items())
max(Items())
list(map(None or (lambda a:a),Items()))
dict(KeysOnly())
{**KeysOnly()}
dict(KeysOnly(),b=1)
[*Items(),*ByIndex()]
(lambda *a:a)(*Items(),*ByIndex())
(lambda **k:k)(**KeysOnly())
list(reversed(ByIndex()))
list(enumerate(ByIndex(),AsIndex()))
list(zip(ByIndex(),Items()))
1 in ByIndex()
2 in Items()
any(Items())
tuple(ByIndex())
set(Items())
frozenset(ByIndex())
sorted([Less(2),Less(1)])[0].v
min([Less(2),Less(1)]).v
list(map(Called(),[1,2],[3,4]))
list(filter(Called(),[1,0]))
functools.reduce(Called(),[1,2,3])
Described().m(1,2)
Described.m()
isinstance(1,(int,(str,float)))
isinstance(1,int|str)
issubclass(bool,(int,))
str(b"ab","utf8")
bytes(AsBytes())
bytes([1,AsIndex()])
bytearray(b"a")+b"c"
"%s %r %d %5.2f %x %%"%("a","b",AsIndex().__index__(),1.5,255)
"%(a)s"%{"a":1}
"{0[a]} {1.real} {x!r:>4}".format({"a":1},2,x="q")
f"{3:{AsIndex().__index__()}}"
"a,b".split(",",maxsplit=AsIndex())
"abc".find("c",AsIndex())
"abc"[AsIndex()]
[3,1,2].index(2,AsIndex())
[1,2].insert(AsIndex(),5)
collections.deque([1,2,3],maxlen=AsIndex())
collections.deque([1,2]).rotate(AsIndex())
list(itertools.islice(Items(),AsIndex()))
list(itertools.repeat(1,AsIndex()))
list(itertools.chain(Items(),ByIndex()))
list(itertools.accumulate(Items(),Called()))
list(itertools.zip_longest(Items(),[1]))
list(itertools.product(Items(),repeat=AsIndex()))
list(itertools.combinations(Items(),AsIndex()))
operator.itemgetter(AsIndex())([5,6])
operator.itemgetter(0,1)(ByIndex())
operator.attrgetter("v")(Less(3))
operator.methodcaller("upper")("a")
divmod(7,AsIndex().__index__())
pow(2,AsIndex().__index__(),5)
slice(AsIndex(),4).indices(AsIndex().__index__()+5)
range(10)[AsIndex()]
range(10)[AsIndex():4]
torch.ones(3)[AsIndex()].item()
torch.ones(3,2).sum(AsIndex()).tolist()
torch.zeros(AsIndex(),2).shape
torch.Size([AsIndex().__index__(),2])
math.gcd(AsIndex(),4)
math.comb(5,AsIndex())
math.hypot(AsFloat(),1)
math.isclose(AsFloat(),2.5)
math.ldexp(1.0,AsIndex())
int("12",AsIndex().__index__()+9)
int.from_bytes(b"a","big")
(1).__add__(2.0) is NotImplemented
[1].__eq__((1,)) is NotImplemented
type("Q",(),{"a":1}).a
object.__new__(Lt).__class__.__name__
sorted({"b":1,"a":2}.items(),key=lambda p:p[1])
next(iter([]),"d")
iter(lambda:1,1).__class__.__name__
list(iter([1,2].pop,1))
vars(Less(1))
getattr(Less(1),"zz",None)
callable(Called())
zip(*[[1,2],[3,4]]).__next__()
max(1,2.5,key=lambda v:-v)
max([],default=0)
sum([[1],[2]],[])
abs(-True)
all([]) and not any([])
"".join(c for c in "abc")
{1,2}|{3}>{1}
{"a":1}=={"a":1.0}
(1,2)<(1,3)
[1]+[2]*2
1<2<3!=4
not None or 0
(lambda a,b=2,*c,d,**e:(a,b,c,d,e))(1,d=4,z=5)
Number(1)+Number(2)==3
sum([Number(1),Number(2)]).v
sum([Number(1)],Number(5)).v
Number(1)*2
2*Number(1)
[1]*Number(1)
Number(1)<Number(2)
1<Number(2)
sorted([1,Number(3)])
max(1,Number(3))
Number(1)+Derived(2)
Number(2)**3
pow(Number(2),3,5)
3**Number(2)
pow(3,Number(2))
Number(1)[1:2,...]
Number(1)[None]
Number(1)[1,]
abs(Number(1)), ~Number(1)
divmod(Number(1),2), divmod(2,Number(1))
int(Number(7)), int(Number(7))+1
"%s|%r|%d"%(Rep(),Rep(),Number(7))
"%5s|%-5s|%05d|%+d|%e|%g|%c|%a"%("a","b",42,3,1.5,2.5,"c","é")
"{:>5}|{:<5}|{:^5}|{:05d}|{:+.2f}|{:,}|{:x}|{:%}".format("a","b","c",42,1.5,10000,255,.5)
"{0}{1}{0}".format(1,2), "{a.v}{b[0]}".format(a=Number(1),b=[5])
f"{Number(1):abc}|{Rep()!r:>3}|{1.5:{5}.{1}f}|{'x'=}"
Number(1) in [Number(1)], 5 in Number(1), Number(1) not in (1,2)
[Number(1),2].count(1), [Number(1)].index(1)
{Number(1):"a"}[1], {1:"b"}[Number(1)], len({Number(1),1})
bool(Number(0)), not Number(0), Number(0) or 5, Number(1) and 6
[i for i in Number(4)], [*Number(4)], list(map(str,Number(4)))
Number(1)(1,*[2],k=3,**{"z":4})
[a for a,*b in [(1,2,3)]], [(lambda i=i:i)() for i in range(3)]
{k:v for k,v in zip("ab",range(2))}, {i%2 for i in range(5)}
[(a,b) for a in range(2) for b in range(a,3)]
(lambda f:f(f,5))(lambda s,n:1 if n<2 else n*s(s,n-1))
list(zip(range(3),"abc",strict=True)), list(zip([1],[2,3],strict=True))
dict(a=1,**{"b":2}), dict([("a",1)],a=5), dict(zip("ab",[1,2]))
{**{"a":1},"a":2,**{"b":3}}
[*range(3),*"ab",*{1:2}]
"abc".translate({97:"z"}), str.maketrans("a","b"), "aXb".swapcase(), "a b".title(), "abc".center(9,"*")
"a-b-c".rsplit("-",1), "a\nb".splitlines(), " x ".strip(), "xxa".lstrip("x"), "abc".removeprefix("a")
"abc".encode().hex(), bytes.fromhex("ff"), b"a"+b"b", b"abc"[1], b"abc"[1:]
"a"<"b"<"c", "abc"*0, "é".encode("utf8"), "abc".isidentifier(), "1".isdigit()
int("0x1f",16), int(" 12 "), int(1.9), int(-1.9), int(True), float("1e3"), float("inf"), complex("1+2j")
round(2.5), round(3.5), round(-2.5), round(1234.567,-2), round(15,-1)
7//2, -7//2, 7%-3, -7%3, 7.5//2, -7.5%2, 2**-1, 0**0, divmod(-7,2), 1e308*10
1 if [] else 2, [] == [], () is (), None is None, 1 is not None
True+True, True*3, True==1, isinstance(True,int), str(True), int("1"), ~True
0.1+0.2, 1/3, 10**20, 2**100%97, -2**2, 1_000, 0xff, 0b11, 1e-3
3 .__add__(4), (3).bit_length(), (255).to_bytes(2,"little"), (1.5).as_integer_ratio(), (10).bit_count()
sorted([3,1,2],key=lambda v:-v), sorted("bca",reverse=True), sorted([(1,"b"),(1,"a")]), list(reversed([1,2]))
[1,2,3][::-1], [1,2,3][-2:], [1,2,3][5:], (1,2,3)[:-1], "abc"[::2], [1,2,3][slice(1,None)]
any(x>1 for x in [1,2]), all([]), any([]), sum(range(5)), sum([1.5,2]), sum([],5)
list(filter(None,[0,1,""])), list(map(lambda a,b:a+b,[1,2],[3])), list(enumerate("ab",5))
list(range(5,0,-2)), range(3)==range(0,3,1), 2 in range(3), range(10)[2:5], len(range(0)), range(5).index(3)
functools.reduce(lambda a,b:a*b,[1,2,3],10), functools.partial(lambda a,b:(a,b),1)(b=2)
list(itertools.starmap(pow,[(2,3)])), list(itertools.takewhile(bool,[1,0,1]))
list(itertools.islice(itertools.cycle([1,2]),3))
collections.Counter("aab").most_common(1), collections.Counter(a=1)+collections.Counter(a=2)
collections.Counter("ab")["z"]
collections.ChainMap({"a":1},{"b":2})["b"], list(collections.deque([1,2,3],2))
collections.namedtuple("P","x y")(1,2)._asdict()
[1]<[1,2], (1,"a")<(1,"b"), [1]==(1,), {1,2}>={1}, {1}<{1,2}, {1}|{2}, {1,2}-{1}, {1}^{2}, {1}.isdisjoint({2})
set("aab")=={"a","b"}, frozenset([1])=={1}, len({1,1.0,True}), {1:"a",True:"b"}, {1}.union([2],[3])
[1,2].__contains__(1), [1].__len__(), "a".__add__("b"), (1).__lt__(2), [1].__getitem__(0), {}.__setitem__(1,2)
type(1), type([]).__name__, type(None), type(type), isinstance(type,type), issubclass(bool,int)
getattr([],"append").__name__, hasattr(1,"real"), (1).real, (1+2j).imag, (1+2j).conjugate(), abs(3+4j)
next(iter([1])), next(iter([]),None), next(iter([])), list(iter({"a":1})), iter([1]).__length_hint__()
[].pop(), {}["a"], [][0], ().index(1), {}.pop("a"), {}.popitem(), set().pop(), "a".index("b")
1/0
1%0
int("a")
[1,2].remove(3)
{}[[]]
{[]}
"a"+1
1+"a"
[1]+(1,)
None+1
None()
None.x
(1).x
len(1)
iter(1)
[1][1.0]
"abc"["a"]
{1:2}.get([])
float("x")
range(1.5)
chr(-1)
ord("ab")
max([])
max(1)
sum(["a"])
sorted([1,"a"])
int([])
a_b_c
(lambda a:1)()
(lambda:1)(1)
(lambda a:1)(b=1)
(lambda a:1)(1,a=2)
[].append()
"{}".format()
"{a}".format(b=1)
"%d"%"a"
"%s %s"%1
"%s"%(1,2)
dict([1])
dict([(1,2,3)])
zip(1)
map(len)
isinstance(1,1)
issubclass(1,int)
getattr(1)
setattr(1,"a",2)
object().x
bytes([300])
[1,2,3].__getitem__("a")
divmod(1,"a")
pow(2,-1,4)
round("a")
abs("a")
-"a"
~1.5
1<"a"
1 in 1
not_defined.x
iter(1,2)
next(1)
enumerate(1)
reversed({1})
slice(1).indices("a")
collections.deque([1],"a")
collections.namedtuple("a","1b")
functools.reduce(max,[])
functools.partial(1)
operator.itemgetter()
math.sqrt(-1)
math.factorial(-1)
math.log(0)
""".strip().splitlines()
MODULES = {module.__name__: module for module in (collections, functools, itertools, math, operator, torch)}
SIZE = 20  # expressions of one program


def _program(expressions: list[str]) -> Any:
    lines = ["def program(x):", "    found = [x + 1]"]
    for text in expressions:
        lines += ["    try:", f"        found.append(({text}))"]
        lines += ["    except Exception as error:", "        found.append(type(error).__name__)"]
    scope = globals() | MODULES
    exec("\n".join([*lines, "    return found"]), scope)
    return scope["program"]


def _shown(values: list[Any]) -> list[str]:
    return [re.sub("0x[0-9a-f]+", "", repr(value)) for value in values]


@pytest.mark.parametrize("start", range(0, len(EXPRESSIONS), SIZE))
def test_expressions(start):
    part = EXPRESSIONS[start : start + SIZE]
    program = _program(part)
    want, got = _shown(program(torch.ones(1))), _shown(pyframe.compile(program, backend="eager")(torch.ones(1)))
    differing = [f"{text}: {b} for {a}" for text, a, b in zip(["x + 1", *part], want, got, strict=True) if a != b]
    assert not differing, "\n".join(differing)

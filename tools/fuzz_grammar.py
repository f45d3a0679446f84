"""What the random programs of fuzz_frames.py are made of."""

from __future__ import annotations

import re
from pathlib import Path

PRELUDE = Path(__file__).with_name("fuzz_prelude.py").read_text()
SETUP = (
    "global COUNT, EXTRA",
    "n, m, x, y, s = a, 1, t, t + 1, 'ab'",
    "xs, d, st, tup, fs, g = [1, 2], {'k': a}, {1, a}, (a, 2), [], iter(())",
    "box, p, z = Box(a), Point(a), 0",
)
# What every fuzzed function but the program itself has in place of these parameters.
SETUP_OF_HELPERS = ("u, k, flag = t, 2, False", "bump = lambda: xs.append(n)")
SETUP_OF_PROGRAM = ("def bump():", "    nonlocal n, m", "    n += 1; m -= 1; xs.append(m)")
# a, t, u, k, flag of each call, and what changes before it.
CALLS = (
    ("", "1, t, t", "torch.arange(4.0)"),
    ("", "1, t, t", "torch.arange(4.0)"),
    ("TABLE['a'] = 3; NET.scale = 0.5", "4, t, t + 1, k=5", "torch.arange(4.0)"),
    ("COUNT += 7; Box.clip = staticmethod(lambda v: v + 1)", "-2, t, t[1:], 2.5", "torch.arange(4, dtype=torch.float64)"),
    ("NET.eval(); torch.set_grad_enabled(False)", "3, t, t.detach(), 'w', flag=True", "torch.arange(8.0)[::2]"),
)
RULES: dict[str, tuple[str, ...]] = {
    "int": (
        "n", "m", "n", "1", "2", "-3", "len(xs)", "(<int> + <int>)", "(<int> * 2)", "(<int> % 3)", "<int> // 2",
        "len(d)", "box.value", "Box.made", "box.double", "max(<int>, <int>)", "abs(<int>)", "d.get(<str>, <int>)",
        "int(<bool>)", "sum(xs)", "len(box)", "box[<int>]", "COUNT", "TABLE['a']", "p.a", "next(g, <int>)",
        "(lambda q, r=<int>: q + r)(<int>)", "tup[<int> % 2]", "xs[-1]", "x.shape[0]", "len(s)",
        "min(st or {3})", "sum(q * 2 for q in xs)", "len([q for q in xs if q > <int>])",
        "min(xs, default=0, key=lambda q: -q)", "(<int> if <bool> else <int>)", "Pair(<int>, 2).left",
        "Color(1).value", "box.lazyname", "functools.reduce(lambda q, r: q - r, xs, <int>)", "len(fs)",
        "Box.clip(<int>)", "sum(d.values())", "hash(box) % 5", "getattr(box, 'value', 3)", "int(s, 36) % 10",
        "divmod(<int>, 3)[1]", "x.dim()", "<call>[0]",
        "collect(<int>)", "collect(<int>, xs, seen=d)", "tick(<int>)", "depth_of([xs, [tup]])", "u.shape[0]",
        "(<int> << 1) & 15", "~<int>", "<int> ^ m", "pow(<int> % 5, 2, 7)", "round(<int> / 2)", "len(str(k))",
        "7 // <int>", "(lambda *q, **r: len(q) - len(r))(*xs, **{'w': <int>})", "operator.mul(<int>, 2)",
        "sum(f() for f in [lambda: q for q in xs])", "[(lambda: q + n)() for q in [<int>, 2]][0]",
        "max((w := <int>), 2) + w", "drive(waits(<int>))", "bisect.bisect(sorted(xs), <int>)", "box @ 2 if flag else 1",
        "Meter(<int>).level", "Meter(<int> % 9) @ <int>", "sum(Meter(<int>))", "xs[Meter(1)]", "len(<list>)",
        "Table(d)[<int>]", "collections.Counter(s)['a']", "operator.attrgetter('value')(box)", "xs.index(<int>)",
        "len({*xs, *tup} - st)", "copy.copy(box).value", "len(NET(x))", "NET.calls", "NET.scale", "x[0].item() // 1",
        "int(y.max())", "types.SimpleNamespace(q=<int>).q", "(n, m)[flag]", "sum(1 for _ in zip(xs, tup, strict=True))",
        "next(iter(d.values()))", "min(p, Point(<int>)).a", "ord(s[0]) % 7", "x.numel()", "sum(map(operator.neg, xs))",
        "getattr(Child, 'extra', <int>)", "len(sys.exc_info()) + n", "[*reversed(xs)][0]", "dict(zip(s, xs)).get('a', 0)",
        "sum(itertools.takewhile(lambda q: q < <int>, xs))", "len(list(itertools.groupby(xs, lambda q: q % 2)))",
    ),
    "bool": (
        "n > <int>", "m < 3", "not <bool>", "<bool> and <bool>", "<bool> or <bool>", "<int> in xs", "<str> in d",
        "<int> in st", "isinstance(box, Child)", "box == Box(<int>)", "<int> in box", "s == 'ab'", "xs", "d",
        "p < Point(<int>)", "any(q > <int> for q in xs)", "all(xs)", "x is y", "hasattr(box, 'value')",
        "callable(fs)", "0 < <int> < 4", "s.startswith('a')", "x.sum() > <int>", "box is not None",
        "Color.RED is Color(2)",
        "flag", "isinstance(k, str)", "isinstance(k, (int, float))", "even(<int> % 5)", "x.sum()", "x[0].item() > <int>",
        "x.max() == y.max()", "Meter(<int>)", "(<int>, m) < (m, <int>)", "{*xs} <= st", "d.keys() == {'k'}",
        "u is t", "re.match('a+b?', s)", "not x.requires_grad", "NET.training", "kind(k) == 'int'", "k == 2",
        "m in d.values()", "Meter(<int>) < Meter(m)", "issubclass(type(box), Child)", "sys.exc_info()[0] is None",
    ),
    "str": (
        "'k'", "'a'", "s", "str(<int>)", "f'{<int>}'", "s.upper()", "s[::-1]", "'-'.join(map(str, xs))",
        "f'{n:>3}|{s!r}'", "'%d' % <int>", "type(box).__name__", "p.__class__.__name__",
        "str(k)", "f'{k}:{n + 1}'", "f'{Meter(<int>)}'", "f'{Meter(<int>):03}'", "'{} {q}'.format(n, q=<int>)", "kind(xs)",
        "s.replace('a', <str>)", "s.partition('b')[2]", "s.zfill(4)", "''.join(sorted(s))", "s.title()", "repr(<list>)",
        "'|'.join(f'{q}={r}' for q, r in d.items())", "s.encode().hex()[:6]", "re.sub('[0-9]', '#', s)", "s.split('b')[0]",
        "'%s-%r' % (n, s)", "chr(97 + <int> % 5)", "' '.join(s).strip()", "Color.RED.name", "repr(p)", "s.center(5, '*')",
    ),
    "tensor": (
        "x", "y", "x + 1", "(<tensor> * <int>).clamp(-9, 9)", "torch.sin(x)", "<tensor> + <tensor>", "x - n",
        "box(x)", "scaled(x)", "scaled(x, <int>, shift=<int>)", "scaled(x, 2, *tup, k=1)",
        "scaled(*[x, 3], **{'shift': n})", "<call>[1]", "torch.where(x > <int>, x, y)", "x.clone()",
        "torch.stack([x, y]).sum(0)", "sum([x, y])", "x.view(-1)[:2].sum()", "torch.cat([x, y]).mean() + x",
        "(fs[-1](x) if fs else x)", "functools.partial(scaled, by=<int>)(x)", "x.relu()",
        "NET(x)", "NET(x, more=y)", "power(x, <int> % 4)", "u + n", "x[1:].sum() + y", "x.t()", "x.flip(0)", "x[x > <int>].sum() + x",
        "x.reshape(2, -1).sum(0).repeat(2)", "x * 0.5", "x / (<int> or 1)", "y.max() + x", "x.to(torch.float64)", "x * k",
        "torch.full_like(x, <int>)", "functools.reduce(torch.add, [x, y, t])", "x.unsqueeze(0)[0]", "torch.arange(4) + x",
        "max([x, y], key=lambda q: q.sum())", "x[::2].repeat(2)", "x.detach()", "copy.copy(x)", "torch.zeros(4).add_(<int>)",
        "(x := x + 1)", "x.new_ones(4)", "x.roll(1)", "x.chunk(2)[0].repeat(2)", "dict(q=x, r=y)['q']", "x.mean() + y",
    ),
    "list": (
        "xs", "[<int>, <int>]", "[q + 1 for q in xs]", "list(range(<int>))", "sorted(xs, reverse=True)", "xs[1:]",
        "[*xs, <int>]", "list(d.values())", "sorted(st)", "list(g)", "list(map(abs, xs))", "xs + [<int>]",
        "[q for q, r in zip(xs, tup)]", "list(itertools.chain(xs, tup))", "[[q, r][1] for q, r in enumerate(xs)]",
        "list(itertools.accumulate(xs))", "list(filter(None, xs))",
        "[q + r for q in xs for r in tup if q != r]", "[[q for q in range(r)] for r in (1, 2)][1]", "xs[::2]", "xs[::-1]",
        "list(itertools.islice(relay(<int>), 3))", "[w := q + n for q in xs]", "[*st, *tup]", "heapq.nsmallest(2, xs)",
        "sorted(d, key=str)[:0]", "list(itertools.product(xs[:2], tup))[0:0]", "list(reversed(xs))", "xs * 2",
        "[q for q in iter(lambda: next(g, 0), 0)]", "list(collections.deque(xs, maxlen=2))", "list(Stack(xs).push(<int>))",
        "list(Meter(<int>))", "[f(2) for f in [lambda q, r=r: q * r for r in xs]]", "list(range(n, m))", "copy.deepcopy(xs)",
        "[len(q) for q in s.split('b')]", "x.shape and xs", "[int(q) for q in x.tolist()]", "list(zip(*[xs, xs]))[0:0]",
    ),
    "call": (
        "helper0(<int>, x)", "helper1(<int>, y)", "helper0(<int>, <tensor>)", "helper1(t=x, a=<int>)",
    ),
    "error": (
        "Custom(<int>)", "ValueError(<str>)", "KeyError(<str>)", "StopIteration(<int>)", "IndexError()",
        "RuntimeError(<str>, n)", "AttributeError('no')", "Custom(<int>, note=s)", "TypeError",
    ),
}  # fmt: skip
SIMPLE = (
    "n = <int>", "m += <int>", "n, m = m, <int>", "x = <tensor>", "y = <tensor>", "xs.append(<int>)", "xs = <list>",
    "d[<str>] = <int>", "d.pop(<str>, 0)", "d = {q: q * 2 for q in <list>}", "d.update(z=<int>)", "st.add(<int>)",
    "st = {q % 3 for q in <list>}", "s = <str>", "s += <str>", "box.value = <int>", "box = Box(<int>)",
    "box = Child(<int>)", "box.double = <int>", "box.bump(<int>)", "box.bump(twice=True).bump()", "box += <int>",
    "box = Box.of(*<list>)", "p = Point(<int>, b=<int>)", "p.seen.append(<int>)",
    "p = dataclasses.replace(p, a=<int>)", "tup = (<int>, *xs)", "n, *xs = <list>", "xs[:1] = [<int>]",
    "xs[1:2] = <list>", "xs.extend(<list>)", "xs.sort()", "xs.insert(0, <int>)", "n = xs.pop() if xs else 0",
    "del xs[<int>:3]", "fs.append(lambda q, k=<int>: q * k + n)", "fs.append(box)",
    "fs.append(functools.partial(scaled, by=n))", "LOG.append(<int>)", "TABLE[<str>] = <int>", "Box.limit = <int>",
    "box.extra = <int>", "vars(box).pop('extra', None)", "x += <int>", "x.add_(<int>)", "y.mul_(2)",
    "print(<int>, s)", "pyframe.graph_break()", "g = gen0(<int>, x)", "g = (q + n for q in xs)", "n += next(g, 2)",
    "xs.extend(g)", "g = itertools.chain(gen0(<int>, x), [n])", "n += <call>[0]", "x = <call>[1]", "COUNT += <int>",
    "d.pop(<str>, None)", "d.setdefault(<str>, <int>)", "n = int(x.sum())", "assert <bool>, n", "raise <error>",
    "raise <error> from Custom(<int>)", "return n, x", "xs, tup = list(tup), tuple(xs)", "d = dict(d, **{s: n})",
    "m = (lambda: n + m)()", "n = [q for q in [n, m] if q][-1]", "print(f'{x.sum():.1f}')", "bump()",
    "d = {**d, 'w': <int>}", "st |= {<int>}", "s, n = f'{s}{n}'[-4:], <int>", "xs *= 2; del xs[6:]",
    "e = echo(<int>); n = next(e); n += e.send(<int>)", "e = relay(<int>); next(e); n = e.throw(ValueError(s))",
    "e = echo(<int>); next(e); e.close()", "e = echo(<int>); next(e, 0); e.throw(Custom(<int>))", "next(echo(40), n)",
    "with contextlib.closing(closing(<int>)) as e:\n    n += next(e)\n    n = e.send(<int>)",
    "add, peek = counter(<int>); add(); n = add(<int>) + peek()", "if 'b' in TABLE: del TABLE['b']", "TABLE.pop(<str>, n)", "if sys.exc_info()[0]: raise",
    "EXTRA = n = <int>", "n = globals().get('EXTRA', 0)", "if 'EXTRA' in globals(): EXTRA += 1", "globals().pop('EXTRA', None)",
    "Child.extra = <int>", "if hasattr(Child, 'extra'): del Child.extra", "Box.twist = lambda self: self.value + n",
    "n = getattr(Box, 'twist', len)(box)", "setattr(Box, 'kind', <str>)", "NET.scale = <int>", "NET.train(not NET.training)", "z = <int>", "n = z", "del z", "del z", "z += n",
    "tmp = <int>; del tmp; n += 'tmp' in locals()", "tmp = n; n = tmp", "n = eval('n + 1')", "NET.seen.zero_()", "NET.weight.data[0] = <int>",
    "def inner(v, w=<int>, *rest, z=3, **more):\n    nonlocal n\n    n += v\n    return w + z + len(more)\nm = inner(<int>, z=n)",
    "def inner(v=[]):\n    v.append(<int>)\n    return v\ninner()\nxs = inner()[:4]",
    "@repeat(2)\ndef inner():\n    xs.append(n)\ninner()",
    "def inner():\n    global COUNT\n    COUNT = n\n    yield COUNT\n    yield from xs\nn = sum(itertools.islice(inner(), 3))",
    "class Local(Box):\n    kind = [q for q in range(<int> % 4)]\n    def bump(self, by=1):\n"
    "        LOG.append('local')\n        return super().bump(by + n)\nbox = Local(<int>).bump()",
    "x[0] = <int>", "x[1:].add_(<int>)", "x.view(-1)[:2].mul_(2)", "v = x[:2]; v += <int>", "u.add_(1)", "t[-1] = n",
    "x[x > <int>] = 0", "x.zero_()", "y.copy_(x)", "x, y = y, x", "v = x.t(); v.sub_(1); y = v + x", "x.clamp_(max=5)",
    "y = torch.empty(4); torch.add(x, 1, out=y)", "x.fill_(<int>)", "y = x; y += 1", "y = u; y -= <int>", "x = x.contiguous(); x.neg_()",
    "k = <int>", "k = <str>", "k = n / 2", "n = n if isinstance(k, str) else int(k)", "y = x.clone(); y[1] = n",
    "print(*xs, sep='|', end=';')", "print(x.sum().item() > n)", "print(f'{k}')", "LOG.append(x.sum().item() > <int>)",
    "fails(<int> % 4)", "raise <error> from None", "raise Custom(m) from KeyError(s)", "raise ExceptionGroup('g', [Custom(<int>)])", "assert <bool>", "LOG.append(sys.exc_info()[0])", "st ^= {<int>, 2}", "st -= {n}; st.update(xs)",
    "d |= {s: <int>}", "del d['k']", "d.popitem()", "d = Table(d); n = d[s]", "xs = Stack(xs); xs += [<int>]; xs = list(xs)",
    "xs[::2] = [0] * len(xs[::2])", "xs.remove(<int>)", "xs.reverse()", "(n, *_), m = (<int>, 2, 3), m", "[n, m] = [m, n]",
    "p.a += <int>", "p.b, p.a = p.a, p.b", "meter = Meter(<int>); meter.level -= 2; meter[1] = n; n = meter.level",
    "meter = Meter(<int>); del meter[0]; n += meter.level", "n = box.value = <int>", "n = (m := <int>) + m", "if 'extra' in vars(box): del box.extra",
    "n -= len([xs.append(q) for q in tup if q])", "d = {q: r for q, r in zip(s, <list>)}", "n = k if flag else n",
    "with contextlib.ExitStack() as stack:\n    stack.enter_context(managed(<int>)); stack.callback(LOG.append, n)\n    x = x + n",
    "d = collections.defaultdict(list, d); d[s].append(n); d = {q: len(str(r)) for q, r in d.items()}",
    "n = [*map(lambda q, r: q * r, xs, tup)][-1]", "box.__dict__['extra'] = n", "type(box).limit = <int>", "box.value += 1",
    "n = functools.reduce(operator.add, <list>)", "tup = tup[1:] + tup[:1]", "tup += (n,)", "xs = [*xs, *tup][-4:]",
    "torch.set_grad_enabled(<bool>)", "fs.append(counter(<int>)[0])", "fs.append(box.bump)", "n = fs.pop()(<int>)",
    "LOG.append(list(map(type, tup)))", "n %= 3", "n //= <int>", "n **= 2; n %= 11", "n = -n", "n = not n", "s *= 2; s = s[:5]",
)  # fmt: skip
# A place for what a rule makes.
HOLE = re.compile(f"<({'|'.join(RULES)})>")
IN_LOOP = ("break", "continue")
IN_GENERATOR = ("yield <int>", "n = (yield <int>) or n", "yield from <list>", "yield n", "return <int>",
                "got = yield xs; n += len(got or ())", "yield", "yield from echo(<int>)", "n += yield from echo(<int>)")
COMPOUND: tuple[tuple[str, ...], ...] = (
    ("if <bool>:",), ("if <bool>:", "else:"), ("if <bool>:", "elif <bool>:", "else:"), ("for i in <list>[:3]:",),
    ("for i, (n, q) in enumerate(zip(<list>[:3], xs)):",), ("for i in gen0(<int>, x):", "else:"),
    ("for q in list(d):",),
    ("try:", "except Custom as error:"), ("try:", "except (KeyError, IndexError) as error:", "finally:"),
    ("try:", "except Custom as error:", "except Exception:", "else:"), ("try:", "finally:"),
    ("with box:",), ("with Box(<int>, True) as b, managed(<int>) as n:",), ("with managed(<int>) as m:",),
    ("with contextlib.suppress(KeyError, ValueError):",), ("with torch.no_grad():",),
    ("match <int> % 3:\n    case 0:", "    case 1 | 2 if <bool>:", "    case _:"),
    ("match tup:\n    case (q, r):", "    case [n, *rest]:", "    case _:"),
    ("match box:\n    case Child(value=v):", "    case Box(value=v) if v > <int>:", "    case _:"),
    ("w@ = 0\nwhile w@ < 3 and <bool>:\n    w@ += 1",), ("w@ = 3\nwhile w@:\n    w@ -= 1", "else:"),
    ("for q in <list>[:4]:", "else:"), ("for n in range(<int>, <int>):",), ("for q in d:",), ("for q in st:",),
    ("for q, (r, *_) in zip(xs[:3], [tup, xs, s]):",), ("for xs[-1:] in [[1], [2]]:",), ("for q, r in [*d.items()][:3]:",),
    ("for q in Meter(<int>):",), ("for q in iter(lambda: next(g, 2), 2):",), ("for v in x:",), ("for i in relay(<int>):",),
    ("try:", "except Exception as error:\n    error.add_note(s)"), ("try:", "except* Custom as group:"),
    ("try:", "except (ValueError, RuntimeError):", "except LookupError as error:\n    n = len(error.args)", "else:", "finally:"),
    ("try:", "except Exception as error:\n    LOG.append(repr(error))", "finally:"), ("try:", "except Exception as e:\n    raise Custom(n) from e"),
    ("try:\n    fails(<int> % 4)", "except ValueError as error:\n    LOG.append(error.__suppress_context__)", "except Custom as error:\n    LOG.append(error.__cause__.__notes__)", "finally:"),
    ("with contextlib.ExitStack() as stack:\n    stack.enter_context(Box(<int>, <bool>))\n    stack.callback(xs.append, n)",),
    ("with Box(<int>, flag), contextlib.suppress(ValueError):",), ("with contextlib.nullcontext(<int>) as n:",),
    ("with torch.set_grad_enabled(<bool>):",), ("with torch.enable_grad():",), ("with box as box.inner:",),
    ("if (w := <int>) > 1:", "else:"), ("if x.sum() > <int>:", "else:"), ("if y[0].item() > <int>:",), ("if x.max():",),
    ("match d:\n    case {'k': q, **rest}:", "    case {}:"), ("match [n, xs]:\n    case [1 | 2, [q, *_]] if q:", "    case [_, []]:", "    case _:"),
    ("match k:\n    case str():", "    case int(n):", "    case float() as f:"), ("match p:\n    case Point(1, b=q):", "    case Point(q, 2 | 3):", "    case _:"),
    
    ("def inner(q=<int>, *rest, r=n):\n    global COUNT, EXTRA\n    nonlocal n, m, x, y, s, xs, d, st, tup, fs, g, box, p",
     "inner()\nif <bool>:"), ("def inner(q, /, r=<int>):\n    global COUNT, EXTRA\n    nonlocal n, m, x, y, s, xs, d, st, tup, fs, g, box, p",
     "for i in xs[:2]:\n    inner(i)"), ("for n, q in enumerate(<list>[:3], start=<int>):",),
)  # fmt: skip



"""Captures and compiles backward passes of eager programs: `compiled_autograd`.

torch's autograd engine can give a backward pass to a compiler object instead of running it. It then describes the pass
node by node: derivatives of operators, hooks, accumulation into `.grad`, backwards of `torch.autograd.Function`s.

- `recorder` is that object: it writes the description down as the source of a Python function, a *program*, which does
  what the engine would have done. It is the only module that knows torch's protocol and how it differs by release.
- `values` are the placeholders for sizes and numbers that the engine computes with meanwhile.
- `operations` holds the functions written in C++ that compute the derivatives, `steps` everything else that a program
  calls.
- `program` holds a program and its compiled forms. Programs are compiled as any function is, by `pyframe.compile`, so
  hooks are traced into the graph where possible and break it where not.
- `engine` decides which backward passes are captured, and runs programs. `scope` has what users call.

The engine keeps programs by the structure of the autograd graph. Sizes are arguments of a program; the guards of its
captures see to them.
"""

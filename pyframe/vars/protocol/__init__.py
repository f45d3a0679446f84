"""`Var`, constants, and CPython's protocols (operators, calls, text) over Vars."""

"""Sets arguments of new FX nodes at the least cost: graphs of many layers have thousands of nodes.

`fx.Graph.create_node` searches the arguments that it gets for symbols, in order to warn of them. An assignment to any
attribute of a node takes the node out of the graph's index by operator and inserts it again.
"""

from __future__ import annotations

from typing import Any

from torch import fx

_set_args, _set_kwargs = (vars(fx.Node)[name].__set__ for name in ("args", "kwargs"))


def set_arguments(node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Give a new node, which was created without arguments, these. It may be of any kind."""
    if args:
        _set_args(node, args)
    if kwargs:
        _set_kwargs(node, kwargs)

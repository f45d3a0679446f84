"""Operators that take functions as arguments: control flow (`torch.cond`), transforms (`vmap`, `grad`), autograd
functions, hooks and activation checkpointing. Each module registers what a traced call of its operators does; most
trace the functions into nested graphs."""

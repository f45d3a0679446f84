"""Vars of tensors, `nn.Module`s and other objects of torch, and models (see `registry`) of its functions, modes and
settings."""

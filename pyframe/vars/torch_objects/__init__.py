"""Vars of tensors, `nn.Module`s and other objects of torch, and what traced calls of torch's functions do, modes and
settings included."""

"""Models of tensors and of torch's functions, modules, modes, settings and generators."""

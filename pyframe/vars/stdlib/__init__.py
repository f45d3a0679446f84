"""Models of builtins and of modules of the standard library."""

"""Models of Python values for the tracer, one package for each kind; `wrap` chooses among them."""

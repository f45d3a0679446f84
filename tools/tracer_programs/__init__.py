"""Small programs that are hard for a tracer, run eagerly, by pyframe and by torch.compile."""

"""torch's databases of modules, optimizers, foreach operators, autograd functions, custom and higher-order operators,
and programs over whole parts of torch, through the default backend, compared with eager."""

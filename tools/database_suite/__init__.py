"""Compares compiled calls with eager for torch's test databases other than that of operators: modules, optimizers,
foreach operators, autograd functions, custom and higher-order operators; and for programs that use whole parts of
torch."""

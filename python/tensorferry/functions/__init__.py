"""Decorators for functions that accept tensors of any framework: `@ferry.via`, `@ferry.agnostic`.

`decorators` has the two public functions and imports the rest when a function is decorated:

- `callables` says which functions can be decorated;
- `origins` finds the framework and device of the arguments;
- `trees` flattens containers into tensors and rebuilds them;
- `via` and `agnostic` wrap a function;
- `gradients` connects the automatic differentiation of two frameworks.
"""

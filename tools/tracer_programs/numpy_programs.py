"""Programs that use numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .programs import program, x


@program
def numpy_function() -> Any:
    def f(a: Any) -> Any:
        return np.sin(a) + np.ones(4, dtype=np.float32), a.reshape(2, 2).sum(axis=0)

    return f, [(np.arange(4, dtype=np.float32),)]


@program
def numpy_and_torch() -> Any:
    def f(a: Any) -> Any:
        b = a.numpy()
        c = np.concatenate([b, b * 2]).astype(np.float64)
        return torch.from_numpy(c) + 1

    return f, [(x(),)]


@program
def numpy_array_of_numbers() -> Any:
    def f(a: Any) -> Any:
        return np.array([1.0, 2.0, 3.0, 4.0]) * a, np.array([[1, 2], [3, 4]], dtype=np.int32), np.array([a, a + 1])

    return f, [(np.arange(4.0),)]


@program
def numpy_tolist() -> Any:
    def f(a: Any) -> Any:
        values = np.array([1, 2, 3]).tolist()
        return torch.ones(3) * sum(values) + a, values

    return f, [(x(3),)]


@program
def numpy_tolist_of_an_input() -> Any:
    def f(a: Any) -> Any:
        return sum(a.tolist()) * torch.ones(2)

    return f, [(np.array([1, 2, 3]),), (np.array([4, 5, 6]),)]


@program
def numpy_dtypes() -> Any:
    def f(a: Any) -> Any:
        return (
            np.zeros(3, dtype=float), np.arange(3, dtype="float32"), np.ones(2, dtype=np.dtype("int16")),
            a.astype(int), a.dtype == np.float32, np.full((2,), 2, dtype=bool), np.linspace(0, 1, 3, dtype=np.float16),
        )  # fmt: skip

    return f, [(np.arange(4, dtype=np.float32),)]


@program
def numpy_scalars() -> Any:
    def f(a: Any) -> Any:
        return a * np.float32(2) + np.pi, np.int64(3) + 1, a.max(), np.max(a) * 2, float(np.sqrt(4.0))

    return f, [(np.arange(4.0),)]


@program
def numpy_indexing_and_writes() -> Any:
    def f(a: Any) -> Any:
        b = a.copy()
        b[1:3] = 7
        b[b > 6] += 1
        a[0] = 5
        return b[::-1], np.where(b > 5, b, 0), a.T.shape, b.size, b.ndim

    a = np.arange(4.0)
    return f, [(a,)], lambda: a


@program
def numpy_linear_algebra() -> Any:
    def f(a: Any) -> Any:
        return (
            np.linalg.norm(a),
            a @ a.T,
            np.dot(a[0], a[1]),
            np.einsum("ij->ji", a),
            np.linalg.inv(a @ a.T + np.eye(2)),
        )

    return f, [(np.arange(6.0).reshape(2, 3),)]


@program
def numpy_in_python() -> Any:
    def f(a: Any) -> Any:
        n = int(np.prod(a.shape))
        return a.view(n) * np.mean([1.0, 2.0]) + len(np.arange(n)) + np.random.default_rng

    def g(a: Any) -> Any:
        return f.__closure__ is None and a.view(int(np.prod(a.shape))) * 2

    return g, [(x(2, 3),), (x(4, 3),)]


@program
def numpy_random() -> Any:
    def f(a: Any) -> Any:
        return a + np.random.uniform(0, 1) + np.random.randint(0, 5)

    return f, [(x(),)]

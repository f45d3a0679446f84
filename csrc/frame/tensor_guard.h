/* The TENSOR check: expected metadata, read and compared without Python. */
#ifndef PYFRAME_TENSOR_GUARD_H
#define PYFRAME_TENSOR_GUARD_H

#include "compat.h"

typedef struct tensor_expectation tensor_expectation;

/* From the Python tuple described in guard_ops.def; NULL with an exception set. */
tensor_expectation *tensor_expectation_new(PyObject *payload);
void tensor_expectation_free(tensor_expectation *expected);
/* 1 or 0; -1 with an exception set. */
int tensor_matches(PyObject *object, const tensor_expectation *expected);

/* The payload that describes a tensor. */
PyObject *tensor_payload_of(PyObject *tensor);

#endif

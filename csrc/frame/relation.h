/* Relations between integers (sizes, strides, int arguments): small postfix programs, run by the RELATION check. */
#ifndef PYFRAME_RELATION_H
#define PYFRAME_RELATION_H

#include "compat.h"

typedef struct relation relation;

/* From the tuple described in guard_ops.def, over `n_values` values; NULL with an exception set. */
relation *relation_new(PyObject *program, Py_ssize_t n_values);
void relation_free(relation *r);
/* Whether the relation is true of these int objects: 1 or 0. What cannot be computed (no exact int, overflow of 64 bits,
 * division by zero) is not true. */
int relation_holds(const relation *r, PyObject *const *registers, const int32_t *indices);

#endif

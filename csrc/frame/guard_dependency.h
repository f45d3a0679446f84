/* The dependencies of guard operations, as version stamps: memory that, while unchanged, gives the same outcome. */
#ifndef PYFRAME_GUARD_DEPENDENCY_H
#define PYFRAME_GUARD_DEPENDENCY_H

#include "guard_memo.h"

/* A growing list of stamps; an address is in it once. */
typedef struct {
    version_stamp *stamps;
    Py_ssize_t n, capacity;
    size_t *places; /* open-addressed: 1 + index into stamps */
    size_t n_places;
    unsigned char *is_version;        /* of each stamp: the version of a dict, or the value of an attribute */
    const uintptr_t *changing;        /* addresses of versions that are known to change often, ... */
    Py_ssize_t n_changing, n_touched; /* ... and how many of them the last operation depends on */
    bool failed;                      /* out of memory */
} stamp_list;

void stamp_list_free(stamp_list *list);
void stamp_list_add(stamp_list *list, const void *address);
Py_ssize_t stamp_list_index(const stamp_list *list, const void *address); /* -1: not in it */

/* Add the version of a dict; false: it has none. */
bool depend_on_dict(stamp_list *list, PyObject *dict);

/* Whether the `__hash__` and `__eq__` of all keys are CPython's own. */
bool has_plain_keys(PyObject *dict);
bool is_plain_key(PyObject *key);

/* Whether a value is immutable and equal only to values of the same type and content. */
bool is_plain_constant(PyObject *value);

/* Add stamps for what `op` depends on besides its source registers, which are known to hold the same objects. True:
 * while the stamps are unchanged, an accessor gives the object in its register again and a check passes. False: the
 * operation must be run at each call. Runs no Python code. Not for operations that read a root. */
bool guard_dependency(stamp_list *list, const guard_op *op, PyObject **registers);

#endif

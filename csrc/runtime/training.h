/* The parts of a compiled graph with gradients that run at each call (inductor/aot/autograd.py makes them). */
#ifndef PYFRAME_TRAINING_H
#define PYFRAME_TRAINING_H

#include "plan.h"

extern PyTypeObject node_forward_type, node_backward_type, training_call_type;

/* Numbers of tensors among those of a call. */
typedef struct {
    Py_ssize_t n;
    Py_ssize_t *at;
} numbers;

/* Names of attributes of an autograd node that is a torch.autograd.Function: those that torch reads and those that
 * aot/rerun.py reads. */
typedef struct {
    PyObject *held, *freed, *versions, *to_save, *non_differentiable, *materialize_grads, *saved_tensors, *clear;
} node_names;

extern node_names node_name;

/* node_forward.c. Each is 0, or -1 with an exception set. */
int node_find_names(void);
int node_read_numbers(PyObject *tuple, numbers *out);

/* A list of what a compiled half returned, whose reference is taken over; NULL with an exception set. */
static inline PyObject *
node_list_of(PyObject *returned)
{
    if (returned == NULL || PyList_CheckExact(returned)) {
        return returned;
    }
    PyObject *list = PySequence_List(returned);
    Py_DECREF(returned);
    return list;
}

static inline bool
all_below(const numbers *some, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < some->n; k++) {
        if (some->at[k] >= n) {
            return false;
        }
    }
    return true;
}

#endif

/* The callables that users hold: CompiledFunction (pyframe.compile) and DisabledFunction (pyframe.disable). */
#ifndef PYFRAME_CALLABLES_H
#define PYFRAME_CALLABLES_H

#include "frame_hook.h"

/* The common part: a wrapper of another callable, with the attributes that functools.wraps sets. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *wrapped;
    PyObject *dict, *weakrefs;
} wrapper_base;

extern PyTypeObject CompiledFunction_Type, DisabledFunction_Type;

int wrapper_init(wrapper_base *self, PyObject *wrapped);
int wrapper_traverse(wrapper_base *self, visitproc visit, void *arg);
void wrapper_clear(wrapper_base *self);
PyObject *wrapper_bind(PyObject *self, PyObject *instance, PyObject *owner);
PyObject *wrapper_repr(PyObject *self);
PyObject *wrapper_reduce(PyObject *self, PyObject *ignored);
extern PyMethodDef wrapper_methods[];

/* Calls what is wrapped with the frame hook off. */
PyObject *DisabledFunction_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);

/* set_eager(flag) of the module. */
PyObject *compiled_set_eager(PyObject *module, PyObject *flag);

/* Bind a call to the fast locals of a plain function. */
typedef struct {
    PyObject **locals; /* borrowed objects; `small` or the heap */
    PyObject *small[16];
    PyObject *star, *keywords; /* owned: the *args tuple and the **kwargs dict, or NULL */
} bound_call;

/* 1: bound. 0: the arguments do not fit; calling the function raises CPython's TypeError. -1: an exception is set. Call
 * unbind_call() afterwards in all cases. */
int bind_call(PyFunctionObject *function, PyObject *const *args, Py_ssize_t n, PyObject *names, bound_call *out);
void unbind_call(bound_call *bound);

#endif

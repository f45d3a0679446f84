/* GraphCall: an entry's graph together with the inputs of one call, for the entry's code to call. */
#include "entry.h"

#include <stddef.h>
#include <string.h>

typedef struct {
    PyObject_VAR_HEAD
    vectorcallfunc vectorcall;
    PyObject *callable;
    PyObject *items[]; /* room for a callee that prepends self, then the inputs; NULL once called */
} GraphCall;

static void
release_inputs(PyObject **inputs, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_CLEAR(inputs[i]);
    }
}

/* The inputs are let go when the graph returns: nothing here keeps them alive for the rest of the frame. */
static PyObject *
GraphCall_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    GraphCall *call = (GraphCall *)self;
    if (PyVectorcall_NARGS(nargsf) != 0 || names != NULL || call->callable == NULL) {
        PyErr_SetString(PyExc_TypeError, "the graph of a captured frame is called once, without arguments");
        return NULL;
    }
    Py_ssize_t n = Py_SIZE(call);
    PyObject *callable = call->callable;
    call->callable = NULL;
    Py_INCREF(self);
    PyObject *outputs = PyObject_Vectorcall(callable, call->items + 1, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    release_inputs(call->items + 1, n);
    Py_DECREF(callable);
    Py_DECREF(self);
    return outputs;
}

static void
GraphCall_dealloc(PyObject *self)
{
    GraphCall *call = (GraphCall *)self;
    release_inputs(call->items + 1, Py_SIZE(call));
    Py_CLEAR(call->callable);
    PyObject_Free(self);
}

PyTypeObject GraphCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.GraphCall",
    .tp_doc = "What the code of an Entry calls, without arguments, to run its graph.",
    .tp_basicsize = sizeof(GraphCall) + sizeof(PyObject *),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = GraphCall_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(GraphCall, vectorcall),
};

PyObject *
graph_call_new(DirectCall *direct, register_file *registers)
{
    GraphCall *call = PyObject_NewVar(GraphCall, &GraphCall_Type, direct->n_inputs);
    if (call == NULL) {
        return NULL;
    }
    call->vectorcall = GraphCall_call;
    call->callable = Py_NewRef(direct->callable);
    call->items[0] = NULL;
    for (Py_ssize_t i = 0; i < direct->n_inputs; i++) {
        PyObject **item = &registers->items[direct->inputs[i]];
        call->items[i + 1] = direct->is_injective ? *item : Py_NewRef(*item);
        if (direct->is_injective) {
            *item = NULL;
        }
    }
    return (PyObject *)call;
}

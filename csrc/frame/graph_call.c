/* GraphCall: an entry's graph together with the inputs of one call, for the entry's code to call.  What that code
   computes itself it passes as arguments: they come after the inputs. */
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

static PyObject *
call_with(PyObject *callable, PyObject *const *inputs, Py_ssize_t n, PyObject *const *more, Py_ssize_t n_more)
{
    PyObject **all = PyMem_New(PyObject *, n + n_more + 1);
    if (all == NULL) {
        return PyErr_NoMemory();
    }
    memcpy(all + 1, inputs, n * sizeof(PyObject *));
    memcpy(all + 1 + n, more, n_more * sizeof(PyObject *));
    size_t nargsf = (size_t)(n + n_more) | PY_VECTORCALL_ARGUMENTS_OFFSET;
    PyObject *outputs = PyObject_Vectorcall(callable, all + 1, nargsf, NULL);
    PyMem_Free(all);
    return outputs;
}

/* The inputs are released when the graph returns, so that they do not live until the end of the frame. */
static PyObject *
GraphCall_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    GraphCall *call = (GraphCall *)self;
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    if (names != NULL || call->callable == NULL) {
        PyErr_SetString(PyExc_TypeError, "the graph of a captured frame is called once, without keywords");
        return NULL;
    }
    Py_ssize_t n = Py_SIZE(call);
    PyObject *callable = call->callable;
    call->callable = NULL;
    Py_INCREF(self);
    PyObject *outputs =
        given ? call_with(callable, call->items + 1, n, args, given)
              : PyObject_Vectorcall(callable, call->items + 1, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
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
    .tp_doc = "What the code of an Entry calls to run its graph; arguments come after the inputs.",
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

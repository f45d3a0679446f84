#include "handover.h"

#include <stddef.h>

static _Thread_local handover *pending; /* set from the start of a call to that of the frame that it is for */

PyObject *
handover_call(handover *given, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    handover *outer = pending;
    pending = given;
    PyObject *result = PyObject_Vectorcall(given->function, args, (size_t)n, names);
    pending = outer;
    return result;
}

/* The frame has references of its own, so nothing dies here. */
void
handover_take(cp_frame *frame)
{
    handover *given = pending;
    if (given == NULL || (PyObject *)cp_frame_function(frame) != given->function) {
        return;
    }
    pending = NULL;
    if (given->frame != NULL) {
        cp_frame_clear_locals(given->frame, given->n);
        return;
    }
    for (Py_ssize_t i = 0; i < given->n; i++) {
        Py_CLEAR(given->items[i]);
    }
}

/* Not a builtin function: those count as a level of recursion. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
} HandOver;

static PyObject *
HandOver_call(PyObject *Py_UNUSED(self), PyObject *const *args, size_t nargsf, PyObject *keywords)
{
    enum { FEW = 16 };
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    PyObject *names = given == 3 ? args[2] : NULL;
    if (given < 2 || given > 3 || keywords != NULL || !PyList_Check(args[1])
        || (names != NULL && (!PyTuple_Check(names) || PyTuple_GET_SIZE(names) > PyList_GET_SIZE(args[1])))) {
        PyErr_SetString(PyExc_TypeError, "hand_over() takes a callable, a list and a tuple of names");
        return NULL;
    }
    PyObject *callable = args[0], *few[FEW], **items = few, *result = NULL;
    Py_ssize_t is_method = PyMethod_Check(callable), n = PyList_GET_SIZE(args[1]) + is_method;
    if (n > FEW && (items = PyMem_Malloc((size_t)n * sizeof *items)) == NULL) {
        return PyErr_NoMemory();
    }
    if (is_method) {
        items[0] = Py_NewRef(PyMethod_GET_SELF(callable));
        callable = PyMethod_GET_FUNCTION(callable);
    }
    for (Py_ssize_t i = is_method; i < n; i++) {
        items[i] = Py_NewRef(PyList_GET_ITEM(args[1], i - is_method));
    }
    Py_INCREF(callable);
    if (PyList_SetSlice(args[1], 0, n, NULL) == 0) {
        handover call = {.function = callable, .items = items, .n = n};
        result = handover_call(&call, items, n - (names == NULL ? 0 : PyTuple_GET_SIZE(names)), names);
    }
    Py_DECREF(callable);
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_XDECREF(items[i]);
    }
    if (items != few) {
        PyMem_Free(items);
    }
    return result;
}

static void
HandOver_dealloc(PyObject *self)
{
    PyObject_Free(self);
}

static PyTypeObject HandOver_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.HandOver",
    .tp_doc = "Calls a callable with the items of a list, which is emptied: only the callee holds them.",
    .tp_basicsize = sizeof(HandOver),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = HandOver_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(HandOver, vectorcall),
};

int
handover_init(PyObject *module)
{
    if (PyType_Ready(&HandOver_Type) < 0) {
        return -1;
    }
    HandOver *self = PyObject_New(HandOver, &HandOver_Type);
    if (self == NULL) {
        return -1;
    }
    self->vectorcall = HandOver_call;
    int failed = PyModule_AddObjectRef(module, "hand_over", (PyObject *)self);
    Py_DECREF(self);
    return failed;
}

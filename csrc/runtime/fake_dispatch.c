/* FakeDispatch(dispatch, device_op, meta): `dispatch`, but the question for a fake tensor's device is answered without
 * running Python code.  Torch asks it in functions that may not throw: an exception there, as Ctrl-C raises in whatever
 * Python code runs, ends the process. */
#include "fake_dispatch.h"

#include <stddef.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *dispatch, *device_op, *meta;
} fake_dispatch;

/* A new reference, or NULL, with no exception set, where `dispatch` is to answer. */
static PyObject *
device_of(fake_dispatch *self, PyObject *tensor)
{
    PyObject *device = NULL, *mode = PyObject_GetAttrString(tensor, "fake_mode");
    PyObject *in_kernel = mode == NULL ? NULL : PyObject_GetAttrString(mode, "in_kernel_invocation");
    if (in_kernel == Py_False) {
        device = PyObject_GetAttrString(tensor, "fake_device");
    }
    else if (in_kernel == Py_True) { /* kernels of meta tensors run */
        device = Py_NewRef(self->meta);
    }
    Py_XDECREF(in_kernel);
    Py_XDECREF(mode);
    if (device == NULL) {
        PyErr_Clear();
    }
    return device;
}

/* As torch calls it: (operator, types, arguments[, keyword arguments]). */
static PyObject *
fake_dispatch_call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *names)
{
    fake_dispatch *self = (fake_dispatch *)object;
    if (PyVectorcall_NARGS(nargsf) >= 3 && names == NULL && args[0] == self->device_op && PyTuple_Check(args[2])
        && PyTuple_GET_SIZE(args[2]) == 1) {
        PyObject *device = device_of(self, PyTuple_GET_ITEM(args[2], 0));
        if (device != NULL) {
            return device;
        }
    }
    return PyObject_Vectorcall(self->dispatch, args, nargsf, names);
}

static PyObject *
fake_dispatch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *dispatch, *device_op, *meta;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "FakeDispatch() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOO:FakeDispatch", &dispatch, &device_op, &meta)) {
        return NULL;
    }
    fake_dispatch *self = (fake_dispatch *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->vectorcall = fake_dispatch_call;
        self->dispatch = Py_NewRef(dispatch);
        self->device_op = Py_NewRef(device_op);
        self->meta = Py_NewRef(meta);
    }
    return (PyObject *)self;
}

static int
fake_dispatch_traverse(PyObject *object, visitproc visit, void *arg)
{
    fake_dispatch *self = (fake_dispatch *)object;
    Py_VISIT(self->dispatch);
    Py_VISIT(self->device_op);
    Py_VISIT(self->meta);
    return 0;
}

static int
fake_dispatch_clear(PyObject *object)
{
    fake_dispatch *self = (fake_dispatch *)object;
    Py_XSETREF(self->dispatch, Py_NewRef(Py_None)); /* the mode has this, and `dispatch` the mode */
    return 0;
}

static void
fake_dispatch_dealloc(PyObject *object)
{
    fake_dispatch *self = (fake_dispatch *)object;
    PyObject_GC_UnTrack(object);
    Py_CLEAR(self->dispatch);
    Py_CLEAR(self->device_op);
    Py_CLEAR(self->meta);
    Py_TYPE(object)->tp_free(object);
}

/* The mode: torch takes only what is bound to it. */
static PyObject *
fake_dispatch_get_self(PyObject *object, void *Py_UNUSED(closure))
{
    return PyObject_GetAttrString(((fake_dispatch *)object)->dispatch, "__self__");
}

static PyGetSetDef fake_dispatch_getset[] = {
    {"__self__", fake_dispatch_get_self, NULL, "that of `dispatch`", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject fake_dispatch_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "inductor._C.FakeDispatch",
    .tp_doc = "FakeDispatch(dispatch, device_op, meta): `dispatch(op, types, args, kwargs)`, without Python code for the\n"
              "operator `device_op`, which gives the device of a fake tensor.",
    .tp_basicsize = sizeof(fake_dispatch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = fake_dispatch_new,
    .tp_dealloc = fake_dispatch_dealloc,
    .tp_traverse = fake_dispatch_traverse,
    .tp_clear = fake_dispatch_clear,
    .tp_getset = fake_dispatch_getset,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(fake_dispatch, vectorcall),
};

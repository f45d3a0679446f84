/* TrainingCall: what a program calls in the place of a graph with gradients. It applies the graph's autograd function and
 * picks the results. Whatever else there is to a call is done by a function in Python (inductor/aot/autograd.py). */
#include "training.h"

#include <stddef.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *apply, *attributes, *finish, *refused, *eager, *transformed, *ddp, *otherwise;
    Py_ssize_t first; /* of the results: this many of the returned tensors as a tuple; -1: what `finish` makes of them */
    PyObject *weak_references;
} training_call;

static PyObject *active_name;

/* Whether the call is one for `otherwise`: under a function transform, or for DDP; -1 with an exception set. */
static int
is_special(const training_call *call)
{
    PyObject *transformed = PyObject_CallNoArgs(call->transformed);
    int special = transformed == NULL ? -1 : PyObject_IsTrue(transformed);
    Py_XDECREF(transformed);
    if (special == 0) {
        PyObject *active = PyObject_GetAttr(call->ddp, active_name);
        special = active == NULL ? -1 : active != Py_None;
        Py_XDECREF(active);
    }
    return special;
}

static PyObject *
results_of(const training_call *call, PyObject *primals, PyObject *outputs)
{
    if (call->first < 0) {
        return PyObject_CallFunctionObjArgs(call->finish, primals, outputs, NULL);
    }
    return PyTuple_GetSlice(outputs, 0, call->first); /* the tuple itself, if it has no more */
}

static PyObject *
training_call_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    training_call *call = (training_call *)self;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf), n_attributes = PyTuple_GET_SIZE(call->attributes);
    int special = kwnames != NULL ? 1 : is_special(call);
    if (special != 0) {
        return special < 0 ? NULL : PyObject_Vectorcall(call->otherwise, args, nargsf, kwnames);
    }
    PyObject *primals = PyTuple_New(n + n_attributes);
    if (primals == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n + n_attributes; i++) {
        PyTuple_SET_ITEM(primals, i, Py_NewRef(i < n ? args[i] : PyTuple_GET_ITEM(call->attributes, i - n)));
    }
    PyObject *outputs = PyObject_Call(call->apply, primals, NULL);
    PyObject *results = outputs == NULL ? NULL : results_of(call, primals, outputs);
    Py_DECREF(primals);
    if (outputs == NULL && PyErr_ExceptionMatches(call->refused)) {
        PyErr_Clear();
        return PyObject_Vectorcall(call->eager, args, nargsf, NULL);
    }
    Py_XDECREF(outputs);
    return results;
}

static PyObject *
training_call_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"apply", "attributes", "first", "finish", "refused", "eager", "transformed", "ddp",
                               "otherwise", NULL};
    PyObject *apply, *attributes, *finish, *refused, *eager, *transformed, *ddp, *otherwise;
    Py_ssize_t first;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!nOOOOOO", keywords, &apply, &PyTuple_Type, &attributes, &first,
                                     &finish, &refused, &eager, &transformed, &ddp, &otherwise)
        || (active_name == NULL && (active_name = PyUnicode_InternFromString("_active_ddp_module")) == NULL)) {
        return NULL;
    }
    training_call *call = (training_call *)type->tp_alloc(type, 0);
    if (call == NULL) {
        return NULL;
    }
    call->vectorcall = training_call_call;
    call->apply = Py_NewRef(apply);
    call->attributes = Py_NewRef(attributes);
    call->first = first;
    call->finish = Py_NewRef(finish);
    call->refused = Py_NewRef(refused);
    call->eager = Py_NewRef(eager);
    call->transformed = Py_NewRef(transformed);
    call->ddp = Py_NewRef(ddp);
    call->otherwise = Py_NewRef(otherwise);
    return (PyObject *)call;
}

static int
training_call_traverse(training_call *call, visitproc visit, void *arg)
{
    Py_VISIT(call->apply);
    Py_VISIT(call->attributes);
    Py_VISIT(call->finish);
    Py_VISIT(call->eager);
    Py_VISIT(call->otherwise);
    return 0;
}

static void
training_call_dealloc(training_call *call)
{
    PyObject_GC_UnTrack(call);
    if (call->weak_references != NULL) {
        PyObject_ClearWeakRefs((PyObject *)call);
    }
    Py_XDECREF(call->apply);
    Py_XDECREF(call->attributes);
    Py_XDECREF(call->finish);
    Py_XDECREF(call->refused);
    Py_XDECREF(call->eager);
    Py_XDECREF(call->transformed);
    Py_XDECREF(call->ddp);
    Py_XDECREF(call->otherwise);
    Py_TYPE(call)->tp_free((PyObject *)call);
}

PyTypeObject training_call_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "inductor._C.TrainingCall",
    .tp_doc = "TrainingCall(apply, attributes, first, finish, refused, eager, transformed, ddp, otherwise): a call with\n"
              "`inputs` returns the first `first` tensors of `apply(*inputs, *attributes)` as a tuple, or if `first` is -1\n"
              "`finish(inputs + attributes, tensors)`. If `apply` raises `refused` it is `eager(*inputs)`, and where\n"
              "`transformed()` is true or `ddp._active_ddp_module` is set, `otherwise(*inputs)`.",
    .tp_basicsize = sizeof(training_call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = training_call_new,
    .tp_dealloc = (destructor)training_call_dealloc,
    .tp_traverse = (traverseproc)training_call_traverse,
    .tp_weaklistoffset = offsetof(training_call, weak_references),
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(training_call, vectorcall),
};

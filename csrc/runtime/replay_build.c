/* The type inductor._C.Replay: filled from tuples, traversed and freed; replay.c has its calls. */
#include "replay.h"

#include <stddef.h>
#include <string.h>

static int
fill_dims(replay_result *result, PyObject *size, PyObject *stride)
{
    result->ndim = size == Py_None ? -1 : (int64_t)PyTuple_GET_SIZE(size);
    if (result->ndim < 0) {
        return 0;
    }
    result->dims = PyMem_Calloc(2 * (size_t)result->ndim + 1, sizeof *result->dims);
    if (result->dims == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int64_t d = 0; d < result->ndim; d++) {
        result->dims[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(size, d));
        result->dims[result->ndim + d] = PyLong_AsLongLong(PyTuple_GET_ITEM(stride, d));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* (kind, index, value, size, stride, offset, number of an earlier result or -1) */
static int
fill_result(replay_result *result, PyObject *item)
{
    int kind;
    PyObject *value, *size, *stride;
    long long offset;
    if (!PyArg_ParseTuple(item, "inOOOLn:result", &kind, &result->index, &value, &size, &stride, &offset,
                          &result->same_as)) {
        return -1;
    }
    result->kind = (enum result_kind)kind;
    result->value = Py_NewRef(value);
    result->size = Py_NewRef(size);
    result->stride = Py_NewRef(stride);
    result->offset = offset;
    return fill_dims(result, size, stride);
}

static int
fill_replay(replay_object *r, PyObject *mutated, PyObject *results)
{
    PyObject *lock = PyObject_GetAttrString(r->device, "lock");
    r->acquire = lock == NULL ? NULL : PyObject_GetAttrString(lock, "acquire");
    r->release = lock == NULL ? NULL : PyObject_GetAttrString(lock, "release");
    Py_XDECREF(lock);
    r->mutated = PyMem_Calloc((size_t)PyTuple_GET_SIZE(mutated) + 1, sizeof *r->mutated);
    r->results = PyMem_Calloc((size_t)PyTuple_GET_SIZE(results) + 1, sizeof *r->results);
    if (r->acquire == NULL || r->release == NULL || r->mutated == NULL || r->results == NULL) {
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    }
    for (; r->n_mutated < PyTuple_GET_SIZE(mutated); r->n_mutated++) {
        r->mutated[r->n_mutated] = PyLong_AsSsize_t(PyTuple_GET_ITEM(mutated, r->n_mutated));
    }
    while (r->n_results < PyTuple_GET_SIZE(results) && !PyErr_Occurred()) {
        replay_result *result = &r->results[r->n_results++];
        if (fill_result(result, PyTuple_GET_ITEM(results, r->n_results - 1)) < 0) {
            return -1;
        }
        if (result->kind == REPLAY_OWNED && result->index >= r->n_memories) {
            r->n_memories = result->index + 1;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *
replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *target, *otherwise, *device, *bound, *mutated, *results, *modes, *functions[5];
    Py_ssize_t count;
    int form;
    if (!PyArg_ParseTuple(args, "OOOnO!iO!O!O!(OOOOO):Replay", &target, &otherwise, &device, &count, &PyTuple_Type,
                          &bound, &form, &PyTuple_Type, &mutated, &PyTuple_Type, &results, &PyTuple_Type, &modes,
                          &functions[0], &functions[1], &functions[2], &functions[3], &functions[4])) {
        return NULL;
    }
    replay_object *r = Py_TYPE(target) == &plan_type ? (replay_object *)type->tp_alloc(type, 0) : NULL;
    if (r == NULL) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "Replay() takes a Plan");
        }
        return NULL;
    }
    r->vectorcall = replay_call;
    r->target = (plan_object *)Py_NewRef(target);
    r->otherwise = Py_NewRef(otherwise);
    r->device = Py_NewRef(device);
    r->bound = Py_NewRef(bound);
    r->modes = Py_NewRef(modes);
    r->count = count;
    r->form = (enum result_form)form;
    r->capturing = Py_NewRef(functions[0]);
    r->inference = Py_NewRef(functions[1]);
    r->use_count = Py_NewRef(functions[2]);
    r->foreach_copy = Py_NewRef(functions[3]);
    r->written = Py_NewRef(functions[4]);
    if (fill_replay(r, mutated, results) < 0) {
        Py_DECREF(r);
        return NULL;
    }
    return (PyObject *)r;
}

enum { N_HELD = 13 };

/* The objects, possibly NULL, that a Replay has references to, beside those of its results. */
static void
list_held(const replay_object *r, PyObject *held[N_HELD])
{
    PyObject *const all[N_HELD] = {(PyObject *)r->target, r->otherwise, r->device, r->bound, r->offered, r->modes,
                                   r->capturing, r->inference, r->use_count, r->foreach_copy, r->written, r->acquire,
                                   r->release};
    memcpy(held, all, sizeof all);
}

static int
replay_traverse(replay_object *r, visitproc visit, void *arg)
{
    PyObject *held[N_HELD];
    list_held(r, held);
    for (int i = 0; i < N_HELD; i++) {
        Py_VISIT(held[i]);
    }
    for (Py_ssize_t i = 0; i < r->n_results; i++) {
        Py_VISIT(r->results[i].value);
    }
    return 0;
}

/* The Recorder does not refer to its Replay. What may close a cycle from elsewhere is the function that it calls; the
 * rest stays valid for a call from a finalizer. */
static int
replay_tp_clear(replay_object *r)
{
    Py_XSETREF(r->otherwise, Py_NewRef(Py_None));
    return 0;
}

static void
replay_dealloc(replay_object *r)
{
    PyObject_GC_UnTrack(r);
    PyObject *held[N_HELD];
    list_held(r, held);
    for (int i = 0; i < N_HELD; i++) {
        Py_XDECREF(held[i]);
    }
    for (Py_ssize_t i = 0; i < r->n_results; i++) {
        Py_XDECREF(r->results[i].value);
        Py_XDECREF(r->results[i].size);
        Py_XDECREF(r->results[i].stride);
        PyMem_Free(r->results[i].dims);
    }
    PyMem_Free(r->results);
    PyMem_Free(r->mutated);
    Py_TYPE(r)->tp_free((PyObject *)r);
}

PyDoc_STRVAR(take_doc, "take(list): a call with the arguments in `list`, which is empty from then on.");

static PyMethodDef replay_methods[] = {
    {"take", replay_take, METH_O, take_doc},
    {NULL},
};

PyTypeObject replay_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "inductor._C.Replay",
    .tp_doc = "Replay(target, otherwise, device, count, bound, form, mutated, results, modes, functions): replays the\n"
              "recordings of the plan `target` that `otherwise.offered` holds; where none fits, calls `otherwise`.",
    .tp_basicsize = sizeof(replay_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = replay_new,
    .tp_traverse = (traverseproc)replay_traverse,
    .tp_clear = (inquiry)replay_tp_clear,
    .tp_dealloc = (destructor)replay_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(replay_object, vectorcall),
    .tp_methods = replay_methods,
};

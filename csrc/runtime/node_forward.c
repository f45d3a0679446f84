/* The forward of the autograd node of a compiled graph, which is a torch.autograd.Function. inductor/aot/autograd.py has
 * the same in Python, for what is special. */
#include "training.h"

#include <stddef.h>

node_names node_name;

/* Of Tensor._version. */
static getter read_version;
static void *version_closure;
static PyObject *version_name, *no_numbers;

static int
find_version(void)
{
    PyObject *torch = PyImport_ImportModule("torch");
    PyObject *type = torch == NULL ? NULL : PyObject_GetAttrString(torch, "Tensor");
    PyObject *descriptor = type == NULL ? NULL : PyObject_GetAttr(type, version_name);
    int failed = descriptor == NULL;
    if (!failed && Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) {
        PyGetSetDef *definition = ((PyGetSetDescrObject *)descriptor)->d_getset;
        read_version = definition->get;
        version_closure = definition->closure;
    }
    Py_XDECREF(descriptor);
    Py_XDECREF(type);
    Py_XDECREF(torch);
    return failed ? -1 : 0;
}

int
node_find_names(void)
{
    const struct {
        PyObject **place;
        const char *name;
    } all[] = {
        {&node_name.held, "held"}, {&node_name.freed, "freed"}, {&node_name.versions, "versions"},
        {&node_name.to_save, "to_save"}, {&node_name.non_differentiable, "non_differentiable"},
        {&node_name.materialize_grads, "materialize_grads"}, {&node_name.saved_tensors, "saved_tensors"},
        {&node_name.clear, "maybe_clear_saved_tensors"}, {&version_name, "_version"},
    };
    if (no_numbers != NULL) {
        return 0;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (*all[i].place == NULL && (*all[i].place = PyUnicode_InternFromString(all[i].name)) == NULL) {
            return -1;
        }
    }
    if (plan_bind_torch() < 0 || find_version() < 0) {
        return -1;
    }
    return (no_numbers = PyFrozenSet_New(NULL)) == NULL ? -1 : 0;
}

int
node_read_numbers(PyObject *tuple, numbers *out)
{
    out->n = PyTuple_GET_SIZE(tuple);
    out->at = PyMem_Calloc((size_t)out->n + 1, sizeof *out->at);
    if (out->at == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < out->n; i++) {
        out->at[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
        if (out->at[i] < 0) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "numbers of tensors are not negative");
            }
            return -1;
        }
    }
    return 0;
}

static PyObject *
version_of(PyObject *tensor)
{
    return read_version != NULL && tv_is_exact_tensor(tensor) ? read_version(tensor, version_closure)
                                                              : PyObject_GetAttr(tensor, version_name);
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *run, *hold;
    int simple, separable, counts_freed;
    numbers watched, loose, inputs, returned;
    Py_ssize_t count, differentiable;
} node_forward;

/* Put weak references in the places of the inputs that the call does not keep alive. 0, or -1 with an exception set. */
static int
loosen(const node_forward *node, PyObject *all)
{
    for (Py_ssize_t k = 0; k < node->loose.n; k++) {
        Py_ssize_t i = node->loose.at[k];
        PyObject *weak = i < PyTuple_GET_SIZE(all) ? PyWeakref_NewRef(PyTuple_GET_ITEM(all, i), NULL) : NULL;
        if (weak == NULL) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_ValueError, "a compiled graph was called with fewer inputs than it has");
            }
            return -1;
        }
        PyObject *input = PyTuple_GET_ITEM(all, i);
        PyTuple_SET_ITEM(all, i, weak);
        Py_DECREF(input);
    }
    return 0;
}

/* What `Rerun.hold` returns; from it, if it has to do more than to read version counters. */
static PyObject *
held_of(const node_forward *node, PyObject *const *primals, Py_ssize_t n)
{
    PyObject *all = PyTuple_New(n), *versions = NULL, *states = NULL, *result = NULL;
    for (Py_ssize_t i = 0; all != NULL && i < n; i++) {
        PyTuple_SET_ITEM(all, i, Py_NewRef(primals[i]));
    }
    if (all == NULL) {
        return NULL;
    }
    versions = node->simple ? PyTuple_New(node->watched.n) : NULL;
    for (Py_ssize_t k = 0; versions != NULL && k < node->watched.n; k++) {
        Py_ssize_t i = node->watched.at[k];
        PyObject *version = i < n ? version_of(primals[i]) : NULL;
        if (version == NULL) { /* a tensor of inference mode has none */
            PyErr_Clear();
            Py_CLEAR(versions);
        } else {
            PyTuple_SET_ITEM(versions, k, version);
        }
    }
    if (versions == NULL) {
        PyErr_Clear();
        result = PyObject_CallOneArg(node->hold, all);
    } else if ((states = PyTuple_New(0)) != NULL && loosen(node, all) == 0) {
        result = PyTuple_Pack(3, all, versions, states);
    }
    Py_XDECREF(states);
    Py_XDECREF(versions);
    Py_DECREF(all);
    return result;
}

/* Takes over the reference to the value. */
static int
set(PyObject *ctx, PyObject *name, PyObject *value)
{
    int failed = value == NULL ? -1 : PyObject_SetAttr(ctx, name, value);
    Py_XDECREF(value);
    return failed;
}

static PyObject *
versions_of(const node_forward *node, PyObject *outputs)
{
    PyObject *versions = PyList_New(node->returned.n);
    for (Py_ssize_t k = 0; versions != NULL && k < node->returned.n; k++) {
        PyObject *version = version_of(PyList_GET_ITEM(outputs, node->returned.at[k]));
        if (version == NULL) {
            Py_CLEAR(versions);
        } else {
            PyList_SET_ITEM(versions, k, version);
        }
    }
    return versions;
}

/* The tensors to save for the backward, in its order. */
static PyObject *
saved_of(const node_forward *node, PyObject *const *primals, PyObject *outputs)
{
    Py_ssize_t kept = PyList_GET_SIZE(outputs) - node->count, at = 0;
    PyObject *saved = PyTuple_New(node->inputs.n + node->returned.n + kept);
    if (saved == NULL) {
        return NULL;
    }
    for (Py_ssize_t k = 0; k < node->inputs.n; k++) {
        PyTuple_SET_ITEM(saved, at++, Py_NewRef(primals[node->inputs.at[k]]));
    }
    for (Py_ssize_t k = 0; k < node->returned.n; k++) {
        PyTuple_SET_ITEM(saved, at++, Py_NewRef(PyList_GET_ITEM(outputs, node->returned.at[k])));
    }
    for (Py_ssize_t k = 0; k < kept; k++) {
        PyTuple_SET_ITEM(saved, at++, Py_NewRef(PyList_GET_ITEM(outputs, node->count + k)));
    }
    return saved;
}

/* The items of a list from `first` up to `last`. */
static PyObject *
part_of(PyObject *list, Py_ssize_t first, Py_ssize_t last)
{
    PyObject *part = PyTuple_New(last - first);
    for (Py_ssize_t i = first; part != NULL && i < last; i++) {
        PyTuple_SET_ITEM(part, i - first, Py_NewRef(PyList_GET_ITEM(list, i)));
    }
    return part;
}

/* Tell torch what to save of a call, and how to treat its results, of which the tuple is returned. */
static PyObject *
finish_forward(const node_forward *node, PyObject *ctx, PyObject *const *primals, PyObject *outputs)
{
    if (PyList_GET_SIZE(outputs) < node->count || !all_below(&node->returned, PyList_GET_SIZE(outputs))) {
        PyErr_SetString(PyExc_ValueError, "a compiled forward returned fewer results than it has");
        return NULL;
    }
    if ((node->separable && set(ctx, node_name.versions, versions_of(node, outputs)) < 0)
        || set(ctx, node_name.to_save, saved_of(node, primals, outputs)) < 0
        || PyObject_SetAttr(ctx, node_name.materialize_grads, Py_False) < 0
        || (node->differentiable < node->count
            && set(ctx, node_name.non_differentiable, part_of(outputs, node->differentiable, node->count)) < 0)) {
        return NULL;
    }
    return part_of(outputs, 0, node->count);
}

/* (ctx, *primals) -> the returned tensors */
static PyObject *
node_forward_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const node_forward *node = (node_forward *)self;
    Py_ssize_t n = PyVectorcall_NARGS(nargsf) - 1;
    if (kwnames != NULL || n < 0 || !all_below(&node->inputs, n)) {
        PyErr_SetString(PyExc_TypeError, "the forward of a compiled graph takes its node and the graph's inputs");
        return NULL;
    }
    PyObject *ctx = args[0], *const *primals = args + 1;
    if (set(ctx, node_name.held, held_of(node, primals, n)) < 0
        || (node->counts_freed && PyObject_SetAttr(ctx, node_name.freed, no_numbers) < 0)) {
        return NULL;
    }
    PyObject *outputs = node_list_of(PyObject_Vectorcall(node->run, primals, (size_t)n, NULL));
    PyObject *returned = outputs == NULL ? NULL : finish_forward(node, ctx, primals, outputs);
    Py_XDECREF(outputs);
    return returned;
}

static PyObject *
node_forward_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"run", "hold", "simple", "separable", "counts_freed", "watched", "loose", "inputs", "returned",
                               "count", "differentiable", NULL};
    PyObject *run, *hold, *watched, *loose, *inputs, *returned;
    int simple, separable, counts_freed;
    Py_ssize_t count, differentiable;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOpppO!O!O!O!nn", keywords, &run, &hold, &simple, &separable,
                                     &counts_freed, &PyTuple_Type, &watched, &PyTuple_Type, &loose, &PyTuple_Type, &inputs,
                                     &PyTuple_Type, &returned, &count, &differentiable)
        || node_find_names() < 0) {
        return NULL;
    }
    if (count < 0 || differentiable < 0 || differentiable > count) {
        PyErr_SetString(PyExc_ValueError, "the differentiable results are the first of those returned");
        return NULL;
    }
    node_forward *node = (node_forward *)type->tp_alloc(type, 0);
    if (node == NULL) {
        return NULL;
    }
    node->vectorcall = node_forward_call;
    node->run = Py_NewRef(run);
    node->hold = Py_NewRef(hold);
    node->simple = simple;
    node->separable = separable;
    node->counts_freed = counts_freed;
    node->count = count;
    node->differentiable = differentiable;
    if (node_read_numbers(watched, &node->watched) < 0 || node_read_numbers(loose, &node->loose) < 0
        || node_read_numbers(inputs, &node->inputs) < 0
        || node_read_numbers(returned, &node->returned) < 0) {
        Py_DECREF(node);
        return NULL;
    }
    return (PyObject *)node;
}

static int
node_forward_traverse(node_forward *node, visitproc visit, void *arg)
{
    Py_VISIT(node->run);
    Py_VISIT(node->hold);
    return 0;
}

static void
node_forward_dealloc(node_forward *node)
{
    PyObject_GC_UnTrack(node);
    Py_XDECREF(node->run);
    Py_XDECREF(node->hold);
    PyMem_Free(node->watched.at);
    PyMem_Free(node->loose.at);
    PyMem_Free(node->inputs.at);
    PyMem_Free(node->returned.at);
    Py_TYPE(node)->tp_free((PyObject *)node);
}

PyTypeObject node_forward_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "inductor._C.NodeForward",
    .tp_doc = "NodeForward(run, hold, simple, separable, counts_freed, watched, loose, inputs, returned, count,\n"
              "differentiable):\n"
              "the forward of a compiled graph's autograd node. `run` computes the list of the `count` tensors that are\n"
              "returned, the first `differentiable` of which have gradients, and of those that are only saved; `inputs` and\n"
              "`returned` are the numbers of others to save. `hold` is that of `Rerun`; `simple`: it only reads the version\n"
              "counters of the inputs `watched`, and keeps those `loose` by weak references.",
    .tp_basicsize = sizeof(node_forward),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = node_forward_new,
    .tp_dealloc = (destructor)node_forward_dealloc,
    .tp_traverse = (traverseproc)node_forward_traverse,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(node_forward, vectorcall),
};

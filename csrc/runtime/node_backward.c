/* The backward of the autograd node of a compiled graph, which is a torch.autograd.Function: without Python code in the
 * calls that need nothing special. inductor/aot/autograd.py has the same in Python, and what is special. */
#include "training.h"

#include <stddef.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *take, *slow;
    PyObject *keeps_graph; /* whether the running backward pass retains the graph; NULL: passes are not counted */
    PyObject *all_freed;   /* what `freed` of a node is after a pass with all tangents that does not */
    Py_ssize_t n_tangents, primals;
    shape *layouts;  /* that the compiled backward expects of the tangents */
    uint64_t *keys;  /* the dispatch keys of plain tensors on the tangents' devices */
    numbers places;  /* of the gradients among those of the primals */
} node_backward;

/* The tangent in the layout that the backward expects, a new reference. NULL without an exception where Python code has
 * to look at it: if it is undefined, no plain tensor, or conjugated, batched, sparse and so on. */
static PyObject *
placed(PyObject *tangent, const shape *layout, uint64_t plain)
{
    uint64_t keys;
    tensor_view view;
    if (!tv_is_exact_tensor(tangent)) {
        return NULL;
    }
    if (tv_dispatch_keys(tangent, &keys) < 0 || keys != plain || tv_read_meta(tangent, &view) < 0
        || view.ndim != layout->ndim) {
        PyErr_Clear();
        return NULL;
    }
    for (int64_t d = 0; d < view.ndim; d++) {
        if (view.sizes[d] != layout->dims[d]) {
            return NULL;
        }
    }
    for (int64_t d = 0; d < view.ndim; d++) {
        if (view.strides[d] != layout->dims[view.ndim + d]) {
            return plan_restrided(tangent, layout, &view);
        }
    }
    return Py_NewRef(tangent);
}

/* The gradients of all primals from those that the compiled backward has found. */
static PyObject *
gradients_at_places(const node_backward *node, PyObject *found)
{
    if (PyList_GET_SIZE(found) < node->places.n) {
        PyErr_SetString(PyExc_ValueError, "a compiled backward returned fewer gradients than it has");
        return NULL;
    }
    PyObject *gradients = PyTuple_New(node->primals);
    if (gradients == NULL) {
        return NULL;
    }
    for (Py_ssize_t k = 0; k < node->places.n; k++) {
        PyTuple_SET_ITEM(gradients, node->places.at[k], Py_NewRef(PyList_GET_ITEM(found, k)));
    }
    for (Py_ssize_t i = 0; i < node->primals; i++) {
        if (PyTuple_GET_ITEM(gradients, i) == NULL) {
            PyTuple_SET_ITEM(gradients, i, Py_NewRef(Py_None));
        }
    }
    return gradients;
}

/* The gradients by the Python code. `error`: what the saved tensors raised, taken over; NULL if they were not read. */
static PyObject *
call_slow(const node_backward *node, PyObject *ctx, PyObject *const *tangents, PyObject *error)
{
    PyObject *given = PyTuple_New(node->n_tangents), *gradients = NULL;
    for (Py_ssize_t k = 0; given != NULL && k < node->n_tangents; k++) {
        PyTuple_SET_ITEM(given, k, Py_NewRef(tangents[k]));
    }
    if (given != NULL) {
        gradients = PyObject_CallFunctionObjArgs(node->slow, ctx, given, error == NULL ? Py_None : error, NULL);
    }
    Py_XDECREF(given);
    Py_XDECREF(error);
    return gradients;
}

static PyObject *
raised(void)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

/* The saved tensors and the tangents, as the list that the compiled backward takes. NULL with an exception set. */
static PyObject *
operands_of(PyObject *saved, PyObject *const *tangents, Py_ssize_t n)
{
    if (!PyTuple_Check(saved)) {
        PyErr_SetString(PyExc_TypeError, "the saved tensors are a tuple");
        return NULL;
    }
    Py_ssize_t n_saved = PyTuple_GET_SIZE(saved);
    PyObject *given = PyList_New(n_saved + n);
    for (Py_ssize_t i = 0; given != NULL && i < n_saved; i++) {
        PyList_SET_ITEM(given, i, Py_NewRef(PyTuple_GET_ITEM(saved, i)));
    }
    for (Py_ssize_t k = 0; given != NULL && k < n; k++) {
        PyList_SET_ITEM(given, n_saved + k, Py_NewRef(tangents[k]));
    }
    return given;
}

/* Whether an earlier pass has freed saved tensors; -1 with an exception set. */
static int
is_freed(const node_backward *node, PyObject *ctx)
{
    PyObject *freed = node->keeps_graph == NULL ? NULL : PyObject_GetAttr(ctx, node_name.freed);
    if (freed == NULL) {
        return node->keeps_graph == NULL ? 0 : -1;
    }
    int any = PyObject_IsTrue(freed);
    Py_DECREF(freed);
    return any;
}

/* Remember that this pass frees what all tangents need. 0, or -1 with an exception set. */
static int
count_freed(const node_backward *node, PyObject *ctx)
{
    if (node->keeps_graph == NULL) {
        return 0;
    }
    PyObject *kept = PyObject_CallNoArgs(node->keeps_graph);
    int keeps = kept == NULL ? -1 : PyObject_IsTrue(kept);
    Py_XDECREF(kept);
    return keeps != 0 ? Py_MIN(keeps, 0) : PyObject_SetAttr(ctx, node_name.freed, node->all_freed);
}

/* With plain tangents: the saved tensors are read and, unless the graph is retained, freed; the backward runs. */
static PyObject *
call_compiled(const node_backward *node, PyObject *ctx, PyObject *const *tangents, PyObject *const *plain)
{
    PyObject *saved = PyObject_GetAttr(ctx, node_name.saved_tensors);
    if (saved == NULL) { /* freed, or written since */
        return PyErr_ExceptionMatches(PyExc_RuntimeError) ? call_slow(node, ctx, tangents, raised()) : NULL;
    }
    PyObject *given = count_freed(node, ctx) < 0 ? NULL : operands_of(saved, plain, node->n_tangents);
    Py_DECREF(saved);
    PyObject *cleared = given == NULL ? NULL : PyObject_CallMethodNoArgs(ctx, node_name.clear);
    PyObject *found = cleared == NULL ? NULL : node_list_of(PyObject_CallOneArg(node->take, given));
    PyObject *gradients = found == NULL ? NULL : gradients_at_places(node, found);
    Py_XDECREF(cleared);
    Py_XDECREF(given);
    Py_XDECREF(found);
    return gradients;
}

/* (ctx, *tangents) -> the gradients of all primals */
static PyObject *
node_backward_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    enum { ON_STACK = 16 };
    const node_backward *node = (node_backward *)self;
    if (kwnames != NULL || PyVectorcall_NARGS(nargsf) < 1 + node->n_tangents) {
        PyErr_SetString(PyExc_TypeError, "the backward of a compiled graph takes its node and the gradients of its results");
        return NULL;
    }
    PyObject *ctx = args[0], *const *tangents = args + 1, *stack[ON_STACK], **plain = stack;
    if (node->n_tangents > ON_STACK && (plain = PyMem_New(PyObject *, node->n_tangents)) == NULL) {
        return PyErr_NoMemory();
    }
    Py_ssize_t known = 0;
    if (!plan_api.grad_enabled() && is_freed(node, ctx) == 0) {
        while (known < node->n_tangents
               && (plain[known] = placed(tangents[known], &node->layouts[known], node->keys[known])) != NULL) {
            known++;
        }
    }
    PyObject *gradients = NULL;
    if (known == node->n_tangents) {
        gradients = call_compiled(node, ctx, tangents, plain);
    } else if (!PyErr_Occurred()) {
        gradients = call_slow(node, ctx, tangents, NULL);
    }
    for (Py_ssize_t k = 0; k < known; k++) {
        Py_DECREF(plain[k]);
    }
    if (plain != stack) {
        PyMem_Free(plain);
    }
    return gradients;
}

/* In a class this is a method. */
static PyObject *
node_backward_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(type))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

static int
read_layouts(node_backward *node, PyObject *layouts, PyObject *plain)
{
    node->n_tangents = PyTuple_GET_SIZE(layouts);
    node->layouts = PyMem_Calloc((size_t)node->n_tangents + 1, sizeof *node->layouts);
    node->keys = PyMem_Calloc((size_t)node->n_tangents + 1, sizeof *node->keys);
    if (node->layouts == NULL || node->keys == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (PyTuple_GET_SIZE(plain) != node->n_tangents) {
        PyErr_SetString(PyExc_ValueError, "there are as many layouts as plain tensors");
        return -1;
    }
    for (Py_ssize_t k = 0; k < node->n_tangents; k++) {
        if (plan_fill_shape(&node->layouts[k], PyTuple_GET_ITEM(layouts, k), 0) < 0
            || tv_dispatch_keys(PyTuple_GET_ITEM(plain, k), &node->keys[k]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* The set of the numbers below `n`. */
static PyObject *
all_numbers(Py_ssize_t n)
{
    PyObject *range = PyObject_CallFunction((PyObject *)&PyRange_Type, "n", n);
    PyObject *all = range == NULL ? NULL : PyFrozenSet_New(range);
    Py_XDECREF(range);
    return all;
}

static PyObject *
node_backward_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"take", "slow", "layouts", "plain", "places", "primals", "keeps_graph", NULL};
    PyObject *take, *slow, *layouts, *plain, *places, *keeps_graph;
    Py_ssize_t primals;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!O!O!nO", keywords, &take, &slow, &PyTuple_Type, &layouts,
                                     &PyTuple_Type, &plain, &PyTuple_Type, &places, &primals, &keeps_graph)
        || node_find_names() < 0) {
        return NULL;
    }
    node_backward *node = (node_backward *)type->tp_alloc(type, 0);
    if (node == NULL) {
        return NULL;
    }
    node->vectorcall = node_backward_call;
    node->take = Py_NewRef(take);
    node->slow = Py_NewRef(slow);
    node->primals = primals;
    int failed = read_layouts(node, layouts, plain) < 0 || node_read_numbers(places, &node->places) < 0;
    if (!failed && keeps_graph != Py_None) {
        node->keeps_graph = Py_NewRef(keeps_graph);
        failed = (node->all_freed = all_numbers(node->n_tangents)) == NULL;
    }
    if (!failed && !all_below(&node->places, primals)) {
        PyErr_SetString(PyExc_ValueError, "a gradient belongs to no primal");
        failed = 1;
    }
    if (failed) {
        Py_DECREF(node);
        return NULL;
    }
    return (PyObject *)node;
}

static int
node_backward_traverse(node_backward *node, visitproc visit, void *arg)
{
    Py_VISIT(node->take);
    Py_VISIT(node->slow);
    Py_VISIT(node->keeps_graph);
    return 0;
}

static void
node_backward_dealloc(node_backward *node)
{
    PyObject_GC_UnTrack(node);
    Py_XDECREF(node->take);
    Py_XDECREF(node->slow);
    Py_XDECREF(node->keeps_graph);
    Py_XDECREF(node->all_freed);
    for (Py_ssize_t k = 0; node->layouts != NULL && k < node->n_tangents; k++) {
        PyMem_Free(node->layouts[k].dims);
    }
    PyMem_Free(node->layouts);
    PyMem_Free(node->keys);
    PyMem_Free(node->places.at);
    Py_TYPE(node)->tp_free((PyObject *)node);
}

PyTypeObject node_backward_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "inductor._C.NodeBackward",
    .tp_doc = "NodeBackward(take, slow, layouts, plain, places, primals, keeps_graph): the backward of a compiled graph's\n"
              "autograd node, a method `apply` of its class. `take` is the compiled backward, a function of the list of saved tensors and of\n"
              "tangents, which have these layouts; its results are the gradients of the primals at `places`. `plain`: tensors\n"
              "without any special dispatch key on the devices of the tangents. `slow(ctx, tangents, error)` is called in\n"
              "all other cases, with the exception that the saved tensors raised, or None. `keeps_graph()`: whether the\n"
              "running pass retains the graph; None in its place: nodes have no attribute `freed`.",
    .tp_basicsize = sizeof(node_backward),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = node_backward_new,
    .tp_dealloc = (destructor)node_backward_dealloc,
    .tp_traverse = (traverseproc)node_backward_traverse,
    .tp_descr_get = node_backward_get,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(node_backward, vectorcall),
};

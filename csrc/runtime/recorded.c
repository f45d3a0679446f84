/* Recorded: one recording of a plan as `Replay` needs it. */
#include "replay.h"

#include <string.h>

static long long
use_count_of(PyObject *use_count, const memory *m)
{
    PyObject *count = PyObject_CallOneArg(use_count, m->cdata);
    long long result = count == NULL ? -1 : PyLong_AsLongLong(count);
    Py_XDECREF(count);
    return result;
}

int
recorded_usable(const recorded_object *recorded, PyObject *use_count)
{
    for (Py_ssize_t i = 0; i < recorded->n_memories; i++) {
        const memory *m = &recorded->memories[i];
        tensor_view view;
        if (m->handed_out) {
            if (Py_REFCNT(m->storage) != m->references) {
                return 0;
            }
            long long uses = use_count_of(use_count, m);
            if (uses != m->uses) {
                return uses < 0 ? -1 : 0;
            }
        }
        if (tv_read(m->probe, &view) < 0) {
            return -1;
        }
        if (view.data != m->address) {
            return 0;
        }
    }
    return 1;
}

/* `item` is (OwnedMemory, tensor that results are made of, whether results are given out). */
static int
fill_memory(memory *m, PyObject *item, PyObject *use_count)
{
    PyObject *owner, *tensor;
    tensor_view view;
    if (!PyArg_ParseTuple(item, "OOp:memory", &owner, &tensor, &m->handed_out)) {
        return -1;
    }
    m->owner = Py_NewRef(owner);
    m->tensor = Py_NewRef(tensor);
    m->cdata = PyObject_GetAttrString(owner, "cdata");
    m->probe = PyObject_GetAttrString(owner, "tensor");
    m->storage = PyObject_GetAttrString(owner, "storage");
    if (m->cdata == NULL || m->probe == NULL || m->storage == NULL) {
        m->storage = NULL;
        return -1;
    }
    Py_DECREF(m->storage);
    m->references = Py_REFCNT(m->storage);
    m->uses = use_count_of(use_count, m);
    if (m->uses < 0 || tv_read(m->probe, &view) < 0) {
        return -1;
    }
    m->address = view.data;
    if (m->tensor == m->probe) {
        PyObject *bytes = PyObject_GetAttrString(owner, "nbytes");
        m->bytes = bytes == NULL ? 0 : PyLong_AsSize_t(bytes);
        Py_XDECREF(bytes);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int
fill(recorded_object *r, PyObject *addresses, PyObject *memories, PyObject *copied, PyObject *use_count)
{
    r->n_inputs = PyBytes_GET_SIZE(addresses) / (Py_ssize_t)sizeof *r->addresses;
    r->addresses = PyMem_Malloc((size_t)PyBytes_GET_SIZE(addresses) + 1);
    r->copied = PyMem_Calloc((size_t)PyTuple_GET_SIZE(copied) + 1, sizeof *r->copied);
    r->memories = PyMem_Calloc((size_t)PyTuple_GET_SIZE(memories) + 1, sizeof *r->memories);
    if (r->addresses == NULL || r->copied == NULL || r->memories == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(r->addresses, PyBytes_AS_STRING(addresses), (size_t)PyBytes_GET_SIZE(addresses));
    for (; r->n_copied < PyTuple_GET_SIZE(copied); r->n_copied++) {
        Py_ssize_t i = PyLong_AsSsize_t(PyTuple_GET_ITEM(copied, r->n_copied));
        if (i < 0 || i >= r->n_inputs || PyList_GET_SIZE(r->targets) != PyTuple_GET_SIZE(copied)) {
            PyErr_Format(PyExc_ValueError, "Recorded: %zd is not the number of a copied input", i);
            return -1;
        }
        r->copied[r->n_copied] = i;
    }
    while (r->n_memories < PyTuple_GET_SIZE(memories)) {
        memory *m = &r->memories[r->n_memories++];
        if (fill_memory(m, PyTuple_GET_ITEM(memories, r->n_memories - 1), use_count) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
recorded_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *graph, *used, *addresses, *memories, *copied, *targets, *use_count;
    int inference;
    long long generation;
    if (plan_bind_torch() < 0
        || !PyArg_ParseTuple(args, "OO!O!pLO!O!O!O:Recorded", &graph, &PySet_Type, &used, &PyBytes_Type, &addresses,
                             &inference, &generation, &PyTuple_Type, &memories, &PyTuple_Type, &copied, &PyList_Type,
                             &targets, &use_count)) {
        return NULL;
    }
    recorded_object *r = (recorded_object *)type->tp_alloc(type, 0);
    if (r == NULL) {
        return NULL;
    }
    r->graph = Py_NewRef(graph);
    r->used = Py_NewRef(used);
    r->targets = Py_NewRef(targets);
    r->inference = inference;
    r->generation = generation;
    if (fill(r, addresses, memories, copied, use_count) < 0) {
        Py_DECREF(r);
        return NULL;
    }
    return (PyObject *)r;
}

static int
recorded_traverse(recorded_object *r, visitproc visit, void *arg)
{
    Py_VISIT(r->graph);
    Py_VISIT(r->used);
    Py_VISIT(r->targets);
    for (Py_ssize_t i = 0; i < r->n_memories; i++) {
        Py_VISIT(r->memories[i].owner);
        Py_VISIT(r->memories[i].tensor);
        Py_VISIT(r->memories[i].probe);
    }
    return 0;
}

/* Nothing in here refers to a Replay, so that no cycle needs to be broken here. */
static void
recorded_dealloc(recorded_object *r)
{
    PyObject_GC_UnTrack(r);
    for (Py_ssize_t i = 0; i < r->n_memories; i++) {
        memory *m = &r->memories[i];
        Py_XDECREF(m->cdata);
        Py_XDECREF(m->tensor);
        Py_XDECREF(m->probe);
        Py_XDECREF(m->owner);
    }
    PyMem_Free(r->memories);
    PyMem_Free(r->copied);
    PyMem_Free(r->addresses);
    Py_XDECREF(r->graph);
    Py_XDECREF(r->used);
    Py_XDECREF(r->targets);
    Py_TYPE(r)->tp_free((PyObject *)r);
}

PyTypeObject recorded_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "inductor._C.Recorded",
    .tp_doc = "Recorded(graph, used, addresses, inference, generation, memories, copied, targets, use_count): a recorded\n"
              "call. `used`: the set of streams it was replayed on. `addresses`: as from Plan.addresses(). `memories`: for\n"
              "each an OwnedMemory that nothing else uses now, the tensor that results are made of, and whether they are\n"
              "given out. `copied`: the positions of inputs that are copied to `targets`. `use_count`: of a storage.",
    .tp_basicsize = sizeof(recorded_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = recorded_new,
    .tp_traverse = (traverseproc)recorded_traverse,
    .tp_dealloc = (destructor)recorded_dealloc,
};

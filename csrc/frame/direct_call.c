#include "entry.h"

#include <string.h>

/* How a result is built: a tree over the callable's outputs, guard registers and constants. */
typedef enum { NODE_RAW, NODE_NONE, NODE_OUT, NODE_REGISTER, NODE_CONST, NODE_TUPLE, NODE_LIST, NODE_DICT } node_kind;

struct output_node {
    node_kind kind;
    int32_t index;         /* output or register */
    PyObject *object;      /* constant, or the tuple of a dict's keys */
    Py_ssize_t n_children;
    output_node *children;
};

/* ---- Templates ---- */
static void
free_node(output_node *node)
{
    Py_CLEAR(node->object);
    for (Py_ssize_t i = 0; i < node->n_children; i++) {
        free_node(&node->children[i]);
    }
    PyMem_Free(node->children);
    node->children = NULL;
    node->n_children = 0;
}

static int parse_template(output_node *node, PyObject *spec, DirectCall *direct);

static int
parse_children(output_node *node, PyObject *specs, DirectCall *direct)
{
    PyObject *items = PySequence_Tuple(specs);
    if (items == NULL) {
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    node->children = PyMem_Calloc((size_t)n + 1, sizeof *node->children);
    int failed = node->children == NULL;
    if (failed) {
        PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; !failed && i < n; i++) {
        node->n_children = i + 1;
        failed = parse_template(&node->children[i], PyTuple_GET_ITEM(items, i), direct) < 0;
    }
    Py_DECREF(items);
    return failed ? -1 : 0;
}

static int
parse_index(output_node *node, PyObject *value)
{
    Py_ssize_t index = PyLong_AsSsize_t(value);
    if (index < 0 || index > INT32_MAX) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "index %zd in an output template is out of range", index);
        }
        return -1;
    }
    node->index = (int32_t)index;
    return 0;
}

static bool
spec_is(PyObject *spec, const char *name, Py_ssize_t length)
{
    return PyTuple_GET_SIZE(spec) == length
           && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(spec, 0), name) == 0;
}

static int
parse_dict(output_node *node, PyObject *spec, DirectCall *direct)
{
    node->kind = NODE_DICT;
    node->object = PySequence_Tuple(PyTuple_GET_ITEM(spec, 1));
    if (node->object == NULL || parse_children(node, PyTuple_GET_ITEM(spec, 2), direct) < 0) {
        return -1;
    }
    if (PyTuple_GET_SIZE(node->object) != node->n_children) {
        PyErr_SetString(PyExc_ValueError, "a dict template needs as many keys as values");
        return -1;
    }
    return 0;
}

/* One of ('out', i), ('reg', r), ('const', o), ('tuple', [...]), ('list', [...]), ('dict', keys, [...]). */
static int
parse_template(output_node *node, PyObject *spec, DirectCall *direct)
{
    if (!PyTuple_Check(spec) || PyTuple_GET_SIZE(spec) < 2 || !PyUnicode_Check(PyTuple_GET_ITEM(spec, 0))) {
        PyErr_Format(PyExc_ValueError, "not an output template: %R", spec);
        return -1;
    }
    PyObject *operand = PyTuple_GET_ITEM(spec, 1);
    if (spec_is(spec, "out", 2)) {
        node->kind = NODE_OUT;
        return parse_index(node, operand);
    }
    if (spec_is(spec, "reg", 2)) {
        node->kind = NODE_REGISTER;
        if (parse_index(node, operand) < 0) {
            return -1;
        }
        direct->highest_register = Py_MAX(direct->highest_register, node->index);
        return 0;
    }
    if (spec_is(spec, "const", 2)) {
        node->kind = NODE_CONST;
        node->object = Py_NewRef(operand);
        return 0;
    }
    if (spec_is(spec, "tuple", 2) || spec_is(spec, "list", 2)) {
        node->kind = spec_is(spec, "tuple", 2) ? NODE_TUPLE : NODE_LIST;
        return parse_children(node, operand, direct);
    }
    if (spec_is(spec, "dict", 3)) {
        return parse_dict(node, spec, direct);
    }
    PyErr_Format(PyExc_ValueError, "not an output template: %R", spec);
    return -1;
}

/* 'tuple', 'single' and 'none' are abbreviations for the most common shapes. */
static int
parse_output(output_node *node, PyObject *spec, DirectCall *direct)
{
    if (!PyUnicode_Check(spec)) {
        return parse_template(node, spec, direct);
    }
    if (PyUnicode_CompareWithASCIIString(spec, "tuple") == 0) {
        node->kind = NODE_RAW;
    }
    else if (PyUnicode_CompareWithASCIIString(spec, "single") == 0) {
        node->kind = NODE_OUT;
    }
    else if (PyUnicode_CompareWithASCIIString(spec, "code") == 0) {
        direct->is_for_code = true;
    }
    else if (PyUnicode_CompareWithASCIIString(spec, "none") == 0) {
        node->kind = NODE_NONE;
    }
    else {
        PyErr_Format(PyExc_ValueError, "output %R: expected 'tuple', 'single', 'none', 'code' or a template", spec);
        return -1;
    }
    return 0;
}

/* ---- Running ---- */
static PyObject *build(const output_node *node, PyObject *outputs, PyObject *const *registers);

static PyObject *
output_at(PyObject *outputs, Py_ssize_t i)
{
    if (!PyTuple_Check(outputs) && !PyList_Check(outputs)) {
        PyErr_Format(PyExc_TypeError, "a compiled graph must return a tuple, got %.200s", Py_TYPE(outputs)->tp_name);
        return NULL;
    }
    if (i >= PySequence_Fast_GET_SIZE(outputs)) {
        PyErr_Format(PyExc_IndexError, "a compiled graph returned %zd outputs, number %zd was expected",
                     PySequence_Fast_GET_SIZE(outputs), i);
        return NULL;
    }
    return Py_NewRef(PySequence_Fast_GET_ITEM(outputs, i));
}

static PyObject *
build_sequence(const output_node *node, PyObject *outputs, PyObject *const *registers)
{
    bool as_tuple = node->kind == NODE_TUPLE;
    PyObject *result = as_tuple ? PyTuple_New(node->n_children) : PyList_New(node->n_children);
    for (Py_ssize_t i = 0; result != NULL && i < node->n_children; i++) {
        PyObject *item = build(&node->children[i], outputs, registers);
        if (item == NULL) {
            Py_CLEAR(result);
            break;
        }
        if (as_tuple) {
            PyTuple_SET_ITEM(result, i, item);
        }
        else {
            PyList_SET_ITEM(result, i, item);
        }
    }
    return result;
}

static PyObject *
build_dict(const output_node *node, PyObject *outputs, PyObject *const *registers)
{
    PyObject *result = PyDict_New();
    for (Py_ssize_t i = 0; result != NULL && i < node->n_children; i++) {
        PyObject *item = build(&node->children[i], outputs, registers);
        if (item == NULL || PyDict_SetItem(result, PyTuple_GET_ITEM(node->object, i), item) < 0) {
            Py_CLEAR(result);
        }
        Py_XDECREF(item);
    }
    return result;
}

static PyObject *
build(const output_node *node, PyObject *outputs, PyObject *const *registers)
{
    switch (node->kind) {
    case NODE_RAW: return PyTuple_CheckExact(outputs) ? Py_NewRef(outputs) : PySequence_Tuple(outputs);
    case NODE_NONE: return Py_NewRef(Py_None);
    case NODE_OUT: return output_at(outputs, node->index);
    case NODE_REGISTER: return Py_NewRef(registers[node->index]);
    case NODE_CONST: return Py_NewRef(node->object);
    case NODE_TUPLE:
    case NODE_LIST: return build_sequence(node, outputs, registers);
    case NODE_DICT: return build_dict(node, outputs, registers);
    }
    Py_UNREACHABLE();
}

PyObject *
direct_call_run(DirectCall *direct, PyObject *const *registers)
{
    PyObject *outputs = call_with_registers(direct->callable, direct->inputs, direct->n_inputs, registers);
    if (outputs == NULL) {
        return NULL;
    }
    PyObject *result = build(direct->output, outputs, registers);
    Py_DECREF(outputs);
    return result;
}

/* ---- The type ---- */
static int
parse_inputs(DirectCall *direct, PyObject *inputs)
{
    direct->n_inputs = PyTuple_GET_SIZE(inputs);
    PyObject *different = PySet_New(inputs);
    if (different == NULL) {
        return -1;
    }
    direct->is_injective = PySet_GET_SIZE(different) == direct->n_inputs;
    Py_DECREF(different);
    direct->inputs = PyMem_Calloc((size_t)direct->n_inputs + 1, sizeof *direct->inputs);
    if (direct->inputs == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < direct->n_inputs; i++) {
        Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(inputs, i));
        if (index < 0 || index > INT32_MAX) {
            if (!PyErr_Occurred()) {
                PyErr_Format(PyExc_ValueError, "input register %zd is out of range", index);
            }
            return -1;
        }
        direct->inputs[i] = (int32_t)index;
        direct->highest_register = Py_MAX(direct->highest_register, index);
    }
    return 0;
}

static PyObject *
DirectCall_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"callable", "input_registers", "output", NULL};
    PyObject *callable, *inputs, *output;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O:DirectCall", names, &callable, &PyTuple_Type, &inputs,
                                     &output)) {
        return NULL;
    }
    if (!PyCallable_Check(callable)) {
        PyErr_Format(PyExc_TypeError, "expected a callable, got %.200s", Py_TYPE(callable)->tp_name);
        return NULL;
    }
    DirectCall *direct = (DirectCall *)type->tp_alloc(type, 0);
    if (direct == NULL) {
        return NULL;
    }
    direct->callable = Py_NewRef(callable);
    direct->highest_register = -1;
    direct->output = PyMem_Calloc(1, sizeof *direct->output);
    if (direct->output == NULL) {
        PyErr_NoMemory();
    }
    if (direct->output == NULL || parse_inputs(direct, inputs) < 0 || parse_output(direct->output, output, direct) < 0) {
        Py_DECREF(direct);
        return NULL;
    }
    return (PyObject *)direct;
}

static int
visit_node(const output_node *node, visitproc visit, void *arg)
{
    Py_VISIT(node->object);
    for (Py_ssize_t i = 0; i < node->n_children; i++) {
        int stop = visit_node(&node->children[i], visit, arg);
        if (stop) {
            return stop;
        }
    }
    return 0;
}

static int
DirectCall_traverse(PyObject *self, visitproc visit, void *arg)
{
    DirectCall *direct = (DirectCall *)self;
    Py_VISIT(direct->callable);
    return direct->output == NULL ? 0 : visit_node(direct->output, visit, arg);
}

static int
DirectCall_clear(PyObject *self)
{
    DirectCall *direct = (DirectCall *)self;
    Py_CLEAR(direct->callable);
    return 0;
}

static void
DirectCall_dealloc(PyObject *self)
{
    DirectCall *direct = (DirectCall *)self;
    PyObject_GC_UnTrack(self);
    DirectCall_clear(self);
    PyMem_Free(direct->inputs);
    if (direct->output != NULL) {
        free_node(direct->output);
        PyMem_Free(direct->output);
    }
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
DirectCall_get_callable(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(((DirectCall *)self)->callable);
}

static PyObject *
DirectCall_get_inputs(PyObject *self, void *Py_UNUSED(closure))
{
    DirectCall *direct = (DirectCall *)self;
    PyObject *inputs = PyTuple_New(direct->n_inputs);
    for (Py_ssize_t i = 0; inputs != NULL && i < direct->n_inputs; i++) {
        PyObject *item = PyLong_FromLong(direct->inputs[i]);
        if (item == NULL) {
            Py_CLEAR(inputs);
            break;
        }
        PyTuple_SET_ITEM(inputs, i, item);
    }
    return inputs;
}

static PyGetSetDef DirectCall_getset[] = {
    {"callable", DirectCall_get_callable, NULL, "the compiled graph", NULL},
    {"input_registers", DirectCall_get_inputs, NULL, "guard registers passed to it", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject DirectCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.DirectCall",
    .tp_doc = "DirectCall(callable, input_registers, output)\n--\n\nA compiled graph called straight from its guards.",
    .tp_basicsize = sizeof(DirectCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = DirectCall_new,
    .tp_dealloc = DirectCall_dealloc,
    .tp_traverse = DirectCall_traverse,
    .tp_clear = DirectCall_clear,
    .tp_getset = DirectCall_getset,
};

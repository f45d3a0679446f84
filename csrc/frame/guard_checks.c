/* The checks of guard_ops.def, VersionCell, and the comparison of constants. */
#include "global_state.h"
#include "guard_op.h"
#include "relation.h"
#include "tensor_guard.h"

#include <string.h>

/* ---- Constants ---- */
static int
double_bits_equal(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static int
slice_equal(PySliceObject *a, PySliceObject *b)
{
    int same = const_equal(a->start, b->start);
    same = same <= 0 ? same : const_equal(a->stop, b->stop);
    return same <= 0 ? same : const_equal(a->step, b->step);
}

int
const_equal(PyObject *a, PyObject *b)
{
    if (a == b) {
        return 1;
    }
    if (Py_TYPE(a) != Py_TYPE(b)) {
        return 0;
    }
    if (PyFloat_CheckExact(a)) {
        return double_bits_equal(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    }
    if (PyComplex_CheckExact(a)) {
        Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
        return double_bits_equal(x.real, y.real) && double_bits_equal(x.imag, y.imag);
    }
    if (PySlice_Check(a)) {
        return slice_equal((PySliceObject *)a, (PySliceObject *)b);
    }
    if (PyTuple_CheckExact(a)) {
        Py_ssize_t n = PyTuple_GET_SIZE(a);
        int same = n == PyTuple_GET_SIZE(b);
        for (Py_ssize_t i = 0; same > 0 && i < n; i++) {
            same = const_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        }
        return same;
    }
    return PyObject_RichCompareBool(a, b, Py_EQ);
}

/* ---- Preparing operands ---- */
static bool
is_check(const op_row *row, const char *name)
{
    return strcmp(row->name, name) == 0;
}

/* Hold the object by a weak reference if its type allows that; the guard fails once the object is freed. */
static int
hold_weakly(guard_op *op)
{
    PyObject *weak = PyWeakref_NewRef(op->object, NULL);
    if (weak != NULL) {
        op->weak = weak;
        Py_CLEAR(op->object);
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

static int
require(bool holds, const char *name, const char *what)
{
    if (!holds) {
        PyErr_Format(PyExc_TypeError, "%s needs %s", name, what);
    }
    return holds ? 0 : -1;
}

int
guard_op_prepare(guard_op *op, const op_row *row)
{
    const char *name = row->name;
    if (is_check(row, "TYPE_IS")) {
        return require(PyType_Check(op->object), name, "a type") < 0 ? -1 : hold_weakly(op);
    }
    if (is_check(row, "IS") || is_check(row, "IS_NOT")) {
        return hold_weakly(op);
    }
    if (is_check(row, "DICT_KEYS")) {
        return require(PyTuple_Check(op->object), name, "a tuple of keys");
    }
    if (is_check(row, "GLOBAL_STATE")) {
        return require(Py_IS_TYPE(op->object, &GlobalState_Type), name, "a GlobalState");
    }
    if (is_check(row, "VERSION")) {
        return require(Py_IS_TYPE(op->object, &VersionCell_Type), name, "a VersionCell");
    }
    if (is_check(row, "PREDICATE") || is_check(row, "CALL")) {
        return require(PyCallable_Check(op->object), name, "a callable");
    }
    if (is_check(row, "GLOBAL") || is_check(row, "ATTR") || is_check(row, "HAS_ATTR") || is_check(row, "NO_ATTR")) {
        return require(PyUnicode_Check(op->object), name, "a name");
    }
    if (is_check(row, "TENSOR")) {
        op->tensor = tensor_expectation_new(op->object);
        return op->tensor == NULL ? -1 : 0; /* the payload stays in op->object and keeps the type alive */
    }
    if (is_check(row, "RELATION")) {
        op->relation = relation_new(op->object, op->n_registers);
        return op->relation == NULL ? -1 : 0;
    }
    return 0;
}

static inline PyObject *
identity_of(const guard_op *op)
{
    return op->weak != NULL ? cp_weakref_get(op->weak) : op->object;
}

/* ---- Checks ---- */
#define DEFINE(name) int check_##name(const guard_op *op, const call_context *context, PyObject **registers)

DEFINE(IS)
{
    return registers[op->a] == identity_of(op);
}

DEFINE(IS_NOT)
{
    return registers[op->a] != identity_of(op);
}

DEFINE(TYPE_IS)
{
    return (PyObject *)Py_TYPE(registers[op->a]) == identity_of(op);
}

DEFINE(EQUALS)
{
    return const_equal(registers[op->a], op->object);
}

DEFINE(LEN_EQ)
{
    Py_ssize_t n = PyObject_Size(registers[op->a]);
    return n < 0 ? -1 : n == (Py_ssize_t)op->integer;
}

/* Keys of a dict subclass, which may have another order, or of any other iterable. */
static int
keys_equal_by_iteration(PyObject *object, PyObject *keys)
{
    PyObject *actual = PySequence_Tuple(object);
    if (actual == NULL) {
        return -1;
    }
    int same = PyTuple_GET_SIZE(actual) == PyTuple_GET_SIZE(keys);
    for (Py_ssize_t i = 0; same > 0 && i < PyTuple_GET_SIZE(keys); i++) {
        same = const_equal(PyTuple_GET_ITEM(actual, i), PyTuple_GET_ITEM(keys, i));
    }
    Py_DECREF(actual);
    return same;
}

DEFINE(DICT_KEYS)
{
    PyObject *dict = registers[op->a], *keys = op->object, *key;
    if (!PyDict_CheckExact(dict)) {
        return keys_equal_by_iteration(dict, keys);
    }
    if (PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) {
        return 0;
    }
    Py_ssize_t position = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (!PyDict_Next(dict, &position, &key, NULL)) {
            return 0;
        }
        if (key == PyTuple_GET_ITEM(keys, i)) {
            continue;
        }
        Py_INCREF(key); /* a key's __eq__ may change the dict */
        int same = const_equal(key, PyTuple_GET_ITEM(keys, i));
        Py_DECREF(key);
        if (same <= 0) {
            return same;
        }
    }
    return 1;
}

DEFINE(DICT_LEN)
{
    PyObject *dict = registers[op->a];
    return PyDict_Check(dict) && PyDict_GET_SIZE(dict) == (Py_ssize_t)op->integer;
}

DEFINE(NO_KEY)
{
    PyObject *dict = registers[op->a];
    int found = PyDict_Check(dict) ? PyDict_Contains(dict, op->object) : 1;
    return found < 0 ? -1 : !found;
}

DEFINE(HAS_KEY)
{
    PyObject *dict = registers[op->a];
    return PyDict_Check(dict) ? PyDict_Contains(dict, op->object) : 0;
}

/* 1, 0, or -1 with an exception other than AttributeError. */
static int
has_attribute(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    if (value != NULL) {
        Py_DECREF(value);
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    }
    PyErr_Clear();
    return 0;
}

DEFINE(HAS_ATTR)
{
    return has_attribute(registers[op->a], op->object);
}

DEFINE(NO_ATTR)
{
    int has = has_attribute(registers[op->a], op->object);
    return has < 0 ? -1 : !has;
}

/* Each name of `entries` is found along the MRO of a type as guard_ops.def says of CLASS_FINDS. */
static bool
class_has(PyTypeObject *type, PyObject *entries)
{
    for (Py_ssize_t i = 0; i + 2 < PyTuple_GET_SIZE(entries); i += 3) {
        PyObject *found = cp_type_lookup(type, PyTuple_GET_ITEM(entries, i)); /* borrowed */
        long how = PyLong_AsLong(PyTuple_GET_ITEM(entries, i + 1));
        PyObject *expected = PyTuple_GET_ITEM(entries, i + 2);
        bool holds = how == 0   ? found == NULL
                     : how == 1 ? found == expected
                                : found != NULL && (PyObject *)Py_TYPE(found) == expected;
        if (!holds) {
            return false;
        }
    }
    return true;
}

/* The raw attributes that a capture looked up on a class. The names are looked up again only if the version tag of the
 * class differs from that of the last check that passed; CPython never uses a tag twice. */
DEFINE(CLASS_FINDS)
{
    PyObject *metaclass = PyTuple_GET_ITEM(op->object, 0), *mro = PyTuple_GET_ITEM(op->object, 1);
    if (!PyType_Check(registers[op->a])) {
        return 0;
    }
    PyTypeObject *type = (PyTypeObject *)registers[op->a];
    if ((PyObject *)Py_TYPE(type) != metaclass || type->tp_mro != mro) {
        return 0;
    }
    if (op->type_version != 0 && type->tp_version_tag == op->type_version) {
        return 1;
    }
    if (!class_has(type, PyTuple_GET_ITEM(op->object, 2))) {
        return 0;
    }
    const uint64_t *version = cp_type_version(type);
    ((guard_op *)op)->type_version = version == NULL ? 0 : type->tp_version_tag;
    return 1;
}

DEFINE(TENSOR)
{
    return tensor_matches(registers[op->a], op->tensor);
}

DEFINE(RELATION)
{
    return relation_holds(op->relation, registers, op->registers);
}

DEFINE(SAME)
{
    return registers[op->a] == registers[op->b];
}

static int
distinct_by_pairs(const guard_op *op, PyObject **registers)
{
    for (int32_t i = 1; i < op->n_registers; i++) {
        for (int32_t j = 0; j < i; j++) {
            if (registers[op->registers[i]] == registers[op->registers[j]]) {
                return 0;
            }
        }
    }
    return 1;
}

PyObject **
guard_address_place(PyObject **table, size_t size, PyObject *object)
{
    size_t place = ((size_t)object >> 4) * 11400714819323198485u >> 32 & (size - 1);
    while (table[place] != NULL && table[place] != object) {
        place = (place + 1) & (size - 1);
    }
    return &table[place];
}

/* A model may have hundreds of parameters, hence a set of their addresses, at most half full. */
static int
distinct_by_hash(const guard_op *op, PyObject **registers)
{
    size_t size = 32;
    while (size < 2 * (size_t)op->n_registers) {
        size *= 2;
    }
    PyObject **table = PyMem_Calloc(size, sizeof *table);
    if (table == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int distinct = 1;
    for (int32_t i = 0; distinct && i < op->n_registers; i++) {
        PyObject *object = registers[op->registers[i]], **place = guard_address_place(table, size, object);
        distinct = *place == NULL;
        *place = object;
    }
    PyMem_Free(table);
    return distinct;
}

static int
distinct_from_others(const guard_op *op, PyObject **registers)
{
    for (int32_t i = 0; i < op->n_registers; i++) {
        if (*guard_address_place(op->others, op->n_others, registers[op->registers[i]]) != NULL) {
            return 0;
        }
    }
    return 1;
}

DEFINE(DISTINCT)
{
    if (op->others != NULL && !distinct_from_others(op, registers)) {
        return 0;
    }
    return op->n_registers <= 16 ? distinct_by_pairs(op, registers) : distinct_by_hash(op, registers);
}

DEFINE(GLOBAL_STATE)
{
    return global_state_matches(op->object);
}

DEFINE(PREDICATE)
{
    PyObject *result = call_with_registers(op->object, op->registers, op->n_registers, registers);
    if (result == NULL) {
        return -1;
    }
    int truth = PyObject_IsTrue(result);
    Py_DECREF(result);
    return truth;
}

DEFINE(INT_TYPE)
{
    return PyLong_CheckExact(registers[op->a]);
}

DEFINE(INT_RANGE)
{
    PyObject *value = registers[op->a];
    int overflow;
    if (!PyLong_CheckExact(value)) {
        return 0;
    }
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && op->integer <= number && number <= op->integer2;
}

DEFINE(TRUTH)
{
    int truth = PyObject_IsTrue(registers[op->a]);
    return truth < 0 ? -1 : truth == (op->integer != 0);
}

/* ---- VersionCell ---- */
typedef struct {
    PyObject_HEAD
    uint64_t value;
} VersionCell;

DEFINE(VERSION)
{
    return ((VersionCell *)op->object)->value == (uint64_t)op->integer;
}

static PyObject *
VersionCell_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":VersionCell", names)) {
        return NULL;
    }
    VersionCell *cell = (VersionCell *)type->tp_alloc(type, 0);
    return (PyObject *)cell;
}

static PyObject *
VersionCell_bump(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromUnsignedLongLong(++((VersionCell *)self)->value);
}

static PyObject *
VersionCell_value(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((VersionCell *)self)->value);
}

static PyMethodDef VersionCell_methods[] = {
    {"bump", VersionCell_bump, METH_NOARGS, "bump() -> int: invalidate every guard on the old value"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef VersionCell_getset[] = {
    {"value", VersionCell_value, NULL, "the current version", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject VersionCell_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.VersionCell",
    .tp_doc = "VersionCell()\n--\n\nA counter that VERSION guards compare with; Python bumps it to invalidate them.",
    .tp_basicsize = sizeof(VersionCell),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = VersionCell_new,
    .tp_methods = VersionCell_methods,
    .tp_getset = VersionCell_getset,
};

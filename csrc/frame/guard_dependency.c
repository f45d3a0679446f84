#include "guard_dependency.h"
#include "tensor_guard.h"
#include "tensor_view.h"

#include <string.h>

/* ---- The list ---- */
void
stamp_list_free(stamp_list *list)
{
    PyMem_Free(list->stamps);
    PyMem_Free(list->places);
    PyMem_Free(list->is_version);
    list->stamps = NULL;
    list->places = NULL;
    list->is_version = NULL;
    list->n = list->capacity = 0;
    list->n_places = 0;
}

static size_t
place_of(const stamp_list *list, const void *address)
{
    size_t mask = list->n_places - 1, place = ((size_t)address >> 3) * 11400714819323198485u >> 24 & mask;
    while (list->places[place] != 0 && list->stamps[list->places[place] - 1].address != address) {
        place = (place + 1) & mask;
    }
    return place;
}

static bool
grow(stamp_list *list)
{
    Py_ssize_t capacity = list->capacity ? 2 * list->capacity : 128;
    version_stamp *stamps = PyMem_Realloc(list->stamps, (size_t)capacity * sizeof *stamps);
    if (stamps == NULL) {
        return false;
    }
    list->stamps = stamps;
    unsigned char *is_version = PyMem_Realloc(list->is_version, (size_t)capacity);
    if (is_version == NULL) {
        return false;
    }
    memset(is_version + list->n, 0, (size_t)(capacity - list->n));
    list->is_version = is_version;
    size_t n_places = 2 * (size_t)capacity, *places = PyMem_Calloc(n_places, sizeof *places);
    if (places == NULL) {
        return false;
    }
    PyMem_Free(list->places);
    list->capacity = capacity;
    list->places = places;
    list->n_places = n_places;
    for (Py_ssize_t i = 0; i < list->n; i++) {
        places[place_of(list, stamps[i].address)] = (size_t)i + 1;
    }
    return true;
}

void
stamp_list_add(stamp_list *list, const void *address)
{
    if (list->failed || (list->n == list->capacity && !grow(list))) {
        list->failed = true;
        return;
    }
    size_t place = place_of(list, address);
    if (list->places[place] == 0) {
        version_stamp stamp = {.address = address};
        memcpy(&stamp.expected, address, sizeof stamp.expected);
        list->stamps[list->n++] = stamp;
        list->places[place] = (size_t)list->n;
    }
}

Py_ssize_t
stamp_list_index(const stamp_list *list, const void *address)
{
    return list->n_places == 0 ? -1 : (Py_ssize_t)list->places[place_of(list, address)] - 1;
}

/* ---- Types ---- */
static bool
is_immutable_type(const PyTypeObject *type)
{
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0;
}

/* Depend on the type of an object, and on the slots and attributes of that type. */
static bool
depend_on_type(stamp_list *list, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    const uint64_t *version = is_immutable_type(type) ? NULL : cp_type_version(type);
    if (version == NULL && !is_immutable_type(type)) {
        return false;
    }
    stamp_list_add(list, &object->ob_type);
    if (version != NULL) {
        stamp_list_add(list, version);
    }
    return true;
}

/* Depend on the result of looking up `name` on a class; `*found` is that result (borrowed), or NULL. */
static bool
depend_on_class_attribute(stamp_list *list, PyTypeObject *type, PyObject *name, PyObject **found)
{
    PyTypeObject *meta = Py_TYPE(type);
    if (meta->tp_getattro != PyType_Type.tp_getattro) {
        return false;
    }
    PyObject *of_meta = cp_type_lookup(meta, name);
    *found = cp_type_lookup(type, name);
    if (of_meta != NULL && (*found == NULL || Py_TYPE(of_meta)->tp_descr_set != NULL)) {
        return false;
    }
    const uint64_t *version = cp_type_version(type);
    if ((version == NULL && !is_immutable_type(type)) || !depend_on_type(list, (PyObject *)type)) {
        return false;
    }
    if (version != NULL) {
        stamp_list_add(list, version);
    }
    return true;
}

/* ---- Containers ---- */
/* A key whose `__hash__` and `__eq__` are CPython's own. */
bool
is_plain_key(PyObject *key)
{
    PyTypeObject *type = Py_TYPE(key);
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBool_Type || type == &PyFloat_Type
           || type == &PyBytes_Type || key == Py_None || type == &PyType_Type
           || (type->tp_hash == PyBaseObject_Type.tp_hash && type->tp_richcompare == PyBaseObject_Type.tp_richcompare);
}

bool
has_plain_keys(PyObject *dict)
{
    Py_ssize_t position = 0;
    PyObject *key;
    while (PyDict_Next(dict, &position, &key, NULL)) {
        if (!is_plain_key(key)) {
            return false;
        }
    }
    return true;
}

bool
depend_on_dict(stamp_list *list, PyObject *dict)
{
    const uint64_t *version = PyDict_Check(dict) ? cp_dict_version(dict) : NULL;
    if (version == NULL) {
        return false;
    }
    for (Py_ssize_t i = 0; i < list->n_changing; i++) {
        list->n_touched += list->changing[i] == (uintptr_t)version;
    }
    if (stamp_list_index(list, version) >= 0) {
        return true;
    }
    if (!has_plain_keys(dict)) {
        return false;
    }
    stamp_list_add(list, version);
    if (!list->failed) {
        list->is_version[list->n - 1] = 1;
    }
    return true;
}

/* Add stamps for the value of a key in a dict; false if there are none, or if they change often. */
static bool
depend_on_key(stamp_list *list, PyObject *dict, PyObject *key)
{
    const void *addresses[CP_KEY_STAMPS];
    int n = PyDict_CheckExact(dict) ? cp_key_stamps(dict, key, addresses) : 0;
    if (n == 0) {
        return depend_on_dict(list, dict);
    }
    for (Py_ssize_t i = 0; i < list->n_changing; i++) {
        if (list->changing[i] == (uintptr_t)addresses[n - 1]) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        stamp_list_add(list, addresses[i]);
    }
    if (!list->failed) {
        list->is_version[stamp_list_index(list, addresses[n - 1])] = 1;
    }
    return true;
}

bool
is_plain_constant(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type == &PyTuple_Type) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); i++) {
            if (!is_plain_constant(PyTuple_GET_ITEM(value, i))) {
                return false;
            }
        }
        return true;
    }
    return value == Py_None || value == Py_Ellipsis || type == &PyUnicode_Type || type == &PyLong_Type
           || type == &PyBool_Type || type == &PyFloat_Type || type == &PyBytes_Type || type == &PyComplex_Type;
}

/* ---- Accessors ---- */
typedef bool (*dependency_function)(stamp_list *list, const guard_op *op, PyObject **registers);
#define DEPENDENCY(name) static bool dependency_##name(stamp_list *list, const guard_op *op, PyObject **registers)

DEPENDENCY(CONST)
{
    return true;
}

DEPENDENCY(TYPE)
{
    stamp_list_add(list, &registers[op->a]->ob_type);
    return (PyObject *)Py_TYPE(registers[op->a]) == registers[op->dst];
}

DEPENDENCY(ATTR)
{
    PyObject *object = registers[op->a], *value = registers[op->dst], *found;
    if (PyType_Check(object)) {
        return depend_on_class_attribute(list, (PyTypeObject *)object, op->object, &found) && found == value;
    }
    if (!PyModule_CheckExact(object) || cp_type_lookup(&PyModule_Type, op->object) != NULL) {
        return false;
    }
    PyObject *dict = PyModule_GetDict(object);
    stamp_list_add(list, &object->ob_type);
    return depend_on_dict(list, dict) && PyDict_GetItemWithError(dict, op->object) == value;
}

DEPENDENCY(INSTANCE_DICT)
{
    PyObject *object = registers[op->a];
    if (PyType_Check(object)) {
        return false;
    }
    if (PyModule_Check(object)) {
        return PyModule_GetDict(object) == registers[op->dst];
    }
    PyObject **slot = _PyObject_GetDictPtr(object);
    if (slot == NULL || *slot != registers[op->dst]) {
        return false;
    }
    stamp_list_add(list, &object->ob_type); /* determines where the slot is */
    stamp_list_add(list, slot);
    return true;
}

DEPENDENCY(DICT_GET)
{
    PyObject *dict = registers[op->a];
    return is_plain_key(op->object) && depend_on_key(list, dict, op->object)
           && PyDict_GetItemWithError(dict, op->object) == registers[op->dst];
}

/* A tuple does not change, but another one may be at its address later, unless the memo holds it as a constant. */
static void
depend_on_tuple(stamp_list *list, PyObject *tuple)
{
    if (!is_plain_constant(tuple)) {
        stamp_list_add(list, &tuple->ob_type);
        stamp_list_add(list, &((PyVarObject *)tuple)->ob_size);
    }
}

DEPENDENCY(SEQ_ITEM)
{
    PyObject *sequence = registers[op->a], *value = registers[op->dst];
    Py_ssize_t i = (Py_ssize_t)op->integer;
    if (PyTuple_CheckExact(sequence)) {
        i += i < 0 ? PyTuple_GET_SIZE(sequence) : 0;
        depend_on_tuple(list, sequence);
        stamp_list_add(list, &((PyTupleObject *)sequence)->ob_item[i]);
        return PyTuple_GET_ITEM(sequence, i) == value;
    }
    if (!PyList_CheckExact(sequence)) {
        return false;
    }
    PyListObject *items = (PyListObject *)sequence;
    i += i < 0 ? Py_SIZE(items) : 0;
    if (i < 0 || i >= Py_SIZE(items) || items->ob_item[i] != value) {
        return false;
    }
    stamp_list_add(list, &((PyVarObject *)items)->ob_size);
    stamp_list_add(list, &items->ob_item);
    stamp_list_add(list, &items->ob_item[i]);
    return true;
}

DEPENDENCY(CELL_CONTENTS)
{
    PyCellObject *cell = (PyCellObject *)registers[op->a];
    stamp_list_add(list, &cell->ob_ref);
    return cell->ob_ref == registers[op->dst];
}

static bool
depend_on_field(stamp_list *list, PyObject **field, PyObject *value)
{
    stamp_list_add(list, field);
    return *field == value || (*field == NULL && value == Py_None);
}

#define FUNCTION_FIELD(name, field)                                                                                    \
    DEPENDENCY(name)                                                                                                   \
    {                                                                                                                  \
        return depend_on_field(list, &((PyFunctionObject *)registers[op->a])->field, registers[op->dst]);              \
    }

FUNCTION_FIELD(FUNC_CODE, func_code)
FUNCTION_FIELD(FUNC_DEFAULTS, func_defaults)
FUNCTION_FIELD(FUNC_KWDEFAULTS, func_kwdefaults)
FUNCTION_FIELD(FUNC_CLOSURE, func_closure)
FUNCTION_FIELD(FUNC_GLOBALS, func_globals)

DEPENDENCY(DICT_KEY_AT)
{
    PyObject *dict = registers[op->a], *key = NULL;
    Py_ssize_t position = 0;
    if (!PyDict_CheckExact(dict) || !depend_on_dict(list, dict)) {
        return false;
    }
    for (int64_t i = 0; i <= op->integer; i++) {
        if (!PyDict_Next(dict, &position, &key, NULL)) {
            return false;
        }
    }
    return key == registers[op->dst];
}

/* ---- Checks ---- */
DEPENDENCY(SAME_OBJECT) /* depends on the registers only */
{
    return true;
}

DEPENDENCY(TYPE_IS)
{
    stamp_list_add(list, &registers[op->a]->ob_type);
    return true;
}

DEPENDENCY(EQUALS)
{
    return registers[op->a] == op->object || is_plain_constant(registers[op->a]);
}

DEPENDENCY(LEN_EQ)
{
    PyObject *object = registers[op->a];
    if (PyDict_Check(object) && is_immutable_type(Py_TYPE(object))) {
        stamp_list_add(list, &((PyDictObject *)object)->ma_used);
        return PyDict_GET_SIZE(object) == (Py_ssize_t)op->integer;
    }
    if (PyList_CheckExact(object)) {
        stamp_list_add(list, &((PyVarObject *)object)->ob_size);
        return PyList_GET_SIZE(object) == (Py_ssize_t)op->integer;
    }
    if (PyTuple_CheckExact(object)) {
        depend_on_tuple(list, object);
        return true;
    }
    return PyUnicode_CheckExact(object);
}

DEPENDENCY(DICT_KEYS)
{
    PyObject *dict = registers[op->a];
    return PyDict_CheckExact(dict) && is_plain_constant(op->object) && depend_on_dict(list, dict);
}

DEPENDENCY(DICT_LEN)
{
    stamp_list_add(list, &((PyDictObject *)registers[op->a])->ma_used);
    return PyDict_GET_SIZE(registers[op->a]) == (Py_ssize_t)op->integer;
}

DEPENDENCY(HAS_KEY)
{
    return is_plain_key(op->object) && depend_on_key(list, registers[op->a], op->object);
}

DEPENDENCY(HAS_ATTR)
{
    PyObject *found;
    return PyType_Check(registers[op->a])
           && depend_on_class_attribute(list, (PyTypeObject *)registers[op->a], op->object, &found) && found != NULL
           && Py_TYPE(found)->tp_descr_get == NULL;
}

DEPENDENCY(NO_ATTR)
{
    PyObject *found;
    return PyType_Check(registers[op->a])
           && depend_on_class_attribute(list, (PyTypeObject *)registers[op->a], op->object, &found) && found == NULL;
}

DEPENDENCY(CLASS_FINDS)
{
    PyTypeObject *type = (PyTypeObject *)registers[op->a];
    const uint64_t *version = cp_type_version(type);
    if (version == NULL) {
        return false;
    }
    stamp_list_add(list, &((PyObject *)type)->ob_type);
    stamp_list_add(list, version);
    return true;
}

static const dependency_function dependencies[] = {
    [OP_CONST] = dependency_CONST,
    [OP_ATTR] = dependency_ATTR,
    [OP_INSTANCE_DICT] = dependency_INSTANCE_DICT,
    [OP_DICT_GET] = dependency_DICT_GET,
    [OP_SEQ_ITEM] = dependency_SEQ_ITEM,
    [OP_TYPE] = dependency_TYPE,
    [OP_CELL_CONTENTS] = dependency_CELL_CONTENTS,
    [OP_FUNC_CODE] = dependency_FUNC_CODE,
    [OP_FUNC_DEFAULTS] = dependency_FUNC_DEFAULTS,
    [OP_FUNC_KWDEFAULTS] = dependency_FUNC_KWDEFAULTS,
    [OP_FUNC_CLOSURE] = dependency_FUNC_CLOSURE,
    [OP_FUNC_GLOBALS] = dependency_FUNC_GLOBALS,
    [OP_DICT_KEY_AT] = dependency_DICT_KEY_AT,
    [OP_IS] = dependency_SAME_OBJECT,
    [OP_IS_NOT] = dependency_SAME_OBJECT,
    [OP_TYPE_IS] = dependency_TYPE_IS,
    [OP_EQUALS] = dependency_EQUALS,
    [OP_LEN_EQ] = dependency_LEN_EQ,
    [OP_DICT_KEYS] = dependency_DICT_KEYS,
    [OP_DICT_LEN] = dependency_DICT_LEN,
    [OP_NO_KEY] = dependency_HAS_KEY,
    [OP_HAS_KEY] = dependency_HAS_KEY,
    [OP_HAS_ATTR] = dependency_HAS_ATTR,
    [OP_NO_ATTR] = dependency_NO_ATTR,
    [OP_CLASS_FINDS] = dependency_CLASS_FINDS,
    [OP_SAME] = dependency_SAME_OBJECT,
    [OP_DISTINCT] = dependency_SAME_OBJECT,
    [OP_INT_TYPE] = dependency_SAME_OBJECT,
    [OP_INT_RANGE] = dependency_SAME_OBJECT,
    [N_OPS] = NULL,
};

bool
guard_dependency(stamp_list *list, const guard_op *op, PyObject **registers)
{
    return dependencies[op->code] != NULL && dependencies[op->code](list, op, registers);
}

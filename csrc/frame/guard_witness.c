#include "guard_witness.h"
#include "tensor_guard.h"
#include "tensor_view.h"

#include <string.h>

/* ---- The list ---- */
void
word_list_free(word_list *list)
{
    PyMem_Free(list->words);
    PyMem_Free(list->places);
    PyMem_Free(list->is_version);
    list->words = NULL;
    list->places = NULL;
    list->is_version = NULL;
    list->n = list->capacity = 0;
    list->n_places = 0;
}

static size_t
place_of(const word_list *list, const void *address)
{
    size_t mask = list->n_places - 1, place = ((size_t)address >> 3) * 11400714819323198485u >> 24 & mask;
    while (list->places[place] != 0 && list->words[list->places[place] - 1].address != address) {
        place = (place + 1) & mask;
    }
    return place;
}

static bool
grow(word_list *list)
{
    Py_ssize_t capacity = list->capacity ? 2 * list->capacity : 128;
    memory_word *words = PyMem_Realloc(list->words, (size_t)capacity * sizeof *words);
    if (words == NULL) {
        return false;
    }
    list->words = words;
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
        places[place_of(list, words[i].address)] = (size_t)i + 1;
    }
    return true;
}

void
word_list_add(word_list *list, const void *address)
{
    if (list->failed || (list->n == list->capacity && !grow(list))) {
        list->failed = true;
        return;
    }
    size_t place = place_of(list, address);
    if (list->places[place] == 0) {
        memory_word word = {.address = address};
        memcpy(&word.expected, address, sizeof word.expected);
        list->words[list->n++] = word;
        list->places[place] = (size_t)list->n;
    }
}

Py_ssize_t
word_list_index(const word_list *list, const void *address)
{
    return list->n_places == 0 ? -1 : (Py_ssize_t)list->places[place_of(list, address)] - 1;
}

/* ---- Types, and what they say ---- */
static bool
is_immutable_type(const PyTypeObject *type)
{
    return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) == 0;
}

/* The type of an object, and that its slots and attributes are as they were. */
static bool
witness_type(word_list *list, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    const uint64_t *version = is_immutable_type(type) ? NULL : cp_type_version(type);
    if (version == NULL && !is_immutable_type(type)) {
        return false;
    }
    word_list_add(list, &object->ob_type);
    if (version != NULL) {
        word_list_add(list, version);
    }
    return true;
}

/* The outcome of looking `name` up on a class: `*found` is what its MRO has (borrowed), or NULL. */
static bool
witness_class_attribute(word_list *list, PyTypeObject *type, PyObject *name, PyObject **found)
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
    if ((version == NULL && !is_immutable_type(type)) || !witness_type(list, (PyObject *)type)) {
        return false;
    }
    if (version != NULL) {
        word_list_add(list, version);
    }
    return true;
}

/* ---- Containers ---- */
/* A key whose hash and equality are nobody's code. */
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
witness_dict(word_list *list, PyObject *dict)
{
    const uint64_t *version = PyDict_Check(dict) ? cp_dict_version(dict) : NULL;
    if (version == NULL) {
        return false;
    }
    for (Py_ssize_t i = 0; i < list->n_changing; i++) {
        list->n_touched += list->changing[i] == (uintptr_t)version;
    }
    if (word_list_index(list, version) >= 0) {
        return true;
    }
    if (!has_plain_keys(dict)) {
        return false;
    }
    word_list_add(list, version);
    if (!list->failed) {
        list->is_version[list->n - 1] = 1;
    }
    return true;
}

/* Add the words that tell what a dict has under a key; false: none do, or they change often. */
static bool
witness_key(word_list *list, PyObject *dict, PyObject *key)
{
    const void *addresses[CP_KEY_WORDS];
    int n = PyDict_CheckExact(dict) ? cp_inline_words(dict, key, addresses) : 0;
    if (n == 0) {
        return witness_dict(list, dict);
    }
    for (Py_ssize_t i = 0; i < list->n_changing; i++) {
        if (list->changing[i] == (uintptr_t)addresses[n - 1]) {
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        word_list_add(list, addresses[i]);
    }
    if (!list->failed) {
        list->is_version[word_list_index(list, addresses[n - 1])] = 1;
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
typedef bool (*witness_function)(word_list *list, const guard_op *op, PyObject **registers);
#define WITNESS(name) static bool witness_##name(word_list *list, const guard_op *op, PyObject **registers)

WITNESS(CONST)
{
    return true;
}

WITNESS(TYPE)
{
    word_list_add(list, &registers[op->a]->ob_type);
    return (PyObject *)Py_TYPE(registers[op->a]) == registers[op->dst];
}

WITNESS(ATTR)
{
    PyObject *object = registers[op->a], *value = registers[op->dst], *found;
    if (PyType_Check(object)) {
        return witness_class_attribute(list, (PyTypeObject *)object, op->object, &found) && found == value;
    }
    if (!PyModule_CheckExact(object) || cp_type_lookup(&PyModule_Type, op->object) != NULL) {
        return false;
    }
    PyObject *dict = PyModule_GetDict(object);
    word_list_add(list, &object->ob_type);
    return witness_dict(list, dict) && PyDict_GetItemWithError(dict, op->object) == value;
}

WITNESS(INSTANCE_DICT)
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
    word_list_add(list, &object->ob_type); /* says where the slot is */
    word_list_add(list, slot);
    return true;
}

WITNESS(DICT_GET)
{
    PyObject *dict = registers[op->a];
    return is_plain_key(op->object) && witness_key(list, dict, op->object)
           && PyDict_GetItemWithError(dict, op->object) == registers[op->dst];
}

/* A tuple does not change, but another one may be at its address, unless the memo holds it as a constant. */
static void
witness_tuple(word_list *list, PyObject *tuple)
{
    if (!is_plain_constant(tuple)) {
        word_list_add(list, &tuple->ob_type);
        word_list_add(list, &((PyVarObject *)tuple)->ob_size);
    }
}

WITNESS(SEQ_ITEM)
{
    PyObject *sequence = registers[op->a], *value = registers[op->dst];
    Py_ssize_t i = (Py_ssize_t)op->integer;
    if (PyTuple_CheckExact(sequence)) {
        i += i < 0 ? PyTuple_GET_SIZE(sequence) : 0;
        witness_tuple(list, sequence);
        word_list_add(list, &((PyTupleObject *)sequence)->ob_item[i]);
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
    word_list_add(list, &((PyVarObject *)items)->ob_size);
    word_list_add(list, &items->ob_item);
    word_list_add(list, &items->ob_item[i]);
    return true;
}

WITNESS(CELL_CONTENTS)
{
    PyCellObject *cell = (PyCellObject *)registers[op->a];
    word_list_add(list, &cell->ob_ref);
    return cell->ob_ref == registers[op->dst];
}

static bool
witness_field(word_list *list, PyObject **field, PyObject *value)
{
    word_list_add(list, field);
    return *field == value || (*field == NULL && value == Py_None);
}

#define FUNCTION_FIELD(name, field)                                                                                    \
    WITNESS(name)                                                                                                      \
    {                                                                                                                  \
        return witness_field(list, &((PyFunctionObject *)registers[op->a])->field, registers[op->dst]);                \
    }

FUNCTION_FIELD(FUNC_CODE, func_code)
FUNCTION_FIELD(FUNC_DEFAULTS, func_defaults)
FUNCTION_FIELD(FUNC_KWDEFAULTS, func_kwdefaults)
FUNCTION_FIELD(FUNC_CLOSURE, func_closure)
FUNCTION_FIELD(FUNC_GLOBALS, func_globals)

WITNESS(DICT_KEY_AT)
{
    PyObject *dict = registers[op->a], *key = NULL;
    Py_ssize_t position = 0;
    if (!PyDict_CheckExact(dict) || !witness_dict(list, dict)) {
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
WITNESS(SAME_OBJECT) /* told by the registers alone */
{
    return true;
}

WITNESS(TYPE_IS)
{
    word_list_add(list, &registers[op->a]->ob_type);
    return true;
}

WITNESS(EQUALS)
{
    return registers[op->a] == op->object || is_plain_constant(registers[op->a]);
}

WITNESS(LEN_EQ)
{
    PyObject *object = registers[op->a];
    if (PyDict_Check(object) && is_immutable_type(Py_TYPE(object))) {
        word_list_add(list, &((PyDictObject *)object)->ma_used);
        return PyDict_GET_SIZE(object) == (Py_ssize_t)op->integer;
    }
    if (PyList_CheckExact(object)) {
        word_list_add(list, &((PyVarObject *)object)->ob_size);
        return PyList_GET_SIZE(object) == (Py_ssize_t)op->integer;
    }
    if (PyTuple_CheckExact(object)) {
        witness_tuple(list, object);
        return true;
    }
    return PyUnicode_CheckExact(object);
}

WITNESS(DICT_KEYS)
{
    return PyDict_CheckExact(registers[op->a]) && is_plain_constant(op->object) && witness_dict(list, registers[op->a]);
}

WITNESS(DICT_LEN)
{
    word_list_add(list, &((PyDictObject *)registers[op->a])->ma_used);
    return PyDict_GET_SIZE(registers[op->a]) == (Py_ssize_t)op->integer;
}

WITNESS(HAS_KEY)
{
    return is_plain_key(op->object) && witness_key(list, registers[op->a], op->object);
}

WITNESS(HAS_ATTR)
{
    PyObject *found;
    return PyType_Check(registers[op->a])
           && witness_class_attribute(list, (PyTypeObject *)registers[op->a], op->object, &found) && found != NULL
           && Py_TYPE(found)->tp_descr_get == NULL;
}

WITNESS(NO_ATTR)
{
    PyObject *found;
    return PyType_Check(registers[op->a])
           && witness_class_attribute(list, (PyTypeObject *)registers[op->a], op->object, &found) && found == NULL;
}

WITNESS(CLASS_FINDS)
{
    PyTypeObject *type = (PyTypeObject *)registers[op->a];
    const uint64_t *version = cp_type_version(type);
    if (version == NULL) {
        return false;
    }
    word_list_add(list, &((PyObject *)type)->ob_type);
    word_list_add(list, version);
    return true;
}

static const witness_function witnesses[] = {
    [OP_CONST] = witness_CONST,
    [OP_ATTR] = witness_ATTR,
    [OP_INSTANCE_DICT] = witness_INSTANCE_DICT,
    [OP_DICT_GET] = witness_DICT_GET,
    [OP_SEQ_ITEM] = witness_SEQ_ITEM,
    [OP_TYPE] = witness_TYPE,
    [OP_CELL_CONTENTS] = witness_CELL_CONTENTS,
    [OP_FUNC_CODE] = witness_FUNC_CODE,
    [OP_FUNC_DEFAULTS] = witness_FUNC_DEFAULTS,
    [OP_FUNC_KWDEFAULTS] = witness_FUNC_KWDEFAULTS,
    [OP_FUNC_CLOSURE] = witness_FUNC_CLOSURE,
    [OP_FUNC_GLOBALS] = witness_FUNC_GLOBALS,
    [OP_DICT_KEY_AT] = witness_DICT_KEY_AT,
    [OP_IS] = witness_SAME_OBJECT,
    [OP_IS_NOT] = witness_SAME_OBJECT,
    [OP_TYPE_IS] = witness_TYPE_IS,
    [OP_EQUALS] = witness_EQUALS,
    [OP_LEN_EQ] = witness_LEN_EQ,
    [OP_DICT_KEYS] = witness_DICT_KEYS,
    [OP_DICT_LEN] = witness_DICT_LEN,
    [OP_NO_KEY] = witness_HAS_KEY,
    [OP_HAS_KEY] = witness_HAS_KEY,
    [OP_HAS_ATTR] = witness_HAS_ATTR,
    [OP_NO_ATTR] = witness_NO_ATTR,
    [OP_CLASS_FINDS] = witness_CLASS_FINDS,
    [OP_SAME] = witness_SAME_OBJECT,
    [OP_DISTINCT] = witness_SAME_OBJECT,
    [OP_INT_TYPE] = witness_SAME_OBJECT,
    [OP_INT_RANGE] = witness_SAME_OBJECT,
    [N_OPS] = NULL,
};

bool
guard_witness(word_list *list, const guard_op *op, PyObject **registers)
{
    return witnesses[op->code] != NULL && witnesses[op->code](list, op, registers);
}

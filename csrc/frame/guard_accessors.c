/* The accessors of guard_ops.def: each returns a new reference, or NULL (with or without an exception) to fail. */
#include "guard_op.h"
#include "tensor_view.h"

#define DEFINE(name)                                                                                                   \
    PyObject *access_##name(const guard_op *op, const call_context *context, PyObject **registers)

DEFINE(LOCAL)
{
    return op->integer >= 0 && op->integer < context->n_locals ? Py_XNewRef(context->locals[op->integer]) : NULL;
}

DEFINE(GLOBALS)
{
    return Py_NewRef(context->function->func_globals);
}

DEFINE(BUILTINS)
{
    return Py_NewRef(context->function->func_builtins);
}

DEFINE(FUNC)
{
    return Py_NewRef((PyObject *)context->function);
}

DEFINE(CLOSURE)
{
    PyObject *closure = context->function->func_closure;
    if (closure == NULL || op->integer < 0 || op->integer >= PyTuple_GET_SIZE(closure)) {
        return NULL;
    }
    return Py_XNewRef(PyCell_GET(PyTuple_GET_ITEM(closure, op->integer)));
}

DEFINE(CONST)
{
    return Py_NewRef(op->object);
}

static PyObject *
mapping_get(PyObject *mapping, PyObject *key)
{
    if (PyDict_Check(mapping)) {
        return Py_XNewRef(PyDict_GetItemWithError(mapping, key));
    }
    return PyObject_GetItem(mapping, key);
}

DEFINE(GLOBAL)
{
    PyObject *value = mapping_get(context->function->func_globals, op->object);
    if (value != NULL) {
        return value;
    }
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_KeyError)) {
        return NULL;
    }
    PyErr_Clear();
    return mapping_get(context->function->func_builtins, op->object);
}

DEFINE(ATTR)
{
    return PyObject_GetAttr(registers[op->a], op->object);
}

DEFINE(INSTANCE_DICT)
{
    PyObject *object = registers[op->a];
    if (PyType_Check(object)) { /* a class's __dict__ is a proxy made by its metaclass */
        PyObject *name = PyUnicode_InternFromString("__dict__");
        PyObject *proxy = name == NULL ? NULL : PyObject_GetAttr(object, name);
        Py_XDECREF(name);
        return proxy;
    }
    if (PyModule_Check(object)) {
        return Py_XNewRef(PyModule_GetDict(object));
    }
    return PyObject_GenericGetDict(object, NULL);
}

DEFINE(DICT_GET)
{
    PyObject *dict = registers[op->a];
    return PyDict_Check(dict) ? Py_XNewRef(PyDict_GetItemWithError(dict, op->object)) : NULL;
}

/* A tuple or list, or an instance of a subclass with the same indexing, such as a named tuple. */
static bool
indexes_natively(PyObject *sequence)
{
    PyMappingMethods *methods = Py_TYPE(sequence)->tp_as_mapping;
    if (PyTuple_Check(sequence)) {
        return methods->mp_subscript == PyTuple_Type.tp_as_mapping->mp_subscript;
    }
    return PyList_Check(sequence) && methods->mp_subscript == PyList_Type.tp_as_mapping->mp_subscript;
}

DEFINE(SEQ_ITEM)
{
    PyObject *sequence = registers[op->a];
    Py_ssize_t i = (Py_ssize_t)op->integer;
    if (indexes_natively(sequence)) {
        Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
        i += i < 0 ? n : 0;
        return i >= 0 && i < n ? Py_NewRef(PySequence_Fast_GET_ITEM(sequence, i)) : NULL;
    }
    if (PyDict_Check(sequence)) {
        return NULL;
    }
    /* Not PySequence_GetItem: both it and the type would add the length to a negative index. */
    PyObject *index = PyLong_FromSsize_t(i);
    PyObject *item = index == NULL ? NULL : PyObject_GetItem(sequence, index);
    Py_XDECREF(index);
    return item;
}

DEFINE(TYPE)
{
    return Py_NewRef((PyObject *)Py_TYPE(registers[op->a]));
}

DEFINE(CELL_CONTENTS)
{
    PyObject *cell = registers[op->a];
    return PyCell_Check(cell) ? Py_XNewRef(PyCell_GET(cell)) : NULL;
}

/* A field of the plain function in register a; None if the function does not have it. */
#define FUNCTION_FIELD(name, field)                                                                                    \
    DEFINE(name)                                                                                                       \
    {                                                                                                                  \
        PyObject *function = registers[op->a];                                                                         \
        if (!PyFunction_Check(function)) {                                                                             \
            return NULL;                                                                                               \
        }                                                                                                              \
        PyObject *value = ((PyFunctionObject *)function)->field;                                                       \
        return Py_NewRef(value == NULL ? Py_None : value);                                                             \
    }

FUNCTION_FIELD(FUNC_CODE, func_code)
FUNCTION_FIELD(FUNC_DEFAULTS, func_defaults)
FUNCTION_FIELD(FUNC_KWDEFAULTS, func_kwdefaults)
FUNCTION_FIELD(FUNC_CLOSURE, func_closure)
FUNCTION_FIELD(FUNC_GLOBALS, func_globals)

DEFINE(WEAKREF)
{
    PyObject *ref = registers[op->a];
    return PyWeakref_Check(ref) ? Py_XNewRef(cp_weakref_get(ref)) : NULL;
}

DEFINE(DICT_KEY_AT)
{
    PyObject *dict = registers[op->a], *key = NULL;
    if (!PyDict_CheckExact(dict) || op->integer < 0) { /* a subclass may have another order */
        PyObject *keys = PyDict_Check(dict) ? PySequence_List(dict) : NULL;
        if (keys != NULL && op->integer >= 0 && op->integer < PyList_GET_SIZE(keys)) {
            key = Py_NewRef(PyList_GET_ITEM(keys, op->integer));
        }
        Py_XDECREF(keys);
        return key;
    }
    Py_ssize_t position = 0;
    for (int64_t i = 0; i <= op->integer; i++) {
        if (!PyDict_Next(dict, &position, &key, NULL)) {
            return NULL;
        }
    }
    return Py_XNewRef(key);
}

DEFINE(GETITEM)
{
    return PyObject_GetItem(registers[op->a], op->object);
}

DEFINE(LEN)
{
    Py_ssize_t n = PyObject_Size(registers[op->a]);
    return n < 0 ? NULL : PyLong_FromSsize_t(n);
}

DEFINE(TENSOR_SIZE)
{
    tensor_view view;
    if (tv_read_meta(registers[op->a], &view) < 0 || op->integer < 0 || op->integer >= view.ndim) {
        return NULL;
    }
    return PyLong_FromLongLong(view.sizes[op->integer]);
}

DEFINE(TENSOR_STRIDE)
{
    tensor_view view;
    if (tv_read_meta(registers[op->a], &view) < 0 || op->integer < 0 || op->integer >= view.ndim) {
        return NULL;
    }
    return PyLong_FromLongLong(view.strides[op->integer]);
}

DEFINE(TENSOR_OFFSET)
{
    tensor_view view;
    return tv_read(registers[op->a], &view) < 0 ? NULL : PyLong_FromLongLong(view.storage_offset);
}

DEFINE(CALL)
{
    return call_with_registers(op->object, op->registers, op->n_registers, registers);
}

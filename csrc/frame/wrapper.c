#include "callables.h"

#include <stddef.h>
#include <structmember.h>

/* ---- What DisabledFunction and CompiledFunction share ---- */
static int
copy_attribute(PyObject *dict, PyObject *from, const char *name)
{
    PyObject *value = PyObject_GetAttrString(from, name);
    if (value == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
            return -1;
        }
        PyErr_Clear();
        return 0;
    }
    int failed = PyDict_SetItemString(dict, name, value);
    Py_DECREF(value);
    return failed;
}

/* As functools.update_wrapper. */
int
wrapper_init(wrapper_base *self, PyObject *wrapped)
{
    static const char *const names[] = {"__module__",      "__name__",   "__qualname__",
                                        "__doc__", "__annotations__", "__type_params__"};
    self->wrapped = Py_NewRef(wrapped);
    self->dict = PyDict_New();
    if (self->dict == NULL) {
        return -1;
    }
    if (PyFunction_Check(wrapped)) { /* only of functions: the __dict__ of another object is its state */
        PyObject *extra = PyObject_GenericGetDict(wrapped, NULL);
        int failed = extra == NULL || PyDict_Update(self->dict, extra) < 0;
        Py_XDECREF(extra);
        if (failed) {
            return -1;
        }
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (copy_attribute(self->dict, wrapped, names[i]) < 0) {
            return -1;
        }
    }
    return PyDict_SetItemString(self->dict, "__wrapped__", wrapped);
}

int
wrapper_traverse(wrapper_base *self, visitproc visit, void *arg)
{
    Py_VISIT(self->wrapped);
    Py_VISIT(self->dict);
    return 0;
}

void
wrapper_clear(wrapper_base *self)
{
    Py_CLEAR(self->wrapped);
    Py_CLEAR(self->dict);
}

PyObject *
wrapper_bind(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

PyObject *
wrapper_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%s of %R>", Py_TYPE(self)->tp_name, ((wrapper_base *)self)->wrapped);
}

static int
is_wrapper(PyObject *object)
{
    return Py_IS_TYPE(object, &CompiledFunction_Type) || Py_IS_TYPE(object, &DisabledFunction_Type);
}

/* For pickling: the function and the arguments by which `compile` or `disable` creates this object again. Borrowed;
 * NULL if unknown. */
static PyObject *
wrapper_maker(PyObject *self)
{
    PyObject *maker = PyDict_GetItemString(((wrapper_base *)self)->dict, "_pyframe_reduced");
    int valid = maker != NULL && PyTuple_Check(maker) && PyTuple_GET_SIZE(maker) == 2;
    return valid && PyTuple_Check(PyTuple_GET_ITEM(maker, 1)) ? maker : NULL;
}

static int
wraps_function(PyObject *self)
{
    PyObject *wrapped = PyDict_GetItemString(((wrapper_base *)self)->dict, "__wrapped__");
    return wrapped != NULL && PyFunction_Check(wrapped);
}

/* The object at the qualified name of `self` in its module; NULL (with or without an exception) if there is none. */
static PyObject *
found_by_name(PyObject *self, PyObject *qualname)
{
    PyObject *module_name = PyObject_GetAttrString(self, "__module__");
    if (module_name == NULL) {
        return NULL;
    }
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name));
    Py_DECREF(module_name);
    PyObject *dot = found == NULL ? NULL : PyUnicode_FromString(".");
    PyObject *parts = dot == NULL ? NULL : PyUnicode_Split(qualname, dot, -1);
    Py_XDECREF(dot);
    for (Py_ssize_t i = 0; parts != NULL && found != NULL && i < PyList_GET_SIZE(parts); i++) {
        PyObject *next = PyObject_GetAttr(found, PyList_GET_ITEM(parts, i));
        Py_DECREF(found);
        found = next;
    }
    Py_XDECREF(parts);
    if (found == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return found;
}

/* Pickled by reference to its name where that leads to it, as a function is. Otherwise what is wrapped is pickled, and
   compiled or disabled again when it is loaded; it may be found under a name that leads to another wrapper of it. */
PyObject *
wrapper_reduce(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    PyObject *maker = wrapper_maker(self);
    if (maker != NULL && !wraps_function(self)) {
        return Py_NewRef(maker);
    }
    PyObject *qualname = PyObject_GetAttrString(self, "__qualname__");
    if (qualname == NULL || maker == NULL || !PyUnicode_Check(qualname)) {
        return qualname;
    }
    PyObject *found = found_by_name(self, qualname);
    if (found == self || (found == NULL && PyErr_Occurred())) {
        Py_XDECREF(found);
        return found == self ? qualname : (Py_DECREF(qualname), NULL);
    }
    Py_DECREF(qualname);
    PyObject *arguments = PyTuple_GET_ITEM(maker, 1), *result = NULL;
    if (found != NULL && is_wrapper(found) && ((wrapper_base *)found)->wrapped == ((wrapper_base *)self)->wrapped) {
        PyObject *rest = PyTuple_GetSlice(arguments, 1, PyTuple_GET_SIZE(arguments));
        PyObject *first = PyTuple_Pack(1, found);
        PyObject *both = rest == NULL || first == NULL ? NULL : PySequence_Concat(first, rest);
        Py_XDECREF(rest);
        Py_XDECREF(first);
        result = both == NULL ? NULL : PyTuple_Pack(2, PyTuple_GET_ITEM(maker, 0), both);
        Py_XDECREF(both);
    }
    else {
        result = Py_NewRef(maker);
    }
    Py_XDECREF(found);
    return result;
}

/* A copy of a compiled or disabled function is the function itself, as with other functions. Other objects are copied
   and then compiled again. `memo`: NULL for a shallow copy. */
static PyObject *
wrapper_copied(PyObject *self, PyObject *memo)
{
    PyObject *maker = wrapper_maker(self);
    if (maker == NULL || wraps_function(self)) {
        return Py_NewRef(self);
    }
    PyObject *arguments = Py_NewRef(PyTuple_GET_ITEM(maker, 1));
    if (memo != NULL) {
        PyObject *module = PyImport_ImportModule("copy");
        PyObject *copied = module == NULL ? NULL : PyObject_CallMethod(module, "deepcopy", "OO", arguments, memo);
        Py_XDECREF(module);
        Py_SETREF(arguments, copied);
    }
    PyObject *result = arguments == NULL ? NULL : PyObject_Call(PyTuple_GET_ITEM(maker, 0), arguments, NULL);
    Py_XDECREF(arguments);
    return result;
}

static PyObject *
wrapper_copy(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return wrapper_copied(self, NULL);
}

static PyObject *
wrapper_deepcopy(PyObject *self, PyObject *memo)
{
    return wrapper_copied(self, memo);
}

static PyGetSetDef wrapper_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- DisabledFunction ---- */
PyObject *
DisabledFunction_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names)
{
    ThreadHook *hook = thread_hook();
    if (hook == NULL) {
        return NULL;
    }
    PyObject *wrapped = Py_NewRef(((wrapper_base *)self)->wrapped);
    int saved = hook_disable(hook);
    PyObject *result = PyObject_Vectorcall(wrapped, args, nargsf, names);
    hook_enable(hook, saved);
    Py_DECREF(wrapped);
    return result;
}

static PyObject *
DisabledFunction_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"fn", NULL};
    PyObject *wrapped;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:DisabledFunction", keywords, &wrapped)) {
        return NULL;
    }
    if (!PyCallable_Check(wrapped)) {
        return PyErr_Format(PyExc_TypeError, "expected a callable, got %.200s", Py_TYPE(wrapped)->tp_name);
    }
    wrapper_base *self = (wrapper_base *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->vectorcall = DisabledFunction_call;
    if (wrapper_init(self, wrapped) < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
DisabledFunction_traverse(PyObject *self, visitproc visit, void *arg)
{
    return wrapper_traverse((wrapper_base *)self, visit, arg);
}

static int
DisabledFunction_clear(PyObject *self)
{
    wrapper_clear((wrapper_base *)self);
    return 0;
}

static void
DisabledFunction_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    if (((wrapper_base *)self)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    wrapper_clear((wrapper_base *)self);
    Py_TYPE(self)->tp_free(self);
}

PyMethodDef wrapper_methods[] = {
    {"__reduce__", wrapper_reduce, METH_NOARGS, "pickle by name, or as what is wrapped"},
    {"__copy__", wrapper_copy, METH_NOARGS, "a shallow copy"},
    {"__deepcopy__", wrapper_deepcopy, METH_O, "a deep copy"},
    {NULL, NULL, 0, NULL},
};

PyTypeObject DisabledFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.DisabledFunction",
    .tp_doc = "DisabledFunction(fn)\n--\n\nCalls fn with the frame hook off.",
    .tp_basicsize = sizeof(wrapper_base),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = DisabledFunction_new,
    .tp_dealloc = DisabledFunction_dealloc,
    .tp_traverse = DisabledFunction_traverse,
    .tp_clear = DisabledFunction_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(wrapper_base, vectorcall),
    .tp_dictoffset = offsetof(wrapper_base, dict),
    .tp_weaklistoffset = offsetof(wrapper_base, weakrefs),
    .tp_descr_get = wrapper_bind,
    .tp_repr = wrapper_repr,
    .tp_getset = wrapper_getset,
    .tp_methods = wrapper_methods,
};

/* Sampler: calls `target`, and at the call at which `countdown` reaches 0 calls `check` with the same arguments instead.
 * A countdown of 0 never ends. */
#include "sampler.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *target, *check;
    long long countdown;
    PyObject *weak_references;
} sampler_object;

static PyObject *
sampler_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    sampler_object *sampler = (sampler_object *)self;
    PyObject *callee = sampler->target;
    if (__builtin_expect(sampler->countdown > 0 && --sampler->countdown == 0, 0)) {
        callee = sampler->check;
    }
    /* `target` may be replaced while it runs */
    Py_INCREF(callee);
    PyObject *result = PyObject_Vectorcall(callee, args, nargsf, kwnames);
    Py_DECREF(callee);
    return result;
}

static PyObject *
sampler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"target", "check", "countdown", NULL};
    PyObject *target, *check;
    long long countdown;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOL", names, &target, &check, &countdown)) {
        return NULL;
    }
    sampler_object *sampler = (sampler_object *)type->tp_alloc(type, 0);
    if (sampler == NULL) {
        return NULL;
    }
    sampler->vectorcall = sampler_call;
    sampler->target = Py_NewRef(target);
    sampler->check = Py_NewRef(check);
    sampler->countdown = countdown;
    return (PyObject *)sampler;
}

static int
sampler_traverse(sampler_object *sampler, visitproc visit, void *arg)
{
    Py_VISIT(sampler->target);
    Py_VISIT(sampler->check);
    return 0;
}

static int
sampler_clear(sampler_object *sampler)
{
    Py_CLEAR(sampler->target);
    Py_CLEAR(sampler->check);
    return 0;
}

static void
sampler_dealloc(sampler_object *sampler)
{
    PyObject_GC_UnTrack(sampler);
    if (sampler->weak_references != NULL) {
        PyObject_ClearWeakRefs((PyObject *)sampler);
    }
    sampler_clear(sampler);
    Py_TYPE(sampler)->tp_free((PyObject *)sampler);
}

static PyMemberDef sampler_members[] = {
    {"target", T_OBJECT_EX, offsetof(sampler_object, target), 0, "what is called"},
    {"check", T_OBJECT_EX, offsetof(sampler_object, check), 0, "what is called when the countdown ends"},
    {"countdown", T_LONGLONG, offsetof(sampler_object, countdown), 0, "calls until `check`; 0: never"},
    {NULL},
};

PyTypeObject sampler_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "inductor._C.Sampler",
    .tp_doc = "Sampler(target, check, countdown): calls `target`, at the countdown-th call `check` in its place.",
    .tp_basicsize = sizeof(sampler_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = sampler_new,
    .tp_dealloc = (destructor)sampler_dealloc,
    .tp_traverse = (traverseproc)sampler_traverse,
    .tp_clear = (inquiry)sampler_clear,
    .tp_weaklistoffset = offsetof(sampler_object, weak_references),
    .tp_members = sampler_members,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(sampler_object, vectorcall),
};

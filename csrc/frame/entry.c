#include "entry.h"
#include "move_args.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

PyObject *
entry_make_function(Entry *entry, PyFunctionObject *original)
{
    PyObject *function = PyFunction_New(entry->code, original->func_globals);
    if (function == NULL) {
        return NULL;
    }
    if (((PyCodeObject *)entry->code)->co_nfreevars > 0
        && PyFunction_SetClosure(function, original->func_closure) < 0) {
        Py_CLEAR(function);
    }
    return function;
}

PyObject *
entry_run_code(Entry *entry, PyObject *function, const call_context *context, register_file *registers, bool *started)
{
    enum { FEW = 16 };
    moved_args given = {.function = function, .frame = context->frame};
    given.n = context->frame == NULL ? 0 : context->n_locals;
    if (entry->direct == NULL) {
        registers_release(registers);
        PyObject *result = move_args_call(&given, context->locals, context->n_locals, NULL);
        *started |= given.taken;
        return result;
    }
    PyObject *graph = graph_call_new(entry->direct, registers);
    registers_release(registers);
    PyObject *few[FEW], **args = few, *result = NULL;
    Py_ssize_t n = context->n_locals;
    if (n + 1 > FEW) {
        args = PyMem_Malloc((size_t)(n + 1) * sizeof *args);
    }
    if (args == NULL) {
        PyErr_NoMemory();
    }
    else if (graph != NULL) {
        memcpy(args, context->locals, (size_t)n * sizeof *args);
        args[n] = graph;
        result = move_args_call(&given, args, n + 1, NULL);
    }
    *started |= given.taken;
    if (args != few) {
        PyMem_Free(args);
    }
    Py_XDECREF(graph);
    return result;
}

int
entry_fits(Entry *entry, PyCodeObject *code)
{
    if (entry->code == Py_None || entry_is_direct(entry)) {
        return 0;
    }
    PyCodeObject *mine = (PyCodeObject *)entry->code;
    Py_ssize_t wanted = cp_code_argument_count(code) + (entry->direct != NULL && entry->direct->is_for_code);
    if (mine->co_argcount != wanted || mine->co_kwonlyargcount != 0
        || (mine->co_flags & (CO_VARARGS | CO_VARKEYWORDS)) != 0) {
        PyErr_Format(PyExc_ValueError, "replacement code %U must take the %zd fast locals of %U as plain positionals",
                     mine->co_name, wanted, code->co_name);
        return -1;
    }
    if (mine->co_nfreevars != 0 && mine->co_nfreevars != code->co_nfreevars) {
        PyErr_Format(PyExc_ValueError, "replacement code %U has %d free variables, %U has %d", mine->co_name,
                     mine->co_nfreevars, code->co_name, code->co_nfreevars);
        return -1;
    }
    return 0;
}

static int
check_parts(PyObject *code, PyObject *direct, GuardProgram *guards)
{
    if (code != Py_None && !PyCode_Check(code)) {
        PyErr_Format(PyExc_TypeError, "code must be a code object or None, got %.200s", Py_TYPE(code)->tp_name);
        return -1;
    }
    if (direct != Py_None && !Py_IS_TYPE(direct, &DirectCall_Type)) {
        PyErr_Format(PyExc_TypeError, "direct must be a DirectCall or None, got %.200s", Py_TYPE(direct)->tp_name);
        return -1;
    }
    if (code == Py_None && (direct == Py_None || ((DirectCall *)direct)->is_for_code)) {
        PyErr_SetString(PyExc_ValueError, "an Entry needs code, or a direct call that does not need code");
        return -1;
    }
    if (direct != Py_None && ((DirectCall *)direct)->highest_register >= guards->n_results) {
        PyErr_Format(PyExc_ValueError, "direct uses register %zd, the guards' results are the first %zd",
                     ((DirectCall *)direct)->highest_register, guards->n_results);
        return -1;
    }
    return 0;
}

static PyObject *
Entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"owner", "guards", "code", "direct", "tag", NULL};
    PyObject *owner, *guards, *code, *direct = Py_None, *tag = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O|OO:Entry", names, &owner, &GuardProgram_Type, &guards, &code,
                                     &direct, &tag)
        || check_parts(code, direct, (GuardProgram *)guards) < 0) {
        return NULL;
    }
    Entry *entry = (Entry *)type->tp_alloc(type, 0);
    if (entry == NULL) {
        return NULL;
    }
    entry->owner = Py_NewRef(owner);
    entry->guards = (GuardProgram *)Py_NewRef(guards);
    entry->code = Py_NewRef(code);
    entry->direct = direct == Py_None ? NULL : (DirectCall *)Py_NewRef(direct);
    entry->tag = Py_NewRef(tag);
    entry->last_failed = -1;
    entry->valid = 1;
    return (PyObject *)entry;
}

static int
Entry_traverse(PyObject *self, visitproc visit, void *arg)
{
    Entry *entry = (Entry *)self;
    Py_VISIT(entry->owner);
    Py_VISIT(entry->guards);
    Py_VISIT(entry->code);
    Py_VISIT(entry->direct);
    Py_VISIT(entry->tag);
    return 0;
}

static int
Entry_clear(PyObject *self)
{
    Entry *entry = (Entry *)self;
    entry->valid = 0;
    Py_CLEAR(entry->tag);
    return 0;
}

static void
Entry_dealloc(PyObject *self)
{
    Entry *entry = (Entry *)self;
    PyObject_GC_UnTrack(self);
    if (entry->weakrefs != NULL) {
        PyObject_ClearWeakRefs(self);
    }
    Py_CLEAR(entry->owner);
    Py_CLEAR(entry->guards);
    Py_CLEAR(entry->code);
    Py_CLEAR(entry->direct);
    Py_CLEAR(entry->tag);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
Entry_invalidate(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ((Entry *)self)->valid = 0;
    Py_RETURN_NONE;
}

static PyMethodDef Entry_methods[] = {
    {"invalidate", Entry_invalidate, METH_NOARGS, "invalidate(): never use this entry again"},
    {NULL, NULL, 0, NULL},
};

static PyObject *
Entry_is_valid(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((Entry *)self)->valid);
}

static PyGetSetDef Entry_getset[] = {
    {"valid", Entry_is_valid, NULL, "False once invalidated or evicted by a reset", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef Entry_members[] = {
    {"owner", T_OBJECT, offsetof(Entry, owner), READONLY, "whose entry this is"},
    {"guards", T_OBJECT, offsetof(Entry, guards), READONLY, "the GuardProgram"},
    {"code", T_OBJECT, offsetof(Entry, code), READONLY, "replacement code, or None"},
    {"direct", T_OBJECT, offsetof(Entry, direct), READONLY, "the DirectCall, or None"},
    {"tag", T_OBJECT, offsetof(Entry, tag), 0, "the driver's own object"},
    {"hits", T_ULONGLONG, offsetof(Entry, hits), READONLY, "times the guards held"},
    {"last_failed", T_PYSSIZET, offsetof(Entry, last_failed), READONLY,
     "index of the guard operation that failed last, or -1"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.Entry",
    .tp_doc = "Entry(owner, guards, code, direct=None, tag=None)\n--\n\nOne compiled version of a code object.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = Entry_new,
    .tp_dealloc = Entry_dealloc,
    .tp_traverse = Entry_traverse,
    .tp_clear = Entry_clear,
    .tp_weaklistoffset = offsetof(Entry, weakrefs),
    .tp_methods = Entry_methods,
    .tp_getset = Entry_getset,
    .tp_members = Entry_members,
};

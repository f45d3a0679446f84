#include "code_cache.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

static Py_ssize_t slot = -1;
static CodeState live = {.next = &live, .previous = &live}; /* head of the ring of states */

/* ---- States ---- */
static void
release_state(void *extra)
{
    CodeState *state = extra;
    if (state != NULL) {
        state->code = NULL;
        code_state_clear(state);
        Py_DECREF(state);
    }
}

int
code_cache_init(void)
{
    if (slot < 0) {
        slot = cp_request_code_slot(release_state);
    }
    if (slot < 0) {
        PyErr_SetString(PyExc_ImportError, "CPython has no slot left for data on code objects");
        return -1;
    }
    return 0;
}

CodeState *
code_state_peek(PyCodeObject *code)
{
    return cp_get_code_slot(code, slot);
}

CodeState *
code_state_get(PyCodeObject *code)
{
    CodeState *state = code_state_peek(code);
    if (state != NULL) {
        return state;
    }
    state = PyObject_GC_New(CodeState, &CodeState_Type);
    if (state == NULL) {
        return NULL;
    }
    memset((char *)state + sizeof(PyObject), 0, sizeof *state - sizeof(PyObject));
    state->data = Py_NewRef(Py_None);
    state->next = live.next;
    state->previous = &live;
    live.next->previous = state;
    live.next = state;
    PyObject_GC_Track(state);
    if (cp_set_code_slot(code, slot, state) < 0) {
        Py_DECREF(state);
        if (!PyErr_Occurred()) { /* CPython sets no exception if it has no memory */
            PyErr_NoMemory();
        }
        return NULL;
    }
    state->code = code; /* the slot owns the only reference */
    return state;
}

/* Drop entries, skips and the driver's data, but keep the flags that skip_code() and handles_errors() set. */
void
code_state_clear(CodeState *state)
{
    Entry **entries = state->entries;
    Py_ssize_t n = state->n_entries;
    state->entries = NULL;
    state->n_entries = state->capacity = 0;
    Py_INCREF(state);
    for (Py_ssize_t i = 0; i < n; i++) {
        entries[i]->valid = 0;
        Py_DECREF(entries[i]);
    }
    PyMem_Free(entries);
    Py_CLEAR(state->skipped_owners);
    Py_XSETREF(state->data, Py_NewRef(Py_None));
    state->misses = 0;
    Py_DECREF(state);
}

static int
CodeState_traverse(PyObject *self, visitproc visit, void *arg)
{
    CodeState *state = (CodeState *)self;
    for (Py_ssize_t i = 0; i < state->n_entries; i++) {
        Py_VISIT(state->entries[i]);
    }
    Py_VISIT(state->skipped_owners);
    Py_VISIT(state->data);
    return 0;
}

static int
CodeState_tp_clear(PyObject *self)
{
    code_state_clear((CodeState *)self);
    return 0;
}

static void
CodeState_dealloc(PyObject *self)
{
    CodeState *state = (CodeState *)self;
    PyObject_GC_UnTrack(self);
    state->next->previous = state->previous;
    state->previous->next = state->next;
    for (Py_ssize_t i = 0; i < state->n_entries; i++) {
        Py_DECREF(state->entries[i]);
    }
    PyMem_Free(state->entries);
    Py_XDECREF(state->skipped_owners);
    Py_XDECREF(state->data);
    PyObject_GC_Del(self);
}

/* ---- Entries ---- */
static Py_ssize_t
position_of(CodeState *state, Entry *entry)
{
    for (Py_ssize_t i = 0; i < state->n_entries; i++) {
        if (state->entries[i] == entry) {
            return i;
        }
    }
    return -1;
}

static void
move_to_front(CodeState *state, Entry *entry)
{
    Py_ssize_t i = position_of(state, entry);
    if (i > 0) {
        memmove(state->entries + 1, state->entries, (size_t)i * sizeof *state->entries);
        state->entries[0] = entry;
    }
}

static void
remove_at(CodeState *state, Py_ssize_t i)
{
    Entry *entry = state->entries[i];
    state->n_entries--;
    memmove(state->entries + i, state->entries + i + 1, (size_t)(state->n_entries - i) * sizeof *state->entries);
    entry->valid = 0;
    Py_DECREF(entry);
}

Entry *
code_state_lookup(CodeState *state, PyObject *owner, const call_context *context, register_file *registers)
{
    /* Guards may run Python that changes the list: read it again at each step and own what is being evaluated. A
     * change can at worst make this lookup miss an entry. */
    for (Py_ssize_t i = 0; i < state->n_entries; i++) {
        Entry *entry = state->entries[i];
        if (!entry->valid) {
            remove_at(state, i--);
            continue;
        }
        if (owner != NULL && entry->owner != owner) {
            continue;
        }
        Py_INCREF(entry);
        Py_ssize_t failed = guard_run(entry->guards, context, registers);
        if (failed == GUARD_PASS) {
            entry->hits++;
            if (i > 0) {
                move_to_front(state, entry);
            }
            return entry;
        }
        if (failed >= 0) {
            entry->last_failed = failed;
        }
        Py_DECREF(entry);
        if (failed == GUARD_ERROR) {
            return NULL;
        }
    }
    return NULL;
}

int
code_state_install(CodeState *state, Entry *entry)
{
    if (state->code == NULL) {
        PyErr_SetString(PyExc_ReferenceError, "the code object of this state is gone");
        return -1;
    }
    if (entry_fits(entry, state->code) < 0) {
        return -1;
    }
    if (!entry->valid) {
        PyErr_SetString(PyExc_ValueError, "this entry was invalidated");
        return -1;
    }
    if (entry->code != Py_None) {
        CodeState *replacement = code_state_get((PyCodeObject *)entry->code);
        if (replacement == NULL) {
            return -1;
        }
        replacement->flags |= CODE_REPLACEMENT;
    }
    if (position_of(state, entry) >= 0) {
        move_to_front(state, entry);
        return 0;
    }
    if (state->n_entries == state->capacity) {
        Py_ssize_t capacity = state->capacity ? 2 * state->capacity : 4;
        Entry **entries = PyMem_Realloc(state->entries, (size_t)capacity * sizeof *entries);
        if (entries == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        state->entries = entries;
        state->capacity = capacity;
    }
    memmove(state->entries + 1, state->entries, (size_t)state->n_entries * sizeof *state->entries);
    state->entries[0] = (Entry *)Py_NewRef((PyObject *)entry);
    state->n_entries++;
    return 0;
}

int
code_state_skips_owner(CodeState *state, PyObject *owner)
{
    PyObject *owners = state->skipped_owners;
    for (Py_ssize_t i = 0; owners != NULL && i < PyList_GET_SIZE(owners); i++) {
        if (PyList_GET_ITEM(owners, i) == owner) {
            return 1;
        }
    }
    return 0;
}

int
code_state_skip_owner(CodeState *state, PyObject *owner)
{
    if (state->skipped_owners == NULL && (state->skipped_owners = PyList_New(0)) == NULL) {
        return -1;
    }
    return code_state_skips_owner(state, owner) ? 0 : PyList_Append(state->skipped_owners, owner);
}

/* ---- Python functions ---- */
static PyCodeObject *
as_code(PyObject *object)
{
    if (PyFunction_Check(object)) {
        object = ((PyFunctionObject *)object)->func_code;
    }
    if (!PyCode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "expected a code object or a function, got %.200s", Py_TYPE(object)->tp_name);
        return NULL;
    }
    return (PyCodeObject *)object;
}

static PyObject *
entries_list(CodeState *state)
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && state != NULL && i < state->n_entries; i++) {
        if (state->entries[i]->valid && PyList_Append(list, (PyObject *)state->entries[i]) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

PyObject *
code_cache_entries(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyCodeObject *code = as_code(object);
    return code == NULL ? NULL : entries_list(code_state_peek(code));
}

PyObject *
code_cache_state(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyCodeObject *code = as_code(object);
    return code == NULL ? NULL : Py_XNewRef((PyObject *)code_state_get(code));
}

PyObject *
code_cache_install(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object, *entry;
    if (!PyArg_ParseTuple(args, "OO!:install", &object, &Entry_Type, &entry)) {
        return NULL;
    }
    PyCodeObject *code = as_code(object);
    CodeState *state = code == NULL ? NULL : code_state_get(code);
    if (state == NULL || code_state_install(state, (Entry *)entry) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *
code_cache_evict(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object, *entry;
    if (!PyArg_ParseTuple(args, "OO!:evict", &object, &Entry_Type, &entry)) {
        return NULL;
    }
    PyCodeObject *code = as_code(object);
    if (code == NULL) {
        return NULL;
    }
    CodeState *state = code_state_peek(code);
    Py_ssize_t i = state == NULL ? -1 : position_of(state, (Entry *)entry);
    if (i >= 0) {
        remove_at(state, i);
    }
    return PyBool_FromLong(i >= 0);
}

PyObject *
code_cache_reset_code(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyCodeObject *code = as_code(object);
    if (code == NULL) {
        return NULL;
    }
    CodeState *state = code_state_peek(code);
    if (state != NULL) {
        code_state_clear(state);
    }
    Py_RETURN_NONE;
}

PyObject *
code_cache_reset_all(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    /* Clearing runs destructors, which may free or create states: collect the list first. */
    PyObject *states = PyList_New(0);
    for (CodeState *state = live.next; states != NULL && state != &live; state = state->next) {
        if (PyList_Append(states, (PyObject *)state) < 0) {
            Py_CLEAR(states);
            break;
        }
    }
    if (states == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(states); i++) {
        code_state_clear((CodeState *)PyList_GET_ITEM(states, i));
    }
    Py_DECREF(states);
    Py_RETURN_NONE;
}

PyObject *
code_cache_skip_code(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "recursive", NULL};
    PyObject *object;
    int recursive = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p:skip_code", names, &object, &recursive)) {
        return NULL;
    }
    PyCodeObject *code = as_code(object);
    CodeState *state = code == NULL ? NULL : code_state_get(code);
    if (state == NULL) {
        return NULL;
    }
    state->flags |= CODE_SKIP | (recursive ? CODE_SKIP_RECURSIVE : 0u);
    Py_RETURN_NONE;
}

PyObject *
code_cache_handles_errors(PyObject *Py_UNUSED(module), PyObject *object)
{
    PyCodeObject *code = as_code(object);
    CodeState *state = code == NULL ? NULL : code_state_get(code);
    if (state == NULL) {
        return NULL;
    }
    state->flags |= CODE_HANDLES_ERRORS;
    Py_RETURN_NONE;
}

/* ---- The type ---- */
static PyObject *
CodeState_get_code(PyObject *self, void *Py_UNUSED(closure))
{
    PyCodeObject *code = ((CodeState *)self)->code;
    return Py_NewRef(code == NULL ? Py_None : (PyObject *)code);
}

static PyObject *
CodeState_get_entries(PyObject *self, void *Py_UNUSED(closure))
{
    return entries_list((CodeState *)self);
}

static PyObject *
CodeState_get_skipped(PyObject *self, void *Py_UNUSED(closure))
{
    CodeState *state = (CodeState *)self;
    return PyBool_FromLong((state->flags & (CODE_SKIP | CODE_SKIP_RECURSIVE)) != 0);
}

static PyGetSetDef CodeState_getset[] = {
    {"code", CodeState_get_code, NULL, "the code object, or None once it died", NULL},
    {"entries", CodeState_get_entries, NULL, "list of valid entries, newest hit first", NULL},
    {"skipped", CodeState_get_skipped, NULL, "whether skip_code() was called for it", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef CodeState_members[] = {
    {"data", T_OBJECT, offsetof(CodeState, data), 0, "the driver's own object; None after a reset"},
    {"misses", T_ULONGLONG, offsetof(CodeState, misses), READONLY, "times the callback was asked"},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject CodeState_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pyframe._C.CodeState",
    .tp_doc = "What is known about one code object.",
    .tp_basicsize = sizeof(CodeState),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = CodeState_dealloc,
    .tp_traverse = CodeState_traverse,
    .tp_clear = CodeState_tp_clear,
    .tp_getset = CodeState_getset,
    .tp_members = CodeState_members,
};

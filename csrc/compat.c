/* CPython's private frame layout, version by version.
 *
 * Who releases a frame that an evaluation hook does not pass on:
 *   3.11  the caller of the hook (_PyEval_Vector clears and pops), so there is nothing to do;
 *   3.12  the evaluator itself, by functions that are not exported: done here by hand;
 *   3.13+ the evaluator itself, by _PyEval_FrameClearAndPop, which is exported. */
#define Py_BUILD_CORE 1
#include "compat.h"

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "pyframe supports CPython 3.11 to 3.14"
#endif

#ifdef Py_GIL_DISABLED
#error "pyframe needs a CPython with the GIL"
#endif

#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#include "internal/pycore_stackref.h"
#else
#include "internal/pycore_frame.h"
#endif
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_ceval.h"
#include "internal/pycore_dict.h"
#endif
#if PY_VERSION_HEX >= 0x030C0000
#include "internal/pycore_interp.h"
#endif
#undef Py_BUILD_CORE

#include <stddef.h>

PyFunctionObject *
cp_frame_function(cp_frame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    PyObject *function = PyStackRef_AsPyObjectBorrow(frame->f_funcobj);
#elif PY_VERSION_HEX >= 0x030C0000
    PyObject *function = frame->f_funcobj;
#else
    PyObject *function = (PyObject *)frame->f_func;
#endif
    return function != NULL && PyFunction_Check(function) ? (PyFunctionObject *)function : NULL;
}

PyCodeObject *
cp_frame_code(cp_frame *frame)
{
#if PY_VERSION_HEX >= 0x030E0000
    return (PyCodeObject *)PyStackRef_AsPyObjectBorrow(frame->f_executable);
#elif PY_VERSION_HEX >= 0x030D0000
    return (PyCodeObject *)frame->f_executable;
#else
    return frame->f_code;
#endif
}

PyObject *const *
cp_frame_locals(cp_frame *frame, PyObject **scratch, Py_ssize_t count)
{
#if PY_VERSION_HEX >= 0x030E0000
    for (Py_ssize_t i = 0; i < count; i++) {
        scratch[i] = PyStackRef_AsPyObjectBorrow(frame->localsplus[i]);
    }
    return scratch;
#else
    (void)scratch;
    (void)count;
    return frame->localsplus;
#endif
}

void
cp_frame_clear_locals(cp_frame *frame, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
#if PY_VERSION_HEX >= 0x030E0000
        PyStackRef_CLEAR(frame->localsplus[i]);
#else
        Py_CLEAR(frame->localsplus[i]);
#endif
    }
}

#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
/* Give the frame's memory back to the thread's data stack; the inverse of _PyThreadState_PushFrame. */
static void
pop_data_stack(PyThreadState *tstate, cp_frame *frame)
{
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = tstate->datastack_chunk;
    if (base != &chunk->data[0]) {
        tstate->datastack_top = base;
        return;
    }
    _PyStackChunk *previous = chunk->previous;
    tstate->datastack_top = &previous->data[previous->top];
    tstate->datastack_chunk = previous;
    tstate->datastack_limit = (PyObject **)((char *)previous + previous->size);
    PyObjectArenaAllocator allocator;
    PyObject_GetArenaAllocator(&allocator);
    allocator.free(allocator.ctx, chunk, chunk->size);
}
#endif

void
cp_frame_discard(PyThreadState *tstate, cp_frame *frame)
{
#if PY_VERSION_HEX >= 0x030D0000
    _PyEval_FrameClearAndPop(tstate, frame);
#elif PY_VERSION_HEX >= 0x030C0000
    /* The frame was never linked into the thread, so no frame object exists for it. */
    assert(frame->frame_obj == NULL);
    int count = frame->stacktop;
    frame->stacktop = 0;
    for (int i = 0; i < count; i++) {
        Py_XDECREF(frame->localsplus[i]);
    }
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF(frame->f_code);
    pop_data_stack(tstate, frame);
#else
    (void)tstate;
    (void)frame;
#endif
}

void
cp_frame_raise_at_resume(cp_frame *frame)
{
    PyCodeObject *code = cp_frame_code(frame);
    PyFunctionObject *function = cp_frame_function(frame);
    int first = code->co_nlocalsplus - code->co_nfreevars;
    for (int i = 0; i < code->co_nfreevars; i++) { /* COPY_FREE_VARS has not run */
        PyObject *cell = PyTuple_GET_ITEM(function->func_closure, i);
#if PY_VERSION_HEX >= 0x030E0000
        frame->localsplus[first + i] = PyStackRef_FromPyObjectNew(cell);
#else
        frame->localsplus[first + i] = Py_NewRef(cell);
#endif
    }
    _Py_CODEUNIT *resume = _PyCode_CODE(code) + code->_co_firsttraceable;
#if PY_VERSION_HEX >= 0x030D0000
    frame->instr_ptr = resume + 1; /* the evaluator looks up the instruction before this one */
#else
    frame->prev_instr = resume;
#endif
}

bool
cp_is_watched(PyThreadState *tstate)
{
    if (tstate->c_tracefunc != NULL || tstate->c_profilefunc != NULL) {
        return true;
    }
#if PY_VERSION_HEX >= 0x030C0000
    for (int tool = 0; tool < PY_MONITORING_SYS_PROFILE_ID; tool++) { /* those above stand for sys.settrace and so on */
        if (tstate->interp->monitoring_tool_names[tool] != NULL) {
            return true;
        }
    }
#endif
    return false;
}

PyObject *
cp_eval_default(PyThreadState *tstate, cp_frame *frame, int throwflag)
{
    return _PyEval_EvalFrameDefault(tstate, frame, throwflag);
}

cp_eval_function
cp_get_eval(void)
{
    return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
}

void
cp_set_eval(cp_eval_function function)
{
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), function);
}

Py_ssize_t
cp_request_code_slot(freefunc release)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_Eval_RequestCodeExtraIndex(release);
#else
    return _PyEval_RequestCodeExtraIndex(release);
#endif
}

void *
cp_get_code_slot(PyCodeObject *code, Py_ssize_t slot)
{
    void *value = NULL;
#if PY_VERSION_HEX >= 0x030C0000
    if (PyUnstable_Code_GetExtra((PyObject *)code, slot, &value) < 0) {
#else
    if (_PyCode_GetExtra((PyObject *)code, slot, &value) < 0) {
#endif
        PyErr_Clear();
        return NULL;
    }
    return value;
}

int
cp_set_code_slot(PyCodeObject *code, Py_ssize_t slot, void *value)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyUnstable_Code_SetExtra((PyObject *)code, slot, value);
#else
    return _PyCode_SetExtra((PyObject *)code, slot, value);
#endif
}

#if PY_VERSION_HEX < 0x030D0000
const uint64_t *
cp_dict_version(PyObject *dict)
{
    return &((PyDictObject *)dict)->ma_version_tag;
}

int
cp_key_stamps(PyObject *dict, PyObject *key, const void **addresses)
{
    (void)dict;
    (void)key;
    (void)addresses;
    return 0;
}
#else
/* From 3.14 on there is no tag, and that of 3.13 misses changes: dicts are watched, and have versions here. The word of a dict that is gone is given to another one; its value is never one that it had. */
typedef struct dict_version {
    uint64_t value;
    PyObject *dict; /* never dereferenced */
    struct dict_version *next;
} dict_version;

static dict_version **buckets, *unused;
static size_t n_buckets, n_watched;
static uint64_t last_version;
static int watcher = -1;

static dict_version **
bucket_of(PyObject *dict)
{
    return &buckets[((size_t)dict >> 4) * 11400714819323198485u >> 32 & (n_buckets - 1)];
}

/* Called before the change is made. */
static int
dict_changes(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    for (dict_version **at = bucket_of(dict); *at != NULL; at = &(*at)->next) {
        dict_version *version = *at;
        if (version->dict != dict) {
            continue;
        }
        version->value = ++last_version;
        if (event == PyDict_EVENT_DEALLOCATED) {
            *at = version->next;
            version->next = unused;
            unused = version;
            n_watched--;
        }
        break;
    }
    return 0;
}

static int
grow_buckets(void)
{
    size_t n_old = n_buckets;
    dict_version **old = buckets, **grown = PyMem_RawCalloc(n_old == 0 ? 1024 : 2 * n_old, sizeof *grown);
    if (grown == NULL) {
        return -1;
    }
    buckets = grown;
    n_buckets = n_old == 0 ? 1024 : 2 * n_old;
    for (size_t i = 0; i < n_old; i++) {
        for (dict_version *version = old[i], *next; version != NULL; version = next) {
            next = version->next;
            dict_version **bucket = bucket_of(version->dict);
            version->next = *bucket;
            *bucket = version;
        }
    }
    PyMem_RawFree(old);
    return 0;
}

const uint64_t *
cp_dict_version(PyObject *dict)
{
    if (((PyDictObject *)dict)->ma_values != NULL) { /* stored in an object: not every change calls the watcher (cp_key_stamps) */
        return NULL;
    }
    if (n_watched >= n_buckets && grow_buckets() < 0) {
        return NULL;
    }
    for (dict_version *version = *bucket_of(dict); version != NULL; version = version->next) {
        if (version->dict == dict) {
            return &version->value;
        }
    }
    if ((watcher < 0 && (watcher = PyDict_AddWatcher(dict_changes)) < 0) || PyDict_Watch(watcher, dict) < 0) {
        PyErr_Clear(); /* all of CPython's watchers are in use */
        return NULL;
    }
    dict_version *version = unused;
    if (version != NULL) {
        unused = version->next;
    }
    else if ((version = PyMem_RawMalloc(sizeof *version)) == NULL) {
        return NULL;
    }
    dict_version **bucket = bucket_of(dict);
    *version = (dict_version){.value = ++last_version, .dict = dict, .next = *bucket};
    *bucket = version;
    n_watched++;
    return &version->value;
}

/* The keys are those of the class. They are only ever added to, so a key keeps its index. */
int
cp_key_stamps(PyObject *dict, PyObject *key, const void **addresses)
{
    PyDictObject *attributes = (PyDictObject *)dict;
    PyDictValues *values = attributes->ma_values;
    PyDictKeysObject *keys = attributes->ma_keys;
    if (values == NULL || keys->dk_kind != DICT_KEYS_SPLIT || !PyUnicode_CheckExact(key)) {
        return 0;
    }
    addresses[0] = &attributes->ma_values;
    addresses[1] = &attributes->ma_keys;
    addresses[2] = &keys->dk_nentries;
    for (Py_ssize_t i = 0; i < keys->dk_nentries; i++) {
        PyObject *name = DK_UNICODE_ENTRIES(keys)[i].me_key;
        if (name != NULL && (name == key || PyUnicode_Compare(name, key) == 0)) {
            addresses[2] = &values->values[i];
            return i < values->capacity ? 3 : 0;
        }
    }
    return 3;
}
#endif

/* The tag has 32 bits; what follows it up to the next pointer is padding. */
_Static_assert(offsetof(PyTypeObject, tp_version_tag) % 8 == 0, "the version tag of a type is read as one word");
_Static_assert(offsetof(PyTypeObject, tp_finalize) == offsetof(PyTypeObject, tp_version_tag) + 8,
               "nothing but padding follows the version tag of a type");

const uint64_t *
cp_type_version(PyTypeObject *type)
{
    PyObject *name = PyUnicode_InternFromString("__class__");
    if (name == NULL) {
        PyErr_Clear();
        return NULL;
    }
    _PyType_Lookup(type, name); /* gives the type a version, if it can have one */
    Py_DECREF(name);
    return type->tp_version_tag == 0 ? NULL : (const uint64_t *)&type->tp_version_tag;
}

PyObject *
cp_type_lookup(PyTypeObject *type, PyObject *name)
{
    return _PyType_Lookup(type, name);
}

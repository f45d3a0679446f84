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
    /* The frame was never linked into the thread, so nobody can have made a frame object for it. */
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

const uint64_t *
cp_dict_version(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030E0000
    (void)dict; /* the tag is gone */
    return NULL;
#else
    return &((PyDictObject *)dict)->ma_version_tag;
#endif
}

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

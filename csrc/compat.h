/* What differs between CPython versions. This pair of files is the only place that tests PY_VERSION_HEX and the only
 * one that knows the private frame layout; everything else in csrc/ uses these names. */
#ifndef PYFRAME_COMPAT_H
#define PYFRAME_COMPAT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

/* CPython's frame under evaluation; opaque outside compat.c. */
typedef struct _PyInterpreterFrame cp_frame;
typedef PyObject *(*cp_eval_function)(PyThreadState *, cp_frame *, int);

/* The frame's function and code, both borrowed. The function is NULL for frames that have none. */
PyFunctionObject *cp_frame_function(cp_frame *frame);
PyCodeObject *cp_frame_code(cp_frame *frame);

/* The first `count` fast locals as borrowed references. `scratch` has room for `count`; the result is either it or
 * the frame's own storage. Valid until the frame is run or discarded. */
PyObject *const *cp_frame_locals(cp_frame *frame, PyObject **scratch, Py_ssize_t count);

/* Let go of the first `count` fast locals of a frame that will not be evaluated. */
void cp_frame_clear_locals(cp_frame *frame, Py_ssize_t count);

/* Make a frame that has not run yet raise when it is evaluated with the throw flag and an exception set, as if its
 * RESUME did: the exception table decides who handles it. Free variables are in their places, nothing is on the
 * stack. */
void cp_frame_raise_at_resume(cp_frame *frame);

/* Release a frame that will not be evaluated. Called exactly once by a hook that did not pass the frame on. */
void cp_frame_discard(PyThreadState *tstate, cp_frame *frame);

/* Raise the number of nested calls that C code may make (3.12 and 3.13 count them): without a hook, calls from
 * Python to Python are none of them. */
static inline void
cp_lend_c_recursion(PyThreadState *tstate, int count)
{
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    tstate->c_recursion_remaining += count;
#else
    (void)tstate;
    (void)count;
#endif
}

/* Whether somebody watches what the thread runs: a trace or profile function, or (from 3.12) a tool of sys.monitoring,
 * which may watch single code objects. */
bool cp_is_watched(PyThreadState *tstate);

PyObject *cp_eval_default(PyThreadState *tstate, cp_frame *frame, int throwflag);
cp_eval_function cp_get_eval(void);
void cp_set_eval(cp_eval_function function);

/* Per-code-object slots. cp_request_code_slot returns -1 when there is none left. */
Py_ssize_t cp_request_code_slot(freefunc release);
void *cp_get_code_slot(PyCodeObject *code, Py_ssize_t slot);
int cp_set_code_slot(PyCodeObject *code, Py_ssize_t slot, void *value);

/* Number of fast locals that hold arguments: positional, keyword-only, then *args and **kwargs. */
static inline Py_ssize_t
cp_code_argument_count(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0)
           + ((code->co_flags & CO_VARKEYWORDS) != 0);
}

/* Name of fast local i, borrowed. */
static inline PyObject *
cp_code_local_name(PyCodeObject *code, Py_ssize_t i)
{
    return PyTuple_GET_ITEM(code->co_localsplusnames, i);
}

/* Address of the word that changes, never to a value that it had, whenever the dict does or goes; NULL where there is
 * none. It may be read while the dict lives. */
const uint64_t *cp_dict_version(PyObject *dict);

/* From 3.13 on a dict may have its values in the object whose attributes they are; such a dict has no version. The
 * addresses of 8-byte words that hold what it has under `key`, in an order in which they may be read: the later ones
 * lie where the earlier ones point. The last one is the value itself (NULL: absent), or the number of keys that
 * objects of the class have had. Returns how many there are; 0 for other dicts and for keys that are not str. */
enum { CP_KEY_STAMPS = 3 };
int cp_key_stamps(PyObject *dict, PyObject *key, const void **addresses);

/* Address of the word that changes whenever an attribute of the class, or of one that it derives from, does; NULL where
 * the class has no version. */
const uint64_t *cp_type_version(PyTypeObject *type);

/* What the class's MRO has under a name (borrowed, no descriptor called), or NULL without an exception. */
PyObject *cp_type_lookup(PyTypeObject *type, PyObject *name);

/* The referent of a weak reference, borrowed, or NULL once it died. */
static inline PyObject *
cp_weakref_get(PyObject *ref)
{
    PyObject *object = ((PyWeakReference *)ref)->wr_object;
    return object == Py_None ? NULL : object;
}

#endif

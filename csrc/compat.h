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

/* Release the first `count` fast locals of a frame that will not be evaluated. */
void cp_frame_clear_locals(cp_frame *frame, Py_ssize_t count);

/* Make a frame that has not run yet raise when it is evaluated with the throw flag and an exception set, as if its
 * RESUME did: the exception table decides who handles it. Free variables are in their places, nothing is on the
 * stack. */
void cp_frame_raise_at_resume(cp_frame *frame);

/* Release a frame that will not be evaluated. Called exactly once by a hook that did not pass the frame on. */
void cp_frame_discard(PyThreadState *tstate, cp_frame *frame);

/* Raise the limit on nested C calls (3.12 and 3.13 count them): under a hook, calls from Python to Python count too. */
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

/* Whether the thread has a trace or profile function or, from 3.12 on, a tool of sys.monitoring is active, perhaps for
 * single code objects. */
bool cp_is_watched(PyThreadState *tstate);

PyObject *cp_eval_default(PyThreadState *tstate, cp_frame *frame, int throwflag);
cp_eval_function cp_get_eval(void);
void cp_set_eval(cp_eval_function function);

/* Per-code-object slots. cp_request_code_slot returns -1 if none is free. */
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

/* Address of a word that gets a value it never had before whenever the dict changes or is freed; NULL if there is none.
 * It may be read while the dict is alive. */
const uint64_t *cp_dict_version(PyObject *dict);

/* From 3.13 on a dict may have its values in the object whose attributes they are; such a dict has no version. The
 * addresses of 8-byte words that hold what it has under `key`, in an order in which they may be read: the later ones
 * lie where the earlier ones point. The last one is the value itself (NULL: absent), or the number of keys that
 * objects of the class have had. Returns how many there are; 0 for other dicts and for keys that are not str. */
enum { CP_KEY_STAMPS = 3 };
int cp_key_stamps(PyObject *dict, PyObject *key, const void **addresses);

/* Address of a word that changes whenever an attribute of the class or of one of its bases changes; NULL if the class
 * has no version. */
const uint64_t *cp_type_version(PyTypeObject *type);

/* The attribute `name` found along the MRO of a class (borrowed; calls no descriptor); NULL without an exception. */
PyObject *cp_type_lookup(PyTypeObject *type, PyObject *name);

/* The referent of a weak reference, borrowed, or NULL once it was freed. */
static inline PyObject *
cp_weakref_get(PyObject *ref)
{
    PyObject *object = ((PyWeakReference *)ref)->wr_object;
    return object == Py_None ? NULL : object;
}

#endif

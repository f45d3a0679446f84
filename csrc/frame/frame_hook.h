/* The PEP 523 evaluation hook and each thread's callback. */
#ifndef PYFRAME_FRAME_HOOK_H
#define PYFRAME_FRAME_HOOK_H

#include "code_cache.h"

typedef enum {
    HOOK_OFF,      /* frames pass straight through */
    HOOK_RUN_ONLY, /* installed entries run; nobody is asked on a miss */
    HOOK_ON,       /* the callback is asked on a miss */
} hook_mode;

/* One thread's setting. It lives in the thread's dict, so it goes with the thread. */
typedef struct {
    PyObject_HEAD
    hook_mode mode;
    PyObject *callback; /* NULL (none), False (run only) or a callable */
    PyObject *owner;    /* whose entries count; NULL: anybody's */
} ThreadHook;

typedef struct {
    PyObject *callback, *owner;
    hook_mode mode;
} hook_setting;

extern PyTypeObject ThreadHook_Type;

/* What a callback returns for "never ask again about this code". */
extern PyObject *hook_skip_marker;

int frame_hook_init(PyObject *module);

/* This thread's setting, made on demand: borrowed, or NULL with an exception set. */
ThreadHook *thread_hook(void);

/* The owner that goes with a callback: its `owner` attribute, else itself. A new reference. */
PyObject *callback_owner(PyObject *callback);

/* Replace the setting for a while; `callback` NULL switches the hook off. pop() restores what push() found. */
void hook_push(ThreadHook *hook, PyObject *callback, PyObject *owner, hook_setting *saved);
void hook_pop(ThreadHook *hook, hook_setting *saved);

PyObject *frame_hook_set_callback(PyObject *module, PyObject *callback);
PyObject *frame_hook_get_callback(PyObject *module, PyObject *ignored);
PyObject *frame_hook_is_installed(PyObject *module, PyObject *ignored);

#endif

/* The PEP 523 evaluation hook and each thread's callback. */
#ifndef PYFRAME_FRAME_HOOK_H
#define PYFRAME_FRAME_HOOK_H

#include "code_cache.h"

/* One thread's setting, kept in the thread's dict, so that it is freed with the thread. The hook is active if there is
 * a callback and `disabled` is 0. These are two fields so that code that runs with the hook disabled can change the
 * callback. */
typedef struct {
    PyObject_HEAD
    PyObject *callback; /* NULL (none), False (run installed entries only) or a callable */
    PyObject *owner;    /* only its entries are used; NULL: those of any owner */
    int disabled;
} ThreadHook;

typedef struct {
    PyObject *callback, *owner;
    int disabled;
} hook_setting;

extern PyTypeObject ThreadHook_Type;

/* Whether a thread with a debugger or profiler runs the original frames (the default). */
extern bool hook_stands_aside;

/* Whether this thread runs original frames only, because a debugger or profiler is active. */
static inline bool
hook_is_watched(PyThreadState *tstate)
{
    return hook_stands_aside && cp_is_watched(tstate);
}

/* The value by which a callback says not to call it again for this code. */
extern PyObject *hook_skip_marker;

int frame_hook_init(PyObject *module);

/* This thread's setting, created on demand: borrowed, or NULL with an exception set. */
ThreadHook *thread_hook(void);

/* The owner of a callback's entries: its `owner` attribute, or else the callback itself. A new reference. */
PyObject *callback_owner(PyObject *callback);

/* Replace the setting temporarily; a `callback` of NULL disables the hook. hook_pop() restores the previous setting. */
void hook_push(ThreadHook *hook, PyObject *callback, PyObject *owner, hook_setting *saved);
void hook_pop(ThreadHook *hook, hook_setting *saved);

/* Disable the hook temporarily; pass the result to hook_enable(). */
static inline int
hook_disable(ThreadHook *hook)
{
    int saved = hook->disabled;
    hook->disabled = 1;
    return saved;
}

static inline void
hook_enable(ThreadHook *hook, int saved)
{
    hook->disabled = saved;
}

/* Install the hook for one call, even where frames are nested too deeply for it. Pass the result to
 * frame_hook_put_back(). */
cp_eval_function frame_hook_ensure(void);
void frame_hook_put_back(cp_eval_function before);

PyObject *frame_hook_set_callback(PyObject *module, PyObject *callback);
PyObject *frame_hook_get_callback(PyObject *module, PyObject *ignored);
PyObject *frame_hook_set_stands_aside(PyObject *module, PyObject *flag);
PyObject *frame_hook_is_installed(PyObject *module, PyObject *ignored);

#endif

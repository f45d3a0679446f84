/* The PEP 523 evaluation hook and each thread's callback. */
#ifndef PYFRAME_FRAME_HOOK_H
#define PYFRAME_FRAME_HOOK_H

#include "code_cache.h"

/* One thread's setting. It lives in the thread's dict, so it goes with the thread. The hook is at work where there is
 * a callback and `disabled` is 0; the two are apart so that code which runs disabled may change the callback. */
typedef struct {
    PyObject_HEAD
    PyObject *callback; /* NULL (none), False (run installed entries, ask nobody) or a callable */
    PyObject *owner;    /* whose entries count; NULL: anybody's */
    int disabled;
} ThreadHook;

typedef struct {
    PyObject *callback, *owner;
    int disabled;
} hook_setting;

extern PyTypeObject ThreadHook_Type;

/* Whether a thread that is traced or profiled runs the program's own frames, and none of ours (the default). */
extern bool hook_stands_aside;

/* Whether this thread runs original frames only, because a debugger or profiler is active. */
static inline bool
hook_is_watched(PyThreadState *tstate)
{
    return hook_stands_aside && cp_is_watched(tstate);
}

/* What a callback returns for "never ask again about this code". */
extern PyObject *hook_skip_marker;

int frame_hook_init(PyObject *module);

/* This thread's setting, made on demand: borrowed, or NULL with an exception set. */
ThreadHook *thread_hook(void);

/* The owner that goes with a callback: its `owner` attribute, else itself. A new reference. */
PyObject *callback_owner(PyObject *callback);

/* Replace the setting for a while; `callback` NULL switches the hook off, another one on. pop() restores what push()
 * found. */
void hook_push(ThreadHook *hook, PyObject *callback, PyObject *owner, hook_setting *saved);
void hook_pop(ThreadHook *hook, hook_setting *saved);

/* Switch the hook off for a while: keep the result and give it to hook_enable(). */
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

/* Have the hook installed for one call, also where frames are nested too deep for it; returns what put_back() takes. */
cp_eval_function frame_hook_ensure(void);
void frame_hook_put_back(cp_eval_function before);

PyObject *frame_hook_set_callback(PyObject *module, PyObject *callback);
PyObject *frame_hook_get_callback(PyObject *module, PyObject *ignored);
PyObject *frame_hook_set_stands_aside(PyObject *module, PyObject *flag);
PyObject *frame_hook_is_installed(PyObject *module, PyObject *ignored);

#endif

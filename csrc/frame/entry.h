/* One compiled version of a code object: guards, and the code or call that runs when they hold. */
#ifndef PYFRAME_ENTRY_H
#define PYFRAME_ENTRY_H

#include "guard_eval.h"

typedef struct output_node output_node;

/* A call of one callable with guard registers as arguments; no Python frame of ours is involved. */
typedef struct {
    PyObject_HEAD
    PyObject *callable;
    Py_ssize_t n_inputs;
    int32_t *inputs;     /* registers */
    bool is_injective;   /* no register occurs twice */
    bool is_for_code;    /* called by the entry's code, not in place of the frame */
    output_node *output; /* how the result is built from the callable's tuple */
    Py_ssize_t highest_register;
} DirectCall;

typedef struct {
    PyObject_HEAD
    PyObject *owner; /* compared by identity with the active callback's owner */
    GuardProgram *guards;
    PyObject *code; /* replacement code object, or None if `direct` replaces the whole frame */
    DirectCall *direct; /* or NULL; with is_for_code, `code` gets it as its last argument */
    PyObject *tag;      /* for the driver */
    uint64_t hits, epoch;
    Py_ssize_t last_failed; /* index of the operation that failed last, or -1 */
    int valid;
    PyObject *weakrefs;
} Entry;

extern PyTypeObject Entry_Type, DirectCall_Type, GraphCall_Type;

/* Run the callable on the registers and build the result. The caller has disabled the frame hook. */
PyObject *direct_call_run(DirectCall *direct, PyObject *const *registers);

/* The object that the entry's code calls to run its graph on the registers. Moves objects out of them. NULL with an
 * exception set. */
PyObject *graph_call_new(DirectCall *direct, register_file *registers);

/* Whether a hit runs without a Python frame. */
static inline bool
entry_is_direct(const Entry *entry)
{
    return entry->direct != NULL && !entry->direct->is_for_code;
}

/* Run a function made from the entry's code. The registers are released. *started: set once its frame has started, so that
 * the locals of the frame that it replaces are gone. */
PyObject *entry_run_code(Entry *entry, PyObject *function, const call_context *context, register_file *registers,
                         bool *started);

/* A function with the entry's replacement code and the attributes of `original`, in whose place it runs. */
PyObject *entry_make_function(Entry *entry, PyFunctionObject *original);

/* Does the replacement take exactly the fast locals of `code`, with its closure or none? 0, or -1 with ValueError. */
int entry_fits(Entry *entry, PyCodeObject *code);

#endif

/* Guard programs: a flat list of operations over registers, run before a cached entry is used. */
#ifndef PYFRAME_GUARD_EVAL_H
#define PYFRAME_GUARD_EVAL_H

#include "compat.h"
#include <stdbool.h>

enum { GUARD_PASS = -1, GUARD_ERROR = -2 };
enum { REGISTERS_ON_STACK = 48 };

/* The call that accessors read: the function and its arguments as fast locals (borrowed). */
typedef struct {
    PyFunctionObject *function;
    PyObject *const *locals;
    Py_ssize_t n_locals;
    cp_frame *frame; /* the frame of the call, which will not be evaluated; NULL if there is none */
    bool passing;    /* not a real call: make no memo from it */
} call_context;

typedef struct guard_op guard_op;

typedef struct {
    uintptr_t last; /* address of the object in the last full pass; never dereferenced */
    int changes;    /* how often a memo was dropped because the object differed */
} root_history;
typedef struct guard_memo guard_memo;

typedef struct {
    PyObject_HEAD
    guard_op *ops;
    Py_ssize_t n_ops, n_registers;
    Py_ssize_t n_results; /* the first registers: those that are read after a pass */
    bool cleared;
    guard_memo *memo;      /* of a call that passed, or NULL */
    root_history *roots; /* of each operation that reads a root */
    uintptr_t changing[32]; /* addresses of the versions of dicts that changed; never dereferenced */
    Py_ssize_t n_changing;
    uint64_t n_memos;
    uint32_t passes, wait; /* full passes since a memo was made, and how many to wait for the next */
} GuardProgram;

/* Register storage of one evaluation; every register owns its object. */
typedef struct {
    PyObject **items;
    Py_ssize_t count;
    PyObject *small[REGISTERS_ON_STACK];
} register_file;

extern PyTypeObject GuardProgram_Type, VersionCell_Type;

/* GUARD_PASS with at least the first n_results registers filled, the index of the failing operation with the
 * registers released, or GUARD_ERROR with an exception set (only for what is not an Exception: KeyboardInterrupt and
 * the like; or no memory). Runs arbitrary Python: the caller holds a reference to the program and has the frame hook
 * off. */
Py_ssize_t guard_run(GuardProgram *program, const call_context *context, register_file *registers);
void registers_release(register_file *registers);

/* Call `callable` with the n registers whose numbers are in `which`. NULL with an exception set. */
PyObject *call_with_registers(PyObject *callable, const int32_t *which, Py_ssize_t n, PyObject *const *registers);

/* Same exact type and equal, as the EQUALS row says: 1, 0, or -1 with an exception set. */
int const_equal(PyObject *a, PyObject *b);

PyObject *guard_op_table(void);

#endif

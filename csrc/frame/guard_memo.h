/* What a guard program remembers of a call that passed: a memo, with the version stamps that must be unchanged.
 *
 * Most of what guards read is static: module trees, classes, globals, configurations. After a pass the memo
 * records the dependencies of those guards as version stamps. A version stamp is eight bytes of memory and the value
 * they had: the version tag of a dict or class that was read, the type of an object, the pointer to its dict, an
 * item of a list, the contents of a cell. They are recorded in the order in which the guards read them. While all of
 * them are unchanged, those guards hold and their registers have the same objects, so only the other operations, the
 * residual checks, are run. A dict's version tag is never used twice, so equal tags mean an equal dict.
 *
 * Memory that may have been freed is never read: each stamp lies in an object that the stamps before it, or the
 * arguments of the call, keep alive. A memo owns no object of the user: roots are held by weak references, the rest
 * is borrowed. Where a stamp is the address of an object, another object may be at that address after the first one
 * died: either other stamps cover the contents of the object, or it is a constant (a number, a string), which the
 * memo holds so that its address is not used again.
 *
 * Of a dict that is known to change often, each entry that was read is recorded too. When its version tag differs,
 * those entries are compared, and if they are unchanged the new tag becomes the expected one. */
#ifndef PYFRAME_GUARD_MEMO_H
#define PYFRAME_GUARD_MEMO_H

#include "guard_op.h"

enum { MIN_SAVED = 16 }; /* operations that a memo must save to be kept */

typedef struct {
    const uint64_t *address;
    uint64_t expected;
} version_stamp;

/* An object that is read from the call itself. It must be the recorded one, and still alive. */
typedef struct {
    op_code code; /* LOCAL, CLOSURE, FUNC, or, for the function's dicts, GLOBALS and BUILTINS */
    int64_t index;
    PyObject *object; /* borrowed */
    PyObject *weak;   /* weak reference to it; NULL for dicts, which have a version tag */
    Py_ssize_t op;    /* the operation that reads it; -1 for dicts */
} memo_root;

typedef struct {
    PyObject *tensor; /* borrowed */
    int expected;
    bool on_cpu;
} memo_flag;

typedef struct {
    PyObject *object; /* borrowed */
    int32_t place;    /* index in the register file of later calls */
} memo_value;

/* An entry of a dict that changes often. */
typedef struct {
    Py_ssize_t stamp;                 /* the dict's version */
    PyObject *dict, *key;            /* borrowed: the key is the operation's */
    PyObject *value;                 /* borrowed; NULL: the key must be absent */
    bool any;                        /* any value is accepted */
    PyObject *held;                  /* a weak reference to the value, or the value where it is a constant; or NULL */
} memo_entry;

struct guard_memo {
    Py_ssize_t users; /* references: from the program, and from evaluations that use it now */
    uint64_t hits;
    Py_ssize_t n_roots, n_stamps, n_flags, n_values, n_entries, n_residual, n_places, n_constants;
    memo_root *roots;
    version_stamp *stamps;
    unsigned char *is_version; /* of each stamp: the version of a dict, or the value of an attribute */
    PyObject **constants;      /* held: numbers, strings and tuples of them that were read */
    memo_entry *entries;
    memo_flag *flags;           /* metadata of tensors without a stamp (tv_unstamped_metadata) */
    memo_value *values;         /* registers that are read: results, and operands of residual checks */
    guard_op *residual;         /* operations that are run at each call; they borrow from the program's */
    Py_ssize_t *residual_index; /* their indices in the program */
};

/* A memo of a call that has just passed. `eligible[i]`: operation i reads a root that the memo may include. NULL
 * without an exception if a memo would save too little, or if there is no memory. */
guard_memo *guard_memo_new(GuardProgram *program, const call_context *context, PyObject **registers,
                           const char *eligible);
void guard_memo_release(guard_memo *memo);

/* Compare roots, stamps and flags with this call. Runs no Python code and makes or releases no object. GUARD_PASS;
 * or the index of the stamp that differs; or n_stamps + 1 + the index of the root that differs; or n_stamps for a
 * flag. */
Py_ssize_t guard_memo_check(guard_memo *memo, const call_context *context);

/* The object of a root operation of this call (borrowed), or NULL. */
PyObject *guard_root_object(op_code code, int64_t index, const call_context *context);

#endif

/* What a guard program remembers of a call that passed: words of memory that have not changed since.
 *
 * Most of what guards read is static: module trees, classes, globals, configurations. After a pass the memo takes down
 * the words of memory on which those guards depend - the version tag of each dict and class that was read, the type of
 * an object, its dict, an item of a list, the contents of a cell - in the order in which the guards read them. While all
 * of them hold, those guards hold and their registers have the same objects: only the other operations are run. A
 * dict's tag is never used twice, so equal tags mean an equal dict.
 *
 * No word is read that might not be there any more: it lies in an object that the words before it, or the call's own
 * arguments, keep alive. A memo owns none of the user's objects: roots are held by weak references, the rest is borrowed.
 * Where a word is the address of an object, another object may be there after the first one died: either words tell what
 * is in the object, or it is a constant (a number, a string), which the memo holds so that its address stays taken.
 *
 * Of a dict that is known to change often, each entry that was read is taken down too: where its tag differs, those
 * entries are compared, and the tag that it has now is what is expected from then on. */
#ifndef PYFRAME_GUARD_MEMO_H
#define PYFRAME_GUARD_MEMO_H

#include "guard_op.h"

enum { LEAST_WORTH = 16 }; /* operations that a memo has to spare */

typedef struct {
    const uint64_t *address;
    uint64_t expected;
} memory_word;

/* An object that the call itself gives: it must be the one that was recorded, still alive. */
typedef struct {
    op_code code; /* LOCAL, CLOSURE, FUNC, or, for the function's dicts, GLOBALS and BUILTINS */
    int64_t index;
    PyObject *object; /* borrowed */
    PyObject *weak;   /* weak reference to it; NULL for dicts, whose version tag tells */
    Py_ssize_t op;    /* the operation that reads it; -1 for dicts */
} memo_root;

typedef struct {
    PyObject *tensor; /* borrowed */
    int expected;
    bool on_cpu;
} memo_flag;

typedef struct {
    PyObject *object; /* borrowed */
    int32_t place;    /* in the register file of a call that the memo serves */
} memo_value;

/* An entry of a dict that changes often. */
typedef struct {
    Py_ssize_t word;                 /* the dict's version */
    PyObject *dict, *key;            /* borrowed: the key is the operation's */
    PyObject *value;                 /* borrowed; NULL: the key must be absent */
    bool any;                        /* whatever the value */
    PyObject *held;                  /* a weak reference to the value, or the value where it is a constant; or NULL */
} memo_entry;

struct guard_memo {
    Py_ssize_t users; /* evaluations that go by it now, and the program */
    uint64_t hits;
    Py_ssize_t n_roots, n_words, n_flags, n_values, n_entries, n_live, n_places, n_constants;
    memo_root *roots;
    memory_word *words;
    unsigned char *is_version; /* of each word: the version of a dict, or the value of an attribute */
    PyObject **constants;      /* held: numbers, strings and tuples of them that were read */
    memo_entry *entries;
    memo_flag *flags;        /* what no word tells of tensors (tv_wordless) */
    memo_value *values;      /* registers that are read: results, and operands of what is run */
    guard_op *live;          /* what is run at each call: the operations, borrowing from the program's */
    Py_ssize_t *live_index;  /* their indices in the program */
};

/* Take down a call that has just passed. `eligible[i]`: operation i reads a root that is worth remembering. NULL without
 * an exception where there is nothing to gain, or no memory. */
guard_memo *guard_memo_new(GuardProgram *program, const call_context *context, PyObject **registers,
                           const char *eligible);
void guard_memo_release(guard_memo *memo);

/* Does nothing of Python's: no object is made or let go. GUARD_PASS; or the index of the word that differs, the number of
 * words + 1 + that of the root that does, or the number of words where it is something else. */
Py_ssize_t guard_memo_check(guard_memo *memo, const call_context *context);

/* The object of a root operation of this call (borrowed), or NULL. */
PyObject *guard_root_object(op_code code, int64_t index, const call_context *context);

#endif

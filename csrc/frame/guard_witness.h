/* Which words of memory an operation's outcome depends on, if it depends on nothing else. */
#ifndef PYFRAME_GUARD_WITNESS_H
#define PYFRAME_GUARD_WITNESS_H

#include "guard_memo.h"

/* A growing list of words; one address is taken down once. */
typedef struct {
    memory_word *words;
    Py_ssize_t n, capacity;
    size_t *places; /* open-addressed: 1 + index into words */
    size_t n_places;
    unsigned char *is_version;        /* of each word: the version of a dict, or the value of an attribute */
    const uintptr_t *changing;        /* addresses of such words that are known to change often, ... */
    Py_ssize_t n_changing, n_touched; /* ... and on how many versions among them the last operation depends */
    bool failed;                      /* no memory */
} word_list;

void word_list_free(word_list *list);
void word_list_add(word_list *list, const void *address);
Py_ssize_t word_list_index(const word_list *list, const void *address); /* -1: not in there */

/* Add the word that tells a dict's content; false: none does. */
bool witness_dict(word_list *list, PyObject *dict);

/* No key's hash or equality is code of the user's. */
bool has_plain_keys(PyObject *dict);
bool is_plain_key(PyObject *key);

/* An immutable value that is equal to nothing but its like. */
bool is_plain_constant(PyObject *value);

/* Take down what `op` depends on besides its source registers, which are known to hold the same objects. True: while
 * those words hold, an accessor gives the object in its register again and a check passes. False: it has to be run.
 * Runs no Python code. Root operations are not asked. */
bool guard_witness(word_list *list, const guard_op *op, PyObject **registers);

#endif

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
    bool failed; /* no memory */
} word_list;

void word_list_free(word_list *list);
void word_list_add(word_list *list, const void *address);

/* Is a class's attribute lookup, or a dict's content, told by one word? Adds it; false: it is not. */
bool witness_dict(word_list *list, PyObject *dict);

/* Take down what `op` depends on besides its source registers, which are known to hold the same objects. True: while
 * those words hold, an accessor gives the object in its register again and a check passes. False: it has to be run.
 * Runs no Python code. Root operations are not asked. */
bool guard_witness(word_list *list, const guard_op *op, PyObject **registers);

#endif

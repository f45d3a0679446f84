/* The state of a code object: its compiled entries, and whether it is to be captured at all. */
#ifndef PYFRAME_CODE_CACHE_H
#define PYFRAME_CODE_CACHE_H

#include "entry.h"

enum {
    CODE_SKIP = 1,           /* never call the callback for it */
    CODE_SKIP_RECURSIVE = 2, /* nor for anything that it calls */
    CODE_REPLACEMENT = 4,    /* it is the code of an entry */
    CODE_HANDLES_ERRORS = 8, /* exceptions before its first instruction are raised at its RESUME, which has a handler */
    CODE_SKIPPED = CODE_SKIP | CODE_SKIP_RECURSIVE | CODE_REPLACEMENT,
};

typedef struct CodeState {
    PyObject_HEAD
    PyCodeObject *code; /* borrowed: the code object owns this state; NULL once it died */
    Entry **entries;
    Py_ssize_t n_entries, capacity;
    unsigned flags;
    PyObject *skipped_owners; /* list, or NULL */
    PyObject *data;           /* the driver's own object */
    uint64_t misses;
    struct CodeState *next, *previous; /* every live state */
} CodeState;

extern PyTypeObject CodeState_Type;

int code_cache_init(void);

/* The code's state, borrowed: NULL without an exception if it has none yet; and the same, created on demand. */
CodeState *code_state_peek(PyCodeObject *code);
CodeState *code_state_get(PyCodeObject *code);

/* The most recently used entry of `owner` (NULL: of any owner) whose guards hold, as a new reference, with its
 * registers filled; it is moved to the front. NULL without an exception on a miss. Runs Python code; the caller has
 * disabled the frame hook. */
Entry *code_state_lookup(CodeState *state, PyObject *owner, const call_context *context, register_file *registers);

int code_state_install(CodeState *state, Entry *entry);
void code_state_clear(CodeState *state);
int code_state_skips_owner(CodeState *state, PyObject *owner);
int code_state_skip_owner(CodeState *state, PyObject *owner);

/* Python functions of the module. */
PyObject *code_cache_entries(PyObject *module, PyObject *code);
PyObject *code_cache_state(PyObject *module, PyObject *code);
PyObject *code_cache_install(PyObject *module, PyObject *args);
PyObject *code_cache_evict(PyObject *module, PyObject *args);
PyObject *code_cache_reset_code(PyObject *module, PyObject *code);
PyObject *code_cache_reset_all(PyObject *module, PyObject *ignored);
PyObject *code_cache_skip_code(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *code_cache_handles_errors(PyObject *module, PyObject *code);

#endif

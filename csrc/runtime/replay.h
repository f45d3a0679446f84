/* Replays of a plan's recordings (inductor/cudagraphs). The types inductor._C.Recorded and inductor._C.Replay. */
#ifndef PYFRAME_REPLAY_H
#define PYFRAME_REPLAY_H

#include "plan.h"

extern PyTypeObject recorded_type;
extern PyTypeObject replay_type;

/* What identifies one recorded call, and what a replay of it uses. Filled by recorded_new. */
typedef struct memory {
    PyObject *owner;   /* an OwnedMemory: keeps the storage object alive, of which this struct must hold no reference */
    PyObject *storage; /* borrowed from `owner` */
    PyObject *cdata;   /* the address of the storage, as an int */
    PyObject *tensor;  /* what results are made of */
    PyObject *probe;   /* a tensor over the storage, whose address shows whether the storage was resized */
    void *address;
    size_t bytes;          /* from `address` on; 0: not known */
    Py_ssize_t references; /* of `storage` while nobody else has one */
    long long uses;        /* of the storage by tensors, while no result is in use */
    int handed_out;        /* results are given out in this memory; otherwise they are copied */
} memory;

typedef struct recorded_object {
    PyObject_HEAD
    PyObject *graph;   /* has a method replay() */
    PyObject *used;    /* the set of the streams that the memory was used on */
    PyObject *targets; /* a list: where the inputs `copied` are copied to */
    Py_ssize_t n_inputs, n_copied, n_memories;
    int64_t *addresses;
    Py_ssize_t *copied;
    memory *memories;
    int inference;
    long long generation;
} recorded_object;

enum result_kind { REPLAY_CONSTANT, REPLAY_ARGUMENT, REPLAY_ARGUMENT_VIEW, REPLAY_OWNED };

typedef struct replay_result {
    enum result_kind kind;
    Py_ssize_t index;   /* of the input, or of the memory */
    PyObject *value;    /* the constant; of a view of an input, what makes it of (input, size, stride, offset) */
    PyObject *size, *stride; /* of a view of an input */
    int64_t offset, ndim, *dims; /* OWNED: ndim sizes, then ndim strides; ndim -1: all of the memory */
    Py_ssize_t same_as; /* an earlier result that is the same object, or -1 */
} replay_result;

typedef struct replay_object {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    plan_object *target; /* the recorded plan, which knows what inputs must be like */
    PyObject *otherwise, *device, *bound;
    PyObject *offered, *recordings, *skip; /* a tuple of the other two, which are borrowed from it; see refresh() */
    PyObject *modes;     /* callables; if one returns true, something has to see the operators of the plan */
    PyObject *capturing, *inference, *use_count, *foreach_copy, *written; /* callables; `written` may be None */
    PyObject *acquire, *release; /* methods of the device's lock */
    Py_ssize_t count, n_results, n_mutated;
    Py_ssize_t n_memories; /* that results are in */
    int stopped; /* `otherwise` is the plan, and nothing is recorded any more */
    enum result_form form;
    replay_result *results;
    Py_ssize_t *mutated;
} replay_object;

/* recorded.c: whether a replay overwrites nothing that is in use, and whether the recorded addresses are still those of
 * the memory. 1, 0, or -1 with an exception set. */
int recorded_usable(const recorded_object *recorded, PyObject *use_count);

/* replay.c: a vectorcall, and a METH_O method. */
PyObject *replay_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *replay_take(PyObject *self, PyObject *given);

#endif

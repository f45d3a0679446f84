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

/* Whether a replay overwrites nothing that is in use, and whether the recorded addresses are those of the memory still.
 * 1, 0, or -1 with an exception set. */
int recorded_usable(const recorded_object *recorded, PyObject *use_count);

#endif

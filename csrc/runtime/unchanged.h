#ifndef INDUCTOR_UNCHANGED_H
#define INDUCTOR_UNCHANGED_H

#define UNCHANGED_DOC \
    "unchanged(tensors, refs, facts) -> bool: whether each tensor of the list is the object of the weak reference at its\n" \
    "place in the tuple `refs`, with the version, the address and the contents that `facts` states: 4 numbers of 64 bits\n" \
    "for each, the version, the address of the first element, and the address and the length in bytes of a copy to compare\n" \
    "with; 0 bytes: the contents are not compared. The copies must exist, and the tensors be contiguous on the CPU."

/* `unchanged` of the module: see UNCHANGED_DOC. */
PyObject *unchanged(PyObject *self, PyObject *const *args, Py_ssize_t n_args);

#endif

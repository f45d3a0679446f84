#ifndef INDUCTOR_OPEN_FILE_H
#define INDUCTOR_OPEN_FILE_H

#define OPEN_FILE_DOC \
    "open_file(path, flags) -> int: a file descriptor, as an `opener` of `open`. Symbolic links are not followed, named\n" \
    "pipes do not block, and a file that is created is accessible to this user only. OSError as for os.open."

/* `open_file` of the module: see OPEN_FILE_DOC. */
PyObject *open_file(PyObject *self, PyObject *args);

#endif

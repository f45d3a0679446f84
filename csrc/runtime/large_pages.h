/* Asks the system for large pages where memory is new with each call. */
#ifndef LARGE_PAGES_H
#define LARGE_PAGES_H

#include <stddef.h>

void ask_for_large_pages(void *memory, size_t bytes);

#endif

/* Large pages for large results: glibc takes blocks of 32 MiB and more from the system at each allocation, and returns
 * them at each `free`, so each call of a graph touches every page of its results for the first time. With pages of 4 KiB
 * this takes several times as long as to write the results (64 MiB on a virtual machine: 26 ms instead of 5). Where the
 * system has no large pages, or is set to give none, the request has no effect. */
#include "large_pages.h"

#include <stdint.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__linux__) && defined(MADV_HUGEPAGE)
enum { LARGE_PAGE = 1 << 21, ALWAYS_NEW = 1 << 25 };

void
ask_for_large_pages(void *memory, size_t bytes)
{
    if (memory == NULL || bytes < ALWAYS_NEW) {
        return;
    }
    uintptr_t first = ((uintptr_t)memory + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uintptr_t end = ((uintptr_t)memory + bytes) / LARGE_PAGE * LARGE_PAGE;
    if (first < end) {
        (void)madvise((void *)first, end - first, MADV_HUGEPAGE);
    }
}
#else
void
ask_for_large_pages(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}
#endif

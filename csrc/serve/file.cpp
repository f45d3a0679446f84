#include "file.h"

#include "pyframe/error.h"
#include "sha256.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pyframe {

/* Shared with inductor/package/container.py. */
enum { VERSION = 2, HEADER = 128, ALIGNMENT = 64, SIGNED = 1 };
static const char MAGIC[] = "\x89PYFRAME";

static uint64_t
little_endian(const uint8_t *bytes, int width)
{
    uint64_t number = 0;
    for (int i = width - 1; i >= 0; i--) {
        number = number << 8 | bytes[i];
    }
    return number;
}

File::File(const std::string &given, const std::string &key) : path(given)
{
    int number = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (number < 0 || fstat(number, &status) != 0) {
        std::string why = std::strerror(errno);
        if (number >= 0) {
            close(number);
        }
        throw Error("it cannot be opened: " + why);
    }
    size_ = size_t(status.st_size);
    void *memory = size_ < HEADER ? MAP_FAILED
                                  : mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, number, 0);
    close(number);
    if (size_ < HEADER) {
        throw Error("it is shorter than a header");
    }
    if (memory == MAP_FAILED) {
        throw Error(std::string("it cannot be mapped into memory: ") + std::strerror(errno));
    }
    memory_ = (uint8_t *)memory;
    try {
        check(key);
    } catch (...) {
        munmap(memory_, size_);
        throw;
    }
}

File::~File()
{
    munmap(memory_, size_);
}

void
File::check(const std::string &key)
{
    if (std::memcmp(memory_, MAGIC, 8) != 0) {
        throw Error("this is not a package of pyframe.package()");
    }
    uint64_t version = little_endian(memory_ + 8, 4), flags = little_endian(memory_ + 12, 4);
    uint64_t whole = little_endian(memory_ + 16, 8), at = little_endian(memory_ + 24, 8);
    uint64_t length = little_endian(memory_ + 32, 8);
    if (version != VERSION) {
        throw Error("it has version " + std::to_string(version) + " of the format; this release reads version "
                    + std::to_string(VERSION));
    }
    if (whole != size_ || at != HEADER || length > size_ - HEADER) {
        throw Error("it is damaged: it has " + std::to_string(size_) + " bytes, and its header says "
                    + std::to_string(whole));
    }
    Digest digest = sha256({{memory_, 64}, {memory_ + HEADER, length}});
    if (!same_digest(digest.data(), memory_ + 64)) {
        throw Error("it is damaged: its description does not have its checksum");
    }
    if (!key.empty()) {
        if (!(flags & SIGNED)) {
            throw Error("it is not signed, and a key was given");
        }
        if (!same_digest(hmac_sha256(key, digest).data(), memory_ + 96)) {
            throw Error("its signature is not one by the given key");
        }
    }
    description = Value::read(memory_ + HEADER, length);
    uint64_t first = (HEADER + length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (const Value &each : description["sections"].items()) {
        uint64_t place = uint64_t(each.at(0).between(0, INT64_MAX)), size = uint64_t(each.at(1).between(0, INT64_MAX));
        if (first > size_ || place > size_ - first || size > size_ - first - place || place % ALIGNMENT != 0
            || each.at(2).bytes().size() != sizeof(Digest)) {
            throw Error("a section is not within the file");
        }
        places_.push_back({first + place, size, each.at(2).bytes(), false});
    }
}

Bytes
File::section(int64_t number)
{
    if (number < 0 || size_t(number) >= places_.size()) {
        throw Error("it has no section " + std::to_string(number));
    }
    Place &place = places_[size_t(number)];
    if (!place.checked) {
        Digest digest = sha256({{memory_ + place.at, place.size}});
        if (!same_digest(digest.data(), (const uint8_t *)place.digest.data())) {
            throw Error("it is damaged: section " + std::to_string(number) + " does not have its checksum");
        }
        place.checked = true;
    }
    return {memory_ + place.at, place.size};
}

} // namespace pyframe

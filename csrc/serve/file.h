/* The file around a package: verified when it is opened, section by section when these are used. */
#pragma once

#include "value.h"

#include <string>
#include <vector>

namespace pyframe {

struct Bytes {
    uint8_t *data;
    size_t size;
};

class File {
public:
    File(const std::string &path, const std::string &key);
    ~File();
    File(const File &) = delete;

    const std::string path;
    Value description;

    /* The bytes of a section, whose memory is private to the process and may be written. Error if they do not have
     * their checksum. */
    Bytes section(int64_t number);

private:
    struct Place {
        uint64_t at, size;
        std::string digest;
        bool checked;
    };
    void check(const std::string &key);
    uint8_t *memory_ = nullptr;
    size_t size_ = 0;
    std::vector<Place> places_;
};

} // namespace pyframe

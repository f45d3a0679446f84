#pragma once

#include <stdexcept>

namespace pyframe {

/* A file that cannot be used (damaged, not signed as demanded, made for other machines), or a call that does not fit
 * what was packaged. Operators of ATen raise c10::Error, as always. */
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

} // namespace pyframe

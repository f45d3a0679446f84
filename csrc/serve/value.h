/* Values of the description of a package, in CBOR (RFC 8949): null, booleans, 64-bit integers, doubles, byte and text
 * strings, arrays, and maps with text keys. An access that does not fit raises Error. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pyframe {

class Value {
public:
    enum Kind { NONE, BOOL, INT, DOUBLE, BYTES, TEXT, ARRAY, MAP };
    Kind kind = NONE;

    bool boolean() const;
    int64_t integer() const;
    int64_t between(int64_t least, int64_t most) const; /* an integer in this range, both ends included */
    double number() const;                              /* an integer or a double */
    const std::string &bytes() const;
    const std::string &text() const;
    const std::vector<Value> &items() const;
    const std::vector<std::pair<std::string, Value>> &entries() const;
    const Value &at(size_t place) const;            /* of an array */
    const Value &operator[](const char *key) const; /* of a map */
    const Value *find(const char *key) const;       /* of a map; NULL if it lacks the key */

    static Value read(const uint8_t *data, size_t size); /* all of these bytes */

private:
    friend struct Reader;
    int64_t int_ = 0;
    double double_ = 0;
    std::string text_;
    std::vector<Value> items_;
    std::vector<std::pair<std::string, Value>> entries_;
};

} // namespace pyframe

#include "value.h"

#include "pyframe/error.h"

#include <cstring>

namespace pyframe {

[[noreturn]] static void
misfit(const char *wanted)
{
    throw Error(std::string("its description is not one that this release can read: no ") + wanted);
}

bool
Value::boolean() const
{
    if (kind != BOOL) {
        misfit("boolean");
    }
    return int_ != 0;
}

int64_t
Value::integer() const
{
    if (kind != INT) {
        misfit("integer");
    }
    return int_;
}

int64_t
Value::between(int64_t least, int64_t most) const
{
    if (kind != INT || int_ < least || int_ > most) {
        misfit("integer in range");
    }
    return int_;
}

double
Value::number() const
{
    if (kind != INT && kind != DOUBLE) {
        misfit("number");
    }
    return kind == INT ? double(int_) : double_;
}

const std::string &
Value::bytes() const
{
    if (kind != BYTES) {
        misfit("bytes");
    }
    return text_;
}

const std::string &
Value::text() const
{
    if (kind != TEXT) {
        misfit("text");
    }
    return text_;
}

const std::vector<Value> &
Value::items() const
{
    if (kind != ARRAY) {
        misfit("array");
    }
    return items_;
}

const std::vector<std::pair<std::string, Value>> &
Value::entries() const
{
    if (kind != MAP) {
        misfit("map");
    }
    return entries_;
}

const Value &
Value::at(size_t place) const
{
    if (place >= items().size()) {
        misfit("item");
    }
    return items_[place];
}

const Value *
Value::find(const char *key) const
{
    for (const auto &entry : entries()) {
        if (entry.first == key) {
            return &entry.second;
        }
    }
    return nullptr;
}

const Value &
Value::operator[](const char *key) const
{
    const Value *found = find(key);
    if (found == nullptr) {
        misfit(key);
    }
    return *found;
}

struct Reader {
    enum { MAX_DEPTH = 64 };
    const uint8_t *data;
    size_t left;

    const uint8_t *take(uint64_t count)
    {
        if (count > left) {
            misfit("end where it should be");
        }
        const uint8_t *start = data;
        data += count;
        left -= count;
        return start;
    }

    uint64_t big_endian(int width)
    {
        const uint8_t *bytes = take(width);
        uint64_t number = 0;
        for (int i = 0; i < width; i++) {
            number = number << 8 | bytes[i];
        }
        return number;
    }

    Value value(int depth)
    {
        Value found;
        uint8_t head = *take(1);
        if (depth > MAX_DEPTH) {
            misfit("value that is nested so deep");
        }
        if (head == 0xf4 || head == 0xf5) {
            found.kind = Value::BOOL;
            found.int_ = head & 1;
            return found;
        }
        if (head == 0xf6) {
            return found;
        }
        if (head == 0xfb) {
            uint64_t bits = big_endian(8);
            found.kind = Value::DOUBLE;
            std::memcpy(&found.double_, &bits, sizeof bits);
            return found;
        }
        int kind = head >> 5;
        uint64_t number = head & 31;
        if (kind > 5 || number > 27) {
            misfit("value with this first byte");
        }
        if (number >= 24) {
            number = big_endian(1 << (number - 24));
        }
        if (kind <= 1) {
            if (number > INT64_MAX) {
                misfit("integer of 64 bits");
            }
            found.kind = Value::INT;
            found.int_ = kind == 0 ? int64_t(number) : -1 - int64_t(number);
        } else if (kind <= 3) {
            found.kind = kind == 2 ? Value::BYTES : Value::TEXT;
            const uint8_t *start = take(number);
            found.text_.assign((const char *)start, number);
        } else {
            if (number > left) { /* each item has at least one byte */
                misfit("end where it should be");
            }
            found.kind = kind == 4 ? Value::ARRAY : Value::MAP;
            for (uint64_t i = 0; i < number; i++) {
                Value first = value(depth + 1);
                if (kind == 4) {
                    found.items_.push_back(std::move(first));
                } else {
                    std::string key = first.text();
                    found.entries_.emplace_back(std::move(key), value(depth + 1));
                }
            }
        }
        return found;
    }
};

Value
Value::read(const uint8_t *data, size_t size)
{
    Reader reader{data, size};
    Value found = reader.value(0);
    if (reader.left != 0) {
        misfit("end where it should be");
    }
    return found;
}

} // namespace pyframe

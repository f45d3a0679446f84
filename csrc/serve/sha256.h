/* SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104). */
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pyframe {

using Digest = std::array<uint8_t, 32>;

/* Of these pieces one after the other. */
Digest sha256(const std::vector<std::pair<const void *, size_t>> &pieces);
Digest hmac_sha256(const std::string &key, const Digest &message);

/* Takes the same time wherever they differ. */
bool same_digest(const uint8_t *a, const uint8_t *b);

} // namespace pyframe

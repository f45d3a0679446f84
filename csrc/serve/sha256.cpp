#include "sha256.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace pyframe {
namespace {

constexpr uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

uint32_t
turned(uint32_t x, int n)
{
    return (x >> n) | (x << (32 - n));
}

void
blocks_anywhere(uint32_t *state, const uint8_t *data, size_t count)
{
    for (; count > 0; count--, data += 64) {
        uint32_t w[64], s[8];
        for (int i = 0; i < 16; i++) {
            w[i] = uint32_t(data[4 * i]) << 24 | uint32_t(data[4 * i + 1]) << 16 | uint32_t(data[4 * i + 2]) << 8
                   | data[4 * i + 3];
        }
        for (int i = 16; i < 64; i++) {
            uint32_t a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ (w[i - 15] >> 3);
            uint32_t b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16] + a + w[i - 7] + b;
        }
        std::memcpy(s, state, sizeof s);
        for (int i = 0; i < 64; i++) {
            uint32_t high = turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25);
            uint32_t low = turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22);
            uint32_t first = s[7] + high + ((s[4] & s[5]) ^ (~s[4] & s[6])) + K[i] + w[i];
            uint32_t second = low + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
            std::memmove(s + 1, s, 7 * sizeof *s);
            s[4] += first;
            s[0] = first + second;
        }
        for (int i = 0; i < 8; i++) {
            state[i] += s[i];
        }
    }
}

#if defined(__x86_64__)
/* The processor's own instructions, six times as fast: weights have gigabytes. */
__attribute__((target("sha,sse4.1"))) void
blocks_by_instructions(uint32_t *state, const uint8_t *data, size_t count)
{
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_loadu_si128((const __m128i *)state), high = _mm_loadu_si128((const __m128i *)(state + 4));
    __m128i badc = _mm_shuffle_epi32(low, 0xb1), hgfe = _mm_shuffle_epi32(high, 0x1b);
    __m128i abef = _mm_alignr_epi8(badc, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
    for (; count > 0; count--, data += 64) {
        __m128i w[4], abef_before = abef, cdgh_before = cdgh;
        for (int i = 0; i < 4; i++) {
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), order);
        }
        for (int i = 0; i < 16; i++) {
            if (i >= 4) { /* the next four words of the schedule */
                __m128i next = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);
                next = _mm_add_epi32(next, _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4));
                w[i % 4] = _mm_sha256msg2_epu32(next, w[(i + 3) % 4]);
            }
            __m128i sum = _mm_add_epi32(w[i % 4], _mm_loadu_si128((const __m128i *)(K + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

bool
has_instructions()
{
    unsigned a, b, c, d;
    bool shuffles = __get_cpuid(1, &a, &b, &c, &d) && (c >> 19 & 1) && (c >> 9 & 1);
    return shuffles && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}
#endif

void
blocks(uint32_t *state, const uint8_t *data, size_t count)
{
#if defined(__x86_64__)
    static const bool fast = has_instructions();
    if (fast) {
        blocks_by_instructions(state, data, count);
        return;
    }
#endif
    blocks_anywhere(state, data, count);
}

} // namespace

Digest
sha256(const std::vector<std::pair<const void *, size_t>> &pieces)
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t rest[128];
    size_t kept = 0;
    uint64_t total = 0;
    for (auto [start, size] : pieces) {
        const uint8_t *data = (const uint8_t *)start;
        total += size;
        if (kept > 0) {
            size_t take = std::min(size, 64 - kept);
            if (take > 0) {
                std::memcpy(rest + kept, data, take);
            }
            kept += take;
            data += take;
            size -= take;
            if (kept < 64) {
                continue;
            }
            blocks(state, rest, 1);
        }
        blocks(state, data, size / 64);
        kept = size % 64;
        if (kept > 0) {
            std::memcpy(rest, data + size - kept, kept);
        }
    }
    size_t end = kept < 56 ? 64 : 128;
    std::memset(rest + kept, 0, end - kept);
    rest[kept] = 0x80;
    for (int i = 0; i < 8; i++) {
        rest[end - 1 - i] = uint8_t(total * 8 >> 8 * i);
    }
    blocks(state, rest, end / 64);
    Digest digest;
    for (int i = 0; i < 32; i++) {
        digest[i] = uint8_t(state[i / 4] >> (24 - i % 4 * 8));
    }
    return digest;
}

Digest
hmac_sha256(const std::string &key, const Digest &message)
{
    uint8_t block[64] = {0}, inner[64], outer[64];
    if (key.size() > sizeof block) {
        Digest shorter = sha256({{key.data(), key.size()}});
        std::memcpy(block, shorter.data(), shorter.size());
    } else {
        std::memcpy(block, key.data(), key.size());
    }
    for (int i = 0; i < 64; i++) {
        inner[i] = block[i] ^ 0x36;
        outer[i] = block[i] ^ 0x5c;
    }
    Digest first = sha256({{inner, sizeof inner}, {message.data(), message.size()}});
    return sha256({{outer, sizeof outer}, {first.data(), first.size()}});
}

bool
same_digest(const uint8_t *a, const uint8_t *b)
{
    uint8_t differ = 0;
    for (int i = 0; i < 32; i++) {
        differ |= a[i] ^ b[i];
    }
    return differ == 0;
}

} // namespace pyframe

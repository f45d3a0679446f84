// Loads and stores whose elements are not adjacent in memory: strided ones, repeated ones, and transposed tiles. Included
// by vec.h, whose types it uses.
#pragma once

// ---- loads of elements that are a fixed number of elements apart
#define WHOLE(f) LOWER(f), UPPER(f)
#ifdef SHUFFLES
#define OF_TWO(k) ((k) < W / 2 ? 2 * (k) : 2 * (k) + 1)
#define OF_THREE_A(k) (3 * (k) < W ? 3 * (k) : 3 * (k) < 2 * W - 1 ? 3 * (k) + 1 : 0)
#define OF_THREE_B(k) (3 * (k) < 2 * W - 1 ? (k) : W + 3 * (k) - (2 * W - 2))
#define BACKWARD(k) W - 1 - (k)
#define PICK(V) \
  INL V of_two(V a, V b) { return __builtin_shufflevector(a, b, WHOLE(OF_TWO)); } \
  INL V of_three(V a, V b, V c) { \
    return __builtin_shufflevector(__builtin_shufflevector(a, b, WHOLE(OF_THREE_A)), c, WHOLE(OF_THREE_B)); \
  } \
  INL V backward(V x) { return __builtin_shufflevector(x, x, WHOLE(BACKWARD)); }
PICK(vf) PICK(vi)
#undef PICK
#endif
template <class V> constexpr bool lanes32 = false;
template <> constexpr bool lanes32<vf> = true;
template <> constexpr bool lanes32<vi> = true;
// Elements p[0], p[s] ... of which the first `n` are read, the others zero.
template <class V, class T> INL V ld_apart(const T* p, int64_t s) {
  return each([&](int k) __attribute__((always_inline)) { return ld1(p + k * s); }, V{});
}
template <class V, class T> INL V ld_apart(const T* p, int64_t s, int64_t n) {
  V r = {};
  for (int k = 0; k < n; ++k) setlane(r, k, ld1(p + k * s));
  return r;
}
// The same for a constant distance S. Vectors are loaded so that nothing beyond the last element is read.
template <class V, int S, class T> INL V ld_step(const T* p) {
#ifdef SHUFFLES
  if constexpr (lanes32<V> && S == 2) return of_two(ld(p), ld(p + W - 1));
  else if constexpr (lanes32<V> && S == 3) return of_three(ld(p), ld(p + W - 1), ld(p + 2 * W - 2));
  else if constexpr (lanes32<V> && S == -1) return backward(ld(p - (W - 1)));
  else
#endif
  return ld_apart<V>(p, S);
}
template <class V, int S, class T> INL V ld_step(const T* p, int64_t n) {
#ifdef SHUFFLES
  if constexpr (lanes32<V> && S == 2)
    return of_two(n > W / 2 ? ld(p) : ld(p, 2 * n - 1), n > W / 2 ? ld(p + W - 1, 2 * n - W) : V{});
  else
#endif
  return ld_apart<V>(p, S, n);
}

// Each of the elements from p on D times; with `n` lanes, only the elements that those need are read.
#ifdef SHUFFLES
template <int D> INL vi repeated(vi x) {
#define REPEATED(k) (k) / D
  return __builtin_shufflevector(x, x, WHOLE(REPEATED));
}
template <int D> INL vf repeated(vf x) { return (vf)repeated<D>((vi)x); }
template <int D> INL vm repeated(vm x) { return {repeated<D>(x.m)}; }
template <int D, class V> INL V repeated(V x) { return each([&](int k) __attribute__((always_inline)) { return lane(x, k / D); }, V{}); }
#else
template <int D, class V> INL V repeated(V x) { return each([&](int k) __attribute__((always_inline)) { return lane(x, k / D); }, V{}); }
#endif
template <class V, int D, class T> INL V ld_repeat(const T* p) { return repeated<D>(ld(p, W / D)); }
template <class V, int D, class T> INL V ld_repeat(const T* p, int64_t n) { return repeated<D>(ld(p, (n + D - 1) / D)); }

// ---- tiles of W x W elements
#ifdef SHUFFLES
// In each four lanes: pairs of a lane of `a` and of `b` from the first two or the last two, and two lanes of each.
#define FIRST_PAIRS(k) ((k) & ~3) + (((k) & 3) >> 1) + ((k) & 1) * W
#define LAST_PAIRS(k) FIRST_PAIRS(k) + 2
#define FIRST_TWOS(k) ((k) & ~3) + ((k) & 1) + (((k) & 2) >> 1) * W
#define LAST_TWOS(k) FIRST_TWOS(k) + 2
// In each two blocks of H lanes out of N: of `a` and `b` the first ones, and the last ones.
#define FIRSTS(H, N, k) (((k) & H) ? N + (k) - H : (k))
#define LASTS(H, N, k) (((k) & H) ? N + (k) : (k) + H)
#define FIRSTS_1(k) FIRSTS(1, W / 2, k)
#define LASTS_1(k) LASTS(1, W / 2, k)
#define FIRSTS_2(k) FIRSTS(2, W / 2, k)
#define LASTS_2(k) LASTS(2, W / 2, k)
#define FIRSTS_4H(k) FIRSTS(4, W / 2, k)
#define LASTS_4H(k) LASTS(4, W / 2, k)
#define FIRSTS_4(k) FIRSTS(4, W, k)
#define LASTS_4(k) LASTS(4, W, k)
#define FIRSTS_8(k) FIRSTS(8, W, k)
#define LASTS_8(k) LASTS(8, W, k)
#define EXCHANGE(a, b, list, first, last) { \
    const auto x = __builtin_shufflevector(a, b, list(first)), y = __builtin_shufflevector(a, b, list(last)); \
    a = x; b = y; \
  }
INL void transpose(vf* r) {
#pragma GCC unroll 16
  for (int i = 0; i < W; i += 4) {
    EXCHANGE(r[i], r[i + 1], WHOLE, FIRST_PAIRS, LAST_PAIRS)
    EXCHANGE(r[i + 2], r[i + 3], WHOLE, FIRST_PAIRS, LAST_PAIRS)
    EXCHANGE(r[i], r[i + 2], WHOLE, FIRST_TWOS, LAST_TWOS)
    EXCHANGE(r[i + 1], r[i + 3], WHOLE, FIRST_TWOS, LAST_TWOS)
    const vf x = r[i + 1]; r[i + 1] = r[i + 2]; r[i + 2] = x;
  }
#if W > 4
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i) if (!(i & 4)) EXCHANGE(r[i], r[i + 4], WHOLE, FIRSTS_4, LASTS_4)
#endif
#if W > 8
#pragma GCC unroll 16
  for (int i = 0; i < W; ++i) if (!(i & 8)) EXCHANGE(r[i], r[i + 8], WHOLE, FIRSTS_8, LASTS_8)
#endif
}
// W / 2 rows, of which each second vector is a half that is not among them.
INL void transpose_half(hl* r) {
#pragma GCC unroll 16
  for (int i = 0; i < W; i += 4) EXCHANGE(r[i], r[i + 2], LOWER, FIRSTS_1, LASTS_1)
#if W > 4
#pragma GCC unroll 16
  for (int i = 0; i < W; i += 2) if (!(i & 4)) EXCHANGE(r[i], r[i + 4], LOWER, FIRSTS_2, LASTS_2)
#endif
#if W > 8
#pragma GCC unroll 16
  for (int i = 0; i < W; i += 2) if (!(i & 8)) EXCHANGE(r[i], r[i + 8], LOWER, FIRSTS_4H, LASTS_4H)
#endif
}
// W rows of two halves each.
INL void transpose_both(hl* r) {
#pragma GCC unroll 16
  for (int i = 0; i < W; i += 2) { const hl x = r[i + 1]; r[i + 1] = r[i + W]; r[i + W] = x; }
  transpose_half(r); transpose_half(r + 1); transpose_half(r + W); transpose_half(r + W + 1);
}
INL void transpose(vl* r) { transpose_both((hl*)r); }
INL void transpose(vd* r) { transpose_both((hl*)r); }
INL void transpose(vi* r) { transpose((vf*)r); }
INL void transpose(vm* r) { transpose((vf*)r); }
#else
template <class V> INL void transpose(V* r) {
  for (int i = 0; i < W; ++i) for (int k = 0; k < i; ++k) {
    const auto x = lane(r[i], k);
    setlane(r[i], k, lane(r[k], i));
    setlane(r[k], i, x);
  }
}
#endif
// Vector u is column u of the W rows of W elements that begin at p, p + s ...; in the partial forms, only the first
// `columns` elements of the first `rows` rows are touched.
template <class V, class T> INL void ld_tile(V* r, const T* p, int64_t s) {
#pragma GCC unroll 16
  for (int k = 0; k < W; ++k) r[k] = ld(p + k * s);
  transpose(r);
}
template <class V, class T> INL void st_tile(V* r, T* p, int64_t s) {
  transpose(r);
#pragma GCC unroll 16
  for (int k = 0; k < W; ++k) st(p + k * s, r[k]);
}
template <class V, class T> INL void ld_tile(V* r, const T* p, int64_t s, int64_t rows, int64_t columns) {
  for (int k = 0; k < W; ++k) r[k] = k >= rows ? V{} : columns < W ? ld(p + k * s, columns) : ld(p + k * s);
  transpose(r);
}
template <class V, class T> INL void st_tile(V* r, T* p, int64_t s, int64_t rows, int64_t columns) {
  transpose(r);
  for (int k = 0; k < rows; ++k) if (columns < W) st(p + k * s, r[k], columns); else st(p + k * s, r[k]);
}

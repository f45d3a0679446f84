// Loads and stores of vectors. Included by vec.h, whose types it uses.
#pragma once

// ---- loads and stores: `n` lanes are touched in the partial forms, the others read as zero
template <class V> struct Type {};
template <class V, class T> INL V raw(const T* p, Type<V>) { V v; __builtin_memcpy(&v, p, sizeof v); return v; }
template <class T> INL vl raw(const T* p, Type<vl>) { return {raw(p, Type<hl>{}), raw(p + W / 2, Type<hl>{})}; }
template <class T> INL vd raw(const T* p, Type<vd>) { return {raw(p, Type<hd>{}), raw(p + W / 2, Type<hd>{})}; }
template <class V, class T> INL V raw(const T* p) { return raw(p, Type<V>{}); }
template <class V, class T> INL void put(T* p, V v) { __builtin_memcpy(p, &v, sizeof v); }
template <class T> INL void put(T* p, vl v) { put(p, v.a); put(p + W / 2, v.b); }
template <class T> INL void put(T* p, vd v) { put(p, v.a); put(p + W / 2, v.b); }
template <class V, class T> INL V part(const T* p, int64_t n) { V v = {}; __builtin_memcpy(&v, p, n * sizeof(T)); return v; }
template <class V, class T> INL void put_part(T* p, V v, int64_t n) { __builtin_memcpy(p, &v, n * sizeof(T)); }
// With masks, where the processor has them: a copy of a number of bytes that varies is a call, and what it writes is
// read again before it is in the cache.
#if W == 16 && defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)
#define MASKED(V, C, E, M, load, store) \
  typedef E C __attribute__((vector_size(sizeof(V)))); \
  template <class T> INL V raw(const T* p, int64_t n, Type<V>) { return (V)load((const E*)p, C{}, (M)((1u << n) - 1)); } \
  template <class T> INL void put(T* p, V v, int64_t n) { store((E*)p, (C)v, (M)((1u << n) - 1)); }
MASKED(vf, v16sf_, float, short, __builtin_ia32_loadups512_mask, __builtin_ia32_storeups512_mask)
MASKED(vi, v16si_, int, short, __builtin_ia32_loaddqusi512_mask, __builtin_ia32_storedqusi512_mask)
MASKED(vh, v16hi_, short, short, __builtin_ia32_loaddquhi256_mask, __builtin_ia32_storedquhi256_mask)
MASKED(vb, v16qi_, char, short, __builtin_ia32_loaddquqi128_mask, __builtin_ia32_storedquqi128_mask)
MASKED(hd, v8df_, double, char, __builtin_ia32_loadupd512_mask, __builtin_ia32_storeupd512_mask)
#undef MASKED
template <class T> INL vs raw(const T* p, int64_t n, Type<vs>) { return (vs)raw(p, n, Type<vh>{}); }
template <class T> INL vc raw(const T* p, int64_t n, Type<vc>) { return (vc)raw(p, n, Type<vb>{}); }
template <class T> INL void put(T* p, vs v, int64_t n) { put(p, (vh)v, n); }
template <class T> INL void put(T* p, vc v, int64_t n) { put(p, (vb)v, n); }
#define MASKED_HALVES 1
#elif W == 8 && defined(__AVX2__)
typedef int v8si_ __attribute__((vector_size(32)));
typedef long long v4di_ __attribute__((vector_size(32)));
typedef double v4df_ __attribute__((vector_size(32)));
INL v8si_ lanes8(int64_t n) { return (v8si_)first(n).m; }
INL v4di_ lanes4(int64_t n) { return (v4di_)(v4di_{0, 1, 2, 3} < (long long)n); }
template <class T> INL vf raw(const T* p, int64_t n, Type<vf>) { return __builtin_ia32_maskloadps256((const vf*)p, lanes8(n)); }
template <class T> INL vi raw(const T* p, int64_t n, Type<vi>) { return (vi)raw(p, n, Type<vf>{}); }
template <class T> INL hd raw(const T* p, int64_t n, Type<hd>) {
  return (hd)__builtin_ia32_maskloadpd256((const v4df_*)p, lanes4(n));
}
template <class T> INL void put(T* p, vf v, int64_t n) { __builtin_ia32_maskstoreps256((vf*)p, lanes8(n), v); }
template <class T> INL void put(T* p, vi v, int64_t n) { put(p, (vf)v, n); }
template <class T> INL void put(T* p, hd v, int64_t n) { __builtin_ia32_maskstorepd256((v4df_*)p, lanes4(n), (v4df_)v); }
#define BY_COPY(V) \
  template <class T> INL V raw(const T* p, int64_t n, Type<V>) { return part<V>(p, n); } \
  template <class T> INL void put(T* p, V v, int64_t n) { put_part(p, v, n); }
BY_COPY(vh) BY_COPY(vs) BY_COPY(vb) BY_COPY(vc)
#define MASKED_HALVES 1
#else
template <class V, class T> INL V raw(const T* p, int64_t n, Type<V>) { return part<V>(p, n); }
template <class V, class T> INL void put(T* p, V v, int64_t n) { put_part(p, v, n); }
#endif
#ifdef MASKED_HALVES
INL int64_t rest(int64_t n) { return n > W / 2 ? n - W / 2 : 0; }
INL int64_t most(int64_t n) { return n < W / 2 ? n : W / 2; }
template <class T> INL vd raw(const T* p, int64_t n, Type<vd>) {
  return {raw(p, most(n), Type<hd>{}), raw(p + W / 2, rest(n), Type<hd>{})};
}
template <class T> INL vl raw(const T* p, int64_t n, Type<vl>) {
  return {(hl)raw(p, most(n), Type<hd>{}), (hl)raw(p + W / 2, rest(n), Type<hd>{})};
}
template <class T> INL void put(T* p, vd v, int64_t n) { put(p, v.a, most(n)); put(p + W / 2, v.b, rest(n)); }
template <class T> INL void put(T* p, vl v, int64_t n) { put(p, (hd)v.a, most(n)); put(p + W / 2, (hd)v.b, rest(n)); }
#endif
template <class V, class T> INL V raw(const T* p, int64_t n) { return raw(p, n, Type<V>{}); }
#define LDST(T, V, R, from, to) \
  INL V ld(const T* p) { R r = raw<R>(p); return from; } \
  INL V ld(const T* p, int64_t n) { R r = raw<R>(p, n); return from; } \
  INL void st(T* p, V x) { put(p, (R)(to)); } \
  INL void st(T* p, V x, int64_t n) { put(p, (R)(to), n); }
LDST(float, vf, vf, r, x)
LDST(double, vd, vd, r, x)
LDST(int32_t, vi, vi, r, x)
LDST(int64_t, vl, vl, r, x)
LDST(bf16, vf, vh, up_bf16(r), down_bf16(x))
LDST(f16, vf, vh, up_f16(r), down_f16(x))
LDST(bool, vm, vb, vm{-CVT((r != 0) & 1, vi)}, CVT(-x.m, vb))
LDST(uint8_t, vi, vb, widened(r), CVT(x, vb))
LDST(int8_t, vi, vc, widened(r), CVT(x, vc))
LDST(int16_t, vi, vs, CVT(r, vi), CVT(x, vs))
#undef LDST
INL float ld1(const float* p) { return *p; }
INL double ld1(const double* p) { return *p; }
INL float ld1(const bf16* p) { return up(*p); }
INL float ld1(const f16* p) { return up(*p); }
INL bool ld1(const bool* p) { return *p; }
INL int64_t ld1(const int64_t* p) { return *p; }
INL int32_t ld1(const int32_t* p) { return *p; }
INL int32_t ld1(const int16_t* p) { return *p; }
INL int32_t ld1(const int8_t* p) { return *p; }
INL int32_t ld1(const uint8_t* p) { return *p; }
template <class T, class U> INL void st1(T* p, U x) { *p = (T)x; }
INL void st1(bf16* p, float x) { *p = down_bf16(x); }
INL void st1(f16* p, float x) { *p = down_f16(x); }
INL void setlane(vm& v, int k, bool x) { v.m[k] = -(int32_t)x; }
template <class V, class X> INL void setlane(V& v, int k, X x) { v[k] = x; }
INL bool lane(vm v, int k) { return v.m[k] != 0; }
template <class V> INL auto lane(V v, int k) { return v[k]; }
INL float lane(float v, int) { return v; }
INL double lane(double v, int) { return v; }
INL bool lane(bool v, int) { return v; }
INL int32_t lane(int32_t v, int) { return v; }
INL int64_t lane(int64_t v, int) { return v; }

#if W == 8 && defined(__AVX2__)
INL int bits(vm a) { return __builtin_ia32_movmskps256((vf)a.m); }
#elif W == 16 && defined(__AVX512F__) && !defined(__clang__)
INL int bits(vm a) {
  typedef int v16si_ __attribute__((vector_size(64)));
  return (uint16_t)__builtin_ia32_ptestmd512((v16si_)a.m, (v16si_)a.m, (short)-1);
}
#else
INL int bits(vm a) { int r = 0; LANES(k) r |= (a.m[k] & 1) << k; return r; }
#endif
// The lanes where `m`, the others zero; memory is touched only where `m`.
template <class V, class T> INL V ld_masked(const T* p, vm m) {
  const int b = bits(m);
  if (b == (1 << W) - 1) return ld(p);
  V r = {};
  if (b) for (int k = 0; k < W; ++k) if (b >> k & 1) setlane(r, k, ld1(p + k));
  return r;
}
#if W == 16 && defined(MASKED_HALVES)
template <class V> INL vf ld_masked(const float* p, vm m) {
  return (vf)__builtin_ia32_loadups512_mask(p, v16sf_{}, (short)bits(m));
}
template <class V> INL vf ld_masked(const bf16* p, vm m) {
  return up_bf16((vh)__builtin_ia32_loaddquhi256_mask((const short*)p, v16hi_{}, (short)bits(m)));
}
template <class V> INL vi ld_masked(const int32_t* p, vm m) {
  return (vi)__builtin_ia32_loaddqusi512_mask(p, v16si_{}, (short)bits(m));
}
#elif W == 8 && defined(MASKED_HALVES)
template <class V> INL vf ld_masked(const float* p, vm m) { return __builtin_ia32_maskloadps256((const vf*)p, (v8si_)m.m); }
template <class V> INL vi ld_masked(const int32_t* p, vm m) {
  return (vi)__builtin_ia32_maskloadps256((const vf*)p, (v8si_)m.m);
}
#endif
// A vector of `f(k)`, made at once: lane after lane, each would wait for the one before.
template <class F> INL vf each(F f, vf) { return vf{LOWER(f), UPPER(f)}; }
template <class F> INL vi each(F f, vi) { return vi{LOWER(f), UPPER(f)}; }
template <class F> INL vd each(F f, vd) { return {hd{LOWER(f)}, hd{UPPER(f)}}; }
template <class F> INL vl each(F f, vl) { return {hl{LOWER(f)}, hl{UPPER(f)}}; }
template <class F> INL vm each(F f, vm) { vm r = {}; LANES(k) setlane(r, k, f(k)); return r; }
// A vector of `f(k)` in the first `n` lanes, the others zero.
template <class V, class F> INL V each_of(int64_t n, F f) {
  if (n == W) return each(f, V{});
  V r = {};
  for (int k = 0; k < n; ++k) setlane(r, k, f(k));
  return r;
}
// Element `at[k]` of `p` in each of the first `n` lanes, the others zero. The places are read from memory: to extract them
// from registers takes as long as the loads.
template <class V, class T> INL V gather(const T* p, vl at) {
  int64_t places[W];
  __builtin_memcpy(places, &at, sizeof places);
  __asm__("" : "+m"(places));
  return each([&](int k) __attribute__((always_inline)) { return ld1(p + places[k]); }, V{});
}
template <class V, class T> INL V gather(const T* p, vl at, int64_t n) {
  V r = {};
  for (int k = 0; k < n; ++k) setlane(r, k, ld1(p + at[k]));
  return r;
}
template <class V, class T> INL V gather(const T* p, const int64_t* at) {
  return each([&](int k) __attribute__((always_inline)) { return ld1(p + at[k]); }, V{});
}
template <class V, class T> INL V gather(const T* p, const int64_t* at, int64_t n) {
  V r = {};
  for (int k = 0; k < n; ++k) setlane(r, k, ld1(p + at[k]));
  return r;
}
// An index out of bounds, where `m`, sets *status and becomes 0. `check_index` takes no negative indices, `wrap_index`
// counts them from the end, as Python does.
INL int64_t check_index(int64_t i, int64_t n, bool m, int64_t* status) {
  if ((uint64_t)i < (uint64_t)n) return i;
  if (m) *status = 1;
  return 0;
}
INL vl check_index(vl i, int64_t n, vm m, int64_t* status) {
#if W == 16
  const hl x = (hl)((hul)i.a >= (uint64_t)n), y = (hl)((hul)i.b >= (uint64_t)n);
#else
  const hl x = (hl)(i.a >= n) | (hl)(i.a < 0), y = (hl)(i.b >= n) | (hl)(i.b < 0);  // AVX2 compares signed numbers only
#endif
  if (__builtin_expect(bits(vm{(vi)(x | y)}) == 0, 1)) return i;
  if (bits(narrowed(x, y) & m)) *status = 1;
  return {i.a & ~x, i.b & ~y};
}
INL int64_t wrap_index(int64_t i, int64_t n, bool m, int64_t* status) { return check_index(i < 0 ? i + n : i, n, m, status); }
INL vl wrap_index(vl i, int64_t n, vm m, int64_t* status) {
  return check_index(vl{i.a < 0 ? i.a + n : i.a, i.b < 0 ? i.b + n : i.b}, n, m, status);
}

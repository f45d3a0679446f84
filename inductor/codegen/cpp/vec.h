// Fixed-width vectors for generated kernels: GCC/Clang vector extensions, no intrinsic headers (they cost 0.2 s each).
// Every type has W lanes whatever its element: `vf` is W floats, `vl` W int64 (two registers on AVX2), `vm` a mask of
// W int32 that are 0 or -1. Each function is overloaded for the scalar, so one text serves vector and scalar loops.
// `vd` and `vl` are two halves that fit a register each: GCC keeps one vector of the whole size in memory where a loop
// carries it, and compares its elements one by one.
#pragma once
#include <stdint.h>
#include <stddef.h>

extern "C" int omp_get_max_threads(void);
#if defined(__AVX512F__)
#define W 16
#elif defined(__AVX2__)
#define W 8
#else
#define W 4
#endif
#define INL static inline __attribute__((always_inline))
#define LANES(i) for (int i = 0; i < W; ++i)

typedef float vf __attribute__((vector_size(W * 4), may_alias));
typedef int32_t vi __attribute__((vector_size(W * 4), may_alias));
typedef uint32_t vu __attribute__((vector_size(W * 4), may_alias));
typedef uint16_t vh __attribute__((vector_size(W * 2), may_alias));
typedef int16_t vs __attribute__((vector_size(W * 2), may_alias));
typedef uint8_t vb __attribute__((vector_size(W), may_alias));
typedef int8_t vc __attribute__((vector_size(W), may_alias));
struct vm { vi m; };
typedef float hf __attribute__((vector_size(W * 2), may_alias));
typedef int32_t hi __attribute__((vector_size(W * 2), may_alias));
typedef double hd __attribute__((vector_size(W * 4), may_alias));
typedef int64_t hl __attribute__((vector_size(W * 4), may_alias));
typedef uint64_t hul __attribute__((vector_size(W * 4), may_alias));
struct vd {
  hd a, b;
  __attribute__((always_inline)) double operator[](int k) const { return ((const double*)this)[k]; }
  __attribute__((always_inline)) double& operator[](int k) { return ((double*)this)[k]; }
};
struct vl {
  hl a, b;
  __attribute__((always_inline)) int64_t operator[](int k) const { return ((const int64_t*)this)[k]; }
  __attribute__((always_inline)) int64_t& operator[](int k) { return ((int64_t*)this)[k]; }
};
struct bf16 { uint16_t u; };
struct f16 { uint16_t u; };

#define CVT(x, T) __builtin_convertvector(x, T)
// The half of a vector at lane 0 or W / 2, and a vector of two halves: in registers where the compiler has shuffles.
#if W == 16
#define LOW 0, 1, 2, 3, 4, 5, 6, 7
#define HIGH 8, 9, 10, 11, 12, 13, 14, 15
#elif W == 8
#define LOW 0, 1, 2, 3
#define HIGH 4, 5, 6, 7
#else
#define LOW 0, 1
#define HIGH 2, 3
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLES 1
template <class H, class V> INL H low(V x) { return (H)__builtin_shufflevector(x, x, LOW); }
template <class H, class V> INL H high(V x) { return (H)__builtin_shufflevector(x, x, HIGH); }
template <class V, class H> INL V join(H x, H y) { return (V)__builtin_shufflevector(x, y, LOW, HIGH); }
#else
template <class H, class V> INL H low(V x) { H r; __builtin_memcpy(&r, &x, sizeof r); return r; }
template <class H, class V> INL H high(V x) { H r; __builtin_memcpy(&r, (const char*)&x + sizeof r, sizeof r); return r; }
template <class V, class H> INL V join(H x, H y) {
  V r; __builtin_memcpy(&r, &x, sizeof x); __builtin_memcpy((char*)&r + sizeof x, &y, sizeof y); return r;
}
#endif
// The list f(0), f(1) ... up to half of the lanes, and from there on.
#if W == 16
#define QUARTERS(f, k) f(k), f(k + 1), f(k + 2), f(k + 3)
#elif W == 8
#define QUARTERS(f, k) f(k / 2), f(k / 2 + 1)
#else
#define QUARTERS(f, k) f(k / 4)
#endif
#define LOWER(f) QUARTERS(f, 0), QUARTERS(f, 4)
#define UPPER(f) QUARTERS(f, 8), QUARTERS(f, 12)
INL float bits_f(uint32_t u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
INL uint32_t f_bits(float f) { uint32_t u; __builtin_memcpy(&u, &f, 4); return u; }

// ---- broadcast and constants
// `x - 0`, which keeps the sign of -0.0; `0 + x` does not
INL vf set_f(float x) { return x - vf{}; }
INL vd set_d(double x) { return {x - hd{}, x - hd{}}; }
INL vi set_i(int32_t x) { return vi{} + x; }
INL vl set_l(int64_t x) { return {hl{} + x, hl{} + x}; }
INL vm set_m(bool x) { return {vi{} - (int32_t)x}; }
INL vf bcast(float x) { return set_f(x); }
INL vd bcast(double x) { return set_d(x); }
INL vi bcast(int32_t x) { return set_i(x); }
INL vl bcast(int64_t x) { return set_l(x); }
INL vl bcast(long long x) { return set_l(x); }
INL vm bcast(bool x) { return set_m(x); }
INL vi iota_i() { vi r; LANES(k) r[k] = k; return r; }
INL vl iota_l() { vl r; LANES(k) r[k] = k; return r; }
INL vm first(int64_t n) { return {iota_i() < (int32_t)n}; }

// ---- arithmetic of doubles
#define HALVES(op) \
  INL vd operator op(vd x, vd y) { return {x.a op y.a, x.b op y.b}; } \
  INL vd operator op(vd x, double y) { return {x.a op y, x.b op y}; } \
  INL vd operator op(double x, vd y) { return {x op y.a, x op y.b}; }
HALVES(+) HALVES(-) HALVES(*) HALVES(/)
#undef HALVES
INL vd operator-(vd x) { return {-x.a, -x.b}; }

// ---- arithmetic of int64
#define HALVES(op) \
  INL vl operator op(vl x, vl y) { return {x.a op y.a, x.b op y.b}; } \
  INL vl operator op(vl x, int64_t y) { return {x.a op y, x.b op y}; } \
  INL vl operator op(int64_t x, vl y) { return {x op y.a, x op y.b}; }
HALVES(+) HALVES(-) HALVES(*) HALVES(&) HALVES(|) HALVES(^) HALVES(<<) HALVES(>>)
#undef HALVES
INL vl operator-(vl x) { return {-x.a, -x.b}; }   INL vl operator~(vl x) { return {~x.a, ~x.b}; }

// ---- masks
// W lanes of 32 bits from two halves whose lanes of 64 bits are all 0 or all 1.
#ifdef SHUFFLES
#define EVEN(k) 2 * (k)
INL vm narrowed(hl x, hl y) { return {(vi)__builtin_shufflevector((vi)x, (vi)y, LOWER(EVEN), UPPER(EVEN))}; }
#else
INL vm narrowed(hl x, hl y) { return {join<vi>(CVT(x, hi), CVT(y, hi))}; }
#endif
INL vm operator&(vm a, vm b) { return {a.m & b.m}; }
INL vm operator|(vm a, vm b) { return {a.m | b.m}; }
INL vm operator^(vm a, vm b) { return {a.m ^ b.m}; }
INL vm not_(vm a) { return {~a.m}; }
INL bool not_(bool a) { return !a; }
#define CMP(name, op) \
  INL vm name(vf a, vf b) { return {(vi)(a op b)}; } \
  INL vm name(vi a, vi b) { return {(vi)(a op b)}; } \
  INL vm name(vd x, vd y) { return narrowed((hl)(x.a op y.a), (hl)(x.b op y.b)); } \
  INL vm name(vl x, vl y) { return narrowed((hl)(x.a op y.a), (hl)(x.b op y.b)); } \
  template <class T> INL bool name(T a, T b) { return a op b; }
CMP(lt, <) CMP(le, <=) CMP(gt, >) CMP(ge, >=) CMP(eq, ==) CMP(ne, !=)
#undef CMP
INL vm eq(vm a, vm b) { return {~(a.m ^ b.m)}; }
INL vm ne(vm a, vm b) { return {a.m ^ b.m}; }
INL vm lt(vm a, vm b) { return {~a.m & b.m}; }
INL vm gt(vm a, vm b) { return {a.m & ~b.m}; }
INL vm le(vm a, vm b) { return {~a.m | b.m}; }
INL vm ge(vm a, vm b) { return {a.m | ~b.m}; }
INL vf sel(vm c, vf a, vf b) { return c.m ? a : b; }
INL vi sel(vm c, vi a, vi b) { return c.m ? a : b; }
INL vd sel(vm c, vd x, vd y) {
  return {CVT(low<hi>(c.m), hl) ? x.a : y.a, CVT(high<hi>(c.m), hl) ? x.b : y.b};
}
INL vl sel(vm c, vl x, vl y) {
  return {CVT(low<hi>(c.m), hl) ? x.a : y.a, CVT(high<hi>(c.m), hl) ? x.b : y.b};
}
INL vm sel(vm c, vm a, vm b) { return {(c.m & a.m) | (~c.m & b.m)}; }
template <class T> INL T sel(bool c, T a, T b) { return c ? a : b; }

// ---- conversions for which GCC takes two steps
#if defined(__AVX512F__) && !defined(__clang__)
INL hd widened(hf x) { return (hd)__builtin_ia32_cvtps2pd512_mask(x, hd{}, 0xff, 4); }
INL vu widened(vh x) {
  typedef short v16hi_ __attribute__((vector_size(32)));
  typedef int v16si_ __attribute__((vector_size(64)));
  return (vu)__builtin_ia32_pmovzxwd512_mask((v16hi_)x, v16si_{}, (short)0xffff);
}
INL vi widened(vc x) {
  typedef char v16qi_ __attribute__((vector_size(16)));
  typedef int v16si_ __attribute__((vector_size(64)));
  return (vi)__builtin_ia32_pmovsxbd512_mask((v16qi_)x, v16si_{}, (short)0xffff);
}
INL vi widened(vb x) {
  typedef char v16qi_ __attribute__((vector_size(16)));
  typedef int v16si_ __attribute__((vector_size(64)));
  return (vi)__builtin_ia32_pmovzxbd512_mask((v16qi_)x, v16si_{}, (short)0xffff);
}
#else
INL hd widened(hf x) { return CVT(x, hd); }
INL vu widened(vh x) { return CVT(x, vu); }
INL vi widened(vc x) { return CVT(x, vi); }
INL vi widened(vb x) { return CVT(x, vi); }
#endif

// ---- half precision. A NaN stays one, with its sign: operators that move elements keep all bits of them
INL float up(bf16 x) { return bits_f((uint32_t)x.u << 16); }
INL bf16 down_bf16(float x) {
  uint32_t u = f_bits(x);
  return {x != x ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
}
INL float up(f16 x) { _Float16 h; __builtin_memcpy(&h, &x, 2); return (float)h; }
INL f16 down_f16(float x) { _Float16 h = (_Float16)x; f16 r; __builtin_memcpy(&r, &h, 2); return r; }
INL vf up_bf16(vh x) { return (vf)(widened(x) << 16); }
INL vh rounded_bf16(vf x) {
  vu u = (vu)x;
  vu r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return CVT((vu)((x != x) ? (vi)(u >> 16 | 0x40) : (vi)r), vh);
}
#if W == 16 && defined(__AVX512BF16__) && defined(__AVX512DQ__) && !defined(__clang__)
INL vh down_bf16(vf x) {  // the instruction takes subnormal numbers for 0
  if (__builtin_expect(__builtin_ia32_fpclassps512_mask(x, 0x20, (short)-1) != 0, 0)) return rounded_bf16(x);
  return (vh)__builtin_ia32_cvtneps2bf16_v16sf(x);
}
#else
INL vh down_bf16(vf x) { return rounded_bf16(x); }
#endif
#if defined(__F16C__) && W == 8
typedef short v8hi_ __attribute__((vector_size(16)));
INL vf up_f16(vh x) { return (vf)__builtin_ia32_vcvtph2ps256((v8hi_)x); }
INL vh down_f16(vf x) { return (vh)__builtin_ia32_vcvtps2ph256(x, 0); }
#elif defined(__AVX512F__) && W == 16
INL vf up_f16(vh x) { return (vf)__builtin_ia32_vcvtph2ps512_mask((vs)x, vf{}, (short)-1, 4); }
INL vh down_f16(vf x) { return (vh)__builtin_ia32_vcvtps2ph512_mask(x, 0, vs{}, (short)-1); }
#else
INL vf up_f16(vh x) { vf r; LANES(k) r[k] = up(f16{x[k]}); return r; }
INL vh down_f16(vf x) { vh r; LANES(k) r[k] = down_f16(x[k]).u; return r; }
#endif

#include "memory.h"
#include "tiles.h"

// ---- integer division by zero: sets the status word to 2
INL void check_divisor(int64_t d, bool m, int64_t* status) { if (m && d == 0) *status = 2; }
INL void check_divisor(vl d, vm m, int64_t* status) { if (bits(eq(d, vl{}) & m)) *status = 2; }
INL void check_divisor(vi d, vm m, int64_t* status) { if (bits(vm{d == 0} & m)) *status = 2; }

// ---- conversions between compute types
INL vf to_f(vf x) { return x; }   INL vf to_f(vd x) { return join<vf>(CVT(x.a, hf), CVT(x.b, hf)); }
INL vf to_f(vi x) { return CVT(x, vf); }   INL vf to_f(vm x) { return CVT(-x.m, vf); }
INL vf to_f(vl x) { return join<vf>(CVT(x.a, hf), CVT(x.b, hf)); }
INL vd to_d(vf x) { return {widened(low<hf>(x)), widened(high<hf>(x))}; }   INL vd to_d(vd x) { return x; }
INL vd to_d(vi x) { return {CVT(low<hi>(x), hd), CVT(high<hi>(x), hd)}; }   INL vd to_d(vm x) { return to_d(-x.m); }
INL vd to_d(vl x) { return {CVT(x.a, hd), CVT(x.b, hd)}; }
INL vi to_i(vf x) { return CVT(x, vi); }   INL vi to_i(vd x) { return join<vi>(CVT(x.a, hi), CVT(x.b, hi)); }
INL vi to_i(vi x) { return x; }   INL vi to_i(vl x) { return join<vi>(CVT(x.a, hi), CVT(x.b, hi)); }   INL vi to_i(vm x) { return -x.m; }
INL vl to_l(vf x) { vl r; LANES(k) r[k] = (int64_t)x[k]; return r; }
INL vl to_l(vd x) { vl r; LANES(k) r[k] = (int64_t)x[k]; return r; }
INL vl to_l(vi x) { return {CVT(low<hi>(x), hl), CVT(high<hi>(x), hl)}; }   INL vl to_l(vl x) { return x; }
INL vl to_l(vm x) { return to_l(-x.m); }
INL vm to_m(vm x) { return x; }   INL vm to_m(vf x) { return ne(x, vf{}); }   INL vm to_m(vd x) { return ne(x, vd{}); }
INL vm to_m(vi x) { return ne(x, vi{}); }   INL vm to_m(vl x) { return ne(x, vl{}); }
template <class T> INL float to_f(T x) { return (float)x; }
template <class T> INL double to_d(T x) { return (double)x; }
template <class T> INL int32_t to_i(T x) { return (int32_t)x; }
template <class T> INL int64_t to_l(T x) { return (int64_t)x; }
template <class T> INL bool to_m(T x) { return x != (T)0; }
INL vf rnd_bf16(vf x) { return up_bf16(down_bf16(x)); }
INL vf rnd_f16(vf x) { return up_f16(down_f16(x)); }
INL float rnd_bf16(float x) { return up(down_bf16(x)); }
INL float rnd_f16(float x) { return up(down_f16(x)); }
INL vi wrap_u8(vi x) { return x & 255; }   INL int32_t wrap_u8(int32_t x) { return (uint8_t)x; }
INL vi wrap_i8(vi x) { return (x << 24) >> 24; }   INL int32_t wrap_i8(int32_t x) { return (int8_t)x; }
INL vi wrap_i16(vi x) { return (x << 16) >> 16; }   INL int32_t wrap_i16(int32_t x) { return (int16_t)x; }

// ---- arithmetic helpers (NaN propagates through max_ and min_, and of 0.0 and -0.0 the first stays, as in ATen)
#define MINMAX(V, nan) \
  INL V max_(V a, V b) { return (a >= b) nan(a) ? a : b; } \
  INL V min_(V a, V b) { return (a <= b) nan(a) ? a : b; }
#define OR_NAN(a) | (a != a)
#define NO_NAN(a)
// One instruction: b if they are equal or one is a NaN.
#if W == 16 && defined(__AVX512F__) && !defined(__clang__)
INL vf greater(vf a, vf b) { return __builtin_ia32_maxps512_mask(a, b, a, (short)-1, 4); }
INL vf lesser(vf a, vf b) { return __builtin_ia32_minps512_mask(a, b, a, (short)-1, 4); }
#elif W == 8 && defined(__AVX__)
INL vf greater(vf a, vf b) { return __builtin_ia32_maxps256(a, b); }
INL vf lesser(vf a, vf b) { return __builtin_ia32_minps256(a, b); }
#else
INL vf greater(vf a, vf b) { return a > b ? a : b; }
INL vf lesser(vf a, vf b) { return a < b ? a : b; }
#endif
INL vf max_(vf a, vf b) { return b != b ? b : greater(b, a); }
INL vf min_(vf a, vf b) { return b != b ? b : lesser(b, a); }
MINMAX(hd, OR_NAN) MINMAX(vi, NO_NAN) MINMAX(hl, NO_NAN)
MINMAX(float, OR_NAN) MINMAX(double, OR_NAN) MINMAX(int32_t, NO_NAN) MINMAX(int64_t, NO_NAN)
INL vd max_(vd x, vd y) { return {max_(x.a, y.a), max_(x.b, y.b)}; }
INL vd min_(vd x, vd y) { return {min_(x.a, y.a), min_(x.b, y.b)}; }
INL vl max_(vl x, vl y) { return {max_(x.a, y.a), max_(x.b, y.b)}; }
INL vl min_(vl x, vl y) { return {min_(x.a, y.a), min_(x.b, y.b)}; }
INL vm max_(vm a, vm b) { return a | b; }   INL vm min_(vm a, vm b) { return a & b; }
INL bool max_(bool a, bool b) { return a | b; }   INL bool min_(bool a, bool b) { return a & b; }
#undef MINMAX
INL vf abs_(vf x) { return (vf)((vi)x & 0x7fffffff); }
INL hd abs_(hd x) { return (hd)((hl)x & 0x7fffffffffffffffll); }   INL vd abs_(vd x) { return {abs_(x.a), abs_(x.b)}; }
INL vi abs_(vi x) { return x < 0 ? -x : x; }   INL vl abs_(vl x) { return sel(lt(x, vl{}), -x, x); }
INL float abs_(float x) { return __builtin_fabsf(x); }   INL double abs_(double x) { return __builtin_fabs(x); }
INL int32_t abs_(int32_t x) { return x < 0 ? -x : x; }   INL int64_t abs_(int64_t x) { return x < 0 ? -x : x; }
#if defined(__FMA__) && W == 8
INL vf fma_(vf a, vf b, vf c) { return __builtin_ia32_vfmaddps256(a, b, c); }
#else
INL vf fma_(vf a, vf b, vf c) { return a * b + c; }
#endif
INL vf copysign_(vf a, vf s) { return (vf)(((vi)a & 0x7fffffff) | ((vi)s & (int32_t)0x80000000)); }
INL vd copysign_(vd a, vd s) { vd r; LANES(k) r[k] = __builtin_copysign(a[k], s[k]); return r; }
INL float copysign_(float a, float s) { return __builtin_copysignf(a, s); }
INL double copysign_(double a, double s) { return __builtin_copysign(a, s); }
#if defined(__AVX__) && W == 8
INL vf sqrt_(vf x) { return (vf)__builtin_ia32_sqrtps256(x); }
INL vf floor_(vf x) { return (vf)__builtin_ia32_roundps256(x, 9); }
INL vf ceil_(vf x) { return (vf)__builtin_ia32_roundps256(x, 10); }
INL vf trunc_(vf x) { return (vf)__builtin_ia32_roundps256(x, 11); }
INL vf round_(vf x) { return (vf)__builtin_ia32_roundps256(x, 8); }
#else
INL vf sqrt_(vf x) { vf r; LANES(k) r[k] = __builtin_sqrtf(x[k]); return r; }
INL vf floor_(vf x) { vf r; LANES(k) r[k] = __builtin_floorf(x[k]); return r; }
INL vf ceil_(vf x) { vf r; LANES(k) r[k] = __builtin_ceilf(x[k]); return r; }
INL vf trunc_(vf x) { vf r; LANES(k) r[k] = __builtin_truncf(x[k]); return r; }
INL vf round_(vf x) { vf r; LANES(k) r[k] = __builtin_nearbyintf(x[k]); return r; }
#endif
INL float round_(float x) { return __builtin_nearbyintf(x); }   INL double round_(double x) { return __builtin_nearbyint(x); }
INL vd round_(vd x) { vd r; LANES(k) r[k] = __builtin_nearbyint(x[k]); return r; }

// ---- lane by lane through libm, for what has no vector form
#define LIBM1(name, fn) \
  INL float name(float x) { return __builtin_##fn##f(x); } \
  INL double name(double x) { return __builtin_##fn(x); } \
  INL vd name(vd x) { vd r; LANES(k) r[k] = __builtin_##fn(x[k]); return r; }
#define LIBM2(name, fn) \
  INL float name(float x, float y) { return __builtin_##fn##f(x, y); } \
  INL double name(double x, double y) { return __builtin_##fn(x, y); } \
  INL vd name(vd x, vd y) { vd r; LANES(k) r[k] = __builtin_##fn(x[k], y[k]); return r; }
#define SLEEF_CAT(a, b, c) a##b##c
#define SLEEF_NAME(a, b, c) SLEEF_CAT(a, b, c)
#if defined(USE_SLEEF) && defined(__x86_64__) && W >= 8
#define SLEEF1(name, fn) \
  extern "C" vf SLEEF_NAME(Sleef_##fn##f, W, _u10)(vf); \
  INL vf name(vf x) { return SLEEF_NAME(Sleef_##fn##f, W, _u10)(x); } LIBM1(name, fn)
#define SLEEF2(name, fn) \
  extern "C" vf SLEEF_NAME(Sleef_##fn##f, W, _u10)(vf, vf); \
  INL vf name(vf x, vf y) { return SLEEF_NAME(Sleef_##fn##f, W, _u10)(x, y); } LIBM2(name, fn)
#else
#define SLEEF1(name, fn) INL vf name(vf x) { vf r; LANES(k) r[k] = __builtin_##fn##f(x[k]); return r; } LIBM1(name, fn)
#define SLEEF2(name, fn) INL vf name(vf x, vf y) { vf r; LANES(k) r[k] = __builtin_##fn##f(x[k], y[k]); return r; } LIBM2(name, fn)
#endif
SLEEF1(any_sin_, sin) SLEEF1(any_cos_, cos) SLEEF1(tan_, tan) SLEEF1(asin_, asin) SLEEF1(acos_, acos) SLEEF1(atan_, atan)
SLEEF1(near_sinh_, sinh) SLEEF1(near_cosh_, cosh) SLEEF1(near_asinh_, asinh) SLEEF1(near_acosh_, acosh) SLEEF1(atanh_, atanh)
SLEEF1(log_, log) SLEEF1(log1p_, log1p) SLEEF1(log2_, log2) SLEEF1(log10_, log10) SLEEF1(exp2_, exp2)
SLEEF1(expm1_, expm1) SLEEF1(lgamma_, lgamma) SLEEF2(pow_, pow) SLEEF2(atan2_, atan2)
#include "sine.h"
// of x above 1e9, asinh and acosh are log(2x) to within rounding; SLEEF squares x, which overflows above 1e19
INL vf log_twice_(vf x) { return log_(x) + 0.6931471805599453f; }
INL vf asinh_(vf x) { vf a = abs_(x); return a > 1e9f ? copysign_(log_twice_(a), x) : near_asinh_(x); }
INL vf acosh_(vf x) { return x > 1e9f ? log_twice_(x) : near_acosh_(x); }
INL vd asinh_(vd x) { return near_asinh_(x); }           INL vd acosh_(vd x) { return near_acosh_(x); }
INL float asinh_(float x) { return near_asinh_(x); }     INL float acosh_(float x) { return near_acosh_(x); }
INL double asinh_(double x) { return near_asinh_(x); }   INL double acosh_(double x) { return near_acosh_(x); }
#define LANE1(name, fn) INL vf name(vf x) { vf r; LANES(k) r[k] = __builtin_##fn##f(x[k]); return r; } LIBM1(name, fn)
#define LANE2(name, fn) INL vf name(vf x, vf y) { vf r; LANES(k) r[k] = __builtin_##fn##f(x[k], y[k]); return r; } LIBM2(name, fn)
LANE1(erfc_, erfc) LANE2(fmod_, fmod)
LIBM1(exp_, exp) LIBM1(tanh_, tanh) LIBM1(erf_, erf) LIBM1(sqrt_, sqrt) LIBM1(floor_, floor) LIBM1(ceil_, ceil) LIBM1(trunc_, trunc)

// p * 2^n, where n is a whole number, and 0 or infinite beyond the range of floats.
#if W == 16 && defined(__AVX512F__) && !defined(__clang__)
#define SCALES 1
INL vf scaled(vf p, vf n) { return __builtin_ia32_scalefps512_mask(p, n, p, (short)-1, 4); }
#endif
// exp: two-part reduction by ln 2, degree-6 polynomial. Without an instruction for it, the result is scaled in two steps
// so that subnormal results are right, and infinite ones are selected: if they came from the last product, its
// contraction with a following sum would make them finite.
INL vf exp_(vf x) {
#ifndef SCALES
  auto overflows = x > 88.722839f;
#endif
  x = greater(set_f(-104.0f), lesser(set_f(89.0f), x));
  vf n = fma_(x, set_f(1.44269504f), set_f(12582912.0f)) - 12582912.0f;
  vf r = fma_(n, set_f(-0.693145752f), x);
  r = fma_(n, set_f(-1.42860677e-6f), r);
  vf p = set_f(1.37805939e-3f);
  p = fma_(p, r, set_f(8.37312452e-3f));
  p = fma_(p, r, set_f(4.16695364e-2f));
  p = fma_(p, r, set_f(1.66664720e-1f));
  p = fma_(p, r, set_f(4.99999851e-1f));
  p = fma_(p, r, set_f(1.0f));
  p = fma_(p, r, set_f(1.0f));
#ifdef SCALES
  return scaled(p, n);
#else
  vi k = CVT(n, vi), h = k >> 1;
  p = p * (vf)((h + 127) << 23) * (vf)((k - h + 127) << 23);
  return overflows ? set_f(__builtin_inff()) : p;
#endif
}
// Above 88, sinh and cosh are exp(x) / 2, which is finite up to 89.4; SLEEF's are infinite from 88.8 on. Infinite results
// are selected, as those of exp.
INL vf half_exp_(vf x) { vf r = exp_(x * 0.5f); return x > 89.415985f ? set_f(__builtin_inff()) : r * 0.5f * r; }
INL vf sinh_(vf x) { vf a = abs_(x); return a > 88.0f ? copysign_(half_exp_(a), x) : near_sinh_(x); }
INL vf cosh_(vf x) { vf a = abs_(x); return a > 88.0f ? half_exp_(a) : near_cosh_(x); }
INL vd sinh_(vd x) { return near_sinh_(x); }             INL vd cosh_(vd x) { return near_cosh_(x); }
INL float sinh_(float x) { return near_sinh_(x); }       INL float cosh_(float x) { return near_cosh_(x); }
INL double sinh_(double x) { return near_sinh_(x); }     INL double cosh_(double x) { return near_cosh_(x); }
// tanh: odd polynomial near zero, 1 - 2 / (exp(2|x|) + 1) elsewhere.
INL vf tanh_(vf x) {
  vf a = abs_(x), s = x * x;
  vf p = set_f(-5.70498872745e-3f);
  p = fma_(p, s, set_f(2.06390887954e-2f));
  p = fma_(p, s, set_f(-5.37397155531e-2f));
  p = fma_(p, s, set_f(1.33314422036e-1f));
  p = fma_(p, s, set_f(-3.33332819422e-1f));
  p = fma_(p * s, x, x);
  vf q = 1.0f - 2.0f / (exp_(a + a) + 1.0f);
  return copysign_(a < 0.625f ? p : q, x);
}
// erf: Juffa's two minimax polynomials, split at 475/512.
INL vf erf_(vf a) {
  vf t = abs_(a), s = a * a;
  vf r = fma_(set_f(-1.72853470e-5f), t, set_f(3.83197126e-4f));
  vf u = fma_(set_f(-3.88396438e-3f), t, set_f(2.42546219e-2f));
  r = fma_(r, s, u);
  r = fma_(r, t, set_f(-1.06777877e-1f));
  r = fma_(r, t, set_f(-6.34846687e-1f));
  r = fma_(r, t, set_f(-1.28717512e-1f));
  r = fma_(r, t, -t);
  r = copysign_(1.0f - exp_(t > 4.0f ? set_f(-104.0f) : r), a);
  vf q = set_f(-5.96761703e-4f);
  q = fma_(q, s, set_f(4.99119423e-3f));
  q = fma_(q, s, set_f(-2.67681349e-2f));
  q = fma_(q, s, set_f(1.12819925e-1f));
  q = fma_(q, s, set_f(-3.76125336e-1f));
  q = fma_(q, s, set_f(1.28379166e-1f));
  q = fma_(q, a, a);
  return t > 0.927734375f ? r : q;
}
// The normal distribution function: log2 of the smaller tail by a polynomial of degree 10 in |x| (fitted on 0 .. 5.5 and
// falling beyond), then 2^ of it. Relative error 3e-6 down to x = -5, absolute error 1e-7.
INL vf ndtr_(vf x) {
  // The steps of the polynomials' upper parts do not wait for each other: one chain of all steps would be longer than the
  // processor looks ahead.
  vf a = lesser(abs_(x), set_f(16.0f));  // so that its powers are finite
  const vf a2 = a * a, a4 = a2 * a2;
  const vf r0 = fma_(fma_(set_f(-2.3683293e-4f), a, set_f(-9.3370712e-5f)), a2,
                     fma_(set_f(7.0662270e-3f), a, set_f(-5.2524872e-2f)));
  const vf r1 = fma_(fma_(set_f(-2.2697032e-8f), a, set_f(6.9111871e-7f)), a2,
                     fma_(set_f(-9.0565891e-6f), a, set_f(6.4668378e-5f)));
  vf r = fma_(r1, a4, r0);
  r = fma_(r, a, set_f(-4.5919299e-1f));
  r = fma_(r, a, set_f(-1.1511073e+0f));
  r = fma_(r, a, set_f(-1.0f));
#ifndef SCALES
  r = greater(r, set_f(-126.0f));
#endif
  const vf m = r + 12582912.0f, n = m - 12582912.0f, f = r - n, f2 = f * f;
  vf p = fma_(fma_(set_f(1.5345811e-4f), f2, fma_(set_f(1.3399932e-3f), f, set_f(9.6184891e-3f))), f2,
              fma_(set_f(5.5503286e-2f), f, set_f(2.4022646e-1f)));
  p = fma_(p, f, set_f(6.9314718e-1f));
  p = fma_(p, f, set_f(1.0f));
#ifdef SCALES
  p = scaled(p, n);
#else
  p = (vf)((vi)p + ((vi)m << 23));
  p = r > -126.0f ? p : vf{};
#endif
  p = x < 0.0f ? p : 1.0f - p;
  return x != x ? x : p;
}
INL float ndtr_(float x) { return 0.5f * __builtin_erfcf(-x * 0.70710678f); }
INL double ndtr_(double x) { return 0.5 * __builtin_erfc(-x * 0.70710678118654752); }
INL vd ndtr_(vd x) { vd r; LANES(k) r[k] = ndtr_(x[k]); return r; }
template <class T> INL T rsqrt_(T x) { return 1 / sqrt_(x); }
template <class T> INL T recip_(T x) { return 1 / x; }
template <class T> INL T sigmoid_(T x) { return 1 / (1 + exp_(-x)); }
template <class T> INL T relu_(T x) { return max_(x, T{}); }
INL vf relu_(vf x) { return greater(vf{}, x); }
template <class T> INL auto isnan_(T x) { return ne(x, x); }
template <class T> INL auto isinf_(T x) { return eq(abs_(x), T{} + __builtin_inff()); }
template <class T> INL T sign_(T x) { return sel(gt(x, T{}), T{} + 1, sel(lt(x, T{}), T{} - 1, T{})); }
// Integer division: C truncates; floor and Python's modulus are built on it. No vector divide exists: it is done in double,
// which is exact for int32, and for int64 from -2^51 to 2^51: a quotient that is no integer is further from the next one
// than half of the last bit. Others are divided lane by lane.
INL int64_t truncdiv(int64_t a, int64_t b) { return b ? (b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b) : 0; }
INL int32_t truncdiv(int32_t a, int32_t b) { return b ? (b == -1 ? (int32_t)(0 - (uint32_t)a) : a / b) : 0; }
static __attribute__((noinline)) vl truncdiv_lanes(vl a, vl b) { vl r; LANES(k) r[k] = truncdiv(a[k], b[k]); return r; }
INL vi truncdiv(vi a, vi b) {
  const vd q = to_d(a) / to_d(b);
  const vi r = join<vi>(CVT(q.a, hi), CVT(q.b, hi));
  return ~(vi)(b == 0) & (b == -1 ? (vi)(0 - (vu)a) : r);
}
INL hl divided(hl a, hl b) {
  const double shift = 6755399441055744.0;  // 3 * 2^51, from where on the bits of a double count in ones
  const hl origin = hl{} + 0x4338000000000000ll, sign = (hl)((a ^ b) < 0);
  const hd x = (hd)(a + origin) - shift, y = (hd)(b + origin) - shift;
  const hd q = (hd)((hl)(x / y) & 0x7fffffffffffffffll), near = q + shift;
  const hl n = (hl)near - origin + (hl)(near - shift > q);  // the integer below q
  return ((n ^ sign) - sign) & (hl)(b != 0);
}
INL vl truncdiv(vl a, vl b) {
  const int64_t low = (int64_t)1 << 51;
  const hl beyond = (hl)((hul)((a.a + low) | (a.b + low) | (b.a + low) | (b.b + low)) >> 52);
  const hl found = (hl)(beyond != 0);
  if (__builtin_expect(bits(narrowed(found, found)) != 0, 0)) return truncdiv_lanes(a, b);
  return {divided(a.a, b.a), divided(a.b, b.b)};
}
template <class T> INL T truncrem(T a, T b) { return a - truncdiv(a, b) * b; }
template <class T> INL T floordiv(T a, T b) {
  T q = truncdiv(a, b), r = a - q * b;
  return sel(ne(r, T{}) & lt(r ^ b, T{}), q - 1, q);
}
template <class T> INL T pymod(T a, T b) { return a - floordiv(a, b) * b; }
INL vf truncrem(vf a, vf b) { return fmod_(a, b); }   INL vd truncrem(vd a, vd b) { return fmod_(a, b); }
INL float truncrem(float a, float b) { return fmod_(a, b); }   INL double truncrem(double a, double b) { return fmod_(a, b); }
#define FMODPY(T) INL T pymod(T a, T b) { T r = fmod_(a, b); return sel(ne(r, T{}) & ne(lt(r, T{}), lt(b, T{})), r + b, r); } \
  INL T floordiv(T a, T b) { T m = fmod_(a, b), q = (a - m) / b; \
    q = sel(ne(m, T{}) & ne(lt(m, T{}), lt(b, T{})), q - 1, q); T f = floor_(q); f = sel(gt(q - f, T{} + 0.5f), f + 1, f); \
    T z = a / b; return sel(eq(b, T{}), z, sel(eq(q, T{}), copysign_(T{}, z), f)); } \
  INL T truncdiv(T a, T b) { return trunc_(a / b); }
FMODPY(float) FMODPY(double) FMODPY(vf) FMODPY(vd)

// ---- horizontal reductions: halves are combined, then halves of the result
#ifdef SHUFFLES
#define PAIRS4(d, k) (k) ^ (d), (k + 1) ^ (d), (k + 2) ^ (d), (k + 3) ^ (d)
// Lane k is lane k ^ D of `v`.
template <int D, class V> INL V paired(V v) {
  if constexpr (sizeof v / sizeof v[0] == 16)
    return (V)__builtin_shufflevector(v, v, PAIRS4(D, 0), PAIRS4(D, 4), PAIRS4(D, 8), PAIRS4(D, 12));
  else if constexpr (sizeof v / sizeof v[0] == 8)
    return (V)__builtin_shufflevector(v, v, PAIRS4(D, 0), PAIRS4(D, 4));
  else if constexpr (sizeof v / sizeof v[0] == 4)
    return (V)__builtin_shufflevector(v, v, PAIRS4(D, 0));
  else
    return (V)__builtin_shufflevector(v, v, 1, 0);
}
template <class V, class F> INL auto folded(V v, F f) {
  constexpr int lanes = sizeof v / sizeof v[0];
  if constexpr (lanes >= 16) v = f(v, paired<8>(v));
  if constexpr (lanes >= 8) v = f(v, paired<4>(v));
  if constexpr (lanes >= 4) v = f(v, paired<2>(v));
  return f(v, paired<1>(v))[0];
}
#else
template <class V, class F> INL auto folded(V v, F f) {
  V r = v;
  for (int k = 1; k < (int)(sizeof v / sizeof v[0]); ++k) { V x = {}; x[0] = v[k]; r = f(r, x); }
  return r[0];
}
#endif
#define FOLDS(name, text) \
  struct name##_of { template <class V> INL_MEMBER V operator()(V a, V b) const { return text; } }; \
  INL float h##name(vf v) { return folded(v, name##_of{}); }   INL int32_t h##name(vi v) { return folded(v, name##_of{}); } \
  INL double h##name(vd v) { return folded(name##_of{}(v.a, v.b), name##_of{}); } \
  INL int64_t h##name(vl v) { return folded(name##_of{}(v.a, v.b), name##_of{}); }
#define INL_MEMBER __attribute__((always_inline))
FOLDS(sum, a + b) FOLDS(prod, a * b) FOLDS(max, max_(a, b)) FOLDS(min, min_(a, b))
INL bool hany(vm v) { return bits(v) != 0; }
INL bool hall(vm v) { return bits(v) == (1 << W) - 1; }
INL bool hmax(vm v) { return hany(v); }   INL bool hmin(vm v) { return hall(v); }
// ---- running sums, with the sum of all lanes before in `carry`; of floats in double
#ifdef SHUFFLES
#define SHIFTED4(n, d, k) (k) < (d) ? 0 : (n) + (k) - (d), (k + 1) < (d) ? 0 : (n) + (k + 1) - (d), \
  (k + 2) < (d) ? 0 : (n) + (k + 2) - (d), (k + 3) < (d) ? 0 : (n) + (k + 3) - (d)
// The lanes of `v` moved up by D, and zeros below.
template <int D, class V> INL V shifted(V v) {
  const V z = {};
  if constexpr (sizeof v / sizeof v[0] == 16)
    return (V)__builtin_shufflevector(z, v, SHIFTED4(16, D, 0), SHIFTED4(16, D, 4), SHIFTED4(16, D, 8), SHIFTED4(16, D, 12));
  else if constexpr (sizeof v / sizeof v[0] == 8)
    return (V)__builtin_shufflevector(z, v, SHIFTED4(8, D, 0), SHIFTED4(8, D, 4));
  else if constexpr (sizeof v / sizeof v[0] == 4)
    return (V)__builtin_shufflevector(z, v, SHIFTED4(4, D, 0));
  else
    return (V)__builtin_shufflevector(z, v, 0, 2);
}
template <class V> INL V sums_of_lanes(V v) {
  constexpr int lanes = sizeof v / sizeof v[0];
  v = v + shifted<1>(v);
  if constexpr (lanes >= 4) v = v + shifted<2>(v);
  if constexpr (lanes >= 8) v = v + shifted<4>(v);
  if constexpr (lanes >= 16) v = v + shifted<8>(v);
  return v;
}
#else
template <class V> INL V sums_of_lanes(V v) { for (int k = 1; k < (int)(sizeof v / sizeof v[0]); ++k) v[k] += v[k - 1]; return v; }
#endif
INL vd running_sum(vd x, double& carry) {
  const hd a = sums_of_lanes(x.a), b = sums_of_lanes(x.b), before = carry + hd{}, middle = before + a[W / 2 - 1];
  carry += a[W / 2 - 1] + b[W / 2 - 1];
  return {before + a, middle + b};
}
INL vf running_sum(vf x, double& carry) { return to_f(running_sum(to_d(x), carry)); }
INL vl running_sum(vl x, int64_t& carry) {
  const hl a = sums_of_lanes(x.a) + carry, b = sums_of_lanes(x.b) + a[W / 2 - 1];
  carry = b[W / 2 - 1];
  return {a, b};
}
// `a` beats `b` in argmax: greater, or a NaN that `b` is not; ties keep the smaller position.
template <class T> INL auto beats_max(T a, T b) { return gt(a, b) | (ne(a, a) & eq(b, b)); }
template <class T> INL auto beats_min(T a, T b) { return lt(a, b) | (ne(a, a) & eq(b, b)); }
template <class V, class I, class T, class Beats> INL int64_t harg(V v, I at, T& best, Beats beats) {
  auto bv = v[0]; int64_t bi = at[0];
  for (int k = 1; k < W; ++k)
    if (beats(v[k], bv) || (!beats(bv, v[k]) && at[k] < bi)) { bv = v[k]; bi = at[k]; }
  best = bv;
  return bi;
}
template <class V, class I, class T> INL int64_t hargmax(V v, I at, T& best) {
  return harg(v, at, best, [](auto a, auto b) { return beats_max(a, b); });
}
template <class V, class I, class T> INL int64_t hargmin(V v, I at, T& best) {
  return harg(v, at, best, [](auto a, auto b) { return beats_min(a, b); });
}

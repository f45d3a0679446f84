// sin and cos, with an error of less than one unit in the last place. Included by vec.h, whose types it uses.
#pragma once

INL vd sin_(vd x) { return any_sin_(x); }           INL vd cos_(vd x) { return any_cos_(x); }
INL float sin_(float x) { return any_sin_(x); }     INL float cos_(float x) { return any_cos_(x); }
INL double sin_(double x) { return any_sin_(x); }   INL double cos_(double x) { return any_cos_(x); }

// a * b + c, rounded once: `fma_` leaves that to the compiler, which may compute equal products only once.
#if W == 16 && defined(__AVX512F__) && !defined(__clang__)
#define ONE_ROUNDING 1
INL vf fused(vf a, vf b, vf c) { return __builtin_ia32_vfmaddps512_mask(a, b, c, (short)-1, 4); }
#elif W == 8 && defined(__FMA__)
#define ONE_ROUNDING 1
INL vf fused(vf a, vf b, vf c) { return __builtin_ia32_vfmaddps256(a, b, c); }
#endif

#ifdef ONE_ROUNDING
// |x| = n * pi / 2 + r + rest, with |r| up to pi / 4. pi / 2 has three parts, the second of which has so few bits that
// r and the difference to it are exact. Then sin or cos of r by polynomials of degree 7 and 8, in which `rest` counts,
// as does what is lost when r is squared. `quarters` is added to n.
INL vf near_sine(vf x, int32_t quarters, vi sign) {
  const vf a = abs_(x), shifted = fused(a, set_f(0x1.45f306p-1f), set_f(12582912.0f)), n = shifted - 12582912.0f;
  const vf first = fused(n, set_f(-0x1.921fb4p+0f), a), r = fused(n, set_f(-0x1.444p-24f), first);
  const vf rest = fused(n, set_f(-0x1.68c234p-39f), fused(n, set_f(-0x1.444p-24f), first - r));
  const vf t = r * r, lost = fused(r + r, rest, fused(r, r, -t));
  vf s = fused(t, set_f(-1.9517234e-4f), set_f(8.3321777e-3f));
  s = fused(t, s, set_f(-1.6666655e-1f));
  s = fused(t * r, s, rest) + r;
  vf c = fused(t, set_f(2.4438379e-5f), set_f(-1.3887367e-3f));
  c = fused(t, c, set_f(4.1666647e-2f));
  c = fused(t, fused(t, c, set_f(-0.5f)), lost * -0.5f) + 1.0f;
  const vi q = (vi)shifted + quarters;
  return (vf)((vi)((q & 1) != 0 ? c : s) ^ ((q & 2) << 30) ^ sign);
}
// Numbers that are large, infinite or NaN are left to SLEEF.
INL bool all_near(vf x) { return bits(vm{(vi)(abs_(x) < 10000.0f)}) == (1 << W) - 1; }
INL vf sin_(vf x) {
  return __builtin_expect(all_near(x), 1) ? near_sine(x, 0, (vi)x & (int32_t)0x80000000) : any_sin_(x);
}
INL vf cos_(vf x) { return __builtin_expect(all_near(x), 1) ? near_sine(x, 1, vi{}) : any_cos_(x); }
#else
INL vf sin_(vf x) { return any_sin_(x); }   INL vf cos_(vf x) { return any_cos_(x); }
#endif

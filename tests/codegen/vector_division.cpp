// Division of integers in vec.h against that of single elements. The exit status is the number of errors, at most 100.
#include <vec.h>

extern "C" int printf(const char*, ...);
static uint64_t state = 1;
static uint64_t number() { state = state * 6364136223846793005ull + 1442695040888963407ull; return state ^ state >> 29; }
static int errors = 0;

template <class V, class T> void divide(const T* a, const T* b, const char* name) {
  T q[W];
  st(q, truncdiv(ld(a), ld(b)));
  for (int k = 0; k < W; ++k) {
    const T want = b[k] == 0 ? 0 : b[k] == -1 ? (T)(0 - (uint64_t)a[k]) : a[k] / b[k];
    if (q[k] != want && ++errors <= 100) printf("%s: %lld / %lld is %lld\n", name, (long long)a[k], (long long)b[k], (long long)q[k]);
  }
}

template <class V, class T> void all(const char* name, int bits) {
  T a[W], b[W];
  for (int wide = 1; wide <= bits; ++wide) for (int narrow = 1; narrow <= wide; ++narrow) for (int turn = 0; turn < 40; ++turn) {
    for (int k = 0; k < W; ++k) {
      b[k] = (T)((int64_t)number() >> (64 - narrow));
      a[k] = (T)((int64_t)number() >> (64 - wide));
      if (turn % 4 && b[k] && b[k] != -1) a[k] = a[k] / b[k] * b[k] + (T)(turn % 4 - 2);  // next to a multiple
    }
    divide<V>(a, b, name);
  }
  const T least = (T)((uint64_t)1 << (bits - 1)), edge = bits == 64 ? (T)1 << (bits > 51 ? 51 : 0) : least;
  const T special[] = {0, 1, -1, 2, -2, 3, least, (T)(least + 1), (T)~least, edge, (T)(edge - 1), (T)(edge + 1), (T)-edge, (T)(-edge - 1)};
  for (T x : special) for (T y : special) {
    for (int k = 0; k < W; ++k) { a[k] = k % 3 ? x : (T)k; b[k] = k % 3 ? y : 3; }
    divide<V>(a, b, name);
  }
}

int main() {
  all<vi, int32_t>("int32", 32);
  all<vl, int64_t>("int64", 64);
  return errors < 100 ? errors : 100;
}

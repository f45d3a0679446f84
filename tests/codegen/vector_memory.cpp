// Loads and stores of memory.h and tiles.h against loops over single elements. The exit status is the number of errors.
#include <sys/mman.h>
#include <vec.h>

extern "C" int printf(const char*, ...);
static uint32_t state = 1;
static uint32_t number() { return state = state * 1664525u + 1013904223u; }
static int errors = 0;
template <class A> bool equal(A a, A b) { return __builtin_memcmp(&a, &b, sizeof a) == 0; }
template <class A> void same(const char* what, A a, A b) { if (!equal(a, b)) { printf("%s\n", what); ++errors; } }
template <class T> void fill(T* p, int n) { for (int i = 0; i < n; ++i) p[i] = (T)(number() >> 25); }
static void fill(bf16* p, int n) { for (int i = 0; i < n; ++i) p[i] = down_bf16((float)(number() >> 25)); }
static void fill(f16* p, int n) { for (int i = 0; i < n; ++i) p[i] = down_f16((float)(number() >> 25)); }
static void fill(bool* p, int n) { for (int i = 0; i < n; ++i) p[i] = number() >> 31; }

// A page between two that cannot be read.
static char* page() {
  static char* found = nullptr;
  if (!found) {
    found = (char*)mmap(nullptr, 3 << 12, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + (1 << 12);
    mprotect(found, 1 << 12, PROT_READ | PROT_WRITE);
  }
  return found;
}
// A copy of n elements after whose last one, or before whose first one, nothing can be read.
template <class T> const T* guarded(const T* p, int n, bool after) {
  char* at = after ? page() + (1 << 12) - n * sizeof(T) : page();
  __builtin_memcpy(at, p, n * sizeof(T));
  return (const T*)at;
}

template <class V, class T> void tiles(const char* name) {
  const int apart = W + 5;
  T x[W * apart], y[W * apart], z[W * apart];
  fill(x, W * apart);
  V r[W];
  for (int rows = 1; rows <= W; rows += W / 4) for (int columns = 1; columns <= W; columns += 3) {
    fill(y, W * apart);
    __builtin_memcpy(z, y, sizeof y);
    const bool whole = rows + W / 4 > W && columns + 3 > W;
    if (whole) ld_tile(r, x, apart); else ld_tile(r, x, apart, rows, columns);
    for (int u = 0; u < W; ++u) for (int k = 0; k < W; ++k) if (whole || (k < rows && u < columns))
      same(name, lane(r[u], k), ld1(x + k * apart + u));
    if (whole) st_tile(r, y, apart); else st_tile(r, y, apart, rows, columns);
    for (int k = 0; k < W; ++k) for (int u = 0; u < apart; ++u) {
      const bool written = u < W && (whole || (k < rows && u < columns));
      same(name, y[k * apart + u], (written ? x : z)[k * apart + u]);
    }
  }
}

template <class V, int S, class T> void steps(const char* name, const T* p) {
  for (int n = 1; n <= W; ++n) {
    const int reach = (S < 0 ? -S : S) * (n - 1) + 1;
    const T* first = guarded(p, reach, S > 0) + (S < 0 ? reach - 1 : 0);
    const V r = n == W ? ld_step<V, S>(first) : ld_step<V, S>(first, n);
    for (int k = 0; k < n; ++k) same(name, lane(r, k), ld1(first + k * S));
  }
}

template <class V, int D, class T> void repeats(const char* name, const T* p) {
  for (int n = 1; n <= W; ++n) {
    const T* first = guarded(p, (n + D - 1) / D, true);
    const V r = n == W ? ld_repeat<V, D>(first) : ld_repeat<V, D>(first, n);
    for (int k = 0; k < n; ++k) same(name, lane(r, k), ld1(first + k / D));
  }
}

template <class V, class T> void partial(const char* name) {
  T x[8 * W], y[2 * W], z[2 * W];
  fill(x, 8 * W);
  for (int n = 1; n <= W; ++n) {
    fill(y, 2 * W);
    __builtin_memcpy(z, y, sizeof y);
    const V r = ld(guarded(x + 1, n, true), n);
    for (int k = 0; k < n; ++k) same(name, lane(r, k), ld1(x + 1 + k));
    for (int k = n; k < W; ++k) same(name, lane(r, k), decltype(ld1(x))());
    st(y, r, n);
    for (int k = 0; k < 2 * W; ++k) same(name, y[k], k < n ? x[1 + k] : z[k]);
  }
  steps<V, 2>(name, x); steps<V, 3>(name, x); steps<V, 5>(name, x); steps<V, -1>(name, x); steps<V, -2>(name, x);
  repeats<V, 2>(name, x); repeats<V, 4>(name, x);
}

static void indices() {
  const int64_t values[] = {0, 1, 40, 41, 42, -1, -41, -42, INT64_MIN, INT64_MAX, (int64_t)1 << 32, -((int64_t)1 << 32)};
  for (int64_t bad : values) for (int at = 0; at < W; ++at) for (int masked = 0; masked < 2; ++masked) {
    vl i = {};
    i[at] = bad;
    vm m = bcast(true);
    if (masked) setlane(m, at, false);
    int64_t status = 0, status_of_one = 0;
    const vl r = check_index(i, 41, m, &status);
    same("check_index", r[at], check_index(bad, 41, !masked, &status_of_one));
    same("status", status, status_of_one);
    status = status_of_one = 0;
    const vl w = wrap_index(i, 41, m, &status);
    same("wrap_index", w[at], wrap_index(bad, 41, !masked, &status_of_one));
    same("status", status, status_of_one);
  }
}

template <class V, class T> void gathers(const char* name) {
  T x[100];
  fill(x, 100);
  int64_t at[W];
  for (int k = 0; k < W; ++k) at[k] = number() % 100;
  for (int n = 1; n <= W; ++n) {
    const int64_t* places = guarded(at, n, true);
    const V r = n == W ? gather<V>(x, places) : gather<V>(x, places, n);
    for (int k = 0; k < W; ++k) same(name, lane(r, k), k < n ? ld1(x + at[k]) : decltype(ld1(x)){});
  }
}

static void values() {
  const float inf = __builtin_inff(), nan = __builtin_nanf("");
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, inf, -inf, nan, -nan, 1e-40f, -1e-40f, 3e38f};
  for (float a : special) {
    same("relu", relu_(set_f(a))[0], relu_(a));
    for (float b : special) {
      const float greatest = max_(set_f(a), set_f(b))[0], least = min_(set_f(a), set_f(b))[0];
      if (greatest == greatest || max_(a, b) == max_(a, b)) same("max", greatest, max_(a, b));
      if (least == least || min_(a, b) == min_(a, b)) same("min", least, min_(a, b));
    }
  }
  for (uint32_t i = 0; i < 1000000; ++i) {
    const float x = bits_f(i < 1000 ? i : number());
    same("bf16", down_bf16(set_f(x))[0], down_bf16(x).u);
  }
}

int main() {
  tiles<vf, float>("float"); tiles<vi, int32_t>("int32"); tiles<vl, int64_t>("int64"); tiles<vd, double>("double");
  tiles<vm, bool>("bool"); tiles<vi, int8_t>("int8"); tiles<vi, uint8_t>("uint8"); tiles<vi, int16_t>("int16");
  tiles<vf, bf16>("bf16"); tiles<vf, f16>("f16");
  partial<vf, float>("float"); partial<vi, int32_t>("int32"); partial<vl, int64_t>("int64");
  partial<vd, double>("double"); partial<vm, bool>("bool"); partial<vi, int8_t>("int8"); partial<vi, uint8_t>("uint8");
  partial<vi, int16_t>("int16"); partial<vf, bf16>("bf16"); partial<vf, f16>("f16");
  indices();
  gathers<vf, float>("gather float"); gathers<vd, double>("gather double"); gathers<vl, int64_t>("gather int64");
  gathers<vi, uint8_t>("gather uint8"); gathers<vm, bool>("gather bool"); gathers<vf, bf16>("gather bf16");
  values();
  return errors > 100 ? 100 : errors;
}

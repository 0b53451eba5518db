// Kernels that are wrong on purpose: each does one thing that the fibre runtime must find.
#include "../hip/gpu.h"

struct SelfArgs { G<float> x; G<const float> y; i64 n; };

KERNEL(selftest_bounds, 64, 1, SelfArgs) {
    PTR(x, a.x);
    x[(i64)tid() + 1] = 1.0f; // line 8: one past the end for the last thread
}
KERNEL(selftest_barrier, 64, 1, SelfArgs) {
    PTR(x, a.x);
    if (tid() < 40) sync(); // line 12: not all threads
    x[tid()] = 1.0f;
}
KERNEL(selftest_wave, 64, 1, SelfArgs) {
    PTR(x, a.x);
    float v = 0.0f;
    if (lane() != 7) v = wave_sum(1.0f); // line 18: not all lanes
    x[tid()] = v;
}
KERNEL(selftest_shuffle, 64, 1, SelfArgs) {
    PTR(x, a.x);
    x[tid()] = shfl((float)tid(), (int)lane() + 1); // line 23: lane 32 for lane 31
}
KERNEL(selftest_race, 64, 1, SelfArgs) {
    SHARED(float, s, 64);
    PTR(x, a.x);
    s[tid()] = (float)tid();
    x[tid()] = s[63 - tid()]; // line 29: no barrier since the writes
}
KERNEL(selftest_shared, 64, 1, SelfArgs) {
    SHARED(float, s, 63);
    PTR(x, a.x);
    s[tid()] = 1.0f; // line 34: thread 63
    x[tid()] = 1.0f;
}
KERNEL(selftest_null, 64, 1, SelfArgs) {
    PTR(x, a.x); PTR(y, a.y);
    x[tid()] = y[0]; // line 39
}
KERNEL(selftest_poison, 64, 1, SelfArgs) { // reads shared memory that nobody wrote
    SHARED(float, s, 64);
    PTR(x, a.x);
    x[tid()] = s[tid()];
}
KERNEL(selftest_fine, 64, 1, SelfArgs) { // and one that is right: a reversal through shared memory, and wave operations
    SHARED(float, s, 64);
    PTR(x, a.x);
    s[tid()] = (float)tid();
    sync();
    float v = s[63 - tid()];
    v += (float)wave_ballot(lane() == 3) + shfl_xor(v, 1) + shfl(v, 0);
    x[tid()] = v + wave_max((float)lane());
}

// Rounding of activations to 8 bits.
#pragma once
#include "gpu.h"

// 32 activations, one a lane, to signed bytes and a scale; s is the scaled sum of each 16, for weights with a minimum.
DEV void round32(float v, i64 at, P<u32> q, P<float> d, P<float> s) {
    float amax = wave_max_abs(v); // what is no number goes into the scale: bytes cannot hold it
    float id = amax > 0.0f ? 127.0f / amax : 0.0f;
    int k = id > 0.0f ? (int)rint_(v * id) : 0;
    int sum = k;
    sum += shfl_xor(sum, 1); sum += shfl_xor(sum, 2); sum += shfl_xor(sum, 4); sum += shfl_xor(sum, 8);
    u32 w = (u32)(k & 255) << (8 * (lane() & 3));
    w |= shfl_xor(w, 1); w |= shfl_xor(w, 2);
    float scale = amax / 127.0f;
    if ((lane() & 3) == 0) q[at * 8 + lane() / 4] = w;
    if ((lane() & 15) == 0) s[at * 2 + lane() / 16] = scale * (float)sum;
    if (lane() == 0) d[at] = scale;
}

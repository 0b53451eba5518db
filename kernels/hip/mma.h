// One 16x16 tile of f32 += a wave's 16x16 f16 products, behind one name. A is 16 rows of 16 halves, B is 16 columns of 16
// halves (both row-major with the same leading dimension, in shared memory): D[i][j] += sum_k A[i][k] * B[j][k].
// A lane holds D elements e = 0..7 at (mma_row(e), mma_col(e)).
#pragma once
#include "gpu.h"

struct Acc { float v[8]; };

#if GPU_AMD && (defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || defined(__gfx1150__) || defined(__gfx1151__))
// gfx11 WMMA: lane r (0..15) holds row r of A and column r of B; lanes 16..31 repeat them. D[2e + lane/16][lane%16].
typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef float float8 __attribute__((ext_vector_type(8)));
DEV int mma_row(int e) { return 2 * e + (int)(lane() / 16); }
DEV int mma_col(int) { return (int)(lane() & 15); }
DEV void mma16(Acc &acc, S<u16> A, S<u16> B, int ld) {
    half16 fa, fb;
    __builtin_memcpy(&fa, A + (lane() & 15) * ld, 32);
    __builtin_memcpy(&fb, B + (lane() & 15) * ld, 32);
    float8 c;
    __builtin_memcpy(&c, acc.v, 32);
    c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(fa, fb, c);
    __builtin_memcpy(acc.v, &c, 32);
}
#elif GPU_NV
// Two m16n8k16: lane l holds rows l/4 and l/4+8, columns 2*(l%4) and the next, for each half of 8 columns.
DEV int mma_row(int e) { return (int)(lane() / 4) + 8 * ((e >> 1) & 1); }
DEV int mma_col(int e) { return (int)(lane() & 3) * 2 + (e & 1) + 8 * (e >> 2); }
DEV u32 pair_at(S<u16> p) { return *reinterpret_cast<u32 *>(p); }
DEV void mma16(Acc &acc, S<u16> A, S<u16> B, int ld) {
    int r = (int)(lane() / 4), k = (int)(lane() & 3) * 2;
    u32 a0 = pair_at(A + r * ld + k), a1 = pair_at(A + (r + 8) * ld + k), a2 = pair_at(A + r * ld + k + 8), a3 = pair_at(A + (r + 8) * ld + k + 8);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 b0 = pair_at(B + (r + 8 * h) * ld + k), b1 = pair_at(B + (r + 8 * h) * ld + k + 8);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(acc.v[4 * h]), "+f"(acc.v[4 * h + 1]), "+f"(acc.v[4 * h + 2]), "+f"(acc.v[4 * h + 3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
}
#else
// The plain twin: the layout of gfx11, the sums in f32.
DEV int mma_row(int e) { return 2 * e + (int)(lane() / 16); }
DEV int mma_col(int) { return (int)(lane() & 15); }
DEV void mma16(Acc &acc, S<u16> A, S<u16> B, int ld) {
    float b[16];
    for (int k = 0; k < 16; k++) { u16 h = B[(lane() & 15) * ld + k]; b[k] = f16_f32(h); }
    for (int e = 0; e < 8; e++) {
        float s = acc.v[e];
        for (int k = 0; k < 16; k++) { u16 h = A[mma_row(e) * ld + k]; s += f16_f32(h) * b[k]; }
        acc.v[e] = s;
    }
}
#endif

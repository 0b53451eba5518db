// One 16x16 tile of f32 += a wave's 16x16 f16 products, behind one name. A is 16 rows of 16 halves in shared memory, B is 16
// columns of 16 halves: D[i][j] += sum_k A[i][k] * B[j][k], with A[i][k] at A[i * lda + k] and B[j][k] at B[j * ldb + k], or
// at B[k * ldb + j] where TRANSPOSED. A lane holds D elements e = 0..7 at (mma_row(e), mma_col(e)).
#pragma once
#include "gpu.h"

struct Acc { float v[8]; };
DEV void clear(Acc &a) {
#pragma unroll
    for (int e = 0; e < 8; e++) a.v[e] = 0.0f;
}

#if GPU_AMD && (defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || defined(__gfx1150__) || defined(__gfx1151__))
// gfx11 WMMA: lane r (0..15) holds row r of A and column r of B; lanes 16..31 repeat them. D[2e + lane/16][lane%16].
typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef float float8 __attribute__((ext_vector_type(8)));
DEV int mma_row(int e) { return 2 * e + (int)(lane() / 16); }
DEV int mma_col(int) { return (int)(lane() & 15); }
template <bool TRANSPOSED> DEV void mma16(Acc &acc, S<u16> A, int lda, S<u16> B, int ldb) {
    int r = (int)(lane() & 15);
    half16 fa, fb;
    __builtin_memcpy(&fa, A + r * lda, 32);
    if constexpr (TRANSPOSED) {
#pragma unroll
        for (int k = 0; k < 16; k++) fb[k] = __builtin_bit_cast(_Float16, B[k * ldb + r]);
    } else {
        __builtin_memcpy(&fb, B + r * ldb, 32);
    }
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
template <bool TRANSPOSED> DEV u32 pair_b(S<u16> B, int ldb, int j, int k) {
    if constexpr (TRANSPOSED) return (u32)B[k * ldb + j] | ((u32)B[(k + 1) * ldb + j] << 16);
    else return pair_at(B + j * ldb + k);
}
template <bool TRANSPOSED> DEV void mma16(Acc &acc, S<u16> A, int lda, S<u16> B, int ldb) {
    int r = (int)(lane() / 4), k = (int)(lane() & 3) * 2;
    u32 a0 = pair_at(A + r * lda + k), a1 = pair_at(A + (r + 8) * lda + k), a2 = pair_at(A + r * lda + k + 8), a3 = pair_at(A + (r + 8) * lda + k + 8);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 b0 = pair_b<TRANSPOSED>(B, ldb, r + 8 * h, k), b1 = pair_b<TRANSPOSED>(B, ldb, r + 8 * h, k + 8);
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(acc.v[4 * h]), "+f"(acc.v[4 * h + 1]), "+f"(acc.v[4 * h + 2]), "+f"(acc.v[4 * h + 3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
}
#elif GPU_SIMT
// The plain twin, in gfx11's layout: each lane reads half a row of A and of B, and shares them with its wave.
DEV int mma_row(int e) { return 2 * e + (int)(lane() / 16); }
DEV int mma_col(int) { return (int)(lane() & 15); }
template <bool TRANSPOSED> DEV void mma16(Acc &acc, S<u16> A, int lda, S<u16> B, int ldb, SIMT_AT) {
    int r = (int)(lane() & 15), k0 = (int)(lane() / 16) * 8;
    float *mine = simt::wave_slot();
    for (int k = k0; k < k0 + 8; k++) {
        u16 x = A[SIMT_IDX(r * lda + k)], y = B[SIMT_IDX(TRANSPOSED ? k * ldb + r : r * ldb + k)];
        mine[k - k0] = f16_f32(x);
        mine[8 + k - k0] = f16_f32(y);
    }
    wave_share(line, file);
    const float *seen = simt::wave_seen(); // 16 floats of each lane: half a row of A, half a row of B
    float b[16];
    for (int k = 0; k < 8; k++) {
        b[k] = seen[mma_col(0) * 16 + 8 + k];
        b[8 + k] = seen[(16 + mma_col(0)) * 16 + 8 + k];
    }
    for (int e = 0; e < 8; e++) {
        const float *a0 = seen + mma_row(e) * 16, *a1 = a0 + 16 * 16;
        float s = acc.v[e];
        for (int k = 0; k < 8; k++) s += a0[k] * b[k];
        for (int k = 0; k < 8; k++) s += a1[k] * b[8 + k];
        acc.v[e] = s;
    }
}
#else
// No matrix unit that this header knows (gfx12's layout differs from gfx11's): plain sums.
DEV int mma_row(int e) { return 2 * e + (int)(lane() / 16); }
DEV int mma_col(int) { return (int)(lane() & 15); }
template <bool TRANSPOSED> DEV void mma16(Acc &acc, S<u16> A, int lda, S<u16> B, int ldb) {
    float b[16];
#pragma unroll
    for (int k = 0; k < 16; k++) b[k] = f16_f32(TRANSPOSED ? B[k * ldb + mma_col(0)] : B[mma_col(0) * ldb + k]);
#pragma unroll
    for (int e = 0; e < 8; e++)
#pragma unroll
        for (int k = 0; k < 16; k++) acc.v[e] += f16_f32(A[mma_row(e) * lda + k]) * b[k];
}
#endif

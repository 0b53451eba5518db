// Products of many activation rows: a 64 x 64 tile per block, weights decoded once per tile into f16, matrix units where the
// target has them. Weights are scaled by 64 on the way into f16 and back at the end, so that small ones keep their digits.
#include "args.h"
#include "mma.h"
#include "quant.h"

#define TM 64 // weight rows
#define TN 64 // activation rows
#define TK 32
#define LD (TK + 8) // padding spreads the rows over the banks

DEV u16 clamp_f16(float v) { return f32_f16(clamp_half(v)); }

// Two halves in a word, held inside what f16 can say.
DEV u32 pack(float lo, float hi) {
#if GPU_NV
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    asm("min.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(0x7bff7bffu));
    asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(0xfbfffbffu));
    return r;
#else
    return (u32)clamp_f16(lo) | ((u32)clamp_f16(hi) << 16);
#endif
}

// 16 elements of a weight row, two to a word.
template <int T, class Grid> DEV void load_weights(P<const u8> row, int k0, int n_in, const Grid &grid, u32 (&to)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) to[i] = 0;
    if (k0 >= n_in) return;
    if constexpr (T == T_F32 || T == T_F16 || T == T_BF16) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int k = k0 + 2 * i;
            to[i] = pack(k < n_in ? 64.0f * plain<T>(row, k) : 0.0f, k + 1 < n_in ? 64.0f * plain<T>(row, k + 1) : 0.0f);
        }
    } else {
        u32 q[4];
        float d, m;
        constexpr int N = Block<T>::N;
        decode16<T>(row + (i64)(k0 / N) * Block<T>::B, (k0 % N) / 16, grid, q, d, m);
        d *= 64.0f;
        m *= 64.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            u32 pair = q[i / 2] >> (16 * (i & 1));
            to[i] = pack(d * (float)(i8)pair + m, d * (float)(i8)(pair >> 8) + m);
        }
    }
}

// Four activations from column k on where a row may end.
DEV u32x2 load_four(P<const float> x, int k, int n_in) {
    float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = 0; i < 4; i++) if (k + i < n_in) v[i] = x[k + i];
    return u32x2{pack(v[0], v[1]), pack(v[2], v[3])};
}

template <int T> DEV void gemm(const GemmArgs &a) {
    constexpr bool LUT = Lut<T>::WORDS > 0;
    SHARED(u32x4, ws4, TM *LD / 8);
    SHARED(u32x4, xs4, TN *LD / 8);
    SHARED(u32x2, lut, LUT ? Lut<T>::WORDS / 2 : 1);
    S<u16> ws = as<u16>(ws4), as_ = as<u16>(xs4);
    PTR(w, a.w); PTR(grid, a.grid); PTR(x, a.x); PTR(tiles, a.tiles); PTR(perm, a.perm); PTR(out, a.out);
    int m0 = (int)bid_x() * TM, first = (int)bid_y() * TN, count = a.rows - first;
    i64 mat = bid_z();
    bool grouped = !is_null(tiles);
    if (grouped) {
        mat = tiles[bid_y() * 3];
        if (mat < 0) return;
        first = tiles[bid_y() * 3 + 1];
        count = tiles[bid_y() * 3 + 2];
    }
    count = imin(count, TN);
    if constexpr (LUT) stage_lut<T>(lut, grid, 128);
    // weights: thread t fills columns 16 * (t % 2) .. of row t / 2
    int lr = (int)tid() / 2, lk = (int)(tid() & 1) * 16;
    auto wrow = w + mat * a.mat_bytes + (i64)imin(m0 + lr, a.n_out - 1) * a.row_bytes;
    // (Rows past the end repeat the last one: what comes of them is not stored.)
    // activations: thread t fills columns 4 * (t % 8) .. of rows t / 8 + 16 j, so that neighbours read neighbours
    int xr = (int)tid() / 8, xk = (int)(tid() & 7) * 4;
    i64 xat[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int r = imin(xr + 16 * j, count - 1);
        i64 row = grouped ? (i64)(perm[first + r] / a.x_div) : (i64)(first + r);
        xat[j] = row * a.x_stride + (grouped ? 0 : (i64)bid_z() * a.x_z);
    }
    // waves: 2 x 2, each 32 x 32
    int wm = (int)(wave_id() & 1) * 32, wn = (int)(wave_id() >> 1) * 32;
    Acc acc[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) clear(acc[i][j]);
    for (int k0 = 0; k0 < a.n_in; k0 += TK) {
        // Into registers first: this may run while other waves still multiply the last tile.
        u32 wv[8];
        u32x2 xv[4];
        if (a.aligned && k0 + TK <= a.n_in) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                f32x4 f = as<const f32x4>(x + xat[j] + k0 + xk)[0];
                xv[j] = u32x2{pack(f.x, f.y), pack(f.z, f.w)};
            }
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) xv[j] = load_four(x + xat[j], k0 + xk, a.n_in);
        }
        if constexpr (LUT) load_weights<T>(wrow, k0 + lk, a.n_in, GridShared{lut}, wv);
        else load_weights<T>(wrow, k0 + lk, a.n_in, GridMemory{grid}, wv);
        sync();
        auto to = as<u32x4>(ws + lr * LD + lk);
        to[0] = u32x4{wv[0], wv[1], wv[2], wv[3]};
        to[1] = u32x4{wv[4], wv[5], wv[6], wv[7]};
#pragma unroll
        for (int j = 0; j < 4; j++) as<u32x2>(as_ + (xr + 16 * j) * LD + xk)[0] = xv[j];
        sync();
#pragma unroll
        for (int kk = 0; kk < TK; kk += 16)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) mma16<false>(acc[i][j], ws + (wm + 16 * i) * LD + kk, LD, as_ + (wn + 16 * j) * LD + kk, LD);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int e = 0; e < 8; e++) {
                int o = m0 + wm + 16 * i + mma_row(e), r = wn + 16 * j + mma_col(e);
                if (o >= a.n_out || r >= count) continue;
                i64 orow = grouped ? (i64)perm[first + r] : (i64)(first + r);
                i64 at = orow * a.out_stride + (grouped ? 0 : (i64)bid_z() * a.out_z) + o;
                float v = acc[i][j].v[e] * (1.0f / 64.0f);
                out[at] = a.accumulate ? out[at] + v : v;
            }
}

#define X(name, T) KERNEL(gemm_##name, 128, 4, GemmArgs) { gemm<T>(a); }
QUANT_TYPES(X)
X(f16, T_F16) // f32 weights stay with mmv4, in f32: the router and the indexer's head weights are what they are
X(bf16, T_BF16)
#undef X

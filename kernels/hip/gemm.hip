// Products of many activation rows: a 64 x 64 tile per block, weights decoded once per tile into f16, matrix units where the
// target has them. Weights are scaled by 64 on the way into f16 and back at the end, so that small ones keep their digits.
#include "args.h"
#include "mma.h"
#include "quant.h"

#define TM 64 // weight rows
#define TN 64 // activation rows
#define TK 32
#define LD (TK + 8) // padding spreads the rows over the banks

DEV u16 clamp_f16(float v) { return f32_f16(fminf_(fmaxf_(v, -65504.0f), 65504.0f)); }

// Every thread fills 16 elements of a weight row.
template <int T> DEV void load_weights(P<const u8> row, int k0, int n_in, bool valid, P<const u32> grid, S<u16> to) {
    if constexpr (T == T_F32 || T == T_F16 || T == T_BF16) {
        for (int i = 0; i < 16; i++) to[i] = valid && k0 + i < n_in ? clamp_f16(64.0f * plain<T>(row, k0 + i)) : (u16)0;
    } else {
        if (!valid || k0 >= n_in) {
            for (int i = 0; i < 16; i++) to[i] = (u16)0;
            return;
        }
        u32 q[4];
        float d, m;
        constexpr int N = Block<T>::N;
        decode16<T>(row + (i64)(k0 / N) * Block<T>::B, (k0 % N) / 16, grid, q, d, m);
        d *= 64.0f;
        m *= 64.0f;
#pragma unroll
        for (int i = 0; i < 16; i++) to[i] = clamp_f16(d * (float)(i8)(q[i / 4] >> (8 * (i & 3))) + m);
    }
}

template <int T> DEV void gemm(const GemmArgs &a) {
    SHARED(u16, ws, TM *LD);
    SHARED(u16, as_, TN *LD);
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
    // loader: thread t fills columns 16 * (t % 2) .. of row t / 2 of both tiles
    int lr = (int)tid() / 2, lk = (int)(tid() & 1) * 16;
    auto wrow = w + mat * a.mat_bytes + (i64)imin(m0 + lr, a.n_out - 1) * a.row_bytes;
    bool wvalid = m0 + lr < a.n_out, xvalid = lr < count;
    i64 xr = 0;
    if (xvalid) xr = grouped ? (i64)(perm[first + lr] / a.x_div) : (i64)(first + lr);
    auto xrow = x + xr * a.x_stride + (grouped ? 0 : (i64)bid_z() * a.x_z);
    // waves: 2 x 2, each 32 x 32
    int wm = (int)(wave_id() & 1) * 32, wn = (int)(wave_id() >> 1) * 32;
    Acc acc[2][2];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) clear(acc[i][j]);
    for (int k0 = 0; k0 < a.n_in; k0 += TK) {
        load_weights<T>(wrow, k0 + lk, a.n_in, wvalid, grid, ws + lr * LD + lk);
        for (int i = 0; i < 16; i++) as_[lr * LD + lk + i] = xvalid && k0 + lk + i < a.n_in ? clamp_f16(xrow[k0 + lk + i]) : (u16)0;
        sync();
#pragma unroll
        for (int kk = 0; kk < TK; kk += 16)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) mma16<false>(acc[i][j], ws + (wm + 16 * i) * LD + kk, LD, as_ + (wn + 16 * j) * LD + kk, LD);
        sync();
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

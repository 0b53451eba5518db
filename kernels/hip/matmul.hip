// Products of few activation rows with weights in blocks: one wave per weight row, integer dot products against activations
// rounded to 8 bits per 32 (quantize_q8). Plain types multiply in f32.
#include "args.h"
#include "quant.h"

#define MMV_WAVES 4

template <int T, int NC> DEV void mmv_quant(const MmvArgs &a) {
    PTR(w, a.w); PTR(grid, a.grid); PTR(xq, a.q); PTR(xd, a.d); PTR(xs, a.s); PTR(ids, a.ids); PTR(out, a.out);
    int o = (int)bid_x() * MMV_WAVES + (int)wave_id();
    if (o >= a.n_out) return;
    int y = (int)bid_y() * NC, units = a.n_in / 32;
    i64 mat = is_null(ids) ? (a.n_mat > 1 ? y % a.n_mat : 0) : ids[y];
    auto row = w + mat * a.mat_bytes + (i64)o * a.row_bytes;
    float acc[NC];
    i64 base[NC];
#pragma unroll
    for (int c = 0; c < NC; c++) {
        acc[c] = 0.0f;
        base[c] = (i64)(imin(y + c, a.rows - 1) / a.x_div) * units;
    }
    constexpr int PER = Block<T>::N / 32;
    for (int u = (int)lane(); u < units; u += WAVE) {
        auto b = row + (i64)(u / PER) * Block<T>::B;
        u32 q[2][4];
        float d[2], m[2];
        decode16<T>(b, (u % PER) * 2, grid, q[0], d[0], m[0]);
        decode16<T>(b, (u % PER) * 2 + 1, grid, q[1], d[1], m[1]);
#pragma unroll
        for (int c = 0; c < NC; c++) {
            i64 at = base[c] + u;
            float sum = 0.0f;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                u32x4 v = as<const u32x4>(xq + at * 8 + 4 * h)[0];
                int s = dp4a(q[h][0], v.x, 0);
                s = dp4a(q[h][1], v.y, s);
                s = dp4a(q[h][2], v.z, s);
                s = dp4a(q[h][3], v.w, s);
                sum += d[h] * (float)s;
            }
            acc[c] += sum * xd[at] + m[0] * xs[at * 2] + m[1] * xs[at * 2 + 1];
        }
    }
#pragma unroll
    for (int c = 0; c < NC; c++) {
        float s = wave_sum(acc[c]);
        if (lane() == 0 && y + c < a.rows) {
            i64 at = (i64)(y + c) * a.out_stride + o;
            out[at] = a.accumulate ? out[at] + s : s;
        }
    }
}

// Types with a codebook and one activation row: the codebook lies in shared memory, since gathers from global memory take a
// cycle for each line that a wave touches. A block goes through rows_per_block weight rows to pay for the copy, and a wave
// takes LUT_ROWS of them at once, so that activations are read once for all.
#define LUT_WAVES 8
#ifndef LUT_ROWS
#define LUT_ROWS 2
#endif
template <int T> DEV void mmv_lut(const MmvArgs &a) {
    PTR(w, a.w); PTR(grid, a.grid); PTR(xq, a.q); PTR(xd, a.d); PTR(xs, a.s); PTR(ids, a.ids); PTR(out, a.out);
    SHARED(u32x2, lut, Lut<T>::WORDS / 2);
    stage_lut<T>(lut, grid, LUT_WAVES * WAVE);
    GridShared table{lut};
    int y = (int)bid_y(), units = a.n_in / 32;
    i64 mat = is_null(ids) ? (a.n_mat > 1 ? y % a.n_mat : 0) : ids[y];
    i64 base = (i64)(y / a.x_div) * units;
    int first = (int)bid_x() * a.rows_per_block, end = imin(first + a.rows_per_block, a.n_out);
    constexpr int PER = Block<T>::N / 32;
    for (int o = first + (int)wave_id() * LUT_ROWS; o < end; o += LUT_WAVES * LUT_ROWS) {
        float acc[LUT_ROWS];
        i64 at[LUT_ROWS];
#pragma unroll
        for (int r = 0; r < LUT_ROWS; r++) {
            acc[r] = 0.0f;
            at[r] = mat * a.mat_bytes + (i64)imin(o + r, a.n_out - 1) * a.row_bytes;
        }
        for (int u = (int)lane(); u < units; u += WAVE) {
            u32x4 v0 = as<const u32x4>(xq + (base + u) * 8)[0], v1 = as<const u32x4>(xq + (base + u) * 8 + 4)[0];
            float dx = xd[base + u], s0 = xs[(base + u) * 2], s1 = xs[(base + u) * 2 + 1];
            i64 block = (i64)(u / PER) * Block<T>::B;
#pragma unroll
            for (int r = 0; r < LUT_ROWS; r++) {
                auto b = w + at[r] + block;
                float d, m;
                if constexpr (OneScale<T>::YES) {
                    u32 q[8];
                    decode32<T>(b, u % PER, lut, q, d, m);
                    int s = dp4a(q[6], v1.z, dp4a(q[4], v1.x, dp4a(q[2], v0.z, dp4a(q[0], v0.x, 0))));
                    int odd = dp4a(q[7], v1.w, dp4a(q[5], v1.y, dp4a(q[3], v0.w, dp4a(q[1], v0.y, 0))));
                    s += T == T_IQ1_S ? odd >> 2 : odd;
                    acc[r] += d * dx * (float)s;
                    if constexpr (T == T_IQ1_S) acc[r] += m * (s0 + s1);
                    continue;
                }
                u32 q[4];
                decode16<T>(b, (u % PER) * 2, table, q, d, m);
                float sum = d * (float)dp4a(q[3], v0.w, dp4a(q[2], v0.z, dp4a(q[1], v0.y, dp4a(q[0], v0.x, 0)))), low = m * s0;
                decode16<T>(b, (u % PER) * 2 + 1, table, q, d, m);
                sum += d * (float)dp4a(q[3], v1.w, dp4a(q[2], v1.z, dp4a(q[1], v1.y, dp4a(q[0], v1.x, 0))));
                acc[r] += sum * dx + low + m * s1;
            }
        }
#pragma unroll
        for (int r = 0; r < LUT_ROWS; r++) {
            float s = wave_sum(acc[r]);
            if (lane() == 0 && o + r < end) {
                i64 to = (i64)y * a.out_stride + o + r;
                out[to] = a.accumulate ? out[to] + s : s;
            }
        }
    }
}

template <int T, int NC> DEV void mmv_plain(const MmvArgs &a) {
    PTR(w, a.w); PTR(x, a.x); PTR(ids, a.ids); PTR(out, a.out);
    int o = (int)bid_x() * MMV_WAVES + (int)wave_id();
    if (o >= a.n_out) return;
    int y = (int)bid_y() * NC;
    i64 mat = is_null(ids) ? (a.n_mat > 1 ? y % a.n_mat : 0) : ids[y];
    auto row = w + mat * a.mat_bytes + (i64)o * a.row_bytes;
    float acc[NC];
    i64 base[NC];
#pragma unroll
    for (int c = 0; c < NC; c++) {
        acc[c] = 0.0f;
        base[c] = (i64)(imin(y + c, a.rows - 1) / a.x_div) * a.x_stride;
    }
    // Routers are f32 and have few rows: what counts is how many loads are in flight.
    bool wide = T == T_F32 && a.n_in % 128 == 0 && a.x_stride % 4 == 0;
    if (wide) {
        auto w4 = as<const u32x4>(row);
#pragma unroll 8
        for (int i = (int)lane(); i < a.n_in / 4; i += WAVE) {
            u32x4 v = w4[i];
#pragma unroll
            for (int c = 0; c < NC; c++) {
                u32x4 y = as<const u32x4>(x + base[c])[i];
                acc[c] += bits_f32(v.x) * bits_f32(y.x) + bits_f32(v.y) * bits_f32(y.y) + bits_f32(v.z) * bits_f32(y.z) +
                          bits_f32(v.w) * bits_f32(y.w);
            }
        }
    }
#pragma unroll 8
    for (int i = wide ? a.n_in : (int)lane(); i < a.n_in; i += WAVE) {
        float v = plain<T>(row, i);
#pragma unroll
        for (int c = 0; c < NC; c++) acc[c] += v * x[base[c] + i];
    }
#pragma unroll
    for (int c = 0; c < NC; c++) {
        float s = wave_sum(acc[c]);
        if (lane() == 0 && y + c < a.rows) {
            i64 at = (i64)(y + c) * a.out_stride + o;
            out[at] = a.accumulate ? out[at] + s : s;
        }
    }
}

// mmv1: one activation row per y, each with its own matrix. mmv4: four rows of one matrix.
#define X(name, T)                                                                                 \
    KERNEL(mmv1_##name, 128, 8, MmvArgs) { mmv_quant<T, 1>(a); }                                   \
    KERNEL(mmv4_##name, 128, 8, MmvArgs) { mmv_quant<T, 4>(a); }
DIRECT_TYPES(X)
#undef X
#define X(name, T)                                                                                 \
    KERNEL(mmv1_##name, LUT_WAVES * WAVE, 8, MmvArgs) { mmv_lut<T>(a); }                           \
    KERNEL(mmv4_##name, 128, 8, MmvArgs) { mmv_quant<T, 4>(a); }
LUT_TYPES(X)
#undef X
#define X(name, T)                                                                                 \
    KERNEL(mmv1_##name, 128, 8, MmvArgs) { mmv_plain<T, 1>(a); }                                   \
    KERNEL(mmv4_##name, 128, 8, MmvArgs) { mmv_plain<T, 4>(a); }
PLAIN_TYPES(X)
#undef X

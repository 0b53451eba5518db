// Norms, embedding, element-wise operations, activation rounding, argmax.
#include "args.h"
#include "quant.h"
#include "round.h"

KERNEL(rms_norm, 256, 4, NormArgs) {
    SHARED(float, scratch, 8);
    PTR(x, a.x); PTR(w, a.w); PTR(out, a.out);
    auto xr = x + bid_x() * a.x_stride;
    auto o = out + (i64)bid_x() * a.dim;
    float s = 0.0f;
    for (int i = (int)tid(); i < a.dim; i += 256) s += xr[i] * xr[i];
    s = block_sum(s, scratch, 8);
    float r = 1.0f / sqrt_(s / (float)a.dim + a.eps);
    for (int i = (int)tid(); i < a.dim; i += 256) o[i] = xr[i] * r * w[i];
}

KERNEL(layer_norm, 256, 4, NormArgs) {
    SHARED(float, scratch, 8);
    PTR(x, a.x); PTR(w, a.w); PTR(b, a.b); PTR(out, a.out);
    auto xr = x + bid_x() * a.x_stride;
    auto o = out + (i64)bid_x() * a.dim;
    float s = 0.0f;
    for (int i = (int)tid(); i < a.dim; i += 256) s += xr[i];
    float mean = block_sum(s, scratch, 8) / (float)a.dim;
    s = 0.0f;
    for (int i = (int)tid(); i < a.dim; i += 256) { float v = xr[i] - mean; s += v * v; }
    float r = 1.0f / sqrt_(block_sum(s, scratch, 8) / (float)a.dim + a.eps);
    for (int i = (int)tid(); i < a.dim; i += 256) o[i] = (xr[i] - mean) * r * w[i] + b[i];
}

// One block of threads per token; a thread decodes 16 weights at a time.
template <int T> DEV void embed_quant(const EmbedArgs &a) {
    PTR(table, a.table); PTR(ids, a.ids); PTR(out, a.out); PTR(grid, a.grid);
    auto row = table + (i64)ids[bid_x()] * a.row_bytes;
    auto o = out + (i64)bid_x() * a.dim;
    constexpr int PER = Block<T>::N / 16;
    for (int g = (int)tid(); g < a.dim / 16; g += 128) {
        u32 q[4];
        float d, m;
        decode16<T>(row + (i64)(g / PER) * Block<T>::B, g % PER, grid, q, d, m);
#pragma unroll
        for (int i = 0; i < 16; i++) o[g * 16 + i] = d * (float)(i8)(q[i / 4] >> (8 * (i & 3))) + m;
    }
}
template <int T> DEV void embed_plain(const EmbedArgs &a) {
    PTR(table, a.table); PTR(ids, a.ids); PTR(out, a.out);
    auto row = table + (i64)ids[bid_x()] * a.row_bytes;
    auto o = out + (i64)bid_x() * a.dim;
    for (int i = (int)tid(); i < a.dim; i += 128) o[i] = plain<T>(row, i);
}
#define X(name, T) KERNEL(embed_##name, 128, 4, EmbedArgs) { embed_quant<T>(a); }
QUANT_TYPES(X)
#undef X
#define X(name, T) KERNEL(embed_##name, 128, 4, EmbedArgs) { embed_plain<T>(a); }
PLAIN_TYPES(X)
#undef X

// A wave takes 32.
KERNEL(quantize_q8, 128, 8, QuantizeArgs) {
    PTR(x, a.x); PTR(q, a.q); PTR(d, a.d); PTR(s, a.s);
    int block = (int)bid_x() * 4 + (int)wave_id(), blocks = a.n / 32;
    if (block >= blocks) return; // whole waves leave together
    i64 row = bid_y();
    round32(x[row * a.x_stride + block * 32 + lane()], row * blocks + block, q, d, s);
}

// rms_norm of at most 8,192 elements, a multiple of 32, and the same rounded: for the products that follow.
KERNEL(rms_norm_q8, 1024, 4, NormQ8Args) {
    SHARED(float, scratch, 32);
    PTR(x, a.x); PTR(w, a.w); PTR(out, a.out); PTR(q, a.q); PTR(d, a.d); PTR(s, a.s);
    i64 row = bid_x();
    auto xr = x + row * a.x_stride;
    auto o = out + row * a.dim;
    float v[8], f[8], sum = 0.0f; // all loads in flight at once
#pragma unroll
    for (int j = 0; j < 8; j++) {
        int i = (int)tid() + 1024 * j;
        v[j] = i < a.dim ? (float)xr[i] : 0.0f;
        f[j] = i < a.dim ? (float)w[i] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < 8; j++) sum += v[j] * v[j];
    float r = 1.0f / sqrt_(block_sum(sum, scratch, 32) / (float)a.dim + a.eps);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        int i = (int)tid() + 1024 * j;
        if (i >= a.dim) break; // whole waves
        float y = v[j] * r * f[j];
        o[i] = y;
        round32(y, (row * a.dim + i) / 32, q, d, s);
    }
}

KERNEL(add, 256, 8, EltArgs) {
    PTR(x, a.x); PTR(y, a.y);
    int i = (int)bid_x() * 256 + (int)tid();
    if (i >= a.n) return;
    i64 at = bid_y() * a.x_stride + i;
    x[at] = x[at] + y[bid_y() * a.y_stride + i];
}

KERNEL(silu_mul, 256, 8, EltArgs) {
    PTR(x, a.x); PTR(y, a.y);
    int i = (int)bid_x() * 256 + (int)tid();
    if (i >= a.n) return;
    i64 at = bid_y() * a.x_stride + i;
    x[at] = silu(x[at]) * y[bid_y() * a.y_stride + i];
}

// The same with its result rounded; n is a multiple of 32.
KERNEL(silu_mul_q8, 128, 8, EltQ8Args) {
    PTR(x, a.x); PTR(y, a.y); PTR(q, a.q); PTR(d, a.d); PTR(s, a.s);
    int i = (int)bid_x() * 128 + (int)tid();
    if (i >= a.n) return; // whole waves
    i64 row = bid_y(), at = row * a.x_stride + i;
    float v = silu(x[at]) * y[row * a.y_stride + i];
    x[at] = v;
    round32(v, (row * a.n + i) / 32, q, d, s);
}

// A larger value, or the same at a lower index. A NaN counts as infinity at index -1, so that it is what is found.
DEV bool better(float v, int i, float bv, int bi) { return v > bv || (v == bv && i < bi); }
KERNEL(argmax, 256, 4, ArgmaxArgs) {
    SHARED(float, vs, 8);
    SHARED(int, is, 8);
    PTR(x, a.x); PTR(out, a.out);
    auto r = x + (i64)bid_x() * a.n;
    float best = neg_inf();
    int at = 0x7fffffff;
    for (int i = (int)tid(); i < a.n; i += 256) {
        float v = r[i];
        bool nan = v != v;
        if (nan) v = -neg_inf();
        if (better(v, nan ? -1 : i, best, at)) { best = v; at = nan ? -1 : i; }
    }
#pragma unroll
    for (int m = 1; m < 32; m <<= 1) {
        float v = shfl_xor(best, m);
        int i = shfl_xor(at, m);
        if (better(v, i, best, at)) { best = v; at = i; }
    }
    if (lane() == 0) { vs[wave_id()] = best; is[wave_id()] = at; }
    sync();
    if (tid() == 0) {
        for (int w = 1; w < 8; w++) {
            float v = vs[w];
            int i = is[w];
            if (better(v, i, best, at)) { best = v; at = i; }
        }
        out[bid_x()] = best == neg_inf() ? -1 : at;
    }
}

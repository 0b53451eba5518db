// Block formats: 16 weights at a time as signed bytes q with value d * q + m. See the table in kernels/src/blocks.
#pragma once
#include "gpu.h"

enum {
    T_F32 = 0, T_F16 = 1, T_Q4_0 = 2, T_Q4_1 = 3, T_Q5_0 = 6, T_Q5_1 = 7, T_Q8_0 = 8, T_Q2_K = 10, T_Q3_K = 11, T_Q4_K = 12, T_Q5_K = 13,
    T_Q6_K = 14, T_IQ2_XXS = 16, T_IQ2_XS = 17, T_IQ3_XXS = 18, T_IQ1_S = 19, T_IQ4_NL = 20, T_IQ3_S = 21, T_IQ2_S = 22, T_IQ4_XS = 23,
    T_IQ1_M = 29, T_BF16 = 30, T_MXFP4 = 39
};

// Elements and bytes of a block, and the alignment that every block of a row has.
template <int T> struct Block;
#define BLOCK(T, n, bytes, align) template <> struct Block<T> { static constexpr int N = n, B = bytes, A = align; }
BLOCK(T_Q4_0, 32, 18, 2); BLOCK(T_Q4_1, 32, 20, 4); BLOCK(T_Q5_0, 32, 22, 2); BLOCK(T_Q5_1, 32, 24, 8); BLOCK(T_Q8_0, 32, 34, 2);
BLOCK(T_Q2_K, 256, 84, 4); BLOCK(T_Q3_K, 256, 110, 2); BLOCK(T_Q4_K, 256, 144, 16); BLOCK(T_Q5_K, 256, 176, 16); BLOCK(T_Q6_K, 256, 210, 2);
BLOCK(T_IQ2_XXS, 256, 66, 2); BLOCK(T_IQ2_XS, 256, 74, 2); BLOCK(T_IQ3_XXS, 256, 98, 2); BLOCK(T_IQ1_S, 256, 50, 2); BLOCK(T_IQ4_NL, 32, 18, 2);
BLOCK(T_IQ3_S, 256, 110, 2); BLOCK(T_IQ2_S, 256, 82, 2); BLOCK(T_IQ4_XS, 256, 136, 8); BLOCK(T_IQ1_M, 256, 56, 8); BLOCK(T_MXFP4, 32, 17, 1);
#undef BLOCK

DEV u32 nib_lo(u32 v) { return v & 0x0f0f0f0fu; }
DEV u32 nib_hi(u32 v) { return (v >> 4) & 0x0f0f0f0fu; }
// Four bits to four bytes of 0 or 1.
DEV u32 spread4(u32 b) { return ((b & 15u) * 0x00204081u) & 0x01010101u; }
// Negates the bytes whose bit is set; no byte of g may be 0.
DEV u32 negate4(u32 g, u32 bits) {
    u32 one = spread4(bits), m = one * 0xffu;
    return (g ^ m) + one;
}
// 7 stored sign bits; the eighth makes their number even.
DEV u32 signs8(u32 i) {
    i &= 127u;
    u32 p = i ^ (i >> 4);
    p ^= p >> 2;
    p ^= p >> 1;
    return i | ((p & 1u) << 7);
}
// Sub-block j of the 12 packed bytes of Q4_K and Q5_K: 6-bit scale and minimum.
template <int A> DEV void scale_min(P<const u8> b, int j, float &sc, float &mn) {
    if (j < 4) {
        sc = (float)(b[j] & 63);
        mn = (float)(b[j + 4] & 63);
    } else {
        sc = (float)((b[j + 4] & 15) | ((b[j - 4] >> 6) << 4));
        mn = (float)((b[j + 4] >> 4) | ((b[j] >> 6) << 4));
    }
}
// -127,-104,-83,-65 / -49,-35,-22,-10 / 1,13,25,38 / 53,69,89,113
DEV u32 kvalues(u32 nibs) { return lookup16(nibs, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u); }
// 0,1,2,3,4,6,8,12 and their negatives
DEV u32 fp4x2(u32 nibs) { return lookup16(nibs, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu); }

// Codebooks in shared memory: their 32-bit words there. The ternary ones are packed, eight weights a word.
template <int T> struct Lut { static constexpr int WORDS = 0; };
template <> struct Lut<T_IQ2_XXS> { static constexpr int WORDS = 512; };
template <> struct Lut<T_IQ2_XS> { static constexpr int WORDS = 1024; };
template <> struct Lut<T_IQ2_S> { static constexpr int WORDS = 2048; };
template <> struct Lut<T_IQ3_XXS> { static constexpr int WORDS = 256; };
template <> struct Lut<T_IQ3_S> { static constexpr int WORDS = 512; };
template <> struct Lut<T_IQ1_S> { static constexpr int WORDS = 2048; };
template <> struct Lut<T_IQ1_M> { static constexpr int WORDS = 2048; };

// Bytes -1, 0, 1 to 0, 1, 2: adding 1 to each without a carry out of 0xff.
DEV u32 ternary(u32 g) { return ((g & 0x7f7f7f7fu) + 0x01010101u) ^ (g & 0x80808080u); }

// A codebook as the kernels read it: entry k of eight weights, or of four.
struct GridMemory {
    P<const u32> p;
    MEMBER void eight(u32 k, u32 &a, u32 &b) const { a = p[2 * k]; b = p[2 * k + 1]; }
    MEMBER void ternary8(u32 k, u32 &a, u32 &b) const { a = ternary(p[2 * k]); b = ternary(p[2 * k + 1]); }
    MEMBER u32 four(u32 k) const { return p[k]; }
};
struct GridShared {
    S<u32x2> p;
    MEMBER void eight(u32 k, u32 &a, u32 &b) const { u32x2 v = p[k]; a = v.x; b = v.y; }
    MEMBER void ternary8(u32 k, u32 &a, u32 &b) const {
        u32 v = as<u32>(p)[k];
        a = v & 0x03030303u;
        b = (v >> 2) & 0x03030303u;
    }
    MEMBER u32 four(u32 k) const { return as<u32>(p)[k]; }
};
// All threads of the block fill the table, `threads` of them.
template <int T> DEV void stage_lut(S<u32x2> lut, P<const u32> grid, int threads) {
    auto to = as<u32>(lut);
    for (int i = (int)tid(); i < Lut<T>::WORDS; i += threads) {
        if constexpr (T == T_IQ1_S || T == T_IQ1_M) to[i] = ternary(grid[2 * i]) | (ternary(grid[2 * i + 1]) << 2);
        else to[i] = grid[i];
    }
    sync();
}

// Group g (16 weights) of the block at `b`.
template <int T, class Grid> DEV void decode16(P<const u8> b, int g, const Grid &grid, u32 (&q)[4], float &d, float &m) {
    constexpr int A = Block<T>::A;
    m = 0.0f;
    if constexpr (T == T_Q4_0 || T == T_Q4_1 || T == T_Q5_0 || T == T_Q5_1 || T == T_IQ4_NL) {
        constexpr int QS = T == T_Q4_0 || T == T_IQ4_NL ? 2 : T == T_Q4_1 ? 4 : T == T_Q5_0 ? 6 : 8;
        d = f16_f32(ld_u16<A>(b, 0));
        u32 high = 0;
        if constexpr (T == T_Q5_0) high = ld_u32<A>(b, 2) >> (16 * g);
        if constexpr (T == T_Q5_1) high = ld_u32<A>(b, 4) >> (16 * g);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 w = ld_u32<A>(b, QS + 4 * i), v = g ? nib_hi(w) : nib_lo(w);
            if constexpr (T == T_Q5_0 || T == T_Q5_1) v |= spread4(high >> (4 * i)) << 4;
            if constexpr (T == T_IQ4_NL) v = kvalues(v);
            q[i] = v;
        }
        if constexpr (T == T_Q4_0) m = -8.0f * d;
        if constexpr (T == T_Q5_0) m = -16.0f * d;
        if constexpr (T == T_Q4_1 || T == T_Q5_1) m = f16_f32(ld_u16<A>(b, 2));
    } else if constexpr (T == T_MXFP4) {
        u32 e = b[0];
        d = bits_f32(e >= 2 ? (e - 1) << 23 : 0x00200000u << e);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 w = ld_u32<A>(b, 1 + 4 * i);
            q[i] = fp4x2(g ? nib_hi(w) : nib_lo(w));
        }
    } else if constexpr (T == T_Q8_0) {
        d = f16_f32(ld_u16<A>(b, 0));
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] = ld_u32<A>(b, 2 + 16 * g + 4 * i);
    } else if constexpr (T == T_Q2_K) {
        int half = g >> 3, sh = ((g & 7) >> 1) * 2;
        u32 s = b[g];
        d = f16_f32(ld_u16<A>(b, 80)) * (float)(s & 15);
        m = -f16_f32(ld_u16<A>(b, 82)) * (float)(s >> 4);
#pragma unroll
        for (int i = 0; i < 4; i++) q[i] = (ld_u32<A>(b, 16 + half * 32 + (g & 1) * 16 + 4 * i) >> sh) & 0x03030303u;
    } else if constexpr (T == T_Q3_K) {
        int half = g >> 3, r = (g & 7) >> 1, o = (g & 1) * 16;
        int low = g < 8 ? b[96 + g] & 15 : b[96 + g - 8] >> 4, hi = (b[104 + (g & 3)] >> (2 * (g >> 2))) & 3;
        d = f16_f32(ld_u16<A>(b, 108)) * (float)((low | (hi << 4)) - 32);
        m = -4.0f * d;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 h = (ld_u32<A>(b, o + 4 * i) >> (half * 4 + r)) & 0x01010101u;
            q[i] = ((ld_u32<A>(b, 32 + half * 32 + o + 4 * i) >> (2 * r)) & 0x03030303u) | (h << 2);
        }
    } else if constexpr (T == T_Q4_K || T == T_Q5_K) {
        float sc, mn;
        int j = g >> 1, o = (g & 1) * 16;
        scale_min<A>(b + 4, j, sc, mn);
        d = f16_f32(ld_u16<A>(b, 0)) * sc;
        m = -f16_f32(ld_u16<A>(b, 2)) * mn;
        constexpr int QS = T == T_Q4_K ? 16 : 48;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 w = ld_u32<A>(b, QS + (g >> 2) * 32 + o + 4 * i), v = j & 1 ? nib_hi(w) : nib_lo(w);
            if constexpr (T == T_Q5_K) v |= ((ld_u32<A>(b, 16 + o + 4 * i) >> j) & 0x01010101u) << 4;
            q[i] = v;
        }
    } else if constexpr (T == T_Q6_K) {
        int half = g >> 3, r = (g & 7) >> 1, o = (g & 1) * 16;
        d = f16_f32(ld_u16<A>(b, 208)) * (float)(i8)b[192 + g];
        m = -32.0f * d;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 w = ld_u32<A>(b, half * 64 + (r & 1) * 32 + o + 4 * i), h = (ld_u32<A>(b, 128 + half * 32 + o + 4 * i) >> (2 * r)) & 0x03030303u;
            q[i] = (r >= 2 ? nib_hi(w) : nib_lo(w)) | (h << 4);
        }
    } else if constexpr (T == T_IQ4_XS) {
        int ib = g >> 1;
        int s = ((b[4 + (ib >> 1)] >> (4 * (ib & 1))) & 15) | (((ld_u16<A>(b, 2) >> (2 * ib)) & 3) << 4);
        d = f16_f32(ld_u16<A>(b, 0)) * (float)(s - 32);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            u32 w = ld_u32<A>(b, 8 + ib * 16 + 4 * i);
            q[i] = kvalues(g & 1 ? nib_hi(w) : nib_lo(w));
        }
    } else if constexpr (T == T_IQ2_XXS) {
        int ib = g >> 1;
        u32 idx = ld_u16<A>(b, 2 + 8 * ib + 2 * (g & 1)), aux = ld_u32<A>(b, 6 + 8 * ib);
        d = f16_f32(ld_u16<A>(b, 0)) * (0.5f + (float)(aux >> 28)) * 0.25f;
#pragma unroll
        for (int t = 0; t < 2; t++) {
            u32 k = (idx >> (8 * t)) & 255u, s = signs8(aux >> (7 * (2 * (g & 1) + t)));
            u32 lo, hi;
            grid.eight(k, lo, hi);
            q[2 * t] = negate4(lo, s);
            q[2 * t + 1] = negate4(hi, s >> 4);
        }
    } else if constexpr (T == T_IQ2_XS) {
        d = f16_f32(ld_u16<A>(b, 0)) * (0.5f + (float)((b[66 + (g >> 1)] >> (4 * (g & 1))) & 15)) * 0.25f;
#pragma unroll
        for (int t = 0; t < 2; t++) {
            u32 v = ld_u16<A>(b, 2 + 4 * g + 2 * t), k = v & 511u, s = signs8(v >> 9);
            u32 lo, hi;
            grid.eight(k, lo, hi);
            q[2 * t] = negate4(lo, s);
            q[2 * t + 1] = negate4(hi, s >> 4);
        }
    } else if constexpr (T == T_IQ2_S) {
        d = f16_f32(ld_u16<A>(b, 0)) * (0.5f + (float)((b[74 + (g >> 1)] >> (4 * (g & 1))) & 15)) * 0.25f;
        u32 idx = ld_u16<A>(b, 2 + 2 * g), sg = ld_u16<A>(b, 34 + 2 * g), qh = (u32)b[66 + (g >> 1)] >> (4 * (g & 1));
#pragma unroll
        for (int t = 0; t < 2; t++) {
            u32 k = ((idx >> (8 * t)) & 255u) | (((qh >> (2 * t)) & 3u) << 8), s = sg >> (8 * t);
            u32 lo, hi;
            grid.eight(k, lo, hi);
            q[2 * t] = negate4(lo, s);
            q[2 * t + 1] = negate4(hi, s >> 4);
        }
    } else if constexpr (T == T_IQ3_XXS) {
        int ib = g >> 1;
        u32 aux = ld_u32<A>(b, 66 + 4 * ib), idx = ld_u32<A>(b, 2 + 8 * ib + 4 * (g & 1));
        d = f16_f32(ld_u16<A>(b, 0)) * (0.5f + (float)(aux >> 28)) * 0.5f;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            u32 s = signs8(aux >> (7 * (2 * (g & 1) + (t >> 1))));
            q[t] = negate4(grid.four((idx >> (8 * t)) & 255u), s >> (4 * (t & 1)));
        }
    } else if constexpr (T == T_IQ3_S) {
        int ib = g >> 1;
        u32 idx = ld_u32<A>(b, 2 + 8 * ib + 4 * (g & 1)), qh = (u32)b[66 + ib] >> (4 * (g & 1)), sg = ld_u16<A>(b, 74 + 2 * g);
        d = f16_f32(ld_u16<A>(b, 0)) * (float)(1 + 2 * ((b[106 + (ib >> 1)] >> (4 * (ib & 1))) & 15));
#pragma unroll
        for (int t = 0; t < 4; t++) q[t] = negate4(grid.four(((idx >> (8 * t)) & 255u) | (((qh >> t) & 1u) << 8)), sg >> (4 * t));
    } else if constexpr (T == T_IQ1_S) {
        int ib = g >> 1;
        u32 idx = ld_u16<A>(b, 2 + 2 * g), qh = ld_u16<A>(b, 34 + 2 * ib);
        d = f16_f32(ld_u16<A>(b, 0)) * (float)(2 * ((qh >> 12) & 7u) + 1);
        m = qh & 0x8000u ? -1.125f * d : -0.875f * d; // the delta, and 1 that the bytes are too high
#pragma unroll
        for (int t = 0; t < 2; t++) {
            u32 k = ((idx >> (8 * t)) & 255u) | (((qh >> (3 * (2 * (g & 1) + t))) & 7u) << 8);
            grid.ternary8(k, q[2 * t], q[2 * t + 1]);
        }
    } else {
        static_assert(T == T_IQ1_M, "no decoder");
        // The delta is per 8 weights: 8 * (grid + 1) + {0, 2} keeps it inside the byte, and m takes both offsets back.
        u32 s01 = ld_u32<A>(b, 48), s23 = ld_u32<A>(b, 52);
        u16 h = (u16)(((s01 >> 12) & 0xfu) | ((s01 >> 24) & 0xf0u) | ((s23 >> 4) & 0xf00u) | ((s23 >> 16) & 0xf000u));
        u32 word = g < 8 ? s01 >> (16 * (g >> 2)) : s23 >> (16 * ((g >> 2) - 2));
        float dl = f16_f32(h) * (float)(2 * ((word >> (3 * (g & 3))) & 7u) + 1);
        d = 0.125f * dl;
        m = -1.125f * dl;
        u32 idx = ld_u16<A>(b, 2 * g), qh = b[32 + g];
#pragma unroll
        for (int t = 0; t < 2; t++) {
            u32 x = qh >> (4 * t), k = ((idx >> (8 * t)) & 255u) | ((x & 7u) << 8), e = x & 8u ? 0u : 0x02020202u;
            u32 g0, g1;
            grid.ternary8(k, g0, g1);
            q[2 * t] = (g0 << 3) | e;
            q[2 * t + 1] = (g1 << 3) | e;
        }
    }
}

template <int T> DEV void decode16(P<const u8> b, int g, P<const u32> grid, u32 (&q)[4], float &d, float &m) {
    decode16<T>(b, g, GridMemory{grid}, q, d, m);
}

// 7 stored sign bits in each byte, of which the eighth makes their number even.
DEV u32 signs8x4(u32 v) {
    u32 p = v ^ ((v >> 4) & 0x0f0f0f0fu);
    p ^= (p >> 2) & 0x03030303u;
    p ^= (p >> 1) & 0x01010101u;
    return v | ((p & 0x01010101u) << 7);
}
// The four 7-bit fields of v in a byte each.
DEV u32 sevens(u32 v) { return (v & 0x7fu) | ((v << 1) & 0x7f00u) | ((v << 2) & 0x7f0000u) | ((v << 3) & 0x7f000000u); }

// Unit ib (32 weights) of the block at `b`, for types with one scale per 32 and a codebook in shared memory. For IQ1_S the odd
// words of q are four times the weights.
template <int T> struct OneScale { static constexpr bool YES = T == T_IQ1_S || T == T_IQ2_XXS || T == T_IQ3_XXS || T == T_IQ3_S; };
template <int T> DEV void decode32(P<const u8> b, int ib, S<u32x2> lut, u32 (&q)[8], float &d, float &m) {
    constexpr int A = Block<T>::A;
    m = 0.0f;
    d = f16_f32(ld_u16<A>(b, 0));
    if constexpr (T == T_IQ1_S) {
        u32 idx = ld_u32<A>(b, 2 + 4 * ib), qh = ld_u16<A>(b, 34 + 2 * ib);
        d *= (float)(2 * ((qh >> 12) & 7u) + 1);
        m = qh & 0x8000u ? -1.125f * d : -0.875f * d;
        auto bytes = as<u8>(lut);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            // index times four: 8 bits of idx, 3 of qh
            u32 low = t == 0 ? idx << 2 : idx >> (8 * t - 2), high = t == 3 ? qh << 1 : qh << (10 - 3 * t);
            u32 v = as<u32>(bytes + (int)((low & 0x3fcu) | (high & 0x1c00u)))[0];
            q[2 * t] = v & 0x03030303u;
            q[2 * t + 1] = v & 0x0c0c0c0cu; // four times the weight: summed apart, which saves the shift
        }
    } else if constexpr (T == T_IQ2_XXS) {
        u32 idx = ld_u32<A>(b, 2 + 8 * ib), aux = ld_u32<A>(b, 6 + 8 * ib), signs = signs8x4(sevens(aux));
        d *= (0.5f + (float)(aux >> 28)) * 0.25f;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            u32x2 v = lut[(idx >> (8 * t)) & 255u];
            q[2 * t] = negate4(v.x, signs >> (8 * t));
            q[2 * t + 1] = negate4(v.y, signs >> (8 * t + 4));
        }
    } else {
        static_assert(T == T_IQ3_XXS || T == T_IQ3_S, "no decoder");
        u32 idx[2] = {ld_u32<A>(b, 2 + 8 * ib), ld_u32<A>(b, 6 + 8 * ib)}, signs, high = 0;
        if constexpr (T == T_IQ3_XXS) {
            u32 aux = ld_u32<A>(b, 66 + 4 * ib);
            signs = signs8x4(sevens(aux));
            d *= (0.5f + (float)(aux >> 28)) * 0.5f;
        } else {
            signs = ld_u32<A>(b, 74 + 4 * ib);
            high = (u32)b[66 + ib] << 8;
            d *= (float)(1 + 2 * ((b[106 + (ib >> 1)] >> (4 * (ib & 1))) & 15));
        }
#pragma unroll
        for (int t = 0; t < 8; t++) {
            u32 k = ((idx[t >> 2] >> (8 * (t & 3))) & 255u) | ((high >> t) & 256u);
            q[t] = negate4(as<u32>(lut)[k], signs >> (4 * t));
        }
    }
}

// Weight i of a plain row.
template <int T> DEV float plain(P<const u8> row, i64 i) {
    return T == T_F32 ? ld_elem<DT_F32>(row, i) : T == T_F16 ? ld_elem<DT_F16>(row, i) : ld_elem<DT_BF16>(row, i);
}

// Every type that the products know: X(name, T, quantised).
#define DIRECT_TYPES(X)                                                                                              \
    X(q4_0, T_Q4_0) X(q4_1, T_Q4_1) X(q5_0, T_Q5_0) X(q5_1, T_Q5_1) X(q8_0, T_Q8_0) X(q2_k, T_Q2_K) X(q3_k, T_Q3_K)   \
    X(q4_k, T_Q4_K) X(q5_k, T_Q5_K) X(q6_k, T_Q6_K) X(iq4_nl, T_IQ4_NL) X(iq4_xs, T_IQ4_XS) X(mxfp4, T_MXFP4)
// Those with a codebook.
#define LUT_TYPES(X)                                                                                                 \
    X(iq2_xxs, T_IQ2_XXS) X(iq2_xs, T_IQ2_XS) X(iq3_xxs, T_IQ3_XXS) X(iq1_s, T_IQ1_S) X(iq3_s, T_IQ3_S)              \
    X(iq2_s, T_IQ2_S) X(iq1_m, T_IQ1_M)
#define QUANT_TYPES(X) DIRECT_TYPES(X) LUT_TYPES(X)
#define PLAIN_TYPES(X) X(f32, T_F32) X(f16, T_F16) X(bf16, T_BF16)

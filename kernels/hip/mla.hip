// Multi-head latent attention: rope, the fused norms, the cache write, and attention over the latent cache.
#include "args.h"
#include "mma.h"
#include "rope.h"
#include "round.h"

DEV void st_cache(int dtype, P<u8> cache, i64 i, float v) {
    if (dtype == DT_F32) st_elem<DT_F32>(cache, i, v);
    else if (dtype == DT_F16) st_elem<DT_F16>(cache, i, v);
    else st_elem<DT_BF16>(cache, i, v);
}
DEV float ld_cache(int dtype, P<const u8> cache, i64 i) {
    if (dtype == DT_F32) return ld_elem<DT_F32>(cache, i);
    if (dtype == DT_F16) return ld_elem<DT_F16>(cache, i);
    return ld_elem<DT_BF16>(cache, i);
}

// Block (row, head); a thread rotates one pair.
KERNEL(rope, 64, 8, RopeArgs) {
    PTR(x, a.x); PTR(pos, a.pos);
    int j = (int)tid();
    if (j >= a.pairs) return;
    i64 at = bid_x() * a.row_stride + bid_y() * a.head_stride + a.offset;
    i64 i0 = at + (a.half_split ? j : 2 * j), i1 = at + (a.half_split ? j + a.pairs : 2 * j + 1);
    SinCos t = rope_angle(pos[bid_x()], a.freq[j]);
    float u = x[i0], v = x[i1];
    x[i0] = u * t.c - v * t.s;
    x[i1] = u * t.s + v * t.c;
}

// Block 2r norms row r's query latent in place, block 2r + 1 makes its cache row.
KERNEL(fused_norm_rope, 256, 4, FusedArgs) {
    SHARED(float, scratch, 8);
    i64 row = bid_x() / 2;
    if ((bid_x() & 1) == 0) {
        PTR(q, a.q); PTR(w, a.q_w);
        if (is_null(q)) return;
        auto x = q + row * a.q_lora;
        float s = 0.0f;
        for (int i = (int)tid(); i < a.q_lora; i += 256) { float v = x[i]; s += v * v; }
        float r = 1.0f / sqrt_(block_sum(s, scratch, 8) / (float)a.q_lora + a.eps);
        PTR(q8, a.q8); PTR(d8, a.d8); PTR(s8, a.s8);
        for (int i = (int)tid(); i < a.q_lora; i += 256) {
            float y = x[i] * r * w[i];
            x[i] = y;
            if (!is_null(q8)) round32(y, (row * a.q_lora + i) / 32, q8, d8, s8); // q_lora is then a multiple of 32
        }
        return;
    }
    PTR(kv, a.kv); PTR(w, a.kv_w); PTR(cache, a.cache); PTR(slots, a.slots); PTR(pos, a.pos);
    int width = a.lora + 2 * a.pairs;
    auto x = kv + row * width;
    float s = 0.0f;
    for (int i = (int)tid(); i < a.lora; i += 256) { float v = x[i]; s += v * v; }
    float r = 1.0f / sqrt_(block_sum(s, scratch, 8) / (float)a.lora + a.eps);
    i64 to = (i64)slots[row] * width;
    for (int i = (int)tid(); i < a.lora; i += 256) st_cache(a.dtype, cache, to + i, x[i] * r * w[i]);
    for (int j = (int)tid(); j < a.pairs; j += 256) {
        int i0 = a.lora + (a.half_split ? j : 2 * j), i1 = a.lora + (a.half_split ? j + a.pairs : 2 * j + 1);
        SinCos t = rope_angle(pos[row], a.freq[j]);
        float u = x[i0], v = x[i1];
        st_cache(a.dtype, cache, to + i0, u * t.c - v * t.s);
        st_cache(a.dtype, cache, to + i1, u * t.s + v * t.c);
    }
}

// Rows into a cache: [latent | roped key], or an indexer key alone.
KERNEL(cache_rows, 128, 8, CacheArgs) {
    PTR(x, a.a); PTR(y, a.b); PTR(cache, a.cache); PTR(slots, a.slots);
    i64 row = bid_x(), to = (i64)slots[row] * (a.n0 + a.n1);
    for (int i = (int)tid(); i < a.n0; i += 128) st_cache(a.dtype, cache, to + i, x[row * a.a_stride + i]);
    for (int i = (int)tid(); i < a.n1; i += 128) st_cache(a.dtype, cache, to + a.n0 + i, y[row * a.b_stride + i]);
}

// ---------------------------------------------------------------- attention in the absorbed form
// Block (split, 8 heads, row). Keys come in tiles of 8, shared by the heads; the softmax is kept running, and the weighted
// latent stays in registers: thread t holds elements t and t + 256 of all 8 heads.
#define HEADS 8
#define KEYS 8
#define MAX_LORA 512
#define MAX_WIDTH 576

// First slot that counts: that of the sequence, or of the window's last keys.
DEV i64 first_key(const MlaArgs &a, i64 base, i64 slot) {
    i64 first = slot + 1 - a.window;
    return a.window > 0 && first > base ? first : base;
}

// What the weighted latent of head h is divided by: `sum` of the keys' exponentials above `top`, and the sink's share. No keys make
// a sum of zero; NaN is to stay NaN, hence the comparisons with zero here and below.
DEV float denominator(const MlaArgs &a, int h, float top, float sum) {
    PTR(sinks, a.sinks);
    return !is_null(sinks) && sum > 0.0f ? sum + exp_(sinks[h] - top) : sum;
}

// Logarithm of the keys' sum; minus infinity without keys.
DEV void store_lse(const MlaArgs &a, i64 rh, float top, float sum) {
    PTR(lse, a.lse);
    if (!is_null(lse)) lse[rh] = sum == 0.0f ? neg_inf() : top + log_(sum);
}

KERNEL(mla_attention, 256, 4, MlaArgs) {
    SHARED(float, qs, HEADS *MAX_WIDTH);
    SHARED(float, ks, KEYS *MAX_WIDTH);
    SHARED(float, score, HEADS *KEYS);
    SHARED(float, prob, HEADS *KEYS);
    SHARED(float, alpha, HEADS);
    PTR(qa, a.qa); PTR(q, a.q); PTR(cache, a.cache); PTR(base, a.base); PTR(slots, a.slots); PTR(index, a.index); PTR(count, a.count);
    PTR(part, a.part); PTR(stat, a.stat); PTR(out, a.out);
    int split = (int)bid_x(), h0 = (int)bid_y() * HEADS, heads = imin(HEADS, a.heads - h0), width = a.lora + a.rope;
    i64 row = bid_z();
    bool sparse = !is_null(index);
    i64 first = first_key(a, base[row], slots[row]);
    int n = sparse ? count[row] : (int)(slots[row] - first) + 1;
    int k0 = (int)((i64)n * split / a.splits), k1 = (int)((i64)n * (split + 1) / a.splits);
    { // a wave takes a whole row, so that its loads do not wait for each other
        int r = (int)wave_id();
        i64 rh = row * a.heads + h0 + imin(r, heads - 1);
#pragma unroll 8
        for (int c = (int)lane(); c < width; c += WAVE) {
            float v = c < a.lora ? qa[rh * a.lora + c] : q[rh * a.q_stride + a.pe_offset + (c - a.lora)];
            qs[r * MAX_WIDTH + c] = r < heads ? v : 0.0f;
        }
    }
    float acc[HEADS][2], m = neg_inf(), l = 0.0f; // m, l: thread h keeps head h's
#pragma unroll
    for (int h = 0; h < HEADS; h++) acc[h][0] = acc[h][1] = 0.0f;
    int c0 = (int)tid(), c1 = (int)tid() + 256;
    for (int t = k0; t < k1; t += KEYS) {
        int tile = imin(KEYS, k1 - t);
        if ((int)wave_id() < tile) {
            int r = (int)wave_id();
            i64 slot = first + (sparse ? (int)index[row * a.k + t + r] : t + r);
#pragma unroll 8
            for (int c = (int)lane(); c < width; c += WAVE) ks[r * MAX_WIDTH + c] = ld_cache(a.dtype, cache, slot * width + c);
        }
        sync();
        int k = (int)wave_id();
        if (k < tile) {
            float s[HEADS];
#pragma unroll
            for (int h = 0; h < HEADS; h++) s[h] = 0.0f;
            for (int c = (int)lane(); c < width; c += WAVE) {
                float v = ks[k * MAX_WIDTH + c];
#pragma unroll
                for (int h = 0; h < HEADS; h++) s[h] += v * qs[h * MAX_WIDTH + c];
            }
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                float v = wave_sum(s[h]);
                if (lane() == 0) score[h * KEYS + k] = v * a.scale;
            }
        }
        sync();
        if (tid() < HEADS) {
            int h = (int)tid();
            float top = m;
            for (int j = 0; j < tile; j++) top = fmaxf_(top, score[h * KEYS + j]);
            float keep = exp_(m - top); // exp(-inf) is 0 at the first tile
            l *= keep;
            for (int j = 0; j < tile; j++) {
                float p = exp_(score[h * KEYS + j] - top);
                l += p;
                prob[h * KEYS + j] = p;
            }
            alpha[h] = keep;
            m = top;
        }
        sync();
        float v0[KEYS], v1[KEYS];
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
            v0[j] = j < tile && c0 < a.lora ? (float)ks[j * MAX_WIDTH + c0] : 0.0f;
            v1[j] = j < tile && c1 < a.lora ? (float)ks[j * MAX_WIDTH + c1] : 0.0f;
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float keep = alpha[h];
            acc[h][0] *= keep;
            acc[h][1] *= keep;
#pragma unroll
            for (int j = 0; j < KEYS; j++)
                if (j < tile) {
                    float p = prob[h * KEYS + j];
                    acc[h][0] += p * v0[j];
                    acc[h][1] += p * v1[j];
                }
        }
        sync();
    }
    // m and l to everybody, through the score tile
    if (tid() < HEADS) { score[tid() * 2] = m; score[tid() * 2 + 1] = l; }
    sync();
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (h >= heads) continue;
        i64 rh = row * a.heads + h0 + h;
        float top = score[h * 2], sum = score[h * 2 + 1];
        if (a.splits == 1) {
            float r = sum == 0.0f ? 0.0f : 1.0f / denominator(a, h0 + h, top, sum);
            if (tid() == 0) store_lse(a, rh, top, sum);
            if (c0 < a.lora) out[rh * a.lora + c0] = acc[h][0] * r;
            if (c1 < a.lora) out[rh * a.lora + c1] = acc[h][1] * r;
        } else {
            i64 at = rh * a.splits + split;
            if (c0 < a.lora) part[at * a.lora + c0] = acc[h][0];
            if (c1 < a.lora) part[at * a.lora + c1] = acc[h][1];
            if (tid() == 0) { stat[at * 2] = top; stat[at * 2 + 1] = sum; }
        }
    }
}

// The same with matrix units, for 16-bit caches whose rows are multiples of 16: block (split, 16 heads, row), tiles of 16 keys.
// The eight waves share the scores' sum over the row and add up in shared memory; each then owns every eighth 16 columns of
// the weighted latent. Probabilities are rounded to f16 before they are summed, so that they still sum to one.
#define MH 16
#define MK 16
#define MLD (MAX_WIDTH + 8)
#define PLD 24

KERNEL(mla_attention_mma, 256, 4, MlaArgs) {
    SHARED(u16, qs, MH *MLD);
    SHARED(u16, ks, MK *MLD);
    SHARED(u16, ps, MH *PLD);
    SHARED(float, sums, 8 * MH * MK);
    SHARED(float, alpha, MH);
    PTR(qa, a.qa); PTR(q, a.q); PTR(cache, a.cache); PTR(base, a.base); PTR(slots, a.slots); PTR(index, a.index); PTR(count, a.count);
    PTR(part, a.part); PTR(stat, a.stat); PTR(out, a.out);
    int split = (int)bid_x(), h0 = (int)bid_y() * MH, heads = imin(MH, a.heads - h0), width = a.lora + a.rope;
    i64 row = bid_z();
    bool sparse = !is_null(index);
    i64 first = first_key(a, base[row], slots[row]);
    int n = sparse ? count[row] : (int)(slots[row] - first) + 1;
    int k0 = (int)((i64)n * split / a.splits), k1 = (int)((i64)n * (split + 1) / a.splits);
    // A wave takes whole rows, so that its loads do not wait for each other.
    for (int r = (int)wave_id(); r < MH; r += 8) {
        i64 rh = row * a.heads + h0 + imin(r, heads - 1);
#pragma unroll 8
        for (int c = (int)lane(); c < width; c += WAVE) {
            float v = c < a.lora ? qa[rh * a.lora + c] : q[rh * a.q_stride + a.pe_offset + (c - a.lora)];
            qs[r * MLD + c] = r < heads ? f32_f16(clamp_half(v)) : (u16)0;
        }
    }
    Acc acc[4];
#pragma unroll
    for (int t = 0; t < 4; t++) clear(acc[t]);
    int wave = (int)wave_id(), h = (int)tid() / MK, key = (int)tid() % MK; // this thread's score
    float m = neg_inf(), l = 0.0f;                                          // of head h, the same in its 16 lanes
    for (int t0 = k0; t0 < k1; t0 += MK) {
        int tile = imin(MK, k1 - t0);
        for (int k = (int)wave_id(); k < MK; k += 8) {
            int kk = t0 + imin(k, tile - 1);
            i64 slot = first + (sparse ? (int)index[row * a.k + kk] : kk);
#pragma unroll 8
            for (int c = (int)lane(); c < width; c += WAVE) {
                u16 v = as<const u16>(cache)[slot * width + c];
                if (a.dtype == DT_BF16) v = f32_f16(clamp_half(bf16_f32(v)));
                ks[k * MLD + c] = k < tile ? v : (u16)0;
            }
        }
        sync();
        Acc s;
        clear(s);
        for (int c = wave * 16; c < width; c += 128) mma16<false>(s, qs + c, MLD, ks + c, MLD);
#pragma unroll
        for (int e = 0; e < 8; e++) sums[(wave * MH + mma_row(e)) * MK + mma_col(e)] = s.v[e];
        sync();
        float score = 0.0f;
#pragma unroll
        for (int w = 0; w < 8; w++) score += sums[(w * MH + h) * MK + key];
        score = key < tile ? score * a.scale : neg_inf();
        float top = fmaxf_(m, score);
#pragma unroll
        for (int x = 1; x < 16; x <<= 1) top = fmaxf_(top, shfl_xor(top, x));
        float keep = exp_(m - top);
        u16 ph = f32_f16(exp_(score - top));
        float p = f16_f32(ph);
#pragma unroll
        for (int x = 1; x < 16; x <<= 1) p += shfl_xor(p, x);
        l = l * keep + p;
        m = top;
        ps[h * PLD + key] = ph;
        if (key == 0) alpha[h] = keep;
        sync();
#pragma unroll
        for (int t = 0; t < 4; t++) {
            int c = (wave + 8 * t) * 16;
            if (c >= a.lora) continue; // the whole wave
#pragma unroll
            for (int e = 0; e < 8; e++) acc[t].v[e] *= alpha[mma_row(e)];
            mma16<true>(acc[t], ps, PLD, ks + c, MLD);
        }
        sync();
    }
    if (key == 0) sums[h] = l == 0.0f ? 0.0f : 1.0f / denominator(a, h0 + imin(h, heads - 1), m, l);
    sync();
#pragma unroll
    for (int t = 0; t < 4; t++) {
        int c = (wave + 8 * t) * 16;
        if (c >= a.lora) continue;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int hh = mma_row(e);
            if (hh >= heads) continue;
            i64 rh = row * a.heads + h0 + hh;
            if (a.splits == 1) out[rh * a.lora + c + mma_col(e)] = acc[t].v[e] * sums[hh];
            else part[(rh * a.splits + split) * a.lora + c + mma_col(e)] = acc[t].v[e];
        }
    }
    if (key == 0 && h < heads) {
        i64 rh = row * a.heads + h0 + h, at = rh * a.splits + split;
        if (a.splits == 1) store_lse(a, rh, m, l);
        else { stat[at * 2] = m; stat[at * 2 + 1] = l; }
    }
}

// Joins the splits of one row and head.
KERNEL(mla_merge, 256, 8, MlaArgs) {
    PTR(part, a.part); PTR(stat, a.stat); PTR(out, a.out);
    i64 rh = bid_x();
    float top = neg_inf();
    for (int s = 0; s < a.splits; s++) top = fmaxf_(top, stat[(rh * a.splits + s) * 2]);
    float total = 0.0f;
    for (int s = 0; s < a.splits; s++) {
        float l = stat[(rh * a.splits + s) * 2 + 1];
        if (l != 0.0f) total += l * exp_(stat[(rh * a.splits + s) * 2] - top);
    }
    float r = total == 0.0f ? 0.0f : 1.0f / denominator(a, (int)(rh % a.heads), top, total);
    if (tid() == 0) store_lse(a, rh, top, total);
    for (int c = (int)tid(); c < a.lora; c += 256) {
        float v = 0.0f;
        for (int s = 0; s < a.splits; s++) {
            i64 at = rh * a.splits + s;
            if (stat[at * 2 + 1] != 0.0f) v += part[at * a.lora + c] * exp_(stat[at * 2] - top);
        }
        out[rh * a.lora + c] = v * r;
    }
}

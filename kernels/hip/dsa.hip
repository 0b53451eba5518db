// DeepSeek sparse attention: the indexer's scores and the choice of the best keys.
#include "args.h"

#define IDX_KEYS 64
#define IDX_HEADS 32
#define IDX_DIM 128

// Block (64 keys, row). Keys lie transposed in shared memory; thread (key, g) sums heads 8g .. 8g+7 of each 32.
KERNEL(indexer_logits, 256, 4, IndexerArgs) {
    SHARED(float, kt, IDX_DIM *IDX_KEYS);
    SHARED(float, qs, IDX_HEADS *IDX_DIM);
    PTR(q, a.q); PTR(w, a.w); PTR(cache, a.cache); PTR(base, a.base); PTR(slots, a.slots); PTR(out, a.out);
    i64 row = bid_y(), first = base[row];
    int n = (int)(slots[row] - first) + 1, k0 = (int)bid_x() * IDX_KEYS;
    if (k0 >= n) return;
    for (int i = (int)tid(); i < IDX_KEYS * a.dim; i += 256) {
        int k = i / a.dim, d = i - k * a.dim;
        float v = 0.0f;
        if (k0 + k < n) {
            i64 at = (first + k0 + k) * a.dim + d;
            v = a.dtype == DT_F32 ? ld_elem<DT_F32>(cache, at) : a.dtype == DT_F16 ? ld_elem<DT_F16>(cache, at) : ld_elem<DT_BF16>(cache, at);
        }
        kt[d * IDX_KEYS + k] = v;
    }
    int key = (int)tid() % IDX_KEYS, g = (int)tid() / IDX_KEYS;
    float total = 0.0f;
    for (int h0 = 0; h0 < a.heads; h0 += IDX_HEADS) {
        int heads = imin(IDX_HEADS, a.heads - h0);
        for (int i = (int)tid(); i < IDX_HEADS * a.dim; i += 256) {
            int h = i / a.dim;
            qs[i] = h < heads ? q[(row * a.heads + h0) * a.dim + i] : 0.0f;
        }
        sync();
        float s[8];
#pragma unroll
        for (int j = 0; j < 8; j++) s[j] = 0.0f;
        for (int d = 0; d < a.dim; d++) {
            float v = kt[d * IDX_KEYS + key];
#pragma unroll
            for (int j = 0; j < 8; j++) s[j] += v * qs[(g * 8 + j) * a.dim + d];
        }
#pragma unroll
        for (int j = 0; j < 8; j++)
            if (g * 8 + j < heads) total += w[row * a.heads + h0 + g * 8 + j] * fmaxf_(s[j], 0.0f);
        sync();
    }
    // the four groups of heads meet in the key tile, which nobody reads any more
    kt[g * IDX_KEYS + key] = total;
    sync();
    if (g == 0 && k0 + key < n) {
        float s = (float)kt[key] + (float)kt[IDX_KEYS + key] + (float)kt[2 * IDX_KEYS + key] + (float)kt[3 * IDX_KEYS + key];
        out[row * a.stride + k0 + key] = s * a.scale;
    }
}

// Order-preserving: a larger float has the larger key; NaN is below everything.
DEV u32 sort_key(float v) {
    u32 b = f32_bits(v);
    if (v != v) return 0;
    if (b == 0x80000000u) b = 0; // -0 ties with 0
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

#define TOPK_THREADS 1024
#define TOPK_WAVES 32

// Adds each lane's bin to the histogram; 256 is none. Scores share their leading bits, so lanes of one bin add together.
DEV void count_bins(S<u32> hist, u32 bin) {
    for (int round = 0; round < 4; round++) {
        u32 live = wave_ballot(bin < 256);
        if (live == 0) return; // all lanes know
        int leader = (int)popcount((live & (0u - live)) - 1);
        u32 first = (u32)shfl((int)bin, leader);
        bool mine = bin == first;
        u32 same = popcount(wave_ballot(mine));
        if ((int)lane() == leader) atomic_add(hist, (i64)first, same);
        if (mine) bin = 256;
    }
    if (bin < 256) atomic_add(hist, (i64)bin, 1u);
}

// Block per row: four passes of 8 bits find the k-th largest key, then one pass in index order writes what lies above it, and
// of what equals it the lowest indices. Deterministic, and the indices come out ascending.
KERNEL(topk_select, TOPK_THREADS, 8, TopkArgs) {
    SHARED(u32, hist, 256);
    SHARED(u32, pick, 2);
    SHARED(u32, wsum, 2 * TOPK_WAVES);
    PTR(scores, a.scores); PTR(base, a.base); PTR(slots, a.slots); PTR(index, a.index); PTR(count, a.count);
    i64 row = bid_x();
    int n = slots[row] - base[row] + 1;
    auto to = index + row * a.k;
    if (n <= a.k) {
        for (int i = (int)tid(); i < a.k; i += TOPK_THREADS) to[i] = i < n ? i : -1;
        if (tid() == 0) count[row] = n;
        return;
    }
    auto x = scores + row * a.stride;
    u32 prefix = 0, need = (u32)a.k; // need: how many to take among the keys that share the prefix
    for (int shift = 24; shift >= 0; shift -= 8) {
        if (tid() < 256) hist[tid()] = 0;
        sync();
        u32 mask = shift == 24 ? 0u : 0xffffffffu << (shift + 8);
        for (int c0 = 0; c0 < n; c0 += 4 * TOPK_THREADS) {
            float v[4]; // four loads in flight
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int i = c0 + j * TOPK_THREADS + (int)tid();
                v[j] = i < n ? (float)x[i] : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u32 key = sort_key(v[j]);
                bool in = c0 + j * TOPK_THREADS + (int)tid() < n && (key & mask) == prefix;
                count_bins(hist, in ? (key >> shift) & 255u : 256u);
            }
        }
        sync();
        if (wave_id() == 0) { // a lane sums eight bins, the highest ones in lane 0
            u32 sum = 0;
            for (int j = 0; j < 8; j++) sum += hist[255 - 8 * (int)lane() - j];
            u32 upto = sum;
            for (int d = 1; d < WAVE; d <<= 1) {
                u32 other = (u32)shfl((int)upto, ((int)lane() - d) & (WAVE - 1));
                if ((int)lane() >= d) upto += other;
            }
            u32 above = upto - sum;
            if (above < need && upto >= need) { // one lane
                int b = 255 - 8 * (int)lane();
                for (;; b--) {
                    u32 c = hist[b];
                    if (above + c >= need) break;
                    above += c;
                }
                pick[0] = (u32)b;
                pick[1] = need - above;
            }
        }
        sync();
        prefix |= (u32)pick[0] << shift;
        need = pick[1];
        sync();
    }
    u32 taken = 0, equal = 0; // over the chunks before this one
    for (int c0 = 0; c0 < n; c0 += TOPK_THREADS) {
        int i = c0 + (int)tid();
        u32 key = i < n ? sort_key(x[i]) : 0;
        bool eq = i < n && key == prefix, gt = i < n && key > prefix;
        u32 below = (1u << lane()) - 1, be = wave_ballot(eq), bg = wave_ballot(gt);
        u32 eq_in_wave = popcount(be & below), gt_in_wave = popcount(bg & below);
        if (lane() == 0) { wsum[wave_id()] = popcount(be); wsum[TOPK_WAVES + wave_id()] = popcount(bg); }
        sync();
        u32 eq_before = equal, gt_before = taken, eq_all = equal, gt_all = taken;
#pragma unroll
        for (u32 w = 0; w < TOPK_WAVES; w++) {
            u32 e = wsum[w], g = wsum[TOPK_WAVES + w];
            if (w < wave_id()) { eq_before += e; gt_before += g; }
            eq_all += e;
            gt_all += g;
        }
        u32 eq_rank = eq_before + eq_in_wave;
        // what stands before index i in the output: all greater before it and the chosen equal before it
        u32 at = gt_before + gt_in_wave + (eq_rank < need ? eq_rank : need);
        if (gt || (eq && eq_rank < need)) to[at] = i;
        equal = eq_all;
        taken = gt_all;
        sync();
    }
    if (tid() == 0) count[row] = a.k;
}

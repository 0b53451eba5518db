// Mixture of experts: routing, grouping pairs (token, choice) by expert, and the weighted sum of the experts' results.
#include "args.h"

#define MAX_EXPERTS 1024
#define MAX_GROUPS 64

// One wave per token.
KERNEL(moe_route, 32, 4, RouteArgs) {
    SHARED(float, prob, MAX_EXPERTS);
    SHARED(float, choice, MAX_EXPERTS);
    SHARED(float, group, MAX_GROUPS);
    PTR(logits, a.logits); PTR(bias, a.bias); PTR(ids, a.ids); PTR(weights, a.weights);
    i64 row = bid_x();
    auto x = logits + row * a.experts;
    int l = (int)lane();
    float top = neg_inf();
    for (int e = l; e < a.experts; e += WAVE) top = fmaxf_(top, x[e]);
    top = wave_max(top);
    float sum = 0.0f;
    for (int e = l; e < a.experts; e += WAVE) {
        float p = a.softmax ? exp_(x[e] - top) : sigmoid(x[e]);
        sum += p;
        prob[e] = p;
    }
    sum = wave_sum(sum);
    for (int e = l; e < a.experts; e += WAVE) {
        float p = prob[e];
        if (a.softmax) { p /= sum; prob[e] = p; }
        choice[e] = is_null(bias) ? p : p + bias[e];
    }
    sync();
    if (a.groups > 1) { // a group counts by its two best choices; the groups_used best stay, the lower one on ties
        int size = a.experts / a.groups;
        for (int g = l; g < a.groups; g += WAVE) {
            float b0 = neg_inf(), b1 = neg_inf();
            for (int i = 0; i < size; i++) {
                float c = choice[g * size + i];
                if (c > b0) { b1 = b0; b0 = c; } else if (c > b1) b1 = c;
            }
            group[g] = size > 1 ? b0 + b1 : b0;
        }
        sync();
        for (int e = l; e < a.experts; e += WAVE) {
            int g = e / size, rank = 0;
            float mine = group[g];
            for (int i = 0; i < a.groups; i++) {
                float o = group[i];
                if (o > mine || (o == mine && i < g)) rank++;
            }
            if (rank >= a.groups_used) choice[e] = neg_inf();
        }
        sync();
    }
    float total = 0.0f;
    for (int k = 0; k < a.top_k; k++) {
        float best = neg_inf();
        int at = 0x7fffffff;
        for (int e = l; e < a.experts; e += WAVE) {
            float c = choice[e];
            if (c > best || (c == best && e < at)) { best = c; at = e; }
        }
#pragma unroll
        for (int m = 1; m < 32; m <<= 1) {
            float c = shfl_xor(best, m);
            int e = shfl_xor(at, m);
            if (c > best || (c == best && e < at)) { best = c; at = e; }
        }
        if (at >= a.experts) at = 0; // every choice is NaN
        float p = prob[at];
        total += p;
        sync();
        if (l == 0) {
            ids[row * a.top_k + k] = at;
            group[k] = p; // the groups have been judged
            choice[at] = bits_f32(0x7fc00000u); // NaN is never chosen again
        }
        sync();
    }
    float f = a.norm ? a.scale / fmaxf_(total, 6.103515625e-5f) : a.scale;
    for (int k = l; k < a.top_k; k += WAVE) weights[row * a.top_k + k] = group[k] * f;
}

// One block. Thread e lists the pairs of expert e in their order, so the result does not depend on timing.
KERNEL(moe_sort, 256, 4, SortArgs) {
    SHARED(int, start, MAX_EXPERTS + 1);
    SHARED(int, tile0, MAX_EXPERTS + 1);
    PTR(ids, a.ids); PTR(perm, a.perm); PTR(tiles, a.tiles);
    for (int e = (int)tid(); e < a.experts; e += 256) {
        int n = 0;
        for (int i = 0; i < a.pairs; i++) n += ids[i] == e;
        start[e] = n;
    }
    sync();
    if (tid() == 0) {
        int at = 0, t = 0;
        for (int e = 0; e < a.experts; e++) {
            int n = start[e];
            start[e] = at;
            tile0[e] = t;
            at += n;
            t += (n + a.tile - 1) / a.tile;
        }
        start[a.experts] = at;
        tile0[a.experts] = t;
    }
    sync();
    for (int e = (int)tid(); e < a.experts; e += 256) {
        int at = start[e], end = start[e + 1], t = tile0[e];
        int p = at;
        for (int i = 0; i < a.pairs; i++)
            if (ids[i] == e) perm[p++] = i;
        for (int f = at; f < end; f += a.tile, t++) {
            tiles[t * 3] = e;
            tiles[t * 3 + 1] = f;
            tiles[t * 3 + 2] = imin(a.tile, end - f);
        }
    }
    for (int t = (int)tile0[a.experts] + (int)tid(); t < a.max_tiles; t += 256) {
        tiles[t * 3] = -1;
        tiles[t * 3 + 1] = 0;
        tiles[t * 3 + 2] = 0;
    }
}

KERNEL(moe_combine, 256, 8, CombineArgs) {
    PTR(y, a.y); PTR(weights, a.weights); PTR(out, a.out);
    i64 row = bid_y();
    int i = (int)bid_x() * 256 + (int)tid();
    if (i >= a.dim) return;
    float s = 0.0f;
    for (int k = 0; k < a.top_k; k++) s += weights[row * a.top_k + k] * y[(row * a.top_k + k) * a.dim + i];
    out[row * a.dim + i] = out[row * a.dim + i] + s;
}

// The argument structs of all kernels. Every field here has a twin, in the same order, in kernels/src/gpu/args.rs; a test
// compares the sizes. Pointers come first, so that no padding is hidden between fields.
#pragma once
#include "gpu.h"

#define MAX_ROPE_PAIRS 64

struct NormArgs { // rms_norm, layer_norm
    G<const float> x; G<const float> w; G<const float> b; G<float> out;
    i64 x_stride; i32 rows, dim; float eps; i32 pad;
};
struct EmbedArgs {
    G<const u8> table; G<const i32> ids; G<float> out; G<const u32> grid;
    i64 row_bytes; i32 rows, dim;
};
struct QuantizeArgs { // x row r starts at r * x_stride
    G<const float> x; G<u32> q; G<float> d; G<float> s;
    i64 x_stride; i32 rows, n;
};
// One product per y: matrix ids[y] (or y % n_mat), activation row y / x_div, output row y.
struct MmvArgs {
    G<const u8> w; G<const u32> grid; G<const float> x; G<const u32> q; G<const float> d; G<const float> s; G<const i32> ids; G<float> out;
    i64 row_bytes, mat_bytes, x_stride, out_stride;
    i32 rows, n_in, n_out, n_mat, x_div, accumulate, rows_per_block, pad; // weight rows per block: kernels with a table only
};
// Tiled product. Without `tiles`: rows x one matrix per z, whose activations and results start z * x_z and z * out_z further on.
// With `tiles` (experts): tile t is i32 {expert, first, count}, and the pair perm[first + i] has x row pair / x_div, out row pair.
struct GemmArgs {
    G<const u8> w; G<const u32> grid; G<const float> x; G<const i32> tiles; G<const i32> perm; G<float> out;
    i64 row_bytes, mat_bytes, x_stride, out_stride, x_z, out_z;
    i32 rows, n_in, n_out, x_div, accumulate, aligned; // aligned: x rows may be read 16 bytes at a time
};
struct EltArgs { // add: x += y; silu_mul: x = silu(x) * y, row by row
    G<float> x; G<const float> y;
    i64 x_stride, y_stride; i32 rows, n;
};
struct NormQ8Args { // rms_norm_q8
    G<const float> x; G<const float> w; G<float> out; G<u32> q; G<float> d; G<float> s;
    i64 x_stride; i32 rows, dim; float eps; i32 pad;
};
struct EltQ8Args { // silu_mul_q8
    G<float> x; G<const float> y; G<u32> q; G<float> d; G<float> s;
    i64 x_stride, y_stride; i32 rows, n;
};
struct RopeArgs {
    G<float> x; G<const i32> pos;
    i64 row_stride, head_stride, offset; i32 rows, heads, pairs, half_split; float freq[MAX_ROPE_PAIRS];
};
struct FusedArgs { // q may be null; q8, d8 and s8 take it rounded, or are null
    G<float> q; G<const float> q_w; G<const float> kv; G<const float> kv_w; G<u8> cache; G<const i32> slots; G<const i32> pos;
    G<u32> q8; G<float> d8; G<float> s8;
    i32 rows, q_lora, lora, pairs, half_split, dtype; float eps; i32 pad; float freq[MAX_ROPE_PAIRS];
};
struct CacheArgs { // a row is n0 elements of `a`, then n1 of `b` (b may be null with n1 = 0)
    G<const float> a; G<const float> b; G<u8> cache; G<const i32> slots;
    i64 a_stride, b_stride; i32 rows, n0, n1, dtype;
};
struct MlaArgs { // part: [rows, heads, splits, lora], stat: [rows, heads, splits, 2]; sinks and lse may be null; window 0 is none
    G<const float> qa; G<const float> q; G<const u8> cache; G<const i32> base; G<const i32> slots; G<const i32> index; G<const i32> count;
    G<float> part; G<float> stat; G<float> out; G<const float> sinks; G<float> lse;
    i64 q_stride, pe_offset; // distance of two heads in q, and where its roped part starts
    i32 rows, heads, rope, lora, k, splits, dtype, window; float scale; i32 pad;
};
struct IndexerArgs {
    G<const float> q; G<const float> w; G<const u8> cache; G<const i32> base; G<const i32> slots; G<float> out;
    i64 stride; i32 rows, heads, dim, dtype; float scale; i32 pad;
};
struct TopkArgs {
    G<const float> scores; G<const i32> base; G<const i32> slots; G<i32> index; G<i32> count;
    i64 stride; i32 rows, k;
};
struct RouteArgs {
    G<const float> logits; G<const float> bias; G<i32> ids; G<float> weights;
    i32 rows, experts, top_k, softmax, groups, groups_used, norm; float scale;
};
struct SortArgs { // pairs by expert; tiles of at most `tile` pairs, the rest {-1, 0, 0}
    G<const i32> ids; G<i32> perm; G<i32> tiles;
    i32 pairs, experts, tile, max_tiles;
};
struct CombineArgs { // out[r] += sum_j weights[r, j] * y[r * top_k + j]
    G<const float> y; G<const float> weights; G<float> out;
    i32 rows, dim, top_k, pad;
};
struct ArgmaxArgs { G<const float> x; G<i32> out; i32 rows, n; };

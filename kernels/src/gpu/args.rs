//! The kernels' argument structs: the twins of `hip/args.h`, field by field. A test compares their sizes with those that the
//! C++ compiler saw, and every struct is free of padding, so that its bytes are all defined.

/// Most rotated pairs a rope may have.
pub const MAX_ROPE_PAIRS: usize = 64;

/// A kernel's argument struct.
///
/// # Safety
/// The type is `repr(C)`, consists of integers and floats, and has no padding.
pub unsafe trait KernelArgs: Copy {}

/// The bytes that a launch passes.
pub fn bytes_of<A: KernelArgs>(args: &A) -> &[u8] {
    // SAFETY: `KernelArgs` promises that every byte is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(args).cast(), size_of::<A>()) }
}

macro_rules! kernel_args {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $t:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        #[repr(C)]
        #[allow(missing_docs)] // documented at the twin in args.h
        pub struct $name { $(pub $field: $t),* }
        // SAFETY: repr(C), plain numbers; the assertion rules padding out.
        unsafe impl KernelArgs for $name {}
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$t>())*);
    )*};
}

kernel_args! {
    /// `rms_norm`, `layer_norm`.
    NormArgs { x: u64, w: u64, b: u64, out: u64, x_stride: i64, rows: i32, dim: i32, eps: f32, pad: i32 }
    /// `embed_*`.
    EmbedArgs { table: u64, ids: u64, out: u64, grid: u64, row_bytes: i64, rows: i32, dim: i32 }
    /// `quantize_q8`.
    QuantizeArgs { x: u64, q: u64, d: u64, s: u64, x_stride: i64, rows: i32, n: i32 }
    /// `mmv1_*`, `mmv4_*`.
    MmvArgs {
        w: u64, grid: u64, x: u64, q: u64, d: u64, s: u64, ids: u64, out: u64, row_bytes: i64, mat_bytes: i64, x_stride: i64,
        out_stride: i64, rows: i32, n_in: i32, n_out: i32, n_mat: i32, x_div: i32, accumulate: i32, rows_per_block: i32, pad: i32,
    }
    /// `gemm_*`.
    GemmArgs {
        w: u64, grid: u64, x: u64, tiles: u64, perm: u64, out: u64, row_bytes: i64, mat_bytes: i64, x_stride: i64, out_stride: i64,
        x_z: i64, out_z: i64, rows: i32, n_in: i32, n_out: i32, x_div: i32, accumulate: i32, aligned: i32,
    }
    /// `add`, `silu_mul`.
    EltArgs { x: u64, y: u64, x_stride: i64, y_stride: i64, rows: i32, n: i32 }
    /// `rms_norm_q8`.
    NormQ8Args {
        x: u64, w: u64, out: u64, q: u64, d: u64, s: u64, x_stride: i64, rows: i32, dim: i32, eps: f32, pad: i32,
    }
    /// `silu_mul_q8`.
    EltQ8Args { x: u64, y: u64, q: u64, d: u64, s: u64, x_stride: i64, y_stride: i64, rows: i32, n: i32 }
    /// `rope`.
    RopeArgs {
        x: u64, pos: u64, row_stride: i64, head_stride: i64, offset: i64, rows: i32, heads: i32, pairs: i32, half_split: i32,
        freq: [f32; MAX_ROPE_PAIRS],
    }
    /// `fused_norm_rope`.
    FusedArgs {
        q: u64, q_w: u64, kv: u64, kv_w: u64, cache: u64, slots: u64, pos: u64, q8: u64, d8: u64, s8: u64, rows: i32, q_lora: i32, lora: i32, pairs: i32,
        half_split: i32, dtype: i32, eps: f32, pad: i32, freq: [f32; MAX_ROPE_PAIRS],
    }
    /// `cache_rows`.
    CacheArgs { a: u64, b: u64, cache: u64, slots: u64, a_stride: i64, b_stride: i64, rows: i32, n0: i32, n1: i32, dtype: i32 }
    /// `mla_attention`, `mla_merge`.
    MlaArgs {
        qa: u64, q: u64, cache: u64, base: u64, slots: u64, index: u64, count: u64, part: u64, stat: u64, out: u64, sinks: u64, lse: u64,
        q_stride: i64, pe_offset: i64, rows: i32, heads: i32, rope: i32, lora: i32, k: i32, splits: i32, dtype: i32, window: i32,
        scale: f32, pad: i32,
    }
    /// `indexer_logits`.
    IndexerArgs {
        q: u64, w: u64, cache: u64, base: u64, slots: u64, out: u64, stride: i64, rows: i32, heads: i32, dim: i32, dtype: i32,
        scale: f32, pad: i32,
    }
    /// `topk_select`.
    TopkArgs { scores: u64, base: u64, slots: u64, index: u64, count: u64, stride: i64, rows: i32, k: i32 }
    /// `moe_route`.
    RouteArgs {
        logits: u64, bias: u64, ids: u64, weights: u64, rows: i32, experts: i32, top_k: i32, softmax: i32, groups: i32,
        groups_used: i32, norm: i32, scale: f32,
    }
    /// `moe_sort`.
    SortArgs { ids: u64, perm: u64, tiles: u64, pairs: i32, experts: i32, tile: i32, max_tiles: i32 }
    /// `moe_combine`.
    CombineArgs { y: u64, weights: u64, out: u64, rows: i32, dim: i32, top_k: i32, pad: i32 }
    /// `argmax`.
    ArgmaxArgs { x: u64, out: u64, rows: i32, n: i32 }
}

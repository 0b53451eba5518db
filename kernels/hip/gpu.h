// One source, three vendors. Every kernel of this folder is written against this header and nothing else:
//   GPU_AMD   clang for amdgcn (gfx11, gfx12): no ROCm header and no device library is needed
//   GPU_NV    nvcc, or clang for nvptx64
//   GPU_SIMT  a host C++17 compiler: one fibre per GPU thread, every access checked (kernels/simt/)
// A wave has 32 lanes on all three. Kernels take ONE argument, a struct of args.h, by value.
#pragma once

#if defined(__AMDGCN__)
#define GPU_AMD 1
#elif defined(__CUDA_ARCH__) || defined(__NVPTX__) || defined(__CUDACC__)
#define GPU_NV 1
#elif defined(__HIP__) || defined(__CUDA__)
#error "compile for the device only (--cuda-device-only)"
#else
#define GPU_SIMT 1
#endif

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef short i16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define WAVE 32

// ---------------------------------------------------------------- declarations and thread geometry
#if GPU_AMD || (GPU_NV && !defined(__CUDACC__)) || (GPU_NV && defined(__clang__))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#endif

#if GPU_SIMT
#define DEV static inline
#define MEMBER inline
#define TABLE static const
#else
#define DEV static __device__ __attribute__((always_inline)) inline
#define MEMBER __device__ __attribute__((always_inline)) inline
#define TABLE static __device__ const
#endif

#if GPU_AMD
// The second figure is waves per SIMD on AMD and blocks per multiprocessor on NVIDIA: LAUNCH takes waves per SIMD.
#define KERNEL(name, threads, waves, Args)                                                              \
    extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(waves))) \
    void name(const Args a)
DEV u32 tid() { return __builtin_amdgcn_workitem_id_x(); }
DEV u32 bid_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEV u32 bid_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEV u32 bid_z() { return __builtin_amdgcn_workgroup_id_z(); }
#elif GPU_NV
#if defined(__CUDACC__) && !defined(__clang__)
#define KERNEL(name, threads, waves, Args) extern "C" __global__ __launch_bounds__(threads) void name(const __grid_constant__ Args a)
DEV u32 tid() { return threadIdx.x; }
DEV u32 bid_x() { return blockIdx.x; }
DEV u32 bid_y() { return blockIdx.y; }
DEV u32 bid_z() { return blockIdx.z; }
#else
#define KERNEL(name, threads, waves, Args) extern "C" __global__ __attribute__((launch_bounds(threads))) void name(const Args a)
DEV u32 tid() { return __nvvm_read_ptx_sreg_tid_x(); }
DEV u32 bid_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEV u32 bid_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEV u32 bid_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
#endif
#endif

// ---------------------------------------------------------------- pointers
// G<T> is a pointer in an argument struct (8 bytes, any vendor). PTR opens it: a plain restrict pointer on a GPU, a
// checked pointer with its buffer's bounds on simt. `p[i]`, `p + n` and as<U>(p) mean the same on all three.
template <class T> struct G { T *raw; };

#if GPU_SIMT
#include "../simt/simt.h"
#else
#define PTR(name, g) auto *__restrict__ name = (g).raw
template <class T> using P = T *;
#define SHARED(T, name, n) __shared__ T name[n]
template <class T> using S = T *;
template <class U, class T> DEV U *as(T *p) { return reinterpret_cast<U *>(p); }
template <class T> DEV bool is_null(T *p) { return p == nullptr; }
#endif

// ---------------------------------------------------------------- waves and blocks
DEV u32 lane() { return tid() & (WAVE - 1); }
DEV u32 wave_id() { return tid() / WAVE; }

#if GPU_AMD
DEV void sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DEV int shfl_bits(int v, int src) { return __builtin_amdgcn_ds_bpermute((src & 31) << 2, v); }
// ds_swizzle and DPP row_xmask are safe under LLVM <= 20; permlanex16 is not (it may be sunk into a branch).
DEV int xor_bits(int v, int m) {
    switch (m) {
    case 1: return __builtin_amdgcn_update_dpp(0, v, 0x161, 0xf, 0xf, true);
    case 2: return __builtin_amdgcn_update_dpp(0, v, 0x162, 0xf, 0xf, true);
    case 4: return __builtin_amdgcn_update_dpp(0, v, 0x164, 0xf, 0xf, true);
    case 8: return __builtin_amdgcn_update_dpp(0, v, 0x168, 0xf, 0xf, true);
    case 16: return __builtin_amdgcn_ds_swizzle(v, 0x401f);
    default: return shfl_bits(v, (int)lane() ^ m);
    }
}
DEV u32 wave_ballot(bool p) { return __builtin_amdgcn_ballot_w32(p); }
#elif GPU_NV
DEV void sync() {
#if defined(__CUDACC__) && !defined(__clang__)
    __syncthreads();
#else
    __nvvm_bar_sync(0);
#endif
}
DEV int shfl_bits(int v, int src) {
    int r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(src));
    return r;
}
DEV int xor_bits(int v, int m) {
    int r;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(r) : "r"(v), "r"(m));
    return r;
}
DEV u32 wave_ballot(bool p) {
    u32 r;
    asm volatile("{ .reg .pred q; setp.ne.u32 q, %1, 0; vote.sync.ballot.b32 %0, q, 0xffffffff; }" : "=r"(r) : "r"((u32)p));
    return r;
}
#endif

#if !GPU_SIMT
DEV float bits_f32(u32 v) { return __builtin_bit_cast(float, v); }
DEV u32 f32_bits(float v) { return __builtin_bit_cast(u32, v); }
DEV float shfl(float v, int src) { return bits_f32((u32)shfl_bits((int)f32_bits(v), src)); }
DEV int shfl(int v, int src) { return shfl_bits(v, src); }
DEV u32 shfl(u32 v, int src) { return (u32)shfl_bits((int)v, src); }
DEV float shfl_xor(float v, int m) { return bits_f32((u32)xor_bits((int)f32_bits(v), m)); }
DEV int shfl_xor(int v, int m) { return xor_bits(v, m); }
DEV u32 shfl_xor(u32 v, int m) { return (u32)xor_bits((int)v, m); }
DEV float wave_sum(float v) {
    v += shfl_xor(v, 1); v += shfl_xor(v, 2); v += shfl_xor(v, 4); v += shfl_xor(v, 8); v += shfl_xor(v, 16);
    return v;
}
DEV int wave_sum(int v) {
    v += shfl_xor(v, 1); v += shfl_xor(v, 2); v += shfl_xor(v, 4); v += shfl_xor(v, 8); v += shfl_xor(v, 16);
    return v;
}
DEV float wave_max(float v) {
#pragma unroll
    for (int m = 1; m < 32; m <<= 1) { float o = shfl_xor(v, m); v = v > o ? v : o; }
    return v;
}
#endif

#if GPU_AMD
template <class T> DEV T atomic_add(T *p, i64 i, T v) { return __hip_atomic_fetch_add(p + i, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
#elif GPU_NV
DEV u32 atomic_add(u32 *p, i64 i, u32 v) {
    u32 r;
    asm volatile("atom.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(p + i), "r"(v) : "memory");
    return r;
}
#endif

// ---------------------------------------------------------------- scalar helpers
#if GPU_NV && defined(__CUDACC__) && !defined(__clang__)
DEV u32 popcount(u32 v) { return (u32)__popc(v); }
#else
DEV u32 popcount(u32 v) { return (u32)__builtin_popcount(v); }
#endif
// Largest magnitude of a wave's values, NaN if one of them is: as bits, NaN is above infinity.
DEV float wave_max_abs(float v) {
    int b = (int)(f32_bits(v) & 0x7fffffffu);
#pragma unroll
    for (int m = 1; m < 32; m <<= 1) { int o = shfl_xor(b, m); b = b > o ? b : o; }
    return bits_f32((u32)b);
}
// Within the range of f16; NaN stays.
DEV float clamp_half(float v) { return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v; }
DEV float fmaxf_(float a, float b) { return a > b ? a : b; }
DEV int imin(int a, int b) { return a < b ? a : b; }
DEV int imax(int a, int b) { return a > b ? a : b; }
#if GPU_NV && defined(__CUDACC__) && !defined(__clang__)
DEV float exp_(float x) { return expf(x); }
DEV float sqrt_(float x) { return sqrtf(x); }
DEV float log_(float x) { return logf(x); }
DEV float abs_(float x) { return fabsf(x); }
DEV float rint_(float x) { return rintf(x); }
DEV double rint_d(double x) { return rint(x); }
#elif GPU_NV
DEV float sqrt_(float x) { float r; asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float abs_(float x) { return __builtin_fabsf(x); }
DEV float rint_(float x) { float r; asm("cvt.rni.f32.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV double rint_d(double x) { double r; asm("cvt.rni.f64.f64 %0, %1;" : "=d"(r) : "d"(x)); return r; }
// ex2.approx with the fraction split off, so that large arguments keep their accuracy.
DEV float exp_(float x) {
    if (x < -104.0f) return 0.0f;
    float n = rint_(x * 1.4426950408889634f), f = x - n * 0.693359375f, r, s;
    f = f + n * 2.12194440e-4f;
    asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(f * 1.4426950408889634f));
    asm("ex2.approx.f32 %0, %1;" : "=f"(s) : "f"(n));
    return r * s;
}
DEV float log_(float x) { float r; asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r * 0.6931471805599453f; }
#else
DEV float exp_(float x) { return __builtin_expf(x); }
DEV float sqrt_(float x) { return __builtin_sqrtf(x); }
DEV float log_(float x) { return __builtin_logf(x); }
DEV float abs_(float x) { return __builtin_fabsf(x); }
DEV float rint_(float x) { return __builtin_rintf(x); }
DEV double rint_d(double x) { return __builtin_rint(x); }
#endif
DEV float neg_inf() { return bits_f32(0xff800000u); }
DEV float sigmoid(float x) { return 1.0f / (1.0f + exp_(-x)); }
DEV float silu(float x) { return x / (1.0f + exp_(-x)); }

// f16 and bf16 travel as u16 bits: no vendor type appears in a signature.
#if GPU_AMD
DEV float f16_f32(u16 h) { return (float)__builtin_bit_cast(_Float16, h); }
DEV u16 f32_f16(float f) { return __builtin_bit_cast(u16, (_Float16)f); }
#elif GPU_NV
DEV float f16_f32(u16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
DEV u16 f32_f16(float f) { u16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
#else
DEV float f16_f32(u16 h) {
    u32 s = (u32)(h & 0x8000u) << 16, e = (h >> 10) & 31, m = h & 1023;
    if (e == 31) return bits_f32(s | 0x7f800000u | (m << 13));
    if (e == 0) { float v = (float)m * 5.9604644775390625e-8f; return s ? -v : v; }
    return bits_f32(s | ((e + 112) << 23) | (m << 13));
}
DEV u16 f32_f16(float f) {
    u32 b = f32_bits(f), s = (b >> 16) & 0x8000u, a = b & 0x7fffffffu;
    if (a >= 0x7f800000u) return (u16)(s | 0x7c00u | (a > 0x7f800000u ? 0x200u : 0));
    if (a >= 0x477ff000u) return (u16)(s | 0x7c00u);
    if (a < 0x33000001u) return (u16)s;
    if (a < 0x38800000u) { // subnormal: units of 2^-24, nearest even
        u32 shift = 126 - (a >> 23), m = (a & 0x7fffffu) | 0x800000u, r = m >> shift, rem = m & ((1u << shift) - 1), half = 1u << (shift - 1);
        if (rem > half || (rem == half && (r & 1))) r++;
        return (u16)(s | r);
    }
    u32 r = a - 0x38000000u;
    return (u16)(s | ((r + 0xfffu + ((r >> 13) & 1)) >> 13));
}
#endif
DEV float bf16_f32(u16 h) { return bits_f32((u32)h << 16); }
DEV u16 f32_bf16(float f) {
    u32 b = f32_bits(f);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (u16)((b >> 16) | 0x40u);
    return (u16)((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
}

// Four signed 8-bit products added to c.
#if GPU_AMD
DEV int dp4a(u32 a, u32 b, int c) {
#if defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || defined(__gfx1150__) || defined(__gfx1151__) || defined(__gfx1200__) || defined(__gfx1201__)
    return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, c, false);
#else
#error "no 4x8-bit dot product known for this target"
#endif
}
#elif GPU_NV
DEV int dp4a(u32 a, u32 b, int c) { int r; asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }
#else
DEV int dp4a(u32 a, u32 b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(i8)(a >> (8 * i)) * (int)(i8)(b >> (8 * i));
    return c;
}
#endif

// Byte lookup: each byte of `idx` (0..15) picks a byte of the 16-byte table t0..t3.
#if GPU_AMD
DEV u32 lookup16(u32 idx, u32 t0, u32 t1, u32 t2, u32 t3) {
    u32 lo = __builtin_amdgcn_perm(t1, t0, idx & 0x07070707u), hi = __builtin_amdgcn_perm(t3, t2, idx & 0x07070707u);
    u32 m = ((idx >> 3) & 0x01010101u) * 0xffu;
    return (lo & ~m) | (hi & m);
}
#elif GPU_NV
DEV u32 prmt(u32 a, u32 b, u32 s) { u32 r; asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(s)); return r; }
DEV u32 lookup16(u32 idx, u32 t0, u32 t1, u32 t2, u32 t3) {
    u32 i = idx & 0x07070707u, s = (i | (i >> 4)) & 0x00ff00ffu;
    s = (s | (s >> 8)) & 0xffffu;
    u32 lo = prmt(t0, t1, s), hi = prmt(t2, t3, s), m = ((idx >> 3) & 0x01010101u) * 0xffu;
    return (lo & ~m) | (hi & m);
}
#else
DEV u32 lookup16(u32 idx, u32 t0, u32 t1, u32 t2, u32 t3) {
    u32 t[4] = {t0, t1, t2, t3}, r = 0;
    for (int i = 0; i < 4; i++) { u32 k = (idx >> (8 * i)) & 15; r |= ((t[k >> 2] >> (8 * (k & 3))) & 255u) << (8 * i); }
    return r;
}
#endif

// ---------------------------------------------------------------- loads from packed blocks
// `A` is the alignment the block type guarantees. gfx11 takes any alignment in one load; sm_90 needs natural alignment.
template <int A> DEV u32 ld_u32(P<const u8> p, int off) {
#if GPU_AMD
    u32 v;
    __builtin_memcpy(&v, p + off, 4);
    return v;
#else
    if (A >= 4) return as<const u32>(p + off)[0];
    if (A == 2) { auto h = as<const u16>(p + off); return (u32)h[0] | ((u32)h[1] << 16); }
    auto b = p + off;
    return (u32)b[0] | ((u32)b[1] << 8) | ((u32)b[2] << 16) | ((u32)b[3] << 24);
#endif
}
template <int A> DEV u16 ld_u16(P<const u8> p, int off) {
#if GPU_AMD
    u16 v;
    __builtin_memcpy(&v, p + off, 2);
    return v;
#else
    if (A >= 2) return as<const u16>(p + off)[0];
    auto b = p + off;
    return (u16)(b[0] | (b[1] << 8));
#endif
}

struct alignas(16) f32x4 { float x, y, z, w; };
struct alignas(16) u32x4 { u32 x, y, z, w; };
struct alignas(8) u32x2 { u32 x, y; };

// ---------------------------------------------------------------- block reductions
// `scratch` has at least threads/32 floats. All threads get the result. The barrier at the end lets the scratch be reused.
DEV float block_sum(float v, S<float> scratch, int waves) {
    v = wave_sum(v);
    if (lane() == 0) scratch[wave_id()] = v;
    sync();
    float r = 0.0f;
    for (int i = 0; i < waves; i++) r += scratch[i];
    sync();
    return r;
}
DEV float block_max(float v, S<float> scratch, int waves) {
    v = wave_max(v);
    if (lane() == 0) scratch[wave_id()] = v;
    sync();
    float r = scratch[0];
    for (int i = 1; i < waves; i++) r = fmaxf_(r, scratch[i]);
    sync();
    return r;
}

// Element access by run-time dtype, for caches and activations: 0 f32, 1 f16, 2 bf16.
enum { DT_F32 = 0, DT_F16 = 1, DT_BF16 = 2 };
template <int D> DEV float ld_elem(P<const u8> p, i64 i) {
    if (D == DT_F32) return as<const float>(p)[i];
    u16 h = as<const u16>(p)[i];
    return D == DT_F16 ? f16_f32(h) : bf16_f32(h);
}
template <int D> DEV void st_elem(P<u8> p, i64 i, float v) {
    if (D == DT_F32) as<float>(p)[i] = v;
    else as<u16>(p)[i] = D == DT_F16 ? f32_f16(v) : f32_bf16(v);
}

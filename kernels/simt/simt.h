// The host side of gpu.h: GPU threads as fibres, with every access checked. Included by gpu.h only.
#pragma once
#include <stdint.h>
#include <string.h>

#define __device__
#define __global__
#define KERNEL(name, threads, waves, Args)                                                       \
    static void name##_simt(const Args &a);                                                      \
    static void name##_entry(const void *p) { name##_simt(*(const Args *)p); }                   \
    static simt::Kernel name##_kernel(#name, name##_entry, sizeof(Args), threads);               \
    static void name##_simt(const Args &a)

namespace simt {

// What went wrong; the numbers are shared with kernels/src/simt/report.rs.
enum Kind : i32 {
    OK = 0, OUT_OF_BOUNDS = 1, NULL_POINTER = 2, MISALIGNED = 3, UNKNOWN_POINTER = 4, SHARED_OUT_OF_BOUNDS = 5,
    BARRIER_DIVERGENCE = 6, WAVE_DIVERGENCE = 7, SHUFFLE_OUT_OF_WAVE = 8, SHARED_RACE = 9, LIMIT = 10
};

// A kernel of this build; each KERNEL puts itself on the list that the host walks.
struct Kernel {
    const char *name;
    void (*fn)(const void *);
    u32 args_size, threads;
    Kernel *next;
    Kernel(const char *name, void (*fn)(const void *), u32 args_size, u32 threads);
};

// A live allocation. `name` outlives every launch that sees it.
struct Buffer { u64 base, len; const char *name; };

// An index that knows the source line that wrote it: the default arguments are those of the caller.
struct Idx {
    i64 v;
    int line;
    const char *file;
    Idx(i64 v, int line = __builtin_LINE(), const char *file = __builtin_FILE()) : v(v), line(line), file(file) {}
};

[[noreturn]] void fail(Kind kind, Idx at, const char *buffer, i64 index, u64 len, u32 elem, const char *detail);
[[noreturn]] void fail_access(const Buffer *b, const char *arg, const void *p, Idx at, u32 elem, u32 align);
const Buffer *find_buffer(const void *p, const char *name, int line, const char *file);

// A pointer into a buffer. Arithmetic is free; only an access is checked, against the buffer it came from.
template <class T> struct Ptr {
    T *p;
    const Buffer *b;
    const char *arg; // the kernel argument it was opened from
    Ptr() : p(nullptr), b(nullptr), arg("") {}
    Ptr(T *p, const Buffer *b, const char *arg) : p(p), b(b), arg(arg) {}
    template <class U> Ptr(const Ptr<U> &o) : p(o.p), b(o.b), arg(o.arg) {}
    T &operator[](Idx i) const {
        T *q = p + i.v;
        if (!b || (u64)q < b->base || (u64)q + sizeof(T) > b->base + b->len || ((u64)q & (alignof(T) - 1)))
            fail_access(b, arg, q, i, sizeof(T), alignof(T));
        return *q;
    }
    T &operator*() const { return (*this)[0]; }
    Ptr operator+(i64 n) const { return Ptr((T *)((u64)p + (u64)n * sizeof(T)), b, arg); }
};
template <class T> Ptr<T> open(G<T> g, const char *name, int line, const char *file) {
    return g.raw ? Ptr<T>(g.raw, find_buffer((const void *)g.raw, name, line, file), name) : Ptr<T>(nullptr, nullptr, name);
}

// Shared memory: one array per SHARED line and block, poisoned at the block's start, with a shadow that finds a value
// read or overwritten by another thread without a barrier between.
struct SharedArray { u8 *base; u32 bytes; const char *name; };
const SharedArray *shared_array(const void *key, u32 bytes, const char *name, int line, const char *file);
void shared_note(const SharedArray *s, const u8 *p, u32 bytes, bool write, Idx at);

template <class T> struct Shared {
    T *p;
    const SharedArray *s;
    struct Ref {
        Shared s;
        Idx at;
        T *q() const {
            T *q = s.p + at.v;
            if ((u8 *)q < s.s->base || (u8 *)(q + 1) > s.s->base + s.s->bytes)
                fail(SHARED_OUT_OF_BOUNDS, at, s.s->name, (i64)(q - (T *)s.s->base), s.s->bytes / sizeof(T), sizeof(T), "");
            if ((u64)q & (alignof(T) - 1)) fail(MISALIGNED, at, s.s->name, (i64)((u8 *)q - s.s->base), s.s->bytes, sizeof(T), "");
            return q;
        }
        operator T() const { T *x = q(); shared_note(s.s, (u8 *)x, sizeof(T), false, at); return *x; }
        Ref &operator=(T v) { T *x = q(); shared_note(s.s, (u8 *)x, sizeof(T), true, at); *x = v; return *this; }
        Ref &operator=(const Ref &o) { return *this = (T)o; }
        Ref &operator+=(T v) { return *this = (T)(*this) + v; }
    };
    Ref operator[](Idx i) const { return Ref{*this, i}; }
    Shared operator+(i64 n) const { return Shared{p + n, s}; }
};

enum Op { SHFL, SHFL_XOR, SUM_F, SUM_I, MAX_F, BALLOT, MMA };
u64 collective(Op op, u64 v, int aux, Idx at);
void barrier(Idx at);
struct Where { u32 tid, x, y, z; };
extern __thread Where where;
float *wave_slot();       // 16 floats that a lane gives to MMA
const float *wave_seen(); // and what each lane gave, 16 a lane

template <class T> u64 pack(T v) { u64 r = 0; memcpy(&r, &v, sizeof(T)); return r; }
template <class T> T unpack(u64 r) { T v; memcpy(&v, &r, sizeof(T)); return v; }
} // namespace simt

template <class T> using P = simt::Ptr<T>;
template <class T> using S = simt::Shared<T>;
#define PTR(name, g) auto name = simt::open(g, #g, __LINE__, __FILE__)
#define SHARED(T, name, n)                                                                            \
    static char name##_key;                                                                           \
    const simt::SharedArray *name##_arr = simt::shared_array(&name##_key, (u32)(sizeof(T) * (n)), #name, __LINE__, __FILE__); \
    simt::Shared<T> name{(T *)name##_arr->base, name##_arr}
template <class U, class T> static inline P<U> as(P<T> p) { return P<U>((U *)p.p, p.b, p.arg); }
template <class U, class T> static inline S<U> as(S<T> p) { return S<U>{(U *)p.p, p.s}; }
template <class T> static inline bool is_null(P<T> p) { return p.p == nullptr; }

static inline u32 tid() { return simt::where.tid; }
static inline u32 bid_x() { return simt::where.x; }
static inline u32 bid_y() { return simt::where.y; }
static inline u32 bid_z() { return simt::where.z; }
static inline float bits_f32(u32 v) { float f; memcpy(&f, &v, 4); return f; }
static inline u32 f32_bits(float v) { u32 u; memcpy(&u, &v, 4); return u; }

#define SIMT_AT int line = __builtin_LINE(), const char *file = __builtin_FILE()
#define SIMT_IDX(i) simt::Idx(i, line, file)
static inline void sync(SIMT_AT) { simt::barrier(SIMT_IDX(0)); }
template <class T> static inline T shfl(T v, int src, SIMT_AT) {
    return simt::unpack<T>(simt::collective(simt::SHFL, simt::pack(v), src, SIMT_IDX(src)));
}
template <class T> static inline T shfl_xor(T v, int m, SIMT_AT) {
    return simt::unpack<T>(simt::collective(simt::SHFL_XOR, simt::pack(v), m, SIMT_IDX(m)));
}
static inline float wave_sum(float v, SIMT_AT) { return simt::unpack<float>(simt::collective(simt::SUM_F, simt::pack(v), 0, SIMT_IDX(0))); }
static inline int wave_sum(int v, SIMT_AT) { return simt::unpack<int>(simt::collective(simt::SUM_I, simt::pack(v), 0, SIMT_IDX(0))); }
static inline float wave_max(float v, SIMT_AT) { return simt::unpack<float>(simt::collective(simt::MAX_F, simt::pack(v), 0, SIMT_IDX(0))); }
static inline u32 wave_ballot(bool p, SIMT_AT) { return simt::unpack<u32>(simt::collective(simt::BALLOT, p ? 1 : 0, 0, SIMT_IDX(0))); }
static inline void wave_share(SIMT_AT) { simt::collective(simt::MMA, 0, 0, SIMT_IDX(0)); }

template <class T> static inline T atomic_add(P<T> p, i64 i, T v, SIMT_AT) {
    T &r = p[SIMT_IDX(i)];
    return __atomic_fetch_add(&r, v, __ATOMIC_RELAXED);
}
template <class T> static inline T atomic_add(S<T> p, i64 i, T v, SIMT_AT) {
    T *q = typename S<T>::Ref{p, SIMT_IDX(i)}.q();
    T old = *q;
    *q = old + v;
    return old;
}

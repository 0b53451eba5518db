// The fibre runtime behind simt.h. One worker (an OS thread of the caller) runs one block at a time; its GPU threads are
// fibres that switch only at barriers and wave operations, in an order drawn from a seed.
#include "../hip/gpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif

extern "C" {
struct SimtLaunch {
    void (*fn)(const void *);
    const void *args;
    u32 grid[3], threads;
    u64 seed;
    const simt::Buffer *buffers;
    u64 n_buffers;
};
struct SimtReport {
    i32 kind;
    u32 line;
    u32 block[3], thread;
    i64 index;
    u64 len;
    u32 elem;
    char file[96], buffer[64], detail[200];
};
}

namespace simt {
__thread Where where;

static Kernel *kernels; // zero before any constructor runs
Kernel::Kernel(const char *name, void (*fn)(const void *), u32 args_size, u32 threads)
    : name(name), fn(fn), args_size(args_size), threads(threads), next(kernels) {
    kernels = this;
}

enum State : u8 { READY, WAIT_WAVE, WAIT_BARRIER, DONE };
struct Fibre {
    void *sp;
    State state;
    int line; // where it waits
    const char *file;
#if !defined(__x86_64__) && !defined(__aarch64__)
    ucontext_t ctx;
#endif
};
struct Wave {
    u32 arrived;
    Op op;
    int line;
    const char *file;
    u64 slot[WAVE], out[WAVE];
    int aux[WAVE];
    alignas(16) u8 wide[WAVE][64], seen[WAVE][64];
};
struct Shadow { u32 epoch; u16 writer, reader; u32 read_epoch; };
static const u32 MAX_THREADS = 1024, STACK = 64 * 1024, GUARD = 4096, SHARED_BYTES = 64 * 1024, MAX_ARRAYS = 32;
static const u16 NOBODY = 0xffff, MANY = 0xfffe;

struct Worker {
    const SimtLaunch *launch;
    SimtReport *report;
    Fibre fibres[MAX_THREADS];
    Wave waves[MAX_THREADS / WAVE];
    u8 *stacks;
    u32 stacks_made;
    void *sched_sp;
#if !defined(__x86_64__) && !defined(__aarch64__)
    ucontext_t sched_ctx;
#endif
    u32 cur, threads, at_barrier, done;
    bool failed;
    u8 *shared;
    u32 shared_used, n_arrays;
    SharedArray arrays[MAX_ARRAYS];
    const void *keys[MAX_ARRAYS];
    Shadow *shadow;
    u32 epoch;
};
static __thread Worker *W;

// ------------------------------------------------------------ switching
#if defined(__x86_64__)
extern "C" void simt_switch(void **save, void *load);
asm(".text\n.p2align 4\n.globl simt_switch\n.type simt_switch,@function\nsimt_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n.size simt_switch,.-simt_switch\n");
static void *prepare(u8 *top, void (*entry)()) {
    u64 *sp = (u64 *)((u64)top & ~15ull);
    *--sp = 0;            // keeps the alignment a call would give
    *--sp = (u64)entry;   // popped by ret
    for (int i = 0; i < 6; i++) *--sp = 0;
    return sp;
}
#elif defined(__aarch64__)
extern "C" void simt_switch(void **save, void *load);
asm(".text\n.p2align 4\n.globl simt_switch\n.type simt_switch,%function\nsimt_switch:\n"
    "sub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n.size simt_switch,.-simt_switch\n");
static void *prepare(u8 *top, void (*entry)()) {
    u64 *sp = (u64 *)((u64)top & ~15ull) - 20;
    memset(sp, 0, 160);
    sp[11] = (u64)entry; // x30
    return sp;
}
#endif

#if defined(__x86_64__) || defined(__aarch64__)
static void to_scheduler() { simt_switch(&W->fibres[W->cur].sp, W->sched_sp); }
static void to_fibre(u32 i) { simt_switch(&W->sched_sp, W->fibres[i].sp); }
#else
static void to_scheduler() { swapcontext(&W->fibres[W->cur].ctx, &W->sched_ctx); }
static void to_fibre(u32 i) { swapcontext(&W->sched_ctx, &W->fibres[i].ctx); }
#endif

static void fibre_main() {
    W->launch->fn(W->launch->args);
    W->fibres[W->cur].state = DONE;
    W->done++;
    to_scheduler();
    abort();
}

// ------------------------------------------------------------ reports
static void copy(char *to, size_t cap, const char *from) {
    size_t n = from ? strlen(from) : 0;
    if (n >= cap) { from += n - (cap - 1); n = cap - 1; }
    if (n) memcpy(to, from, n);
    to[n] = 0;
}
static void set_report(Kind kind, Idx at, u32 thread, const char *buffer, i64 index, u64 len, u32 elem, const char *detail) {
    SimtReport *r = W->report;
    const char *slash = at.file ? strrchr(at.file, '/') : nullptr;
    r->kind = kind;
    r->line = (u32)at.line;
    r->block[0] = where.x; r->block[1] = where.y; r->block[2] = where.z;
    r->thread = thread;
    r->index = index;
    r->len = len;
    r->elem = elem;
    copy(r->file, sizeof r->file, slash ? slash + 1 : at.file);
    copy(r->buffer, sizeof r->buffer, buffer);
    copy(r->detail, sizeof r->detail, detail);
    W->failed = true;
}
[[noreturn]] void fail(Kind kind, Idx at, const char *buffer, i64 index, u64 len, u32 elem, const char *detail) {
    set_report(kind, at, W->cur, buffer, index, len, elem, detail);
    to_scheduler(); // never resumed
    abort();
}
[[noreturn]] void fail_access(const Buffer *b, const char *arg, const void *p, Idx at, u32 elem, u32 align) {
    if (!b) fail(NULL_POINTER, at, arg, at.v, 0, elem, "");
    char name[64];
    snprintf(name, sizeof name, "%s (%s)", arg, b->name);
    i64 byte = (i64)((u64)p - b->base);
    if (byte >= 0 && (u64)byte + elem <= b->len) fail(MISALIGNED, at, name, byte, b->len, align, "");
    i64 idx = byte >= 0 ? byte / (i64)elem : -((-byte + (i64)elem - 1) / (i64)elem);
    fail(OUT_OF_BOUNDS, at, name, idx, b->len / elem, elem, "");
}
const Buffer *find_buffer(const void *p, const char *name, int line, const char *file) {
    const Buffer *bs = W->launch->buffers;
    u64 lo = 0, hi = W->launch->n_buffers;
    while (lo < hi) {
        u64 mid = (lo + hi) / 2;
        if (bs[mid].base <= (u64)p) lo = mid + 1;
        else hi = mid;
    }
    if (lo && (u64)p <= bs[lo - 1].base + bs[lo - 1].len) return &bs[lo - 1];
    fail(UNKNOWN_POINTER, Idx(0, line, file), name, (i64)(u64)p, 0, 1, "the argument points into no live allocation");
}

// ------------------------------------------------------------ shared memory
const SharedArray *shared_array(const void *key, u32 bytes, const char *name, int line, const char *file) {
    Worker *w = W;
    for (u32 i = 0; i < w->n_arrays; i++)
        if (w->keys[i] == key) return &w->arrays[i];
    u32 at = (w->shared_used + 15) & ~15u;
    if (w->n_arrays == MAX_ARRAYS || at + bytes > SHARED_BYTES)
        fail(LIMIT, Idx(0, line, file), name, at + bytes, SHARED_BYTES, 1, "shared memory of a block is above 64 KiB");
    w->shared_used = at + bytes;
    w->keys[w->n_arrays] = key;
    w->arrays[w->n_arrays] = SharedArray{w->shared + at, bytes, name};
    return &w->arrays[w->n_arrays++];
}
void shared_note(const SharedArray *s, const u8 *p, u32 bytes, bool write, Idx at) {
    Worker *w = W;
    u32 a = (u32)(p - w->shared) / 2, b = (u32)(p - w->shared + bytes + 1) / 2;
    u16 me = (u16)w->cur;
    for (u32 i = a; i < b; i++) {
        Shadow &x = w->shadow[i];
        if (!write && x.epoch != w->epoch && x.read_epoch == w->epoch && x.reader == MANY) continue;
        if (x.epoch == w->epoch && x.writer != me) {
            char d[160];
            snprintf(d, sizeof d, "thread %u wrote it since the last barrier and thread %u %s it", x.writer, me, write ? "writes" : "reads");
            fail(SHARED_RACE, at, s->name, (i64)(p - s->base) / bytes, s->bytes / bytes, bytes, d);
        }
        if (write) {
            if (x.read_epoch == w->epoch && x.reader != me) {
                char d[160];
                snprintf(d, sizeof d, "thread %u overwrites what %s%u read since the last barrier", me,
                         x.reader == MANY ? "several threads, not only " : "thread ", x.reader == MANY ? me : x.reader);
                fail(SHARED_RACE, at, s->name, (i64)(p - s->base) / bytes, s->bytes / bytes, bytes, d);
            }
            x.epoch = w->epoch;
            x.writer = me;
        } else if (x.read_epoch != w->epoch) {
            x.read_epoch = w->epoch;
            x.reader = me;
        } else if (x.reader != me) {
            x.reader = MANY;
        }
    }
}

// ------------------------------------------------------------ barriers and wave operations
void barrier(Idx at) {
    Worker *w = W;
    Fibre &f = w->fibres[w->cur];
    f.line = at.line;
    f.file = at.file;
    f.state = WAIT_BARRIER;
    w->at_barrier++;
    to_scheduler();
}
static void complete(Wave &v, Op op) {
    switch (op) {
    case SHFL:
        for (int l = 0; l < WAVE; l++) v.out[l] = v.slot[v.aux[l]];
        break;
    case SHFL_XOR:
        for (int l = 0; l < WAVE; l++) v.out[l] = v.slot[l ^ v.aux[l]];
        break;
    case SUM_F: case MAX_F: {
        float x[WAVE], y[WAVE];
        for (int l = 0; l < WAVE; l++) x[l] = unpack<float>(v.slot[l]);
        for (int m = 1; m < WAVE; m <<= 1) { // the order a GPU's butterfly has
            for (int l = 0; l < WAVE; l++) y[l] = op == SUM_F ? x[l] + x[l ^ m] : (x[l] > x[l ^ m] ? x[l] : x[l ^ m]);
            memcpy(x, y, sizeof x);
        }
        for (int l = 0; l < WAVE; l++) v.out[l] = pack(x[l]);
        break;
    }
    case SUM_I: {
        int s = 0;
        for (int l = 0; l < WAVE; l++) s += unpack<int>(v.slot[l]);
        for (int l = 0; l < WAVE; l++) v.out[l] = pack(s);
        break;
    }
    case BALLOT: {
        u32 m = 0;
        for (int l = 0; l < WAVE; l++) m |= (u32)(v.slot[l] & 1) << l;
        for (int l = 0; l < WAVE; l++) v.out[l] = m;
        break;
    }
    case MMA: // a lane that runs ahead writes its slot anew, so the others read a copy
        memcpy(v.seen, v.wide, sizeof v.seen);
        break;
    }
}
u64 collective(Op op, u64 value, int aux, Idx at) {
    Worker *w = W;
    u32 l = w->cur % WAVE;
    Wave &v = w->waves[w->cur / WAVE];
    Fibre &f = w->fibres[w->cur];
    f.line = at.line;
    f.file = at.file;
    if ((op == SHFL || op == SHFL_XOR) && (aux < 0 || aux >= WAVE || (op == SHFL_XOR && (int)(l ^ (u32)aux) >= WAVE)))
        fail(SHUFFLE_OUT_OF_WAVE, at, "", aux, WAVE, 4, "");
    if (v.arrived == 0) {
        v.op = op;
        v.line = at.line;
        v.file = at.file;
    } else if (v.op != op || v.line != at.line) {
        char d[160];
        snprintf(d, sizeof d, "other lanes of the wave are at line %d", v.line);
        fail(WAVE_DIVERGENCE, at, "", l, WAVE, 4, d);
    }
    v.slot[l] = value;
    v.aux[l] = aux;
    if (++v.arrived == WAVE) {
        complete(v, op);
        v.arrived = 0;
        u32 first = w->cur / WAVE * WAVE;
        for (u32 i = first; i < first + WAVE; i++) w->fibres[i].state = READY;
        f.state = READY;
        return v.out[l];
    }
    f.state = WAIT_WAVE;
    to_scheduler();
    return w->waves[w->cur / WAVE].out[l];
}
float *wave_slot() { return (float *)W->waves[W->cur / WAVE].wide[W->cur % WAVE]; }
const float *wave_seen() { return (const float *)W->waves[W->cur / WAVE].seen; }

// ------------------------------------------------------------ the scheduler
static u64 mix(u64 &s) {
    s += 0x9e3779b97f4a7c15ull;
    u64 z = s;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
static void stuck(Worker *w) {
    // Nobody can run and not everybody is at the barrier: some thread left, or waits elsewhere.
    u32 waiter = 0, other = 0;
    bool have_wave = false, have_other = false;
    for (u32 i = 0; i < w->threads; i++) {
        if (w->fibres[i].state == WAIT_WAVE && !have_wave) { waiter = i; have_wave = true; }
    }
    if (!have_wave)
        for (u32 i = 0; i < w->threads; i++)
            if (w->fibres[i].state == WAIT_BARRIER) { waiter = i; break; }
    u32 lo = have_wave ? waiter / WAVE * WAVE : 0, hi = have_wave ? lo + WAVE : w->threads;
    for (u32 i = lo; i < hi && i < w->threads; i++)
        if (w->fibres[i].state != w->fibres[waiter].state) { other = i; have_other = true; break; }
    char d[200];
    const Fibre &f = w->fibres[other];
    if (have_other && f.state == DONE) snprintf(d, sizeof d, "thread %u has already returned", other);
    else if (have_other) snprintf(d, sizeof d, "thread %u waits at line %d instead", other, f.line);
    else snprintf(d, sizeof d, "the wave is not full");
    w->cur = waiter;
    set_report(have_wave ? WAVE_DIVERGENCE : BARRIER_DIVERGENCE, Idx(0, w->fibres[waiter].line, w->fibres[waiter].file), waiter, "", 0, 0, 0, d);
}
static void run_block(Worker *w, u64 &rng) {
    u32 n = w->threads, waves = (n + WAVE - 1) / WAVE;
    memset(w->shared, 0xff, w->shared_used ? w->shared_used : 4096);
    w->shared_used = w->n_arrays = 0;
    w->at_barrier = w->done = 0;
    w->epoch++;
    for (u32 i = 0; i < waves; i++) w->waves[i].arrived = 0;
    for (u32 i = 0; i < n; i++) {
        Fibre &f = w->fibres[i];
        f.state = READY;
        f.line = 0;
        f.file = nullptr;
        u8 *base = w->stacks + (u64)i * (STACK + GUARD);
#if defined(__x86_64__) || defined(__aarch64__)
        f.sp = prepare(base + GUARD + STACK, fibre_main);
#else
        getcontext(&f.ctx);
        f.ctx.uc_stack.ss_sp = base + GUARD;
        f.ctx.uc_stack.ss_size = STACK;
        f.ctx.uc_link = nullptr;
        makecontext(&f.ctx, fibre_main, 0);
#endif
    }
    u32 wave_order[MAX_THREADS / WAVE];
    for (u32 i = 0; i < waves; i++) wave_order[i] = i;
    while (w->done < n) {
        for (u32 i = waves; i > 1; i--) { u32 j = (u32)(mix(rng) % i), t = wave_order[i - 1]; wave_order[i - 1] = wave_order[j]; wave_order[j] = t; }
        bool progress = false;
        for (u32 k = 0; k < waves; k++) {
            u32 first = wave_order[k] * WAVE;
            for (bool ran = true; ran;) {
                ran = false;
                u32 r = (u32)mix(rng), start = r & 31, step = ((r >> 8) & 31) | 1; // an odd step visits each lane once
                for (u32 l = 0; l < WAVE; l++) {
                    u32 i = first + ((start + l * step) & 31);
                    if (i >= n || w->fibres[i].state != READY) continue;
                    w->cur = i;
                    where.tid = i;
                    to_fibre(i);
                    if (w->failed) return;
                    ran = progress = true;
                }
            }
        }
        if (w->at_barrier == n) {
            int line = w->fibres[0].line;
            for (u32 i = 1; i < n; i++)
                if (w->fibres[i].line != line) {
                    char d[160];
                    snprintf(d, sizeof d, "thread 0 waits at line %d", line);
                    set_report(BARRIER_DIVERGENCE, Idx(0, w->fibres[i].line, w->fibres[i].file), i, "", 0, 0, 0, d);
                    return;
                }
            for (u32 i = 0; i < n; i++) w->fibres[i].state = READY;
            w->at_barrier = 0;
            w->epoch++;
        } else if (!progress && w->done < n) {
            stuck(w);
            return;
        }
    }
}
static Worker *worker() {
    if (W) return W;
    Worker *w = (Worker *)calloc(1, sizeof(Worker));
    if (!w) return nullptr;
    u64 bytes = (u64)MAX_THREADS * (STACK + GUARD);
    void *m = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    w->shared = (u8 *)aligned_alloc(64, SHARED_BYTES);
    w->shadow = (Shadow *)calloc(SHARED_BYTES / 2 + 4, sizeof(Shadow));
    if (m == MAP_FAILED || !w->shared || !w->shadow) {
        if (m != MAP_FAILED) munmap(m, bytes);
        free(w->shared);
        free(w->shadow);
        free(w);
        return nullptr;
    }
    memset(w->shared, 0xff, SHARED_BYTES);
    w->stacks = (u8 *)m;
    return W = w;
}
} // namespace simt

using namespace simt;

// Runs the blocks first, first+step, … of a launch on the calling thread. 0: all ran. 1: `report` says what failed. 2: no memory.
extern "C" int simt_run_blocks(const SimtLaunch *launch, u64 first, u64 step, SimtReport *report, const int *stop) {
    Worker *w = worker();
    if (!w) return 2;
    w->launch = launch;
    w->report = report;
    w->threads = launch->threads;
    w->failed = false;
    while (w->stacks_made < w->threads) { // guard pages, for the stacks in use only
        mprotect(w->stacks + (u64)w->stacks_made * (STACK + GUARD), GUARD, PROT_NONE);
        w->stacks_made++;
    }
    u64 total = (u64)launch->grid[0] * launch->grid[1] * launch->grid[2];
    u64 rng = launch->seed ^ (first * 0x632be59bd9b4e019ull);
    u64 offset = total ? launch->seed % total : 0;
    for (u64 i = first; i < total; i += step) {
        if (__atomic_load_n(stop, __ATOMIC_RELAXED)) return 0;
        u64 b = (i + offset) % total;
        if (launch->seed & 1) b = total - 1 - b;
        where.x = (u32)(b % launch->grid[0]);
        where.y = (u32)(b / launch->grid[0] % launch->grid[1]);
        where.z = (u32)(b / ((u64)launch->grid[0] * launch->grid[1]));
        run_block(w, rng);
        if (w->failed) return 1;
    }
    return 0;
}
extern "C" const simt::Kernel *simt_kernels() { return simt::kernels; }
// Gives the calling thread's stacks back.
extern "C" void simt_release_thread() {
    Worker *w = W;
    if (!w) return;
    munmap(w->stacks, (u64)MAX_THREADS * (STACK + GUARD));
    free(w->shared);
    free(w->shadow);
    free(w);
    W = nullptr;
}

// The kernels of attention/kernels/cuda on a CPU: this file stands in for lanes.h. Every thread of a block is a fiber,
// which runs until it has to wait for others. A copy to shared memory happens at once, as late as the kernel allows, or
// in between; shared memory starts as NaN; and the warps take turns at random, so that one may be far ahead of another.

#define LANES_H

#include <algorithm>
#include <csetjmp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>
#include <ucontext.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct float2 { float x, y; };
struct uint4 { u32 x, y, z, w; };
static float2 make_float2(float x, float y) { return {x, y}; }
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

#define DEVICE inline
#define KERNEL(blocks) static void

namespace emulation {

[[noreturn]] void fail(const char* reason) {
    std::fprintf(stderr, "emulated GPU: %s\n", reason);
    std::abort();
}

std::mt19937 random;

struct Copy {
    u16* to;
    const u16* from;
    bool inside;
    void happen() const {
        if (inside) std::memcpy(to, from, 16);
        else std::memset(to, 0, 16);
    }
};
struct Group {
    std::vector<Copy> copies;
    // its copies happen after so many waits of their thread, or when the thread waits for them
    unsigned patience = random() % 4 == 0 ? 0 : random() % 4 == 0 ? 1 + random() % 64 : ~0u;
    bool used = false;
    void start(const Copy& copy) {
        used = true;
        if (patience) copies.push_back(copy);
        else copy.happen();
    }
    void happen() {
        for (const auto& copy : copies) copy.happen();
        copies.clear();
    }
};
struct Fiber {
    ucontext_t context;
    jmp_buf place;
    std::vector<char> stack;
    bool started = false, ended = false;
    std::vector<Group> groups{1};
};
struct Meeting {  // of a warp, or of the block
    int arrived = 0, kind = -1;
    u64 number = 0;
    alignas(16) char in[32][64], out[32][64];
};

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<std::unique_ptr<Meeting>> warps;
Meeting all;
int current, alive, block_number;
u64 events;
jmp_buf scheduler;
std::function<void()> kernel;

void wait_for_others() {
    for (auto& group : fibers[current]->groups)
        if (group.patience && --group.patience == 0) group.happen();
    if (!_setjmp(fibers[current]->place)) _longjmp(scheduler, 1);
}
void enter() {
    kernel();
    for (const auto& group : fibers[current]->groups)
        if (group.used) fail("a thread ends before its copies do");
    fibers[current]->ended = true, --alive, ++events;
    _longjmp(scheduler, 1);
}

// Meet the other lanes of the warp: `work` turns what all of them bring into what each takes along
template <typename Out, typename In, typename Work> Out meet(int kind, const In& in, Work work) {
    static_assert(sizeof(In) <= 64 && sizeof(Out) <= 64, "");
    Meeting& meeting = *warps[current / 32];
    const int lane = current % 32;
    if (meeting.arrived && meeting.kind != kind) fail("the lanes of a warp do different things");
    meeting.kind = kind;
    std::memcpy(meeting.in[lane], &in, sizeof in);
    const u64 number = meeting.number;
    ++events;
    if (++meeting.arrived == 32) {
        In ins[32];
        Out outs[32];
        for (int i = 0; i < 32; ++i) std::memcpy(&ins[i], meeting.in[i], sizeof(In));
        work(ins, outs);
        for (int i = 0; i < 32; ++i) std::memcpy(meeting.out[i], &outs[i], sizeof(Out));
        meeting.arrived = 0, ++meeting.number;
    }
    while (meeting.number == number) wait_for_others();
    Out out;
    std::memcpy(&out, meeting.out[lane], sizeof out);
    return out;
}

// Let a thread go on until it waits
void resume(int number) {
    current = number;
    if (_setjmp(scheduler)) return;
    if (fibers[number]->started) _longjmp(fibers[number]->place, 1);
    fibers[number]->started = true;
    setcontext(&fibers[number]->context);
}

void run_block(int threads) {
    fibers.clear(), warps.clear();
    for (int i = 0; i < threads; ++i) {
        fibers.push_back(std::make_unique<Fiber>());
        fibers[i]->stack.resize(256 << 10);
        getcontext(&fibers[i]->context);
        fibers[i]->context.uc_stack.ss_sp = fibers[i]->stack.data();
        fibers[i]->context.uc_stack.ss_size = fibers[i]->stack.size();
        makecontext(&fibers[i]->context, enter, 0);
    }
    for (int i = 0; i < threads; i += 32) warps.push_back(std::make_unique<Meeting>());
    all = Meeting();
    alive = threads;
    std::vector<int> order(threads / 32);
    for (int i = 0; i < threads / 32; ++i) order[i] = i;
    while (alive) {
        const u64 before = events;
        std::shuffle(order.begin(), order.end(), random);
        for (const int warp : order) {
            u64 last = events - 1;
            // a warp goes on for some time before the others do, or as far as it can; its lanes begin with a random one
            for (int turns = random() % 2 ? 1 << random() % 8 : -1; turns && last != events; --turns) {
                last = events;
                for (int i = 0, first = random() % 32; i < 32; ++i) {
                    const int number = warp * 32 + (first + i) % 32;
                    if (!fibers[number]->ended) resume(number);
                }
            }
        }
        if (events == before) fail("all threads wait for each other");
    }
}

float number_of(u32 half) {
    const u32 bits = half << 16;
    float number;
    std::memcpy(&number, &bits, 4);
    return number;
}
u32 half_of(float number) {
    u32 bits;
    std::memcpy(&bits, &number, 4);
    if (number != number) return 0x7FFF;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
float low(u32 word) { return number_of(word & 0xFFFF); }
float high(u32 word) { return number_of(word >> 16); }

struct Rows { const u16* row; };
struct Words { u32 word[4]; };
struct Operands { float c[4]; u32 a[4], b[2]; };
struct Sums { float c[4]; };

Sums product(const Operands& mine, int depth) {
    return meet<Sums>(depth, mine, [depth](const Operands* in, Sums* out) {
        float A[16][16] = {}, B[16][8] = {};
        for (int lane = 0; lane < 32; ++lane) {
            const int g = lane / 4, t = lane % 4;
            for (int i = 0; i < depth / 4; ++i)
                A[g + i % 2 * 8][2 * t + i / 2 * 8] = low(in[lane].a[i]), A[g + i % 2 * 8][2 * t + 1 + i / 2 * 8] = high(in[lane].a[i]);
            for (int i = 0; i < depth / 8; ++i) B[2 * t + 8 * i][g] = low(in[lane].b[i]), B[2 * t + 1 + 8 * i][g] = high(in[lane].b[i]);
        }
        for (int lane = 0; lane < 32; ++lane)
            for (int e = 0; e < 4; ++e) {
                float sum = in[lane].c[e];
                for (int k = 0; k < depth; ++k) sum += A[lane / 4 + e / 2 * 8][k] * B[k][lane % 4 * 2 + e % 2];
                out[lane].c[e] = sum;
            }
    });
}
template <int COUNT, bool TRANSPOSED> void load(u32 (&words)[COUNT], const u16* row) {
    const Words got = meet<Words>(100 + 2 * COUNT + TRANSPOSED, Rows{row}, [](const Rows* in, Words* out) {
        for (int i = 0; i < 8 * COUNT; ++i)
            if (reinterpret_cast<size_t>(in[i].row) % 16) fail("a row of a matrix doesn't start at a multiple of 16 bytes");
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < COUNT; ++i) {
                const int g = lane / 4, t = lane % 4;
                const u32 first = TRANSPOSED ? in[8 * i + 2 * t].row[g] : in[8 * i + g].row[2 * t];
                const u32 second = TRANSPOSED ? in[8 * i + 2 * t + 1].row[g] : in[8 * i + g].row[2 * t + 1];
                out[lane].word[i] = first | second << 16;
            }
    });
    for (int i = 0; i < COUNT; ++i) words[i] = got.word[i];
}

}  // namespace emulation

alignas(16) static u8 shared_memory[256 << 10];

static int thread() { return emulation::current; }
static int block() { return emulation::block_number; }
static void barrier() {
    using namespace emulation;
    const u64 number = all.number;
    ++events;
    if (++all.arrived == (int)fibers.size()) all.arrived = 0, ++all.number;
    while (all.number == number) wait_for_others();
}
static void keep_order() {}
static float infinity() { return std::numeric_limits<float>::infinity(); }
static float exp2_of(float x) { return std::exp2(x); }
static float float_of(u32 word) { float number; std::memcpy(&number, &word, 4); return number; }
static u32 word_of(float number) { u32 word; std::memcpy(&word, &number, 4); return word; }
static float log2_of(float x) { return std::log2(x); }
static u32 pack(float first, float second) { return emulation::half_of(first) | emulation::half_of(second) << 16; }
static void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    const auto sums = emulation::product({{c[0], c[1], c[2], c[3]}, {a0, a1, a2, a3}, {b0, b1}}, 16);
    for (int e = 0; e < 4; ++e) c[e] = sums.c[e];
}
static void multiply(float (&c)[4], u32 a0, u32 a1, u32 b0) {
    const auto sums = emulation::product({{c[0], c[1], c[2], c[3]}, {a0, a1, 0, 0}, {b0, 0}}, 8);
    for (int e = 0; e < 4; ++e) c[e] = sums.c[e];
}
static void load_matrices(u32 (&words)[4], const u16* row) { emulation::load<4, false>(words, row); }
static void load_matrices(u32 (&words)[2], const u16* row) { emulation::load<2, false>(words, row); }
static void load_transposed(u32 (&words)[4], const u16* row) { emulation::load<4, true>(words, row); }
static u32 load_word(const u32* place) { return *place; }
static float2 load_two(const float* place) { return {place[0], place[1]}; }
static u32 transpose(u32 word) {
    return emulation::meet<u32>(200, word, [](const u32* in, u32* out) {
        for (int lane = 0; lane < 32; ++lane) {
            const int g = lane / 4, t = lane % 4;
            const auto element = [&](int row, int column) { return in[4 * row + column / 2] >> 16 * (column % 2) & 0xFFFF; };
            out[lane] = element(2 * t, g) | element(2 * t + 1, g) << 16;
        }
    });
}
static u32 exchange(u32 word, int bit) {
    return emulation::meet<u32>(300 + bit, word, [bit](const u32* in, u32* out) {
        for (int lane = 0; lane < 32; ++lane) out[lane] = in[lane ^ bit];
    });
}
static u32 votes(bool vote) {
    return emulation::meet<u32>(400, vote, [](const bool* in, u32* out) {
        u32 word = 0;
        for (int lane = 0; lane < 32; ++lane) word |= (u32)in[lane] << lane;
        for (int lane = 0; lane < 32; ++lane) out[lane] = word;
    });
}
static void start_copy(u16* to, const u16* from, bool inside) {
    if (reinterpret_cast<size_t>(from) % 16 || reinterpret_cast<size_t>(to) % 16) emulation::fail("a copy isn't aligned to 16 bytes");
    emulation::fibers[emulation::current]->groups.back().start({to, from, inside});
}
static void end_group() { emulation::fibers[emulation::current]->groups.emplace_back(); }
template <int PENDING> void wait_for_groups() {
    auto& groups = emulation::fibers[emulation::current]->groups;
    // the last of them is still open
    while ((int)groups.size() - 1 > PENDING) {
        groups.front().happen();
        groups.erase(groups.begin());
    }
}

#ifdef MIXED
#include "mixed.cu"
#define PROGRAMS(name) name(sums) name(output) name(value_gradient) name(correction) name(query_gradient) name(key_gradient)
#else
#include "plain.cu"
#define PROGRAMS(name) name(plain_output) name(plain_query_gradient) name(plain_memory_gradient)
#endif

extern "C" void launch(const char* name, int blocks, int threads, int shared_bytes, const Arguments* arguments) {
    using Program = void (*)(const Arguments);
#define PAIR(name) {#name, name},
    static const std::pair<const char*, Program> programs[] = {PROGRAMS(PAIR)};
    emulation::random.seed(0);
    for (const auto& [other, program] : programs)
        if (std::string(name) == other)
            for (int block = 0; block < blocks; ++block) {
                std::memset(shared_memory, 0xFF, sizeof shared_memory);
                emulation::block_number = block;
                emulation::kernel = [arguments, program = program] { program(*arguments); };
                emulation::run_block(threads);
                for (size_t i = shared_bytes; i < sizeof shared_memory; ++i)
                    if (shared_memory[i] != 0xFF) emulation::fail("a kernel wrote past its shared memory");
            }
}

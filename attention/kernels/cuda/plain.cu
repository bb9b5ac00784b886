// Attention of heads that don't mix, on tensor cores, forward and backward, without a map in global memory: the order of
// computation is that of FlashAttention-2 (2307.08691), the dropout is the project's, and nothing is added atomically.
//
// A block computes one head of its x, 16 for each warp; each warp goes over all y of a tile.

#include "block.h"

constexpr int THREADS = 32 * X_TILES;
static_assert(Y_TILES == 4 || Y_TILES == 8, "");

// a row of a tile, and 16 bytes more, so that eight rows lie in different banks
constexpr int KEY_STRIDE = KEY_WIDTH + 8, VALUE_STRIDE = VALUE_WIDTH + 8;

// Start to copy COUNT rows of one head from row `first` of [length, heads, size]
template <int SIZE, int WIDTH, int COUNT> DEVICE void start_rows(u16* shared, const u16* base, int first, int length) {
    constexpr int CHUNKS = WIDTH / 8;
    for (int place = thread(); place < COUNT * CHUNKS; place += THREADS) {
        const int row = place / CHUNKS, feature = place % CHUNKS * 8;
        const bool inside = first + row < length && feature < SIZE;
        start_copy(shared + row * (WIDTH + 8) + feature, base + (inside ? (long long)(first + row) * HEADS * SIZE + feature : 0), inside);
    }
}
template <int COUNT> DEVICE void start_keys(u16* shared, const u16* base, int first, int length) {
    start_rows<KEY_SIZE, KEY_WIDTH, COUNT>(shared, base, first, length);
}
template <int COUNT> DEVICE void start_values(u16* shared, const u16* base, int first, int length) {
    start_rows<VALUE_SIZE, VALUE_WIDTH, COUNT>(shared, base, first, length);
}

// Products over features of the warp's 16 x and all y of a tile. Number [n][2 r + e] is of x g + 8 r and y 8 n + 2t + e.
template <int WIDTH> DEVICE void compare(float (&sums)[Y_TILES][4], const u16* xs, const u16* ys, const Lane& at) {
    xs += (at.warp * 16 + at.lane % 16) * (WIDTH + 8) + at.lane / 16 * 8;
    ys += (at.lane % 8 + at.lane / 16 * 8) * (WIDTH + 8) + at.lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < Y_TILES; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[n][e] = 0;
#pragma unroll
    for (int feature = 0; feature < WIDTH; feature += 16) {
        u32 a[4];
        load_matrices(a, xs + feature);
#pragma unroll
        for (int n = 0; n < Y_TILES; n += 2) {
            u32 b[4];
            load_matrices(b, ys + n * 8 * (WIDTH + 8) + feature);
            multiply(sums[n], a[0], a[1], a[2], a[3], b[0], b[1]);
            multiply(sums[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
    }
}

// Add the products of a map, in the order of `compare`, and the vectors of the y
template <int WIDTH> DEVICE void combine(float (&result)[WIDTH / 8][4], const float (&map)[Y_TILES][4], const u16* ys, const Lane& at) {
    ys += at.lane % 16 * (WIDTH + 8) + at.lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < Y_TILES; n += 2) {
        const u32 a0 = pack(map[n][0], map[n][1]), a1 = pack(map[n][2], map[n][3]);
        const u32 a2 = pack(map[n + 1][0], map[n + 1][1]), a3 = pack(map[n + 1][2], map[n + 1][3]);
#pragma unroll
        for (int feature = 0; feature < WIDTH; feature += 16) {
            u32 b[4];
            load_transposed(b, ys + n * 8 * (WIDTH + 8) + feature);
            multiply(result[feature / 8], a0, a1, a2, a3, b[0], b[1]);
            multiply(result[feature / 8 + 1], a0, a1, a2, a3, b[2], b[3]);
        }
    }
}

template <int WIDTH> DEVICE void clear(float (&result)[WIDTH / 8][4]) {
#pragma unroll
    for (int n = 0; n < WIDTH / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) result[n][e] = 0;
}

// Store the warp's rows of one head, row g + 8 r times factors[r]
template <int SIZE, int WIDTH>
DEVICE void store_rows(u16* base, const float (&result)[WIDTH / 8][4], int first, int length, const float (&factors)[2], const Lane& at) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first + at.warp * 16 + at.g + 8 * r;
        if (row >= length) continue;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; ++n)
            if (8 * n < SIZE)
                *reinterpret_cast<u32*>(base + (long long)row * HEADS * SIZE + 8 * n + 2 * at.t) =
                    pack(factors[r] * result[n][2 * r], factors[r] * result[n][2 * r + 1]);
    }
}

// Where the numbers of the head's queries begin in a tensor [B, h, N]
template <bool SWAPPED> DEVICE long long first_number(const Work<SWAPPED, HEADS>& work) {
    return ((long long)work.example * HEADS + work.head) * (SWAPPED ? work.ys : work.xs);
}

// The tiles of a block in shared memory: its x, this tile of y, and the next one
template <bool SWAPPED, bool X_VALUES> struct Tiles {
    const Work<SWAPPED, HEADS>& work;
    u16 *x_keys, *x_values, *y_keys, *y_values;

    // Start to copy the x and the first y
    DEVICE Tiles(Arena& arena, const Work<SWAPPED, HEADS>& work) : work(work) {
        x_keys = arena.take<u16>(X * KEY_STRIDE), x_values = arena.take<u16>(X_VALUES ? X * VALUE_STRIDE : 0);
        y_keys = arena.take<u16>(2 * Y * KEY_STRIDE), y_values = arena.take<u16>(2 * Y * VALUE_STRIDE);
        start_keys<X>(x_keys, work.x_keys, work.first_x, work.xs);
        if (X_VALUES) start_values<X>(x_values, work.x_values, work.first_x, work.xs);
        start(0, work.start);
    }
    // Start to copy the y from `first_y`; turn: 0 or 1, by turns
    DEVICE void start(int turn, int first_y) const {
        start_keys<Y>(keys(turn), work.y_keys, first_y, work.ys);
        start_values<Y>(values(turn), work.y_values, first_y, work.ys);
        end_group();
    }
    DEVICE u16* keys(int turn) const { return y_keys + turn * Y * KEY_STRIDE; }
    DEVICE u16* values(int turn) const { return y_values + turn * Y * VALUE_STRIDE; }
};

// Set the logits of pairs that may not be seen to -inf
template <bool SWAPPED> DEVICE void hide(float (&map)[Y_TILES][4], const Sight<SWAPPED, Y>& sight, const Lane& at) {
    if (sight.all) return;
#pragma unroll
    for (int n = 0; n < Y_TILES; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (!sight.allows(e / 2, 8 * n + 2 * at.t + e % 2)) map[n][e] = -infinity();
}

// the maximum, or sum, of the four lanes that share a row
DEVICE float row_maximum(float number) {
    number = fmaxf(number, float_of(exchange(word_of(number), 1)));
    return fmaxf(number, float_of(exchange(word_of(number), 2)));
}
DEVICE float row_sum(float number) {
    number += float_of(exchange(word_of(number), 1));
    return number + float_of(exchange(word_of(number), 2));
}

// The output and the log of the sum of exp(logits), in units of log 2; inf for a query that may see nothing
KERNEL(4) plain_output(const Arguments arguments) {
    Arena arena;
    const Lane at;
    const Work<false, HEADS> work(arguments);
    Sight<false, Y> sight(arguments, work.example);
    const long long numbers = first_number(work);
    const float scale = arguments.scale * LOG2_E;

    const Tiles<false, false> tiles(arena, work);
    u64 dropout_keys[2] = {};
    if (DROPOUT)
        for (int r = 0; r < 2; ++r) {
            const int x = work.first_x + at.warp * 16 + at.g + 8 * r;
            if (x < work.xs) dropout_keys[r] = arguments.dropout_keys[numbers + x];
        }
    float result[VALUE_WIDTH / 8][4], highest[2] = {LOWEST, LOWEST}, total[2] = {};
    clear<VALUE_WIDTH>(result);
    for (int first_y = work.start, turn = 0; first_y < work.stop; first_y += Y, turn ^= 1) {
        wait_for_groups<0>();
        barrier();
        tiles.start(turn ^ 1, first_y + Y);
        float map[Y_TILES][4];
        compare<KEY_WIDTH>(map, tiles.x_keys, tiles.keys(turn), at);
        sight.look(at, work.first_x + at.warp * 16, first_y);
        hide(map, sight, at);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float top = highest[r];
#pragma unroll
            for (int n = 0; n < Y_TILES; ++n) top = fmaxf(top, fmaxf(map[n][2 * r], map[n][2 * r + 1]));
            top = row_maximum(top);
            const float shrink = exp2_of((highest[r] - top) * scale), shift = top * scale;
            highest[r] = top, total[r] *= shrink;
#pragma unroll
            for (int n = 0; n < Y_TILES; ++n)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; ++e) map[n][e] = exp2_of(map[n][e] * scale - shift), total[r] += map[n][e];
#pragma unroll
            for (int n = 0; n < VALUE_WIDTH / 8; ++n) result[n][2 * r] *= shrink, result[n][2 * r + 1] *= shrink;
        }
        if (DROPOUT)
#pragma unroll
            for (int n = 0; n < Y_TILES; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (!keeps(dropout_keys[e / 2], first_y + 8 * n + 2 * at.t + e % 2, arguments.keep_threshold)) map[n][e] = 0;
        combine<VALUE_WIDTH>(result, map, tiles.values(turn), at);
    }
    wait_for_groups<0>();
    float factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float sum = row_sum(total[r]);
        factors[r] = sum == 0 ? 0 : arguments.keep_scale / sum;
        const int x = work.first_x + at.warp * 16 + at.g + 8 * r;
        if (at.t == 0 && x < work.xs) arguments.lse[numbers + x] = sum == 0 ? infinity() : highest[r] * scale + log2_of(sum);
    }
    store_rows<VALUE_SIZE, VALUE_WIDTH>(work.values(arguments.output, work.x_rows), result, work.first_x, work.xs, factors, at);
}

// The gradient of the queries
KERNEL(3) plain_query_gradient(const Arguments arguments) {
    Arena arena;
    const Lane at;
    const Work<false, HEADS> work(arguments);
    Sight<false, Y> sight(arguments, work.example);
    const long long numbers = first_number(work);
    const float scale = arguments.scale * LOG2_E;

    const Tiles<false, true> tiles(arena, work);
    float result[KEY_WIDTH / 8][4], lse[2], mean[2];
    u64 dropout_keys[2] = {};
    clear<KEY_WIDTH>(result);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int x = work.first_x + at.warp * 16 + at.g + 8 * r;
        const bool exists = x < work.xs;
        lse[r] = exists ? arguments.lse[numbers + x] : infinity();
        mean[r] = exists ? arguments.correction[numbers + x] : 0;
        if (DROPOUT && exists) dropout_keys[r] = arguments.dropout_keys[numbers + x];
    }
    for (int first_y = work.start, turn = 0; first_y < work.stop; first_y += Y, turn ^= 1) {
        wait_for_groups<0>();
        barrier();
        tiles.start(turn ^ 1, first_y + Y);
        float map[Y_TILES][4], dU[Y_TILES][4];
        compare<KEY_WIDTH>(map, tiles.x_keys, tiles.keys(turn), at);
        compare<VALUE_WIDTH>(dU, tiles.x_values, tiles.values(turn), at);
        sight.look(at, work.first_x + at.warp * 16, first_y);
        hide(map, sight, at);
#pragma unroll
        for (int n = 0; n < Y_TILES; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float weight = exp2_of(map[n][e] * scale - lse[e / 2]);
                if (DROPOUT && !keeps(dropout_keys[e / 2], first_y + 8 * n + 2 * at.t + e % 2, arguments.keep_threshold)) dU[n][e] = 0;
                map[n][e] = weight * (arguments.keep_scale * dU[n][e] - mean[e / 2]);
            }
        combine<KEY_WIDTH>(result, map, tiles.keys(turn), at);
    }
    wait_for_groups<0>();
    const float factors[2] = {arguments.scale, arguments.scale};
    store_rows<KEY_SIZE, KEY_WIDTH>(work.keys(arguments.grad_query, work.x_rows), result, work.first_x, work.xs, factors, at);
}

// The gradients of the keys and the values
KERNEL(Y == 64 ? 3 : 2) plain_memory_gradient(const Arguments arguments) {
    Arena arena;
    const Lane at;
    const Work<true, HEADS> work(arguments);
    Sight<true, Y> sight(arguments, work.example);
    const long long numbers = first_number(work);
    const float scale = arguments.scale * LOG2_E;

    const Tiles<true, true> tiles(arena, work);
    // of the queries of both tiles
    u64* const dropout_keys = arena.take<u64>(2 * Y);
    float* const lse = arena.take<float>(2 * Y);
    float* const mean = arena.take<float>(2 * Y);
    float grad_key[KEY_WIDTH / 8][4], grad_value[VALUE_WIDTH / 8][4];
    clear<KEY_WIDTH>(grad_key);
    clear<VALUE_WIDTH>(grad_value);
    for (int first_y = work.start, turn = 0; first_y < work.stop; first_y += Y, turn ^= 1) {
        const int place = turn * Y;
        if (thread() < Y) {
            const int y = first_y + thread();
            const bool exists = y < work.ys;
            lse[place + thread()] = exists ? arguments.lse[numbers + y] : infinity();
            mean[place + thread()] = exists ? arguments.correction[numbers + y] : 0;
            if (DROPOUT) dropout_keys[place + thread()] = exists ? arguments.dropout_keys[numbers + y] : 0;
        }
        wait_for_groups<0>();
        barrier();
        tiles.start(turn ^ 1, first_y + Y);
        float map[Y_TILES][4], dU[Y_TILES][4], U[Y_TILES][4];
        compare<KEY_WIDTH>(map, tiles.x_keys, tiles.keys(turn), at);
        compare<VALUE_WIDTH>(dU, tiles.x_values, tiles.values(turn), at);
        sight.look(at, work.first_x + at.warp * 16, first_y);
        hide(map, sight, at);
#pragma unroll
        for (int n = 0; n < Y_TILES; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int y = place + 8 * n + 2 * at.t + e % 2;
                const float weight = exp2_of(map[n][e] * scale - lse[y]);
                const bool kept = !DROPOUT || keeps(dropout_keys[y], sight.first_x + e / 2 * 8, arguments.keep_threshold);
                U[n][e] = kept ? weight : 0;
                map[n][e] = weight * ((kept ? arguments.keep_scale * dU[n][e] : 0) - mean[y]);
            }
        combine<VALUE_WIDTH>(grad_value, U, tiles.values(turn), at);
        combine<KEY_WIDTH>(grad_key, map, tiles.keys(turn), at);
    }
    wait_for_groups<0>();
    const float scales[2] = {arguments.scale, arguments.scale}, keep_scales[2] = {arguments.keep_scale, arguments.keep_scale};
    store_rows<KEY_SIZE, KEY_WIDTH>(work.keys(arguments.grad_key, work.x_rows), grad_key, work.first_x, work.xs, scales, at);
    store_rows<VALUE_SIZE, VALUE_WIDTH>(work.values(arguments.grad_value, work.x_rows), grad_value, work.first_x, work.xs, keep_scales, at);
}

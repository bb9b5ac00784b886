// Attention of heads that don't mix, on tensor cores, forward and backward, without a map in global memory: the order of
// computation is that of FlashAttention-2 (2307.08691), the dropout is the project's, and nothing is added atomically.
//
// The host defines: HEADS, KEY_SIZE, VALUE_SIZE (multiples of 8), COLUMNS (32 or 64), THREADS (128), CAUSAL,
// MASKED, DROPOUT.
//
// A block computes ROWS rows of a result of one head, 16 for each warp, and goes over the other side by tiles of
// COLUMNS. Rows are queries and columns memory positions, or the other way round in the gradients of keys and values
// (SWAPPED).

#include "lanes.h"
#include "problem.h"

constexpr int WARPS = THREADS / 32, ROWS = 16 * WARPS, NS = COLUMNS / 8;
constexpr int KEY_WIDTH = (KEY_SIZE + 15) / 16 * 16, VALUE_WIDTH = (VALUE_SIZE + 15) / 16 * 16;
static_assert((COLUMNS == 32 || COLUMNS == 64) && ROWS == 64, "");

// a row of a tile, and 16 bytes more, so that eight rows lie in different banks
constexpr int KEY_STRIDE = KEY_WIDTH + 8, VALUE_STRIDE = VALUE_WIDTH + 8;

struct Lane {
    int warp, lane, g, t;
    DEVICE Lane() { warp = thread() / 32, lane = thread() % 32, g = lane / 4, t = lane % 4; }
};

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

// Products over features of the warp's 16 rows and all columns. Number [n][2 r + e] is of row g + 8 r, column 8 n + 2t + e.
template <int WIDTH> DEVICE void compare(float (&sums)[NS][4], const u16* rows, const u16* columns, const Lane& at) {
    rows += (at.warp * 16 + at.lane % 16) * (WIDTH + 8) + at.lane / 16 * 8;
    columns += (at.lane % 8 + at.lane / 16 * 8) * (WIDTH + 8) + at.lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < NS; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[n][e] = 0;
#pragma unroll
    for (int feature = 0; feature < WIDTH; feature += 16) {
        u32 a[4];
        load_matrices(a, rows + feature);
#pragma unroll
        for (int n = 0; n < NS; n += 2) {
            u32 b[4];
            load_matrices(b, columns + n * 8 * (WIDTH + 8) + feature);
            multiply(sums[n], a[0], a[1], a[2], a[3], b[0], b[1]);
            multiply(sums[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
    }
}

// Add the products of maps, in the order of `compare`, and the columns' vectors
template <int WIDTH> DEVICE void combine(float (&result)[WIDTH / 8][4], const float (&map)[NS][4], const u16* columns, const Lane& at) {
    columns += at.lane % 16 * (WIDTH + 8) + at.lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < NS; n += 2) {
        const u32 a0 = pack(map[n][0], map[n][1]), a1 = pack(map[n][2], map[n][3]);
        const u32 a2 = pack(map[n + 1][0], map[n + 1][1]), a3 = pack(map[n + 1][2], map[n + 1][3]);
#pragma unroll
        for (int feature = 0; feature < WIDTH; feature += 16) {
            u32 b[4];
            load_transposed(b, columns + n * 8 * (WIDTH + 8) + feature);
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

// The example, head and first row of this block, and the columns that it goes over
template <bool SWAPPED> struct Work {
    int example, head, first, rows, columns, start, stop;
    long long query_row, memory_row, sums;  // of the example; of the head's numbers of queries [B, h, N]
    DEVICE Work(const Arguments& arguments) {
        rows = SWAPPED ? arguments.memory : arguments.queries, columns = SWAPPED ? arguments.queries : arguments.memory;
        const int blocks = (rows + ROWS - 1) / ROWS;
        example = block() / (blocks * HEADS), head = block() / blocks % HEADS, first = block() % blocks * ROWS;
        start = CAUSAL && SWAPPED ? first / COLUMNS * COLUMNS : 0, stop = columns;
        if (CAUSAL && !SWAPPED && first + ROWS < columns) stop = first + ROWS;
        query_row = (long long)example * arguments.queries, memory_row = (long long)example * arguments.memory;
        sums = ((long long)example * HEADS + head) * arguments.queries;
    }
    DEVICE const u16* keys(const u16* base, long long row) const { return base + (row * HEADS + head) * KEY_SIZE; }
    DEVICE const u16* values(const u16* base, long long row) const { return base + (row * HEADS + head) * VALUE_SIZE; }
};

// Which pairs of the warp's rows and a tile's columns may be seen
template <bool SWAPPED> struct Sight {
    const Arguments& arguments;
    const u8* mask;
    int row, column;  // the lane's first row, the tile's first column
    u64 visible;      // of the tile's columns, or of the lane's two rows (SWAPPED)
    bool all;

    DEVICE Sight(const Arguments& arguments, int example) : arguments(arguments) {
        mask = MASKED ? arguments.mask + (long long)example * arguments.mask_stride : nullptr;
    }
    DEVICE bool is_visible(int position) const {
        return position < arguments.memory && (!MASKED || mask[position] != 0);
    }
    DEVICE void look(const Lane& at, int first_row, int first_column) {
        const int top = first_row + at.warp * 16;
        row = top + at.g, column = first_column;
        if (SWAPPED) {
            visible = (u64)is_visible(row) | (u64)is_visible(row + 8) << 1;
            all = votes(visible == 3) == ~0u;
        } else {
            visible = votes(is_visible(column + at.lane));
            if (COLUMNS == 64) visible |= (u64)votes(is_visible(column + 32 + at.lane)) << 32;
            all = visible == ~0ull >> (64 - COLUMNS);
        }
        if (CAUSAL) all = all && (SWAPPED ? top + 15 <= column : column + COLUMNS - 1 <= top);
    }
    // r: 0 or 1; place: of the column in the tile
    DEVICE bool allows(int r, int place) const {
        const bool seen = visible >> (SWAPPED ? r : place) & 1;
        return seen && (!CAUSAL || (SWAPPED ? row + 8 * r <= column + place : column + place <= row + 8 * r));
    }
    DEVICE void hide(float (&map)[NS][4], const Lane& at) const {
        if (all) return;
#pragma unroll
        for (int n = 0; n < NS; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (!allows(e / 2, 8 * n + 2 * at.t + e % 2)) map[n][e] = -infinity();
    }
};

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
    u16* const query = reinterpret_cast<u16*>(shared_memory);
    u16* const key = query + ROWS * KEY_STRIDE;  // this tile and the next one
    u16* const value = key + 2 * COLUMNS * KEY_STRIDE;
    const Lane at;
    const Work<false> work(arguments);
    Sight<false> sight(arguments, work.example);
    const float scale = arguments.scale * LOG2_E;
    const u16* const keys = work.keys(arguments.key, work.memory_row);
    const u16* const values = work.values(arguments.value, work.memory_row);
    u64 dropout_keys[2] = {};
    if (DROPOUT)
        for (int r = 0; r < 2; ++r) {
            const int row = work.first + at.warp * 16 + at.g + 8 * r;
            if (row < work.rows) dropout_keys[r] = arguments.dropout_keys[work.sums + row];
        }

    start_keys<ROWS>(query, work.keys(arguments.query, work.query_row), work.first, work.rows);
    start_keys<COLUMNS>(key, keys, work.start, work.columns);
    start_values<COLUMNS>(value, values, work.start, work.columns);
    end_group();
    float result[VALUE_WIDTH / 8][4], highest[2] = {LOWEST, LOWEST}, total[2] = {};
    clear<VALUE_WIDTH>(result);
    for (int first = work.start, tile = 0; first < work.stop; first += COLUMNS, tile ^= 1) {
        wait_for_groups<0>();
        barrier();
        start_keys<COLUMNS>(key + (tile ^ 1) * COLUMNS * KEY_STRIDE, keys, first + COLUMNS, work.columns);
        start_values<COLUMNS>(value + (tile ^ 1) * COLUMNS * VALUE_STRIDE, values, first + COLUMNS, work.columns);
        end_group();
        float map[NS][4];
        compare<KEY_WIDTH>(map, query, key + tile * COLUMNS * KEY_STRIDE, at);
        sight.look(at, work.first, first);
        sight.hide(map, at);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float top = highest[r];
#pragma unroll
            for (int n = 0; n < NS; ++n) top = fmaxf(top, fmaxf(map[n][2 * r], map[n][2 * r + 1]));
            top = row_maximum(top);
            const float shrink = exp2_of((highest[r] - top) * scale), shift = top * scale;
            highest[r] = top, total[r] *= shrink;
#pragma unroll
            for (int n = 0; n < NS; ++n)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; ++e) map[n][e] = exp2_of(map[n][e] * scale - shift), total[r] += map[n][e];
#pragma unroll
            for (int n = 0; n < VALUE_WIDTH / 8; ++n) result[n][2 * r] *= shrink, result[n][2 * r + 1] *= shrink;
        }
        if (DROPOUT)
#pragma unroll
            for (int n = 0; n < NS; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (!keeps(dropout_keys[e / 2], first + 8 * n + 2 * at.t + e % 2, arguments.keep_threshold)) map[n][e] = 0;
        combine<VALUE_WIDTH>(result, map, value + tile * COLUMNS * VALUE_STRIDE, at);
    }
    wait_for_groups<0>();
    float factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float sum = row_sum(total[r]);
        factors[r] = sum == 0 ? 0 : arguments.keep_scale / sum;
        const int row = work.first + at.warp * 16 + at.g + 8 * r;
        if (at.t == 0 && row < work.rows)
            arguments.lse[work.sums + row] = sum == 0 ? infinity() : highest[r] * scale + log2_of(sum);
    }
    store_rows<VALUE_SIZE, VALUE_WIDTH>(arguments.output + (work.query_row * HEADS + work.head) * VALUE_SIZE, result, work.first, work.rows,
                                        factors, at);
}

// The gradient of the queries
KERNEL(3) plain_query_gradient(const Arguments arguments) {
    u16* const query = reinterpret_cast<u16*>(shared_memory);
    u16* const grad = query + ROWS * KEY_STRIDE;
    u16* const key = grad + ROWS * VALUE_STRIDE;  // this tile and the next one
    u16* const value = key + 2 * COLUMNS * KEY_STRIDE;
    const Lane at;
    const Work<false> work(arguments);
    Sight<false> sight(arguments, work.example);
    const float scale = arguments.scale * LOG2_E;
    const u16* const keys = work.keys(arguments.key, work.memory_row);
    const u16* const values = work.values(arguments.value, work.memory_row);

    start_keys<ROWS>(query, work.keys(arguments.query, work.query_row), work.first, work.rows);
    start_values<ROWS>(grad, work.values(arguments.grad_output, work.query_row), work.first, work.rows);
    start_keys<COLUMNS>(key, keys, work.start, work.columns);
    start_values<COLUMNS>(value, values, work.start, work.columns);
    end_group();
    float result[KEY_WIDTH / 8][4], lse[2], mean[2];
    u64 dropout_keys[2] = {};
    clear<KEY_WIDTH>(result);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = work.first + at.warp * 16 + at.g + 8 * r;
        const bool exists = row < work.rows;
        lse[r] = exists ? arguments.lse[work.sums + row] : infinity();
        mean[r] = exists ? arguments.correction[work.sums + row] : 0;
        if (DROPOUT && exists) dropout_keys[r] = arguments.dropout_keys[work.sums + row];
    }
    for (int first = work.start, tile = 0; first < work.stop; first += COLUMNS, tile ^= 1) {
        wait_for_groups<0>();
        barrier();
        start_keys<COLUMNS>(key + (tile ^ 1) * COLUMNS * KEY_STRIDE, keys, first + COLUMNS, work.columns);
        start_values<COLUMNS>(value + (tile ^ 1) * COLUMNS * VALUE_STRIDE, values, first + COLUMNS, work.columns);
        end_group();
        float map[NS][4], dU[NS][4];
        compare<KEY_WIDTH>(map, query, key + tile * COLUMNS * KEY_STRIDE, at);
        compare<VALUE_WIDTH>(dU, grad, value + tile * COLUMNS * VALUE_STRIDE, at);
        sight.look(at, work.first, first);
        sight.hide(map, at);
#pragma unroll
        for (int n = 0; n < NS; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const float weight = exp2_of(map[n][e] * scale - lse[e / 2]);
                if (DROPOUT && !keeps(dropout_keys[e / 2], first + 8 * n + 2 * at.t + e % 2, arguments.keep_threshold)) dU[n][e] = 0;
                map[n][e] = weight * (arguments.keep_scale * dU[n][e] - mean[e / 2]);
            }
        combine<KEY_WIDTH>(result, map, key + tile * COLUMNS * KEY_STRIDE, at);
    }
    wait_for_groups<0>();
    const float factors[2] = {arguments.scale, arguments.scale};
    store_rows<KEY_SIZE, KEY_WIDTH>(arguments.grad_query + (work.query_row * HEADS + work.head) * KEY_SIZE, result, work.first, work.rows,
                                    factors, at);
}

// The gradients of the keys and the values
KERNEL(COLUMNS == 64 ? 3 : 2) plain_memory_gradient(const Arguments arguments) {
    u16* const key = reinterpret_cast<u16*>(shared_memory);
    u16* const value = key + ROWS * KEY_STRIDE;
    u16* const query = value + ROWS * VALUE_STRIDE;  // this tile and the next one
    u16* const grad = query + 2 * COLUMNS * KEY_STRIDE;
    // numbers of a tile's queries
    u64* const dropout_keys = reinterpret_cast<u64*>(grad + 2 * COLUMNS * VALUE_STRIDE);
    float* const lse = reinterpret_cast<float*>(dropout_keys + 2 * COLUMNS);
    float* const mean = lse + 2 * COLUMNS;
    const Lane at;
    const Work<true> work(arguments);
    Sight<true> sight(arguments, work.example);
    const float scale = arguments.scale * LOG2_E;
    const u16* const queries = work.keys(arguments.query, work.query_row);
    const u16* const grads = work.values(arguments.grad_output, work.query_row);

    start_keys<ROWS>(key, work.keys(arguments.key, work.memory_row), work.first, work.rows);
    start_values<ROWS>(value, work.values(arguments.value, work.memory_row), work.first, work.rows);
    start_keys<COLUMNS>(query, queries, work.start, work.columns);
    start_values<COLUMNS>(grad, grads, work.start, work.columns);
    end_group();
    float grad_key[KEY_WIDTH / 8][4], grad_value[VALUE_WIDTH / 8][4];
    clear<KEY_WIDTH>(grad_key);
    clear<VALUE_WIDTH>(grad_value);
    for (int first = work.start, tile = 0; first < work.stop; first += COLUMNS, tile ^= 1) {
        const int place = tile * COLUMNS, next = (tile ^ 1) * COLUMNS;
        if (thread() < COLUMNS) {
            const int column = first + thread();
            const bool exists = column < work.columns;
            lse[place + thread()] = exists ? arguments.lse[work.sums + column] : infinity();
            mean[place + thread()] = exists ? arguments.correction[work.sums + column] : 0;
            if (DROPOUT) dropout_keys[place + thread()] = exists ? arguments.dropout_keys[work.sums + column] : 0;
        }
        wait_for_groups<0>();
        barrier();
        start_keys<COLUMNS>(query + next * KEY_STRIDE, queries, first + COLUMNS, work.columns);
        start_values<COLUMNS>(grad + next * VALUE_STRIDE, grads, first + COLUMNS, work.columns);
        end_group();
        float map[NS][4], dU[NS][4], U[NS][4];
        compare<KEY_WIDTH>(map, key, query + place * KEY_STRIDE, at);
        compare<VALUE_WIDTH>(dU, value, grad + place * VALUE_STRIDE, at);
        sight.look(at, work.first, first);
        sight.hide(map, at);
#pragma unroll
        for (int n = 0; n < NS; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int column = place + 8 * n + 2 * at.t + e % 2;
                const float weight = exp2_of(map[n][e] * scale - lse[column]);
                const bool kept = !DROPOUT || keeps(dropout_keys[column], sight.row + e / 2 * 8, arguments.keep_threshold);
                U[n][e] = kept ? weight : 0;
                map[n][e] = weight * ((kept ? arguments.keep_scale * dU[n][e] : 0) - mean[column]);
            }
        combine<VALUE_WIDTH>(grad_value, U, grad + place * VALUE_STRIDE, at);
        combine<KEY_WIDTH>(grad_key, map, query + place * KEY_STRIDE, at);
    }
    wait_for_groups<0>();
    const float scales[2] = {arguments.scale, arguments.scale}, keep_scales[2] = {arguments.keep_scale, arguments.keep_scale};
    store_rows<KEY_SIZE, KEY_WIDTH>(arguments.grad_key + (work.memory_row * HEADS + work.head) * KEY_SIZE, grad_key, work.first, work.rows,
                                    scales, at);
    store_rows<VALUE_SIZE, VALUE_WIDTH>(arguments.grad_value + (work.memory_row * HEADS + work.head) * VALUE_SIZE, grad_value, work.first,
                                        work.rows, keep_scales, at);
}

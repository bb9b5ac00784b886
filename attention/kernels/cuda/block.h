// What a block of threads works on: its rows of a result, the rows that they meet, and which of these may be seen.
//
// A block computes X = 16 X_TILES rows x of a result, and goes over the rows y of the other side, Y = 8 Y_TILES at a time.
// x are queries and y memory positions, or the other way round in the gradients of keys and values (SWAPPED).
//
// The host defines: KEY_HEADS, HEADS, VALUE_HEADS (h_k, h, h_v), KEY_SIZE, VALUE_SIZE (multiples of 8), X_TILES, Y_TILES,
// CAUSAL, MASKED, DROPOUT.

#ifndef BLOCK_H
#define BLOCK_H

#include "problem.h"

constexpr int X = 16 * X_TILES, Y = 8 * Y_TILES;
// sizes as products over features need them
constexpr int KEY_WIDTH = (KEY_SIZE + 15) / 16 * 16, VALUE_WIDTH = (VALUE_SIZE + 15) / 16 * 16;

struct Lane {
    int warp, lane, g, t;
    DEVICE Lane() { warp = thread() / 32, lane = thread() % 32, g = lane / 4, t = lane % 4; }
};

// Hands out shared memory, one array behind the other
struct Arena {
    u8* next = shared_memory;
    template <typename Number> DEVICE Number* take(int size) {
        Number* const taken = reinterpret_cast<Number*>(next);
        next += size * sizeof(Number);
        return taken;
    }
};

// The example of this block, its head, its first x, the y that it goes over, and where their keys and values begin. The
// values of a query are the gradient of its output. HEADS_APART: heads that have blocks of their own.
template <bool SWAPPED, int HEADS_APART> struct Work {
    int example, head, first_x, xs, ys, start, stop;
    long long x_rows, y_rows, query_rows;  // of the examples before this one
    const u16 *x_keys, *x_values, *y_keys, *y_values;

    DEVICE Work(const Arguments& arguments) {
        xs = SWAPPED ? arguments.memory : arguments.queries, ys = SWAPPED ? arguments.queries : arguments.memory;
        const int blocks = (xs + X - 1) / X;
        example = block() / (blocks * HEADS_APART), head = block() / blocks % HEADS_APART, first_x = block() % blocks * X;
        start = CAUSAL && SWAPPED ? first_x / Y * Y : 0, stop = ys;
        if (CAUSAL && !SWAPPED && first_x + X < ys) stop = first_x + X;
        x_rows = (long long)example * xs, y_rows = (long long)example * ys, query_rows = SWAPPED ? y_rows : x_rows;
        x_keys = keys(SWAPPED ? arguments.key : arguments.query, x_rows);
        x_values = values(SWAPPED ? arguments.value : arguments.grad_output, x_rows);
        y_keys = keys(SWAPPED ? arguments.query : arguments.key, y_rows);
        y_values = values(SWAPPED ? arguments.grad_output : arguments.value, y_rows);
    }
    // a row of a tensor like the keys, or like the values
    template <typename Number> DEVICE Number* keys(Number* tensor, long long row) const {
        return tensor + (row * KEY_HEADS + head) * KEY_SIZE;
    }
    template <typename Number> DEVICE Number* values(Number* tensor, long long row) const {
        return tensor + (row * VALUE_HEADS + head) * VALUE_SIZE;
    }
};

template <int COUNT> struct Bits { typedef u32 type; };
template <> struct Bits<64> { typedef u64 type; };

// Which pairs of a warp's 16 x and COUNT y may be seen
template <bool SWAPPED, int COUNT> struct Sight {
    using Set = typename Bits<COUNT>::type;
    const Arguments& arguments;
    const u8* mask;
    int first_x, first_y;  // of the lane's two x, and of the y
    Set visible;           // of the lane's two x (SWAPPED), or of the y
    bool all;

    DEVICE Sight(const Arguments& arguments, int example) : arguments(arguments) {
        mask = MASKED ? arguments.mask + (long long)example * arguments.mask_stride : nullptr;
    }
    DEVICE bool is_visible(int position) const {
        return position < arguments.memory && (!MASKED || mask[position] != 0);
    }
    // x, y: the warp's first
    DEVICE void look(const Lane& at, int x, int y) {
        first_x = x + at.g, first_y = y;
        if (SWAPPED) {
            visible = (Set)is_visible(first_x) | (Set)is_visible(first_x + 8) << 1;
            all = votes(visible == 3) == ~0u;
        } else {
            constexpr Set EVERY = ~(Set)0 >> (8 * sizeof(Set) - COUNT);
            visible = votes(is_visible(first_y + at.lane % COUNT)) & EVERY;
            if (COUNT > 32) visible |= (u64)votes(is_visible(first_y + 32 + at.lane)) << 32;
            all = visible == EVERY;
        }
        if (CAUSAL) all = all && (SWAPPED ? x + 15 <= y : y + COUNT - 1 <= x);
    }
    // row: 0 or 1, of the lane's two x; y: counted from the first
    DEVICE bool allows(int row, int y) const {
        const int place_x = first_x + 8 * row, place_y = first_y + y;
        const bool seen = visible >> (SWAPPED ? row : y) & 1;
        return seen && (!CAUSAL || (SWAPPED ? place_x <= place_y : place_y <= place_x));
    }
};

#endif

// Products of one form: A (lanes) times B (vectors of lanes along its last dimension), into sums.

#pragma once

#include "numbers.h"

#include <algorithm>

#ifndef __clang__
// a loop of its own for strides of 1 keeps the sums of both in memory
#pragma GCC optimize("no-version-loops-for-strides")
#endif

#if defined(__AVX512F__)
constexpr int ROWS = 8, COLUMNS = 3, TALL = 16;
#else
constexpr int ROWS = 4, COLUMNS = 2, TALL = 8;
#endif
constexpr int64_t DOT_VECTORS = 32;  // of a row, at a time, in products over the whole tile

// out[i][j] = factor * (out[i][j], if it is added to, + sum over p of A[i * ai + p * ap] B[p * bp + j]), for R rows and
// C vectors of columns
template <int R, int C, class Sum, class Lane>
static inline void block(const Lane *A, int64_t ai, int64_t ap, const Lane *B, int64_t bp, Sum *out, int64_t oi,
                         int64_t depth, Sum factor, bool add) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    Vector<Sum> sum[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) sum[r][c] = add ? at(out + r * oi + c * WIDTH) : Vector<Sum>{};
    for (int64_t p = 0; p < depth; p++) {
        Vector<Lane> right[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) right[c] = at(B + p * bp + c * WIDTH);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Lane left = A[r * ai + p * ap];
#pragma GCC unroll 16
            for (int c = 0; c < C; c++) lanes<Lane>::multiply_add(sum[r][c], left, right[c]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) at(out + r * oi + c * WIDTH) = factor * sum[r][c];
}

template <int C, class Sum, class Lane>
static void columns(int64_t rows, const Lane *A, int64_t ai, int64_t ap, const Lane *B, int64_t bp, Sum *out,
                    int64_t oi, int64_t depth, Sum factor, bool add) {
    int64_t i = 0;
    // a single column needs more rows for as many sums at once
    if constexpr (C == 1)
        for (; i + TALL <= rows; i += TALL)
            block<TALL, C>(A + i * ai, ai, ap, B, bp, out + i * oi, oi, depth, factor, add);
    for (; i + ROWS <= rows; i += ROWS) block<ROWS, C>(A + i * ai, ai, ap, B, bp, out + i * oi, oi, depth, factor, add);
    if (i + 4 <= rows) {
        block<4, C>(A + i * ai, ai, ap, B, bp, out + i * oi, oi, depth, factor, add);
        i += 4;
    }
    for (; i < rows; i++) block<1, C>(A + i * ai, ai, ap, B, bp, out + i * oi, oi, depth, factor, add);
}

// `width` columns, a multiple of the vector's
template <class Sum, class Lane>
static void product(int64_t rows, int64_t width, int64_t depth, const Lane *A, int64_t ai, int64_t ap, const Lane *B,
                    int64_t bp, Sum *out, int64_t oi, Sum factor = 1, bool add = false) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    int64_t j = 0;
    for (; j + COLUMNS * WIDTH <= width; j += COLUMNS * WIDTH)
        columns<COLUMNS>(rows, A, ai, ap, B + j, bp, out + j, oi, depth, factor, add);
    if (COLUMNS > 2 && j + 2 * WIDTH <= width) {
        columns<2>(rows, A, ai, ap, B + j, bp, out + j, oi, depth, factor, add);
        j += 2 * WIDTH;
    }
    if (j < width) columns<1>(rows, A, ai, ap, B + j, bp, out + j, oi, depth, factor, add);
}

// out[i * right_rows + j] += sum over x of left[i * stride + x] right[j * stride + x], for R and C rows of them
template <int R, int C, class Sum, class Lane>
static inline void dots_block(const Lane *left, const Lane *right, int64_t stride, int64_t size, Sum *out,
                              int64_t right_rows) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    Vector<Sum> sum[R][C] = {};
    for (int64_t x = 0; x < size; x += WIDTH) {
        Vector<Lane> one[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) one[c] = at(right + c * stride + x);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Vector<Lane> other = at(left + r * stride + x);
#pragma GCC unroll 16
            for (int c = 0; c < C; c++) lanes<Lane>::multiply_add(sum[r][c], other, one[c]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) out[r * right_rows + c] += sum_of<Sum>(sum[r][c]);
}

template <class Sum, class Lane>
static void dots(const Lane *left, int64_t left_rows, const Lane *right, int64_t right_rows, int64_t stride,
                 int64_t size, Sum *out) {
    constexpr int64_t step = DOT_VECTORS * vector_of<Sum>::width;
    for (int64_t x = 0; x < size; x += step) {
        const int64_t length = std::min(step, size - x);
        for (int64_t i = 0; i < left_rows;) {
            const int64_t rows = left_rows - i >= 4 ? 4 : 1;
            for (int64_t j = 0; j < right_rows;) {
                const int64_t others = right_rows - j >= 4 ? 4 : 1;
                const Lane *a = left + i * stride + x, *b = right + j * stride + x;
                Sum *to = out + i * right_rows + j;
                if (rows == 4 && others == 4) dots_block<4, 4>(a, b, stride, length, to, right_rows);
                else if (rows == 4) dots_block<4, 1>(a, b, stride, length, to, right_rows);
                else if (others == 4) dots_block<1, 4>(a, b, stride, length, to, right_rows);
                else dots_block<1, 1>(a, b, stride, length, to, right_rows);
                j += others;
            }
            i += rows;
        }
    }
}

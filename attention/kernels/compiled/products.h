// Products A B, added up in sums. A is read as single lanes, and B as vectors of lanes along its last dimension.

#pragma once

#include "simd.h"

#include <algorithm>

#ifndef __clang__
// a separate version of the loop for strides of 1 would keep the sums of both versions in memory, not in registers
#pragma GCC optimize("no-version-loops-for-strides")
#endif

#if defined(__AVX512F__)
constexpr int BLOCK_ROWS = 8, BLOCK_VECTORS = 3, TALL_BLOCK_ROWS = 16;
#else
constexpr int BLOCK_ROWS = 4, BLOCK_VECTORS = 2, TALL_BLOCK_ROWS = 8;
#endif
constexpr int64_t DOT_VECTORS = 32;  // vectors of a row at a time, in products over the whole tile

// out[i][j] = factor * (sum over p of A[i][p] B[p][j], plus out[i][j] if `add`), for R rows and C vectors of columns.
// The numbers after a matrix are its strides: A[i][p] is A[i * A_row + p * A_depth], and so on
template <int R, int C, class Sum, class Lane>
static inline void product_block(const Lane *A, int64_t A_row, int64_t A_depth, const Lane *B, int64_t B_depth,
                                 Sum *out, int64_t out_row, int64_t depth, Sum factor, bool add) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    Vector<Sum> sum[R][C];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) sum[r][c] = add ? vector_at(out + r * out_row + c * WIDTH) : Vector<Sum>{};
    for (int64_t p = 0; p < depth; p++) {
        Vector<Lane> right[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) right[c] = vector_at(B + p * B_depth + c * WIDTH);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Lane left = A[r * A_row + p * A_depth];
#pragma GCC unroll 16
            for (int c = 0; c < C; c++) lanes<Lane>::multiply_add(sum[r][c], left, right[c]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) vector_at(out + r * out_row + c * WIDTH) = factor * sum[r][c];
}

template <int C, class Sum, class Lane>
static void product_columns(int64_t rows, const Lane *A, int64_t A_row, int64_t A_depth, const Lane *B, int64_t B_depth,
                            Sum *out, int64_t out_row, int64_t depth, Sum factor, bool add) {
    int64_t i = 0;
    // with a single column, more rows are needed for the same number of sums at once
    if constexpr (C == 1)
        for (; i + TALL_BLOCK_ROWS <= rows; i += TALL_BLOCK_ROWS)
            product_block<TALL_BLOCK_ROWS, C>(A + i * A_row, A_row, A_depth, B, B_depth, out + i * out_row, out_row,
                                              depth, factor, add);
    for (; i + BLOCK_ROWS <= rows; i += BLOCK_ROWS)
        product_block<BLOCK_ROWS, C>(A + i * A_row, A_row, A_depth, B, B_depth, out + i * out_row, out_row, depth,
                                     factor, add);
    if (i + 4 <= rows) {
        product_block<4, C>(A + i * A_row, A_row, A_depth, B, B_depth, out + i * out_row, out_row, depth, factor, add);
        i += 4;
    }
    for (; i < rows; i++)
        product_block<1, C>(A + i * A_row, A_row, A_depth, B, B_depth, out + i * out_row, out_row, depth, factor, add);
}

// the product for `width` columns, a multiple of a vector's width
template <class Sum, class Lane>
static void product(int64_t rows, int64_t width, int64_t depth, const Lane *A, int64_t A_row, int64_t A_depth,
                    const Lane *B, int64_t B_depth, Sum *out, int64_t out_row, Sum factor = 1, bool add = false) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    int64_t j = 0;
    for (; j + BLOCK_VECTORS * WIDTH <= width; j += BLOCK_VECTORS * WIDTH)
        product_columns<BLOCK_VECTORS>(rows, A, A_row, A_depth, B + j, B_depth, out + j, out_row, depth, factor, add);
    if (BLOCK_VECTORS > 2 && j + 2 * WIDTH <= width) {
        product_columns<2>(rows, A, A_row, A_depth, B + j, B_depth, out + j, out_row, depth, factor, add);
        j += 2 * WIDTH;
    }
    if (j < width) product_columns<1>(rows, A, A_row, A_depth, B + j, B_depth, out + j, out_row, depth, factor, add);
}

// out[i * right_rows + j] += sum over x of left[i * stride + x] right[j * stride + x], for R left and C right rows
template <int R, int C, class Sum, class Lane>
static inline void row_dots_block(const Lane *left, const Lane *right, int64_t stride, int64_t size, Sum *out,
                                  int64_t right_rows) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    Vector<Sum> sum[R][C] = {};
    for (int64_t x = 0; x < size; x += WIDTH) {
        Vector<Lane> right_vectors[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) right_vectors[c] = vector_at(right + c * stride + x);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Vector<Lane> left_vector = vector_at(left + r * stride + x);
#pragma GCC unroll 16
            for (int c = 0; c < C; c++) lanes<Lane>::multiply_add(sum[r][c], left_vector, right_vectors[c]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) out[r * right_rows + c] += reduce_sum<Sum>(sum[r][c]);
}

template <class Sum, class Lane>
static void row_dots(const Lane *left, int64_t left_rows, const Lane *right, int64_t right_rows, int64_t stride,
                     int64_t size, Sum *out) {
    constexpr int64_t step = DOT_VECTORS * vector_of<Sum>::width;
    for (int64_t x = 0; x < size; x += step) {
        const int64_t length = std::min(step, size - x);
        for (int64_t i = 0; i < left_rows;) {
            const int64_t rows = left_rows - i >= 4 ? 4 : 1;
            for (int64_t j = 0; j < right_rows;) {
                const int64_t columns = right_rows - j >= 4 ? 4 : 1;
                const Lane *left_part = left + i * stride + x, *right_part = right + j * stride + x;
                Sum *out_part = out + i * right_rows + j;
                if (rows == 4 && columns == 4)
                    row_dots_block<4, 4>(left_part, right_part, stride, length, out_part, right_rows);
                else if (rows == 4) row_dots_block<4, 1>(left_part, right_part, stride, length, out_part, right_rows);
                else if (columns == 4)
                    row_dots_block<1, 4>(left_part, right_part, stride, length, out_part, right_rows);
                else row_dots_block<1, 1>(left_part, right_part, stride, length, out_part, right_rows);
                j += columns;
            }
            i += rows;
        }
    }
}

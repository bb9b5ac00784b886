// Tensors and maps rearranged into rows of lanes, the form that products take. Lanes are padded with zeros.

#pragma once

#include "simd.h"

#include <algorithm>
#include <type_traits>

// The packing of inputs of type T. A tensor has `tensor_heads` heads. `heads` of them are packed, beginning with the
// one that the pointer points to
template <class T> struct Packing {
    using Sum = typename arithmetic<T>::Sum;
    using Number = typename arithmetic<T>::Number;
    using Lane = typename arithmetic<T>::Lane;

    static constexpr int64_t WIDTH = vector_of<Sum>::width;                 // lanes of a vector
    static constexpr int64_t LANE_NUMBERS = sizeof(Lane) / sizeof(Number);  // numbers in a lane
    static constexpr bool INPUT_IS_NUMBER = std::is_same_v<Number, T>;      // inputs need no conversion

    // the number of lanes that hold `size` numbers
    static int64_t lanes_of(int64_t size) { return (size + LANE_NUMBERS - 1) / LANE_NUMBERS; }
    static const Lane *as_lanes(const Number *x) { return reinterpret_cast<const Lane *>(x); }
    static Number to_number(T x) {
        if constexpr (INPUT_IS_NUMBER) return x;
        else return narrowed<Number>(widened(x));
    }

    // a matrix [rows][columns] with these strides -> [lanes of rows][columns]
    static void pack_matrix(const void *matrix, Lane *to, int64_t rows, int64_t columns, int64_t row_stride,
                            int64_t column_stride) {
        const T *from = static_cast<const T *>(matrix);
        for (int64_t i = 0; from && i < rows; i += LANE_NUMBERS)
            for (int64_t j = 0; j < columns; j++) {
                const T *element = from + i * row_stride + j * column_stride;
                *to++ =
                    lanes<Lane>::join(to_number(*element), i + 1 < rows ? to_number(element[row_stride]) : Number{});
            }
    }

    // [rows][tensor_heads][size] -> [heads][rows][size in whole lanes]
    static void pack_by_head(const T *from, Number *to, int64_t rows, int64_t tensor_heads, int64_t heads,
                             int64_t size) {
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n++, to += lanes_of(size) * LANE_NUMBERS) {
                const T *row = from + (n * tensor_heads + head) * size;
                int64_t d = 0;
                if constexpr (INPUT_IS_NUMBER)
                    for (; d + WIDTH <= size; d += WIDTH) std::memcpy(to + d, row + d, WIDTH * sizeof(Number));
                for (; d < size; d++) to[d] = to_number(row[d]);
                if (size % LANE_NUMBERS) to[size] = Number{};
            }
    }

    // [rows][tensor_heads][size] -> [heads][lanes of rows][padded size]
    static void pack_by_row(const T *from, Lane *to, int64_t rows, int64_t tensor_heads, int64_t heads, int64_t size) {
        const int64_t padded_size = padded<Sum>(size);
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n += LANE_NUMBERS, to += padded_size) {
                const T *first = from + (n * tensor_heads + head) * size,
                        *second = n + 1 < rows ? first + tensor_heads * size : nullptr;
                int64_t d = 0;
                if constexpr (INPUT_IS_NUMBER)
                    for (; d + WIDTH <= size; d += WIDTH)
                        vector_at(to + d) = lanes<Lane>::join(first + d, second ? second + d : nullptr);
                for (; d < size; d++)
                    to[d] = lanes<Lane>::join(to_number(first[d]), second ? to_number(second[d]) : Number{});
                std::fill(to + size, to + padded_size, Lane{});
            }
    }

    // [rows][tensor_heads][size] -> [heads][lanes of size][padded_size], the rows side by side
    static void pack_by_feature(const T *from, Lane *to, int64_t rows, int64_t tensor_heads, int64_t heads,
                                int64_t size, int64_t padded_size) {
        for (int64_t head = 0; head < heads; head++, from += size, to += lanes_of(size) * padded_size)
            for (int64_t n = 0; n < padded_size; n += WIDTH)
                for (int64_t lane = 0; lane < lanes_of(size); lane += WIDTH)
                    pack_transposed_block(from + n * tensor_heads * size + lane * LANE_NUMBERS,
                                          to + lane * padded_size + n, std::min(WIDTH, rows - n), tensor_heads * size,
                                          std::min(WIDTH * LANE_NUMBERS, size - lane * LANE_NUMBERS), padded_size);
    }

    // the same for at most WIDTH rows, `stride` apart, and WIDTH lanes
    static void pack_transposed_block(const T *from, Lane *to, int64_t rows, int64_t stride, int64_t size,
                                      int64_t padded_size) {
#ifdef __AVX512F__
        if constexpr (INPUT_IS_NUMBER && sizeof(Lane) == 4)
            if (size % LANE_NUMBERS == 0)
                return transpose(from, stride * sizeof(T), rows, size / LANE_NUMBERS, to, padded_size);
#endif
        for (int64_t d = 0; d < size; d += LANE_NUMBERS, to += padded_size)
            for (int64_t w = 0; w < WIDTH; w++) {
                const T *element = from + w * stride + d;
                if (w >= rows) to[w] = Lane{};
                else to[w] = lanes<Lane>::join(to_number(element[0]), d + 1 < size ? to_number(element[1]) : Number{});
            }
    }

    // [heads][rows][padded size] -> [rows][tensor_heads][size], multiplied by a factor
    static void unpack(const Sum *from, T *to, int64_t rows, int64_t tensor_heads, int64_t heads, int64_t size,
                       Sum factor) {
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n++, from += padded<Sum>(size)) {
                T *row = to + (n * tensor_heads + head) * size;
                int64_t d = 0;
                if constexpr (INPUT_IS_NUMBER)
                    for (; d + WIDTH <= size; d += WIDTH) numbers<Number>::store(row + d, factor * vector_at(from + d));
                for (; d < size; d++) row[d] = narrowed<T>(factor * from[d]);
            }
    }

    // stores sums as numbers of a map; size: a multiple of WIDTH
    static void store_numbers(const Sum *from, Number *to, int64_t size) {
        for (int64_t x = 0; x < size; x += WIDTH) numbers<Number>::store(to + x, vector_at(from + x));
    }

    // [rows][length] with `row_stride` -> [lanes of rows][length] with `stride`. If a lane holds one number, this is
    // `from` itself; otherwise it is written to `to` with `joined_stride`
    static const Lane *join_rows(const Number *from, int64_t rows, int64_t row_stride, int64_t length, Lane *to,
                                 int64_t joined_stride, int64_t &stride) {
        if constexpr (LANE_NUMBERS == 1) {
            stride = row_stride;
            return from;
        } else {
            stride = joined_stride;
            for (int64_t i = 0; i < rows; i += LANE_NUMBERS)
                for (int64_t m = 0; m < length; m += WIDTH) {
                    const Number *first = from + i * row_stride + m;
                    vector_at(to + i / LANE_NUMBERS * joined_stride + m) =
                        lanes<Lane>::join(first, i + 1 < rows ? first + row_stride : nullptr);
                }
            return to;
        }
    }
};

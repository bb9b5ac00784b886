// Tensors and maps rearranged into rows of lanes, the form that products take. What there is no number for is zero.

#pragma once

#include "numbers.h"

#include <algorithm>
#include <type_traits>

// For inputs of type T. `all` is the number of heads of the tensor, `heads` how many of them are packed, from the first
// that the pointer points to
template <class T> struct Packing {
    using Sum = typename arithmetic<T>::Sum;
    using Number = typename arithmetic<T>::Number;
    using Lane = typename arithmetic<T>::Lane;

    static constexpr int64_t WIDTH = vector_of<Sum>::width;                // lanes of a vector
    static constexpr int64_t LANE_NUMBERS = sizeof(Lane) / sizeof(Number);  // numbers in a lane
    static constexpr bool COPIES = std::is_same_v<Number, T>;              // an input is a number as it is

    // how many lanes hold `size` numbers
    static int64_t lanes_of(int64_t size) { return (size + LANE_NUMBERS - 1) / LANE_NUMBERS; }
    static const Lane *as_lanes(const Number *x) { return reinterpret_cast<const Lane *>(x); }
    static Number number(T x) {
        if constexpr (COPIES) return x;
        else return narrowed<Number>(widened(x));
    }

    // a matrix [rows][columns] with these strides -> [lanes of rows][columns]
    static void matrix(const void *matrix, Lane *to, int64_t rows, int64_t columns, int64_t row_stride,
                       int64_t column_stride) {
        const T *from = static_cast<const T *>(matrix);
        for (int64_t i = 0; from && i < rows; i += LANE_NUMBERS)
            for (int64_t j = 0; j < columns; j++) {
                const T *element = from + i * row_stride + j * column_stride;
                *to++ = lanes<Lane>::join(number(*element), i + 1 < rows ? number(element[row_stride]) : Number{});
            }
    }

    // [rows][all][size] -> [heads][rows][size in whole lanes]
    static void by_head(const T *from, Number *to, int64_t rows, int64_t all, int64_t heads, int64_t size) {
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n++, to += lanes_of(size) * LANE_NUMBERS) {
                const T *row = from + (n * all + head) * size;
                int64_t d = 0;
                if constexpr (COPIES)
                    for (; d + WIDTH <= size; d += WIDTH) std::memcpy(to + d, row + d, WIDTH * sizeof(Number));
                for (; d < size; d++) to[d] = number(row[d]);
                if (size % LANE_NUMBERS) to[size] = Number{};
            }
    }

    // [rows][all][size] -> [heads][lanes of rows][padded size]
    static void by_row(const T *from, Lane *to, int64_t rows, int64_t all, int64_t heads, int64_t size) {
        const int64_t whole = padded<Sum>(size);
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n += LANE_NUMBERS, to += whole) {
                const T *one = from + (n * all + head) * size, *other = n + 1 < rows ? one + all * size : nullptr;
                int64_t d = 0;
                if constexpr (COPIES)
                    for (; d + WIDTH <= size; d += WIDTH)
                        at(to + d) = lanes<Lane>::join(one + d, other ? other + d : nullptr);
                for (; d < size; d++) to[d] = lanes<Lane>::join(number(one[d]), other ? number(other[d]) : Number{});
                std::fill(to + size, to + whole, Lane{});
            }
    }

    // [rows][all][size] -> [heads][lanes of size][whole], the rows side by side
    static void by_feature(const T *from, Lane *to, int64_t rows, int64_t all, int64_t heads, int64_t size,
                           int64_t whole) {
        for (int64_t head = 0; head < heads; head++, from += size, to += lanes_of(size) * whole)
            for (int64_t n = 0; n < whole; n += WIDTH)
                for (int64_t lane = 0; lane < lanes_of(size); lane += WIDTH)
                    square(from + n * all * size + lane * LANE_NUMBERS, to + lane * whole + n,
                           std::min(WIDTH, rows - n), all * size,
                           std::min(WIDTH * LANE_NUMBERS, size - lane * LANE_NUMBERS), whole);
    }

    // the same for at most WIDTH rows, `stride` apart, and WIDTH lanes
    static void square(const T *from, Lane *to, int64_t rows, int64_t stride, int64_t size, int64_t whole) {
#ifdef __AVX512F__
        if constexpr (COPIES && sizeof(Lane) == 4)
            if (size % LANE_NUMBERS == 0)
                return transpose(from, stride * sizeof(T), rows, size / LANE_NUMBERS, to, whole);
#endif
        for (int64_t d = 0; d < size; d += LANE_NUMBERS, to += whole)
            for (int64_t w = 0; w < WIDTH; w++) {
                const T *element = from + w * stride + d;
                if (w >= rows) to[w] = Lane{};
                else to[w] = lanes<Lane>::join(number(element[0]), d + 1 < size ? number(element[1]) : Number{});
            }
    }

    // [heads][rows][padded size] -> [rows][all][size], times a factor
    static void unpack(const Sum *from, T *to, int64_t rows, int64_t all, int64_t heads, int64_t size, Sum factor) {
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n++, from += padded<Sum>(size)) {
                T *row = to + (n * all + head) * size;
                int64_t d = 0;
                if constexpr (COPIES)
                    for (; d + WIDTH <= size; d += WIDTH) numbers<Number>::put(row + d, factor * at(from + d));
                for (; d < size; d++) row[d] = narrowed<T>(factor * from[d]);
            }
    }

    // sums as numbers of a map; size: a multiple of WIDTH
    static void store(const Sum *from, Number *to, int64_t size) {
        for (int64_t x = 0; x < size; x += WIDTH) numbers<Number>::put(to + x, at(from + x));
    }

    // [rows][length], `step` apart -> [lanes of rows][length], `stride` apart: where a lane holds one number it is
    // `from` itself, else it is written to `to`, with `line` between the rows
    static const Lane *join(const Number *from, int64_t rows, int64_t step, int64_t length, Lane *to, int64_t line,
                            int64_t &stride) {
        if constexpr (LANE_NUMBERS == 1) {
            stride = step;
            return from;
        } else {
            stride = line;
            for (int64_t i = 0; i < rows; i += LANE_NUMBERS)
                for (int64_t m = 0; m < length; m += WIDTH) {
                    const Number *one = from + i * step + m;
                    at(to + i / LANE_NUMBERS * line + m) =
                        lanes<Lane>::join(one, i + 1 < rows ? one + step : nullptr);
                }
            return to;
        }
    }
};

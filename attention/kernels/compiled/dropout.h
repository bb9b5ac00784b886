// Which weights dropout sets to 0. The choice equals that of `attention/kernels/dropout.py` bit by bit.

#pragma once

#include <cstdint>

// SplitMix64's output function
static inline uint64_t splitmix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// Sets some weights of a row to 0 and multiplies the others by `keep_scale`; `row_index` counts the rows of [B, h_v, N]
template <class Sum>
static void drop_weights(Sum *row, int64_t size, uint64_t seed, int64_t row_index, int32_t keep_threshold,
                         Sum keep_scale) {
    const uint64_t key = splitmix64(seed ^ splitmix64(uint64_t(row_index)));
    const uint32_t first = uint32_t(key), second = uint32_t(key >> 32);
    for (int64_t m = 0; m < size; m++) {
        uint32_t word = uint32_t(m) * 0x9e3779b9u + first;
        word = (word ^ (word >> 16)) * 0x7feb352du;
        word = (word ^ (word >> 15)) * 0x846ca68bu + second;
        row[m] = int32_t(word) < keep_threshold ? keep_scale * row[m] : Sum(0);
    }
}

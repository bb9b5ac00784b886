// The softmax of a row of a map, and its gradient.

#pragma once

#include "simd.h"

#include <algorithm>
#include <cmath>
#include <limits>

// exp(x) for x <= 0, exact to the last bit or two. It is 0 below -87, also for -inf, and NaN for NaN
static inline Vector<float> exponential(Vector<float> x) {
    typedef int32_t Bits __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
    // adding this leaves the rounded number in the lowest bits
    const float rounder = 12582912.0f;
    Vector<float> shifted = x * 1.44269504f + rounder, padded_size = shifted - rounder;
    Vector<float> rest = x - padded_size * 0.693145752f - padded_size * 1.42860677e-6f;
    Vector<float> power = 1.0f / 720 * rest + 1.0f / 120;
    power = power * rest + 1.0f / 24;
    power = power * rest + 1.0f / 6;
    power = power * rest + 0.5f;
    power = power * rest + 1.0f;
    power = power * rest + 1.0f;
    Bits exponent = ((Bits)shifted - 0x4b400000 + 127) << 23;
    Vector<float> result = power * (Vector<float>)exponent;
    return x < -87.0f ? Vector<float>{} : result;
}
static inline Vector<double> exponential(Vector<double> x) {
    for (int64_t w = 0; w < vector_of<double>::width; w++) x[w] = std::exp(x[w]);
    return x;
}

// Computes the softmax in place. `row` has `size` numbers and is padded to whole vectors; the padding doesn't count. A
// row of only -inf becomes zeros if it may be hidden, else NaN, because its logits have overflowed
template <class Sum> static void softmax(Sum *row, int64_t size, bool may_be_hidden) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    const Sum infinity = std::numeric_limits<Sum>::infinity();
    const int64_t padded_size = padded<Sum>(size);
    for (int64_t m = size; m < padded_size; m++) row[m] = -infinity;
    Vector<Sum> largest_by_lane = Vector<Sum>{} - infinity;
    for (int64_t m = 0; m < padded_size; m += WIDTH)
        largest_by_lane = vector_at(row + m) > largest_by_lane ? vector_at(row + m) : largest_by_lane;
    const Sum largest = reduce_max<Sum>(largest_by_lane);
    if (largest == -infinity) {
        bool nan = !may_be_hidden;
        for (int64_t m = 0; m < size; m++) nan |= row[m] != row[m];
        std::fill(row, row + padded_size, nan ? std::numeric_limits<Sum>::quiet_NaN() : Sum(0));
        return;
    }
    Vector<Sum> sum{};
    for (int64_t m = 0; m < padded_size; m += WIDTH) {
        Vector<Sum> power = exponential(vector_at(row + m) - largest);
        sum += power;
        vector_at(row + m) = power;
    }
    const Sum normalizer = 1 / reduce_sum<Sum>(sum);
    for (int64_t m = 0; m < padded_size; m += WIDTH) vector_at(row + m) *= normalizer;
}

// grad = weights * (grad - sum of weights * grad), in place
template <class Sum, class Number> static void softmax_gradient(Sum *grad, const Number *weights, int64_t size) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    const int64_t padded_size = padded<Sum>(size);
    Vector<Sum> sum{};
    for (int64_t m = 0; m < padded_size; m += WIDTH) sum += vector_at(grad + m) * numbers<Number>::load(weights + m);
    const Sum weighted_sum = reduce_sum<Sum>(sum);
    for (int64_t m = 0; m < padded_size; m += WIDTH)
        vector_at(grad + m) = numbers<Number>::load(weights + m) * (vector_at(grad + m) - weighted_sum);
}

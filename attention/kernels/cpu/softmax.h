// The softmax of a row of a map, and its gradient.

#pragma once

#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

// exp(x) for x <= 0, to the last bit or two; below -87 it is 0, as for -inf; NaN stays NaN
static inline Vector<float> exponential(Vector<float> x) {
    typedef int32_t Bits __attribute__((vector_size(BYTES), aligned(4), may_alias));
    // added, it leaves the rounded number in the lowest bits
    const float rounder = 12582912.0f;
    Vector<float> shifted = x * 1.44269504f + rounder, whole = shifted - rounder;
    Vector<float> rest = x - whole * 0.693145752f - whole * 1.42860677e-6f;
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

// In place; `row` has `size` numbers, padded to whole vectors with what doesn't count. All -inf: zeros
template <class Sum> static void softmax(Sum *row, int64_t size) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    const Sum infinity = std::numeric_limits<Sum>::infinity();
    const int64_t whole = padded<Sum>(size);
    for (int64_t m = size; m < whole; m++) row[m] = -infinity;
    Vector<Sum> most = Vector<Sum>{} - infinity;
    for (int64_t m = 0; m < whole; m += WIDTH) most = at(row + m) > most ? at(row + m) : most;
    const Sum largest = largest_of<Sum>(most);
    if (largest == -infinity) {
        bool nan = false;
        for (int64_t m = 0; m < size; m++) nan |= row[m] != row[m];
        std::fill(row, row + whole, nan ? std::numeric_limits<Sum>::quiet_NaN() : Sum(0));
        return;
    }
    Vector<Sum> sum{};
    for (int64_t m = 0; m < whole; m += WIDTH) {
        Vector<Sum> power = exponential(at(row + m) - largest);
        sum += power;
        at(row + m) = power;
    }
    const Sum share = 1 / sum_of<Sum>(sum);
    for (int64_t m = 0; m < whole; m += WIDTH) at(row + m) *= share;
}

// grad = weights * (grad - sum of weights * grad), in place
template <class Sum, class Number>
static void softmax_gradient(Sum *grad, const Number *weights, int64_t size) {
    constexpr int64_t WIDTH = vector_of<Sum>::width;
    const int64_t whole = padded<Sum>(size);
    Vector<Sum> sum{};
    for (int64_t m = 0; m < whole; m += WIDTH) sum += at(grad + m) * numbers<Number>::get(weights + m);
    const Sum total = sum_of<Sum>(sum);
    for (int64_t m = 0; m < whole; m += WIDTH)
        at(grad + m) = numbers<Number>::get(weights + m) * (at(grad + m) - total);
}

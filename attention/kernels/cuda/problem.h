// What all programs take, and what they have in common

#ifndef PROBLEM_H
#define PROBLEM_H

#include "lanes.h"

struct Arguments {
    const u16 *query, *key, *value, *grad_output;          // [B, N, h_k, K], [B, M, h_k, K], [B, M, h_v, V], like output
    const u16 *logits_projection, *weights_projection;     // [h_k, h], [h, h_v]
    const u8* mask;                                        // [B or 1, M]
    const u64* dropout_keys;                               // [B, h_v, N]
    float *lse, *correction;                               // of each softmax head and query: log2 of the sum; the sum of W dW
    u16 *output, *grad_query, *grad_key, *grad_value;
    float *grad_logits_projection, *grad_weights_projection;  // of each block: [h_k, h], [h, h_v]
    int queries, memory, mask_stride, keep_threshold;
    float scale, keep_scale;
};

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LOWEST = -1e30f;  // finite, as a difference of it and -inf must not be NaN; also times a scale of 1e8

// Whether dropout keeps a weight: the function of attention/kernels/dropout.py
DEVICE bool keeps(u64 key, int position, int threshold) {
    u32 word = (u32)position * 0x9E3779B9u + (u32)key;
    word = (word ^ word >> 16) * 0x7FEB352Du;
    word = (word ^ word >> 15) * 0x846CA68Bu + (u32)(key >> 32);
    return (int)word < threshold;
}

#endif

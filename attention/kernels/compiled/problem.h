// A problem of attention, and its sizes, which all parts of the kernel use.
//
// A group consists of all heads of an example if they mix, else of one head. Its keys and values are packed once
// (`keys_values.h`), its query rows are computed a tile at a time (`tile.h`), and `attend.cpp` divides the work among
// the threads.
//
// In loops, n is a query row, m a memory position, d a feature and w a lane of a vector.

#pragma once

#include "packing.h"

struct Problem {
    int64_t batch, queries, memory, key_heads, softmax_heads, value_heads, key_size, value_size;
    int64_t causal, threads, groups, shared_groups;  // groups of heads in an example; how many groups all threads share
    int64_t examples_share_bias;          // whether the bias has one part, for all examples
    int64_t has_dropout, keep_threshold;  // whether weights are dropped; a weight is kept if its hash is below this
    double scale, keep_scale;             // keep_scale: the factor of the weights that are kept
    uint64_t seed;
    const void *query, *key, *value, *logits_projection, *weights_projection, *bias;
    const uint8_t *mask;
    int64_t bias_strides[4], mask_strides[4];
    void *workspace, *output;  // output [batch, queries, value_heads, value_size]
    const void *grad_output;
    void *grad_query, *grad_key, *grad_value;
    // [batch, key_heads, softmax_heads], [batch, softmax_heads, value_heads], in the type of the sums
    void *grad_logits_projection, *grad_weights_projection;
    // [batch, or 1 if examples_share_bias, softmax_heads, queries, memory] in the type of the sums, 0 at first; nullptr
    // if the bias isn't trained
    void *grad_bias;

    bool examples_add_to_one_bias() const { return grad_bias && examples_share_bias; }
};

template <class T> struct Sizes : Packing<T> {
    using Sum = typename Packing<T>::Sum;
    using Packing<T>::lanes_of;

    const Problem &problem;
    const bool mixes_logits, mixes_weights, has_dropout;
    // heads of a group, and widths of a head
    const int64_t key_heads, softmax_heads, value_heads, key_size, value_size;
    // sizes in whole vectors, and in lanes
    const int64_t padded_memory, padded_key, padded_value, key_lanes, value_lanes, memory_lanes;
    // how many numbers the projections have; 0 if there is none
    const int64_t P_l_size, P_w_size;

    explicit Sizes(const Problem &problem)
        : problem(problem), mixes_logits(problem.logits_projection), mixes_weights(problem.weights_projection),
          has_dropout(problem.has_dropout), key_heads(problem.key_heads / problem.groups),
          softmax_heads(problem.softmax_heads / problem.groups), value_heads(problem.value_heads / problem.groups),
          key_size(problem.key_size), value_size(problem.value_size), padded_memory(padded<Sum>(problem.memory)),
          padded_key(padded<Sum>(key_size)), padded_value(padded<Sum>(value_size)), key_lanes(lanes_of(key_size)),
          value_lanes(lanes_of(value_size)), memory_lanes(lanes_of(problem.memory)),
          P_l_size(mixes_logits ? key_heads * softmax_heads : 0),
          P_w_size(mixes_weights ? softmax_heads * value_heads : 0) {}
};

// Hands out arrays of a workspace, each in whole vectors; without a workspace, it only counts their bytes
struct Arena {
    char *workspace;
    int64_t used = 0;  // bytes

    template <class Element> void allocate(Element *&array, int64_t size) {
        array = workspace ? reinterpret_cast<Element *>(workspace + used) : nullptr;
        used += (size * int64_t(sizeof(Element)) + VECTOR_BYTES - 1) / VECTOR_BYTES * VECTOR_BYTES;
    }
};

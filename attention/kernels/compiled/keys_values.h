// What all query rows of a group share: its keys and values, packed, and the sums of their gradients.

#pragma once

#include "problem.h"

template <class T> struct KeysValues : Sizes<T> {
    using Pack = Packing<T>;
    using Sum = typename Pack::Sum;
    using Lane = typename Pack::Lane;
    using Base = Sizes<T>;
    using Base::problem, Base::key_heads, Base::value_heads, Base::key_size, Base::value_size;
    using Base::padded_memory, Base::padded_key, Base::padded_value, Base::key_lanes, Base::value_lanes;
    using Base::memory_lanes, Base::P_l_size, Base::P_w_size;

    int64_t example = 0, group = 0;
    // [key_heads][key_lanes][padded_memory], [value_heads][memory_lanes][padded_value], and for the backward
    // [key_heads][memory_lanes][padded_key], [value_heads][value_lanes][padded_memory]
    Lane *keys, *values, *keys_by_row = nullptr, *values_by_feature = nullptr;
    // [key_heads][memory][padded_key], [value_heads][memory][padded_value], and the gradients of the projections
    Sum *grad_keys = nullptr, *grad_values = nullptr, *grad_P_l = nullptr, *grad_P_w = nullptr;

    KeysValues(const Problem &problem, Arena &arena, bool backward) : Base(problem) {
        arena.allocate(keys, key_heads * key_lanes * padded_memory);
        arena.allocate(values, value_heads * memory_lanes * padded_value);
        if (!backward) return;
        arena.allocate(keys_by_row, key_heads * memory_lanes * padded_key);
        arena.allocate(values_by_feature, value_heads * value_lanes * padded_memory);
        arena.allocate(grad_keys, key_heads * problem.memory * padded_key);
        arena.allocate(grad_values, value_heads * problem.memory * padded_value);
        arena.allocate(grad_P_l, P_l_size), arena.allocate(grad_P_w, P_w_size);
    }

    // `group_index` counts the groups of all examples
    void select(int64_t group_index) {
        example = group_index / problem.groups, group = group_index % problem.groups;
        if (!grad_keys) return;
        std::fill_n(grad_P_l, P_l_size, Sum(0)), std::fill_n(grad_P_w, P_w_size, Sum(0));
    }

    // The keys of each head are packed, and their gradients written, separately, and so are the values of each head.
    // These units are numbered: first the heads of the keys, then those of the values
    int64_t key_and_value_heads() const { return key_heads + value_heads; }

    // packs the keys or values of a head, and sets the sums of their gradients to 0
    void pack(int64_t key_or_value_head) {
        const int64_t M = problem.memory,
                      head = key_or_value_head < key_heads ? key_or_value_head : key_or_value_head - key_heads;
        if (key_or_value_head < key_heads) {
            const T *key = keys_at(problem.key, M, 0) + head * key_size;
            Pack::pack_by_feature(key, keys + head * key_lanes * padded_memory, M, problem.key_heads, 1, key_size,
                                  padded_memory);
            if (!grad_keys) return;
            Pack::pack_by_row(key, keys_by_row + head * memory_lanes * padded_key, M, problem.key_heads, 1, key_size);
            std::fill_n(grad_keys + head * M * padded_key, M * padded_key, Sum(0));
        } else {
            const T *value = values_at(problem.value, M, 0) + head * value_size;
            Pack::pack_by_row(value, values + head * memory_lanes * padded_value, M, problem.value_heads, 1,
                              value_size);
            if (!grad_values) return;
            Pack::pack_by_feature(value, values_by_feature + head * value_lanes * padded_memory, M, problem.value_heads,
                                  1, value_size, padded_memory);
            std::fill_n(grad_values + head * M * padded_value, M * padded_value, Sum(0));
        }
    }

    void add_projections(const Sum *P_l, const Sum *P_w) {
        for (int64_t i = 0; i < P_l_size; i++) grad_P_l[i] += P_l[i];
        for (int64_t i = 0; i < P_w_size; i++) grad_P_w[i] += P_w[i];
    }

    // writes the gradients of the keys or values of a head; for unit 0 also those of the projections
    void write_gradients(int64_t key_or_value_head) const {
        const int64_t M = problem.memory,
                      head = key_or_value_head < key_heads ? key_or_value_head : key_or_value_head - key_heads;
        if (key_or_value_head < key_heads)
            Pack::unpack(grad_keys + head * M * padded_key, keys_at(problem.grad_key, M, 0) + head * key_size, M,
                         problem.key_heads, 1, key_size, problem.scale);
        else
            Pack::unpack(grad_values + head * M * padded_value, values_at(problem.grad_value, M, 0) + head * value_size,
                         M, problem.value_heads, 1, value_size, 1);
        if (key_or_value_head > 0) return;
        std::copy_n(grad_P_l, P_l_size, static_cast<Sum *>(problem.grad_logits_projection) + example * P_l_size);
        std::copy_n(grad_P_w, P_w_size, static_cast<Sum *>(problem.grad_weights_projection) + example * P_w_size);
    }

    // points to the group's first head at a position of the example, in a tensor [batch, length, all heads, size]
    template <class Pointer> auto keys_at(Pointer *tensor, int64_t length, int64_t position) const {
        return heads_at(tensor, example * length + position, problem.key_heads, group * key_heads, key_size);
    }
    template <class Pointer> auto values_at(Pointer *tensor, int64_t length, int64_t position) const {
        return heads_at(tensor, example * length + position, problem.value_heads, group * value_heads, value_size);
    }

  private:
    template <class Pointer>
    static auto heads_at(Pointer *tensor, int64_t position, int64_t tensor_heads, int64_t head, int64_t size) {
        using Element = std::conditional_t<std::is_const_v<Pointer>, const T, T>;
        return static_cast<Element *>(tensor) + (position * tensor_heads + head) * size;
    }
};

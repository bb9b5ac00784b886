// What all query rows of a group share: its keys and values, packed, and the sums of their gradients.

#pragma once

#include "problem.h"

template <class T> struct Memory : Sizes<T> {
    using Pack = Packing<T>;
    using Sum = typename Pack::Sum;
    using Lane = typename Pack::Lane;
    using Self = Sizes<T>;
    using Self::problem, Self::key_heads, Self::value_heads, Self::key_size, Self::value_size;
    using Self::padded_memory, Self::padded_key, Self::padded_value, Self::key_lanes, Self::value_lanes;
    using Self::memory_lanes, Self::P_l_size, Self::P_w_size;

    int64_t example = 0, group = 0;
    // [key_heads][key_lanes][padded_memory], [value_heads][memory_lanes][padded_value], and for the backward
    // [key_heads][memory_lanes][padded_key], [value_heads][value_lanes][padded_memory]
    Lane *keys, *values, *keys_by_row = nullptr, *values_by_feature = nullptr;
    // [key_heads][memory][padded_key], [value_heads][memory][padded_value], and of the projections
    Sum *grad_keys = nullptr, *grad_values = nullptr, *grad_P_l = nullptr, *grad_P_w = nullptr;

    Memory(const Problem &problem, Space &space, bool backward) : Self(problem) {
        space.take(keys, key_heads * key_lanes * padded_memory);
        space.take(values, value_heads * memory_lanes * padded_value);
        if (!backward) return;
        space.take(keys_by_row, key_heads * memory_lanes * padded_key);
        space.take(values_by_feature, value_heads * value_lanes * padded_memory);
        space.take(grad_keys, key_heads * problem.memory * padded_key);
        space.take(grad_values, value_heads * problem.memory * padded_value);
        space.take(grad_P_l, P_l_size), space.take(grad_P_w, P_w_size);
    }

    // `number` counts the groups of all examples
    void choose(int64_t number) {
        example = number / problem.groups, group = number % problem.groups;
        if (!grad_keys) return;
        std::fill_n(grad_P_l, P_l_size, Sum(0)), std::fill_n(grad_P_w, P_w_size, Sum(0));
    }

    // the keys of each head and the values of each are parts that can be packed, and finished, apart from the others
    int64_t parts() const { return key_heads + value_heads; }

    // packs a part, and starts the sums of its gradients
    void pack(int64_t part) {
        const int64_t M = problem.memory, head = part < key_heads ? part : part - key_heads;
        if (part < key_heads) {
            const T *key = key_part(problem.key, M, 0) + head * key_size;
            Pack::by_feature(key, keys + head * key_lanes * padded_memory, M, problem.key_heads, 1, key_size,
                             padded_memory);
            if (!grad_keys) return;
            Pack::by_row(key, keys_by_row + head * memory_lanes * padded_key, M, problem.key_heads, 1, key_size);
            std::fill_n(grad_keys + head * M * padded_key, M * padded_key, Sum(0));
        } else {
            const T *value = value_part(problem.value, M, 0) + head * value_size;
            Pack::by_row(value, values + head * memory_lanes * padded_value, M, problem.value_heads, 1, value_size);
            if (!grad_values) return;
            Pack::by_feature(value, values_by_feature + head * value_lanes * padded_memory, M, problem.value_heads, 1,
                             value_size, padded_memory);
            std::fill_n(grad_values + head * M * padded_value, M * padded_value, Sum(0));
        }
    }

    void add_projections(const Sum *P_l, const Sum *P_w) {
        for (int64_t i = 0; i < P_l_size; i++) grad_P_l[i] += P_l[i];
        for (int64_t i = 0; i < P_w_size; i++) grad_P_w[i] += P_w[i];
    }

    // writes the sums of a part
    void finish(int64_t part) const {
        const int64_t M = problem.memory, head = part < key_heads ? part : part - key_heads;
        if (part < key_heads)
            Pack::unpack(grad_keys + head * M * padded_key, key_part(problem.grad_key, M, 0) + head * key_size, M,
                         problem.key_heads, 1, key_size, problem.scale);
        else
            Pack::unpack(grad_values + head * M * padded_value,
                         value_part(problem.grad_value, M, 0) + head * value_size, M, problem.value_heads, 1,
                         value_size, 1);
        if (part > 0) return;
        std::copy_n(grad_P_l, P_l_size, static_cast<Sum *>(problem.grad_logits_projection) + example * P_l_size);
        std::copy_n(grad_P_w, P_w_size, static_cast<Sum *>(problem.grad_weights_projection) + example * P_w_size);
    }

    // the group's first head at a position of the example, in a tensor [batch, length, all heads, size]
    template <class Pointer> auto key_part(Pointer *tensor, int64_t length, int64_t position) const {
        return part_of(tensor, example * length + position, problem.key_heads, group * key_heads, key_size);
    }
    template <class Pointer> auto value_part(Pointer *tensor, int64_t length, int64_t position) const {
        return part_of(tensor, example * length + position, problem.value_heads, group * value_heads, value_size);
    }

  private:
    template <class Pointer>
    static auto part_of(Pointer *tensor, int64_t position, int64_t all, int64_t head, int64_t size) {
        using Element = std::conditional_t<std::is_const_v<Pointer>, const T, T>;
        return static_cast<Element *>(tensor) + (position * all + head) * size;
    }
};

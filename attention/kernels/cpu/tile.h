// A tile: the attention of a few query rows of a group, forward or backward.
//
// J = QK^T -> P_l -> bias, mask -> softmax -> P_w -> dropout -> V, in the order of `kernels/reference.py`. The maps of a
// tile, [head][row][memory], stay in the cache, and no map is ever as large as queries x memory. Maps are kept as
// numbers; a product over heads, or over rows, first joins them to lanes. The softmax works on a row of sums.

#pragma once

#include "dropout.h"
#include "memory.h"
#include "products.h"
#include "softmax.h"

// bytes of a tile's largest map at most, where it has more than the least rows
constexpr int64_t TILE_BYTES = 1 << 16, LEAST_ROWS = 8, MOST_ROWS = 32;
// memory positions whose sums a tile adds to at a time
constexpr int64_t BLOCK = 128;

template <class T> struct Tile : Sizes<T> {
    using Pack = Packing<T>;
    using Sum = typename Pack::Sum;
    using Number = typename Pack::Number;
    using Lane = typename Pack::Lane;
    using Self = Sizes<T>;
    using Self::drops, Self::mixes_logits, Self::mixes_weights, Self::problem;
    using Self::key_heads, Self::key_size, Self::softmax_heads, Self::value_heads, Self::value_size;
    using Self::key_lanes, Self::memory_lanes, Self::padded_key, Self::padded_memory, Self::padded_value;
    using Self::P_l_size, Self::P_w_size, Self::value_lanes;
    using Pack::as_lanes, Pack::lanes_of, Pack::LANE_NUMBERS, Pack::store, Pack::WIDTH;

    // rows of a tile, and lanes of them; numbers of a map of a tile, and of a row of all heads' maps
    const int64_t height, tile_lanes, area, line;
    // of the projections' gradients, where threads share a group
    Sum *grad_P_l = nullptr, *grad_P_w = nullptr;

    Tile(const Problem &problem, Space &space, bool backward)
        : Self(problem), height(rows_of_tile()), tile_lanes(lanes_of(height)),
          // a vector more: rows of maps a power of two apart would share their place in the cache
          area(height * padded_memory + WIDTH), line(padded_memory + WIDTH) {
        const int64_t heads = std::max({key_heads, softmax_heads, value_heads});
        const bool mixes = mixes_logits || mixes_weights;
        space.take(queries, key_heads * height * key_lanes * LANE_NUMBERS);
        space.take(rows, std::max(key_heads * padded_key, value_heads * padded_value) * height);
        space.take(sums, std::max(mixes_logits ? 1 : softmax_heads, mixes_weights ? 1 : value_heads) * area);
        space.take(weights, heads * area);
        space.take(mixed, mixes_weights || drops || (backward && mixes_logits) ? heads * area : 0);
        space.take(logits, mixes_logits ? key_heads * area : 0);
        space.take(mixed_row, mixes ? heads * line : 0);
        space.take(joined_row, mixes && LANE_NUMBERS > 1 ? lanes_of(heads) * line : 0);
        space.take(P_l, mixes_logits ? lanes_of(key_heads) * softmax_heads : 0);
        space.take(P_w, mixes_weights ? lanes_of(softmax_heads) * value_heads : 0);
        if (!backward) return;
        space.take(grad_outputs, value_heads * height * value_lanes * LANE_NUMBERS);
        space.take(grad_outputs_by_row, value_heads * tile_lanes * padded_value);
        space.take(queries_by_row, key_heads * tile_lanes * padded_key);
        space.take(P_l_transposed, mixes_logits ? lanes_of(softmax_heads) * key_heads : 0);
        space.take(P_w_transposed, mixes_weights ? lanes_of(value_heads) * softmax_heads : 0);
        space.take(grad_P_l, P_l_size), space.take(grad_P_w, P_w_size);
    }

    // packs the projections, which are the same for all rows
    void pack_projections(bool backward) {
        Pack::matrix(problem.logits_projection, P_l, key_heads, softmax_heads, softmax_heads, 1);
        Pack::matrix(problem.weights_projection, P_w, softmax_heads, value_heads, value_heads, 1);
        if (!backward) return;
        Pack::matrix(problem.logits_projection, P_l_transposed, softmax_heads, key_heads, 1, softmax_heads);
        Pack::matrix(problem.weights_projection, P_w_transposed, value_heads, softmax_heads, 1, value_heads);
    }

    // tiles that a group's rows are divided into
    int64_t tiles_of_group() const { return (problem.queries + height - 1) / height; }

    void choose(Memory<T> &group, int64_t number) {
        memory = &group, first = number * height, count = std::min(height, problem.queries - first);
        attended = problem.causal ? std::min(problem.memory, first + count) : problem.memory;
        row_length = padded<Sum>(attended);
    }

    // writes the outputs
    void forward() {
        compute_maps();
        for (int64_t head = 0; head < value_heads; head++)
            product(count, padded_value, lanes_of(attended), as_lanes(used + head * area), row_length / LANE_NUMBERS, 1,
                    memory->values + head * memory_lanes * padded_value, padded_value,
                    rows + head * count * padded_value, padded_value);
        T *output = memory->value_part(problem.output, problem.queries, first);
        Pack::unpack(rows, output, count, problem.value_heads, value_heads, value_size, 1);
    }

    // The backward has four steps: `compute_used`, `add_values` for all, `compute_gradients`, `add_keys` for all

    // computes what the values are summed by
    void compute_used() {
        compute_maps();
        const T *grad = memory->value_part(problem.grad_output, problem.queries, first);
        Pack::by_head(grad, grad_outputs, count, problem.value_heads, value_heads, value_size);
        Pack::by_row(grad, grad_outputs_by_row, count, problem.value_heads, value_heads, value_size);
        const T *query = memory->key_part(problem.query, problem.queries, first);
        Pack::by_row(query, queries_by_row, count, problem.key_heads, key_heads, key_size);
    }

    // adds to the sums of a head's gradients of values, at memory positions [begin, end)
    void add_values(int64_t head, int64_t begin, int64_t end) const {
        add_transposed_product(used + head * area, grad_outputs_by_row + head * lanes_of(count) * padded_value,
                               padded_value, memory->grad_values + head * problem.memory * padded_value, begin, end);
    }

    // writes the gradients of the queries, computes those of the logits, and adds to those of the projections
    void compute_gradients(Sum *grad_P_l, Sum *grad_P_w) {
        for (int64_t head = 0; head < value_heads; head++) {
            Sum *grad_mixed = mixes_weights ? sums : sums + head * area;
            product(count, row_length, value_lanes, as_lanes(grad_outputs + head * count * value_lanes * LANE_NUMBERS),
                    value_lanes, 1, memory->values_by_feature + head * value_lanes * padded_memory, padded_memory,
                    grad_mixed, row_length);
            for (int64_t n = 0; n < count; n++) drop(grad_mixed + n * row_length, head, n);
            if (mixes_weights) store(grad_mixed, mixed + head * area, count * row_length);
        }
        if (mixes_weights) sum_dots(weights, softmax_heads, mixed, value_heads, grad_P_w);
        for (int64_t n = 0; n < count; n++) unmix_row(n);
        if (mixes_logits) sum_dots(logits, key_heads, mixed, softmax_heads, grad_P_l);
        // `weights` now holds the gradients of the logits before P_l
        for (int64_t head = 0; head < key_heads; head++)
            product(count, padded_key, lanes_of(attended), as_lanes(weights + head * area), row_length / LANE_NUMBERS,
                    1, memory->keys_by_row + head * memory_lanes * padded_key, padded_key,
                    rows + head * count * padded_key, padded_key);
        T *grad_query = memory->key_part(problem.grad_query, problem.queries, first);
        Pack::unpack(rows, grad_query, count, problem.key_heads, key_heads, key_size, problem.scale);
    }

    // the same where threads share a group: the projections' in sums of the tile's own
    void compute_own_gradients() {
        std::fill_n(grad_P_l, P_l_size, Sum(0)), std::fill_n(grad_P_w, P_w_size, Sum(0));
        compute_gradients(grad_P_l, grad_P_w);
    }

    // adds to the sums of a head's gradients of keys, at memory positions [begin, end)
    void add_keys(int64_t head, int64_t begin, int64_t end) const {
        add_transposed_product(weights + head * area, queries_by_row + head * lanes_of(count) * padded_key,
                               padded_key, memory->grad_keys + head * problem.memory * padded_key, begin, end);
    }

  private:
    Memory<T> *memory = nullptr;
    // the tile: its first row and their number, the memory that they attend to, and the length of a row of its maps
    int64_t first = 0, count = 0, attended = 0, row_length = 0;
    // [heads][count] rows of whole lanes, and [heads][lanes of count][padded_key or padded_value]
    Number *queries, *grad_outputs;
    Lane *queries_by_row, *grad_outputs_by_row;
    // maps, [heads][area]; mixed and weights are written over by gradients. What the values are summed by is one of them
    Number *logits, *weights, *mixed;
    const Number *used;
    Sum *sums, *rows;
    // of a row, [heads][line]
    Sum *mixed_row;
    Lane *joined_row;
    // [lanes of heads][heads]
    Lane *P_l, *P_w, *P_l_transposed, *P_w_transposed;

    int64_t rows_of_tile() const {
        const int64_t heads = std::max({key_heads, softmax_heads, value_heads});
        const int64_t row_bytes = heads * padded_memory * int64_t(sizeof(Sum));
        return std::min(problem.queries, std::max(LEAST_ROWS, std::min(MOST_ROWS, TILE_BYTES / row_bytes)));
    }

    // computes the maps: logits (if they mix), weights, and what the values are summed by
    void compute_maps() {
        const T *query = memory->key_part(problem.query, problem.queries, first);
        Pack::by_head(query, queries, count, problem.key_heads, key_heads, key_size);
        for (int64_t head = 0; head < key_heads; head++) {
            Sum *map = mixes_logits ? sums : sums + head * area;
            product(count, row_length, key_lanes, as_lanes(queries + head * count * key_lanes * LANE_NUMBERS),
                    key_lanes, 1, memory->keys + head * key_lanes * padded_memory, padded_memory, map, row_length,
                    Sum(problem.scale));
            if (mixes_logits) store(map, logits + head * area, count * row_length);
        }
        for (int64_t n = 0; n < count; n++) {
            Sum *row = sums + n * row_length;
            int64_t step = area;
            if (mixes_logits) row = mix(P_l, logits + n * row_length, key_heads, softmax_heads), step = line;
            for (int64_t head = 0; head < softmax_heads; head++) {
                restrict_row(row + head * step, head, first + n);
                softmax(row + head * step, attended);
                store(row + head * step, weights + head * area + n * row_length, row_length);
            }
            if (mixes_weights) row = mix(P_w, weights + n * row_length, softmax_heads, value_heads), step = line;
            if (mixes_weights || drops)
                for (int64_t head = 0; head < value_heads; head++) {
                    drop(row + head * step, head, n);
                    store(row + head * step, mixed + head * area + n * row_length, row_length);
                }
        }
        used = mixes_weights || drops ? mixed : weights;
    }

    // takes row n of the gradients from behind P_w to before P_l; where nothing mixes, both sides are the same
    void unmix_row(int64_t n) {
        Sum *row = sums + n * row_length;
        int64_t step = area;
        if (mixes_weights) row = mix(P_w_transposed, mixed + n * row_length, value_heads, softmax_heads), step = line;
        for (int64_t head = 0; head < softmax_heads; head++) {
            const int64_t offset = head * area + n * row_length;
            softmax_gradient(row + head * step, weights + offset, attended);
            store(row + head * step, (mixes_logits ? mixed : weights) + offset, row_length);
        }
        if (!mixes_logits) return;
        row = mix(P_l_transposed, mixed + n * row_length, softmax_heads, key_heads);
        for (int64_t head = 0; head < key_heads; head++)
            store(row + head * line, weights + head * area + n * row_length, row_length);
    }

    // mixes a row of all heads' maps; the rows of the result are `line` apart
    Sum *mix(const Lane *matrix, const Number *from, int64_t heads, int64_t mixed_heads) {
        int64_t stride;
        const Lane *joined = Pack::join(from, heads, area, row_length, joined_row, line, stride);
        product(mixed_heads, row_length, lanes_of(heads), matrix, 1, mixed_heads, joined, stride, mixed_row, line);
        return mixed_row;
    }

    // sums [begin, end) of [memory][width] += map [count][attended], transposed, times vectors [lanes of count][width]
    void add_transposed_product(const Number *map, const Lane *vectors, int64_t width, Sum *to, int64_t begin,
                                int64_t end) const {
        Lane joined_rows[LANE_NUMBERS > 1 ? MOST_ROWS / LANE_NUMBERS * BLOCK : 1];
        end = std::min(end, attended);
        for (; begin < end; begin += BLOCK) {
            const int64_t size = std::min(BLOCK, end - begin);
            int64_t stride;
            const Lane *joined =
                Pack::join(map + begin, count, row_length, padded<Sum>(size), joined_rows, BLOCK, stride);
            product(size, width, lanes_of(count), joined, 1, stride, vectors, width, to + begin * width, width, Sum(1),
                    true);
        }
    }

    // out[i][j] += sum over a tile's map of left[i] right[j]
    void sum_dots(Number *left, int64_t left_heads, Number *right, int64_t right_heads, Sum *out) const {
        const int64_t size = count * row_length, step = WIDTH * LANE_NUMBERS, whole = (size + step - 1) / step * step;
        // the vectors of a map may reach behind it
        for (Number *map = left; map < left + left_heads * area; map += area)
            std::fill(map + size, map + whole, Number{});
        for (Number *map = right; map < right + right_heads * area; map += area)
            std::fill(map + size, map + whole, Number{});
        dots(as_lanes(left), left_heads, as_lanes(right), right_heads, area / LANE_NUMBERS, whole / LANE_NUMBERS, out);
    }

    // adds the bias of query n and makes -inf of what it may not attend to
    void restrict_row(Sum *row, int64_t head, int64_t n) const {
        const Sum infinity = std::numeric_limits<Sum>::infinity();
        head += memory->group * softmax_heads;
        if (problem.bias) {
            const int64_t *stride = problem.bias_strides;
            const int64_t offset = memory->example * stride[0] + head * stride[1] + n * stride[2];
            const T *bias = static_cast<const T *>(problem.bias) + offset;
            for (int64_t m = 0; m < attended; m++) row[m] += widened(bias[m * stride[3]]);
        }
        if (problem.mask) {
            const int64_t *stride = problem.mask_strides;
            const uint8_t *mask = problem.mask + memory->example * stride[0] + head * stride[1] + n * stride[2];
            for (int64_t m = 0; m < attended; m++) row[m] = mask[m * stride[3]] ? row[m] : -infinity;
        }
        if (problem.causal)
            for (int64_t m = n + 1; m < attended; m++) row[m] = -infinity;
    }

    // drops weights of a head in row n of the tile
    void drop(Sum *row, int64_t head, int64_t n) const {
        if (!drops) return;
        const int64_t all_heads = memory->example * problem.value_heads + memory->group * value_heads + head;
        const int64_t place = all_heads * problem.queries + first + n;
        drop_weights(row, attended, problem.seed, place, int32_t(problem.threshold), Sum(problem.growth));
    }
};

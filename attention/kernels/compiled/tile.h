// A tile: the attention of a few query rows of a group, forward or backward.
//
// J = QK^T -> P_l -> bias, mask -> softmax -> P_w -> dropout -> V, in the order of `kernels/reference.py`. The maps of
// a tile, [head][row][memory], stay in the cache, and no map but the gradient of a trained bias is ever as large as
// queries x memory. Maps are kept as numbers; a product over heads or over rows first joins them into lanes. The softmax
// works on a row of sums.

#pragma once

#include "dropout.h"
#include "keys_values.h"
#include "products.h"
#include "softmax.h"

// a tile has as many rows as its largest map, with all heads, has room for in these bytes
constexpr int64_t MAX_TILE_BYTES = 1 << 16, MIN_TILE_ROWS = 8, MAX_TILE_ROWS = 32;
// the number of memory positions whose sums a tile adds to at a time
constexpr int64_t MEMORY_BLOCK = 128;

template <class T> struct Tile : Sizes<T> {
    using Pack = Packing<T>;
    using Sum = typename Pack::Sum;
    using Number = typename Pack::Number;
    using Lane = typename Pack::Lane;
    using Base = Sizes<T>;
    using Base::has_dropout, Base::mixes_logits, Base::mixes_weights, Base::problem;
    using Base::key_heads, Base::key_size, Base::softmax_heads, Base::value_heads, Base::value_size;
    using Base::key_lanes, Base::memory_lanes, Base::padded_key, Base::padded_memory, Base::padded_value;
    using Base::P_l_size, Base::P_w_size, Base::value_lanes;
    using Pack::as_lanes, Pack::lanes_of, Pack::LANE_NUMBERS, Pack::store_numbers, Pack::WIDTH;

    // rows of a tile, and the lanes that hold them; distance in numbers between the maps, and between the rows, of two
    // neighbouring heads
    const int64_t rows_per_tile, tile_row_lanes, map_stride, row_stride;
    // sums of the projections' gradients, if threads share a group
    Sum *grad_P_l = nullptr, *grad_P_w = nullptr;

    Tile(const Problem &problem, Arena &arena, bool backward)
        : Base(problem), rows_per_tile(choose_rows_per_tile()), tile_row_lanes(lanes_of(rows_per_tile)),
          // one vector more, because rows of maps a power of two apart would fall into the same sets of the cache
          map_stride(rows_per_tile * padded_memory + WIDTH), row_stride(padded_memory + WIDTH) {
        const int64_t heads = std::max({key_heads, softmax_heads, value_heads});
        const bool mixes = mixes_logits || mixes_weights;
        arena.allocate(queries, key_heads * rows_per_tile * key_lanes * LANE_NUMBERS);
        arena.allocate(product_sums, std::max(key_heads * padded_key, value_heads * padded_value) * rows_per_tile);
        arena.allocate(map_sums,
                       std::max(mixes_logits ? 1 : softmax_heads, mixes_weights ? 1 : value_heads) * map_stride);
        arena.allocate(weights, heads * map_stride);
        arena.allocate(mixed_maps, mixes_weights || has_dropout || (backward && mixes_logits) ? heads * map_stride : 0);
        arena.allocate(logits, mixes_logits ? key_heads * map_stride : 0);
        arena.allocate(mixed_row, mixes ? heads * row_stride : 0);
        arena.allocate(joined_row, mixes && LANE_NUMBERS > 1 ? lanes_of(heads) * row_stride : 0);
        arena.allocate(P_l, mixes_logits ? lanes_of(key_heads) * softmax_heads : 0);
        arena.allocate(P_w, mixes_weights ? lanes_of(softmax_heads) * value_heads : 0);
        if (!backward) return;
        arena.allocate(grad_outputs, value_heads * rows_per_tile * value_lanes * LANE_NUMBERS);
        arena.allocate(grad_outputs_by_row, value_heads * tile_row_lanes * padded_value);
        arena.allocate(queries_by_row, key_heads * tile_row_lanes * padded_key);
        arena.allocate(P_l_transposed, mixes_logits ? lanes_of(softmax_heads) * key_heads : 0);
        arena.allocate(P_w_transposed, mixes_weights ? lanes_of(value_heads) * softmax_heads : 0);
        arena.allocate(grad_P_l, P_l_size), arena.allocate(grad_P_w, P_w_size);
    }

    // packs the projections, which are the same for all rows
    void pack_projections(bool backward) {
        Pack::pack_matrix(problem.logits_projection, P_l, key_heads, softmax_heads, softmax_heads, 1);
        Pack::pack_matrix(problem.weights_projection, P_w, softmax_heads, value_heads, value_heads, 1);
        if (!backward) return;
        Pack::pack_matrix(problem.logits_projection, P_l_transposed, softmax_heads, key_heads, 1, softmax_heads);
        Pack::pack_matrix(problem.weights_projection, P_w_transposed, value_heads, softmax_heads, 1, value_heads);
    }

    // the number of tiles that a group's rows are divided into
    int64_t tiles_per_group() const { return (problem.queries + rows_per_tile - 1) / rows_per_tile; }

    void select(KeysValues<T> &group, int64_t tile_index) {
        keys_values = &group, first_row = tile_index * rows_per_tile,
        row_count = std::min(rows_per_tile, problem.queries - first_row);
        attended = problem.causal ? std::min(problem.memory, first_row + row_count) : problem.memory;
        row_length = padded<Sum>(attended);
    }

    // writes the outputs
    void forward() {
        compute_maps();
        for (int64_t head = 0; head < value_heads; head++)
            product(row_count, padded_value, lanes_of(attended), as_lanes(value_weights + head * map_stride),
                    row_length / LANE_NUMBERS, 1, keys_values->values + head * memory_lanes * padded_value,
                    padded_value, product_sums + head * row_count * padded_value, padded_value);
        T *output = keys_values->values_at(problem.output, problem.queries, first_row);
        Pack::unpack(product_sums, output, row_count, problem.value_heads, value_heads, value_size, 1);
    }

    // The backward pass has four steps: `compute_value_weights`, `add_values` for all heads, `compute_gradients`,
    // `add_keys` for all heads

    // computes `value_weights`, and packs the gradients of the outputs
    void compute_value_weights() {
        compute_maps();
        const T *grad = keys_values->values_at(problem.grad_output, problem.queries, first_row);
        Pack::pack_by_head(grad, grad_outputs, row_count, problem.value_heads, value_heads, value_size);
        Pack::pack_by_row(grad, grad_outputs_by_row, row_count, problem.value_heads, value_heads, value_size);
        const T *query = keys_values->keys_at(problem.query, problem.queries, first_row);
        Pack::pack_by_row(query, queries_by_row, row_count, problem.key_heads, key_heads, key_size);
    }

    // adds to the gradients of a head's values, at memory positions [begin, end)
    void add_values(int64_t head, int64_t begin, int64_t end) const {
        add_transposed_product(value_weights + head * map_stride,
                               grad_outputs_by_row + head * lanes_of(row_count) * padded_value, padded_value,
                               keys_values->grad_values + head * problem.memory * padded_value, begin, end);
    }

    // writes the gradients of the queries, computes those of the logits, and adds to those of the projections
    void compute_gradients(Sum *grad_P_l, Sum *grad_P_w) {
        for (int64_t head = 0; head < value_heads; head++) {
            Sum *grad_mixed = mixes_weights ? map_sums : map_sums + head * map_stride;
            product(row_count, row_length, value_lanes,
                    as_lanes(grad_outputs + head * row_count * value_lanes * LANE_NUMBERS), value_lanes, 1,
                    keys_values->values_by_feature + head * value_lanes * padded_memory, padded_memory, grad_mixed,
                    row_length);
            for (int64_t n = 0; n < row_count; n++) drop_row(grad_mixed + n * row_length, head, n);
            if (mixes_weights) store_numbers(grad_mixed, mixed_maps + head * map_stride, row_count * row_length);
        }
        if (mixes_weights) add_projection_gradient(weights, softmax_heads, mixed_maps, value_heads, grad_P_w);
        for (int64_t n = 0; n < row_count; n++) backward_row(n);
        if (mixes_logits) add_projection_gradient(logits, key_heads, mixed_maps, softmax_heads, grad_P_l);
        // `weights` now holds the gradients of the logits before P_l
        for (int64_t head = 0; head < key_heads; head++)
            product(row_count, padded_key, lanes_of(attended), as_lanes(weights + head * map_stride),
                    row_length / LANE_NUMBERS, 1, keys_values->keys_by_row + head * memory_lanes * padded_key,
                    padded_key, product_sums + head * row_count * padded_key, padded_key);
        T *grad_query = keys_values->keys_at(problem.grad_query, problem.queries, first_row);
        Pack::unpack(product_sums, grad_query, row_count, problem.key_heads, key_heads, key_size, problem.scale);
    }

    // the same if threads share a group: the gradients of the projections are summed in the tile's own arrays
    void compute_own_gradients() {
        std::fill_n(grad_P_l, P_l_size, Sum(0)), std::fill_n(grad_P_w, P_w_size, Sum(0));
        compute_gradients(grad_P_l, grad_P_w);
    }

    // adds to the gradients of a head's keys, at memory positions [begin, end)
    void add_keys(int64_t head, int64_t begin, int64_t end) const {
        add_transposed_product(weights + head * map_stride, queries_by_row + head * lanes_of(row_count) * padded_key,
                               padded_key, keys_values->grad_keys + head * problem.memory * padded_key, begin, end);
    }

  private:
    KeysValues<T> *keys_values = nullptr;
    // the tile: its first row, the number of rows, the memory that they attend to, and the length of a row of its maps
    int64_t first_row = 0, row_count = 0, attended = 0, row_length = 0;
    // [heads][row_count] rows of whole lanes, and [heads][lanes of row_count][padded_key or padded_value]
    Number *queries, *grad_outputs;
    Lane *queries_by_row, *grad_outputs_by_row;
    // maps, [heads][map_stride]; gradients overwrite weights and mixed_maps. value_weights, by which the values are
    // summed, is one of these two
    Number *logits, *weights, *mixed_maps;
    const Number *value_weights;
    // the sums of a map, and those of a product that is an output or a query's gradient
    Sum *map_sums, *product_sums;
    // one row of all heads, [heads][row_stride]
    Sum *mixed_row;
    Lane *joined_row;
    // [lanes of heads][heads]
    Lane *P_l, *P_w, *P_l_transposed, *P_w_transposed;

    int64_t choose_rows_per_tile() const {
        const int64_t heads = std::max({key_heads, softmax_heads, value_heads});
        const int64_t row_bytes = heads * padded_memory * int64_t(sizeof(Sum));
        int64_t rows = std::max(MIN_TILE_ROWS, std::min(MAX_TILE_ROWS, MAX_TILE_BYTES / row_bytes));
        // the last rows of a tile, too few for a block of a product, may round differently. If heads do not mix, the
        // number of threads decides how many of them a tile has, and must not decide which rows are its last
        if (!mixes_logits && !mixes_weights) rows -= rows % MIN_TILE_ROWS;
        return std::min(problem.queries, rows);
    }

    // computes the maps: logits (if they mix), weights and value_weights
    void compute_maps() {
        const T *query = keys_values->keys_at(problem.query, problem.queries, first_row);
        Pack::pack_by_head(query, queries, row_count, problem.key_heads, key_heads, key_size);
        for (int64_t head = 0; head < key_heads; head++) {
            Sum *map = mixes_logits ? map_sums : map_sums + head * map_stride;
            product(row_count, row_length, key_lanes, as_lanes(queries + head * row_count * key_lanes * LANE_NUMBERS),
                    key_lanes, 1, keys_values->keys + head * key_lanes * padded_memory, padded_memory, map, row_length,
                    Sum(problem.scale));
            if (mixes_logits) store_numbers(map, logits + head * map_stride, row_count * row_length);
        }
        for (int64_t n = 0; n < row_count; n++) {
            Sum *row = map_sums + n * row_length;
            int64_t head_stride = map_stride;
            if (mixes_logits)
                row = mix(P_l, logits + n * row_length, key_heads, softmax_heads), head_stride = row_stride;
            for (int64_t head = 0; head < softmax_heads; head++) {
                bias_and_mask_row(row + head * head_stride, head, first_row + n);
                // causal attention leaves the first position to every query
                softmax(row + head * head_stride, attended, problem.bias || problem.mask);
                store_numbers(row + head * head_stride, weights + head * map_stride + n * row_length, row_length);
            }
            if (mixes_weights)
                row = mix(P_w, weights + n * row_length, softmax_heads, value_heads), head_stride = row_stride;
            if (mixes_weights || has_dropout)
                for (int64_t head = 0; head < value_heads; head++) {
                    drop_row(row + head * head_stride, head, n);
                    store_numbers(row + head * head_stride, mixed_maps + head * map_stride + n * row_length,
                                  row_length);
                }
        }
        value_weights = mixes_weights || has_dropout ? mixed_maps : weights;
    }

    // takes row n of the gradients from after P_w back to before P_l; without a projection, both sides are the same
    void backward_row(int64_t n) {
        Sum *row = map_sums + n * row_length;
        int64_t head_stride = map_stride;
        if (mixes_weights)
            row = mix(P_w_transposed, mixed_maps + n * row_length, value_heads, softmax_heads),
            head_stride = row_stride;
        for (int64_t head = 0; head < softmax_heads; head++) {
            const int64_t offset = head * map_stride + n * row_length;
            softmax_gradient(row + head * head_stride, weights + offset, attended);
            add_bias_gradient(row + head * head_stride, head, first_row + n);
            store_numbers(row + head * head_stride, (mixes_logits ? mixed_maps : weights) + offset, row_length);
        }
        if (!mixes_logits) return;
        row = mix(P_l_transposed, mixed_maps + n * row_length, softmax_heads, key_heads);
        for (int64_t head = 0; head < key_heads; head++)
            store_numbers(row + head * row_stride, weights + head * map_stride + n * row_length, row_length);
    }

    // mixes a row of all heads' maps; the rows of the result are `row_stride` apart
    Sum *mix(const Lane *matrix, const Number *from, int64_t heads, int64_t mixed_heads) {
        int64_t stride;
        const Lane *joined = Pack::join_rows(from, heads, map_stride, row_length, joined_row, row_stride, stride);
        product(mixed_heads, row_length, lanes_of(heads), matrix, 1, mixed_heads, joined, stride, mixed_row,
                row_stride);
        return mixed_row;
    }

    // sums [begin, end) of [memory][width] += map [row_count][attended], transposed, times vectors [lanes of
    // row_count][width]
    void add_transposed_product(const Number *map, const Lane *vectors, int64_t width, Sum *to, int64_t begin,
                                int64_t end) const {
        Lane joined_rows[LANE_NUMBERS > 1 ? MAX_TILE_ROWS / LANE_NUMBERS * MEMORY_BLOCK : 1];
        end = std::min(end, attended);
        for (; begin < end; begin += MEMORY_BLOCK) {
            const int64_t size = std::min(MEMORY_BLOCK, end - begin);
            int64_t stride;
            const Lane *joined = Pack::join_rows(map + begin, row_count, row_length, padded<Sum>(size), joined_rows,
                                                 MEMORY_BLOCK, stride);
            product(size, width, lanes_of(row_count), joined, 1, stride, vectors, width, to + begin * width, width,
                    Sum(1), true);
        }
    }

    // the gradient of P_l or P_w: out[i][j] += sum over a map of left_maps[i] right_maps[j]
    void add_projection_gradient(Number *left_maps, int64_t left_heads, Number *right_maps, int64_t right_heads,
                                 Sum *out) const {
        const int64_t size = row_count * row_length, vector_numbers = WIDTH * LANE_NUMBERS,
                      padded_size = (size + vector_numbers - 1) / vector_numbers * vector_numbers;
        // the vectors of a map may reach beyond its end
        for (Number *map = left_maps; map < left_maps + left_heads * map_stride; map += map_stride)
            std::fill(map + size, map + padded_size, Number{});
        for (Number *map = right_maps; map < right_maps + right_heads * map_stride; map += map_stride)
            std::fill(map + size, map + padded_size, Number{});
        row_dots(as_lanes(left_maps), left_heads, as_lanes(right_maps), right_heads, map_stride / LANE_NUMBERS,
                 padded_size / LANE_NUMBERS, out);
    }

    // adds the bias of query n and sets the logits of positions that it may not attend to to -inf
    void bias_and_mask_row(Sum *row, int64_t head, int64_t n) const {
        const Sum infinity = std::numeric_limits<Sum>::infinity();
        head += keys_values->group * softmax_heads;
        if (problem.bias) {
            const int64_t *stride = problem.bias_strides;
            const int64_t offset = keys_values->example * stride[0] + head * stride[1] + n * stride[2];
            const T *bias = static_cast<const T *>(problem.bias) + offset;
            // with a stride that is known to be 1, the loop is one of vectors
            if (stride[3] == 1)
                for (int64_t m = 0; m < attended; m++) row[m] += widened(bias[m]);
            else
                for (int64_t m = 0; m < attended; m++) row[m] += widened(bias[m * stride[3]]);
        }
        if (problem.mask) {
            const int64_t *stride = problem.mask_strides;
            const uint8_t *mask = problem.mask + keys_values->example * stride[0] + head * stride[1] + n * stride[2];
            for (int64_t m = 0; m < attended; m++) row[m] = mask[m * stride[3]] ? row[m] : -infinity;
        }
        if (problem.causal)
            for (int64_t m = n + 1; m < attended; m++) row[m] = -infinity;
    }

    // adds the gradient of query n's logits to that of the bias
    void add_bias_gradient(const Sum *row, int64_t head, int64_t n) const {
        if (!problem.grad_bias) return;
        const int64_t example = problem.examples_add_to_one_bias() ? 0 : keys_values->example;
        head += keys_values->group * softmax_heads;
        Sum *grad = static_cast<Sum *>(problem.grad_bias) +
                    ((example * problem.softmax_heads + head) * problem.queries + n) * problem.memory;
        for (int64_t m = 0; m < attended; m++) grad[m] += row[m];
    }

    // drops weights of a head in row n of the tile
    void drop_row(Sum *row, int64_t head, int64_t n) const {
        if (!has_dropout) return;
        const int64_t batch_head = keys_values->example * problem.value_heads + keys_values->group * value_heads + head;
        const int64_t row_index = batch_head * problem.queries + first_row + n;
        drop_weights(row, attended, problem.seed, row_index, int32_t(problem.keep_threshold), Sum(problem.keep_scale));
    }
};

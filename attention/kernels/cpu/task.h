// A task: the attention of some query rows of one example, forward or backward, by heads that mix or by a single one.
//
// J = QK^T -> P_l -> bias, mask -> softmax -> P_w -> dropout -> V, in the order of `kernels/reference.py`. A task goes
// over its rows a tile at a time. The maps of a tile, [head][row][memory], stay in the cache, and no map is ever as
// large as queries x memory. Maps are kept as numbers; a product over heads, or over rows, first joins them to lanes.
// The softmax works on a row of sums.

#pragma once

#include "dropout.h"
#include "packing.h"
#include "products.h"
#include "softmax.h"

struct Problem {
    int64_t batch, queries, memory, key_heads, softmax_heads, value_heads, key_size, value_size;
    int64_t causal, threads, groups, chunks;  // groups of heads, and chunks of rows, that an example is divided into
    int64_t drops, threshold;                 // whether weights are dropped; the hash under which one stays
    double scale, growth;                     // growth: the factor of the weights that stay
    uint64_t seed;
    const void *query, *key, *value, *logits_projection, *weights_projection, *bias;
    const uint8_t *mask;
    int64_t bias_strides[4], mask_strides[4];
    void *workspace, *output;  // output [batch, queries, value_heads, value_size]
    const void *grad_output;
    void *grad_query, *grad_key, *grad_value;
    // [batch * chunks, key_heads, softmax_heads], [batch * chunks, softmax_heads, value_heads], in the type of the sums
    void *grad_logits_projection, *grad_weights_projection;
};

// bytes of a tile's largest map at most, where it has more than the least rows
constexpr int64_t TILE_BYTES = 1 << 16, LEAST_ROWS = 8, MOST_ROWS = 32;

template <class T> struct Task : Packing<T> {
    using Pack = Packing<T>;
    using Sum = typename Pack::Sum;
    using Number = typename Pack::Number;
    using Lane = typename Pack::Lane;
    using Pack::as_lanes, Pack::lanes_of, Pack::LANE_NUMBERS, Pack::store, Pack::WIDTH;

    const Problem &problem;
    const bool mixes_logits, mixes_weights, drops;
    // heads of a group, and widths of a head
    const int64_t key_heads, softmax_heads, value_heads, key_size, value_size;
    // sizes in whole vectors, and in lanes
    const int64_t padded_memory, padded_key, padded_value, key_lanes, value_lanes, memory_lanes;
    // rows of a tile, and lanes of them; numbers of a map of a tile, and of a row of all heads' maps
    const int64_t tile, tile_lanes, area, line;
    int64_t bytes;  // of workspace

    // without a workspace only its size is found out
    Task(const Problem &problem, char *workspace, bool backward)
        : problem(problem), mixes_logits(problem.logits_projection), mixes_weights(problem.weights_projection),
          drops(problem.drops), key_heads(problem.key_heads / problem.groups),
          softmax_heads(problem.softmax_heads / problem.groups), value_heads(problem.value_heads / problem.groups),
          key_size(problem.key_size), value_size(problem.value_size), padded_memory(padded<Sum>(problem.memory)),
          padded_key(padded<Sum>(key_size)), padded_value(padded<Sum>(value_size)), key_lanes(lanes_of(key_size)),
          value_lanes(lanes_of(value_size)), memory_lanes(lanes_of(problem.memory)), tile(rows_of_tile()),
          tile_lanes(lanes_of(tile)),
          // a vector more: rows of maps a power of two apart would share their place in the cache
          area(tile * padded_memory + WIDTH), line(padded_memory + WIDTH), next(workspace) {
        const int64_t heads = std::max({key_heads, softmax_heads, value_heads});
        const bool mixes = mixes_logits || mixes_weights;
        take(keys, key_heads * key_lanes * padded_memory), take(values, value_heads * memory_lanes * padded_value);
        take(queries, key_heads * tile * key_lanes * LANE_NUMBERS);
        take(rows, std::max(key_heads * padded_key, value_heads * padded_value) * tile);
        take(sums, std::max(mixes_logits ? 1 : softmax_heads, mixes_weights ? 1 : value_heads) * area);
        take(weights, heads * area);
        take(mixed, mixes_weights || drops || (backward && mixes_logits) ? heads * area : 0);
        take(logits, mixes_logits ? key_heads * area : 0);
        take(mixed_row, mixes ? heads * line : 0);
        take(joined_row, mixes && LANE_NUMBERS > 1 ? lanes_of(heads) * line : 0);
        take(P_l, mixes_logits ? lanes_of(key_heads) * softmax_heads : 0);
        take(P_w, mixes_weights ? lanes_of(softmax_heads) * value_heads : 0);
        if (backward) {
            take(keys_by_row, key_heads * memory_lanes * padded_key);
            take(values_by_feature, value_heads * value_lanes * padded_memory);
            take(grad_outputs, value_heads * tile * value_lanes * LANE_NUMBERS);
            take(grad_outputs_by_row, value_heads * tile_lanes * padded_value);
            take(queries_by_row, key_heads * tile_lanes * padded_key);
            take(joined_rows, LANE_NUMBERS > 1 ? tile_lanes * padded_memory : 0);
            take(P_l_transposed, mixes_logits ? lanes_of(softmax_heads) * key_heads : 0);
            take(P_w_transposed, mixes_weights ? lanes_of(value_heads) * softmax_heads : 0);
        }
        bytes = next - workspace;
        if (!workspace) return;
        Pack::matrix(problem.logits_projection, P_l, key_heads, softmax_heads, softmax_heads, 1);
        Pack::matrix(problem.weights_projection, P_w, softmax_heads, value_heads, value_heads, 1);
        if (!backward) return;
        Pack::matrix(problem.logits_projection, P_l_transposed, softmax_heads, key_heads, 1, softmax_heads);
        Pack::matrix(problem.weights_projection, P_w_transposed, value_heads, softmax_heads, 1, value_heads);
    }

    int64_t rows_of_tile() const {
        const int64_t heads = std::max({key_heads, softmax_heads, value_heads});
        const int64_t row_bytes = heads * padded_memory * int64_t(sizeof(Sum));
        return std::min(problem.queries, std::max(LEAST_ROWS, std::min(MOST_ROWS, TILE_BYTES / row_bytes)));
    }

    // numbers that a group's gradients of keys [key_heads][memory][padded_key], and behind them of values
    // [value_heads][memory][padded_value], are summed in
    int64_t key_sums() const { return key_heads * problem.memory * padded_key; }
    int64_t value_sums() const { return value_heads * problem.memory * padded_value; }

    void choose(int64_t chosen_example, int64_t chosen_group) { example = chosen_example, group = chosen_group; }

    // packs the keys and values that the rows attend to
    void pack_memory(bool backward) {
        const T *key = key_part(problem.key, problem.memory, 0), *value = value_part(problem.value, problem.memory, 0);
        const int64_t M = problem.memory;
        Pack::by_feature(key, keys, M, problem.key_heads, key_heads, key_size, padded_memory);
        Pack::by_row(value, values, M, problem.value_heads, value_heads, value_size);
        if (!backward) return;
        Pack::by_row(key, keys_by_row, M, problem.key_heads, key_heads, key_size);
        Pack::by_feature(value, values_by_feature, M, problem.value_heads, value_heads, value_size, padded_memory);
    }

    // writes the outputs of rows [start, stop), at most a tile
    void forward(int64_t start, int64_t stop) {
        const Number *used = compute_maps(start, stop);
        for (int64_t head = 0; head < value_heads; head++)
            product(count, padded_value, lanes_of(attended), as_lanes(used + head * area), row_length / LANE_NUMBERS, 1,
                    values + head * memory_lanes * padded_value, padded_value, rows + head * count * padded_value,
                    padded_value);
        T *output = value_part(problem.output, problem.queries, first);
        Pack::unpack(rows, output, count, problem.value_heads, value_heads, value_size, 1);
    }

    // writes the gradients of the queries of rows [start, stop), and adds to the sums of the others
    void backward(int64_t start, int64_t stop, Sum *grad_keys, Sum *grad_values, Sum *grad_P_l, Sum *grad_P_w) {
        const Number *used = compute_maps(start, stop);
        const T *grad = value_part(problem.grad_output, problem.queries, first);
        Pack::by_head(grad, grad_outputs, count, problem.value_heads, value_heads, value_size);
        Pack::by_row(grad, grad_outputs_by_row, count, problem.value_heads, value_heads, value_size);
        const T *query = key_part(problem.query, problem.queries, first);
        Pack::by_row(query, queries_by_row, count, problem.key_heads, key_heads, key_size);
        for (int64_t head = 0; head < value_heads; head++) {
            add_transposed_product(used + head * area, grad_outputs_by_row + head * lanes_of(count) * padded_value,
                                   padded_value, grad_values + head * problem.memory * padded_value);
            Sum *grad_mixed = mixes_weights ? sums : sums + head * area;
            product(count, row_length, value_lanes, as_lanes(grad_outputs + head * count * value_lanes * LANE_NUMBERS),
                    value_lanes, 1, values_by_feature + head * value_lanes * padded_memory, padded_memory, grad_mixed,
                    row_length);
            for (int64_t n = 0; n < count; n++) drop(grad_mixed + n * row_length, head, n);
            if (mixes_weights) store(grad_mixed, mixed + head * area, count * row_length);
        }
        if (mixes_weights) sum_dots(weights, softmax_heads, mixed, value_heads, grad_P_w);
        for (int64_t n = 0; n < count; n++) unmix_row(n);
        if (mixes_logits) sum_dots(logits, key_heads, mixed, softmax_heads, grad_P_l);
        // `weights` now holds the gradients of the logits before P_l
        for (int64_t head = 0; head < key_heads; head++) {
            const Number *grad_logits = weights + head * area;
            add_transposed_product(grad_logits, queries_by_row + head * lanes_of(count) * padded_key, padded_key,
                                   grad_keys + head * problem.memory * padded_key);
            product(count, padded_key, lanes_of(attended), as_lanes(grad_logits), row_length / LANE_NUMBERS, 1,
                    keys_by_row + head * memory_lanes * padded_key, padded_key, rows + head * count * padded_key,
                    padded_key);
        }
        T *grad_query = key_part(problem.grad_query, problem.queries, first);
        Pack::unpack(rows, grad_query, count, problem.key_heads, key_heads, key_size, problem.scale);
    }

    // writes the sums of all rows as gradients of keys and values
    void finish(const Sum *grad_keys, const Sum *grad_values) const {
        T *grad_key = key_part(problem.grad_key, problem.memory, 0);
        Pack::unpack(grad_keys, grad_key, problem.memory, problem.key_heads, key_heads, key_size, problem.scale);
        T *grad_value = value_part(problem.grad_value, problem.memory, 0);
        Pack::unpack(grad_values, grad_value, problem.memory, problem.value_heads, value_heads, value_size, 1);
    }

  private:
    // of the memory: [key_heads][key_lanes][padded_memory], [value_heads][memory_lanes][padded_value], and for the
    // backward [key_heads][memory_lanes][padded_key], [value_heads][value_lanes][padded_memory]
    Lane *keys, *values, *keys_by_row, *values_by_feature;
    // of a tile: [heads][count] rows of whole lanes, and [heads][lanes of count][padded_key or padded_value]
    Number *queries, *grad_outputs;
    Lane *queries_by_row, *grad_outputs_by_row;
    // maps of a tile, [heads][area]; mixed and weights are written over by gradients
    Number *logits, *weights, *mixed;
    Sum *sums, *rows;
    // of a row, [heads][line]; of a head, two rows in one
    Sum *mixed_row;
    Lane *joined_row, *joined_rows;
    // [lanes of heads][heads]
    Lane *P_l, *P_w, *P_l_transposed, *P_w_transposed;
    char *next;
    // the tile: its first row and their number, the memory that they attend to, and the length of a row of its maps
    int64_t example = 0, group = 0, first = 0, count = 0, attended = 0, row_length = 0;

    template <class X> void take(X *&part, int64_t size) {
        part = reinterpret_cast<X *>(next);
        next += (size * int64_t(sizeof(X)) + BYTES - 1) / BYTES * BYTES;
    }

    // the group's first head at a position of the example, in a tensor [batch, length, all heads, size]
    template <class Pointer>
    static auto part(Pointer *tensor, int64_t position, int64_t all, int64_t head, int64_t size) {
        using Element = std::conditional_t<std::is_const_v<Pointer>, const T, T>;
        return static_cast<Element *>(tensor) + (position * all + head) * size;
    }
    template <class Pointer> auto key_part(Pointer *tensor, int64_t length, int64_t position) const {
        return part(tensor, example * length + position, problem.key_heads, group * key_heads, key_size);
    }
    template <class Pointer> auto value_part(Pointer *tensor, int64_t length, int64_t position) const {
        return part(tensor, example * length + position, problem.value_heads, group * value_heads, value_size);
    }

    // computes the maps of rows [start, stop): logits (if they mix), weights, and what the values are summed by, which
    // it returns
    const Number *compute_maps(int64_t start, int64_t stop) {
        first = start, count = stop - start;
        attended = problem.causal ? std::min(problem.memory, stop) : problem.memory;
        row_length = padded<Sum>(attended);
        const T *query = key_part(problem.query, problem.queries, first);
        Pack::by_head(query, queries, count, problem.key_heads, key_heads, key_size);
        for (int64_t head = 0; head < key_heads; head++) {
            Sum *map = mixes_logits ? sums : sums + head * area;
            product(count, row_length, key_lanes, as_lanes(queries + head * count * key_lanes * LANE_NUMBERS),
                    key_lanes, 1, keys + head * key_lanes * padded_memory, padded_memory, map, row_length,
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
        return mixes_weights || drops ? mixed : weights;
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

    // sums [attended][width] += map [count][attended], transposed, times vectors [lanes of count][width]
    void add_transposed_product(const Number *map, const Lane *vectors, int64_t width, Sum *to) {
        int64_t stride;
        const Lane *joined = Pack::join(map, count, row_length, row_length, joined_rows, padded_memory, stride);
        product(attended, width, lanes_of(count), joined, 1, stride, vectors, width, to, width, Sum(1), true);
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
        head += group * softmax_heads;
        if (problem.bias) {
            const int64_t *stride = problem.bias_strides;
            const int64_t offset = example * stride[0] + head * stride[1] + n * stride[2];
            const T *bias = static_cast<const T *>(problem.bias) + offset;
            for (int64_t m = 0; m < attended; m++) row[m] += widened(bias[m * stride[3]]);
        }
        if (problem.mask) {
            const int64_t *stride = problem.mask_strides;
            const uint8_t *mask = problem.mask + example * stride[0] + head * stride[1] + n * stride[2];
            for (int64_t m = 0; m < attended; m++) row[m] = mask[m * stride[3]] ? row[m] : -infinity;
        }
        if (problem.causal)
            for (int64_t m = n + 1; m < attended; m++) row[m] = -infinity;
    }

    // drops weights of a head in row n of the tile
    void drop(Sum *row, int64_t head, int64_t n) const {
        if (!drops) return;
        const int64_t all_heads = example * problem.value_heads + group * value_heads + head;
        const int64_t place = all_heads * problem.queries + first + n;
        drop_weights(row, attended, problem.seed, place, int32_t(problem.threshold), Sum(problem.growth));
    }
};

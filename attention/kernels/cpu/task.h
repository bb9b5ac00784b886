// A task: the attention of some query rows of one example, forward or backward, by heads that mix or by a single one.
//
// It goes over its rows a tile at a time, whose maps [head][row][memory] stay in the cache: no map is ever as large as
// N x M. Maps are kept as numbers; a product over heads, or over rows, joins two of them to one of units first. The
// softmax is that of a row of sums.
//
// B examples, N queries, M memory, K key size, V value size; hk, h, hv: heads of keys, softmax, values

#pragma once

#include "products.h"
#include "softmax.h"

#include <type_traits>

struct Problem {
    int64_t B, N, M, hk, h, hv, K, V;
    int64_t causal, threads, groups, chunks;  // groups of heads, and chunks of rows, that an example is divided into
    double scale, growth;                     // growth: 1 / share of weights that dropout keeps
    uint64_t seed, kept;                      // kept: of 2^32, the share that dropout keeps; 2^32: no dropout
    const void *query, *key, *value, *logits, *weights, *bias;
    const uint8_t *mask;
    int64_t bias_strides[4], mask_strides[4];
    void *workspace, *output;  // output [B, N, hv, V]
    const void *grad_output;
    void *grad_query, *grad_key, *grad_value;
    void *grad_logits, *grad_weights;  // [B * chunks, hk, h], [B * chunks, h, hv], in the type of the sums
};

// bytes of a tile's largest map at most, where it has more than the least rows
constexpr int64_t TILE_BYTES = 1 << 16, LEAST_ROWS = 8, MOST_ROWS = 32;

static inline uint64_t scrambled(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

template <class T> struct Task {
    using F = typename arithmetic<T>::Sum;
    using N = typename arithmetic<T>::Number;
    using U = typename arithmetic<T>::Unit;

    static constexpr int64_t W = vector_of<F>::width, G = sizeof(U) / sizeof(N);  // G: numbers in a unit

    const Problem &p;
    const int64_t hk, h, hv;  // of an example's heads, those of a group
    // in whole vectors: Mp, Kp, Vp; in units: Ku, Vu, Mu; rows of a tile, numbers of its maps and of a row of one
    const int64_t Mp, Kp, Vp, Ku, Vu, Mu, tile, tile_units, area, line;
    int64_t bytes;  // of workspace

    // without a workspace only its size is found out
    Task(const Problem &p, char *workspace, bool backward)
        : p(p), hk(p.hk / p.groups), h(p.h / p.groups), hv(p.hv / p.groups), Mp(padded<F>(p.M)), Kp(padded<F>(p.K)),
          Vp(padded<F>(p.V)), Ku(in_units(p.K)), Vu(in_units(p.V)), Mu(in_units(p.M)), tile(rows_of_tile()),
          tile_units(in_units(tile)),
          // a vector more: rows of maps a power of two apart would share their place in the cache
          area(tile * Mp + W), line(Mp + W), next(workspace) {
        const int64_t heads = std::max({hk, h, hv});
        const bool mixes = p.logits || p.weights;
        take(keys, hk * Ku * Mp), take(values, hv * Mu * Vp);
        take(queries, hk * tile * Ku * G), take(rows, std::max(hk * Kp, hv * Vp) * tile);
        take(sums, std::max(p.logits ? 1 : h, p.weights ? 1 : hv) * area);
        take(weights, heads * area), take(mixed, p.weights || drops() || (backward && p.logits) ? heads * area : 0);
        take(logits, p.logits ? hk * area : 0);
        take(mixed_row, mixes ? heads * line : 0), take(joined_row, mixes && G > 1 ? in_units(heads) * line : 0);
        take(P_l, p.logits ? in_units(hk) * h : 0), take(P_w, p.weights ? in_units(h) * hv : 0);
        if (backward) {
            take(keys_by_row, hk * Mu * Kp), take(values_by_column, hv * Vu * Mp);
            take(given, hv * tile * Vu * G), take(given_by_row, hv * tile_units * Vp);
            take(queries_by_row, hk * tile_units * Kp), take(joined_rows, G > 1 ? tile_units * Mp : 0);
            take(P_l_back, p.logits ? in_units(h) * hk : 0), take(P_w_back, p.weights ? in_units(hv) * h : 0);
        }
        bytes = next - workspace;
        if (!workspace) return;
        projection(p.logits, P_l, hk, h, p.h, 1), projection(p.weights, P_w, h, hv, p.hv, 1);
        if (backward) projection(p.logits, P_l_back, h, hk, 1, p.h), projection(p.weights, P_w_back, hv, h, 1, p.hv);
    }

    int64_t rows_of_tile() const {
        const int64_t row = std::max({hk, h, hv}) * Mp * int64_t(sizeof(F));
        return std::min(p.N, std::max(LEAST_ROWS, std::min(MOST_ROWS, TILE_BYTES / row)));
    }

    // numbers that a group's gradients of keys [hk][M][Kp], and behind them of values [hv][M][Vp], are summed in
    int64_t key_sums() const { return hk * p.M * Kp; }
    int64_t value_sums() const { return hv * p.M * Vp; }

    void choose(int64_t of_example, int64_t of_group) { example = of_example, group = of_group; }

    // what it attends to
    void pack(bool backward) {
        by_unit(of_memory(p.key, p.hk, hk, p.K), keys, p.M, p.hk, hk, p.K, Mp);
        by_row(of_memory(p.value, p.hv, hv, p.V), values, p.M, p.hv, hv, p.V);
        if (backward) {
            by_row(of_memory(p.key, p.hk, hk, p.K), keys_by_row, p.M, p.hk, hk, p.K);
            by_unit(of_memory(p.value, p.hv, hv, p.V), values_by_column, p.M, p.hv, hv, p.V, Mp);
        }
    }

    // of rows [start, stop), at most a tile
    void forward(int64_t start, int64_t stop) {
        const N *used = maps(start, stop);
        for (int64_t v = 0; v < hv; v++)
            product(count, Vp, in_units(memory), as_units(used + v * area), ld / G, 1, values + v * Mu * Vp, Vp,
                    rows + v * count * Vp, Vp);
        write(rows, static_cast<T *>(p.output) + place(p.hv, hv, p.V), count, p.hv, hv, p.V, 1);
    }

    // adds to the sums of the keys' and values' gradients and of the projections'; writes those of the queries
    void backward(int64_t start, int64_t stop, F *grad_keys, F *grad_values, F *grad_P_l, F *grad_P_w) {
        const N *used = maps(start, stop);
        const T *grad = static_cast<const T *>(p.grad_output) + place(p.hv, hv, p.V);
        by_head(grad, given, count, p.hv, hv, p.V), by_row(grad, given_by_row, count, p.hv, hv, p.V);
        by_row(static_cast<const T *>(p.query) + place(p.hk, hk, p.K), queries_by_row, count, p.hk, hk, p.K);
        const int64_t pairs = in_units(count);
        int64_t stride;
        for (int64_t v = 0; v < hv; v++) {
            const U *joined = join(used + v * area, count, ld, joined_rows, Mp, stride);
            product(memory, Vp, pairs, joined, 1, stride, given_by_row + v * pairs * Vp, Vp, grad_values + v * p.M * Vp,
                    Vp, F(1), true);
            F *of_mixed = p.weights ? sums : sums + v * area;
            product(count, ld, Vu, as_units(given + v * count * Vu * G), Vu, 1, values_by_column + v * Vu * Mp, Mp,
                    of_mixed, ld);
            for (int64_t n = 0; n < count; n++) drop(of_mixed + n * ld, v, n);
            if (p.weights) keep(of_mixed, mixed + v * area, count * ld);
        }
        if (p.weights) sum_dots(weights, h, mixed, hv, grad_P_w);
        for (int64_t n = 0; n < count; n++) {
            // where nothing mixes, the gradient after a projection is that before it
            F *row = sums + n * ld;
            int64_t step = area;
            if (p.weights) row = mix(P_w_back, mixed + n * ld, hv, h), step = line;
            for (int64_t head = 0; head < h; head++) {
                const int64_t at = head * area + n * ld;
                softmax_gradient(row + head * step, weights + at, memory);
                keep(row + head * step, (p.logits ? mixed : weights) + at, ld);
            }
            if (!p.logits) continue;
            row = mix(P_l_back, mixed + n * ld, h, hk);
            for (int64_t k = 0; k < hk; k++) keep(row + k * line, weights + k * area + n * ld, ld);
        }
        if (p.logits) sum_dots(logits, hk, mixed, h, grad_P_l);
        for (int64_t k = 0; k < hk; k++) {
            const N *of = weights + k * area;
            const U *joined = join(of, count, ld, joined_rows, Mp, stride);
            product(memory, Kp, pairs, joined, 1, stride, queries_by_row + k * pairs * Kp, Kp, grad_keys + k * p.M * Kp,
                    Kp, F(1), true);
            product(count, Kp, in_units(memory), as_units(of), ld / G, 1, keys_by_row + k * Mu * Kp, Kp,
                    rows + k * count * Kp, Kp);
        }
        write(rows, static_cast<T *>(p.grad_query) + place(p.hk, hk, p.K), count, p.hk, hk, p.K, p.scale);
    }

    // the sums of all rows, as gradients of keys and values
    void finish(const F *grad_keys, const F *grad_values) const {
        T *key = static_cast<T *>(p.grad_key) + memory_place(p.hk, hk, p.K);
        write(grad_keys, key, p.M, p.hk, hk, p.K, p.scale);
        T *value = static_cast<T *>(p.grad_value) + memory_place(p.hv, hv, p.V);
        write(grad_values, value, p.M, p.hv, hv, p.V, 1);
    }

    // ---- what it works on

    // of the memory: [hk][Ku][Mp], [hv][Mu][Vp], and for the backward [hk][Mu][Kp], [hv][Vu][Mp]
    U *keys, *values, *keys_by_row, *values_by_column;
    // of a tile: [heads][count] rows of whole units, and [heads][units of count][Kp or Vp]
    N *queries, *given;
    U *queries_by_row, *given_by_row;
    // maps of a tile, [heads][area]; mixed and weights are written over by gradients
    N *logits, *weights, *mixed;
    F *sums, *rows;
    // of a row, [heads][line]; of a head, two rows in one
    F *mixed_row;
    U *joined_row, *joined_rows;
    // [units of heads][heads]
    U *P_l, *P_w, *P_l_back, *P_w_back;
    char *next;
    int64_t example = 0, group = 0, first = 0, count = 0, memory = 0, ld = 0;

    template <class X> void take(X *&at, int64_t size) {
        at = reinterpret_cast<X *>(next);
        next += (size * int64_t(sizeof(X)) + BYTES - 1) / BYTES * BYTES;
    }

    bool drops() const { return !(p.kept >> 32); }
    static int64_t in_units(int64_t size) { return (size + G - 1) / G; }
    static const U *as_units(const N *x) { return reinterpret_cast<const U *>(x); }
    static N number(T x) {
        if constexpr (std::is_same_v<N, T>) return x;
        else return narrowed<N>(widened(x));
    }

    // of the group's first head: the tile's first row in [B, N, all, size], the first in [B, M, all, size]
    int64_t place(int64_t all, int64_t heads, int64_t size) const {
        return ((example * p.N + first) * all + group * heads) * size;
    }
    int64_t memory_place(int64_t all, int64_t heads, int64_t size) const {
        return (example * p.M * all + group * heads) * size;
    }
    const T *of_memory(const void *tensor, int64_t all, int64_t heads, int64_t size) const {
        return static_cast<const T *>(tensor) + memory_place(all, heads, size);
    }

    // ---- packing; what there is no number for is zero

    // [from][to], with these strides -> [units of from][to]
    static void projection(const void *matrix, U *to, int64_t rows, int64_t columns, int64_t row, int64_t column) {
        const T *from = static_cast<const T *>(matrix);
        for (int64_t i = 0; from && i < rows; i += G)
            for (int64_t j = 0; j < columns; j++) {
                const T *at = from + i * row + j * column;
                *to++ = units<U>::join(number(*at), i + 1 < rows ? number(at[row]) : N{});
            }
    }

    // [rows][all][size] -> [heads][rows][size in whole units]
    static void by_head(const T *from, N *to, int64_t rows, int64_t all, int64_t heads, int64_t size) {
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n++, to += in_units(size) * G) {
                const T *row = from + (n * all + head) * size;
                int64_t d = 0;
                if constexpr (std::is_same_v<N, T>)
                    for (; d + W <= size; d += W) std::memcpy(to + d, row + d, W * sizeof(N));
                for (; d < size; d++) to[d] = number(row[d]);
                if (size % G) to[size] = N{};
            }
    }

    // [rows][all][size] -> [heads][units of rows][padded size]
    static void by_row(const T *from, U *to, int64_t rows, int64_t all, int64_t heads, int64_t size) {
        const int64_t whole = padded<F>(size);
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n += G, to += whole) {
                const T *one = from + (n * all + head) * size, *other = n + 1 < rows ? one + all * size : nullptr;
                int64_t d = 0;
                if constexpr (std::is_same_v<N, T>)
                    for (; d + W <= size; d += W) at(to + d) = units<U>::join(one + d, other ? other + d : nullptr);
                for (; d < size; d++) to[d] = units<U>::join(number(one[d]), other ? number(other[d]) : N{});
                std::fill(to + size, to + whole, U{});
            }
    }

    // [rows][all][size] -> [heads][units of size][whole]
    static void by_unit(const T *from, U *to, int64_t rows, int64_t all, int64_t heads, int64_t size, int64_t whole) {
        for (int64_t head = 0; head < heads; head++, from += size, to += in_units(size) * whole)
            for (int64_t n = 0; n < whole; n += W)
                for (int64_t u = 0; u < in_units(size); u += W)
                    by_unit(from + n * all * size + u * G, to + u * whole + n, std::min(W, rows - n), all * size,
                            std::min(W * G, size - u * G), whole);
    }

    // of at most W rows, `stride` apart, and W units
    static void by_unit(const T *from, U *to, int64_t rows, int64_t stride, int64_t size, int64_t whole) {
#ifdef __AVX512F__
        if constexpr (std::is_same_v<N, T> && sizeof(U) == 4)
            if (size % G == 0) return transpose(from, stride * sizeof(T), rows, size / G, to, whole);
#endif
        for (int64_t d = 0; d < size; d += G, to += whole)
            for (int64_t w = 0; w < W; w++) {
                const T *at = from + w * stride + d;
                if (w >= rows) to[w] = U{};
                else to[w] = units<U>::join(number(at[0]), d + 1 < size ? number(at[1]) : N{});
            }
    }

    // [heads][rows][padded size] -> [rows][all][size], times a factor
    static void write(const F *from, T *to, int64_t rows, int64_t all, int64_t heads, int64_t size, F factor) {
        for (int64_t head = 0; head < heads; head++)
            for (int64_t n = 0; n < rows; n++, from += padded<F>(size)) {
                T *row = to + (n * all + head) * size;
                int64_t d = 0;
                if constexpr (std::is_same_v<N, T>)
                    for (; d + W <= size; d += W) numbers<N>::put(row + d, factor * at(from + d));
                for (; d < size; d++) row[d] = narrowed<T>(factor * from[d]);
            }
    }

    // sums as numbers of a map; size: a multiple of W
    static void keep(const F *from, N *to, int64_t size) {
        for (int64_t x = 0; x < size; x += W) numbers<N>::put(to + x, at(from + x));
    }

    // [rows][ld], `step` apart -> [units of rows][ld], `stride` apart: in `to`, with `line` between them, if need be
    const U *join(const N *from, int64_t rows, int64_t step, U *to, int64_t line, int64_t &stride) const {
        if constexpr (G == 1) {
            stride = step;
            return from;
        } else {
            stride = line;
            for (int64_t i = 0; i < rows; i += G)
                for (int64_t m = 0; m < ld; m += W) {
                    const N *one = from + i * step + m;
                    at(to + i / G * line + m) = units<U>::join(one, i + 1 < rows ? one + step : nullptr);
                }
            return to;
        }
    }

    // ---- maps

    // of rows [start, stop): logits (if they mix), weights, and what the values are summed by, which it returns
    const N *maps(int64_t start, int64_t stop) {
        first = start, count = stop - start;
        memory = p.causal ? std::min(p.M, stop) : p.M;
        ld = padded<F>(memory);
        by_head(static_cast<const T *>(p.query) + place(p.hk, hk, p.K), queries, count, p.hk, hk, p.K);
        for (int64_t k = 0; k < hk; k++) {
            F *to = p.logits ? sums : sums + k * area;
            product(count, ld, Ku, as_units(queries + k * count * Ku * G), Ku, 1, keys + k * Ku * Mp, Mp, to, ld,
                    F(p.scale));
            if (p.logits) keep(to, logits + k * area, count * ld);
        }
        for (int64_t n = 0; n < count; n++) {
            F *row = sums + n * ld;
            int64_t step = area;
            if (p.logits) row = mix(P_l, logits + n * ld, hk, h), step = line;
            for (int64_t head = 0; head < h; head++) {
                restrict_row(row + head * step, head, first + n);
                softmax(row + head * step, memory);
                keep(row + head * step, weights + head * area + n * ld, ld);
            }
            if (p.weights) row = mix(P_w, weights + n * ld, h, hv), step = line;
            if (p.weights || drops())
                for (int64_t v = 0; v < hv; v++) {
                    drop(row + v * step, v, n);
                    keep(row + v * step, mixed + v * area + n * ld, ld);
                }
        }
        return p.weights || drops() ? mixed : weights;
    }

    // a row of all heads' maps -> that of the heads which they mix to, `line` apart
    F *mix(const U *matrix, const N *from, int64_t heads, int64_t mixed_heads) {
        int64_t stride;
        const U *joined = join(from, heads, area, joined_row, line, stride);
        product(mixed_heads, ld, in_units(heads), matrix, 1, mixed_heads, joined, stride, mixed_row, line);
        return mixed_row;
    }

    // out[i][j] += sum over a tile's map of left[i] right[j]
    void sum_dots(N *left, int64_t left_heads, N *right, int64_t right_heads, F *out) const {
        const int64_t size = count * ld, whole = (size + W * G - 1) / (W * G) * (W * G);
        for (int64_t i = 0; i < left_heads; i++) std::fill(left + i * area + size, left + i * area + whole, N{});
        for (int64_t j = 0; j < right_heads; j++) std::fill(right + j * area + size, right + j * area + whole, N{});
        dots(as_units(left), left_heads, as_units(right), right_heads, area / G, whole / G, out);
    }

    void restrict_row(F *row, int64_t head, int64_t n) const {
        const F infinity = std::numeric_limits<F>::infinity();
        head += group * h;
        if (p.bias) {
            const int64_t *s = p.bias_strides;
            const T *bias = static_cast<const T *>(p.bias) + example * s[0] + head * s[1] + n * s[2];
            for (int64_t m = 0; m < memory; m++) row[m] += widened(bias[m * s[3]]);
        }
        if (p.mask) {
            const int64_t *s = p.mask_strides;
            const uint8_t *mask = p.mask + example * s[0] + head * s[1] + n * s[2];
            for (int64_t m = 0; m < memory; m++) row[m] = mask[m * s[3]] ? row[m] : -infinity;
        }
        if (p.causal)
            for (int64_t m = n + 1; m < memory; m++) row[m] = -infinity;
    }

    // takes the weights that dropout takes, a function of (seed, example, head, query, memory), and lets the rest grow
    void drop(F *row, int64_t head, int64_t n) const {
        if (!drops()) return;
        const uint64_t key = scrambled(p.seed ^ scrambled((example * p.hv + group * hv + head) * p.N + first + n));
        const uint32_t start = key, end = key >> 32, kept = p.kept;
        const F growth = p.growth;
        for (int64_t m = 0; m < memory; m++) {
            uint32_t x = uint32_t(m) * 0x9e3779b9u + start;
            x = (x ^ (x >> 16)) * 0x7feb352du;
            x = (x ^ (x >> 15)) * 0x846ca68bu;
            x = (x ^ (x >> 16)) + end;
            row[m] = x < kept ? growth * row[m] : F(0);
        }
    }
};

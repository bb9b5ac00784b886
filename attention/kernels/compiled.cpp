// Softmax attention whose heads may mix, on a CPU: forward and backward, some query rows at a time.
//
// A tile is a few query rows of one example with all heads and all memory: its maps [head][row][memory] stay in the
// cache, and no map is ever as large as N x M. Every product is of one form, A (numbers) times B (vectors along its
// last dimension); what isn't laid out so is packed first, padded with zeros to whole vectors. All arithmetic is in
// float (double for double), whatever the inputs' type. A task is an example, or a share of its rows where there are
// fewer examples than threads; tasks share no sums, so the result doesn't depend on which thread does what.
//
// B examples, N queries, M memory, K key size, V value size; hk, h, hv: heads of keys, softmax, values

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX512F__)
constexpr int BYTES = 64, ROWS = 8, COLUMNS = 3;
#elif defined(__AVX__)
constexpr int BYTES = 32, ROWS = 4, COLUMNS = 2;
#else
constexpr int BYTES = 16, ROWS = 4, COLUMNS = 2;
#endif
// bytes of a tile's largest map: at most the first with at least 8 rows, else the second
constexpr int64_t TILE_BYTES = 1 << 17, LARGEST_TILE_BYTES = 1 << 22, MOST_ROWS = 8;
constexpr int64_t DOT_VECTORS = 32;  // of a row, at a time, in products over the whole tile

struct Problem {
    int64_t B, N, M, hk, h, hv, K, V;
    int64_t causal, threads, chunks;  // chunks: tasks an example is divided into
    double scale, growth;             // growth: 1 / share of weights that dropout keeps
    uint64_t seed, kept;              // kept: of 2^32, the share that dropout keeps; 2^32: no dropout
    const void *query, *key, *value, *logits, *weights, *bias;
    const uint8_t *mask;
    int64_t bias_strides[4], mask_strides[4];
    void *workspace, *output;  // output [B, N, hv, V]
    const void *grad_output;
    void *grad_query, *grad_key, *grad_value;
    void *grad_logits, *grad_weights;  // [B * chunks, hk, h], [B * chunks, h, hv], in the type of the sums
};

struct bfloat16 {
    uint16_t bits;
};

template <class T> struct sums { using type = T; };
template <> struct sums<bfloat16> { using type = float; };

static inline float load(const bfloat16 *x) {
    uint32_t bits = uint32_t(x->bits) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
static inline float load(const float *x) { return *x; }
static inline double load(const double *x) { return *x; }
static inline void store(float *x, float value) { *x = value; }
static inline void store(double *x, double value) { *x = value; }
static inline void store(bfloat16 *x, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    // to the nearest, ties to even; a NaN stays one
    x->bits = value != value ? 0x7fc0 : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class F> struct vector_of {
    typedef F type __attribute__((vector_size(BYTES), aligned(alignof(F)), may_alias));
    static constexpr int64_t width = BYTES / sizeof(F);
};
template <class F> using Vector = typename vector_of<F>::type;
template <class F> static inline Vector<F> &at(F *x) { return *reinterpret_cast<Vector<F> *>(x); }
template <class F> static inline Vector<F> at(const F *x) { return *reinterpret_cast<const Vector<F> *>(x); }
template <class F> static int64_t padded(int64_t size) {
    return (size + vector_of<F>::width - 1) / vector_of<F>::width * vector_of<F>::width;
}

// ---- products

// C[i][j] (+)= sum over p of A[i * ai + p * ap] B[p * bp + j], for R rows and C vectors of columns
template <class F, int R, int C>
static inline void block(const F *A, int64_t ai, int64_t ap, const F *B, int64_t bp, F *out, int64_t ci, int64_t depth,
                         bool add) {
    constexpr int64_t W = vector_of<F>::width;
    Vector<F> sum[R][C];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) sum[r][c] = add ? at(out + r * ci + c * W) : Vector<F>{};
    for (int64_t p = 0; p < depth; p++) {
        Vector<F> right[C];
        for (int c = 0; c < C; c++) right[c] = at(B + p * bp + c * W);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < C; c++) sum[r][c] += A[r * ai + p * ap] * right[c];
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) at(out + r * ci + c * W) = sum[r][c];
}

template <class F, int C>
static void columns(int64_t rows, const F *A, int64_t ai, int64_t ap, const F *B, int64_t bp, F *out, int64_t ci,
                    int64_t depth, bool add) {
    int64_t i = 0;
    for (; i + ROWS <= rows; i += ROWS) block<F, ROWS, C>(A + i * ai, ai, ap, B, bp, out + i * ci, ci, depth, add);
    if (i + 4 <= rows) {
        block<F, 4, C>(A + i * ai, ai, ap, B, bp, out + i * ci, ci, depth, add);
        i += 4;
    }
    for (; i < rows; i++) block<F, 1, C>(A + i * ai, ai, ap, B, bp, out + i * ci, ci, depth, add);
}

// `width` columns, a multiple of the vector's
template <class F>
static void product(int64_t rows, int64_t width, int64_t depth, const F *A, int64_t ai, int64_t ap, const F *B,
                    int64_t bp, F *out, int64_t ci, bool add = false) {
    constexpr int64_t W = vector_of<F>::width;
    int64_t j = 0;
    for (; j + COLUMNS * W <= width; j += COLUMNS * W)
        columns<F, COLUMNS>(rows, A, ai, ap, B + j, bp, out + j, ci, depth, add);
    for (; j < width; j += W) columns<F, 1>(rows, A, ai, ap, B + j, bp, out + j, ci, depth, add);
}

// out[i * right_rows + j] += sum over x of left[i * stride + x] right[j * stride + x], for R and C rows of them
template <class F, int R, int C>
static inline void dots_block(const F *left, const F *right, int64_t stride, int64_t size, F *out, int64_t right_rows) {
    constexpr int64_t W = vector_of<F>::width;
    Vector<F> sum[R][C] = {};
    for (int64_t x = 0; x < size; x += W) {
        Vector<F> one[C];
        for (int c = 0; c < C; c++) one[c] = at(right + c * stride + x);
        for (int r = 0; r < R; r++) {
            Vector<F> other = at(left + r * stride + x);
            for (int c = 0; c < C; c++) sum[r][c] += other * one[c];
        }
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++) {
            F total = 0;
            for (int64_t w = 0; w < W; w++) total += sum[r][c][w];
            out[r * right_rows + c] += total;
        }
}

template <class F>
static void dots(const F *left, int64_t left_rows, const F *right, int64_t right_rows, int64_t stride, int64_t size,
                 F *out) {
    constexpr int64_t step = DOT_VECTORS * vector_of<F>::width;
    for (int64_t x = 0; x < size; x += step) {
        int64_t length = std::min(step, size - x);
        for (int64_t i = 0; i < left_rows;) {
            int64_t rows = left_rows - i >= 4 ? 4 : 1;
            for (int64_t j = 0; j < right_rows;) {
                int64_t others = right_rows - j >= 4 ? 4 : 1;
                const F *a = left + i * stride + x, *b = right + j * stride + x;
                F *to = out + i * right_rows + j;
                if (rows == 4 && others == 4) dots_block<F, 4, 4>(a, b, stride, length, to, right_rows);
                else if (rows == 4) dots_block<F, 4, 1>(a, b, stride, length, to, right_rows);
                else if (others == 4) dots_block<F, 1, 4>(a, b, stride, length, to, right_rows);
                else dots_block<F, 1, 1>(a, b, stride, length, to, right_rows);
                j += others;
            }
            i += rows;
        }
    }
}

// ---- softmax

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
template <class F> static void softmax(F *row, int64_t size) {
    constexpr int64_t W = vector_of<F>::width;
    const F infinity = std::numeric_limits<F>::infinity();
    const int64_t whole = padded<F>(size);
    for (int64_t m = size; m < whole; m++) row[m] = -infinity;
    Vector<F> most = Vector<F>{} - infinity;
    for (int64_t m = 0; m < whole; m += W) most = at(row + m) > most ? at(row + m) : most;
    F largest = -infinity;
    for (int64_t w = 0; w < W; w++) largest = std::max(largest, F(most[w]));
    if (largest == -infinity) {
        bool nan = false;
        for (int64_t m = 0; m < size; m++) nan |= row[m] != row[m];
        std::fill(row, row + whole, nan ? std::numeric_limits<F>::quiet_NaN() : F(0));
        return;
    }
    Vector<F> sum{};
    for (int64_t m = 0; m < whole; m += W) {
        Vector<F> power = exponential(at(row + m) - largest);
        sum += power;
        at(row + m) = power;
    }
    F total = 0;
    for (int64_t w = 0; w < W; w++) total += sum[w];
    for (int64_t m = 0; m < whole; m += W) at(row + m) = at(row + m) * (1 / total);
}

// grad = weights * (grad - sum of weights * grad), in place
template <class F> static void softmax_gradient(F *grad, const F *weights, int64_t size) {
    constexpr int64_t W = vector_of<F>::width;
    const int64_t whole = padded<F>(size);
    Vector<F> sum{};
    for (int64_t m = 0; m < whole; m += W) sum += at(grad + m) * at(weights + m);
    F total = 0;
    for (int64_t w = 0; w < W; w++) total += sum[w];
    for (int64_t m = 0; m < whole; m += W) at(grad + m) = at(weights + m) * (at(grad + m) - total);
}

// ---- a task

static inline uint64_t scrambled(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

template <class T> struct Task {
    using F = typename sums<T>::type;
    static constexpr int64_t W = vector_of<F>::width;

    const Problem &p;
    const int64_t Mp, Kp, Vp, tile, area, heads;
    // of the memory: [hk][K][Mp], [hv][M][Vp], and for the backward [hk][M][Kp], [hv][V][Mp]
    F *keys, *values, *keys_by_row, *values_by_column;
    // of a tile: [hk][tile][Kp], [hv][tile][Vp], and maps [heads][area]
    F *query, *rows, *logits, *weights, *mixed, *grad;
    F *P_l, *P_w;
    int64_t example = 0, first = 0, count = 0, memory = 0, ld = 0;

    Task(const Problem &p, F *workspace, bool backward, int64_t *used = nullptr)
        : p(p), Mp(padded<F>(p.M)), Kp(padded<F>(p.K)), Vp(padded<F>(p.V)), tile(tile_of(p)),
          // a vector more: rows of maps a power of two apart would share their place in the cache
          area(tile_of(p) * padded<F>(p.M) + W), heads(std::max({p.hk, p.h, p.hv})) {
        F *next = workspace;
        auto take = [&](int64_t size) {
            F *at = next;
            next += padded<F>(size);
            return at;
        };
        keys = take(p.hk * p.K * Mp), values = take(p.hv * p.M * Vp);
        keys_by_row = take(backward ? p.hk * p.M * Kp : 0), values_by_column = take(backward ? p.hv * p.V * Mp : 0);
        query = take(p.hk * tile * Kp), rows = take(std::max(p.hk * Kp, p.hv * Vp) * tile);
        logits = take(heads * area), weights = take(p.logits ? heads * area : 0);
        mixed = take(p.weights || backward ? heads * area : 0), grad = take(backward ? heads * area : 0);
        P_l = take(p.hk * p.h), P_w = take(p.h * p.hv);
        if (used) {
            *used = next - workspace;
            return;
        }
        if (!p.logits) weights = logits;
        if (!p.weights && !backward) mixed = weights;
        widen(static_cast<const T *>(p.logits), P_l, p.hk * p.h);
        widen(static_cast<const T *>(p.weights), P_w, p.h * p.hv);
    }

    static int64_t tile_of(const Problem &p) {
        int64_t row = std::max({p.hk, p.h, p.hv}) * padded<F>(p.M) * int64_t(sizeof(F));
        int64_t fitting = std::max(TILE_BYTES / row, std::min(MOST_ROWS, LARGEST_TILE_BYTES / row));
        return std::max<int64_t>(1, std::min({p.N, MOST_ROWS, fitting}));
    }

    static void widen(const T *from, F *to, int64_t size) {
        for (int64_t i = 0; from && i < size; i++) to[i] = load(from + i);
    }

    // [M][size] -> [size][Mp]
    void transpose(const T *from, F *to, int64_t size) const {
        for (int64_t m = 0; m < p.M; m += W)
            for (int64_t c = 0; c < size; c++)
                for (int64_t w = 0; w < W; w++) to[c * Mp + m + w] = m + w < p.M ? load(from + (m + w) * size + c) : F(0);
    }

    // [count][heads][size] -> [heads][count][padded size], times a factor
    void by_head(const T *from, F *to, int64_t count, int64_t heads, int64_t size, F factor) const {
        const int64_t whole = padded<F>(size);
        for (int64_t n = 0; n < count; n++)
            for (int64_t head = 0; head < heads; head++) {
                F *row = to + (head * count + n) * whole;
                for (int64_t d = 0; d < size; d++) row[d] = factor * load(from + (n * heads + head) * size + d);
                for (int64_t d = size; d < whole; d++) row[d] = 0;
            }
    }

    // the inverse
    static void from_heads(const F *from, T *to, int64_t count, int64_t heads, int64_t size, F factor) {
        for (int64_t n = 0; n < count; n++)
            for (int64_t head = 0; head < heads; head++)
                for (int64_t d = 0; d < size; d++)
                    store(to + (n * heads + head) * size + d, factor * from[(head * count + n) * padded<F>(size) + d]);
    }

    void begin(int64_t of, bool backward) {
        example = of;
        const T *key = static_cast<const T *>(p.key) + of * p.M * p.hk * p.K;
        const T *value = static_cast<const T *>(p.value) + of * p.M * p.hv * p.V;
        transpose(key, keys, p.hk * p.K);
        by_head(value, values, p.M, p.hv, p.V, 1);
        if (backward) {
            by_head(key, keys_by_row, p.M, p.hk, p.K, 1);
            transpose(value, values_by_column, p.hv * p.V);
        }
    }

    // maps of rows [first, first + count): logits, weights, mixed
    void maps(int64_t start, int64_t stop) {
        first = start, count = stop - start;
        memory = p.causal ? std::min(p.M, stop) : p.M;
        ld = padded<F>(memory);
        by_head(static_cast<const T *>(p.query) + (example * p.N + first) * p.hk * p.K, query, count, p.hk, p.K, p.scale);
        for (int64_t k = 0; k < p.hk; k++)
            product(count, ld, p.K, query + k * count * Kp, Kp, 1, keys + k * p.K * Mp, Mp, logits + k * area, ld);
        if (p.logits) product(p.h, count * ld, p.hk, P_l, 1, p.h, logits, area, weights, area);
        for (int64_t head = 0; head < p.h; head++)
            for (int64_t n = 0; n < count; n++) {
                F *row = weights + head * area + n * ld;
                restrict_row(row, head, first + n);
                softmax(row, memory);
            }
        if (p.weights) product(p.hv, count * ld, p.h, P_w, 1, p.hv, weights, area, mixed, area);
        else if (mixed != weights) std::copy(weights, weights + p.h * area, mixed);
        drop(mixed);
    }

    void restrict_row(F *row, int64_t head, int64_t n) const {
        const F infinity = std::numeric_limits<F>::infinity();
        if (p.bias) {
            const int64_t *s = p.bias_strides;
            const T *bias = static_cast<const T *>(p.bias) + example * s[0] + head * s[1] + n * s[2];
            for (int64_t m = 0; m < memory; m++) row[m] += load(bias + m * s[3]);
        }
        if (p.mask) {
            const int64_t *s = p.mask_strides;
            const uint8_t *mask = p.mask + example * s[0] + head * s[1] + n * s[2];
            for (int64_t m = 0; m < memory; m++) row[m] = mask[m * s[3]] ? row[m] : -infinity;
        }
        if (p.causal)
            for (int64_t m = n + 1; m < memory; m++) row[m] = -infinity;
    }

    // the weights that dropout takes, a function of (seed, example, head, query, memory)
    void drop(F *maps) const {
        if (p.kept >> 32) return;
        for (int64_t head = 0; head < p.hv; head++)
            for (int64_t n = 0; n < count; n++) {
                uint64_t key = scrambled(p.seed ^ scrambled((example * p.hv + head) * p.N + first + n));
                uint32_t start = key, end = key >> 32, kept = p.kept;
                F *row = maps + head * area + n * ld;
                for (int64_t m = 0; m < memory; m++) {
                    uint32_t x = uint32_t(m) * 0x9e3779b9u + start;
                    x = (x ^ (x >> 16)) * 0x7feb352du;
                    x = (x ^ (x >> 15)) * 0x846ca68bu;
                    x = (x ^ (x >> 16)) + end;
                    row[m] = x < kept ? row[m] : F(0);
                }
            }
    }

    void forward(int64_t start, int64_t stop) {
        maps(start, stop);
        for (int64_t v = 0; v < p.hv; v++)
            product(count, Vp, memory, mixed + v * area, ld, 1, values + v * p.M * Vp, Vp, rows + v * count * Vp, Vp);
        from_heads(rows, static_cast<T *>(p.output) + (example * p.N + first) * p.hv * p.V, count, p.hv, p.V, p.growth);
    }

    // adds to grad_keys [hk][M][Kp], grad_values [hv][M][Vp] and the projections' gradients; writes those of the queries
    void backward(int64_t start, int64_t stop, F *grad_keys, F *grad_values, F *grad_P_l, F *grad_P_w) {
        maps(start, stop);
        const int64_t place = example * p.N + first;
        by_head(static_cast<const T *>(p.grad_output) + place * p.hv * p.V, rows, count, p.hv, p.V, p.growth);
        for (int64_t v = 0; v < p.hv; v++) {
            const F *given = rows + v * count * Vp;
            product(memory, Vp, count, mixed + v * area, 1, ld, given, Vp, grad_values + v * p.M * Vp, Vp, true);
            // the mixed weights aren't needed any more: from here on their gradient
            product(count, ld, p.V, given, Vp, 1, values_by_column + v * p.V * Mp, Mp, mixed + v * area, ld);
        }
        drop(mixed);
        F *of_weights = mixed, *of_logits;
        if (p.weights) {
            dots(weights, p.h, mixed, p.hv, area, count * ld, grad_P_w);
            product(p.h, count * ld, p.hv, P_w, p.hv, 1, mixed, area, of_weights = grad, area);
        }
        for (int64_t head = 0; head < p.h; head++)
            for (int64_t n = 0; n < count; n++)
                softmax_gradient(of_weights + head * area + n * ld, weights + head * area + n * ld, memory);
        of_logits = of_weights;
        if (p.logits) {
            dots(logits, p.hk, of_weights, p.h, area, count * ld, grad_P_l);
            // nor are the weights
            product(p.hk, count * ld, p.h, P_l, p.h, 1, of_weights, area, of_logits = weights, area);
        }
        for (int64_t k = 0; k < p.hk; k++) {
            const F *of = of_logits + k * area;
            product(memory, Kp, count, of, 1, ld, query + k * count * Kp, Kp, grad_keys + k * p.M * Kp, Kp, true);
            product(count, Kp, memory, of, ld, 1, keys_by_row + k * p.M * Kp, Kp, rows + k * count * Kp, Kp);
        }
        from_heads(rows, static_cast<T *>(p.grad_query) + place * p.hk * p.K, count, p.hk, p.K, p.scale);
    }
};

template <class T> static int64_t sums_of(const Problem &p) {
    using F = typename sums<T>::type;
    return p.M * (p.hk * padded<F>(p.K) + p.hv * padded<F>(p.V));
}

// numbers of workspace: of each thread, and behind them sums of the keys' and values' gradients
template <class T> static int64_t workspace_of(const Problem &p, bool backward, int64_t *of_thread) {
    Task<T>(p, nullptr, backward, of_thread);
    int64_t slots = !backward ? 0 : p.chunks == 1 ? p.threads : p.B * p.chunks;
    return p.threads * *of_thread + slots * sums_of<T>(p);
}

template <class T> static void run(const Problem &p, bool backward) {
    using F = typename sums<T>::type;
    int64_t of_thread;
    workspace_of<T>(p, backward, &of_thread);
    const int64_t of_keys = p.M * p.hk * padded<F>(p.K), slot = sums_of<T>(p);
    F *workspace = static_cast<F *>(p.workspace), *all_sums = workspace + p.threads * of_thread;
    auto write = [&](int64_t example, const F *sum) {
        Task<T>::from_heads(sum, static_cast<T *>(p.grad_key) + example * p.M * p.hk * p.K, p.M, p.hk, p.K, 1);
        Task<T>::from_heads(sum + of_keys, static_cast<T *>(p.grad_value) + example * p.M * p.hv * p.V, p.M, p.hv, p.V, 1);
    };
#pragma omp parallel num_threads(int(p.threads))
    {
        const int64_t thread = omp_get_thread_num();
        Task<T> task(p, workspace + thread * of_thread, backward);
#pragma omp for schedule(dynamic)
        for (int64_t number = 0; number < p.B * p.chunks; number++) {
            const int64_t example = number / p.chunks, chunk = number % p.chunks;
            const int64_t begin = p.N * chunk / p.chunks, end = p.N * (chunk + 1) / p.chunks;
            F *sum = all_sums + (p.chunks == 1 ? thread : number) * slot;
            F *grad_P_l = static_cast<F *>(p.grad_logits), *grad_P_w = static_cast<F *>(p.grad_weights);
            task.begin(example, backward);
            if (backward) std::fill(sum, sum + slot, F(0));
            for (int64_t start = begin; start < end; start += task.tile) {
                int64_t stop = std::min(end, start + task.tile);
                if (backward)
                    task.backward(start, stop, sum, sum + of_keys, grad_P_l + number * p.hk * p.h,
                                  grad_P_w + number * p.h * p.hv);
                else task.forward(start, stop);
            }
            if (backward && p.chunks == 1) write(example, sum);
        }
        if (backward && p.chunks > 1) {
#pragma omp for schedule(dynamic)
            for (int64_t example = 0; example < p.B; example++) {
                F *sum = all_sums + example * p.chunks * slot;
                for (int64_t chunk = 1; chunk < p.chunks; chunk++)
                    for (int64_t i = 0; i < slot; i++) sum[i] += sum[chunk * slot + i];
                write(example, sum);
            }
        }
    }
}

// type: 0 float, 1 bfloat16, 2 double
extern "C" int64_t workspace_bytes(const Problem *p, int type, int backward) {
    int64_t of_thread;
    if (type == 2) return sizeof(double) * workspace_of<double>(*p, backward, &of_thread);
    return sizeof(float) * (type ? workspace_of<bfloat16>(*p, backward, &of_thread) : workspace_of<float>(*p, backward, &of_thread));
}

extern "C" void attend(const Problem *p, int type, int backward) {
    if (type == 2) run<double>(*p, backward);
    else if (type == 1) run<bfloat16>(*p, backward);
    else run<float>(*p, backward);
}

// Numbers, vectors of numbers, and lanes: a lane is what one lane of a vector multiplies at a time.
//
// A lane holds one number, or two if they are bfloat16 and the CPU has instructions for them. The two are neighbours
// along the dimension that a product sums over, and the products of both are added to one float.

#pragma once

#include <cstdint>
#include <cstring>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

template <class Float> struct vector_of {
    typedef Float type __attribute__((vector_size(VECTOR_BYTES), aligned(alignof(Float)), may_alias));
    static constexpr int64_t width = VECTOR_BYTES / sizeof(Float);
};
template <class Float> using Vector = typename vector_of<Float>::type;
template <class Float> static inline Vector<Float> &vector_at(Float *x) {
    return *reinterpret_cast<Vector<Float> *>(x);
}
template <class Float> static inline Vector<Float> vector_at(const Float *x) {
    return *reinterpret_cast<const Vector<Float> *>(x);
}
// `size` rounded up to whole vectors
template <class Float> static inline int64_t padded(int64_t size) {
    return (size + vector_of<Float>::width - 1) / vector_of<Float>::width * vector_of<Float>::width;
}

struct bfloat16 {
    uint16_t bits;
};

// For inputs of type T: Sum is the type of all sums and of the softmax, Number that of the factors of products, and
// Lane holds the numbers that one lane of a vector multiplies at a time
template <class T> struct arithmetic {
    using Sum = T;
    using Number = T;
    using Lane = T;
};
template <> struct arithmetic<bfloat16> {
    using Sum = float;
#ifdef __AVX512BF16__
    using Number = bfloat16;
    using Lane = uint32_t;
#else
    using Number = float;
    using Lane = float;
#endif
};

// Conversions from one type to another

static inline float widened(bfloat16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
static inline float widened(float x) { return x; }
static inline double widened(double x) { return x; }

template <class T, class Float> static inline T narrowed(Float x) {
    if constexpr (sizeof(T) < sizeof(Float)) {
        uint32_t bits;
        std::memcpy(&bits, &x, 4);
        // rounds to the nearest, ties to even; a NaN stays NaN
        return {x != x ? uint16_t(0x7fc0) : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
    } else return x;
}

// Reductions of a vector

template <class Float> static inline Float reduce_sum(Vector<Float> x) {
    Float sum = 0;
    for (int64_t w = 0; w < vector_of<Float>::width; w++) sum += x[w];
    return sum;
}
template <class Float> static inline Float reduce_max(Vector<Float> x) {
    Float largest = x[0];
    for (int64_t w = 1; w < vector_of<Float>::width; w++) largest = x[w] > largest ? x[w] : largest;
    return largest;
}
#ifdef __AVX512F__
template <> inline float reduce_sum<float>(Vector<float> x) { return _mm512_reduce_add_ps((__m512)x); }
template <> inline float reduce_max<float>(Vector<float> x) { return _mm512_reduce_max_ps((__m512)x); }
#endif

// Numbers in memory, read and written as a vector of sums
template <class Number> struct numbers {
    static Vector<Number> load(const Number *from) { return vector_at(from); }
    static void store(Number *to, Vector<Number> x) { vector_at(to) = x; }
};

// Two rows of numbers are joined into one row of lanes. The second row, nullptr for zeros, is used only if a lane holds
// two numbers
template <class Lane> struct lanes {
    static Lane join(Lane first, Lane) { return first; }
    static Vector<Lane> join(const Lane *first, const Lane *) { return vector_at(first); }
    template <class L> static void multiply_add(Vector<Lane> &sum, L left, Vector<Lane> right) { sum += left * right; }
};

#ifdef __AVX512BF16__
template <> struct numbers<bfloat16> {
    static Vector<float> load(const bfloat16 *from) {
        const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
        return (Vector<float>)_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
    }
    static void store(bfloat16 *to, Vector<float> x) {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), (__m256i)_mm512_cvtneps_pbh((__m512)x));
    }
};
template <> struct lanes<uint32_t> {
    static Vector<uint32_t> widened(const bfloat16 *from) {
        return (Vector<uint32_t>)_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
    }
    static uint32_t join(bfloat16 first, bfloat16 second) { return first.bits | uint32_t(second.bits) << 16; }
    static Vector<uint32_t> join(const bfloat16 *first, const bfloat16 *second) {
        Vector<uint32_t> joined = widened(first);
        if (second) joined |= widened(second) << 16;
        return joined;
    }
    static void multiply_add(Vector<float> &sum, Vector<uint32_t> left, Vector<uint32_t> right) {
        sum = (Vector<float>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)right);
    }
    static void multiply_add(Vector<float> &sum, uint32_t left, Vector<uint32_t> right) {
        multiply_add(sum, (Vector<uint32_t>)_mm512_set1_epi32(int(left)), right);
    }
};
#endif

#ifdef __AVX512F__
// Transposes 16 rows, `stride` bytes apart, of `columns` (at most 16) numbers of 32 bits. Rows after the first `rows`
// count as zeros. x and y are registers, before and after a step of the transposition
template <class Lane>
static inline void transpose(const void *from, int64_t stride, int64_t rows, int64_t columns, Lane *to,
                             int64_t to_stride) {
    __m512i x[16], y[16];
    const __mmask16 mask = (1 << columns) - 1;
    const char *row = static_cast<const char *>(from);
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++)
        x[r] = r < rows ? _mm512_maskz_loadu_epi32(mask, row + r * stride) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int r = 0; r < 16; r += 2) {
        y[r] = _mm512_unpacklo_epi32(x[r], x[r + 1]);
        y[r + 1] = _mm512_unpackhi_epi32(x[r], x[r + 1]);
    }
    // x[4 g + c] holds the columns c, c + 4, c + 8 and c + 12 of the rows 4 g .. 4 g + 3
#pragma GCC unroll 4
    for (int g = 0; g < 16; g += 4) {
        x[g] = _mm512_unpacklo_epi64(y[g], y[g + 2]);
        x[g + 1] = _mm512_unpackhi_epi64(y[g], y[g + 2]);
        x[g + 2] = _mm512_unpacklo_epi64(y[g + 1], y[g + 3]);
        x[g + 3] = _mm512_unpackhi_epi64(y[g + 1], y[g + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        // the columns c and c + 8 of the rows 0 to 7 and of 8 to 15, then the columns c + 4 and c + 12 of both
        const __m512i even = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88);
        const __m512i even_below = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88);
        const __m512i odd = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xdd);
        const __m512i odd_below = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xdd);
        y[c] = _mm512_shuffle_i32x4(even, even_below, 0x88);
        y[8 + c] = _mm512_shuffle_i32x4(even, even_below, 0xdd);
        y[4 + c] = _mm512_shuffle_i32x4(odd, odd_below, 0x88);
        y[12 + c] = _mm512_shuffle_i32x4(odd, odd_below, 0xdd);
    }
    for (int c = 0; c < columns; c++) _mm512_storeu_si512(to + c * to_stride, y[c]);
}
#endif

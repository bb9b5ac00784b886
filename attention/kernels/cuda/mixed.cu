// Talking-heads attention (2003.02436) on tensor cores, forward and backward, without a map in global memory.
//
// A block computes all heads of its x. Each warp has 16 x and 8 y, and all heads of these pairs.
//
// A product over features gives a lane all heads of two pairs of each x, but a product over heads needs an eighth of
// the heads of eight pairs. Four lanes hold the same eight pairs, so one exchange among four lanes leads from the one
// form to the other. From there on, the result of each product over heads is the operand of the next one, and sums over
// y stay within a lane.
//
// Maps: J logits before P_l, L after it, W softmax, U after P_w and dropout. J is not scaled: L is, after P_l.

#include "block.h"

constexpr int WARPS = X_TILES * Y_TILES, THREADS = 32 * WARPS;
static_assert(Y_TILES > 1 && (Y_TILES & (Y_TILES - 1)) == 0, "");

// groups of eight heads
DEVICE constexpr int groups_of(int heads) { return (heads + 7) / 8; }
constexpr int GK = groups_of(KEY_HEADS), G = groups_of(HEADS), GV = groups_of(VALUE_HEADS);
// those of a map that are in shared memory at a time: one, or all in the programs that have room for them
constexpr int KEY_ROUND = 1, VALUE_ROUND = GV;

// a row of all heads in shared memory, and 16 bytes more, so that eight rows lie in different banks
DEVICE constexpr int stride_of(int heads, int width) { return heads * width + 8; }
constexpr int KEY_STRIDE = stride_of(KEY_HEADS, KEY_WIDTH), VALUE_STRIDE = stride_of(VALUE_HEADS, VALUE_WIDTH);

struct Place : Lane {
    int x_tile, y_tile;
    DEVICE Place() { x_tile = warp % X_TILES, y_tile = warp / X_TILES; }
    // Of the warps of one scheduler, half compute the logits of the next tile before they use those of this one, and half
    // after it: the one is limited by loads from shared memory, the other by arithmetic.
    DEVICE bool is_late() const { return warp / 4 % 2; }
};

// Start to copy ROWS rows from row `first` of [length, heads, size]; a warp copies whole rows
template <int HEADS_, int SIZE, int WIDTH, int ROWS>
DEVICE void start_rows(u16* shared, const u16* base, int first, int length) {
    constexpr int CHUNKS = WIDTH / 8;
    for (int row = thread() / 32; row < ROWS; row += WARPS) {
        const bool exists = first + row < length;
        const u16* const from = base + (exists ? (long long)(first + row) * HEADS_ * SIZE : 0);
        u16* const to = shared + row * stride_of(HEADS_, WIDTH);
#pragma unroll
        for (int place = thread() % 32; place < HEADS_ * CHUNKS; place += 32) {
            const int head = place / CHUNKS, feature = place % CHUNKS * 8;
            const bool inside = exists && feature < SIZE;
            start_copy(to + place * 8, from + (inside ? head * SIZE + feature : 0), inside);
        }
    }
}
template <int ROWS> DEVICE void start_keys(u16* shared, const u16* base, int first, int length) {
    start_rows<KEY_HEADS, KEY_SIZE, KEY_WIDTH, ROWS>(shared, base, first, length);
}
template <int ROWS> DEVICE void start_values(u16* shared, const u16* base, int first, int length) {
    start_rows<VALUE_HEADS, VALUE_SIZE, VALUE_WIDTH, ROWS>(shared, base, first, length);
}

// The operand B of a product over heads, from P or, transposed, from P^T: [in groups][out groups][lane]
template <int IN, int OUT, bool TRANSPOSED>
DEVICE void place_projection(u32* fragments, const u16* projection, int in_heads, int out_heads) {
    for (int place = thread(); place < IN * OUT * 32; place += THREADS) {
        const int in = place / 32 / OUT * 8 + place % 4 * 2, out = place / 32 % OUT * 8 + place % 32 / 4;
        u32 word = 0;
        for (int half = 0; half < 2; ++half)
            if (in + half < in_heads && out < out_heads)
                word |= (u32)projection[TRANSPOSED ? out * in_heads + in + half : (in + half) * out_heads + out] << 16 * half;
        fragments[place] = word;
    }
}

// Transpose the 4 x 4 matrix whose column t lane t of four has: afterwards word i is word t of lane i
DEVICE void exchange_among_four(u32 (&words)[4], int t) {
    for (int bit = 1; bit < 4; bit *= 2) {
        const bool upper = t & bit;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (!(i & bit)) {
                const u32 got = exchange(upper ? words[i] : words[i | bit], bit);
                (upper ? words[i] : words[i | bit]) = got;
            }
    }
}

// Products over features of 16 rows x and 8 rows y, for all heads. Word [y][i][r] has heads 8 i + 2t and 8 i + 2t + 1
// of the pair of y and row g + 8 r.
template <int GROUPS, int HEADS_, int WIDTH>
DEVICE void compare(u32 (&maps)[8][GROUPS][2], const u16* xs, const u16* ys, const Place& at) {
    constexpr int STRIDE = stride_of(HEADS_, WIDTH);
    xs += (at.x_tile * 16 + at.lane % 16) * STRIDE + at.lane / 16 * 8;
    ys += (at.y_tile * 8 + at.lane % 8) * STRIDE + at.lane / 8 * 8;
#pragma unroll
    for (int i = 0; i < GROUPS; ++i) {
        keep_order();
        float sums[8][4] = {};
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const int head = 8 * i + j;
            if (head >= HEADS_) continue;
#pragma unroll
            for (int feature = 0; feature < WIDTH; feature += 32) {
                u32 a[4];
                load_matrices(a, xs + head * WIDTH + feature);
                if (feature + 16 < WIDTH) {
                    u32 b[4];
                    load_matrices(b, ys + head * WIDTH + feature);
                    multiply(sums[j], a[0], a[1], a[2], a[3], b[0], b[1]);
                    load_matrices(a, xs + head * WIDTH + feature + 16);
                    multiply(sums[j], a[0], a[1], a[2], a[3], b[2], b[3]);
                } else {
                    u32 b[2];
                    load_matrices(b, ys - at.lane / 16 * 16 + head * WIDTH + feature);
                    multiply(sums[j], a[0], a[1], a[2], a[3], b[0], b[1]);
                }
            }
        }
#pragma unroll
        for (int row = 0; row < 2; ++row)
#pragma unroll
            for (int parity = 0; parity < 2; ++parity) {
                u32 words[4];
#pragma unroll
                for (int pair = 0; pair < 4; ++pair)
                    words[pair] = pack(sums[2 * pair][2 * row + parity], sums[2 * pair + 1][2 * row + parity]);
                exchange_among_four(words, at.t);
#pragma unroll
                for (int pair = 0; pair < 4; ++pair) maps[2 * pair + parity][i][row] = words[pair];
            }
    }
}

// A lane's words of a projection that `place_projection` placed
template <int IN, int OUT> DEVICE void load_projection(u32 (&words)[IN][OUT], const u32* projection, const Place& at) {
#pragma unroll
    for (int i = 0; i < IN; ++i)
#pragma unroll
        for (int j = 0; j < OUT; ++j) words[i][j] = load_word(projection + (i * OUT + j) * 32 + at.lane);
}

template <int GROUPS> DEVICE void copy_maps(u32 (&to)[8][GROUPS][2], const u32 (&from)[8][GROUPS][2]) {
#pragma unroll
    for (int i = 0; i < 16 * GROUPS; ++i) to[i / 2 / GROUPS][i / 2 % GROUPS][i % 2] = from[i / 2 / GROUPS][i / 2 % GROUPS][i % 2];
}

// The product over heads of the pairs of one y. Number [j][2 r + e] has head 8 j + 2t + e and row g + 8 r.
template <int IN, int OUT> DEVICE void mix(float (&mixed)[OUT][4], const u32 (&map)[IN][2], const u32 (&projection)[IN][OUT]) {
#pragma unroll
    for (int j = 0; j < OUT; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) mixed[j][e] = 0;
#pragma unroll
        for (int i = 0; i + 1 < IN; i += 2)
            multiply(mixed[j], map[i][0], map[i][1], map[i + 1][0], map[i + 1][1], projection[i][j], projection[i + 1][j]);
        if (IN % 2) multiply(mixed[j], map[IN - 1][0], map[IN - 1][1], projection[IN - 1][j]);
    }
}
template <int GROUPS> DEVICE void pack_map(u32 (&map)[GROUPS][2], const float (&numbers)[GROUPS][4]) {
#pragma unroll
    for (int j = 0; j < GROUPS; ++j)
#pragma unroll
        for (int row = 0; row < 2; ++row) map[j][row] = pack(numbers[j][2 * row], numbers[j][2 * row + 1]);
}

// sums += left^T right over the 16 pairs of one y: [left heads, right heads], in tiles of 16 x 8
template <int LEFT, int RIGHT>
DEVICE void correlate(float (&sums)[(LEFT + 1) / 2][RIGHT][4], const u32 (&left)[LEFT][2], const u32 (&right)[RIGHT][2]) {
    u32 turned[RIGHT][2];
#pragma unroll
    for (int j = 0; j < RIGHT; ++j) turned[j][0] = transpose(right[j][0]), turned[j][1] = transpose(right[j][1]);
#pragma unroll
    for (int i = 0; i < LEFT; i += 2) {
        const u32 a0 = transpose(left[i][0]), a2 = transpose(left[i][1]);
        u32 a1 = 0, a3 = 0;
        if (i + 1 < LEFT) a1 = transpose(left[i + 1][0]), a3 = transpose(left[i + 1][1]);
#pragma unroll
        for (int j = 0; j < RIGHT; ++j) multiply(sums[i / 2][j], a0, a1, a2, a3, turned[j][0], turned[j][1]);
    }
}

// Start to copy numbers of ROWS queries from a tensor [N, 8 G]. For queries that don't exist they are 0, which is as good
// as any number, because the gradients of these are 0.
template <int ROWS> DEVICE void start_numbers(float* shared, const float* base, int first, int queries) {
    for (int place = thread(); place < ROWS * 2 * G; place += THREADS) {
        const bool inside = first + place / (2 * G) < queries;
        const float* const from = base + (inside ? (long long)first * 8 * G + place * 4 : 0);
        start_copy(reinterpret_cast<u16*>(shared + place * 4), reinterpret_cast<const u16*>(from), inside);
    }
}
// Those of the lane's two x, or of one y of the warp (SWAPPED), in the order of `mix`
template <bool SWAPPED> DEVICE void load_numbers(float (&numbers)[G][4], const float* shared, int y, const Place& at) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
        const float* const from = shared + (SWAPPED ? at.y_tile * 8 + y : at.x_tile * 16 + at.g + 8 * row) * 8 * G + 2 * at.t;
#pragma unroll
        for (int j = 0; j < G; ++j) {
            const float2 two = load_two(from + 8 * j);
            numbers[j][2 * row] = two.x, numbers[j][2 * row + 1] = two.y;
        }
    }
}

// Set the numbers of pairs that may not be seen to -inf
template <bool SWAPPED> DEVICE void hide(float (&L)[G][4], const Sight<SWAPPED, 8>& sight, int y) {
#pragma unroll
    for (int row = 0; row < 2; ++row)
        if (!sight.allows(row, y))
#pragma unroll
            for (int j = 0; j < G; ++j) L[j][2 * row] = L[j][2 * row + 1] = -infinity();
}
// W of the pairs of one y
template <bool SWAPPED>
DEVICE void weigh(float (&W)[G][4], const u32 (&J)[GK][2], const u32 (&P_l)[GK][G], float scale, const float (&lse)[G][4],
                  const Sight<SWAPPED, 8>& sight, int y) {
    mix<GK, G>(W, J, P_l);
#pragma unroll
    for (int j = 0; j < G; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) W[j][e] = W[j][e] * scale - lse[j][e];
    if (!sight.all) hide<SWAPPED>(W, sight, y);
#pragma unroll
    for (int j = 0; j < G; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) W[j][e] = exp2_of(W[j][e]);
}

// Call drop(j, e) for each dropped number of the map of one y, as `mix` orders them
template <bool SWAPPED, typename Drop>
DEVICE void for_dropped(const Arguments& arguments, int example, const Sight<SWAPPED, 8>& sight, int y, const Place& at, Drop drop) {
#pragma unroll
    for (int j = 0; j < GV; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int head = 8 * j + 2 * at.t + e % 2, x = sight.first_x + 8 * (e / 2);
            const int query = SWAPPED ? sight.first_y + y : x, position = SWAPPED ? x : sight.first_y + y;
            if (head < VALUE_HEADS && query < arguments.queries) {
                const u64 key = arguments.dropout_keys[((long long)example * VALUE_HEADS + head) * arguments.queries + query];
                if (!keeps(key, position, arguments.keep_threshold)) drop(j, e);
            }
        }
}
template <bool SWAPPED>
DEVICE void drop_numbers(float (&U)[GV][4], const Arguments& arguments, int example, const Sight<SWAPPED, 8>& sight, int y,
                         const Place& at) {
    if (DROPOUT) for_dropped(arguments, example, sight, y, at, [&](int j, int e) { U[j][e] = 0; });
}
template <bool SWAPPED>
DEVICE void drop_words(u32 (&dU)[GV][2], const Arguments& arguments, int example, const Sight<SWAPPED, 8>& sight, int y,
                       const Place& at) {
    if (DROPOUT) for_dropped(arguments, example, sight, y, at, [&](int j, int e) { dU[j][e / 2] &= e % 2 ? 0xFFFFu : 0xFFFF0000u; });
}

// A map in shared memory, [8 ROUND, X, Y]: as many groups of eight heads as there is room for. The eight y of a warp are
// 16 bytes; which 16 of a row is chosen so that stores and loads meet few banks twice.
DEVICE int place_of(int head, int x, int y_tile) {
    return ((head * X + x) * Y_TILES + (y_tile ^ ((x >> 1 ^ head >> 1) & (Y_TILES - 1)))) * 8;
}
template <int ROUND, int GROUPS>
DEVICE void store_maps(u16* shared, const u32 (&words)[4][GROUPS][2][2], int round, const Place& at) {
#pragma unroll
    for (int i = 0; i < ROUND; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                const int j = round * ROUND + i;
                if (j >= GROUPS) continue;
                const uint4 four = make_uint4(words[0][j][e][row], words[1][j][e][row], words[2][j][e][row], words[3][j][e][row]);
                *reinterpret_cast<uint4*>(shared + place_of(8 * i + 2 * at.t + e, at.x_tile * 16 + at.g + 8 * row, at.y_tile)) = four;
            }
}

// The sums over y of a result [x, heads, features]. The warps divide the features of all heads; each has all X rows.
template <int HEADS_, int SIZE, int WIDTH, int ROUND> struct Result {
    static constexpr int FEATURES = WIDTH % 32 ? 16 : 32, BLOCKS = WIDTH / FEATURES, UNITS = HEADS_ * BLOCKS;
    static constexpr int PARTS = (UNITS + WARPS - 1) / WARPS, ROUND_PARTS = 8 * ROUND * BLOCKS / WARPS;
    static constexpr int ROUNDS = (PARTS + ROUND_PARTS - 1) / ROUND_PARTS;
    static_assert(8 * ROUND * BLOCKS % WARPS == 0, "");
    float sums[PARTS][X_TILES][FEATURES / 8][4];

    DEVICE Result() {
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
#pragma unroll
            for (int x_tile = 0; x_tile < X_TILES; ++x_tile)
#pragma unroll
                for (int n = 0; n < FEATURES / 8; ++n)
#pragma unroll
                    for (int e = 0; e < 4; ++e) sums[part][x_tile][n][e] = 0;
    }
    // Add the products of a round's maps and the rows y
    DEVICE void add(int round, const u16* maps, const u16* ys, const Place& at) {
        ys += at.lane % 16 * stride_of(HEADS_, WIDTH) + at.lane / 16 * 8;
#pragma unroll
        for (int i = 0; i < ROUND_PARTS; ++i) {
            const int part = round * ROUND_PARTS + i, unit = part * WARPS + at.warp;
            if (part >= PARTS || unit >= UNITS) continue;
            const int head = unit / BLOCKS;
#pragma unroll
            for (int y_tile = 0; y_tile < Y_TILES; y_tile += 2) {
                u32 b[FEATURES / 16][4];
#pragma unroll
                for (int n = 0; n < FEATURES / 16; ++n)
                    load_transposed(b[n], ys + y_tile * 8 * stride_of(HEADS_, WIDTH) + unit * FEATURES + n * 16);
#pragma unroll
                for (int x_tile = 0; x_tile < X_TILES; ++x_tile) {
                    u32 a[4];
                    load_matrices(a, maps + place_of(head - round * 8 * ROUND, x_tile * 16 + at.lane % 16, y_tile + at.lane / 16));
#pragma unroll
                    for (int n = 0; n < FEATURES / 16; ++n) {
                        multiply(sums[part][x_tile][2 * n], a[0], a[1], a[2], a[3], b[n][0], b[n][1]);
                        multiply(sums[part][x_tile][2 * n + 1], a[0], a[1], a[2], a[3], b[n][2], b[n][3]);
                    }
                }
            }
        }
    }
    DEVICE void store(u16* to, int first, int length, float factor, const Place& at) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const int unit = part * WARPS + at.warp, head = unit / BLOCKS, feature = unit % BLOCKS * FEATURES + 2 * at.t;
            if (unit >= UNITS) continue;
#pragma unroll
            for (int place = 0; place < 2 * X_TILES; ++place) {
                const int x = first + at.g + 8 * place;
                if (x >= length) continue;
#pragma unroll
                for (int n = 0; n < FEATURES / 8; ++n) {
                    const float(&four)[4] = sums[part][place / 2][n];
                    if (feature + 8 * n < SIZE)
                        *reinterpret_cast<u32*>(to + ((long long)x * HEADS_ + head) * SIZE + feature + 8 * n) =
                            pack(factor * four[place % 2 * 2], factor * four[place % 2 * 2 + 1]);
                }
            }
        }
    }
};
using KeyResult = Result<KEY_HEADS, KEY_SIZE, KEY_WIDTH, KEY_ROUND>;
using ValueResult = Result<VALUE_HEADS, VALUE_SIZE, VALUE_WIDTH, VALUE_ROUND>;

// Sum `numbers` over all warps in a fixed order and store the true part of the matrix
template <int LEFT, int RIGHT>
DEVICE void store_correlation(float* to, const float (&sums)[(LEFT + 1) / 2][RIGHT][4], int left_heads, int right_heads, float factor,
                              float* shared, const Place& at) {
    constexpr int NUMBERS = (LEFT + 1) / 2 * RIGHT * 4;
    for (int warp = 0; warp < WARPS; ++warp) {
        if (at.warp == warp)
#pragma unroll
            for (int i = 0; i < NUMBERS; ++i) {
                float& sum = shared[i * 32 + at.lane];
                const float number = sums[i / 4 / RIGHT][i / 4 % RIGHT][i % 4];
                sum = warp == 0 ? number : sum + number;
            }
        barrier();
    }
    for (int place = thread(); place < NUMBERS * 32; place += THREADS) {
        const int i = place / 32, g = place % 32 / 4, t = place % 4;
        const int left = i / 4 / RIGHT * 16 + g + (i % 4 / 2) * 8, right = i / 4 % RIGHT * 8 + 2 * t + i % 2;
        if (left < left_heads && right < right_heads) to[left * right_heads + right] = factor * shared[place];
    }
}

// The log of the sum of exp(L) over the memory, in units of log 2; inf for a query that may see nothing
KERNEL(1) sums(const Arguments arguments) {
    Arena arena;
    u16* const x_keys = arena.take<u16>(X * KEY_STRIDE);
    u16* const y_keys = arena.take<u16>(2 * Y * KEY_STRIDE);  // of this tile and the next one
    u32* const placed_P_l = arena.take<u32>(GK * G * 32);
    const Place at;
    const Work<false, 1> work(arguments);
    Sight<false, 8> sight(arguments, work.example);
    const float scale = arguments.scale * LOG2_E;

    start_keys<X>(x_keys, work.x_keys, work.first_x, work.xs);
    start_keys<Y>(y_keys, work.y_keys, work.start, work.ys);
    end_group();
    place_projection<GK, G, false>(placed_P_l, arguments.logits_projection, KEY_HEADS, HEADS);

    float highest[G][4], total[G][4];
#pragma unroll
    for (int j = 0; j < G; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) highest[j][e] = LOWEST, total[j][e] = 0;
    const auto add = [&](const u32(&J)[8][GK][2], int first_y) {
        sight.look(at, work.first_x + at.x_tile * 16, first_y + at.y_tile * 8);
        u32 P_l[GK][G];
        load_projection<GK, G>(P_l, placed_P_l, at);
#pragma unroll
        for (int half = 0; half < 8; half += 4) {
            float L[4][G][4];
#pragma unroll
            for (int y = 0; y < 4; ++y) mix<GK, G>(L[y], J[half + y], P_l);
            if (!sight.all)
#pragma unroll
                for (int y = 0; y < 4; ++y) hide<false>(L[y], sight, half + y);
#pragma unroll
            for (int j = 0; j < G; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const float top = fmaxf(fmaxf(fmaxf(L[0][j][e], L[1][j][e]), fmaxf(L[2][j][e], L[3][j][e])), highest[j][e]);
                    const float shift = top * scale;
                    total[j][e] *= exp2_of((highest[j][e] - top) * scale);
#pragma unroll
                    for (int y = 0; y < 4; ++y) total[j][e] += exp2_of(L[y][j][e] * scale - shift);
                    highest[j][e] = top;
                }
        }
    };
    u32 J[8][GK][2], next_J[8][GK][2];
    wait_for_groups<0>();
    barrier();
    start_keys<Y>(y_keys + Y * KEY_STRIDE, work.y_keys, work.start + Y, work.ys);
    end_group();
    compare<GK, KEY_HEADS, KEY_WIDTH>(J, x_keys, y_keys, at);
    for (int first_y = work.start, turn = 0; first_y < work.stop; first_y += Y, turn ^= 1) {
        wait_for_groups<0>();
        barrier();
        start_keys<Y>(y_keys + turn * Y * KEY_STRIDE, work.y_keys, first_y + 2 * Y, work.ys);
        end_group();
        const u16* const next_tile = y_keys + (turn ^ 1) * Y * KEY_STRIDE;
        if (at.is_late()) {
            add(J, first_y);
            compare<GK, KEY_HEADS, KEY_WIDTH>(next_J, x_keys, next_tile, at);
        } else {
            compare<GK, KEY_HEADS, KEY_WIDTH>(next_J, x_keys, next_tile, at);
            add(J, first_y);
        }
        copy_maps(J, next_J);
    }

    // the warps with the same x have other y; the tiles of x and y are no longer needed
    wait_for_groups<0>();
    barrier();
    float* const parts = reinterpret_cast<float*>(shared_memory);
#pragma unroll
    for (int i = 0; i < 4 * G; ++i)
        parts[(2 * i * WARPS + at.warp) * 32 + at.lane] = highest[i / 4][i % 4],
        parts[((2 * i + 1) * WARPS + at.warp) * 32 + at.lane] = total[i / 4][i % 4];
    barrier();
    if (at.y_tile > 0) return;
    for (int i = 0; i < 4 * G; ++i) {
        float top = LOWEST, sum = 0;
        for (int y_tile = 0; y_tile < Y_TILES; ++y_tile) {
            const float* part = parts + (2 * i * WARPS + y_tile * X_TILES + at.x_tile) * 32 + at.lane;
            const float higher = fmaxf(top, part[0]);
            sum = sum * exp2_of((top - higher) * scale) + part[32 * WARPS] * exp2_of((part[0] - higher) * scale);
            top = higher;
        }
        const int query = work.first_x + at.x_tile * 16 + at.g + (i % 4 / 2) * 8, head = i / 4 * 8 + 2 * at.t + i % 2;
        if (query < work.xs) arguments.lse[(work.query_rows + query) * 8 * G + head] = sum == 0 ? infinity() : top * scale + log2_of(sum);
    }
}

// The sum over y of U and the values, [x, h_v, V]: the output, or the gradient of the values (SWAPPED)
template <bool SWAPPED> DEVICE void sum_values(const Arguments& arguments) {
    Arena arena;
    u16* const x_keys = arena.take<u16>(X * KEY_STRIDE);
    u16* const y_keys = arena.take<u16>(Y * KEY_STRIDE);
    u16* const y_values = arena.take<u16>(Y * VALUE_STRIDE);
    u16* const maps = arena.take<u16>(8 * VALUE_ROUND * X * Y);
    u32* const placed_P_l = arena.take<u32>(GK * G * 32);
    u32* const placed_P_w = arena.take<u32>(G * GV * 32);
    float* const lse_tile = arena.take<float>((SWAPPED ? Y : X) * 8 * G);
    const Place at;
    const Work<SWAPPED, 1> work(arguments);
    Sight<SWAPPED, 8> sight(arguments, work.example);
    const float scale = arguments.scale * LOG2_E;
    const float* const lse_rows = arguments.lse + work.query_rows * 8 * G;

    start_keys<X>(x_keys, work.x_keys, work.first_x, work.xs);
    start_keys<Y>(y_keys, work.y_keys, work.start, work.ys);
    end_group();
    start_values<Y>(y_values, work.y_values, work.start, work.ys);
    start_numbers<SWAPPED ? Y : X>(lse_tile, lse_rows, SWAPPED ? work.start : work.first_x, arguments.queries);
    end_group();
    place_projection<GK, G, false>(placed_P_l, arguments.logits_projection, KEY_HEADS, HEADS);
    place_projection<G, GV, false>(placed_P_w, arguments.weights_projection, HEADS, VALUE_HEADS);

    ValueResult result;
    wait_for_groups<1>();
    barrier();
    for (int first_y = work.start; first_y < work.stop; first_y += Y) {
        u32 J[8][GK][2];
        compare<GK, KEY_HEADS, KEY_WIDTH>(J, x_keys, y_keys, at);
        wait_for_groups<0>();
        barrier();
        start_keys<Y>(y_keys, work.y_keys, first_y + Y, work.ys);
        end_group();
        sight.look(at, work.first_x + at.x_tile * 16, first_y + at.y_tile * 8);
        u32 P_l[GK][G], P_w[G][GV], words[4][GV][2][2];
        load_projection<GK, G>(P_l, placed_P_l, at);
        load_projection<G, GV>(P_w, placed_P_w, at);
        float lse[G][4];
        if (!SWAPPED) load_numbers<false>(lse, lse_tile, 0, at);
#pragma unroll
        for (int y = 0; y < 8; y += 2) {
            float U[2][GV][4];
#pragma unroll
            for (int next = 0; next < 2; ++next) {
                float W[G][4];
                u32 map[G][2];
                if (SWAPPED) load_numbers<true>(lse, lse_tile, y + next, at);
                weigh<SWAPPED>(W, J[y + next], P_l, scale, lse, sight, y + next);
                pack_map(map, W);
                mix<G, GV>(U[next], map, P_w);
                drop_numbers<SWAPPED>(U[next], arguments, work.example, sight, y + next, at);
            }
#pragma unroll
            for (int j = 0; j < GV; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) words[y / 2][j][e % 2][e / 2] = pack(U[0][j][e], U[1][j][e]);
        }
#pragma unroll
        for (int round = 0; round < ValueResult::ROUNDS; ++round) {
            store_maps<VALUE_ROUND>(maps, words, round, at);
            barrier();
            result.add(round, maps, y_values, at);
            if (round + 1 == ValueResult::ROUNDS) wait_for_groups<0>();
            barrier();
        }
        start_values<Y>(y_values, work.y_values, first_y + Y, work.ys);
        if (SWAPPED) start_numbers<Y>(lse_tile, lse_rows, first_y + Y, work.ys);
        end_group();
    }
    wait_for_groups<0>();
    u16* const to = work.values(SWAPPED ? arguments.grad_value : arguments.output, work.x_rows);
    result.store(to, work.first_x, work.xs, arguments.keep_scale, at);
}
KERNEL(1) output(const Arguments arguments) { sum_values<false>(arguments); }
KERNEL(1) value_gradient(const Arguments arguments) { sum_values<true>(arguments); }

// The sum of W dW over the memory, and this block's part of the gradient of P_w
KERNEL(1) correction(const Arguments arguments) {
    Arena arena;
    u16* const x_keys = arena.take<u16>(X * KEY_STRIDE);
    u16* const x_values = arena.take<u16>(X * VALUE_STRIDE);
    u16* const y_keys = arena.take<u16>(Y * KEY_STRIDE);
    u16* const y_values = arena.take<u16>(Y * VALUE_STRIDE);
    u32* const placed_P_l = arena.take<u32>(GK * G * 32);
    u32* const placed_P_w_turned = arena.take<u32>(GV * G * 32);
    float* const lse_tile = arena.take<float>(X * 8 * G);
    const Place at;
    const Work<false, 1> work(arguments);
    Sight<false, 8> sight(arguments, work.example);
    const float scale = arguments.scale * LOG2_E;

    start_keys<X>(x_keys, work.x_keys, work.first_x, work.xs);
    start_values<X>(x_values, work.x_values, work.first_x, work.xs);
    start_keys<Y>(y_keys, work.y_keys, work.start, work.ys);
    start_values<Y>(y_values, work.y_values, work.start, work.ys);
    start_numbers<X>(lse_tile, arguments.lse + work.query_rows * 8 * G, work.first_x, work.xs);
    end_group();
    place_projection<GK, G, false>(placed_P_l, arguments.logits_projection, KEY_HEADS, HEADS);
    place_projection<GV, G, true>(placed_P_w_turned, arguments.weights_projection, VALUE_HEADS, HEADS);

    float total[G][4] = {}, grad_P_w[(G + 1) / 2][GV][4] = {};
    for (int first_y = work.start; first_y < work.stop; first_y += Y) {
        wait_for_groups<0>();
        barrier();
        u32 J[8][GK][2], dU[8][GV][2];
        compare<GK, KEY_HEADS, KEY_WIDTH>(J, x_keys, y_keys, at);
        compare<GV, VALUE_HEADS, VALUE_WIDTH>(dU, x_values, y_values, at);
        barrier();
        start_keys<Y>(y_keys, work.y_keys, first_y + Y, work.ys);
        start_values<Y>(y_values, work.y_values, first_y + Y, work.ys);
        end_group();
        sight.look(at, work.first_x + at.x_tile * 16, first_y + at.y_tile * 8);
        u32 P_l[GK][G], P_w_turned[GV][G];
        load_projection<GK, G>(P_l, placed_P_l, at);
        load_projection<GV, G>(P_w_turned, placed_P_w_turned, at);
        float lse[G][4];
        load_numbers<false>(lse, lse_tile, 0, at);
#pragma unroll
        for (int y = 0; y < 8; ++y) {
            float W[G][4], dW[G][4];
            u32 map[G][2];
            weigh<false>(W, J[y], P_l, scale, lse, sight, y);
            drop_words<false>(dU[y], arguments, work.example, sight, y, at);
            mix<GV, G>(dW, dU[y], P_w_turned);
#pragma unroll
            for (int j = 0; j < G; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) total[j][e] += W[j][e] * dW[j][e];
            pack_map(map, W);
            correlate<G, GV>(grad_P_w, map, dU[y]);
        }
    }

    // the warps with the same x have other y; the tiles of x and y are no longer needed
    wait_for_groups<0>();
    barrier();
    float* const parts = reinterpret_cast<float*>(shared_memory);
#pragma unroll
    for (int i = 0; i < 4 * G; ++i) parts[(i * WARPS + at.warp) * 32 + at.lane] = total[i / 4][i % 4];
    barrier();
    if (at.y_tile == 0)
        for (int i = 0; i < 4 * G; ++i) {
            float sum = 0;
            for (int y_tile = 0; y_tile < Y_TILES; ++y_tile) sum += parts[(i * WARPS + y_tile * X_TILES + at.x_tile) * 32 + at.lane];
            const int row = work.first_x + at.x_tile * 16 + at.g + (i % 4 / 2) * 8, head = i / 4 * 8 + 2 * at.t + i % 2;
            if (row < work.xs) arguments.correction[(work.query_rows + row) * 8 * G + head] = arguments.keep_scale * sum;
        }
    barrier();
    store_correlation<G, GV>(arguments.grad_weights_projection + (long long)block() * HEADS * VALUE_HEADS, grad_P_w, HEADS, VALUE_HEADS,
                             arguments.keep_scale, parts, at);
}

// The gradient of the queries and this block's part of the gradient of P_l, or the gradient of the keys (SWAPPED)
template <bool SWAPPED> DEVICE void sum_gradients(const Arguments& arguments) {
    Arena arena;
    u16* const x_keys = arena.take<u16>(X * KEY_STRIDE);
    u16* const x_values = arena.take<u16>(X * VALUE_STRIDE);
    u16* const y_keys = arena.take<u16>(Y * KEY_STRIDE);
    u16* const y_values = arena.take<u16>(Y * VALUE_STRIDE);
    u16* const maps = arena.take<u16>(8 * KEY_ROUND * X * Y);
    u32* const placed_P_l = arena.take<u32>(GK * G * 32);
    u32* const placed_P_l_turned = arena.take<u32>(G * GK * 32);
    u32* const placed_P_w_turned = arena.take<u32>(GV * G * 32);
    float* const lse_tile = arena.take<float>((SWAPPED ? Y : X) * 8 * G);
    float* const mean_tile = arena.take<float>((SWAPPED ? Y : X) * 8 * G);
    const Place at;
    const Work<SWAPPED, 1> work(arguments);
    Sight<SWAPPED, 8> sight(arguments, work.example);
    const float scale = arguments.scale * LOG2_E;
    const float* const lse_rows = arguments.lse + work.query_rows * 8 * G;
    const float* const mean_rows = arguments.correction + work.query_rows * 8 * G;

    start_values<X>(x_values, work.x_values, work.first_x, work.xs);
    start_values<Y>(y_values, work.y_values, work.start, work.ys);
    end_group();
    start_keys<X>(x_keys, work.x_keys, work.first_x, work.xs);
    start_keys<Y>(y_keys, work.y_keys, work.start, work.ys);
    start_numbers<SWAPPED ? Y : X>(lse_tile, lse_rows, SWAPPED ? work.start : work.first_x, arguments.queries);
    start_numbers<SWAPPED ? Y : X>(mean_tile, mean_rows, SWAPPED ? work.start : work.first_x, arguments.queries);
    end_group();
    place_projection<GK, G, false>(placed_P_l, arguments.logits_projection, KEY_HEADS, HEADS);
    place_projection<G, GK, true>(placed_P_l_turned, arguments.logits_projection, HEADS, KEY_HEADS);
    place_projection<GV, G, true>(placed_P_w_turned, arguments.weights_projection, VALUE_HEADS, HEADS);

    float grad_P_l[(GK + 1) / 2][G][4] = {};
    KeyResult result;
    for (int first_y = work.start; first_y < work.stop; first_y += Y) {
        u32 J[8][GK][2], dU[8][GV][2];
        wait_for_groups<1>();
        barrier();
        compare<GV, VALUE_HEADS, VALUE_WIDTH>(dU, x_values, y_values, at);
        wait_for_groups<0>();
        barrier();
        start_values<Y>(y_values, work.y_values, first_y + Y, work.ys);
        end_group();
        compare<GK, KEY_HEADS, KEY_WIDTH>(J, x_keys, y_keys, at);
        sight.look(at, work.first_x + at.x_tile * 16, first_y + at.y_tile * 8);
        u32 words[4][GK][2][2];
#pragma unroll
        for (int y = 0; y < 8; y += 2) {
            // each projection is loaded where it is needed, as the sums leave few registers
            float W[2][G][4], dJ[2][GK][4], numbers[G][4];
            u32 dL[2][G][2];
            {
                u32 P_l[GK][G];
                load_projection<GK, G>(P_l, placed_P_l, at);
                if (!SWAPPED) load_numbers<false>(numbers, lse_tile, 0, at);
#pragma unroll
                for (int next = 0; next < 2; ++next) {
                    if (SWAPPED) load_numbers<true>(numbers, lse_tile, y + next, at);
                    weigh<SWAPPED>(W[next], J[y + next], P_l, scale, numbers, sight, y + next);
                }
            }
            {
                u32 P_w_turned[GV][G];
                load_projection<GV, G>(P_w_turned, placed_P_w_turned, at);
                if (!SWAPPED) load_numbers<false>(numbers, mean_tile, 0, at);
#pragma unroll
                for (int next = 0; next < 2; ++next) {
                    float dW[G][4];
                    if (SWAPPED) load_numbers<true>(numbers, mean_tile, y + next, at);
                    drop_words<SWAPPED>(dU[y + next], arguments, work.example, sight, y + next, at);
                    mix<GV, G>(dW, dU[y + next], P_w_turned);
#pragma unroll
                    for (int j = 0; j < G; ++j)
#pragma unroll
                        for (int e = 0; e < 4; ++e) W[next][j][e] *= arguments.keep_scale * dW[j][e] - numbers[j][e];
                    pack_map(dL[next], W[next]);
                    if (!SWAPPED) correlate<GK, G>(grad_P_l, J[y + next], dL[next]);
                }
            }
            u32 P_l_turned[G][GK];
            load_projection<G, GK>(P_l_turned, placed_P_l_turned, at);
#pragma unroll
            for (int next = 0; next < 2; ++next) mix<G, GK>(dJ[next], dL[next], P_l_turned);
#pragma unroll
            for (int i = 0; i < GK; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e) words[y / 2][i][e % 2][e / 2] = pack(dJ[0][i][e], dJ[1][i][e]);
        }
#pragma unroll
        for (int round = 0; round < KeyResult::ROUNDS; ++round) {
            store_maps<KEY_ROUND>(maps, words, round, at);
            barrier();
            result.add(round, maps, y_keys, at);
            barrier();
        }
        start_keys<Y>(y_keys, work.y_keys, first_y + Y, work.ys);
        if (SWAPPED) start_numbers<Y>(lse_tile, lse_rows, first_y + Y, work.ys), start_numbers<Y>(mean_tile, mean_rows, first_y + Y, work.ys);
        end_group();
    }
    wait_for_groups<0>();
    u16* const to = work.keys(SWAPPED ? arguments.grad_key : arguments.grad_query, work.x_rows);
    result.store(to, work.first_x, work.xs, arguments.scale, at);
    if (SWAPPED) return;
    barrier();
    store_correlation<GK, G>(arguments.grad_logits_projection + (long long)block() * KEY_HEADS * HEADS, grad_P_l, KEY_HEADS, HEADS,
                             arguments.scale, reinterpret_cast<float*>(shared_memory), at);
}
KERNEL(1) query_gradient(const Arguments arguments) { sum_gradients<false>(arguments); }
KERNEL(1) key_gradient(const Arguments arguments) { sum_gradients<true>(arguments); }

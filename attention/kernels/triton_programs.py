"""Softmax attention with mixed heads (2003.02436) as Triton programs that write no map to memory.

A program computes all heads of some query rows, or of some memory positions, because every mixed map needs every head.
It keeps the maps of one tile at a time in registers, and recomputes them wherever they are needed. The softmax must
know its sums over all of M before P_w mixes the heads. The forward pass therefore goes over the memory twice, and so
does the gradient of the queries. One program sums each result in a fixed order, so the same inputs give the same bits.

Importing this module needs Triton. `attention.kernels.triton_kernel` imports it where a GPU or the interpreter runs it.
"""

# Maps of a tile [heads, ROWS, COLUMNS]: J logits, L after P_l and the mask, W softmax, U after P_w and dropout.
# HEADS_K, HEADS, HEADS_V, KEY_SIZE, VALUE_SIZE: true sizes; H_K, H, H_V, K, V: the same, zero-padded to powers of two.
# DTYPE: type of the factors of products; WIDE: type of their sums and of all else. A projection or mask may be None

# Triton has its own types, and may not be installed
# mypy: ignore-errors

import torch
import triton
import triton.language as tl

DTYPES = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.float64: tl.float64,
}


@triton.jit
def load_heads(base, positions, length, HEADS: tl.constexpr, SIZE: tl.constexpr, H: tl.constexpr, S: tl.constexpr):
    """Load [H, positions, S] from a contiguous [length, HEADS, SIZE], with 0 outside of it."""
    heads, features = tl.arange(0, H)[:, None, None], tl.arange(0, S)[None, None, :]
    inside = (heads < HEADS) & (features < SIZE) & (positions < length)[None, :, None]
    return tl.load(base + (positions[None, :, None] * HEADS + heads) * SIZE + features, inside, 0.0)


@triton.jit
def store_heads(base, tile, positions, length, HEADS: tl.constexpr, SIZE: tl.constexpr):
    """The inverse of `load_heads`."""
    heads, features = tl.arange(0, tile.shape[0])[:, None, None], tl.arange(0, tile.shape[2])[None, None, :]
    inside = (heads < HEADS) & (features < SIZE) & (positions < length)[None, :, None]
    offsets = (positions[None, :, None] * HEADS + heads) * SIZE + features
    tl.store(base + offsets, tile.to(base.dtype.element_ty), inside)


@triton.jit
def load_sums(base, rows, length, outside, HEADS: tl.constexpr, H: tl.constexpr):
    """Load [H, rows] from a contiguous [HEADS, length], with the value `outside` outside of it."""
    heads = tl.arange(0, H)[:, None]
    return tl.load(base + heads * length + rows[None, :], (heads < HEADS) & (rows < length)[None, :], outside)


@triton.jit
def store_sums(base, tile, rows, length, HEADS: tl.constexpr):
    """The inverse of `load_sums`."""
    heads = tl.arange(0, tile.shape[0])[:, None]
    tl.store(base + heads * length + rows[None, :], tile, (heads < HEADS) & (rows < length)[None, :])


@triton.jit
def load_matrix(base, ROWS: tl.constexpr, COLUMNS: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """Load [R, C] from a contiguous [ROWS, COLUMNS], with 0 outside of it."""
    rows, columns = tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    return tl.load(base + rows * COLUMNS + columns, (rows < ROWS) & (columns < COLUMNS), 0.0)


@triton.jit
def store_matrix(base, matrix, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The inverse of `load_matrix`."""
    rows, columns = tl.arange(0, matrix.shape[0])[:, None], tl.arange(0, matrix.shape[1])[None, :]
    tl.store(base + rows * COLUMNS + columns, matrix, (rows < ROWS) & (columns < COLUMNS))


@triton.jit
def compare(left, right, DTYPE: tl.constexpr):
    """Multiply [h, r, s] and [h, t, s] -> [h, r, t], one product for each head."""
    return tl.dot(left.to(DTYPE), tl.permute(right.to(DTYPE), (0, 2, 1)), input_precision="ieee")


@triton.jit
def combine(maps, vectors, DTYPE: tl.constexpr):
    """Multiply [h, r, t] and [h, t, s] -> [h, r, s], one product for each head."""
    return tl.dot(maps.to(DTYPE), vectors.to(DTYPE), input_precision="ieee")


@triton.jit
def mix(matrix, maps, DTYPE: tl.constexpr):
    """Mix [g, h] and [h, r, t] -> [g, r, t], by one wide product. If the matrix is None, the maps stay as they are."""
    mixed = maps
    if matrix is not None:
        flat = tl.reshape(maps.to(DTYPE), (maps.shape[0], maps.shape[1] * maps.shape[2]))
        product = tl.dot(matrix.to(DTYPE), flat, input_precision="ieee")
        mixed = tl.reshape(product, (matrix.shape[0], maps.shape[1], maps.shape[2]))
    return mixed


@triton.jit
def correlate(left, right, DTYPE: tl.constexpr):
    """Multiply [h, r, t] and [g, r, t] -> [h, g], summed over the tile: the gradient of a projection."""
    first = tl.reshape(left.to(DTYPE), (left.shape[0], left.shape[1] * left.shape[2]))
    second = tl.reshape(right.to(DTYPE), (right.shape[0], right.shape[1] * right.shape[2]))
    return tl.dot(first, tl.trans(second), input_precision="ieee")


@triton.jit
def logits(left, right, scale, matrix, mask, rows, columns, M, CAUSAL: tl.constexpr, DTYPE: tl.constexpr):
    """Compute (J, L) of a tile of queries and keys, or of keys and queries; rows and columns must broadcast to it."""
    J = compare(left, right, DTYPE) * scale
    allowed = columns < M
    if CAUSAL:
        allowed = allowed & (columns <= rows)
    if mask is not None:
        allowed = allowed & (tl.load(mask + columns, columns < M, 0) != 0)
    return J, tl.where(allowed, mix(matrix, J, DTYPE), float("-inf"))


@triton.jit
def splitmix64(x):
    """SplitMix64's output function for uint64."""
    x = x + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def drop(maps, seed, keep_threshold, example, rows, columns, N, HEADS_V: tl.constexpr, DROPOUT: tl.constexpr):
    """Set dropped weights to 0. The choice equals that of `attention/kernels/dropout.py` bit by bit."""
    if DROPOUT:
        heads = tl.arange(0, maps.shape[0])[:, None, None]
        row = (example.to(tl.int64) * HEADS_V + heads) * N + rows
        key = splitmix64(tl.cast(seed, tl.uint64) ^ splitmix64(row.to(tl.uint64)))
        word = columns.to(tl.uint32) * 0x9E3779B9 + key.to(tl.uint32)
        word = (word ^ (word >> 16)) * 0x7FEB352D
        word = (word ^ (word >> 15)) * 0x846CA68B + (key >> 32).to(tl.uint32)
        maps = tl.where(word.to(tl.int32, bitcast=True) < keep_threshold, maps, 0.0)
    return maps


@triton.jit
def tile(
    left, right, left_values, right_values, sums, scale, P_l_transposed, mask, seed, keep_threshold, keep_scale,
    example, rows, columns, N, M,
    HEADS_V: tl.constexpr, CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Recompute what both programs of the backward pass need: J before P_l, W before P_w, and the gradient dU.

    left and left_values are q and dO for tiles [heads, rows, columns], and k and v for transposed tiles; right and
    right_values are the other two. dU is the gradient of the weights before dropout.
    """
    J, L = logits(left, right, scale, P_l_transposed, mask, rows, columns, M, CAUSAL, DTYPE)
    dU = compare(left_values, right_values, DTYPE) * keep_scale
    return J, tl.exp(L - sums), drop(dU, seed, keep_threshold, example, rows, columns, N, HEADS_V, DROPOUT)


@triton.jit(do_not_specialize=["seed", "keep_threshold"])
def forward(
    query, key, value, logits_projection, weights_projection, mask, output, lse,
    N, M, mask_stride, scale, seed, keep_threshold, keep_scale,
    HEADS_K: tl.constexpr, HEADS: tl.constexpr, HEADS_V: tl.constexpr, KEY_SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr,
    H_K: tl.constexpr, H: tl.constexpr, H_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, DTYPE: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute output [B, N, h_v, V] and lse [B, h, N], the log of the sum of exp(L), for ROWS query rows of an example.

    A row that may attend nowhere gets an lse of inf, which makes all its weights exp(-inf - inf) = 0.
    """
    blocks = tl.cdiv(N, ROWS)
    example = tl.program_id(0) // blocks
    first = tl.program_id(0) % blocks * ROWS
    at = example.to(tl.int64)
    query += at * N * HEADS_K * KEY_SIZE
    key += at * M * HEADS_K * KEY_SIZE
    value += at * M * HEADS_V * VALUE_SIZE
    P_l, P_w = None, None
    if logits_projection is not None:
        P_l = tl.trans(load_matrix(logits_projection, HEADS_K, HEADS, H_K, H))
    if weights_projection is not None:
        P_w = tl.trans(load_matrix(weights_projection, HEADS, HEADS_V, H, H_V))
    if mask is not None:
        mask += at * mask_stride
    rows = first + tl.arange(0, ROWS)
    q = load_heads(query, rows, N, HEADS_K, KEY_SIZE, H_K, K)
    stop = tl.minimum(M, first + ROWS) if CAUSAL else M

    # one for each place of a tile; the columns are reduced once, after the loop. L may be -inf, but `highest` may not
    highest = tl.full((H, ROWS, COLUMNS), -3e38, WIDE)
    total = tl.zeros((H, ROWS, COLUMNS), WIDE)
    for start in range(0, stop, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        k = load_heads(key, columns, M, HEADS_K, KEY_SIZE, H_K, K)
        _, L = logits(q, k, scale, P_l, mask, rows[None, :, None], columns[None, None, :], M, CAUSAL, DTYPE)
        # relative to the larger of `highest` and L, one of the two powers is exp(0) = 1, so one exp is enough
        power = tl.exp(-tl.abs(L - highest))
        total = tl.where(highest < L, total * power + 1.0, total + power)
        highest = tl.maximum(highest, L)
    shift = tl.max(highest, 2)
    total = tl.sum(total * tl.exp(highest - shift[:, :, None]), 2)
    sums = tl.where(total == 0, float("inf"), shift + tl.log(total))

    out = tl.zeros((H_V, ROWS, V), WIDE)
    for start in range(0, stop, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        k = load_heads(key, columns, M, HEADS_K, KEY_SIZE, H_K, K)
        _, L = logits(q, k, scale, P_l, mask, rows[None, :, None], columns[None, None, :], M, CAUSAL, DTYPE)
        W = tl.exp(L - sums[:, :, None])
        U = mix(P_w, W, DTYPE)
        U = drop(U, seed, keep_threshold, example, rows[None, :, None], columns[None, None, :], N, HEADS_V, DROPOUT)
        v = load_heads(value, columns, M, HEADS_V, VALUE_SIZE, H_V, V)
        out += combine(U, v, DTYPE)

    store_heads(output + at * N * HEADS_V * VALUE_SIZE, out * keep_scale, rows, N, HEADS_V, VALUE_SIZE)
    store_sums(lse + at * HEADS * N, sums, rows, N, HEADS)


@triton.jit(do_not_specialize=["seed", "keep_threshold"])
def backward_queries(
    query, key, value, logits_projection, weights_projection, mask, lse, grad_output,
    correction, grad_query, grad_logits_projection, grad_weights_projection,
    N, M, mask_stride, scale, seed, keep_threshold, keep_scale,
    HEADS_K: tl.constexpr, HEADS: tl.constexpr, HEADS_V: tl.constexpr, KEY_SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr,
    H_K: tl.constexpr, H: tl.constexpr, H_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, DTYPE: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of ROWS query rows, their correction [B, h, N], and their parts of the gradients of P.

    The correction is the sum of W dW. The parts of all programs, [B blocks, h_k, h] and [B blocks, h, h_v], are summed
    afterwards.
    """
    blocks = tl.cdiv(N, ROWS)
    example = tl.program_id(0) // blocks
    first = tl.program_id(0) % blocks * ROWS
    at = example.to(tl.int64)
    query += at * N * HEADS_K * KEY_SIZE
    key += at * M * HEADS_K * KEY_SIZE
    value += at * M * HEADS_V * VALUE_SIZE
    P_l, P_l_transposed, P_w = None, None, None
    if logits_projection is not None:
        P_l = load_matrix(logits_projection, HEADS_K, HEADS, H_K, H)
        P_l_transposed = tl.trans(P_l)
        sum_l = tl.zeros((H_K, H), WIDE)
    if weights_projection is not None:
        P_w = load_matrix(weights_projection, HEADS, HEADS_V, H, H_V)
        sum_w = tl.zeros((H, H_V), WIDE)
    if mask is not None:
        mask += at * mask_stride
    rows = first + tl.arange(0, ROWS)
    q = load_heads(query, rows, N, HEADS_K, KEY_SIZE, H_K, K)
    dO = load_heads(grad_output + at * N * HEADS_V * VALUE_SIZE, rows, N, HEADS_V, VALUE_SIZE, H_V, V)
    sums = load_sums(lse + at * HEADS * N, rows, N, float("inf"), HEADS, H)[:, :, None]
    stop = tl.minimum(M, first + ROWS) if CAUSAL else M

    products = tl.zeros((H, ROWS, COLUMNS), WIDE)
    for start in range(0, stop, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        k = load_heads(key, columns, M, HEADS_K, KEY_SIZE, H_K, K)
        v = load_heads(value, columns, M, HEADS_V, VALUE_SIZE, H_V, V)
        _, W, dU = tile(
            q, k, dO, v, sums, scale, P_l_transposed, mask, seed, keep_threshold, keep_scale,
            example, rows[None, :, None], columns[None, None, :], N, M, HEADS_V, CAUSAL, DROPOUT, DTYPE,
        )  # fmt: skip
        products += W * mix(P_w, dU, DTYPE)
    mean = tl.sum(products, 2)
    store_sums(correction + at * HEADS * N, mean, rows, N, HEADS)

    dq = tl.zeros((H_K, ROWS, K), WIDE)
    for start in range(0, stop, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        k = load_heads(key, columns, M, HEADS_K, KEY_SIZE, H_K, K)
        v = load_heads(value, columns, M, HEADS_V, VALUE_SIZE, H_V, V)
        J, W, dU = tile(
            q, k, dO, v, sums, scale, P_l_transposed, mask, seed, keep_threshold, keep_scale,
            example, rows[None, :, None], columns[None, None, :], N, M, HEADS_V, CAUSAL, DROPOUT, DTYPE,
        )  # fmt: skip
        if weights_projection is not None:
            sum_w += correlate(W, dU, DTYPE)
        dL = W * (mix(P_w, dU, DTYPE) - mean[:, :, None])
        if logits_projection is not None:
            sum_l += correlate(J, dL, DTYPE)
        dq += combine(mix(P_l, dL, DTYPE), k, DTYPE)

    store_heads(grad_query + at * N * HEADS_K * KEY_SIZE, dq * scale, rows, N, HEADS_K, KEY_SIZE)
    part = tl.program_id(0).to(tl.int64)
    if logits_projection is not None:
        store_matrix(grad_logits_projection + part * HEADS_K * HEADS, sum_l, HEADS_K, HEADS)
    if weights_projection is not None:
        store_matrix(grad_weights_projection + part * HEADS * HEADS_V, sum_w, HEADS, HEADS_V)


@triton.jit(do_not_specialize=["seed", "keep_threshold"])
def backward_memory(
    query, key, value, logits_projection, weights_projection, mask, lse, grad_output,
    correction, grad_key, grad_value,
    N, M, mask_stride, scale, seed, keep_threshold, keep_scale,
    HEADS_K: tl.constexpr, HEADS: tl.constexpr, HEADS_V: tl.constexpr, KEY_SIZE: tl.constexpr, VALUE_SIZE: tl.constexpr,
    H_K: tl.constexpr, H: tl.constexpr, H_V: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    CAUSAL: tl.constexpr, DROPOUT: tl.constexpr, DTYPE: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of COLUMNS keys and values of an example, with transposed tiles [heads, COLUMNS, ROWS]."""
    blocks = tl.cdiv(M, COLUMNS)
    example = tl.program_id(0) // blocks
    first = tl.program_id(0) % blocks * COLUMNS
    at = example.to(tl.int64)
    query += at * N * HEADS_K * KEY_SIZE
    grad_output += at * N * HEADS_V * VALUE_SIZE
    lse += at * HEADS * N
    correction += at * HEADS * N
    P_l, P_w, P_l_transposed, P_w_transposed = None, None, None, None
    if logits_projection is not None:
        P_l = load_matrix(logits_projection, HEADS_K, HEADS, H_K, H)
        P_l_transposed = tl.trans(P_l)
    if weights_projection is not None:
        P_w = load_matrix(weights_projection, HEADS, HEADS_V, H, H_V)
        P_w_transposed = tl.trans(P_w)
    if mask is not None:
        mask += at * mask_stride
    columns = first + tl.arange(0, COLUMNS)
    k = load_heads(key + at * M * HEADS_K * KEY_SIZE, columns, M, HEADS_K, KEY_SIZE, H_K, K)
    v = load_heads(value + at * M * HEADS_V * VALUE_SIZE, columns, M, HEADS_V, VALUE_SIZE, H_V, V)

    dk = tl.zeros((H_K, COLUMNS, K), WIDE)
    dv = tl.zeros((H_V, COLUMNS, V), WIDE)
    # under a causal mask, rows before the first of these positions see none of them
    for start in range(first // ROWS * ROWS if CAUSAL else 0, N, ROWS):
        rows = start + tl.arange(0, ROWS)
        q = load_heads(query, rows, N, HEADS_K, KEY_SIZE, H_K, K)
        dO = load_heads(grad_output, rows, N, HEADS_V, VALUE_SIZE, H_V, V)
        sums = load_sums(lse, rows, N, float("inf"), HEADS, H)[:, None, :]
        mean = load_sums(correction, rows, N, 0.0, HEADS, H)[:, None, :]
        _, W, dU = tile(
            k, q, v, dO, sums, scale, P_l_transposed, mask, seed, keep_threshold, keep_scale,
            example, rows[None, None, :], columns[None, :, None], N, M, HEADS_V, CAUSAL, DROPOUT, DTYPE,
        )  # fmt: skip
        U = mix(P_w_transposed, W, DTYPE)
        U = drop(U, seed, keep_threshold, example, rows[None, None, :], columns[None, :, None], N, HEADS_V, DROPOUT)
        dv += combine(U, dO, DTYPE)
        dL = W * (mix(P_w, dU, DTYPE) - mean)
        dk += combine(mix(P_l, dL, DTYPE), q, DTYPE)

    store_heads(grad_key + at * M * HEADS_K * KEY_SIZE, dk * scale, columns, M, HEADS_K, KEY_SIZE)
    store_heads(grad_value + at * M * HEADS_V * VALUE_SIZE, dv * keep_scale, columns, M, HEADS_V, VALUE_SIZE)

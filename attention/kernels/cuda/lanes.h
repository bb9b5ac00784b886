// What a warp's 32 lanes do together: products on tensor cores, exchanges, and copies to shared memory.
//
// A lane is 4 g + t, with g < 8 and t < 4. Fragments are those of PTX's mma.m16n8k16 (PTX ISA, "Matrix fragments"):
//   A 16 x 16: a[0] row g, a[1] row g + 8, columns 2t and 2t + 1; a[2], a[3] the same rows, columns 2t + 8 and 2t + 9
//   B 16 x 8:  b[0] rows 2t and 2t + 1, b[1] rows 2t + 8 and 2t + 9, column g
//   C 16 x 8:  c[0], c[1] row g, columns 2t and 2t + 1; c[2], c[3] row g + 8
// Numbers of 16 bits are bfloat16, two in a word, the first in the low half.

#ifndef LANES_H
#define LANES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__
// blocks: as many as shall have enough registers on a multiprocessor
#define KERNEL(blocks) extern "C" __global__ void __launch_bounds__(THREADS, blocks)

extern __shared__ __align__(16) u8 shared_memory[];

DEVICE int thread() { return threadIdx.x; }
DEVICE int block() { return blockIdx.x; }
DEVICE void barrier() { __syncthreads(); }

// Loads that come later are not moved to before this, where their results would take registers
DEVICE void keep_order() { __syncwarp(); }

DEVICE float infinity() { return __int_as_float(0x7F800000); }
DEVICE float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float float_of(u32 word) { return __uint_as_float(word); }
DEVICE u32 word_of(float number) { return __float_as_uint(number); }
DEVICE float log2_of(float x) { return __log2f(x); }

DEVICE u32 pack(float first, float second) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

// c += A B
DEVICE void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// the same with the first 8 columns of A and rows of B alone
DEVICE void multiply(float (&c)[4], u32 a0, u32 a1, u32 b0) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

DEVICE u32 shared_address(const void* pointer) { return static_cast<u32>(__cvta_generic_to_shared(pointer)); }

// Load four 8 x 8 matrices; lane 8 i + r gives the address of row r of matrix i. Lane 4 g + t gets row g, columns 2t
// and 2t + 1 of each; of transposed matrices it gets rows 2t and 2t + 1, column g.
DEVICE void load_matrices(u32 (&words)[4], const u16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void load_transposed(u32 (&words)[4], const u16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void load_matrices(u32 (&words)[2], const u16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
        : "=r"(words[0]), "=r"(words[1]) : "r"(shared_address(row)) : "memory");
}

// Words of shared memory, loaded here and not kept in registers from an earlier load
DEVICE u32 load_word(const u32* place) {
    u32 word;
    asm volatile("ld.volatile.shared.b32 %0, [%1];" : "=r"(word) : "r"(shared_address(place)) : "memory");
    return word;
}

DEVICE float2 load_two(const float* place) {
    float2 two;
    asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(two.x), "=f"(two.y) : "r"(shared_address(place)) : "memory");
    return two;
}

// Transpose an 8 x 8 matrix whose row g and columns 2t and 2t + 1 lane 4 g + t holds
DEVICE u32 transpose(u32 word) {
    u32 transposed;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(word));
    return transposed;
}

// the word of the lane whose number differs in this bit
DEVICE u32 exchange(u32 word, int bit) { return __shfl_xor_sync(~0u, word, bit); }

// one bit of each lane
DEVICE u32 votes(bool vote) { return __ballot_sync(~0u, vote); }

// Copy 16 bytes to shared memory in the background, or zeros
DEVICE void start_copy(u16* to, const u16* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
        :: "r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
DEVICE void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// until all groups of copies of this thread but the latest `PENDING` have ended
template <int PENDING> DEVICE void wait_for_groups() { asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }

#endif

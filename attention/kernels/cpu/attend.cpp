// Softmax attention whose heads may mix, on a CPU: forward and backward.
//
// Tasks share no sums, so the result doesn't depend on which thread does what. All sums are in float (double for
// double), whatever the inputs' type.

#include "task.h"

#include <omp.h>

template <class T> static int64_t thread_bytes(const Problem &p, bool backward) {
    return Task<T>(p, nullptr, backward).bytes;
}

// numbers that a task sums gradients of keys and values in
template <class T> static int64_t slot_of(const Problem &p) {
    const Task<T> task(p, nullptr, true);
    return task.key_sums() + task.value_sums();
}

// where rows are divided into chunks, their sums are added up at the end
static int64_t slots_of(const Problem &p) { return p.chunks == 1 ? p.threads : p.B * p.groups * p.chunks; }

template <class T> static void run(const Problem &p, bool backward) {
    using F = typename arithmetic<T>::Sum;
    const int64_t bytes = thread_bytes<T>(p, backward), slot = slot_of<T>(p), tasks = p.B * p.groups * p.chunks;
    // heads of an example lie side by side in memory: they go to one thread where there are enough tasks
    const int64_t share = std::max<int64_t>(1, std::min(p.groups * p.chunks, tasks / (4 * p.threads)));
    char *workspace = static_cast<char *>(p.workspace);
    F *all_sums = reinterpret_cast<F *>(workspace + p.threads * bytes);
#pragma omp parallel num_threads(int(p.threads))
    {
        const int64_t thread = omp_get_thread_num();
        Task<T> task(p, workspace + thread * bytes, backward);
#pragma omp for schedule(dynamic, share)
        for (int64_t number = 0; number < tasks; number++) {
            const int64_t chunk = number % p.chunks, of = number / p.chunks;
            const int64_t begin = p.N * chunk / p.chunks, end = p.N * (chunk + 1) / p.chunks;
            F *grad_keys = all_sums + (p.chunks == 1 ? thread : number) * slot;
            F *grad_values = grad_keys + task.key_sums();
            // a projection has one group only: its tasks are the chunks of the examples
            F *grad_P_l = static_cast<F *>(p.grad_logits) + (p.logits ? number * p.hk * p.h : 0);
            F *grad_P_w = static_cast<F *>(p.grad_weights) + (p.weights ? number * p.h * p.hv : 0);
            task.choose(of / p.groups, of % p.groups);
            task.pack(backward);
            if (backward) std::fill(grad_keys, grad_keys + slot, F(0));
            for (int64_t start = begin; start < end; start += task.tile) {
                const int64_t stop = std::min(end, start + task.tile);
                if (backward) task.backward(start, stop, grad_keys, grad_values, grad_P_l, grad_P_w);
                else task.forward(start, stop);
            }
            if (backward && p.chunks == 1) task.finish(grad_keys, grad_values);
        }
        if (backward && p.chunks > 1) {
#pragma omp for schedule(dynamic)
            for (int64_t of = 0; of < p.B * p.groups; of++) {
                F *sum = all_sums + of * p.chunks * slot;
                for (int64_t chunk = 1; chunk < p.chunks; chunk++)
                    for (int64_t i = 0; i < slot; i++) sum[i] += sum[chunk * slot + i];
                task.choose(of / p.groups, of % p.groups);
                task.finish(sum, sum + task.key_sums());
            }
        }
    }
}

template <class T> static int64_t bytes_of(const Problem &p, bool backward) {
    return p.threads * thread_bytes<T>(p, backward) +
           (backward ? slots_of(p) * slot_of<T>(p) * int64_t(sizeof(typename arithmetic<T>::Sum)) : 0);
}

// type: 0 float, 1 bfloat16, 2 double
extern "C" int64_t workspace_bytes(const Problem *p, int type, int backward) {
    if (type == 2) return bytes_of<double>(*p, backward);
    return type ? bytes_of<bfloat16>(*p, backward) : bytes_of<float>(*p, backward);
}

extern "C" void attend(const Problem *p, int type, int backward) {
    if (type == 2) run<double>(*p, backward);
    else if (type == 1) run<bfloat16>(*p, backward);
    else run<float>(*p, backward);
}

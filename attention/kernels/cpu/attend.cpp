// Softmax attention whose heads may mix, on a CPU: forward and backward.
//
// Tasks share no sums, so the result doesn't depend on which thread does what. All sums are in float (double for
// double), whatever the inputs' type.

#include "task.h"

#include <omp.h>

template <class T> static int64_t thread_bytes(const Problem &problem, bool backward) {
    return Task<T>(problem, nullptr, backward).bytes;
}

// how many numbers a task sums gradients of keys and values in
template <class T> static int64_t slot_of(const Problem &problem) {
    const Task<T> task(problem, nullptr, true);
    return task.key_sums() + task.value_sums();
}

// where rows are divided into chunks, their sums are added up at the end
static int64_t tasks_of(const Problem &problem) { return problem.batch * problem.groups * problem.chunks; }
static int64_t slots_of(const Problem &problem) { return problem.chunks == 1 ? problem.threads : tasks_of(problem); }

template <class T> static void run(const Problem &problem, bool backward) {
    using Sum = typename arithmetic<T>::Sum;
    const int64_t bytes = thread_bytes<T>(problem, backward), slot = slot_of<T>(problem), tasks = tasks_of(problem);
    const int64_t groups = problem.groups, chunks = problem.chunks, threads = problem.threads;
    // numbers of the projections, 0 for one that is not there
    const int64_t P_l = problem.logits_projection ? problem.key_heads * problem.softmax_heads : 0;
    const int64_t P_w = problem.weights_projection ? problem.softmax_heads * problem.value_heads : 0;
    // heads of an example lie side by side in memory: they go to one thread where there are enough tasks
    const int64_t share = std::max<int64_t>(1, std::min(groups * chunks, tasks / (4 * threads)));
    char *workspace = static_cast<char *>(problem.workspace);
    Sum *all_sums = reinterpret_cast<Sum *>(workspace + threads * bytes);
#pragma omp parallel num_threads(int(threads))
    {
        const int64_t thread = omp_get_thread_num();
        Task<T> task(problem, workspace + thread * bytes, backward);
#pragma omp for schedule(dynamic, share)
        for (int64_t number = 0; number < tasks; number++) {
            const int64_t chunk = number % chunks, group = number / chunks;
            const int64_t begin = problem.queries * chunk / chunks, end = problem.queries * (chunk + 1) / chunks;
            Sum *grad_keys = all_sums + (chunks == 1 ? thread : number) * slot;
            Sum *grad_values = grad_keys + task.key_sums();
            // a projection has one group only: its tasks are the chunks of the examples
            Sum *grad_P_l = static_cast<Sum *>(problem.grad_logits_projection) + number * P_l;
            Sum *grad_P_w = static_cast<Sum *>(problem.grad_weights_projection) + number * P_w;
            task.choose(group / groups, group % groups);
            task.pack_memory(backward);
            if (backward) std::fill(grad_keys, grad_keys + slot, Sum(0));
            for (int64_t start = begin; start < end; start += task.tile) {
                const int64_t stop = std::min(end, start + task.tile);
                if (backward) task.backward(start, stop, grad_keys, grad_values, grad_P_l, grad_P_w);
                else task.forward(start, stop);
            }
            if (backward && chunks == 1) task.finish(grad_keys, grad_values);
        }
        if (backward && chunks > 1) {
#pragma omp for schedule(dynamic)
            for (int64_t group = 0; group < problem.batch * groups; group++) {
                Sum *sum = all_sums + group * chunks * slot;
                for (int64_t chunk = 1; chunk < chunks; chunk++)
                    for (int64_t i = 0; i < slot; i++) sum[i] += sum[chunk * slot + i];
                task.choose(group / groups, group % groups);
                task.finish(sum, sum + task.key_sums());
            }
        }
    }
}

template <class T> static int64_t bytes_of(const Problem &problem, bool backward) {
    return problem.threads * thread_bytes<T>(problem, backward) +
           (backward ? slots_of(problem) * slot_of<T>(problem) * int64_t(sizeof(typename arithmetic<T>::Sum)) : 0);
}

// type: 0 float, 1 bfloat16, 2 double
extern "C" int64_t workspace_bytes(const Problem *problem, int type, int backward) {
    if (type == 2) return bytes_of<double>(*problem, backward);
    return type ? bytes_of<bfloat16>(*problem, backward) : bytes_of<float>(*problem, backward);
}

extern "C" void attend(const Problem *problem, int type, int backward) {
    if (type == 2) run<double>(*problem, backward);
    else if (type == 1) run<bfloat16>(*problem, backward);
    else run<float>(*problem, backward);
}

// Softmax attention whose heads may mix, on a CPU: forward and backward.
//
// Every sum has one order, whichever thread adds to it. All sums are in float (double for double), whatever the inputs'
// type.

#include "tile.h"

#include <omp.h>
#include <vector>

// Tiles that threads work on together before they wait for each other. Whatever the threads, these tiles take at most
// so many times the bytes of the queries, keys and values, or are a single one.
constexpr int64_t TILES_PER_THREAD = 4, TILES_SHARE = 8;

// Who works where: each thread on groups of its own, then all together on the groups that are left, a few at a time
template <class T> struct Work {
    const Problem &problem;
    const bool backward;
    const int64_t groups, own;  // of all examples; how many of them are a thread's own
    std::vector<Memory<T>> memories;
    std::vector<Tile<T>> tiles;
    int64_t bytes;  // of workspace

    // without a workspace only its size is found out
    Work(const Problem &problem, bool backward, char *workspace)
        : problem(problem), backward(backward), groups(problem.batch * problem.groups), own(groups - problem.together) {
        Space space{nullptr};
        const Tile<T> one(problem, space, backward);
        const int64_t tile_bytes = space.next - static_cast<char *>(nullptr);
        int64_t memories_at_once = std::min(problem.threads, own), tiles_at_once = memories_at_once;
        if (problem.together) {
            const int64_t of_group = one.tiles_of_group(), wanted = problem.threads * (backward ? TILES_PER_THREAD : 1);
            const int64_t shared = std::min(problem.together, (problem.threads + of_group - 1) / of_group);
            const int64_t most = std::max<int64_t>(1, TILES_SHARE * input_bytes() / tile_bytes);
            memories_at_once = std::max(memories_at_once, shared);
            tiles_at_once = std::max(tiles_at_once, std::min({wanted, shared * of_group, most}));
        }
        space = {workspace};
        memories.reserve(memories_at_once), tiles.reserve(tiles_at_once);
        for (int64_t i = 0; i < memories_at_once; i++) memories.emplace_back(problem, space, backward);
        for (int64_t i = 0; i < tiles_at_once; i++) tiles.emplace_back(problem, space, backward);
        bytes = space.next - workspace;
    }

    int64_t input_bytes() const {
        const int64_t of_queries = problem.queries * problem.key_heads * problem.key_size;
        const int64_t of_memory = problem.memory * (problem.key_heads * problem.key_size +
                                                    problem.value_heads * problem.value_size);
        return problem.batch * (of_queries + of_memory) * int64_t(sizeof(T));
    }

    // one thread's part of the groups that are a thread's own
    void apart() {
        // heads of an example lie side by side in memory: they go to one thread where there are enough groups
        const int64_t share = std::max<int64_t>(1, std::min(problem.groups, own / (4 * problem.threads)));
#pragma omp for schedule(dynamic, share)
        for (int64_t group = 0; group < own; group++) {
            Memory<T> &memory = memories[omp_get_thread_num()];
            Tile<T> &tile = tiles[omp_get_thread_num()];
            memory.choose(group);
            for (int64_t part = 0; part < memory.parts(); part++) memory.pack(part);
            for (int64_t number = 0; number < tile.tiles_of_group(); number++) {
                tile.choose(memory, number);
                if (!backward) {
                    tile.forward();
                    continue;
                }
                tile.compute_used();
                for (int64_t head = 0; head < tile.value_heads; head++) tile.add_values(head, 0, problem.memory);
                tile.compute_gradients(memory.grad_P_l, memory.grad_P_w);
                for (int64_t head = 0; head < tile.key_heads; head++) tile.add_keys(head, 0, problem.memory);
            }
            for (int64_t part = 0; backward && part < memory.parts(); part++) memory.finish(part);
        }
    }

    // one thread's part of the groups that all share
    void together() {
        const int64_t at_once = memories.size(), parts = memories[0].parts(), of_group = tiles[0].tiles_of_group();
        for (int64_t first = own; first < groups; first += at_once) {
            const int64_t count = std::min(at_once, groups - first);
#pragma omp single
            for (int64_t group = 0; group < count; group++) memories[group].choose(first + group);
#pragma omp for collapse(2)
            for (int64_t group = 0; group < count; group++)
                for (int64_t part = 0; part < parts; part++) memories[group].pack(part);
            if (!backward) {
#pragma omp for schedule(dynamic)
                for (int64_t number = 0; number < count * of_group; number++) {
                    Tile<T> &tile = tiles[omp_get_thread_num()];
                    tile.choose(memories[number / of_group], number % of_group);
                    tile.forward();
                }
                continue;
            }
            for (int64_t begin = 0; begin < count * of_group; begin += tiles.size())
                step(begin, std::min<int64_t>(count * of_group, begin + tiles.size()), of_group);
#pragma omp for collapse(2)
            for (int64_t group = 0; group < count; group++)
                for (int64_t part = 0; part < parts; part++) memories[group].finish(part);
        }
    }

    // the backward of tiles [begin, end) of the groups that are packed, which have so many each
    void step(int64_t begin, int64_t end, int64_t of_group) {
#pragma omp for schedule(dynamic)
        for (int64_t number = begin; number < end; number++) {
            Tile<T> &tile = tiles[number - begin];
            tile.choose(memories[number / of_group], number % of_group);
            tile.compute_used();
        }
        add(begin, end, of_group, tiles[0].value_heads, &Tile<T>::add_values);
#pragma omp for schedule(dynamic)
        for (int64_t number = begin; number < end; number++) tiles[number - begin].compute_own_gradients();
#pragma omp single nowait
        for (int64_t number = begin; number < end; number++)
            memories[number / of_group].add_projections(tiles[number - begin].grad_P_l, tiles[number - begin].grad_P_w);
        add(begin, end, of_group, tiles[0].key_heads, &Tile<T>::add_keys);
    }

    // adds to the sums of each head, a block of the memory at a time, in the order of the tiles
    void add(int64_t begin, int64_t end, int64_t of_group, int64_t heads,
             void (Tile<T>::*add)(int64_t, int64_t, int64_t) const) const {
        const int64_t first = begin / of_group, last = (end - 1) / of_group;
        const int64_t blocks = (problem.memory + BLOCK - 1) / BLOCK;
#pragma omp for collapse(3) schedule(dynamic)
        for (int64_t group = first; group <= last; group++)
            for (int64_t head = 0; head < heads; head++)
                for (int64_t block = 0; block < blocks; block++)
                    for (int64_t number = std::max(begin, group * of_group);
                         number < std::min(end, (group + 1) * of_group); number++)
                        (tiles[number - begin].*add)(head, block * BLOCK, (block + 1) * BLOCK);
    }
};

template <class T> static int64_t bytes_of(const Problem &problem, bool backward) {
    return Work<T>(problem, backward, nullptr).bytes;
}

template <class T> static void run(const Problem &problem, bool backward) {
    Work<T> work(problem, backward, static_cast<char *>(problem.workspace));
    const int64_t most = backward && problem.together ? problem.threads : work.tiles.size();
#pragma omp parallel num_threads(int(std::min(problem.threads, most)))
    {
#pragma omp for
        for (size_t i = 0; i < work.tiles.size(); i++) work.tiles[i].pack_projections(backward);
        work.apart();
        work.together();
    }
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

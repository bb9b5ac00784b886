// Softmax attention on a CPU, forward and backward. The heads may mix.
//
// Each sum has a fixed order, whichever threads add to it. Sums are in double for inputs in double, else in float.

#include "tile.h"

#include <omp.h>
#include <vector>

// Threads that share groups work on some tiles at a time and then wait for each other. In the backward pass these are
// TILES_PER_THREAD tiles for each thread. Together they take at most TILE_BYTES_PER_INPUT_BYTE times the bytes of the
// queries, keys and values, unless a single tile takes more.
constexpr int64_t TILES_PER_THREAD = 4, TILE_BYTES_PER_INPUT_BYTE = 8;

// Which thread computes what: each thread first computes whole groups alone; then all share the groups that are left,
// a few at a time
template <class T> struct Schedule {
    const Problem &problem;
    const bool backward;
    const int64_t all_groups, own_groups;  // groups of all examples; how many of them are computed by one thread each
    std::vector<KeysValues<T>> packed_groups;
    std::vector<Tile<T>> tiles;
    int64_t workspace_size;  // bytes

    // with a workspace of nullptr, only its size is computed
    Schedule(const Problem &problem, bool backward, char *workspace)
        : problem(problem), backward(backward), all_groups(problem.batch * problem.groups),
          own_groups(all_groups - problem.shared_groups) {
        Arena arena{nullptr};
        const Tile<T> measured_tile(problem, arena, backward);
        const int64_t tile_bytes = arena.used;
        int64_t groups_at_once = std::min(problem.threads, own_groups), tiles_at_once = groups_at_once;
        if (problem.shared_groups) {
            const int64_t tiles_per_group = measured_tile.tiles_per_group(),
                          wanted_tiles = problem.threads * (backward ? TILES_PER_THREAD : 1);
            // one at a time if they add to the same gradient of a bias
            const int64_t max_groups = problem.examples_add_to_one_bias() ? 1 : problem.shared_groups;
            const int64_t groups_of_threads =
                std::min(max_groups, (problem.threads + tiles_per_group - 1) / tiles_per_group);
            const int64_t max_tiles = std::max<int64_t>(1, TILE_BYTES_PER_INPUT_BYTE * input_bytes() / tile_bytes);
            groups_at_once = std::max(groups_at_once, groups_of_threads);
            tiles_at_once =
                std::max(tiles_at_once, std::min({wanted_tiles, groups_of_threads * tiles_per_group, max_tiles}));
        }
        arena = {workspace};
        packed_groups.reserve(groups_at_once), tiles.reserve(tiles_at_once);
        for (int64_t i = 0; i < groups_at_once; i++) packed_groups.emplace_back(problem, arena, backward);
        for (int64_t i = 0; i < tiles_at_once; i++) tiles.emplace_back(problem, arena, backward);
        workspace_size = arena.used;
    }

    int64_t input_bytes() const {
        const int64_t query_numbers = problem.queries * problem.key_heads * problem.key_size;
        const int64_t memory_numbers =
            problem.memory * (problem.key_heads * problem.key_size + problem.value_heads * problem.value_size);
        return problem.batch * (query_numbers + memory_numbers) * int64_t(sizeof(T));
    }

    // computes this thread's part of the groups that one thread computes alone
    void run_own_groups() {
        if (problem.examples_add_to_one_bias()) {
            // one thread adds up the bias of a head, in the order of the examples
#pragma omp for schedule(dynamic)
            for (int64_t first = 0; first < std::min(problem.groups, own_groups); first++)
                for (int64_t group = first; group < own_groups; group += problem.groups) run_group(group);
            return;
        }
        // heads of an example lie side by side in memory, so they go to one thread if there are enough groups
        const int64_t groups_per_turn =
            std::max<int64_t>(1, std::min(problem.groups, own_groups / (4 * problem.threads)));
#pragma omp for schedule(dynamic, groups_per_turn)
        for (int64_t group = 0; group < own_groups; group++) run_group(group);
    }

    void run_group(int64_t group) {
        KeysValues<T> &keys_values = packed_groups[omp_get_thread_num()];
        Tile<T> &tile = tiles[omp_get_thread_num()];
        keys_values.select(group);
        for (int64_t head = 0; head < keys_values.key_and_value_heads(); head++) keys_values.pack(head);
        for (int64_t tile_index = 0; tile_index < tile.tiles_per_group(); tile_index++) {
            tile.select(keys_values, tile_index);
            if (!backward) {
                tile.forward();
                continue;
            }
            tile.compute_value_weights();
            for (int64_t head = 0; head < tile.value_heads; head++) tile.add_values(head, 0, problem.memory);
            tile.compute_gradients(keys_values.grad_P_l, keys_values.grad_P_w);
            for (int64_t head = 0; head < tile.key_heads; head++) tile.add_keys(head, 0, problem.memory);
        }
        for (int64_t head = 0; backward && head < keys_values.key_and_value_heads(); head++)
            keys_values.write_gradients(head);
    }

    // computes this thread's part of the groups that all threads share
    void run_shared_groups() {
        const int64_t groups_at_once = packed_groups.size(),
                      key_and_value_heads = packed_groups[0].key_and_value_heads(),
                      tiles_per_group = tiles[0].tiles_per_group();
        for (int64_t first = own_groups; first < all_groups; first += groups_at_once) {
            const int64_t group_count = std::min(groups_at_once, all_groups - first);
#pragma omp single
            for (int64_t group = 0; group < group_count; group++) packed_groups[group].select(first + group);
#pragma omp for collapse(2)
            for (int64_t group = 0; group < group_count; group++)
                for (int64_t head = 0; head < key_and_value_heads; head++) packed_groups[group].pack(head);
            if (!backward) {
#pragma omp for schedule(dynamic)
                for (int64_t tile_index = 0; tile_index < group_count * tiles_per_group; tile_index++) {
                    Tile<T> &tile = tiles[omp_get_thread_num()];
                    tile.select(packed_groups[tile_index / tiles_per_group], tile_index % tiles_per_group);
                    tile.forward();
                }
                continue;
            }
            for (int64_t begin = 0; begin < group_count * tiles_per_group; begin += tiles.size())
                backward_tiles(begin, std::min<int64_t>(group_count * tiles_per_group, begin + tiles.size()),
                               tiles_per_group);
#pragma omp for collapse(2)
            for (int64_t group = 0; group < group_count; group++)
                for (int64_t head = 0; head < key_and_value_heads; head++) packed_groups[group].write_gradients(head);
        }
    }

    // computes the backward pass of tiles [begin, end), counted over the packed groups of `tiles_per_group` tiles each
    void backward_tiles(int64_t begin, int64_t end, int64_t tiles_per_group) {
#pragma omp for schedule(dynamic)
        for (int64_t tile_index = begin; tile_index < end; tile_index++) {
            Tile<T> &tile = tiles[tile_index - begin];
            tile.select(packed_groups[tile_index / tiles_per_group], tile_index % tiles_per_group);
            tile.compute_value_weights();
        }
        add_gradients(begin, end, tiles_per_group, tiles[0].value_heads, &Tile<T>::add_values);
#pragma omp for schedule(dynamic)
        for (int64_t tile_index = begin; tile_index < end; tile_index++)
            tiles[tile_index - begin].compute_own_gradients();
#pragma omp single nowait
        for (int64_t tile_index = begin; tile_index < end; tile_index++)
            packed_groups[tile_index / tiles_per_group].add_projections(tiles[tile_index - begin].grad_P_l,
                                                                        tiles[tile_index - begin].grad_P_w);
        add_gradients(begin, end, tiles_per_group, tiles[0].key_heads, &Tile<T>::add_keys);
    }

    // adds the tiles' gradients to the sums of each head, in the order of the tiles; the threads divide the memory into
    // blocks
    void add_gradients(int64_t begin, int64_t end, int64_t tiles_per_group, int64_t heads,
                       void (Tile<T>::*add_head)(int64_t, int64_t, int64_t) const) const {
        const int64_t first = begin / tiles_per_group, last = (end - 1) / tiles_per_group;
        const int64_t blocks = (problem.memory + MEMORY_BLOCK - 1) / MEMORY_BLOCK;
#pragma omp for collapse(3) schedule(dynamic)
        for (int64_t group = first; group <= last; group++)
            for (int64_t head = 0; head < heads; head++)
                for (int64_t block = 0; block < blocks; block++)
                    for (int64_t tile_index = std::max(begin, group * tiles_per_group);
                         tile_index < std::min(end, (group + 1) * tiles_per_group); tile_index++)
                        (tiles[tile_index - begin].*add_head)(head, block * MEMORY_BLOCK, (block + 1) * MEMORY_BLOCK);
    }
};

template <class T> static int64_t workspace_size(const Problem &problem, bool backward) {
    return Schedule<T>(problem, backward, nullptr).workspace_size;
}

template <class T> static void run(const Problem &problem, bool backward) {
    Schedule<T> schedule(problem, backward, static_cast<char *>(problem.workspace));
    const int64_t max_tiles = backward && problem.shared_groups ? problem.threads : schedule.tiles.size();
#pragma omp parallel num_threads(int(std::min(problem.threads, max_tiles)))
    {
#pragma omp for
        for (size_t i = 0; i < schedule.tiles.size(); i++) schedule.tiles[i].pack_projections(backward);
        schedule.run_own_groups();
        schedule.run_shared_groups();
    }
}

// type: 0 float, 1 bfloat16, 2 double
extern "C" int64_t workspace_bytes(const Problem *problem, int type, int backward) {
    if (type == 2) return workspace_size<double>(*problem, backward);
    return type ? workspace_size<bfloat16>(*problem, backward) : workspace_size<float>(*problem, backward);
}

extern "C" void attend(const Problem *problem, int type, int backward) {
    if (type == 2) run<double>(*problem, backward);
    else if (type == 1) run<bfloat16>(*problem, backward);
    else run<float>(*problem, backward);
}

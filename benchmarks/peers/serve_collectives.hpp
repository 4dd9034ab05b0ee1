// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include <shardkit/rank/rank.hpp>

#include "../common/measure.hpp"
#include "console.hpp"

namespace benchmarks::peers {

/// f(V{}) with the struct of the verb's name.
/// @throws std::invalid_argument for another name
template <class F>
auto with_named_verb(const std::string& verb, F f) {
    if (verb == "all_reduce") { return f(AllReduce{}); }
    if (verb == "reduce_scatter") { return f(ReduceScatter{}); }
    if (verb == "all_gather") { return f(AllGather{}); }
    if (verb == "barrier") { return f(Barrier{}); }
    throw std::invalid_argument("verb '" + verb + "': expected all_reduce, reduce_scatter, all_gather or barrier");
}

/// The collective as this rank sees it: `bytes` of fp32 in all, rounded down to whole pieces.
template <class V>
Shape shape_of(const shardkit::Rank& rank, std::size_t bytes) {
    Shape shape;
    shape.rank = rank.rank();
    for (std::size_t r = 0; r < rank.world_size(); ++r) { shape.world_ranks.push_back(r); }
    shape.piece = bytes / sizeof(float) / V::pieces(shape.ranks());
    if (V::moves_data && shape.piece == 0) { throw std::invalid_argument("too few bytes for an element per rank"); }
    return shape;
}

/// The library's own collective, out of place.
inline std::unique_ptr<Workload> library_workload(shardkit::Rank& rank, const std::string& verb, std::size_t bytes) {
    return with_named_verb(verb, [&]<class V>(V) -> std::unique_ptr<Workload> {
        return std::make_unique<OutOfPlace<V, float>>(rank, rank.world(), shape_of<V>(rank, bytes));
    });
}

/// Measures collectives as the commands say, which every rank gets in turn from next():
///     prepare VARIANT VERB BYTES     buffers, a check of every element, warm-up: {"wrong": ...}
///     go VARIANT CALLS               back to back, of all ranks: {"seconds": ...}
///     quit, or the end of the input
/// `make(variant, verb, bytes)` gives a workload. Collective over the world.
template <class Next, class Make>
void serve_collectives(shardkit::Rank& rank, Next next, Make make) {
    constexpr std::size_t warm_up = 5;
    std::map<std::string, std::unique_ptr<Workload>> workloads;
    const auto reply = [&](const nlohmann::json& text) {
        if (rank.rank() == 0) { answer(text); }
    };
    for (Command command = next(); !command.empty() && command.front() != "quit"; command = next()) {
        if (command.front() == "prepare") {
            auto& workload = workloads[word_at(command, 1)];
            workload.reset();
            workload = make(command[1], word_at(command, 2), number_at(command, 3));
            const std::uint64_t wrong = wrong_values(rank, 1, *workload);
            workload->call(warm_up);
            reply({{"wrong", wrong}});
        } else if (command.front() == "go") {
            const auto found = workloads.find(word_at(command, 1));
            if (found == workloads.end()) { throw std::invalid_argument("'" + command[1] + "' was not prepared"); }
            const std::size_t calls = number_at(command, 2);
            found->second->call(std::min(calls, warm_up));  // the peer has had the processors
            reply({{"seconds", world_seconds_of(rank, [&] { found->second->call(calls); })}});
        } else {
            throw std::invalid_argument("command '" + command.front() + "': expected prepare, go or quit");
        }
    }
}

}  // namespace benchmarks::peers

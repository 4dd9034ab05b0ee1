// SPDX-License-Identifier: Apache-2.0
#include "theory.hpp"

namespace benchmarks::policies {

namespace {

void all_reduce(TheoryOfVerb& sum, double addends, double result, double ranks,
                const shardkit::EngineTraits& engine) {
    if (ranks < 2) { return; }
    const bool gathered = addends <= static_cast<double>(engine.gathered_all_reduce_addends) ||
                          addends * ranks <= static_cast<double>(engine.gathered_all_reduce_bytes);
    sum.calls += 1;
    sum.bytes += gathered ? addends * (ranks - 1) : (addends + result) * (ranks - 1) / ranks;
}

void add(TheoryOfVerb& sum, double calls, double bytes, double ranks) {
    if (ranks < 2) { return; }
    sum.calls += calls;
    sum.bytes += calls * bytes * (ranks - 1) / ranks;
}

}  // namespace

Theory theory(const Options& o, const program::MeshExtents& mesh, program::PolicyKind policy,
              const shardkit::EngineTraits& engine) {
    Theory made{};
    auto& [gathers, scatters, reductions] = made;
    // Also no_shard's buffers are padded for as many shards, whose norms it sums one by one.
    const std::size_t shards = policy == program::PolicyKind::hybrid_shard ? o.hybrid_group_of(mesh) : mesh.dp;
    const auto n = static_cast<double>(shards);
    const auto data_ranks = static_cast<double>(mesh.dp * mesh.cp);
    const auto m = static_cast<double>(o.microbatches);
    const auto element = static_cast<double>(o.element_size());
    const double sum = element < 4 ? 4 : element;
    const std::size_t unit = shards * 128 / o.element_size();
    for (const GroupSize& group : o.groups) {
        const std::size_t units = (group.numel + unit - 1) / unit;
        const auto padded = static_cast<double>(units * unit);
        const double bytes = padded * element;
        switch (policy) {
            case program::PolicyKind::no_shard:
                all_reduce(reductions, bytes, padded * sum, data_ranks, engine);
                continue;
            case program::PolicyKind::shard_optimizer:
                add(scatters, 1, bytes, n);
                add(gathers, 1, bytes, n);
                break;
            case program::PolicyKind::shard_grad_op:
                add(scatters, m, bytes, n);
                add(gathers, 1, bytes, n);
                break;
            case program::PolicyKind::full_shard:
            case program::PolicyKind::hybrid_shard:
                add(scatters, m, bytes, n);
                add(gathers, 2 * m, bytes, n);
                break;
        }
        all_reduce(reductions, padded * sum / n, padded * sum / n, data_ranks / n, engine);
    }
    all_reduce(reductions, 16 * n, 16 * n, static_cast<double>(mesh.world()), engine);
    return made;
}

}  // namespace benchmarks::policies

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/param/tensor_part.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/slices.hpp>
#include <shardkit/verify/hash_values.hpp>
#include <shardkit/verify/verify_replicas.hpp>

/// A model of a dense group and a group of experts, whose gradients follow from the slice of the batch that a rank
/// takes. With slices, it has the same bits on every mesh.
namespace experts_training {

namespace sk = shardkit;

struct Router : sk::Param<"router", float, 4, 9> {};
struct Norm : sk::Param<"norm", float, 13> {};
struct Up : sk::Param<"up", float, 4, 6, 5>, sk::ep::Split, sk::tp::Split<1> {};
struct Down : sk::Param<"down", float, 4, 3, 10>, sk::ep::Split, sk::tp::Split<2> {};
struct Bias : sk::Param<"bias", float, 4, 3>, sk::ep::Split {};
struct Fixed : sk::Param<"fixed", float, 4, 2>, sk::ep::Split, sk::Frozen {};
using Dense = sk::Params<Router, Norm>;
using Experts = sk::Params<Up, Down, Bias, Fixed>;

inline constexpr std::size_t steps = 2;

/// The gradient of one slice, over many magnitudes: in another order sums have other bits. An expert that none of a
/// slice's tokens goes to has none.
constexpr float given(std::size_t slice, std::size_t step, std::size_t parameter, std::size_t i) {
    std::uint64_t x = ((slice * 8 + step) * 8 + parameter) * 4096 + i + 1;
    for (int round = 0; round < 3; ++round) { x = (x ^ x >> 29U) * 0xbf58476d1ce4e5b9ULL; }
    return (static_cast<float>(x >> 40U) / 16777216.0F - 0.5F) * static_cast<float>(1U << (x & 15U));
}
/// Adds the sum of given(slices[0]), ... along a tree to a tensor that may lie in a device's memory.
struct AddSlices {
    static constexpr std::size_t most = 8;

    float* to;
    sk::TensorPart part;
    std::size_t parameter;
    std::size_t step;
    std::array<std::size_t, most> slices{};
    std::size_t count = 0;

    constexpr float tree(std::size_t first, std::size_t slice_count, std::size_t i) const {
        if (slice_count == 1) { return given(slices[first], step, parameter, i); }
        return tree(first, slice_count / 2, i) + tree(first + slice_count / 2, slice_count / 2, i);
    }
    constexpr void operator()() const {
        for (std::size_t i = 0; i < part.numel(); ++i) { to[i] += tree(0, count, part.whole_index(i)); }
    }
};

struct Training {
    using DenseLayer = sk::Sharded<Dense, sk::DynamicPolicy>;
    using ExpertLayer = sk::Sharded<Experts, sk::DynamicPolicy>;

    Training(sk::Rank& its_rank, const sk::DynamicPolicy& of_dense, const sk::DynamicPolicy& of_experts)
        : rank(its_rank),
          dense(rank, "dense", {}, {of_dense}),
          experts(rank, "experts", {}, {of_experts}),
          model(dense, experts),
          optimizer(model, {.learning_rate = 0.125}) {
        const auto value = [](std::string_view path, std::string_view name, std::uint64_t i) {
            return static_cast<double>((i * 37 + name.size() * 11 + path.size()) % 101) / 64 - 0.75;
        };
        dense.initialize(value);
        experts.initialize(value);
    }

    /// Writes what the given slices add to a layer's gradient, or to each of those that are kept apart.
    template <class Gradients>
    void write(const Gradients& gradients, const auto& geometry, std::size_t first_number,
               const std::vector<std::size_t>& slices, std::size_t step) {
        for (std::size_t p = 0; p < geometry.parameters.size(); ++p) {
            const std::size_t together = slices.size() / gradients.sources();
            for (std::size_t source = 0; source < gradients.sources(); ++source) {
                const auto view = gradients.of_source(source, p);
                if (view.size() == 0) { continue; }
                AddSlices add{view.data(), geometry.parameters[p].part, first_number + p, step};
                while (add.count < together) {
                    add.slices.at(add.count) = slices[source * together + add.count];
                    ++add.count;
                }
                sk::host::AnyKernels::run_once(rank.compute_stream(), add);
            }
        }
    }
    double step(std::size_t number) {
        const sk::SliceOrder order = sk::slice_order(model);
        sk::Accumulation accumulation{model, order.microbatches()};
        const auto& of_experts = sk::spi::group(experts).geometry();
        const auto& of_dense = sk::spi::group(dense).geometry();
        for (std::size_t m = 0; m < order.microbatches(); ++m) {
            // The tokens of all ranks that share experts come here.
            std::vector<std::size_t> sources;
            const std::size_t first = of_experts.data_index() - of_experts.ep_index;
            for (std::size_t e = 0; e < of_experts.ep; ++e) { sources.push_back(slice_of(order, first + e, m)); }
            auto window = experts.unshard();
            auto of_e = accumulation.gradients(experts);
            static_assert(std::is_same_v<typename decltype(of_e)::owed, sk::Axes<sk::DpReplicate, sk::EpDp>>);
            write(of_e, of_experts, 2, sources, number);
            accumulation.add(std::move(of_e));
            experts.reshard(std::move(window));
            dense.reshard(dense.unshard());
            auto of_d = accumulation.gradients(dense);
            static_assert(std::is_same_v<typename decltype(of_d)::owed, sk::DataAxes>);
            write(of_d, of_dense, 0, {slice_of(model, m)}, number);
            accumulation.add(std::move(of_d));
        }
        return optimizer.step(std::move(accumulation), {.divisor = sk::mean, .max_norm = 1}).value();
    }

    sk::Rank& rank;
    DenseLayer dense;
    ExpertLayer experts;
    decltype(sk::Model{std::declval<DenseLayer&>(), std::declval<ExpertLayer&>()}) model;
    decltype(sk::AdamW{model}) optimizer;
};

/// What a rank finds at the end, which is the same on all.
struct Trained {
    std::vector<double> norms;
    std::vector<sk::ValuesHash> hashes;
    std::vector<float> values;
    bool operator==(const Trained&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Trained& trained) {
    out.precision(17);
    for (const double norm : trained.norms) { out << norm << ' '; }
    for (const auto& hash : trained.hashes) { out << hash.path << ' ' << hash.kind << ' ' << hash.hash << ' '; }
    return out;
}

inline Trained train_on(sk::Rank& rank, const sk::DynamicPolicy& dense, const sk::DynamicPolicy& experts) {
    Training training(rank, dense, experts);
    Trained mine;
    for (std::size_t step = 0; step < steps; ++step) {
        mine.norms.push_back(training.step(step));
        sk::verify_replicas(training.model, training.optimizer);
    }
    mine.hashes = sk::hash_values(training.model);
    for (auto& hash : sk::hash_values(training.optimizer)) { mine.hashes.push_back(hash); }
    for (const auto& parameter : training.experts.parameters()) {
        std::vector<float> values(parameter.shape.numel());
        training.experts.read_full(parameter.name, values);
        mine.values.insert(mine.values.end(), values.begin(), values.end());
    }
    return mine;
}

using Mesh = sk::ExpertMesh<sk::DeviceMesh<sk::dynamic, sk::dynamic, 1>>;

inline Trained train(const Mesh& mesh, const sk::DynamicPolicy& dense, const sk::DynamicPolicy& experts) {
    std::vector<Trained> all(mesh.size());
    sk::threads::run(mesh, [&](auto& rank) { all[rank.rank()] = train_on(rank, dense, experts); });
    for (const Trained& each : all) { CHECK(each == all[0]); }
    return all[0];
}

/// f(policy) for each that dp ranks take, with slices.
template <class F>
void for_each_policy(const sk::Slices& cut, std::size_t dp, const F& f) {
    f(sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{cut}));
    f(sk::DynamicPolicy(sk::TreeSums<sk::ShardOptimizer>{cut}));
    f(sk::DynamicPolicy(sk::TreeSums<sk::ShardGradOp>{cut}));
    f(sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{cut}));
    if (dp < 4) { return; }
    using Hybrid = sk::HybridShard<sk::dynamic>;
    using HybridOptimizer = sk::HybridOptimizer<sk::dynamic>;
    using SecondaryShard = sk::SecondaryShard<sk::dynamic>;
    f(sk::DynamicPolicy(sk::TreeSums<Hybrid>{cut, Hybrid{dp / 2}}));
    f(sk::DynamicPolicy(sk::TreeSums<HybridOptimizer>{cut, HybridOptimizer{dp / 2}}));
    f(sk::DynamicPolicy(sk::TreeSums<SecondaryShard>{cut, SecondaryShard{dp / 2}}));
}

}  // namespace experts_training

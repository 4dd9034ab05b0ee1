// SPDX-License-Identifier: Apache-2.0
// Parameters that tp splits or holds in part: values, shards, norms and training are those of one rank.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "largest_difference.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace tensor_parallel_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
const sk::DynamicPolicy full_shard(sk::FullShard{});

// A column-parallel layer, a row-parallel one, and what sequence parallelism computes in part.
struct Up : sk::Param<"up", double, sk::dynamic, 5> {
    using TensorParallel = sk::tp::Split<0>;
};
struct UpBias : sk::Param<"up_bias", double, sk::dynamic> {
    using TensorParallel = sk::tp::Split<0>;
};
struct Down : sk::Param<"down", double, 5, sk::dynamic> {
    using TensorParallel = sk::tp::Split<1>;
};
struct Kernel : sk::Param<"kernel", double, 3, sk::dynamic, 2> {
    using TensorParallel = sk::tp::Split<1>;
};
struct DownBias : sk::Param<"down_bias", double, 5> {
    using TensorParallel = sk::tp::PartialSum;
};
struct Norm : sk::Param<"norm", double, 5> {
    using TensorParallel = sk::tp::PartialSum;
};
struct Scale : sk::Param<"scale", double, 3> {
    using TensorParallel = sk::tp::Replicated;
};
struct Shift : sk::Param<"shift", double> {};
using Block = sk::Params<Up, UpBias, Scale, Down, DownBias, Norm, Kernel, Shift>;

constexpr std::size_t hidden = 12;
sk::Shapes<Block> shapes() {
    return {sk::shape<Up>(hidden, 5U), sk::shape<UpBias>(hidden), sk::shape<Down>(5U, hidden),
            sk::shape<Kernel>(3U, hidden, 2U)};
}

double first_value(std::string_view path, std::string_view name, std::uint64_t i) {
    return std::sin(0.7 * static_cast<double>(i) + static_cast<double>(name.size()) +
                    static_cast<double>(path.back() % 5));
}

/// Calls f(parameter, its number) for every parameter of Block.
template <class F>
void for_each_parameter(F f) {
    [&]<std::size_t... P>(std::index_sequence<P...>) { (f(typename Block::template At<P>{}, P), ...); }
    (std::make_index_sequence<Block::count>{});
}

using Tensors = std::vector<std::vector<double>>;

template <class Layer>
Tensors read(Layer& layer) {
    Tensors all(Block::count);
    for_each_parameter([&](auto parameter, std::size_t p) {
        all[p].resize(shapes()[p].numel());
        layer.read_full(parameter, std::span(all[p]));
    });
    return all;
}

/// Where element `i` of what this rank holds of a parameter lies in the whole tensor, by counting: the test's own.
std::size_t whole_index(std::size_t p, std::size_t i, std::size_t tp, std::size_t tp_index) {
    const sk::TensorShape whole = shapes()[p];
    const sk::TpPlacement placement = Block::attributes[p].tp;
    if (placement.kind != sk::TpPlacement::Kind::split) { return i; }
    const std::size_t extent = whole.extents[placement.dimension];
    std::size_t inner = 1;
    for (std::size_t d = placement.dimension + 1; d < whole.rank; ++d) { inner *= whole.extents[d]; }
    std::size_t seen = 0;
    for (std::size_t w = 0; w < whole.numel(); ++w) {
        const std::size_t coordinate = w / inner % extent;
        if (coordinate * tp / extent != tp_index) { continue; }
        if (seen++ == i) { return w; }
    }
    return whole.numel();
}

enum class Rule : std::uint8_t { sgd, adamw };

struct Outcome {
    std::vector<double> norms;
    Tensors parameters;
    Tensors gradient;
};

/// Some steps of training; every rank of tp computes the gradient that its placement says of its part. Batch and
/// sequence are one list of samples, which the data ranks share out.
std::vector<Outcome> train(Mesh mesh, const sk::DynamicPolicy& policy, Rule rule) {
    constexpr std::size_t steps = 4;
    constexpr std::size_t samples = 12;
    constexpr std::size_t microbatches = 2;
    std::vector<Outcome> outcomes(mesh.size());
    sk::threads::run(mesh, [&](auto& rank) {
        using Layer = sk::Sharded<Block, sk::DynamicPolicy>;
        std::vector<Layer> layers;
        for (const char* path : {"blocks.0", "blocks.1"}) {
            layers.emplace_back(rank, path, shapes(), typename Layer::Options{policy});
            layers.back().initialize(first_value);
        }
        sk::Model model{layers};
        sk::SGD sgd{model, {.learning_rate = 0.5, .rule = sk::Momentum::classical, .momentum = 0.9}};
        sk::AdamW adamw{model, {.learning_rate = 0.125}};
        const sk::AxisGrid grid = rank.grid();
        const std::size_t tp = grid.extent("tp");
        const std::size_t tp_index = grid.coordinate("tp", rank.rank());
        const std::size_t data_ranks = grid.extent("dp") * grid.extent("cp");
        const std::size_t data_rank =
            grid.coordinate("dp", rank.rank()) * grid.extent("cp") + grid.coordinate("cp", rank.rank());
        Outcome& outcome = outcomes[rank.rank()];
        for (std::size_t step = 0; step < steps; ++step) {
            sk::Accumulation accumulation{model, microbatches};
            for (std::size_t m = 0; m < microbatches; ++m) {
                for (Layer& layer : layers) {
                    auto window = layer.unshard();
                    auto handle = accumulation.gradients(layer);
                    for_each_parameter([&](auto parameter, std::size_t p) {
                        const auto value = window[parameter];
                        const auto gradient = handle[parameter];
                        const bool partial = Block::attributes[p].tp.kind == sk::TpPlacement::Kind::partial_sum;
                        for (std::size_t i = 0; i < gradient.size(); ++i) {
                            const std::size_t w = whole_index(p, i, tp, tp_index);
                            for (std::size_t s = 0; s < samples; ++s) {
                                if (s % data_ranks != data_rank || s / data_ranks % microbatches != m) { continue; }
                                const double whole = std::cos(value[i] + 0.3 * static_cast<double>(w + s * p + step));
                                // Addends of all ranks of tp: 1, 3, 5, ... of tp * tp parts.
                                const double share =
                                    static_cast<double>(2 * tp_index + 1) / static_cast<double>(tp * tp);
                                gradient[i] += partial ? whole * share : whole;
                            }
                        }
                    });
                    layer.reshard(std::move(window));
                    accumulation.add(std::move(handle));
                }
            }
            auto reduced = sk::reduce(std::move(accumulation), sk::divide_by(static_cast<double>(samples)));
            const auto norm = sk::global_norm(reduced);
            outcome.norms.push_back(norm.value());
            if (step + 1 == steps) {
                outcome.gradient.resize(Block::count);
                for_each_parameter([&](auto parameter, std::size_t p) {
                    outcome.gradient[p].resize(shapes()[p].numel());
                    reduced.read_full(layers[1], parameter, std::span(outcome.gradient[p]));
                });
            }
            if (rule == Rule::sgd) {
                sgd.step(std::move(reduced), sk::clip(norm, 0.5));
            } else {
                adamw.step(std::move(reduced), sk::clip(norm, 0.5));
            }
        }
        outcome.parameters = read(layers[0]);
    });
    return outcomes;
}

void check_training(const Outcome& one, Rule rule, const sk::DynamicPolicy& policy) {
    CAPTURE(policy.name());
    for (const Mesh mesh : {Mesh(1, 2, 1), Mesh(2, 2, 1), Mesh(3, 2, 1), Mesh(1, 4, 1), Mesh(1, 3, 2), Mesh(2, 2, 2),
                            Mesh(2, 1, 1), Mesh(4, 2, 1)}) {
        if (mesh.grid().extent("dp") % policy.shard_group(mesh.grid().extent("dp")) != 0) { continue; }
        CAPTURE(mesh.describe());
        for (const Outcome& each : train(mesh, policy, rule)) {
            CHECK(largest_difference(each.norms, one.norms) <= 1e-12);
            for (std::size_t p = 0; p < Block::count; ++p) {
                CAPTURE(Block::names[p]);
                CHECK(largest_difference(each.parameters[p], one.parameters[p]) <= 1e-12);
                CHECK(largest_difference(each.gradient[p], one.gradient[p]) <= 1e-12);
            }
        }
    }
}

void check_all_policies(Rule rule) {
    const Outcome one = train(Mesh(1, 1, 1), sk::DynamicPolicy(sk::NoShard{}), rule)[0];
    REQUIRE(one.norms.front() > 0.5);  // it clips
    check_training(one, rule, sk::DynamicPolicy(sk::NoShard{}));
    check_training(one, rule, sk::DynamicPolicy(sk::ShardOptimizer{}));
    check_training(one, rule, sk::DynamicPolicy(sk::ShardGradOp{}));
    check_training(one, rule, sk::DynamicPolicy(sk::FullShard{}));
    check_training(one, rule, sk::DynamicPolicy(sk::HybridShard<2>{}));
}

}  // namespace

TEST_CASE("tp: a rank holds its part of what tp splits, and all of the rest") {
    for (const std::size_t tp : {1U, 2U, 3U, 4U}) {
        CAPTURE(tp);
        sk::threads::run(Mesh(2, tp, 1), [&](auto& rank) {
            sk::Sharded<Block, sk::DynamicPolicy> layer(rank, "blocks.0", shapes(), {full_shard});
            layer.initialize(first_value);
            const std::size_t tp_index = rank.grid().coordinate("tp", rank.rank());
            const auto window = layer.unshard();
            CHECK(window[Up{}].extent(0) == hidden / tp);
            CHECK(window[Down{}].extent(1) == hidden / tp);
            CHECK(window[Norm{}].size() == 5);
            for_each_parameter([&](auto parameter, std::size_t p) {
                const auto view = window[parameter];
                for (std::size_t i = 0; i < view.size(); ++i) {
                    CHECK(view[i] == first_value("blocks.0", Block::names[p], whole_index(p, i, tp, tp_index)));
                }
            });
        });
    }
}

TEST_CASE("tp: whole tensors are loaded and read back") {
    Tensors values(Block::count);
    for (std::size_t p = 0; p < Block::count; ++p) {
        for (std::size_t i = 0; i < shapes()[p].numel(); ++i) {
            values[p].push_back(static_cast<double>(p) + static_cast<double>(i) / 128);
        }
    }
    for (const Mesh mesh : {Mesh(1, 1, 1), Mesh(1, 4, 1), Mesh(3, 2, 1), Mesh(2, 3, 2)}) {
        sk::threads::run(mesh, [&](auto& rank) {
            sk::Sharded<Block, sk::DynamicPolicy> layer(rank, "blocks.0", shapes(),
                                                        {sk::DynamicPolicy(sk::ShardOptimizer{})});
            for_each_parameter(
                [&](auto parameter, std::size_t p) { layer.load(parameter, std::span<const double>(values[p])); });
            CHECK(read(layer) == values);
            std::vector<double> on_one(rank.rank() == 1 ? 5 * hidden : 0);
            if (rank.world_size() > 1) {
                layer.read_full_on(1, Down{}, std::span(on_one));
                if (rank.rank() == 1) { CHECK(on_one == values[Block::index<Down>]); }
            }
            std::vector<double> part(5 * hidden / 2);
            CHECK_THROWS_WITH_AS(layer.load(Up{}, std::span<const double>(part)),
                                 doctest::Contains("'blocks.0' parameter 'up': load with 30 elements, expected 60"),
                                 std::invalid_argument);
        });
    }
}

TEST_CASE("tp: over all ranks the runs of replica 0 cover each element of each whole tensor once") {
    for (const Mesh mesh : {Mesh(1, 1, 1), Mesh(2, 2, 1), Mesh(3, 4, 1), Mesh(2, 3, 2)}) {
        CAPTURE(mesh.describe());
        std::vector<std::vector<sk::ShardInfo>> listed(mesh.size());
        std::vector<std::vector<std::vector<double>>> held(mesh.size());
        sk::threads::run(mesh, [&](auto& rank) {
            sk::Sharded<Block, sk::DynamicPolicy> layer(rank, "blocks.0", shapes(), {full_shard});
            layer.initialize(first_value);
            sk::Model model{layer};
            sk::AdamW optimizer{model};
            listed[rank.rank()] = layer.shards();
            for (const auto& info : optimizer.shards()) { listed[rank.rank()].push_back(info); }
            for (const auto& info : listed[rank.rank()]) {
                const auto* const data = static_cast<const double*>(info.data);
                held[rank.rank()].emplace_back(data, data + info.range.size());
            }
        });
        std::map<std::pair<std::string, std::string>, std::vector<int>> count;
        for (std::size_t r = 0; r < mesh.size(); ++r) {
            for (std::size_t k = 0; k < listed[r].size(); ++k) {
                const sk::ShardInfo& info = listed[r][k];
                std::size_t seen = 0;
                for (const sk::layout::Box& box : info.boxes) {
                    std::array<std::size_t, sk::TensorShape::max_rank> at{};
                    for (std::size_t i = 0; i < box.range.size(); ++i, ++seen) {
                        std::size_t w = 0;
                        for (std::size_t d = 0; d < box.rank; ++d) {
                            w = w * info.shape.extents[d] + box.offsets[d] + at[d];
                        }
                        if (info.kind == "parameter") {
                            REQUIRE(held[r][k][seen] == first_value("blocks.0", info.parameter, w));
                        }
                        auto& tensor = count[{std::string(info.kind), std::string(info.parameter)}];
                        tensor.resize(info.shape.numel());
                        if (info.replica == 0) { ++tensor[w]; }
                        for (std::size_t d = box.rank; d-- > 0;) {
                            if (++at[d] < box.extents[d]) { break; }
                            at[d] = 0;
                        }
                    }
                }
                CHECK(seen == info.range.size());
            }
        }
        REQUIRE(count.size() == 3 * Block::count);  // parameters and two states of AdamW
        for (const auto& each : count) {
            CAPTURE(each.first.first);
            CAPTURE(each.first.second);
            for (const int n : each.second) { REQUIRE(n == 1); }
        }
    }
}

TEST_CASE("tp: every policy trains as one rank does, in fp64 to 1e-12") {
    SUBCASE("SGD") { check_all_policies(Rule::sgd); }
    SUBCASE("AdamW") { check_all_policies(Rule::adamw); }
}

TEST_CASE("tp: an extent that tp does not divide is refused by name") {
    sk::threads::run(Mesh(1, 5, 1), [](auto& rank) {
        using Layer = sk::Sharded<Block, sk::NoShard>;
        CHECK_INVALID_ARGUMENT(Layer(rank, "blocks.0", shapes()),
                               "'blocks.0' parameter 'up' of shape [12, 5] is split along dimension 0 over tp = 5, "
                               "expected an extent that 5 divides; rows of padding need not be in files: "
                               "checkpoint::StoredAs::padding_rows");
    });
    CHECK_THROWS_AS(
        static_cast<void>(sk::describe_group<Block, sk::NoShard>("blocks.0", shapes(), Mesh(1, 8, 1).grid())),
        std::invalid_argument);
}

TEST_CASE("tp: what is planned is what is measured: bytes, calls, and memory of a part") {
    const auto check = [](const sk::DynamicPolicy& policy) {
        CAPTURE(policy.name());
        for (const Mesh mesh : {Mesh(2, 2, 1), Mesh(1, 3, 1), Mesh(3, 4, 1), Mesh(1, 1, 1)}) {
            CAPTURE(mesh.describe());
            std::vector<sk::TrafficLog::Entry> measured(mesh.size());
            sk::Plan planned;
            sk::threads::run(mesh, [&](auto& rank) {
                sk::Sharded<Block, sk::DynamicPolicy> layer(rank, "blocks.0", shapes(), {policy});
                sk::Model model{layer};
                sk::SGD optimizer{model, {.learning_rate = 1}};
                rank.traffic().clear();
                sk::Accumulation accumulation{model};
                accumulation.add_zero(layer);
                optimizer.step(sk::reduce(std::move(accumulation), sk::sum));
                for (const auto& entry : rank.traffic().entries()) {
                    if (entry.axes == "tp") { measured[rank.rank()] = entry; }
                }
                if (rank.rank() == 0) { planned = sk::plan(model, {.norms_per_step = 0}); }
            });
            // down_bias and norm: 16 and 5 elements of 8 bytes, aligned, one behind the other.
            const auto row = planned.traffic(sk::Verb::all_reduce, "tp");
            std::uint64_t calls = 0;
            std::uint64_t payload = 0;
            std::uint64_t moved = 0;
            for (const auto& entry : measured) {
                calls += entry.calls;
                payload += entry.payload.value;
                moved += entry.moved.value;
            }
            const std::size_t holders =
                policy.values().gradients == sk::Placement::sharded ? 1 : mesh.grid().extent("dp");
            CHECK(payload == (mesh.grid().extent("tp") == 1 ? 0 : 21 * 8 * mesh.grid().extent("tp") * holders));
            CHECK(std::abs(static_cast<double>(row.payload.value) -
                           static_cast<double>(payload) / static_cast<double>(mesh.size())) <= 1);
            CHECK(std::abs(static_cast<double>(row.moved.value) -
                           static_cast<double>(moved) / static_cast<double>(mesh.size())) <= 1);
            CHECK(std::abs(static_cast<double>(row.calls) -
                           static_cast<double>(calls) / static_cast<double>(mesh.size())) <= 0.5);
            CHECK(planned.numel == 12 * 5 + 12 + 3 + 5 * 12 + 5 + 5 + 3 * 12 * 2 + 1);
        }
    };
    check(sk::DynamicPolicy(sk::NoShard{}));
    check(sk::DynamicPolicy(sk::FullShard{}));
    const auto at = [](std::size_t tp) {
        const sk::AxisGrid grid = Mesh(1, tp, 1).grid();
        return sk::describe_group<Up, sk::NoShard>("up", sk::Shapes<sk::Params<Up>>{sk::shape<Up>(1024U, 5U)}, grid);
    };
    CHECK(at(1).buffer_numel == 5120);
    CHECK(at(4).buffer_numel == 1280);
    CHECK(at(4).numel == 5120);
}

}  // namespace tensor_parallel_test

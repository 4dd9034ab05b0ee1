// SPDX-License-Identifier: Apache-2.0
// Gradients that the backward pass overwrites are not zeroed: the bits are those of zeroed ones, and what lies
// between parameters is zero all the same.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/follow/follow.hpp>
#include <shardkit/follow/record.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/plan/plan.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/schedule/scheduled_plan.hpp>
#include <shardkit/schedule/simulate.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/slices.hpp>

#include "unit/sharded/chosen.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace overwritten_test {

namespace {

template <class P>
using Layer = sk::Sharded<sk::TensorList<typename P::Gather>, sk::DynamicPolicy, P>;

/// A bias that is added to stands between two matrices that are overwritten, and a frozen one behind them.
template <class P>
sk::TensorList<typename P::Gather> tensors(bool overwritten) {
    return {{"up", {33, 7}, {.overwritten = overwritten}},
            {"bias", {9}},
            {"down", {7, 5}, {.overwritten = overwritten}},
            {"table", {3}, {.frozen = true, .overwritten = overwritten}}};
}

/// One microbatch of one layer. `other` is what the backward pass finds where it overwrites, unless it is empty.
template <class P>
void add(sk::Accumulation& accumulation, Layer<P>& layer, std::size_t rank, bool& overwrote) {
    using Gradient = typename P::Gradient;
    const auto window = layer.unshard();
    auto handle = accumulation.gradients(layer);
    for (const char* const name : {"up", "bias", "down"}) {
        const bool overwrites = handle.overwrites(name);
        overwrote = overwrote || overwrites;
        CHECK((name != std::string("bias") || !overwrites));
        const auto values = window.view(name);
        const auto gradients = handle.view(name);
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            const float value = static_cast<float>(values.data()[i]) * static_cast<float>(rank + 1) +
                                0.1F * static_cast<float>(i % 5) - 0.3F;
            const float before = overwrites ? 0 : static_cast<float>(gradients.data()[i]);
            gradients.data()[i] = static_cast<Gradient>(before + value);
        }
    }
    CHECK(!handle.overwrites("table"));
    accumulation.add(std::move(handle));
}

/// What every rank holds after three steps of three like layers, which take turns in buffers where the policy leases
/// them. In the second step rank 0 does not use the first layer in the last microbatch.
template <class P>
std::vector<double> train(std::size_t ranks, const sk::DynamicPolicy& policy, std::size_t microbatches,
                          bool overwritten, bool scheduled = false) {
    std::vector<std::vector<double>> held(ranks);
    sk::threads::run(
        sk::DeviceMesh{ranks},
        [&](auto& rank) {
            std::vector<Layer<P>> layers;
            for (std::size_t l = 0; l < 3; ++l) {
                layers.emplace_back(rank, "layers." + std::to_string(l), tensors<P>(overwritten),
                                    typename Layer<P>::Options{policy});
                layers.back().initialize(
                    [l](auto, auto, std::uint64_t i) { return 0.0625 * static_cast<double>((i + 3 * l) % 17); });
            }
            sk::Model model{layers};
            sk::AdamW optimizer{model, {.learning_rate = 0.1}};
            bool overwrote = false;
            const auto step = [&](int number) {
                sk::Accumulation accumulation{model, microbatches};
                for (std::size_t m = 0; m < microbatches; ++m) {
                    for (std::size_t l = layers.size(); l-- > 0;) {
                        if (number == 1 && l == 0 && m + 1 == microbatches && rank.rank() == 0) {
                            const auto window = layers[l].unshard();
                            accumulation.add_zero(layers[l]);
                        } else {
                            add<P>(accumulation, layers[l], rank.rank(), overwrote);
                        }
                    }
                }
                optimizer.step(std::move(accumulation), {.divisor = sk::mean, .max_norm = 3});
            };
            std::optional<sk::schedule::Following> following;
            step(0);
            if (scheduled) {
                const sk::Schedule recorded = sk::schedule::record(model, [&] { step(1); });
                following.emplace(sk::schedule::follow(
                    model, sk::schedule::overlap_reductions(recorded, sk::describe_groups(model))));
            } else {
                step(1);
            }
            step(2);
            CHECK(overwrote == overwritten);
            following.reset();
            for (auto& layer : layers) {
                sk::read_shards(layer, [&](auto run) {
                    for (const auto value : run.values) {
                        held[rank.rank()].push_back(static_cast<double>(static_cast<float>(value)));
                    }
                });
            }
        },
        sk::RankOptions{.in_flight = 2});
    std::vector<double> all;
    for (const auto& each : held) { all.insert(all.end(), each.begin(), each.end()); }
    return all;
}

const std::vector<sk::DynamicPolicy> policies{toy::chosen(sk::NoShard{}), toy::chosen(sk::ShardOptimizer{}),
                                              toy::chosen(sk::ShardGradOp{}), toy::chosen(sk::FullShard{}),
                                              toy::chosen(sk::HybridShard<2>{})};

struct Weight : sk::Param<"weight", float, 5, 3>, sk::OverwrittenGradient {};
struct Bias : sk::Param<"bias", float, 5> {};
struct Head : sk::Alias<"head", Weight> {};
using Linear = sk::Params<Weight, Bias>;
using Tied = sk::Params<Weight, Bias, Head>;

}  // namespace

TEST_CASE(
    "the bits are those of zeroed gradients, for every policy, precision, number of ranks and of microbatches") {
    for (const std::size_t ranks : {1U, 2U, 4U}) {
        for (const sk::DynamicPolicy& policy : policies) {
            if (ranks == 1 && policy.values(2).name == sk::HybridShard<2>::name) { continue; }
            for (const std::size_t microbatches : {1U, 3U}) {
                CAPTURE(ranks);
                CAPTURE(policy.values(ranks).name);
                CAPTURE(microbatches);
                using Mixed = sk::Precision<sk::bf16, float, sk::bf16, float>;
                const auto zeroed = train<sk::Precision<float>>(ranks, policy, microbatches, false);
                CHECK(train<sk::Precision<float>>(ranks, policy, microbatches, true) == zeroed);
                CHECK(train<sk::Precision<float>>(ranks, policy, microbatches, true, true) == zeroed);
                CHECK(train<Mixed>(ranks, policy, microbatches, true) ==
                      train<Mixed>(ranks, policy, microbatches, false));
            }
        }
    }
}

TEST_CASE("what nobody overwrites is zeroed, padding included, whatever the buffer held before") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        for (const sk::DynamicPolicy& policy : {policies[1], policies[3]}) {
            using P = sk::Precision<sk::bf16, float>;
            std::vector<Layer<P>> layers;
            layers.emplace_back(rank, "layer", tensors<P>(true), typename Layer<P>::Options{policy});
            sk::Model model{layers};
            auto& store = sk::spi::group(layers[0]).gradients();
            sk::Accumulation accumulation{model, 2};
            for (int microbatch = 0; microbatch < 2; ++microbatch) {
                {
                    auto spoiled = accumulation.gradients(layers[0]);
                    for (float& element : std::span<float>(store.full())) { element = 7; }
                }  // and dropped
                auto handle = accumulation.gradients(layers[0]);
                const std::span<const float> full = store.full();
                const auto& geometry = sk::spi::group(layers[0]).geometry();
                const bool first = microbatch == 0 || policy.values(2).name == sk::FullShard::name;
                CHECK(handle.overwrites("up") == first);
                CHECK(handle.overwrites(2) == first);
                CHECK(!handle.overwrites("bias"));
                CHECK(!handle.overwrites(3));  // frozen: nobody has to write it
                std::size_t left = 0;
                for (std::size_t i = 0; i < full.size(); ++i) {
                    bool overwritten = false;
                    for (const std::size_t p : {0U, 2U}) {
                        const sk::IndexRange range = geometry.parameters[p].range;
                        overwritten = overwritten || (i >= range.begin && i < range.end);
                    }
                    if (!first) {
                        CHECK(full[i] == 7);  // a sum of earlier microbatches
                    } else if (!overwritten) {
                        CHECK(full[i] == 0);
                    } else if (sk::checked) {
                        CHECK(full[i] != full[i]);
                        ++left;
                    } else {
                        CHECK(full[i] == 7);
                        ++left;
                    }
                }
                CHECK(full.size() > 33 * 7 + 9 + 35 + 3);
                CHECK(left == (first ? 33 * 7 + 35 : 0));
                if (microbatch == 1) { continue; }  // a handle was dropped: this step cannot end
                for (const std::size_t p : {0U, 2U}) {
                    for (float& element : handle.view(p)) { element = 0; }
                }
                accumulation.add(std::move(handle));
            }
        }
    });
}

TEST_CASE("gradients that are to be overwritten are not handed out to who has not asked") {
    sk::threads::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        sk::Sharded<Linear, sk::NoShard> layer{rank, "layer"};
        sk::Model model{layer};
        sk::Accumulation accumulation{model, 2};
        const auto taken = sk::SourceLocation::current();
        auto handle = accumulation.gradients(layer);
        const sk::SourceLocation line{taken.file, taken.line + 1};
        const char* const text =
            "'layer': a gradient that was not zeroed is used, and nobody has asked whether it is to be overwritten; "
            "expected gradients.overwrites(parameter) before";
        CHECK_USAGE_ERROR_FROM(line, handle[Weight{}], text);
        CHECK_USAGE_ERROR_FROM(line, handle.view("weight"), text);
        CHECK(handle[Bias{}].size() == 5);
        CHECK(handle.overwrites(Weight{}));
        CHECK(!handle.overwrites(Bias{}));
        CHECK_THROWS_AS(static_cast<void>(handle.overwrites("head")), std::invalid_argument);
        auto moved = std::move(handle);
        for (float& element : moved[Weight{}]) { element = 1; }
        accumulation.add(std::move(moved));
        CHECK_USAGE_ERROR(moved.overwrites(Weight{}), "gradient handle used after it was added");
        auto second = accumulation.gradients(layer);
        CHECK(second[Weight{}][0] == 1);  // to which this microbatch adds
        CHECK(!second.overwrites(Weight{}));
    });
}

TEST_CASE("a tied parameter's gradient is not overwritten, and ranks agree on those that are") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        const char* const text =
            "'tied' parameter 'weight': an overwritten gradient, and 'head' is another name of it, expected one use "
            "that writes the gradient";
        CHECK_INVALID_ARGUMENT((sk::Sharded<Tied, sk::NoShard>{rank, "tied"}), text);
        CHECK_INVALID_ARGUMENT((sk::describe_group<Tied, sk::NoShard>("tied", {}, rank.grid())), text);
        using Layer = sk::Sharded<Linear, sk::FullShard>;
        typename Layer::Options options;
        if (rank.rank() == 1) { options.overwritten = Linear::template mask<Bias>(); }
        CHECK(
            has(thrown_message<std::invalid_argument>([&] {
                    Layer{rank, "layer", {}, options};
                }),
                "rank 0 makes it with parameter 1 of shape [5], called 'bias', rank 1 with parameter 1 of shape [5], "
                "with a gradient that is overwritten, called 'bias'"));
    });
}

TEST_CASE("a checked build finds gradients that were not overwritten, and those that were added to") {
    if (!sk::checked) { return; }
    const auto refused = [](auto element, bool adds) {
        using E = decltype(element);
        using P = sk::Precision<E>;
        std::string said;
        sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
            std::vector<Layer<P>> layers;
            layers.emplace_back(rank, "layer", tensors<P>(true), typename Layer<P>::Options{policies[3]});
            sk::Model model{layers};
            sk::Accumulation accumulation{model};
            auto handle = accumulation.gradients(layers[0]);
            CHECK(handle.overwrites("up"));
            for (const char* const name : {"up", "down"}) {
                const auto view = handle.view(name);
                for (std::size_t i = 0; i < view.size(); ++i) {
                    const bool spoiled = name == std::string("down") && i == 34;
                    if (spoiled && !adds) { continue; }
                    view.data()[i] =
                        spoiled ? static_cast<E>(static_cast<sk::Arithmetic<E>>(view.data()[i]) + 1) : E(1);
                }
            }
            said = thrown_message<sk::UsageError>([&] { accumulation.add(std::move(handle)); });
        });
        return said;
    };
    const char* const text =
        "'layer' parameter 'down': element 34 of its gradient was not overwritten, or was added to";
    for (const bool adds : {false, true}) {
        CHECK(has(refused(1.0F, adds), text));
        CHECK(has(refused(1.0, adds), text));
        CHECK(has(refused(sk::bf16(1), adds), text));
        // Every NaN is one to fp16, and gradients of a scaled loss may have some.
        CHECK(refused(sk::fp16(1), adds) == "nothing was thrown");
    }
}

TEST_CASE("a plan counts what is zeroed, and a simulation its time") {
    constexpr auto mesh = sk::DeviceMesh<2>{}.grid();
    struct Up : sk::Param<"up", float, 64, 64>, sk::OverwrittenGradient {};
    struct Norm : sk::Param<"norm", float, 64> {};
    using Block = sk::Params<Up, Norm>;
    constexpr std::array groups{sk::describe_group<Block, sk::FullShard>("a", {}, mesh),
                                sk::describe_group<Block, sk::ShardOptimizer>("b", {}, mesh),
                                sk::describe_group<sk::Params<Norm>, sk::NoShard>("c", {}, mesh)};
    static_assert(groups[0].overwritten_numel == 64 * 64);
    // Under FullShard a sum begins with each microbatch, else with each step.
    static_assert(sk::plan(groups, mesh, {.microbatches = 3}).zeroed == sk::ByteCount((3 + 1 + 1) * 64 * 4));
    std::vector<sk::planner::GroupDescription> zeroed(groups.begin(), groups.end());
    for (auto& group : zeroed) { group.overwritten_numel = 0; }
    CHECK(sk::plan(zeroed, mesh, {.microbatches = 3}).zeroed ==
          sk::ByteCount(((3 + 1) * 64 * 65 + 64) * std::uint64_t{4}));
    CHECK(sk::plan(zeroed, mesh).memory == sk::plan(groups, mesh).memory);
    const auto step = sk::schedule::layered_step(groups, {.microbatches = 3});
    CHECK(sk::schedule::plan(step, groups, mesh).zeroed == sk::ByteCount((3 + 1 + 1) * 64 * 4));
}

}  // namespace overwritten_test

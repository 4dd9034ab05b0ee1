// SPDX-License-Identifier: Apache-2.0
// Training on the threads engine with LaunchOptions::overlap: the bits of collectives that run when they are called,
// and what a rank goes on with while a peer has not come. Flags say who has come how far; no time decides.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "test_size.hpp"
#include "unit/backend/overlaps.hpp"
#include "unit/backend/rank_checks.hpp"
#include "unit/schedule/scheduled_trainer.hpp"
#include "unit/schedule/written_between_steps.hpp"

namespace overlap_test {

namespace {

namespace sk = shardkit;
using rank_checks::expect;
using rank_checks::Flag;
using rank_checks::on_threads;
using scheduled::Improve;
using scheduled::Run;
using sk::threads::LaunchOptions;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

/// Where steps follow no schedule; a schedule of gathers ahead; one in which groups stay gathered too; one whose
/// reductions run beside the next group's work.
constexpr std::array<Improve, 4> improvements{nullptr, scheduled::gathers_ahead, scheduled::some_stay_gathered,
                                              scheduled::all_overlaps};

template <class Precision>
std::vector<std::vector<double>> trained(const Mesh& mesh, const Run& run, Improve improve,
                                         const LaunchOptions& options) {
    std::vector<std::vector<double>> values(mesh.size());
    const auto on_rank = [&](auto& mine) {
        sk::Rank& rank = mine;
        scheduled::Trainer<Precision> trainer(rank, run);
        if (improve == nullptr) {
            for (std::size_t s = 0; s < run.steps; ++s) { trainer.step(s); }
        } else {
            const auto following = scheduled::follow_first_step(trainer, improve);
            for (std::size_t s = 1; s < run.steps; ++s) { trainer.step(s); }
        }
        values[rank.rank()] = trainer.values();
    };
    sk::threads::run(mesh, on_rank, {}, options);
    return values;
}

struct Weight : sk::Param<"weight", double, 500> {};
using Layer = sk::Sharded<Weight, sk::FullShard>;

/// f(rank, layers) on two ranks with overlap, layers whose values are their number.
template <class F>
void with_layers(const LaunchOptions& options, const F& f) {
    sk::threads::run(
        sk::DeviceMesh<2>{},
        [&](auto& rank) {
            std::vector<Layer> layers;
            for (int i = 0; i < 3; ++i) {
                layers.emplace_back(rank, "layers." + std::to_string(i));
                layers.back().initialize([&](auto, auto, std::uint64_t) { return i + 1; });
            }
            f(rank, layers);
        },
        {.in_flight = 3}, options);
}
template <class Window>
void expect_values(const Window& window, double expected) {
    for (const double value : window[Weight{}]) { expect(value == expected, expected, ", got ", value); }
}

}  // namespace

TEST_CASE("overlap: every policy trains to the bits of no schedule and of collectives in the caller") {
    for (const sk::DynamicPolicy& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                                            sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{}),
                                            sk::DynamicPolicy(sk::HybridShard<2>{})}) {
        CAPTURE(std::string(policy.name()));
        const auto check = [&]<class Precision>(Precision, const Mesh& mesh, const Run& run) {
            const auto expected = trained<Precision>(mesh, run, nullptr, {});
            CHECK(expected[0].size() > 1000);
            for (std::size_t i = 0; i < improvements.size(); ++i) {
                CAPTURE(i);
                CHECK(trained<Precision>(mesh, run, improvements[i], on_threads) == expected);
            }
        };
        check(sk::Precision<double>{}, Mesh(4, 1, 1), {.policy = policy, .microbatches = 2});
        if (test_size::reduced()) { continue; }
        check(sk::Precision<sk::bf16>{}, Mesh(2, 2, 2), {.policy = policy, .microbatches = 3, .every_kind = true});
    }
}

TEST_CASE("overlap: a rank computes in one window while its peer has not begun the next one's gather") {
    Flag computed;
    with_layers(on_threads, [&](auto& rank, std::vector<Layer>& layers) {
        auto first = layers[0].unshard();
        if (rank.rank() == 1) { computed.await(); }
        auto pending = layers[1].begin_unshard();
        expect_values(first, 1);
        layers[0].reshard(std::move(first));
        computed.set();
        expect_values(std::move(pending).wait(), 2);
    });
}

TEST_CASE("overlap: a rank finishes its next window while its peer has not come to a reduction") {
    Flag finished;
    with_layers(on_threads, [&](auto& rank, std::vector<Layer>& layers) {
        sk::Accumulation accumulation{sk::Model{layers}};
        auto gradients = accumulation.gradients(layers[2]);
        for (double& value : gradients[Weight{}]) { value = static_cast<double>(rank.rank() + 1); }
        auto pending = layers[1].begin_unshard();
        if (rank.rank() == 1) { finished.await(); }
        accumulation.add(std::move(gradients));
        {
            const auto window = std::move(pending).wait();
            expect_values(window, 2);
        }
        finished.set();
        for (const std::size_t l : {1U, 0U}) { accumulation.add_zero(layers[l]); }
        const auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        std::vector<double> sums(500);
        reduced.read_full(layers[2], Weight{}, std::span<double>(sums));
        expect(sums == std::vector<double>(500, 3.0), "the sum of both ranks");
    });
}

TEST_CASE("overlap: a norm passes a gather that a peer holds up") {
    Flag summed;
    with_layers(on_threads, [&](auto& rank, std::vector<Layer>& layers) {
        Layer held{rank, "held"};
        held.initialize([](auto, auto, std::uint64_t) { return 7; });
        sk::Accumulation accumulation{sk::Model{layers}};
        for (auto& layer : layers) {
            auto gradients = accumulation.gradients(layer);
            for (double& value : gradients[Weight{}]) { value = 1; }
            accumulation.add(std::move(gradients));
        }
        const auto gather = [&] { expect_values(held.begin_unshard().wait(), 7); };
        auto pending = rank.rank() == 0 ? std::optional(held.begin_unshard()) : std::nullopt;
        const auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        const double norm = sk::global_norm(reduced).value();
        expect(norm == std::sqrt(1500.0), "sqrt of 1500 ones, got ", norm);
        if (rank.rank() == 0) {
            summed.set();
            expect_values(std::move(*pending).wait(), 7);
        } else {
            summed.await();
            gather();
        }
    });
}

TEST_CASE("overlap: what ranks state apart is said by each") {
    Flag begun;
    std::array<std::string, 2> said;
    sk::threads::run(
        sk::DeviceMesh<2>{},
        [&](auto& rank) {
            const std::size_t self = rank.rank();
            try {
                Layer layer{rank, "layer"};
                sk::SGD sgd{sk::Model{layer}, {.learning_rate = self == 0 ? 0.25 : 0.5}};
                sk::Accumulation accumulation{sk::Model{layer}};
                accumulation.add_zero(layer);
                sgd.step(sk::reduce(std::move(accumulation), sk::mean));
                auto window = layer.begin_unshard();
                begun.set();
                begun.await(2);
                expect_values(std::move(window).wait(), 0);
            } catch (const sk::CommError& error) { said[self] = error.what(); }
        },
        {}, on_threads);
    for (const std::string& text : said) {
        CAPTURE(text);
        CHECK(rank_checks::contains(text, "rank 0 calls all_gather of 256 fp64"));
        CHECK(rank_checks::contains(text, "with learning rate 0.25"));
        CHECK(rank_checks::contains(text, "with learning rate 0.5"));
    }
}

TEST_CASE("overlap: what is written, or listed, between two steps waits for gathers behind the update") {
    using written_between_steps::What;
    for (const sk::DynamicPolicy& policy :
         {sk::DynamicPolicy(sk::ShardOptimizer{}), sk::DynamicPolicy(sk::ShardGradOp{})}) {
        CAPTURE(std::string(policy.name()));
        CHECK(written_between_steps::is_right(policy, What::initialize));
        CHECK(written_between_steps::is_right(policy, What::load));
        CHECK(written_between_steps::is_right(policy, What::list));
    }
}

TEST_CASE("overlap: a failed gather of a window that is dropped, or of a group that ends, is told by the next wait") {
    for (const bool group_ends : {false, true}) {
        std::string told;
        const auto train = [&] {
            with_layers(on_threads, [&](auto& rank, std::vector<Layer>& layers) {
                if (rank.rank() == 1) { throw rank_checks::Planted("planted"); }
                try {
                    { const auto dropped = layers[1].begin_unshard(); }
                    if (group_ends) { layers.clear(); }
                    rank.synchronize();
                } catch (const sk::PeerError& error) {
                    told = error.what();
                    throw;
                }
            });
        };
        CHECK_THROWS_AS(train(), rank_checks::Planted);
        CAPTURE(told);
        CHECK(rank_checks::contains(told, "all_gather over "));
        CHECK(rank_checks::contains(told, "rank 1 failed: planted"));
    }
}

TEST_CASE("overlap: a step's traffic and journal are those of calls in the caller") {
    const auto counted = [](const LaunchOptions& options) {
        std::vector<std::string> all(2);
        sk::threads::run(
            sk::DeviceMesh<2>{},
            [&](auto& mine) {
                sk::Rank& rank = mine;
                scheduled::Trainer<sk::Precision<float>> trainer(
                    rank, {.policy = sk::DynamicPolicy(sk::FullShard{}), .microbatches = 2});
                rank.traffic().clear();
                trainer.step(0);
                std::string& text = all[rank.rank()];
                for (const auto& call : rank.recent_calls()) {
                    text += call.axes + " " + sk::describe(call.signature, {"", 0}, call.subject) + "\n";
                }
                for (const sk::Verb verb : {sk::Verb::all_gather, sk::Verb::reduce_scatter, sk::Verb::all_reduce}) {
                    text += std::to_string(rank.traffic().total(verb).moved.value) + "\n";
                }
            },
            {}, options);
        return all;
    };
    const auto expected = counted({});
    CHECK(expected[0].size() > 100);
    CHECK(counted(on_threads) == expected);
}

}  // namespace overlap_test

// SPDX-License-Identifier: Apache-2.0
// Every event that the library puts between the compute, communication and reduction streams, on streams that run as
// late as they may. One rank: a collective is a copy that happens when its stream gets to it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/follow/follow.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/schedule/passes.hpp>

#include "lazy_rank.hpp"

namespace stream_order_test {

namespace {

namespace sk = shardkit;
using lazy::Pace;

struct Weight : sk::Param<"weight", double, 40> {};

constexpr std::size_t numel = 40;
constexpr std::size_t layers = 4;
constexpr std::size_t steps = 3;
constexpr double learning_rate = 0.125;

double first_value(std::size_t layer, std::size_t i) { return static_cast<double>((layer * 7 + i * 3) % 11) / 4 - 1; }
double addend(double value, std::size_t layer, std::size_t microbatch, std::size_t i) {
    return value / 2 + static_cast<double>((layer + 2 * microbatch + i) % 5) - 2;
}

struct Outcome {
    std::vector<double> parameters;
    std::vector<double> gradients;  // of the last layer, every step
    std::vector<double> norms;

    friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome serial(std::size_t microbatches) {
    Outcome outcome;
    std::vector<std::vector<double>> values(layers, std::vector<double>(numel));
    for (std::size_t l = 0; l < layers; ++l) {
        for (std::size_t i = 0; i < numel; ++i) { values[l][i] = first_value(l, i); }
    }
    for (std::size_t s = 0; s < steps; ++s) {
        double squares = 0;
        for (std::size_t l = 0; l < layers; ++l) {
            for (std::size_t i = 0; i < numel; ++i) {
                double sum = 0;
                for (std::size_t m = 0; m < microbatches; ++m) { sum += addend(values[l][i], l, m, i); }
                values[l][i] -= learning_rate * sum;
                squares += sum * sum;
                if (l + 1 == layers) { outcome.gradients.push_back(sum); }
            }
        }
        outcome.norms.push_back(std::sqrt(squares));
    }
    for (const auto& layer : values) {
        outcome.parameters.insert(outcome.parameters.end(), layer.begin(), layer.end());
    }
    return outcome;
}

/// Whether the host looks at a step's gradients, which makes the streams wait where they would not otherwise.
enum class Look : unsigned char { never, norm, gradients };

template <class Policy, class Precision>
Outcome train(Pace compute, Pace communication, Pace reduction, std::size_t microbatches, std::size_t in_flight,
              Look look, std::optional<std::size_t> prefetched = std::nullopt, bool overlaps = false) {
    lazy::Rank rank(compute, communication, reduction, {.in_flight = in_flight});
    const auto stream = rank.compute_stream();

    std::deque<sk::Sharded<Weight, Policy, Precision>> model;
    for (std::size_t l = 0; l < layers; ++l) {
        model.emplace_back(rank, "layers." + std::to_string(l));
        model[l].initialize([&](auto, auto, std::size_t i) { return first_value(l, i); });
    }
    sk::Model groups{model};
    sk::SGD optimizer{groups, {.learning_rate = learning_rate}};
    std::vector<std::vector<double>> activations(layers, std::vector<double>(numel));
    Outcome outcome;
    const auto step = [&] {
        sk::Accumulation accumulation{groups, sk::until_reduced};
        for (std::size_t m = 0; m < microbatches; ++m) {
            // Forward: nothing but windows follow each other, one layer's gather into the other's buffer.
            for (std::size_t l = 0; l < layers; ++l) {
                const auto window = model[l].unshard();
                const double* const values = window[Weight{}];
                double* const activation = activations[l].data();
                stream.submit([=] { std::copy_n(values, numel, activation); });
            }
            for (std::size_t l = layers; l-- > 0;) {
                auto pending = model[l].begin_unshard();
                auto handle = accumulation.gradients(model[l]);
                auto window = std::move(pending).wait();
                const double* const values = window[Weight{}];
                const double* const activation = activations[l].data();
                auto* const target = handle[Weight{}].data();
                stream.submit([=] {
                    for (std::size_t i = 0; i < numel; ++i) {
                        using Gradient = typename Precision::Gradient;
                        target[i] += static_cast<Gradient>(addend((values[i] + activation[i]) / 2, l, m, i));
                    }
                });
                accumulation.add(std::move(handle));
            }
        }
        auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        if (look == Look::norm) { outcome.norms.push_back(sk::global_norm(reduced).value()); }
        if (look == Look::gradients) {
            std::vector<double> gradients(numel);
            reduced.read_full(model.back(), Weight{}, std::span<double>(gradients));
            outcome.gradients.insert(outcome.gradients.end(), gradients.begin(), gradients.end());
        }
        optimizer.step(std::move(reduced));
    };
    std::optional<sk::schedule::Following> following;
    for (std::size_t s = 0; s < steps; ++s) {
        if (s == 0 && prefetched) {
            const sk::Schedule recorded = sk::schedule::record(groups, step);
            const auto described = sk::describe_groups(groups);
            const sk::Schedule kept =
                sk::schedule::keep_gathered(recorded, described, sk::schedule::peak(recorded, described, 0));
            const sk::Schedule ahead = sk::schedule::prefetch(kept, described, *prefetched);
            const sk::Schedule beside = overlaps ? sk::schedule::overlap_reductions(ahead, described) : ahead;
            following.emplace(sk::schedule::follow(groups, sk::schedule::gather_after_update(beside, described)));
        } else {
            step();
        }
    }
    following.reset();
    for (auto& layer : model) {
        std::vector<double> values(numel);
        layer.read_full(Weight{}, std::span<double>(values));
        outcome.parameters.insert(outcome.parameters.end(), values.begin(), values.end());
    }
    return outcome;
}

template <class Policy>
void check_policy(Pace compute, Pace communication, Pace reduction) {
    CAPTURE(Policy::name);
    CAPTURE(static_cast<int>(compute));
    CAPTURE(static_cast<int>(communication));
    CAPTURE(static_cast<int>(reduction));
    for (const std::size_t microbatches : {1U, 3U}) {
        for (const std::size_t in_flight : {1U, 2U}) {
            for (const Look look : {Look::never, Look::norm, Look::gradients}) {
                CAPTURE(microbatches);
                CAPTURE(in_flight);
                CAPTURE(static_cast<int>(look));
                Outcome expected = serial(microbatches);
                if (look != Look::norm) { expected.norms.clear(); }
                if (look != Look::gradients) { expected.gradients.clear(); }
                // Dyadic values: sums are exact in both precisions, in any order.
                CHECK(train<Policy, sk::Precision<double>>(compute, communication, reduction, microbatches, in_flight,
                                                           look) == expected);
                CHECK(train<Policy, sk::Precision<double, float, double, double>>(
                          compute, communication, reduction, microbatches, in_flight, look) == expected);
                if (in_flight > 1) { continue; }  // a schedule has slots of its own
                for (const std::size_t depth : {0U, 1U, 3U}) {
                    for (const bool overlaps : {false, true}) {
                        CAPTURE(depth);
                        CAPTURE(overlaps);
                        CHECK(train<Policy, sk::Precision<double, float, double, double>>(
                                  compute, communication, reduction, microbatches, in_flight, look, depth,
                                  overlaps) == expected);
                    }
                }
            }
        }
    }
}
template <class Policy>
void check_policy() {
    for (const Pace compute : {Pace::eager, Pace::lazy}) {
        for (const Pace communication : {Pace::eager, Pace::lazy}) {
            for (const Pace reduction : {Pace::eager, Pace::lazy}) {
                check_policy<Policy>(compute, communication, reduction);
            }
        }
    }
}

}  // namespace

TEST_CASE("a lazy stream runs in order, and no earlier than somebody waits") {
    lazy::Queue queues[] = {lazy::Queue(Pace::lazy), lazy::Queue(Pace::lazy)};
    const sk::Stream a(queues[0]);
    const sk::Stream b(queues[1]);
    std::string log;
    a.submit([&] { log += "1"; });
    const auto event = a.record();
    a.submit([&] { log += "3"; });
    b.wait(event);
    b.submit([&] { log += "2"; });
    CHECK(log.empty());
    b.synchronize();
    CHECK(log == "12");
    a.synchronize();
    CHECK(log == "123");
}

TEST_CASE("NoShard: the streams are ordered") { check_policy<sk::NoShard>(); }
TEST_CASE("ShardOptimizer: the streams are ordered") { check_policy<sk::ShardOptimizer>(); }
TEST_CASE("ShardGradOp: the streams are ordered") { check_policy<sk::ShardGradOp>(); }
TEST_CASE("FullShard: the streams are ordered") { check_policy<sk::FullShard>(); }

}  // namespace stream_order_test

// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/divisor.hpp>
#include <shardkit/step/loss_scale.hpp>

#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

// Steps that are refused: both sides are named, and the gradients are still the caller's.

namespace sk = shardkit;

namespace refused_step_test {

using toy::Flat;

namespace {

/// What rank `asked` of two is told when rank 1 divides by 100 and the others by 99; `use(model, layer, divisor,
/// clips)`.
template <class Policy, class Use>
std::string said_of_divisors(std::size_t asked, const Use& use) {
    std::string said;
    sk::threads::run(Flat{2}, [&](auto& rank) {
        auto layer = toy::linear_layer<Policy>(rank, "layer");
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        const auto step = [&](auto microbatches, bool clips) {
            sk::Accumulation accumulation{model, microbatches};
            toy::add(accumulation, layer, 1);
            auto gradients = sk::reduce(std::move(accumulation), sk::divide_by(rank.rank() == 1 ? 100 : 99));
            const auto coefficient = clips ? sk::clip(sk::global_norm(gradients), 1) : sk::ClipCoefficient{};
            optimizer.step(std::move(gradients), coefficient);
        };
        const std::string text = thrown_message<sk::CommError>([&] { use(step, layer); });
        if (rank.rank() == asked) { said = text; }
    });
    return said;
}

}  // namespace

TEST_CASE("divisors that differ between ranks") {
    for (const std::size_t rank : {0U, 1U}) {
        CAPTURE(rank);
        const auto told = [&](const std::string& text, const char* call) {
            CAPTURE(text);
            CHECK(has(text, call));
            CHECK(has(text, " with divisor 99 "));
            CHECK(has(text, " with divisor 100 "));
        };
        const auto plain = [](auto& step, auto&) { step(sk::until_reduced, false); };
        told(said_of_divisors<sk::NoShard>(rank, plain), "calls all_reduce sum of 64 fp64 for 'layer' gradients");
        const auto clipped = [](auto& step, auto&) { step(1, true); };
        told(said_of_divisors<sk::FullShard>(rank, clipped), "fp64 for the global norm");
        const auto window = [](auto& step, auto& layer) {
            step(1, false);
            static_cast<void>(layer.unshard());
        };
        told(said_of_divisors<sk::ShardOptimizer>(rank, window), "calls all_gather of ");
        const auto twice = [](auto& step, auto&) {
            step(1, false);
            step(1, false);
        };
        told(said_of_divisors<sk::NoShard>(rank, twice), "calls all_reduce sum of ");
    }
}

namespace {

/// Steps of one group that are refused for `reason(model, layer, optimizer, gradients)`, a callable that throws and
/// undoes its cause: the gradients are still there, are the only ones, and make the step that they would have made.
template <class Reason>
void check_refused(const char* text, const Reason& reason, bool scaled = false) {
    std::vector<double> weights[2];
    for (const bool refuses : {false, true}) {
        sk::threads::run(Flat{2}, [&](auto& rank) {
            auto layer = toy::linear_layer<sk::ShardOptimizer>(rank);
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1, .rule = sk::Momentum::classical, .momentum = 0.5}};
            sk::LossScale scale(rank, {.initial = 4});
            const auto gradients = [&] {
                sk::Accumulation accumulation{model};
                toy::add(accumulation, layer, 1);
                return scaled ? sk::reduce(std::move(accumulation), sk::mean, scale)
                              : sk::reduce(std::move(accumulation), sk::mean);
            };
            auto given = gradients();
            if (refuses) {
                CHECK(has(thrown_message<sk::UsageError>([&] { reason(model, layer, optimizer, given); }), text));
                CHECK(has(thrown_message<sk::UsageError>([&] { static_cast<void>(gradients()); }),
                          "a second accumulation"));
            }
            CHECK_NOTHROW(optimizer.step(std::move(given)));
            CHECK(optimizer.steps(layer) == 1);
            std::vector<double> read(toy::outputs * toy::inputs);
            layer.read_full(toy::Weight{}, std::span<double>(read));
            if (rank.rank() == 0) { weights[refuses ? 1 : 0] = read; }
        });
    }
    CHECK(weights[0] == weights[1]);
}

}  // namespace

TEST_CASE("a refused step leaves the gradients to the caller") {
    const auto window = [](auto&, auto& layer, auto& optimizer, auto& given) {
        const auto open = layer.unshard();
        optimizer.step(std::move(given));
    };
    check_refused("are open", window);
    // On one rank alone, and the others go on to the norm that a loss scale asks for.
    const auto window_on_one = [](auto&, auto& layer, auto& optimizer, auto& given) {
        auto open = layer.unshard();
        if (layer.rank().rank() == 0) { optimizer.step(std::move(given)); }
        layer.reshard(std::move(open));
        throw sk::UsageError("are open, elsewhere", sk::SourceLocation::current());
    };
    check_refused("are open", window_on_one, true);
    const auto clipped = [](auto&, auto& layer, auto& optimizer, auto& given) {
        const auto open = layer.unshard();
        optimizer.step(std::move(given), sk::ClipCoefficient{});
    };
    check_refused("are open", clipped);
    const auto no_norm = [](auto&, auto&, auto& optimizer, auto& given) {
        optimizer.step(std::move(given), sk::ClipCoefficient{});
    };
    check_refused("would hide an overflow", no_norm, true);
    const auto other_norm = [](auto&, auto&, auto& optimizer, auto& given) {
        auto norm = sk::clip(sk::global_norm(given), 1e9);
        norm.gradients += 1000;  // of another step
        optimizer.step(std::move(given), norm);
    };
    check_refused("of the norm of other gradients", other_norm);
    const auto other_model = [](auto&, auto& layer, auto&, auto& given) {
        auto other = toy::linear_layer<sk::ShardOptimizer>(layer.rank(), "other");
        sk::Model model{other};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        optimizer.step(std::move(given));
    };
    check_refused("other groups than the optimizer's model", other_model);
}

TEST_CASE("a vector that was moved, reordered or grown in the middle of a step: the model is what it was") {
    std::vector<double> values[2];
    for (const bool changes : {false, true}) {
        sk::threads::run(Flat{1}, [&](auto& rank) {
            using Layer = decltype(toy::linear_layer<sk::NoShard>(rank));
            std::vector<Layer> layers;
            for (const char* path : {"0", "1"}) { layers.push_back(toy::linear_layer<sk::NoShard>(rank, path)); }
            sk::Model model{layers};
            sk::SGD optimizer{model,
                              {.learning_rate = 1, .rule = sk::Momentum::classical, .momentum = 0.5},
                              {{.matches = [](auto path, auto) { return path == "1"; }, .learning_rate_scale = 0.5}}};
            for (int step = 0; step < 2; ++step) {
                sk::Accumulation accumulation{model};
                toy::add(accumulation, layers[layers[0].path() == "0" ? 0 : 1], 1);
                if (changes && step == 0) { std::swap(layers[0], layers[1]); }
                toy::add(accumulation, layers[layers[0].path() == "0" ? 1 : 0], 2);
                auto given = sk::reduce(std::move(accumulation), sk::mean);
                if (changes) { layers.push_back(toy::linear_layer<sk::NoShard>(rank, "2" + std::to_string(step))); }
                CHECK_NOTHROW(optimizer.step(std::move(given)));
            }
            for (const char* path : {"0", "1"}) {
                auto& layer = layers[layers[0].path() == path ? 0 : 1];
                std::vector<double> read(toy::outputs * toy::inputs);
                layer.read_full(toy::Weight{}, std::span<double>(read));
                values[changes ? 1 : 0].insert(values[changes ? 1 : 0].end(), read.begin(), read.end());
            }
        });
    }
    CHECK(values[0] == values[1]);
}

}  // namespace refused_step_test

// SPDX-License-Identifier: Apache-2.0
// Several optimizers whose options change, norms of parameters and a moving average, on streams that run as late as
// they may: what the host sets between steps does not overtake the steps before it.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/verify/gradient_norms.hpp>

#include "lazy_rank.hpp"

namespace optimizers_order_test {

namespace {

namespace sk = shardkit;
using lazy::Pace;

struct Weight : sk::Param<"weight", double, 40> {};
struct Bias : sk::Param<"bias", double, 8> {};
using Linear = sk::Params<Weight, Bias>;

constexpr std::size_t steps = 4;
constexpr std::array<std::size_t, 2> sizes{40, 8};

// Dyadic values: products and sums are exact.
double first_value(std::size_t i) { return static_cast<double>(i % 11) / 4 - 1; }
double gradient(double value, std::size_t step, std::size_t i) {
    return value / 2 + static_cast<double>((step + i) % 5) - 2;
}
sk::SgdOptions options(std::size_t parameter, std::size_t step) {
    const auto t = static_cast<double>(step + 2 * parameter);
    return {.learning_rate = t / 16, .weight_decay = (4 - t / 2) / 8};
}
double decay(std::size_t step) { return step % 2 == 0 ? 0.5 : 0.25; }

struct Outcome {
    std::vector<double> averages;  // shown by a window behind each step
    std::vector<double> norms;

    friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome serial() {
    Outcome outcome;
    std::array<std::vector<double>, 2> values;
    for (std::size_t p = 0; p < 2; ++p) {
        for (std::size_t i = 0; i < sizes[p]; ++i) { values[p].push_back(first_value(i)); }
    }
    auto averages = values;
    for (std::size_t s = 0; s < steps; ++s) {
        for (std::size_t p = 0; p < 2; ++p) {
            const sk::SgdOptions its = options(p, s);
            double squares = 0;
            for (std::size_t i = 0; i < sizes[p]; ++i) {
                const double g = gradient(values[p][i], s, i);
                squares += g * g;
                values[p][i] -= its.learning_rate * (g + its.weight_decay * values[p][i]);
                averages[p][i] = decay(s) * averages[p][i] + (1 - decay(s)) * values[p][i];
                outcome.averages.push_back(averages[p][i]);
            }
            outcome.norms.push_back(std::sqrt(squares));
        }
    }
    return outcome;
}

template <class Policy>
Outcome train(Pace compute, Pace communication, Pace reduction) {
    lazy::Rank rank(compute, communication, reduction);
    const auto stream = rank.compute_stream();

    using Layer = sk::Sharded<Linear, Policy>;
    Layer layer(rank, "layer");
    using Sharding = std::conditional_t<std::is_same_v<Policy, sk::NoShard>, sk::NoShard, sk::FullShard>;
    using Averaged = sk::Sharded<Linear, Sharding>;
    Averaged averaged(rank, "average", {}, {.frozen = Averaged::Group::all()});
    layer.initialize([&](auto, auto, std::size_t i) { return first_value(i); });
    sk::Model model{layer};
    sk::Model averages{averaged};
    const auto of = [](std::string_view wanted) {
        return [wanted](auto, std::string_view name) { return name == wanted; };
    };
    sk::SGD first{model, options(0, 0), {{.matches = of("bias"), .updated_by = sk::UpdatedBy::another}}};
    sk::SGD second{model, options(1, 0), {{.matches = of("weight"), .updated_by = sk::UpdatedBy::another}}};
    sk::CombinedOptimizer optimizer{model, {first, second}};
    sk::MovingAverage average{averages, model};
    Outcome outcome;
    outcome.averages.resize(steps * (sizes[0] + sizes[1]));
    double* shown = outcome.averages.data();
    for (std::size_t s = 0; s < steps; ++s) {
        first.set_options(options(0, s));
        second.set_options(options(1, s));
        sk::Accumulation accumulation{model};
        {
            const auto window = layer.unshard();
            auto handle = accumulation.gradients(layer);
            for (std::size_t p = 0; p < 2; ++p) {
                const double* const values = window.view(p).data();
                double* const target = handle.view(p).data();
                stream.submit([=] {
                    for (std::size_t i = 0; i < sizes[p]; ++i) { target[i] += gradient(values[i], s, i); }
                });
            }
            accumulation.add(std::move(handle));
        }
        auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        // Behind every other step the host waits for nothing.
        if (s % 2 == 1) {
            for (const auto& norm : sk::gradient_norms(reduced).parameters) { outcome.norms.push_back(norm.two); }
        }
        optimizer.step(std::move(reduced));
        average.update(decay(s));
        const auto window = averaged.unshard();
        for (std::size_t p = 0; p < 2; ++p) {
            const double* const values = window.view(p).data();
            stream.submit([=] { std::copy_n(values, sizes[p], shown); });
            shown += sizes[p];
        }
    }
    stream.synchronize();
    return outcome;
}

template <class Policy>
void check_policy() {
    Outcome expected = serial();
    expected.norms = {expected.norms[2], expected.norms[3], expected.norms[6], expected.norms[7]};
    for (const Pace compute : {Pace::eager, Pace::lazy}) {
        for (const Pace communication : {Pace::eager, Pace::lazy}) {
            for (const Pace reduction : {Pace::eager, Pace::lazy}) {
                CAPTURE(Policy::name);
                CAPTURE(static_cast<int>(compute));
                CAPTURE(static_cast<int>(communication));
                CAPTURE(static_cast<int>(reduction));
                CHECK(train<Policy>(compute, communication, reduction) == expected);
            }
        }
    }
}

}  // namespace

TEST_CASE("order: options, parts of an optimizer, norms of parameters and averages, at all paces of the streams") {
    check_policy<sk::NoShard>();
    check_policy<sk::ShardOptimizer>();
    check_policy<sk::FullShard>();
}

}  // namespace optimizers_order_test

// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of the optimizers' arithmetic must fail: each optimizer in fp64 on one rank, against
// a loop in plain double, with weight decay, parameter groups and a loss scale that overflows once.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>

namespace sk = shardkit;

namespace {

constexpr std::size_t numel = 64;
constexpr int steps = 6;
constexpr int overflowing = 2;
struct Weight : sk::Param<"weight", double, numel> {};
struct Bias : sk::Param<"bias", double, numel> {};
using Group = sk::Params<Weight, Bias>;

/// One element's numbers: parameter, states.
struct Element {
    double p;
    double first = 0;
    double second = 0;
};
/// What both sides agree on.
constexpr double learning_rate = 0.125;
constexpr double weight_decay = 0.25;
constexpr double beta1 = 0.75;
constexpr double beta2 = 0.9;
constexpr double momentum = 0.5;
constexpr double divisor = 4;

double gradient(int step, std::size_t i, bool is_bias) {
    if (i == 5) { return 0; }
    const double size = std::ldexp(1.0, static_cast<int>(i % 9) - 4);
    return (step + static_cast<int>(i) % 3) % 3 == 0 ? -3 * size : (is_bias ? 2 * size : size);
}

double initial(std::size_t i) { return i == 5 ? 0 : 1 + 0.03125 * static_cast<double>(i); }

[[noreturn]] void fail(std::string_view what, std::string_view parameter, std::size_t i, double given,
                       double expected) {
    std::printf("%.*s: %.*s[%zu] is %.17g, expected %.17g\n", static_cast<int>(what.size()), what.data(),
                static_cast<int>(parameter.size()), parameter.data(), i, given, expected);
    std::exit(1);
}

/// Trains with the library, and with update(element, gradient, learning rate, weight decay, step) by hand.
template <class Make, class Update>
void check(std::string_view what, Make make, Update update) {
    std::vector<Element> expected[2];
    for (auto& elements : expected) {
        for (std::size_t i = 0; i < numel; ++i) { elements.push_back({initial(i)}); }
    }
    int taken = 0;
    for (int step = 0; step < steps; ++step) {
        if (step == overflowing) { continue; }
        ++taken;
        for (const bool is_bias : {false, true}) {
            for (std::size_t i = 0; i < numel; ++i) {
                update(expected[is_bias ? 1 : 0][i], gradient(step, i, is_bias) / divisor,
                       learning_rate * (is_bias ? 0.5 : 1), is_bias ? 0 : weight_decay, taken);
            }
        }
    }
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Group, sk::NoShard> layer{rank, "layer"};
        layer.initialize([](auto, auto, std::uint64_t i) { return initial(i); });
        sk::Model model{layer};
        const auto is_bias = [](std::string_view, std::string_view name) { return name == "bias"; };
        auto optimizer = make(model, {{.matches = is_bias, .learning_rate_scale = 0.5, .weight_decay = 0.0}});
        sk::LossScale scale(rank, {.initial = 8});
        for (int step = 0; step < steps; ++step) {
            const double factor = step == overflowing ? std::numeric_limits<double>::infinity() : scale.value();
            sk::Accumulation accumulation{model};
            auto handle = accumulation.gradients(layer);
            for (std::size_t i = 0; i < numel; ++i) {
                handle[Weight{}][i] = factor * gradient(step, i, false);
                handle[Bias{}][i] = factor * gradient(step, i, true);
            }
            accumulation.add(std::move(handle));
            optimizer.step(sk::reduce(std::move(accumulation), sk::divide_by(4), scale));
        }
        const auto window = layer.unshard();
        const auto compare = [&](std::string_view name, auto view, const std::vector<Element>& right) {
            for (std::size_t i = 0; i < numel; ++i) {
                if (!(std::abs(view[i] - right[i].p) <= 1e-12)) { fail(what, name, i, view[i], right[i].p); }
            }
        };
        compare("weight", window[Weight{}], expected[0]);
        compare("bias", window[Bias{}], expected[1]);
    });
}

}  // namespace

int main() {
    using Groups = std::vector<sk::ParamGroup>;
    check(
        "Lion",
        [](auto& model, Groups groups) {
            return sk::Lion{
                model,
                {.learning_rate = learning_rate, .beta1 = beta1, .beta2 = beta2, .weight_decay = weight_decay},
                std::move(groups)};
        },
        [](Element& e, double g, double lr, double decay, int) {
            const double c = beta1 * e.first + (1 - beta1) * g;
            e.p -= lr * ((c > 0 ? 1 : c < 0 ? -1 : 0) + decay * e.p);
            e.first = beta2 * e.first + (1 - beta2) * g;
        });
    check(
        "AdamW",
        [](auto& model, Groups groups) {
            return sk::AdamW{
                model,
                {.learning_rate = learning_rate, .beta1 = beta1, .beta2 = beta2, .weight_decay = weight_decay},
                std::move(groups)};
        },
        [](Element& e, double g, double lr, double decay, int step) {
            e.p -= lr * decay * e.p;
            e.first = beta1 * e.first + (1 - beta1) * g;
            e.second = beta2 * e.second + (1 - beta2) * g * g;
            const double corrected = e.first / (1 - std::pow(beta1, step));
            e.p -= lr * corrected / (std::sqrt(e.second / (1 - std::pow(beta2, step))) + 1e-8);
        });
    for (const bool nesterov : {false, true}) {
        check(
            nesterov ? "SGD, Nesterov" : "SGD, momentum",
            [&](auto& model, Groups groups) {
                return sk::SGD{model,
                               {.learning_rate = learning_rate,
                                .rule = nesterov ? sk::Momentum::nesterov : sk::Momentum::classical,
                                .momentum = momentum,
                                .weight_decay = weight_decay},
                               std::move(groups)};
            },
            [&](Element& e, double g, double lr, double decay, int) {
                const double d = g + decay * e.p;
                e.first = momentum * e.first + d;
                e.p -= lr * (nesterov ? d + momentum * e.first : e.first);
            });
    }
    check(
        "SGD",
        [](auto& model, Groups groups) {
            return sk::SGD{model, {.learning_rate = learning_rate, .weight_decay = weight_decay}, std::move(groups)};
        },
        [](Element& e, double g, double lr, double decay, int) { e.p -= lr * (g + decay * e.p); });
    return 0;
}

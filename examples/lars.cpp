// SPDX-License-Identifier: Apache-2.0
// LARS scales each step by the norm of the parameter over that of its gradient: a rule with sums over whole
// parameters.
// g++ -std=c++20 -Iinclude examples/lars.cpp -pthread -o example && ./example
#include <array>
#include <cmath>
#include <cstdio>
#include <shardkit/rules.hpp>
#include <shardkit/shardkit.hpp>
#include <string_view>
namespace sk = shardkit;

struct LarsOptions {
    double learning_rate = 0.1;
    double trust = 1e-3;
    double weight_decay = 0;
};

// p -= lr * trust * |p| / |g| * g
template <class A>
struct LarsUpdate {
    sk::rules::Factor<double> gradient_scale;
    double step;

    template <std::size_t Sum>
    constexpr double term(const auto& element, const auto&) const {
        const double x = Sum == 0 ? double(element.parameter) : gradient_scale * double(element.gradient);
        return x * x;
    }
    template <std::size_t Pass>
    constexpr void settle(const auto& numbers) const {
        double of_parameter = 0, of_gradient = 0;
        for (std::size_t row = 0; row < numbers.extents.matrices * numbers.extents.rows; ++row) {
            of_parameter += numbers.sums[0][row];
            of_gradient += numbers.sums[1][row];
        }
        numbers.sums[0][0] = of_gradient > 0 ? step * std::sqrt(of_parameter / of_gradient) : 0;
    }
    constexpr A direction(const auto& element, const auto& numbers) const {
        return A(numbers.sums[0][0] * (gradient_scale * double(element.gradient)));
    }
    template <class V>
    constexpr void operator()(V& parameter, V direction) const {
        parameter = parameter - direction;
    }
};

struct LarsRule : sk::rules::CountsSteps {
    using Options = LarsOptions;
    static constexpr std::string_view name = "LARS";
    static constexpr std::array<sk::rules::OptionRange<Options>, 2> ranges{
        {{"learning_rate", &Options::learning_rate, sk::rules::not_negative},
         {"trust", &Options::trust, sk::rules::positive}}};
    static constexpr std::array<std::string_view, 0> state_names{};
    static constexpr std::array<sk::rules::KeptState, 0> kept{};
    static constexpr std::array<sk::rules::PassSum, 2> sums{{{0, sk::rules::Over::rows}, {0, sk::rules::Over::rows}}};
    static constexpr std::size_t state_count(const Options&) { return 0; }
    template <class A>
    using Update = LarsUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress&, const Options& o, double scale) {
        return {sk::rules::Factor<double>(scale), o.learning_rate * o.trust};
    }
};

struct Weight : sk::Param<"weight", float, 6, 4> {};

int main() {
    sk::threads::run(sk::DeviceMesh<3>{}, [](auto& rank) {
        sk::Sharded<Weight, sk::FullShard> layer{rank, "layer"};
        layer.initialize([](auto, auto, auto) { return 1.0; });
        sk::Model model{layer};
        sk::rules::FactoredOptimizer<LarsRule> optimizer{model, {.trust = 0.5}};
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (float& g : gradients[Weight{}]) { g = 8; }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
        const auto window = layer.unshard();
        if (rank.rank() == 0) { std::printf("weight %g\n", window[Weight{}][23]); }  // 1 - 0.1 * 0.5 * (1 / 8) * 8
    });
}

// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of a reduction must fail: SGD in fp64 on every policy, mesh, number of
// microbatches and kind of precision, against a plain serial computation. Prints the first difference.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/adafactor.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verify.hpp>

namespace sk = shardkit;

namespace {

template <class E>
struct Weight : sk::Param<"weight", E, sk::dynamic> {};
template <class E>
struct Bias : sk::Param<"bias", E, sk::dynamic> {
    using TensorParallel = sk::tp::PartialSum;
};
template <class E>
using Layer = sk::Params<Weight<E>, Bias<E>>;

/// Stage 1 within pairs of neighbours: the gather in place joins a pair alone.
struct PairedOptimizer : sk::ShardOptimizer {
    static constexpr std::string_view name = "paired_optimizer";
    static constexpr std::size_t shard_group(std::size_t /*dp*/) noexcept { return 2; }
};

/// Parameters that are gathered over both axes in every window, and gradients that are summed on every rank.
struct ShardBoth : sk::HybridShard<2> {
    static constexpr std::string_view name = "shard_both";
    static constexpr sk::AxisPlacements across_groups{sk::Placement::sharded, sk::Placement::replicated,
                                                      sk::Placement::sharded};
};

constexpr std::size_t layers = 3;
constexpr std::size_t steps = 3;
constexpr double learning_rate = 0.0625;

struct Case {
    std::size_t dp = 1;
    std::size_t tp = 1;
    std::size_t cp = 1;
    std::size_t microbatches = 1;
};

std::size_t weight_numel(std::size_t layer) { return 37 + 20 * layer; }
constexpr std::size_t bias_numel = 5;

double initial(std::size_t layer, std::size_t parameter, std::size_t i) {
    return static_cast<double>((layer * 31 + parameter * 13 + i * 7) % 19) / 16 - 0.5;
}
/// A microbatch's gradient: depends on where it is computed, and on the parameter, so that gathers count too.
double gradient(double value, std::size_t layer, std::size_t i, std::size_t data_rank, std::size_t microbatch) {
    return 0.125 * value + static_cast<double>((layer * 11 + i * 5 + data_rank * 3 + microbatch * 7) % 23) / 8 - 1;
}

struct Outcome {
    std::vector<double> norms;
    std::vector<double> parameters;
};

/// One rank's worth of plain loops over all data ranks and microbatches.
Outcome serial(const Case& c) {
    Outcome outcome;
    std::vector<std::vector<double>> values;
    for (std::size_t l = 0; l < layers; ++l) {
        values.emplace_back();
        for (std::size_t i = 0; i < weight_numel(l); ++i) { values[l].push_back(initial(l, 0, i)); }
        for (std::size_t i = 0; i < bias_numel; ++i) { values[l].push_back(initial(l, 1, i)); }
    }
    const std::size_t data_ranks = c.dp * c.cp;
    for (std::size_t s = 0; s < steps; ++s) {
        double squares = 0;
        double largest = 0;
        for (std::size_t l = 0; l < layers; ++l) {
            for (std::size_t i = 0; i < values[l].size(); ++i) {
                double sum = 0;
                for (std::size_t r = 0; r < data_ranks; ++r) {
                    for (std::size_t m = 0; m < c.microbatches; ++m) { sum += gradient(values[l][i], l, i, r, m); }
                }
                const double mean = sum / static_cast<double>(data_ranks);
                squares += mean * mean;
                largest = std::max(largest, std::abs(mean));
                values[l][i] -= learning_rate * mean;
            }
        }
        outcome.norms.insert(outcome.norms.end(), {std::sqrt(squares), std::sqrt(squares), largest});
        const auto ranks = static_cast<double>(data_ranks * c.tp);
        const auto step = static_cast<double>(s);
        outcome.norms.insert(outcome.norms.end(), {ranks * (ranks - 1) / 2 + ranks * step, ranks - 1 + step,
                                                   ranks * ranks / 2 + ranks * step});
    }
    for (const auto& layer : values) {
        outcome.parameters.insert(outcome.parameters.end(), layer.begin(), layer.end());
    }
    return outcome;
}

template <class Policy, class Precision, class Rank>
Outcome parallel(Rank& rank, const Case& c, Policy policy) {
    using E = typename Precision::Gather;
    using Group = sk::Sharded<Layer<E>, Policy, Precision>;
    std::vector<Group> model;
    for (std::size_t l = 0; l < layers; ++l) {
        model.emplace_back(
            rank, "layers." + std::to_string(l),
            sk::Shapes<Layer<E>>{sk::shape<Weight<E>>(weight_numel(l)), sk::shape<Bias<E>>(bias_numel)},
            typename Group::Options{.policy = policy});
        // Padding is less than one alignment behind each parameter and in each part, whatever the extents.
        const std::size_t padding = model[l].layout().buffer_numel() - weight_numel(l) - bias_numel;
        if (padding >= (2 + c.dp * c.cp) * 128 / 2) {
            std::printf("%zu elements of padding\n", padding);
            std::exit(1);
        }
        model[l].initialize([&](auto, auto name, std::size_t i) { return initial(l, name == "weight" ? 0 : 1, i); });
    }
    sk::Model groups{model};
    sk::SGD optimizer{groups, {.learning_rate = learning_rate}};
    const std::size_t data_rank = rank.mesh().template coordinate<sk::Dp>(rank.rank()) * c.cp +
                                  rank.mesh().template coordinate<sk::Cp>(rank.rank());
    // Addends over tp: 1, 3, 5, ... of tp * tp parts.
    const auto parts = static_cast<double>(c.tp * c.tp);
    const double share = static_cast<double>(2 * rank.mesh().template coordinate<sk::Tp>(rank.rank()) + 1) / parts;
    Outcome outcome;
    for (std::size_t s = 0; s < steps; ++s) {
        sk::Accumulation accumulation{groups, c.microbatches};
        for (std::size_t m = 0; m < c.microbatches; ++m) {
            for (std::size_t l = layers; l-- > 0;) {
                auto window = model[l].unshard();
                auto handle = accumulation.gradients(model[l]);
                const auto backward = [&](auto parameter, std::size_t offset, double part) {
                    const auto value = window[parameter];
                    auto target = handle[parameter];
                    using Gradient = typename Precision::Gradient;
                    for (std::size_t i = 0; i < value.size(); ++i) {
                        target[i] += static_cast<Gradient>(part * gradient(value[i], l, offset + i, data_rank, m));
                    }
                };
                backward(Weight<E>{}, 0, 1);
                backward(Bias<E>{}, weight_numel(l), share);
                model[l].reshard(std::move(window));
                accumulation.add(std::move(handle));
            }
        }
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        outcome.norms.push_back(sk::global_norm(reduced).value());
        const auto each = sk::gradient_norms(reduced).model;
        outcome.norms.insert(outcome.norms.end(), {each.two, each.infinity});
        optimizer.step(std::move(reduced));
        const auto number = static_cast<double>(rank.rank() + s);
        outcome.norms.insert(outcome.norms.end(), {sk::all_reduce_value(rank, number),
                                                   sk::all_reduce_value(rank, number, sk::ReduceOp::max),
                                                   sk::exact_sum(rank, std::array{number, 0.5})});
    }
    for (std::size_t l = 0; l < layers; ++l) {
        std::vector<double> full(weight_numel(l));
        model[l].read_full(Weight<E>{}, std::span(full));
        outcome.parameters.insert(outcome.parameters.end(), full.begin(), full.end());
        full.resize(bias_numel);
        model[l].read_full(Bias<E>{}, std::span(full));
        outcome.parameters.insert(outcome.parameters.end(), full.begin(), full.end());
    }
    return outcome;
}

bool close(const std::vector<double>& given, const std::vector<double>& expected, double bound, const char* what,
           const std::string& label) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double difference = std::abs(given[i] - expected[i]);
        if (!(difference <= bound * (1 + std::abs(expected[i])))) {
            std::printf("%s: %s %zu is %.17g, expected %.17g\n", label.c_str(), what, i, given[i], expected[i]);
            return false;
        }
    }
    return true;
}

template <class Policy, class Precision>
void check(const char* precision, const Case& c, double bound, Policy policy = {}) {
    const Outcome expected = serial(c);
    const sk::DeviceMesh mesh{c.dp, c.tp, c.cp};
    const std::string label = std::string(Policy::name) + " " + precision + " on " + mesh.describe() + ", " +
                              std::to_string(c.microbatches) + " microbatches";
    std::vector<Outcome> outcomes(mesh.size());
    sk::threads::run(mesh, [&](auto& rank) { outcomes[rank.rank()] = parallel<Policy, Precision>(rank, c, policy); });
    for (const Outcome& outcome : outcomes) {
        if (!close(outcome.norms, expected.norms, bound, "norm", label) ||
            !close(outcome.parameters, expected.parameters, bound, "parameter", label)) {
            std::exit(1);
        }
    }
}

template <class Precision>
void check_policies(const char* precision, double bound) {
    constexpr Case cases[] = {{2, 1, 1, 1}, {3, 1, 1, 2}, {4, 1, 1, 2}, {2, 1, 2, 2}, {1, 2, 2, 1}, {2, 2, 1, 1}};
    for (const Case& c : cases) {
        check<sk::NoShard, Precision>(precision, c, bound);
        check<sk::ShardOptimizer, Precision>(precision, c, bound);
        check<sk::FullShard, Precision>(precision, c, bound);
        check<sk::ShardOver<sk::ShardGradOp, sk::Axes<sk::DpShard, sk::Cp>>, Precision>(precision, c, bound);
        if (c.dp % 2 == 0) {
            check<sk::HybridShard<sk::dynamic>, Precision>(precision, c, bound, sk::HybridShard<sk::dynamic>{2});
            check<PairedOptimizer, Precision>(precision, c, bound);
            check<sk::HybridOptimizer<2>, Precision>(precision, c, bound);
            check<sk::SecondaryShard<2>, Precision>(precision, c, bound);
            check<ShardBoth, Precision>(precision, c, bound);
        }
    }
    check<sk::HybridShard<sk::dynamic>, Precision>(precision, {2, 1, 2, 2}, bound, sk::HybridShard<sk::dynamic>{1});
}

struct Table : sk::Param<"table", double, 6, 5> {};

/// Sums over whole parameters before an update: Adafactor has one rank's values on every rank.
template <class Policy>
void check_factored(std::size_t dp, std::size_t tp, std::vector<double>& expected) {
    using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
    const std::size_t world = dp * tp;
    std::vector<std::vector<double>> values(world, std::vector<double>(30));
    sk::threads::run(Mesh(dp, tp, 1), [&](auto& rank) {
        sk::Sharded<Table, Policy, sk::Precision<double>> layer{rank, "layer"};
        layer.initialize([](auto, auto, std::uint64_t i) { return initial(0, 0, i); });
        sk::Model model{layer};
        // Neither clipped nor scaled by what is summed too, in which a sum twice too large would cancel.
        sk::Adafactor optimizer{model, {.learning_rate = 0.0625, .least_scale = 4, .clip_threshold = 1e3}};
        for (std::size_t step = 0; step < steps; ++step) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            std::size_t i = 0;
            for (double& gradient : gradients[Table{}]) { gradient = initial(step, 1, i++); }
            accumulation.add(std::move(gradients));
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        }
        layer.read_full(0, std::span(values[rank.rank()]));
    });
    if (expected.empty()) { expected = values[0]; }
    for (const std::vector<double>& of_rank : values) {
        if (!close(of_rank, expected, 1e-12, "parameter", "Adafactor")) { std::exit(1); }
    }
}

}  // namespace

int main() {
    try {
        std::vector<double> of_one_rank;
        check_factored<sk::NoShard>(1, 1, of_one_rank);
        check_factored<sk::FullShard>(2, 2, of_one_rank);
        check_policies<sk::Precision<double>>("fp64", 1e-12);
        // Gradients in fp32 take the reductions that are not in place.
        check_policies<sk::Precision<double, float, double, double>>("fp64 with fp32 gradients", 1e-5);
    } catch (const std::exception& error) {
        std::printf("exception: %s\n", error.what());
        return 1;
    }
    std::puts("all policies agree with the serial computation");
}

// SPDX-License-Identifier: Apache-2.0
// A rule of whole matrices that is not the library's, as docs/optimizers.md says how to write one.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/checkpoint.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/shardkit.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace matrix_rule_test {

namespace sk = shardkit;

namespace {

struct RowOptions {
    double learning_rate = 0.1;
    double weight_decay = 0;
};
void validate(const RowOptions& options, sk::SourceLocation where) {
    if (!(options.learning_rate >= 0)) { sk::throw_invalid_argument(where, "Rows: the learning rate is negative"); }
}

template <class A>
struct RowApply {
    A learning_rate;

    template <class V>
    constexpr void operator()(V& parameter, V moved) const {
        parameter = parameter - learning_rate * moved;
    }
};
template <class A>
struct RowUpdate {
    sk::rules::Factor<A> gradient_scale;
    A learning_rate;

    template <class V>
    constexpr void operator()(V& direction, V gradient) const {
        direction = gradient_scale * gradient;
    }
    constexpr RowApply<A> apply(sk::rules::MatrixExtents /*extents*/) const { return {learning_rate}; }
};

/// kept = 0.5 kept + 0.5 gram, unless the step is skipped. By element of the square.
template <class A>
struct Average {
    const std::uint32_t* skip;
    const A* gram;
    A* kept;

    constexpr void operator()(std::uint64_t i) const {
        if (*skip == 0) { kept[i] = (kept[i] + gram[i]) / 2; }
    }
};
/// Each row divided by the root of its own average.
template <class A>
struct DivideRows {
    std::size_t rows, columns;
    const A* kept;
    A* values;

    constexpr void operator()(std::uint64_t i) const {
        const std::size_t row = i / columns;
        const A sum = kept[row * rows + row];
        values[i] = sum > 0 ? values[i] / std::sqrt(sum) : A{0};
    }
};

/// Keeps the mean of G G^T of each matrix, and moves each row by the gradient over the root of its diagonal.
struct RowRule {
    using Options = RowOptions;
    static constexpr std::string_view name = "Rows";
    static constexpr std::array<std::string_view, 0> state_names{};
    struct Progress {
        std::uint64_t steps = 0;
    };
    static constexpr std::size_t state_count(const Options& /*options*/) { return 0; }
    static constexpr void advance(Progress& progress, const Options& /*options*/) { ++progress.steps; }
    template <class A>
    using Update = RowUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return {sk::rules::Factor<A>(scale), static_cast<A>(options.learning_rate)};
    }

    template <class A>
    static constexpr std::size_t scratch(sk::rules::MatrixExtents extents) {
        return extents.rows * extents.rows;
    }
    static constexpr std::size_t kept(sk::rules::MatrixExtents extents) { return extents.rows * extents.rows; }
    static constexpr std::uint64_t cost(sk::rules::MatrixExtents extents) { return extents.numel() * extents.rows; }
    template <class Engine, class Products, class A>
    static void transform(const typename Engine::Stream& stream, const Products& products,
                          const sk::rules::WholeMatrix<A, Update<A>>& whole) {
        const auto [rows, columns] = whole.extents;
        A* const gram = whole.scratch.data();
        products.gram(stream, sk::rules::GramProduct<A>{rows, columns, A(1), whole.values.data(), A(0), gram});
        Engine::Kernels::for_each_index(stream, rows * rows, Average<A>{whole.skip, gram, whole.kept.data()});
        Engine::Kernels::for_each_index(stream, rows * columns,
                                        DivideRows<A>{rows, columns, whole.kept.data(), whole.values.data()});
    }
};

// One of the requirements left out each.
struct NoScratch : RowRule {
    template <class A>
    static constexpr void scratch(sk::rules::MatrixExtents extents);
};
struct NoKept : RowRule {
    static constexpr int kept = 0;
};
struct NoCost : RowRule {
    static constexpr double cost(sk::rules::MatrixExtents extents);
};
struct NoApply : RowRule {
    template <class A>
    using Update = RowApply<A>;
};
static_assert(sk::rules::OptimizerRule<RowRule> && sk::rules::MatrixRule<RowRule> &&
              sk::rules::MatrixRule<sk::rules::MuonRule>);
static_assert(!sk::rules::MatrixRule<NoScratch> && !sk::rules::MatrixRule<NoKept> && !sk::rules::MatrixRule<NoCost> &&
              !sk::rules::MatrixRule<NoApply> && !sk::rules::MatrixRule<sk::rules::AdamWRule>);

struct Square : sk::Param<"square", double, 3, 3> {};
struct Wide : sk::Param<"wide", double, 2, 5> {};
using Group = sk::Params<Square, Wide>;

double gradient_of(int step, std::size_t i) { return std::cos(static_cast<double>(i * i + 7) * (step + 1)); }

/// What steps make of a matrix of zeros, with a mean of squares for each row.
std::vector<double> by_hand(std::size_t rows, std::size_t columns, int steps) {
    std::vector<double> values(rows * columns), means(rows);
    for (int step = 0; step < steps; ++step) {
        for (std::size_t r = 0; r < rows; ++r) {
            double sum = 0;
            for (std::size_t c = 0; c < columns; ++c) { sum += std::pow(gradient_of(step, r * columns + c), 2); }
            means[r] = (means[r] + sum) / 2;
            for (std::size_t c = 0; c < columns; ++c) {
                values[r * columns + c] -= 0.1 * gradient_of(step, r * columns + c) / std::sqrt(means[r]);
            }
        }
    }
    return values;
}

}  // namespace

TEST_CASE(
    "a rule that keeps matrices on their owners goes on from step to step, skips a step, and resumes anywhere") {
    const temporary_folder::Folder folder;
    using Engine = sk::threads::Engine;
    /// Steps [first, last) on `ranks`, from the checkpoint `from` unless that is empty, and a save in `to`.
    const auto run = [&](std::size_t ranks, int first, int last, const std::string& from, const std::string& to) {
        sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
            sk::Sharded<Group, sk::FullShard, Engine> layer{rank, "layer"};
            sk::Model model{layer};
            sk::rules::MatrixOptimizer<RowRule, Engine, sk::DefaultPrecision<double>> optimizer{
                model, sk::HostProducts{}, {.learning_rate = 0.1}};
            sk::LossScale<Engine> loss_scale{rank, {.initial = 1}};
            const sk::checkpoint::State state{model, optimizer, loss_scale};
            const auto step = [&](int number, double factor) {
                sk::Accumulation accumulation{model};
                auto gradients = accumulation.gradients(layer);
                const auto fill = [&](auto view) {
                    for (std::size_t i = 0; i < view.size(); ++i) { view[i] = factor * gradient_of(number, i); }
                };
                fill(gradients[Square{}]);
                fill(gradients[Wide{}]);
                accumulation.add(std::move(gradients));
                optimizer.step(std::move(accumulation), {.loss_scale = &loss_scale});
            };
            if (!from.empty()) {
                // What it has kept before is gone.
                step(7, 100);
                sk::checkpoint::load(rank, from + "/step-00000001", state);
                CHECK(optimizer.steps(layer) == static_cast<std::uint64_t>(first));
            }
            for (int number = first; number < last; ++number) {
                step(number, 1);
                if (number == 0) { step(number, std::numeric_limits<double>::infinity()); }
            }
            std::vector<double> square(9), wide(10);
            layer.read_full(Square{}, square);
            layer.read_full(Wide{}, wide);
            const auto check = [](const std::vector<double>& values, const std::vector<double>& expected) {
                for (std::size_t i = 0; i < values.size(); ++i) { CHECK(std::abs(values[i] - expected[i]) < 1e-15); }
            };
            check(square, by_hand(3, 3, last));
            check(wide, by_hand(2, 5, last));
            sk::checkpoint::save(rank, to, 1, state);
        });
    };
    for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
        const std::string begun = folder.file("begun" + std::to_string(ranks));
        run(ranks, 0, 2, "", begun);
        CHECK(temporary_folder::contents(begun).contains("step-00000001/state/kept.safetensors"));
        for (const std::size_t others : {std::size_t{1}, std::size_t{3}}) {
            run(others, 2, 4, begun, folder.file("gone_on" + std::to_string(ranks) + std::to_string(others)));
        }
    }
}

}  // namespace matrix_rule_test

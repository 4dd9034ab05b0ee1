// SPDX-License-Identifier: Apache-2.0
// A rule of whole matrices that is not the library's, as docs/own_optimizer.md says how to write one.
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

#include "row_rule.hpp"
#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace matrix_rule_test {

namespace sk = shardkit;
using row_rule::RowApply;
using row_rule::RowRule;

namespace {

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
    /// Steps [first, last) on `ranks`, from the checkpoint `from` unless that is empty, and a save in `to`.
    const auto run = [&](std::size_t ranks, int first, int last, const std::string& from, const std::string& to) {
        sk::threads::run(sk::DeviceMesh{ranks}, [&](auto& rank) {
            sk::Sharded<Group, sk::FullShard> layer{rank, "layer"};
            sk::Model model{layer};
            sk::rules::MatrixOptimizer<RowRule> optimizer{model, sk::HostProducts{}, {.learning_rate = 0.1}};
            sk::LossScale loss_scale{rank, {.initial = 1}};
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <string_view>

#include <shardkit/core/factor.hpp>
#include <shardkit/factored/adafactor_options.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/option_range.hpp>

// Adafactor's arithmetic.

namespace shardkit::rules {

/// Adafactor's arithmetic in a step, in double but for the elements.
///     R, C: R + (1 - beta2_t) (mean of g^2 over a row, or a column - R)
///     u = g / max(sqrt(R C / mean(R)), epsilon)        of vectors: R is of each element, and there is no C
///     p = p (1 - lr weight_decay) - rho max(least_scale, rms(p)) u / max(1, rms(u) / clip_threshold)
/// Source:  torch.optim.Adafactor; Shazeer and Stern, arXiv 1804.04235, algorithms 4 and 5
template <std::floating_point A>
struct AdafactorUpdate {
    Factor<double> gradient_scale;
    double decay;
    double one_minus_beta2;
    double rho;
    double epsilon;
    double least_scale;
    double clip_threshold;

    /// The numbers by what they are of.
    static constexpr std::size_t row_squares = 0, column_squares = 1, parameter_squares = 2, step_squares = 3;

    template <std::size_t Sum, class Numbers>
    constexpr double term(const FactoredElement<A>& element, const Numbers& numbers) const {
        if constexpr (Sum == parameter_squares) {
            return static_cast<double>(element.parameter) * static_cast<double>(element.parameter);
        } else {
            const double one = Sum == step_squares ? step(element, numbers) : gradient(element);
            return one * one;
        }
    }
    template <std::size_t Pass, class Numbers>
    constexpr void settle(const Numbers& numbers) const {
        const FactoredExtents& extents = numbers.extents;
        const auto root_mean = [&](double sum) { return std::sqrt(sum / static_cast<double>(extents.numel())); };
        const std::size_t rows = numbers_over(Over::rows, extents);
        const auto total = [&](const double* sums) {
            double all = 0;
            for (std::size_t r = 0; r < rows; ++r) { all += sums[r]; }
            return all;
        };
        if constexpr (Pass == 0) {
            const std::size_t columns = numbers_over(Over::columns, extents);
            forget(numbers.kept[0], numbers.sums[row_squares], rows, static_cast<double>(extents.columns));
            forget(numbers.kept[1], numbers.sums[column_squares], columns, static_cast<double>(extents.rows));
            // What steps read of a row lies where its sum was.
            double* const of_row = numbers.sums[row_squares];
            for (std::size_t r = 0; r < rows; ++r) { of_row[r] = static_cast<double>(numbers.kept[0][r]); }
            for (std::size_t m = 0; !extents.is_vector && m < extents.matrices; ++m) {
                double mean = 0;
                double* const first = of_row + m * extents.rows;
                for (std::size_t r = 0; r < extents.rows; ++r) { mean += first[r]; }
                mean = std::max(mean / static_cast<double>(extents.rows), epsilon);
                for (std::size_t r = 0; r < extents.rows; ++r) { first[r] /= mean; }
            }
            double* const scale = numbers.sums[parameter_squares];
            *scale = rho * std::max(least_scale, root_mean(total(scale)));
        } else {
            double* const moved = numbers.sums[step_squares];
            *moved = *numbers.sums[parameter_squares] / std::max(1.0, root_mean(total(moved)) / clip_threshold);
        }
    }
    template <class Numbers>
    constexpr A direction(const FactoredElement<A>& element, const Numbers& numbers) const {
        return static_cast<A>(*numbers.sums[step_squares] * step(element, numbers));
    }
    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V direction) const {
        parameter = static_cast<A>(decay) * parameter - direction;
    }

  private:
    constexpr double gradient(const FactoredElement<A>& element) const {
        return gradient_scale * static_cast<double>(element.gradient);
    }
    template <class Numbers>
    constexpr double step(const FactoredElement<A>& element, const Numbers& numbers) const {
        const double of_row = numbers.sums[row_squares][element.row];
        const double moment =
            numbers.extents.is_vector ? of_row : of_row * static_cast<double>(numbers.kept[1][element.column]);
        return gradient(element) / std::sqrt(std::max(moment, epsilon * epsilon));
    }
    constexpr void forget(A* kept, const double* sums, std::size_t count, double elements) const {
        for (std::size_t i = 0; i < count; ++i) {
            const auto before = static_cast<double>(kept[i]);
            kept[i] = static_cast<A>(before + one_minus_beta2 * (sums[i] / elements - before));
        }
    }
};

/// Adafactor's part of an Optimizer.
struct AdafactorRule : CountsSteps {
    using Options = AdafactorOptions;
    static constexpr std::string_view name = "Adafactor";
    static constexpr std::array<OptionRange<Options>, 6> ranges{
        {{"learning_rate", &Options::learning_rate, not_negative},
         {"beta2_decay", &Options::beta2_decay, not_negative},
         {"epsilon", &Options::epsilon, positive},
         {"least_scale", &Options::least_scale, not_negative},
         {"clip_threshold", &Options::clip_threshold, positive},
         {"weight_decay", &Options::weight_decay, not_negative}}};
    static constexpr std::array<std::string_view, 0> state_names{};
    static constexpr std::array<KeptState, 2> kept{{{"row_var", Over::rows, "variance"}, {"col_var", Over::columns}}};
    static constexpr std::array<PassSum, 4> sums{
        {{0, Over::rows}, {0, Over::columns}, {0, Over::rows}, {1, Over::rows}}};

    static constexpr std::size_t state_count(const Options& /*options*/) noexcept { return 0; }
    template <class A>
    using Update = AdafactorUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& progress, const Options& options, double scale) {
        const auto t = static_cast<double>(progress.steps);
        return {Factor<double>(scale),
                1 - options.learning_rate * options.weight_decay,
                std::pow(t, -options.beta2_decay),
                std::min(options.learning_rate, 1 / std::sqrt(t)),
                options.epsilon,
                options.least_scale,
                options.clip_threshold};
    }
};

}  // namespace shardkit::rules

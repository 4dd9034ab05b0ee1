// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/norm_sum.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/any_update.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/sharded/host_conversions.hpp>

#include "engine_workload.hpp"

namespace benchmarks::kernels {

/// [0, n) in `runs` ranges of about one size, or n where these are fewer; their borders lie anywhere.
template <class Range>
std::vector<Range> cut(std::size_t n, std::size_t runs) {
    const std::size_t count = std::min(n, runs);
    std::vector<Range> ranges(count);
    std::size_t begin = 0;
    for (std::size_t r = 0; r < count; ++r) {
        ranges[r].begin = begin;
        begin += n / count + (r < n % count ? 1 : 0);
        ranges[r].end = begin;
    }
    return ranges;
}

/// What optimizers' steps have in common: fp32 parameters and, with bf16 gradients, also the bf16 copy that the next
/// all-gather sends.
template <class T, class Rule>
class StepWorkload : public EngineWorkload {
    static constexpr bool gathers = !std::is_same_v<T, float>;
    using Precision = shardkit::Precision<T, T, T, float>;

  protected:
    static constexpr double scale = 0.5;  ///< of the gradient

    StepWorkload(shardkit::Rank& rank, std::size_t n, std::size_t runs,
                 const typename Rule::template Update<float>& update)
        : EngineWorkload(rank),
          master_(rank.template buffer<float>(n)),
          gathered_(rank.template buffer<T>(gathers ? n : 0)),
          gradient_(rank.template buffer<T>(n)),
          runs_(rank, std::span<const shardkit::rules::UpdateRange>(cut<shardkit::rules::UpdateRange>(n, runs))),
          update_(rank, as_bytes(update)),
          skip_(rank, std::uint32_t{0}) {}

    /// Makes a step with those states.
    void step(std::initializer_list<float*> states) {
        shardkit::detail::AnyUpdateWork work{
            .rule = &shardkit::detail::updates_of<Rule, shardkit::host::AnyKernels::Loops>,
            .conversions = &conversions,
            .load_gradients = conversions.load_sums,
            .ranges = runs_.span(),
            .updates = update_.data(),
            .skip = skip_.data(),
            .count = master_.size(),
            .arithmetic = shardkit::ElementType::fp32,
            .updated = shardkit::ElementType::fp32,
            .gathers = shardkit::element_type_of<T>,
            .gradients = shardkit::element_type_of<T>,
            .master = master_.data(),
            .gathered = gathers ? gathered_.data() : nullptr,
            .gradient = gradient_.data(),
        };
        for (float* const state : states) {
            work.states[work.state_count++].elements = reinterpret_cast<std::byte*>(state);
        }
        work.give(this->stream_);
    }

    /// Parameters are the values of number 0, gradients those of number 1.
    void put_parameters() {
        this->put_values(master_.span(), 0);
        this->put_values(gradient_.span(), 1);
        this->spoil(gathered_.span());
    }
    /// right(i, parameter) says so of the rest; the copy must be what the parameter rounds to.
    template <class Right>
    std::uint64_t count_wrong_steps(Right right) {
        const auto master = this->template read<float>(master_.span());
        const auto gathered = this->template read<T>(gathered_.span());
        return this->count(master.size(), [&](std::size_t i) {
            return right(i, static_cast<double>(master[i])) && (!gathers || gathered[i] == static_cast<T>(master[i]));
        });
    }

    std::size_t runs() const noexcept override { return runs_.size(); }

    shardkit::HostBuffer<float> master_;
    shardkit::HostBuffer<T> gathered_;
    shardkit::HostBuffer<T> gradient_;

  private:
    static constexpr shardkit::detail::HostConversions conversions =
        shardkit::detail::host_conversions<shardkit::host::AnyKernels::Loops, Precision>();

    static shardkit::detail::AnyRuleUpdate as_bytes(const typename Rule::template Update<float>& update) {
        shardkit::detail::AnyRuleUpdate made;
        std::memcpy(made.bytes, &update, sizeof update);
        return made;
    }

    shardkit::detail::EngineTable<shardkit::rules::UpdateRange> runs_;
    shardkit::detail::EngineTable<shardkit::detail::AnyRuleUpdate> update_;
    shardkit::detail::EngineTable<std::uint32_t> skip_;
};

/// AdamW's second step.
template <class T>
class AdamW final : public StepWorkload<T, shardkit::rules::AdamWRule> {
    using Base = StepWorkload<T, shardkit::rules::AdamWRule>;
    static constexpr shardkit::AdamWOptions options{};
    static constexpr double power1 = options.beta1 * options.beta1;
    static constexpr double power2 = options.beta2 * options.beta2;

  public:
    AdamW(shardkit::Rank& rank, std::size_t n, std::size_t runs)
        : Base(rank, n, runs, shardkit::rules::adamw_update<float>(options, power1, power2, Base::scale)),
          exp_avg_(rank.template buffer<float>(n)),
          exp_avg_sq_(rank.template buffer<float>(n)) {}

    void prepare() override {
        this->put_parameters();
        this->put_values(exp_avg_.span(), 2);
        std::vector<float> squares = values<float>(3, exp_avg_sq_.size());
        for (float& square : squares) { square *= square; }
        this->put(exp_avg_sq_.span(), squares);
    }
    void once() override { this->step({exp_avg_.data(), exp_avg_sq_.data()}); }
    std::uint64_t count_wrong() override {
        const auto exp_avg = this->template read<float>(exp_avg_.span());
        const auto exp_avg_sq = this->template read<float>(exp_avg_sq_.span());
        return this->count_wrong_steps([&](std::size_t i, double parameter) {
            const double g = Base::scale * static_cast<double>(value(1, i));
            const double m = options.beta1 * static_cast<double>(value(2, i)) + (1 - options.beta1) * g;
            const auto root = static_cast<double>(value(3, i));
            const double v = options.beta2 * root * root + (1 - options.beta2) * g * g;
            const double p =
                (1 - options.learning_rate * options.weight_decay) * static_cast<double>(value(0, i)) -
                options.learning_rate * (m / (1 - power1)) / (std::sqrt(v / (1 - power2)) + options.epsilon);
            return near(parameter, p) && near(static_cast<double>(exp_avg[i]), m) &&
                   near(static_cast<double>(exp_avg_sq[i]), v);
        });
    }

  private:
    shardkit::HostBuffer<float> exp_avg_;
    shardkit::HostBuffer<float> exp_avg_sq_;
};

/// A step of SGD with momentum 0.9.
template <class T>
class Sgd final : public StepWorkload<T, shardkit::rules::SgdRule> {
    using Base = StepWorkload<T, shardkit::rules::SgdRule>;
    static constexpr shardkit::SgdOptions options{
        .learning_rate = 1e-3, .rule = shardkit::Momentum::classical, .momentum = 0.9, .weight_decay = 1e-2};

  public:
    Sgd(shardkit::Rank& rank, std::size_t n, std::size_t runs)
        : Base(rank, n, runs, shardkit::rules::sgd_update<float>(options, Base::scale)),
          momentum_(rank.template buffer<float>(n)) {}

    void prepare() override {
        this->put_parameters();
        this->put_values(momentum_.span(), 2);
    }
    void once() override { this->step({momentum_.data()}); }
    std::uint64_t count_wrong() override {
        const auto momentum = this->template read<float>(momentum_.span());
        return this->count_wrong_steps([&](std::size_t i, double parameter) {
            const auto before = static_cast<double>(value(0, i));
            const double g = Base::scale * static_cast<double>(value(1, i)) + options.weight_decay * before;
            const double b = options.momentum * static_cast<double>(value(2, i)) + g;
            return near(parameter, before - options.learning_rate * b) && near(static_cast<double>(momentum[i]), b);
        });
    }

  private:
    shardkit::HostBuffer<float> momentum_;
};

/// The sum of squares of a scaled gradient, and whether all of it is finite.
template <class K, class T>
class Norm final : public EngineWorkload {
    using Base = EngineWorkload;
    static constexpr double scale = 0.5;

  public:
    Norm(shardkit::Rank& rank, std::size_t n, std::size_t runs)
        : Base(rank),
          gradient_(rank.template buffer<T>(n)),
          into_(rank.template buffer<double>(shardkit::detail::NormSum::numbers)),
          scale_(rank, scale) {
        std::vector<std::span<const T>> spans;
        for (const shardkit::IndexRange run : cut<shardkit::IndexRange>(n, runs)) {
            spans.push_back(gradient_.span().subspan(run.begin, run.size()));
        }
        const auto pieces = shardkit::engine::norm_table(std::span<const std::span<const T>>(spans));
        positions_ = {pieces.front().begin, pieces.back().end};
        pieces_ = {rank, std::span<const shardkit::engine::NormPiece<T>>(pieces)};
    }
    std::size_t runs() const noexcept override { return pieces_.size(); }

    void prepare() override {
        this->put_values(gradient_.span(), 1);
        this->put(into_.span(), std::vector<double>(into_.size()));
    }
    void once() override {
        K::norm_partial(this->stream_, std::span<const shardkit::engine::NormPiece<T>>(pieces_.span()), positions_,
                        static_cast<const double*>(scale_.data()), into_.data());
    }
    std::uint64_t count_wrong() override {
        double sum = 0;
        for (std::size_t i = 0; i < gradient_.size(); ++i) {
            const double g = scale * static_cast<double>(value(1, i));
            sum += g * g;
        }
        const auto total = shardkit::detail::NormSum(this->template read<double>(into_.span()).data()).total();
        return (std::abs(total.sum_of_squares - sum) <= 1e-5 * sum ? 0U : 1U) + (total.nonfinite == 0 ? 0U : 1U);
    }

  private:
    typename Base::template Buffer<T> gradient_;
    typename Base::template Buffer<double> into_;
    shardkit::detail::EngineTable<shardkit::engine::NormPiece<T>> pieces_;
    shardkit::IndexRange positions_;
    shardkit::detail::EngineTable<double> scale_;
};

/// From T to the other of float and bf16.
template <class K, class T>
class Cast final : public EngineWorkload {
    using Base = EngineWorkload;
    using To = std::conditional_t<std::is_same_v<T, float>, shardkit::bf16, float>;

  public:
    Cast(shardkit::Rank& rank, std::size_t n)
        : Base(rank), from_(rank.template buffer<T>(n)), to_(rank.template buffer<To>(n)) {}

    void prepare() override {
        this->put_values(from_.span(), 0);
        this->spoil(to_.span());
    }
    void once() override { K::convert(this->stream_, std::span<const T>(from_.span()), to_.span()); }
    std::uint64_t count_wrong() override {
        const auto to = this->template read<To>(to_.span());
        return this->count(to.size(), [&](std::size_t i) { return to[i] == static_cast<To>(value(0, i)); });
    }

  private:
    typename Base::template Buffer<T> from_;
    typename Base::template Buffer<To> to_;
};

/// Gradients of T added to sums in float.
template <class K, class T>
class Accumulate final : public EngineWorkload {
    using Base = EngineWorkload;

  public:
    Accumulate(shardkit::Rank& rank, std::size_t n)
        : Base(rank), addend_(rank.template buffer<T>(n)), total_(rank.template buffer<float>(n)) {}

    void prepare() override {
        this->put_values(addend_.span(), 0);
        this->put_values(total_.span(), 1);
    }
    void once() override { K::accumulate(this->stream_, std::span<const T>(addend_.span()), total_.span()); }
    std::uint64_t count_wrong() override {
        const auto total = this->template read<float>(total_.span());
        return this->count(total.size(), [&](std::size_t i) { return total[i] == value(0, i) + value(1, i); });
    }

  private:
    typename Base::template Buffer<T> addend_;
    typename Base::template Buffer<float> total_;
};

}  // namespace benchmarks::kernels

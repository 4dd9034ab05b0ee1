// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/optim/adamw_spans.hpp>
#include <shardkit/optim/adamw_update.hpp>
#include <shardkit/optim/sgd_spans.hpp>
#include <shardkit/optim/sgd_update.hpp>
#include <shardkit/optim/update_run.hpp>

#include "../common/workload.hpp"
#include "values.hpp"

namespace benchmarks::kernels {

using shardkit::HostBuffer;

/// What all kernels here have in common: buffers, and calls in a row. `K`: the Kernels of an engine on the host.
template <class Self>
class KernelWorkload : public Workload {
  public:
    void call(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) {
            static_cast<Self*>(this)->once();
            asm volatile("" ::: "memory");  // every call is made, whoever reads its results
        }
    }

  protected:
    template <class T>
    static void put(const HostBuffer<T>& buffer, std::uint64_t number) {
        const auto elements = values<T>(number, buffer.size());
        std::copy(elements.begin(), elements.end(), buffer.data());
    }
    template <class Right>
    static std::uint64_t count(std::size_t n, Right right) {
        std::uint64_t wrong = 0;
        for (std::size_t i = 0; i < n; ++i) { wrong += right(i) ? 0U : 1U; }
        return wrong;
    }
    static constexpr shardkit::InlineStream stream{};
};

/// A step with fp32 parameters; with bf16 gradients also the bf16 copy that the next all-gather sends.
template <class K, class T>
class AdamW final : public KernelWorkload<AdamW<K, T>> {
    using Base = KernelWorkload<AdamW<K, T>>;
    static constexpr bool gathers = !std::is_same_v<T, float>;
    static constexpr double scale = 0.5;
    static constexpr shardkit::AdamWOptions options{};
    static constexpr double power1 = options.beta1 * options.beta1;  // the second step
    static constexpr double power2 = options.beta2 * options.beta2;

  public:
    explicit AdamW(std::size_t n)
        : master_(n), gathered_(gathers ? n : 0), gradient_(n), exp_avg_(n), exp_avg_sq_(n), run_{0, n, 0} {}

    void prepare() override {
        Base::put(master_, 0);
        Base::put(gradient_, 1);
        Base::put(exp_avg_, 2);
        Base::put(exp_avg_sq_, 3);
        for (float& square : exp_avg_sq_.span()) { square *= square; }
        std::fill_n(gathered_.data(), gathered_.size(), static_cast<T>(-3.0F));
    }
    void once() {
        K::adamw(Base::stream, std::span<const shardkit::UpdateRun>(&run_, 1), &update_, &skip_,
                 shardkit::AdamWSpans<float, T, T>{master_.span(), gathered_.span(), gradient_.span(),
                                                   exp_avg_.span(), exp_avg_sq_.span()});
    }
    std::uint64_t count_wrong() override {
        return Base::count(master_.size(), [&](std::size_t i) {
            const double g = scale * static_cast<double>(value(1, i));
            const double m = options.beta1 * static_cast<double>(value(2, i)) + (1 - options.beta1) * g;
            const auto root = static_cast<double>(value(3, i));
            const double v = options.beta2 * root * root + (1 - options.beta2) * g * g;
            const double p =
                (1 - options.learning_rate * options.weight_decay) * static_cast<double>(value(0, i)) -
                options.learning_rate * (m / (1 - power1)) / (std::sqrt(v / (1 - power2)) + options.epsilon);
            const float stored = master_.data()[i];
            return near(static_cast<double>(stored), p) && near(static_cast<double>(exp_avg_.data()[i]), m) &&
                   near(static_cast<double>(exp_avg_sq_.data()[i]), v) &&
                   (!gathers || gathered_.data()[i] == static_cast<T>(stored));
        });
    }

  private:
    HostBuffer<float> master_;
    HostBuffer<T> gathered_;
    HostBuffer<T> gradient_;
    HostBuffer<float> exp_avg_;
    HostBuffer<float> exp_avg_sq_;
    shardkit::UpdateRun run_;
    shardkit::AdamWUpdate<float> update_ = shardkit::adamw_update<float>(options, power1, power2, scale);
    std::uint32_t skip_ = 0;
};

/// A step with momentum 0.9, parameters as for AdamW.
template <class K, class T>
class Sgd final : public KernelWorkload<Sgd<K, T>> {
    using Base = KernelWorkload<Sgd<K, T>>;
    static constexpr bool gathers = !std::is_same_v<T, float>;
    static constexpr double scale = 0.5;
    static constexpr shardkit::SgdOptions options{
        .learning_rate = 1e-3, .rule = shardkit::Momentum::classical, .momentum = 0.9, .weight_decay = 1e-2};

  public:
    explicit Sgd(std::size_t n) : master_(n), gathered_(gathers ? n : 0), gradient_(n), momentum_(n), run_{0, n, 0} {}

    void prepare() override {
        Base::put(master_, 0);
        Base::put(gradient_, 1);
        Base::put(momentum_, 2);
        std::fill_n(gathered_.data(), gathered_.size(), static_cast<T>(-3.0F));
    }
    void once() {
        K::sgd(Base::stream, std::span<const shardkit::UpdateRun>(&run_, 1), &update_, &skip_,
               shardkit::SgdSpans<float, T, T>{master_.span(), gathered_.span(), gradient_.span(), momentum_.span()});
    }
    std::uint64_t count_wrong() override {
        return Base::count(master_.size(), [&](std::size_t i) {
            const auto before = static_cast<double>(value(0, i));
            const double g = scale * static_cast<double>(value(1, i)) + options.weight_decay * before;
            const double b = options.momentum * static_cast<double>(value(2, i)) + g;
            const float stored = master_.data()[i];
            return near(static_cast<double>(stored), before - options.learning_rate * b) &&
                   near(static_cast<double>(momentum_.data()[i]), b) &&
                   (!gathers || gathered_.data()[i] == static_cast<T>(stored));
        });
    }

  private:
    HostBuffer<float> master_;
    HostBuffer<T> gathered_;
    HostBuffer<T> gradient_;
    HostBuffer<float> momentum_;
    shardkit::UpdateRun run_;
    shardkit::SgdUpdate<float> update_ = shardkit::sgd_update<float>(options, scale);
    std::uint32_t skip_ = 0;
};

/// The sum of squares of a scaled gradient, and whether all of it is finite.
template <class K, class T>
class Norm final : public KernelWorkload<Norm<K, T>> {
    using Base = KernelWorkload<Norm<K, T>>;

  public:
    explicit Norm(std::size_t n) : gradient_(n), whole_{0, n} {}

    void prepare() override {
        Base::put(gradient_, 1);
        into_[0] = into_[1] = 0;
    }
    void once() {
        K::norm_partial(Base::stream, std::span<const T>(gradient_.span()),
                        std::span<const shardkit::IndexRange>(&whole_, 1), &scale_, into_);
    }
    std::uint64_t count_wrong() override {
        double sum = 0;
        for (std::size_t i = 0; i < gradient_.size(); ++i) {
            const double g = scale_ * static_cast<double>(value(1, i));
            sum += g * g;
        }
        return (std::abs(into_[0] - sum) <= 1e-5 * sum ? 0U : 1U) + (into_[1] == 0 ? 0U : 1U);
    }

  private:
    HostBuffer<T> gradient_;
    shardkit::IndexRange whole_;
    double scale_ = 0.5;
    double into_[2] = {};
};

/// From T to the other of float and bf16.
template <class K, class T>
class Cast final : public KernelWorkload<Cast<K, T>> {
    using Base = KernelWorkload<Cast<K, T>>;
    using To = std::conditional_t<std::is_same_v<T, float>, shardkit::bf16, float>;

  public:
    explicit Cast(std::size_t n) : from_(n), to_(n) {}

    void prepare() override {
        Base::put(from_, 0);
        std::fill_n(to_.data(), to_.size(), static_cast<To>(-3.0F));
    }
    void once() { K::convert(Base::stream, std::span<const T>(from_.span()), to_.span()); }
    std::uint64_t count_wrong() override {
        return Base::count(to_.size(), [&](std::size_t i) { return to_.data()[i] == static_cast<To>(value(0, i)); });
    }

  private:
    HostBuffer<T> from_;
    HostBuffer<To> to_;
};

/// Gradients of T added to sums in float.
template <class K, class T>
class Accumulate final : public KernelWorkload<Accumulate<K, T>> {
    using Base = KernelWorkload<Accumulate<K, T>>;

  public:
    explicit Accumulate(std::size_t n) : addend_(n), total_(n) {}

    void prepare() override {
        Base::put(addend_, 0);
        Base::put(total_, 1);
    }
    void once() { K::accumulate(Base::stream, std::span<const T>(addend_.span()), total_.span()); }
    std::uint64_t count_wrong() override {
        return Base::count(total_.size(),
                           [&](std::size_t i) { return total_.data()[i] == value(0, i) + value(1, i); });
    }

  private:
    HostBuffer<T> addend_;
    HostBuffer<float> total_;
};

}  // namespace benchmarks::kernels

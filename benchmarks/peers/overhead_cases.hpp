// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/recorder.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

namespace benchmarks::peers {

struct Weight : shardkit::Param<"weight", float, shardkit::dynamic> {};

/// A few verbs of a `Sharded`, and the engine calls that they come down to, on the same memory.
class OverheadCase {
  public:
    OverheadCase() = default;
    OverheadCase(const OverheadCase&) = delete;
    OverheadCase& operator=(const OverheadCase&) = delete;
    virtual ~OverheadCase() = default;

    virtual std::size_t verbs() const = 0;
    /// Collective.
    virtual void wrapped(std::size_t times) = 0;
    /// Collective.
    virtual void bare(std::size_t times) = 0;
    /// Values that are not what both have to leave. Collective.
    virtual std::uint64_t count_wrong() = 0;

  protected:
    static void keep() noexcept { asm volatile("" ::: "memory"); }
    static std::uint64_t count_other_than(float right, std::span<const float> values) {
        std::uint64_t wrong = 0;
        for (const float value : values) { wrong += value == right ? 0U : 1U; }
        return wrong;
    }
};

/// What every case has: a group of n elements, all 1.
template <class Policy>
class GroupCase : public OverheadCase {
  protected:
    GroupCase(shardkit::Rank& rank, std::size_t n)
        : rank_(rank), layer_(rank, "layer", {shardkit::shape<Weight>(n)}), model_(shardkit::Model{layer_}) {
        layer_.initialize([](std::string_view, std::string_view, std::uint64_t) { return 1.0; });
    }
    float ranks() const { return static_cast<float>(rank_.world_size()); }

    using Layer = shardkit::Sharded<Weight, Policy>;
    shardkit::Rank& rank_;
    Layer layer_;
    decltype(shardkit::Model{std::declval<Layer&>()}) model_;
};

/// unshard and reshard: an all-gather with FullShard, and nothing with NoShard.
template <class Policy>
class WindowCase final : public GroupCase<Policy> {
    using Base = GroupCase<Policy>;

  public:
    WindowCase(shardkit::Rank& rank, std::size_t n) : Base(rank, n) {
        const auto window = this->layer_.unshard();
        full_ = shardkit::spi::group(this->layer_).parameters().full();  // leased again by every window
    }
    std::size_t verbs() const override { return 2; }
    void wrapped(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) {
            auto window = this->layer_.unshard();
            this->keep();
            this->layer_.reshard(std::move(window));
        }
    }
    void bare(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) {
            if constexpr (shards) {
                shardkit::all_gather(
                    this->rank_.world(),
                    std::span<const float>(shardkit::spi::group(this->layer_).parameters().resting()), full_,
                    this->rank_.communication_stream());
            }
            this->keep();
        }
    }
    std::uint64_t count_wrong() override {
        std::fill(full_.begin(), full_.end(), shards ? 0.0F : 1.0F);
        bare(1);
        std::uint64_t wrong = this->count_other_than(1, full_.first(this->layer_.parameters()[0].shape.numel()));
        if (shards) { std::fill(full_.begin(), full_.end(), 0.0F); }
        wrapped(1);
        wrong += this->count_other_than(1, full_.first(this->layer_.parameters()[0].shape.numel()));
        const auto window = this->layer_.unshard();
        return wrong + this->count_other_than(1, window[Weight{}]);
    }

  private:
    static constexpr bool shards = Policy::parameters == shardkit::Placement::sharded;
    std::span<float> full_;
};

/// An accumulation, its gradients, add and reduce: the zeroing of the gradients, and a reduce-scatter with FullShard
/// or an all-reduce with NoShard.
template <class Policy>
class ReduceCase final : public GroupCase<Policy> {
    using Base = GroupCase<Policy>;

  public:
    ReduceCase(shardkit::Rank& rank, std::size_t n) : Base(rank, n) {
        step(0);
        shardkit::Accumulation accumulation{this->model_};
        const auto gradients = accumulation.gradients(this->layer_);
        full_ = shardkit::spi::group(this->layer_).gradients().full();  // leased again by every step
    }
    std::size_t verbs() const override { return 4; }
    void wrapped(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) { step(0); }
    }
    void bare(std::size_t times) override {
        for (std::size_t i = 0; i < times; ++i) { bare_step(0); }
    }
    std::uint64_t count_wrong() override {
        std::uint64_t wrong = 0;
        const auto check = [&] {
            const std::span<float> reduced = shardkit::gradient_shard(this->layer_).first(own_elements());
            wrong += this->count_other_than(this->ranks(), reduced);
            std::fill(reduced.begin(), reduced.end(), 0.0F);
        };
        step(1);
        check();
        bare_step(1);
        check();
        return wrong;
    }

  private:
    static constexpr bool shards = Policy::gradients == shardkit::Placement::sharded;

    /// Of this rank's gradients those that are no padding.
    std::size_t own_elements() {
        for (const auto& shard : this->layer_.shards()) { return shard.range.size(); }
        return 0;
    }
    void step(float gradient) {
        shardkit::Accumulation accumulation{this->model_};
        auto gradients = accumulation.gradients(this->layer_);
        if (gradient != 0) {
            for (float& value : gradients[Weight{}]) { value += gradient; }
        }
        this->keep();
        accumulation.add(std::move(gradients));
        const auto reduced = shardkit::reduce(std::move(accumulation), shardkit::mean);
        this->keep();
    }
    void bare_step(float gradient) {
        const auto stream = this->rank_.communication_stream();
        shardkit::host::AnyKernels::fill(this->rank_.compute_stream(), full_,
                                         0.0F);  // the same memset on both sides
        if (gradient != 0) { shardkit::host::AnyKernels::fill(this->rank_.compute_stream(), full_, gradient); }
        this->keep();
        if constexpr (shards) {
            shardkit::reduce_scatter(this->rank_.world(), shardkit::ReduceOp::sum, std::span<const float>(full_),
                                     shardkit::gradient_shard(this->layer_), stream);
        } else {
            shardkit::all_reduce_in_place(this->rank_.world(), shardkit::ReduceOp::sum, full_, stream);
        }
        this->keep();
    }

    std::span<float> full_;
};

/// All-gathers, each of which a second flight recorder takes down too: the first one, of the rank, does it on both
/// sides.
class RecordedCase final : public OverheadCase {
  public:
    RecordedCase(shardkit::Rank& rank, std::size_t n) : rank_(rank), shard_(n, 1.0F), full_(n * rank.world_size()) {}
    std::size_t verbs() const override { return 16; }
    void wrapped(std::size_t times) override {
        const auto& label = rank_.world().label();
        for (std::size_t i = 0; i < times * verbs(); ++i) {
            constexpr auto type = shardkit::ElementType::fp32;
            const shardkit::Call call =
                shardkit::detail::call_of({type, type}, shardkit::Verb::all_gather, shard_.size(),
                                          full_.size() * sizeof(float), shardkit::SourceLocation::current());
            recorder_.begin(label, i, call);
            gather();
            recorder_.end(call);
        }
    }
    void bare(std::size_t times) override {
        for (std::size_t i = 0; i < times * verbs(); ++i) { gather(); }
    }
    std::uint64_t count_wrong() override {
        std::fill(full_.begin(), full_.end(), 0.0F);
        wrapped(1);
        std::uint64_t wrong = count_other_than(1, full_);
        for (std::uint64_t number = recorder_.oldest(); number < recorder_.count(); ++number) {
            const auto entry = recorder_.read(number);
            const bool right =
                entry && entry->signature.count == shard_.size() && entry->given != 0 && entry->done >= entry->given;
            wrong += right ? 0U : 1U;
        }
        return wrong + (recorder_.count() == verbs() ? 0U : 1U);
    }

  private:
    void gather() {
        shardkit::all_gather(rank_.world(), std::span<const float>(shard_), std::span<float>(full_),
                             rank_.communication_stream());
        keep();
    }

    shardkit::Rank& rank_;
    std::vector<float> shard_;
    std::vector<float> full_;
    shardkit::detail::Recorder recorder_;
};

}  // namespace benchmarks::peers

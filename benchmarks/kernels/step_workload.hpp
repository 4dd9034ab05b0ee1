// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/norm.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

#include "engine_workload.hpp"

namespace benchmarks::kernels {

/// The global norm and a clipped step of AdamW, as a training loop calls them: n elements in equal groups, gradients
/// reduced. bf16: with fp32 gradients' sums and master copies.
template <class T>
class Step final : public EngineWorkload {
    using Base = EngineWorkload;
    using Layer = shardkit::Sharded<shardkit::TensorList<T>, shardkit::NoShard>;
    using Model = decltype(shardkit::Model{std::declval<std::vector<Layer>&>()});
    static constexpr shardkit::AdamWOptions options{.learning_rate = 0.01};
    static constexpr double max_norm = 1;

  public:
    Step(shardkit::Rank& rank, std::size_t n, std::size_t groups) : Base(rank), rank_(rank), n_(n) {
        const std::size_t count = std::min(n, groups);
        layers_.reserve(count);
        for (std::size_t g = 0; g < count; ++g) {
            bounds_.push_back(n / count * g + std::min(g, n % count));
            const std::size_t size = n / count + (g < n % count ? 1 : 0);
            layers_.emplace_back(rank, "groups." + std::to_string(g), shardkit::TensorList<T>{{"weight", {size}}});
        }
        bounds_.push_back(n);
        model_.emplace(layers_);
    }
    std::size_t groups() const noexcept override { return layers_.size(); }

    void prepare() override {
        this->stream_.synchronize();
        for (std::size_t g = 0; g < layers_.size(); ++g) {
            layers_[g].load(std::size_t{0}, std::span<const float>(values<float>(0, size_of(g), bounds_[g])));
            this->put_values(shardkit::gradient_shard(layers_[g]).first(size_of(g)), 1, bounds_[g]);
        }
        optimizer_.emplace(*model_, options);
        // What the first norm of a model makes.
        static_cast<void>(shardkit::global_norm(shardkit::assume_reduced(*model_)));
        this->stream_.synchronize();
    }
    void once() override {
        auto reduced = shardkit::assume_reduced(*model_);
        const auto norm = shardkit::global_norm(reduced);
        optimizer_->step(std::move(reduced), shardkit::clip(norm, max_norm));
    }
    std::uint64_t count_wrong() override {
        double squares = 0;
        for (std::size_t i = 0; i < n_; ++i) { squares += std::pow(static_cast<double>(value(1, i)), 2); }
        const double scale = std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6));
        std::uint64_t wrong = 0;
        for (std::size_t g = 0; g < layers_.size(); ++g) {
            std::vector<float> now(size_of(g));
            layers_[g].read_full(std::size_t{0}, std::span<float>(now));
            wrong += this->count(now.size(), [&](std::size_t i) {
                // The first step: both moments' corrections leave the gradient and its magnitude.
                const double gradient = scale * static_cast<double>(value(1, bounds_[g] + i));
                const double p = (1 - options.learning_rate * options.weight_decay) *
                                     static_cast<double>(value(0, bounds_[g] + i)) -
                                 options.learning_rate * gradient / (std::abs(gradient) + options.epsilon);
                const double allowed = sizeof(T) == 2 ? 0.004 * (std::abs(p) + 1e-3) : 2e-5 * (std::abs(p) + 1e-2);
                return std::abs(static_cast<double>(now[i]) - p) <= allowed;
            });
        }
        return wrong;
    }

  private:
    std::size_t size_of(std::size_t group) const { return bounds_[group + 1] - bounds_[group]; }

    shardkit::Rank& rank_;
    std::size_t n_;
    std::vector<Layer> layers_;
    std::optional<Model> model_;
    std::vector<std::size_t> bounds_;  // of the groups among all elements
    std::optional<decltype(shardkit::AdamW(std::declval<const Model&>(), options))> optimizer_;
};

}  // namespace benchmarks::kernels

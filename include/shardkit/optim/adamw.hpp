// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/optim/adamw_options.hpp>
#include <shardkit/optim/adamw_spans.hpp>
#include <shardkit/optim/adamw_update.hpp>
#include <shardkit/optim/optimizer.hpp>

namespace shardkit {

/// AdamW's part of an Optimizer.
struct AdamWRule {
    using Options = AdamWOptions;
    static constexpr std::array<std::string_view, 2> state_names{"exp_avg", "exp_avg_sq"};

    struct Progress {
        std::uint64_t steps = 0;
        double beta1_power = 1;
        double beta2_power = 1;
    };

    static constexpr bool needs_state(const Options& /*options*/) noexcept { return true; }
    static constexpr void advance(Progress& progress, const Options& options) noexcept {
        ++progress.steps;
        progress.beta1_power *= options.beta1;
        progress.beta2_power *= options.beta2;
    }
    template <class A>
    using Update = AdamWUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& progress, const Options& options, double scale) {
        return adamw_update<A>(options, progress.beta1_power, progress.beta2_power, scale);
    }
    template <class Kernels, class Stream, class A, class Master, class Gather, class Gradient>
    static void run(const Stream& stream, std::span<const UpdateRun> runs, const Update<A>* updates,
                    const std::uint32_t* skip, std::span<Master> master, std::span<Gather> gathered,
                    std::span<const Gradient> gradient, const std::array<std::span<A>, 2>& states) {
        Kernels::adamw(stream, runs, updates, skip,
                       AdamWSpans<Master, Gather, Gradient>{master, gathered, gradient, states[0], states[1]});
    }
};

/// Adam with decoupled weight decay over a model of sharded groups, as torch.optim.AdamW computes it.
///     AdamW optimizer{model, {.learning_rate = 3e-4}};
/// Memory:  two states in the master's arithmetic type, for the elements that this rank updates.
/// Cost:    28 bytes moved per element in fp32; unscale, clip and the gathered copy ride along.
template <class... T>
class AdamW : public Optimizer<AdamWRule, T...> {
  public:
    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    explicit AdamW(const Groups<T...>& groups, AdamWOptions options = {}, std::vector<ParamGroup> param_groups = {},
                   SourceLocation where = SourceLocation::current())
        : Optimizer<AdamWRule, T...>(groups, options, std::move(param_groups), where) {}
};

}  // namespace shardkit

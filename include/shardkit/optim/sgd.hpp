// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/sgd_options.hpp>
#include <shardkit/optim/sgd_spans.hpp>
#include <shardkit/optim/sgd_update.hpp>

namespace shardkit {

/// SGD's part of an Optimizer.
struct SgdRule {
    using Options = SgdOptions;
    static constexpr std::array<std::string_view, 1> state_names{"momentum_buffer"};

    struct Progress {
        std::uint64_t steps = 0;
    };

    static constexpr bool needs_state(const Options& options) noexcept { return options.rule != Momentum::none; }
    static constexpr void advance(Progress& progress, const Options& /*options*/) noexcept { ++progress.steps; }
    template <class A>
    using Update = SgdUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return sgd_update<A>(options, scale);
    }
    template <class Kernels, class Stream, class A, class Master, class Gather, class Gradient>
    static void run(const Stream& stream, std::span<const UpdateRun> runs, const Update<A>* updates,
                    const std::uint32_t* skip, std::span<Master> master, std::span<Gather> gathered,
                    std::span<const Gradient> gradient, const std::array<std::span<A>, 1>& states) {
        Kernels::sgd(stream, runs, updates, skip,
                     SgdSpans<Master, Gather, Gradient>{master, gathered, gradient, states[0]});
    }
};

/// Stochastic gradient descent, plain, with momentum or Nesterov's, as torch.optim.SGD computes it.
///     SGD optimizer{model, {.learning_rate = 0.1, .rule = Momentum::nesterov, .momentum = 0.9}};
/// Memory:  one state where there is momentum, none otherwise.
template <class... T>
class SGD : public Optimizer<SgdRule, T...> {
  public:
    /// @throws std::invalid_argument for hyper-parameters out of range, or two groups with one path
    explicit SGD(const Groups<T...>& groups, SgdOptions options = {}, std::vector<ParamGroup> param_groups = {},
                 SourceLocation where = SourceLocation::current())
        : Optimizer<SgdRule, T...>(groups, options, std::move(param_groups), where) {}
};

}  // namespace shardkit

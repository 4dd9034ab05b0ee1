// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/machine/act.hpp>
#include <shardkit/optim/clip_coefficient.hpp>
#include <shardkit/optim/global_norm.hpp>
#include <shardkit/optim/step_options.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/argument_types.hpp>
#include <shardkit/step/model.hpp>
#include <shardkit/step/reduce.hpp>

namespace shardkit::detail {
template <class T>
class List;
struct StepShare;
}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
class UpdatesOfOptimizer;
struct CombinedParts;
}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail SHARDKIT_FACE {
class OptimizerFrame;
}
namespace shardkit::spi SHARDKIT_FACE {
class OptimizerContents;
}

namespace shardkit SHARDKIT_FACE {

/// An optimizer over a model, whichever it is: AdamW, SGD, Lion, one of your own. A trainer that chooses at run time
/// keeps a std::unique_ptr of it.
///     const auto norm = optimizer.step(std::move(accumulation), {.divisor = mean, .max_norm = 1.0});
/// Scalars of a step (step counts, learning rate, clip coefficient, loss scale) live in the engine's memory and are
/// computed in the compute stream's order: a step waits for nothing and can be captured in a graph.
class Optimizer {
  public:
    virtual ~Optimizer();

    /// The groups that it updates.
    const Model& model() const noexcept { return model_; }

    /// @throws UsageError for a CombinedOptimizer, whose parts have theirs; a Muon's is that of its matrices
    double learning_rate(SourceLocation where = SourceLocation::current()) const;
    /// For schedules of the learning rate; takes effect with the next step. A Muon's rest goes along: the rate that
    /// it was given is multiplied by the same factor, as set_learning_rate_factor.
    /// @throws UsageError likewise; std::invalid_argument where a Muon was given a rate of 0, of which no factor
    ///         makes another
    void set_learning_rate(double learning_rate, SourceLocation where = SourceLocation::current());
    /// For schedules of several learning rates, those of the parts of a Muon or a CombinedOptimizer: the next steps
    /// take each rate that was given (in options, or by set_learning_rate) times `factor`. Rates that are given later
    /// are taken as they are until the next factor.
    ///     constexpr LearningRate part_of_peak{.peak = 1, .warm_up = 2000, .steps = 100'000};
    ///     optimizer.set_learning_rate_factor(part_of_peak(step));
    /// @throws std::invalid_argument for a factor, or a product, that is no learning rate: nothing has changed then
    void set_learning_rate_factor(double factor, SourceLocation where = SourceLocation::current());

    /// Reduces the gradients, takes their global norm, clips, and updates every group: all that most trainers need.
    /// With a loss scale, a step whose gradients overflowed changes nothing but the scale.
    /// Order:   stream-ordered; collective over the data ranks for what is left to reduce, and over the world for the
    ///          norm
    /// @returns the norm before clipping, a number in the engine's memory; its value() waits
    /// @throws  UsageError when the gradients are another model's or a window is open, and std::invalid_argument for
    ///          options out of range: the accumulation is as it was then. UsageError as reduce
    GlobalNorm step(Accumulation&& accumulation, const StepOptions& options = {},
                    SourceLocation where = SourceLocation::current());

    /// Lets each group be updated in the backward pass, once the next group's gradients have been added, instead of
    /// all groups at the end: the reduction of its own runs beside the backward pass of the next. Call it before the
    /// first gradients; `step` with the accumulation closes the step. The bits are those of a plain step. A group
    /// with GradientRelease::at_update gives its gradients back with its update, so that those of a few groups are in
    /// memory at once, and not the model's.
    ///     Accumulation accumulation{model};
    ///     optimizer.step_in_backward(accumulation);
    ///     // backward: windows end before the group's last add
    ///     optimizer.step(std::move(accumulation));
    /// No window of a group opens between its update and the end of the step. The optimizer stays where it is until
    /// then. If the accumulation ends before, the updated groups refuse to be used until they are loaded.
    /// Order:   collective over the world where the engine compares calls; each update is stream-ordered local work
    /// Cost:    two launches for each group, where a plain step takes small groups together
    /// @throws  UsageError for a norm to clip by or a loss scale, which need all gradients at once; for a
    ///          CombinedOptimizer, gradients that were added before, another model, a schedule, or a number of
    ///          microbatches that is not known; nothing has changed then
    /// Source:  fused backward of LOMO, arXiv 2306.09782; optimizer step in backward of PyTorch
    void step_in_backward(Accumulation& accumulation, const StepOptions& options = {},
                          SourceLocation where = SourceLocation::current());

    /// Updates every group from its reduced gradients and writes the next gather's source, in one pass.
    /// With a loss scale, a step whose gradients overflowed changes nothing but the scale, for which the norm is
    /// computed. Local work then; collective over the world otherwise.
    /// A step that is refused leaves the gradients to the caller: they can be given again once the reason is gone.
    /// @throws UsageError when the gradients are another model's, were consumed, or a window is open
    template <class X>
    void step(X&& reduced, SourceLocation where = SourceLocation::current()) {
        if constexpr (detail::steps<X>()) { step_alone(std::forward<X>(reduced), where); }
    }
    /// The same with a clip coefficient that the gradients are multiplied by.
    template <class X>
    void step(X&& reduced, ClipCoefficient coefficient, SourceLocation where = SourceLocation::current()) {
        if constexpr (detail::steps<X>()) { step_clipped(std::forward<X>(reduced), coefficient, where); }
    }
    /// What this rank holds of every optimizer state that has a number for each element.
    template <class Info = ShardInfo>
    std::vector<Info> shards() {
        std::vector<Info> list;
        list_shards(list);
        return list;
    }
    /// Steps that a group has taken, for checkpoints and tests. Waits for the compute stream.
    /// @throws UsageError when it is not the model's
    template <class Layer>
    std::uint64_t steps(const Layer& layer, SourceLocation where = SourceLocation::current()) const {
        return steps_of(spi::group(layer, where), where);
    }

  protected:
    explicit Optimizer(const Model& model);
    Optimizer(Optimizer&&) noexcept;
    Optimizer& operator=(Optimizer&&) noexcept;
    /// A parameter of the model is another optimizer's: this one makes no step alone.
    void leave(std::string parameter);
    /// @throws UsageError when it was moved from
    virtual void require_here(SourceLocation where) const;
    /// @throws UsageError, which names `verb`, for that or during a step in backward, whose groups share the numbers
    void require_between_steps(std::string_view verb, SourceLocation where) const;

  private:
    friend spi::OptimizerContents;
    friend detail::UpdatesOfOptimizer;
    friend detail::CombinedParts;
    friend detail::OptimizerFrame;

    void step_alone(Reduced&& reduced, SourceLocation where);
    void step_clipped(Reduced&& reduced, const ClipCoefficient& coefficient, SourceLocation where);
    /// Refuses a step that these gradients or the model's state do not allow; nothing has changed then.
    void check_model(const Model& gradients, SourceLocation where) const;
    void require_own(const Model& gradients, SourceLocation where) const;
    void check_step(const Model& gradients, schedule::Act first, SourceLocation where) const;
    /// A step that was checked.
    void update(Reduced&& reduced, const ClipCoefficient& coefficient, SourceLocation where);

    /// The next steps take each learning rate that was given times to / from; of `from` that is `to`, exactly.
    void set_rates(double to, double from, SourceLocation where);
    /// Gives the updates of the groups that take part to the compute stream. @returns what ranks state of the step
    virtual std::uint64_t run(const Reduced& reduced, const ClipCoefficient& coefficient,
                              const detail::StepShare& share, SourceLocation where) = 0;
    /// Closes a step in backward.
    GlobalNorm close_backward(Accumulation&& accumulation, const StepOptions& options, SourceLocation where);
    /// A hash of what its ParamGroups choose for group `number`; 0 where ranks do not compare it.
    virtual std::uint64_t choices(std::size_t number) const noexcept = 0;
    /// The optimizers of which this one consists, which alone hold something.
    virtual detail::List<detail::OptimizerFrame*> parts() = 0;
    /// The one that it is. @throws UsageError, which names `verb`, for several
    virtual detail::OptimizerFrame& alone(std::string_view verb, SourceLocation where) = 0;
    /// The one whose learning rate is its. @throws UsageError likewise
    virtual detail::OptimizerFrame& leading(std::string_view verb, SourceLocation where) {
        return alone(verb, where);
    }
    std::uint64_t steps_of(const detail::Group& group, SourceLocation where) const;
    void list_shards(std::vector<ShardInfo>& list);

    Model model_;
    std::uint64_t identity_;  // moves with what it is of
    std::string left_out_;    // the first parameter that is another optimizer's
    struct Backward {
        std::uint64_t stated;
        double divisor;
        SourceLocation where;
        detail::Group* left = nullptr;  // whose update is still to be given to the compute stream
    };
    std::optional<Backward> backward_;  // the step in backward that is under way; stays where it began
    detail::Owned<detail::UpdatesOfOptimizer> in_backward_;
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/optim/optimizer_frame.hpp>
#endif
